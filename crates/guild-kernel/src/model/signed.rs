//! Thoughts that a provider has signed, and wants back as they were.
//!
//! Gemini refuses a call, and Anthropic a thought, that comes back without its signature. What the kernel keeps of
//! thoughts is one text, so signatures are written behind it, on a last line of their own.

use serde_json::Value;

const MARK: &str = "~signed ";

/// Thoughts with their signatures behind them.
pub(super) fn join(mut text: String, signed: Option<(&'static str, Value)>) -> Option<String> {
    if let Some((by, signatures)) = signed {
        text.push_str(&format!("\n{MARK}{by} {signatures}"));
    }
    (!text.is_empty()).then_some(text)
}

/// The thoughts alone, and the signatures if this provider made them.
pub(super) fn split<'a>(text: &'a str, by: &str) -> (&'a str, Option<Value>) {
    let Some((before, last)) = text.rsplit_once('\n') else { return (text, None) };
    let Some((who, signatures)) = last.strip_prefix(MARK).and_then(|rest| rest.split_once(' '))
    else {
        return (text, None);
    };
    match serde_json::from_str(signatures) {
        Ok(signatures) => (before, Some(signatures).filter(|_| who == by)),
        Err(_) => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn signatures_come_back_to_whom_they_belong() {
        for thoughts in ["", "hm", "a\nb\n"] {
            let kept = join(thoughts.to_owned(), Some(("gemini", json!([[0, "x y\n"]])))).unwrap();
            assert_eq!(split(&kept, "gemini"), (thoughts, Some(json!([[0, "x y\n"]]))));
            assert_eq!(split(&kept, "anthropic"), (thoughts, None));
        }
        assert_eq!(join("hm".to_owned(), None).as_deref(), Some("hm"));
        assert_eq!(join(String::new(), None), None);
        for text in ["hm", "a\nb", "a\n~signed gemini [", "a\n~signed gemini"] {
            assert_eq!(split(text, "gemini"), (text, None));
        }
    }
}
