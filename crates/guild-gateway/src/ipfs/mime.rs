//! What a file is, by the end of its name. Nothing is guessed from its bytes, and browsers are told not to either.

const TYPES: &[(&str, &str)] = &[
    ("avif", "image/avif"),
    ("bin", "application/octet-stream"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("log", "text/plain; charset=utf-8"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ndjson", "application/x-ndjson"),
    ("ogg", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/plain; charset=utf-8"),
    ("rs", "text/plain; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("toml", "text/plain; charset=utf-8"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("yaml", "text/plain; charset=utf-8"),
    ("yml", "text/plain; charset=utf-8"),
    ("zip", "application/zip"),
];

/// The type of a file of this name; bytes without meaning, if it has none or another.
pub(super) fn of(name: Option<&str>) -> &'static str {
    let end = name.and_then(|name| Some(name.rsplit_once('.')?.1)).unwrap_or_default();
    let known = |(known, _): &&(&str, &str)| known.eq_ignore_ascii_case(end);
    TYPES.iter().find(known).map_or("application/octet-stream", |(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_name_counts() {
        assert_eq!(of(Some("a.tar.GZ")), "application/gzip");
        assert_eq!(of(Some(".html")), "text/html; charset=utf-8");
        assert_eq!(of(Some("html")), "application/octet-stream");
        assert_eq!(of(Some("a.")), "application/octet-stream");
        assert_eq!(of(None), "application/octet-stream");
    }
}
