//! "Did you mean …?"

/// The candidate nearest to what was written, if it is near enough to be meant.
pub(crate) fn nearest<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    near(written, candidates, 1).pop()
}

/// The candidates that may be meant, nearest first, at most `max`.
pub(crate) fn near<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    max: usize,
) -> Vec<&'a str> {
    // What is very long is no slip of the finger, and comparing it would be slow.
    if written.len() > 100 {
        return Vec::new();
    }
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|candidate| (edits(written, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3 + 1)
        .collect();
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(max).map(|(_, candidate)| candidate).collect()
}

/// How many letters to insert, remove or replace to make one text from the other.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let cost = usize::from(x != *y);
            next.push((row[j] + cost).min(row[j + 1] + 1).min(next[j] + 1));
        }
        row = next;
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let keys = ["gateway.listen", "store.url", "log.level"];
        assert_eq!(nearest("gateway.listn", keys), Some("gateway.listen"));
        assert_eq!(nearest("store.uri", keys), Some("store.url"));
        assert_eq!(nearest("colour", keys), None);
        assert_eq!(nearest(&"x".repeat(101), keys), None);
        assert_eq!(
            near("store.ur", ["log.level", "store.uri", "store.ur"], 2),
            ["store.ur", "store.uri"]
        );
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "ab"), 2);
    }
}
