//! Letters within one process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};

use futures_util::future::{Either, ready, select};
use guild_protocol::env::{BoxFuture, Clock};

use super::letter::Letter;
use super::queue::{Limits, Mailbox, Queue, put};
use super::{Mail, Receipt};
use crate::error::{Error, Result};
use crate::lock;
use crate::subject::{Pattern, Topic};

/// The mail of a single process. Nothing is kept: a letter that nobody listens for is gone, and its sender is told.
#[derive(Clone)]
pub struct Local {
    inner: Arc<Mutex<Inner>>,
    limits: Limits,
    clock: Arc<dyn Clock>,
}

struct Reader {
    pattern: Pattern,
    group: Option<String>,
    queue: Weak<Mutex<Queue>>,
}

#[derive(Default)]
struct Inner {
    readers: Vec<Reader>,
    /// Counts questions, and shares the letters of a group out.
    count: u64,
}

impl Local {
    /// A mail that nobody reads yet.
    pub fn new(limits: Limits, clock: Arc<dyn Clock>) -> Local {
        Local { inner: Arc::default(), limits, clock }
    }

    fn deliver(&self, letter: Letter) -> Result<Receipt> {
        letter.check_size(self.limits.letter_max_bytes)?;
        let mut inner = lock(&self.inner);
        inner.readers.retain(|reader| reader.queue.strong_count() > 0);
        inner.count = inner.count.wrapping_add(1);
        let first = usize::try_from(inner.count).unwrap_or(0) % inner.readers.len().max(1);
        let (behind, before) = inner.readers.split_at(first);
        let (mut served, mut heard, mut taken) = (BTreeSet::new(), false, false);
        for reader in before.iter().chain(behind) {
            if !reader.pattern.matches(letter.subject.as_str())
                || reader.group.as_ref().is_some_and(|group| served.contains(group))
            {
                continue;
            }
            heard = true;
            let Some(queue) = reader.queue.upgrade() else { continue };
            if put(&queue, letter.clone()) {
                taken = true;
                served.extend(reader.group.clone());
            }
        }
        match (heard, taken) {
            (_, true) => Ok(Receipt::Passed),
            (true, false) => Err(Error::Busy),
            (false, false) => Ok(Receipt::Unheard),
        }
    }

    fn inbox(&self) -> Result<(Topic, Mailbox)> {
        let count = {
            let mut inner = lock(&self.inner);
            inner.count = inner.count.wrapping_add(1);
            inner.count
        };
        let name = format!("_INBOX.local.{count}");
        Ok((Topic::parse(&name)?, self.subscribe(Pattern::parse(&name)?, None)))
    }

    fn put_question(&self, mut letter: Letter) -> Result<Mailbox> {
        let (reply_to, mailbox) = self.inbox()?;
        letter.reply_to = Some(reply_to);
        match self.deliver(letter)? {
            Receipt::Unheard => Err(Error::Unheard),
            Receipt::Kept | Receipt::Passed => Ok(mailbox),
        }
    }
}

impl Mail for Local {
    fn send_all(&self, letters: Vec<Letter>) -> BoxFuture<Vec<Result<Receipt>>> {
        let sent: Vec<_> = letters.into_iter().map(|letter| self.deliver(letter)).collect();
        Box::pin(ready(sent))
    }

    fn cast(&self, letter: Letter) {
        // It may be lost.
        let _ = self.deliver(letter);
    }

    fn ask(&self, letter: Letter, timeout_ms: i64) -> BoxFuture<Result<Letter>> {
        let mut mailbox = match self.put_question(letter) {
            Ok(mailbox) => mailbox,
            Err(error) => return Box::pin(ready(Err(error))),
        };
        let clock = self.clock.clone();
        Box::pin(async move {
            match select(mailbox.take(), clock.sleep(timeout_ms)).await {
                Either::Left((answer, _)) => Ok(answer),
                Either::Right(_) => Err(Error::NoAnswer),
            }
        })
    }

    fn subscribe(&self, pattern: Pattern, group: Option<&str>) -> Mailbox {
        let (mailbox, queue) = Mailbox::new(&self.limits);
        let group = group.map(str::to_owned);
        lock(&self.inner).readers.push(Reader { pattern, group, queue });
        mailbox
    }
}
