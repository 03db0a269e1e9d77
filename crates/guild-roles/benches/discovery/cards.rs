//! Announcements as the framework makes them that most providers use: a kind, a name, a description, a picture.

use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::announcement::Announcement;

use crate::said;

pub(crate) const NOW_S: u64 = 1_800_000_000;
/// So many providers, each with many offers.
const PEOPLE: u64 = 1_000;
/// So far apart they were made, the newest first: a relay that is asked for what it has answers in this order.
const APART_S: u64 = 8;

/// So many announcements, signed on all cores.
pub(crate) fn events(count: u64) -> Result<Vec<Event>, String> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let part = count.div_ceil(threads);
    let signed = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|n| scope.spawn(move || (n * part..count.min((n + 1) * part)).map(card).collect()))
            .collect();
        let join = |part: std::thread::ScopedJoinHandle<'_, _>| part.join().map_err(|_| "panicked");
        parts.into_iter().map(join).collect::<Result<Vec<Result<Vec<Event>, String>>, _>>()
    })
    .map_err(said)?;
    let signed = signed.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(signed.into_iter().flatten().collect())
}

fn card(n: u64) -> Result<Event, String> {
    let key: SecretKey = format!("{:064x}", n % PEOPLE + 1).parse().map_err(said)?;
    let mut card = Announcement::new(format!("offer-{}", n / PEOPLE));
    card.kinds.push("5050".to_owned());
    let content = &mut card.content;
    content.name = Some(format!("Provider {}", n % PEOPLE));
    content.description = Some("Embeddings of texts, and benchmarks of what runs here.".to_owned());
    content.supports_encryption = Some(true);
    let picture = format!("https://provider.example/{}.png", n % PEOPLE);
    content.other.insert("picture".to_owned(), picture.into());
    card.draft(NOW_S - 1_000 - n * APART_S).and_then(|draft| draft.sign(&key)).map_err(said)
}

/// As a relay sends it.
pub(crate) fn frame(event: &Event) -> String {
    guild_protocol::nostr::message::event_frame("s", &event.to_json())
}
