//! Letters that wait to be taken, never more than so many.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};

use super::letter::Letter;
use crate::{Ringer, lock};

/// How much may wait, and how large one letter may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The largest letter, with its headers.
    pub letter_max_bytes: usize,
    /// How many letters wait in one place; further ones are lost, and counted.
    pub queue_max_letters: usize,
    /// How large they are together.
    pub queue_max_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // What a NATS server takes unless it is told otherwise.
            letter_max_bytes: 1024 * 1024,
            queue_max_letters: 4_096,
            queue_max_bytes: 64 * 1024 * 1024,
        }
    }
}

pub(super) struct Queue {
    letters: VecDeque<Letter>,
    bytes: usize,
    limits: Limits,
    waiting: Option<Waker>,
}

impl Queue {
    pub(super) fn new(limits: &Limits) -> Queue {
        Queue { letters: VecDeque::new(), bytes: 0, limits: limits.clone(), waiting: None }
    }

    /// Takes a letter; false if too much waits already.
    fn put(&mut self, letter: Letter) -> bool {
        let bytes = self.bytes.saturating_add(letter.len_bytes());
        if self.letters.len() >= self.limits.queue_max_letters
            || bytes > self.limits.queue_max_bytes
        {
            return false;
        }
        self.bytes = bytes;
        self.letters.push_back(letter);
        true
    }

    pub(super) fn take(&mut self) -> Option<Letter> {
        let letter = self.letters.pop_front()?;
        self.bytes = self.bytes.saturating_sub(letter.len_bytes());
        Some(letter)
    }

    pub(super) fn len(&self) -> usize {
        self.letters.len()
    }
}

/// Puts a letter into a queue and wakes whoever waits there; false if too much waits already.
pub(super) fn put(queue: &Mutex<Queue>, letter: Letter) -> bool {
    let (taken, waiting) = {
        let mut queue = lock(queue);
        (queue.put(letter), queue.waiting.take())
    };
    if let Some(waker) = waiting {
        waker.wake();
    }
    taken
}

/// Where letters wait for the one who takes them.
pub struct Mailbox {
    queue: Arc<Mutex<Queue>>,
    /// Tells whoever fills it that nobody takes them any more.
    pub(super) gone: Option<Ringer>,
}

impl Mailbox {
    pub(super) fn new(limits: &Limits) -> (Mailbox, Weak<Mutex<Queue>>) {
        let queue = Arc::new(Mutex::new(Queue::new(limits)));
        let weak = Arc::downgrade(&queue);
        (Mailbox { queue, gone: None }, weak)
    }

    /// Waits for the next letter.
    pub fn take(&mut self) -> impl Future<Output = Letter> + Send + Unpin + use<> {
        let queue = self.queue.clone();
        poll_fn(move |cx| {
            let mut queue = lock(&queue);
            match queue.take() {
                Some(letter) => Poll::Ready(letter),
                None => {
                    queue.waiting = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
    }

    /// The next letter, if there is one.
    pub fn try_take(&mut self) -> Option<Letter> {
        lock(&self.queue).take()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if let Some(gone) = &self.gone {
            gone.ring(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Topic;

    #[test]
    fn a_queue_has_its_limits_in_letters_and_bytes() {
        let letter = |bytes| Letter::new(Topic::parse("a").unwrap(), vec![b'x'; bytes]);
        let limits = Limits { queue_max_letters: 3, queue_max_bytes: 100, ..Limits::default() };
        let mut queue = Queue::new(&limits);
        assert!(queue.put(letter(1)) && queue.put(letter(90)));
        assert!(!queue.put(letter(20)), "too many bytes");
        assert!(queue.put(letter(1)));
        assert!(!queue.put(letter(0)), "too many letters");
        for bytes in [1, 90, 1] {
            assert_eq!(queue.take().unwrap().payload.len(), bytes);
        }
        assert_eq!((queue.take(), queue.len(), queue.bytes), (None, 0, 0));
    }
}
