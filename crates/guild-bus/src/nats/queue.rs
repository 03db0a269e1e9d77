//! Bells that wait for the server: of each topic one, the earliest.

use std::collections::{BTreeMap, VecDeque};

/// First in, first out by topic; a topic that rings again keeps its place.
pub(super) struct Queue {
    max_topics: usize,
    order: VecDeque<String>,
    earliest: BTreeMap<String, i64>,
}

impl Queue {
    pub(super) fn new(max_topics: usize) -> Queue {
        Queue { max_topics, order: VecDeque::new(), earliest: BTreeMap::new() }
    }

    /// Takes a bell; false if too many topics wait already.
    pub(super) fn put(&mut self, topic: &str, after: i64) -> bool {
        if let Some(earlier) = self.earliest.get_mut(topic) {
            *earlier = after.min(*earlier);
            return true;
        }
        if self.order.len() >= self.max_topics {
            return false;
        }
        self.order.push_back(topic.to_owned());
        self.earliest.insert(topic.to_owned(), after);
        true
    }

    /// The topic that has waited longest.
    pub(super) fn take(&mut self) -> Option<(String, i64)> {
        let topic = self.order.pop_front()?;
        // What stands in the order has a number.
        let after = self.earliest.remove(&topic)?;
        Some((topic, after))
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_waits_once_with_its_earliest_number_and_in_its_turn() {
        let mut queue = Queue::new(2);
        assert!(queue.put("b", 5) && queue.put("a", 9) && queue.put("b", 3) && queue.put("b", 7));
        assert!(!queue.put("c", 1), "full");
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.take(), Some(("b".to_owned(), 3)));
        assert!(queue.put("c", 1) && queue.put("a", 10));
        assert_eq!(queue.take(), Some(("a".to_owned(), 9)));
        assert_eq!(queue.take(), Some(("c".to_owned(), 1)));
        assert_eq!((queue.take(), queue.len()), (None, 0));
    }
}
