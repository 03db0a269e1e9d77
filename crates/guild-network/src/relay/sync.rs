//! Reconciling what a client has with what is here (NIP-77).

use guild_protocol::nostr::EventId;
use negentropy::{Id, Negentropy, NegentropyStorageVector};

/// Bytes of a message of ours, before it is written in hex.
const MESSAGE_MAX_BYTES: u64 = 60_000;

/// One reconciliation: the events on this side, as they were when it began.
#[derive(Debug)]
pub(crate) struct Sync {
    storage: NegentropyStorageVector,
    count: usize,
}

impl Sync {
    /// Of these events.
    pub(crate) fn new(events: &[(u64, EventId)]) -> Result<Sync, negentropy::Error> {
        let mut storage = NegentropyStorageVector::with_capacity(events.len());
        for (created_at, id) in events {
            storage.insert(*created_at, Id::from_byte_array(*id.as_bytes()))?;
        }
        storage.seal()?;
        Ok(Sync { storage, count: events.len() })
    }

    /// How many events it holds.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The answer to a message, both in hex.
    pub(crate) fn answer(&self, message: &str) -> Result<String, String> {
        let message = from_hex(message).ok_or("the message is not written in hex")?;
        let mut negentropy = Negentropy::borrowed(&self.storage, MESSAGE_MAX_BYTES)
            .map_err(|error| error.to_string())?;
        let answer = negentropy.reconcile(&message).map_err(|error| error.to_string())?;
        Ok(guild_protocol::hash::to_hex(&answer))
    }
}

/// Both cases, as other implementations write them.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use guild_protocol::hash::to_hex;
    use proptest::prelude::*;

    use super::*;

    fn event(number: u32) -> (u64, EventId) {
        let mut id = [7; 32];
        id[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
        (u64::from(number / 3), EventId::from_bytes(id))
    }

    #[test]
    fn two_sets_learn_how_they_differ() {
        let ours: Vec<_> = (0..5_000).map(event).collect();
        let theirs: Vec<_> = (1_000..5_500).map(event).collect();
        let relay = Sync::new(&ours).unwrap();
        let client = Sync::new(&theirs).unwrap();
        let mut client = Negentropy::borrowed(&client.storage, 4_096).unwrap();
        let (mut have, mut need) = (Vec::new(), Vec::new());
        let mut message = client.initiate().unwrap();
        for _ in 0..1_000 {
            let answer = from_hex(&relay.answer(&to_hex(&message)).unwrap()).unwrap();
            match client.reconcile_with_ids(&answer, &mut have, &mut need).unwrap() {
                Some(next) => message = next,
                None => break,
            }
        }
        let ids = |numbers: std::ops::Range<u32>| -> BTreeSet<[u8; 32]> {
            numbers.map(|n| *event(n).1.as_bytes()).collect()
        };
        let set = |found: Vec<Id>| found.into_iter().map(Id::to_bytes).collect::<BTreeSet<_>>();
        assert_eq!((set(have), set(need)), (ids(5_000..5_500), ids(0..1_000)));
    }

    #[test]
    fn rubbish_is_refused_in_words() {
        let relay = Sync::new(&[event(1)]).unwrap();
        for bad in ["", "6", "zz", "00", "61000005"] {
            assert!(relay.answer(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn no_message_breaks_it(message in proptest::collection::vec(any::<u8>(), 0..300), count in 0_u32..200) {
            let relay = Sync::new(&(0..count).map(event).collect::<Vec<_>>()).unwrap();
            let with_version = [&[0x61], message.as_slice()].concat();
            for message in [&message, &with_version] {
                if let Ok(answer) = relay.answer(&to_hex(message)) {
                    prop_assert!(answer.len() as u64 <= 2 * MESSAGE_MAX_BYTES);
                }
            }
        }
    }
}
