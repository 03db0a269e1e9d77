//! Looking things up in tags. A tag is a list of texts; the first is its name.

/// One tag. Read from outside it may be empty.
pub type Tag = Vec<String>;

/// A tag from its parts.
pub fn tag<const N: usize>(items: [&str; N]) -> Tag {
    items.map(str::to_owned).to_vec()
}

/// What follows the name, for every tag with this name, in order.
pub fn all<'a>(tags: &'a [Tag], name: &str) -> impl Iterator<Item = &'a [String]> {
    tags.iter().filter_map(move |tag| match tag.split_first() {
        Some((first, rest)) if first == name => Some(rest),
        _ => None,
    })
}

/// The first value of every tag with this name that has one, in order.
pub fn values<'a>(tags: &'a [Tag], name: &str) -> impl Iterator<Item = &'a str> {
    all(tags, name).filter_map(|rest| rest.first().map(String::as_str))
}

/// The first value of the first tag with this name that has one.
///
/// ```
/// use guild_protocol::nostr::tag;
/// let tags = [tag::tag(["k", "5050"]), tag::tag(["k", "5000"]), tag::tag(["encrypted"])];
/// assert_eq!(tag::value(&tags, "k"), Some("5050"));
/// assert_eq!(tag::value(&tags, "encrypted"), None);
/// assert!(tag::has(&tags, "encrypted"));
/// ```
pub fn value<'a>(tags: &'a [Tag], name: &str) -> Option<&'a str> {
    values(tags, name).next()
}

/// Whether a tag with this name is there.
pub fn has(tags: &[Tag], name: &str) -> bool {
    all(tags, name).next().is_some()
}
