//! What a command prints, kept for a while so that a reader who was cut off can go on where it was.
//!
//! The room is bounded. While somebody reads, or has just been cut off, the command waits for room as it would with a
//! pipe. If nobody reads for a while the oldest frames go, the command runs on, and a later reader is told of the gap.
//!
//! What was sent may be lost with the connection. So a reader gets only half of the room at once, and all of that is
//! kept until it comes again and says by its number what it has.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::wire::{Bytes64, Frame, Stream};
use crate::exec::Ended;
use crate::outcome::Class;

/// How long a reader who takes nothing is waited for.
pub(crate) const PATIENCE_MS: i64 = 10_000;

/// What a frame takes beside what is in it: whoever prints single bytes must not fill the memory.
const FRAME_BYTES: usize = 128;

fn weight(data: &[u8]) -> usize {
    data.len() + FRAME_BYTES
}

/// The frames of one command.
pub(crate) struct Output {
    state: Mutex<Kept>,
    /// There are new frames.
    news: Notify,
    /// There is room, or nobody is waited for.
    room: Condvar,
    max_bytes: usize,
}

#[derive(Default)]
struct Kept {
    frames: VecDeque<Frame>,
    bytes: usize,
    next_seq: u64,
    ended: bool,
    /// Whether nobody is waited for any more, whoever comes and reads.
    hurried: bool,
    readers: BTreeMap<u64, Place>,
    readers_made: u64,
}

/// Where a reader is.
struct Place {
    /// The first frame that it may not have got.
    kept_from: u64,
    /// The first frame that it has not been sent.
    next_seq: u64,
    moved_ms: i64,
    /// Whether it is connected.
    here: bool,
    /// Whether it has not moved for so long that nobody waits for it.
    late: bool,
}

impl Place {
    fn new(from: u64, now_ms: i64) -> Place {
        Place { kept_from: from, next_seq: from, moved_ms: now_ms, here: true, late: false }
    }
}

impl Output {
    /// Whether a frame is behind the last that there will ever be.
    pub(crate) fn is_behind(&self, from: u64) -> bool {
        let kept = self.kept();
        kept.ended && from >= kept.next_seq
    }

    /// Whoever started the command has a while to come and read.
    pub(crate) fn new(max_bytes: usize, now_ms: i64) -> Output {
        let expected = Place { here: false, ..Place::new(1, now_ms) };
        let readers = BTreeMap::from([(0, expected)]);
        let state = Kept { next_seq: 1, readers, ..Kept::default() };
        Output { state: Mutex::new(state), news: Notify::new(), room: Condvar::new(), max_bytes }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what was printed; blocks while a reader is waited for. It must be less than half of the room: a reader who
    /// has been sent all there is would otherwise stand in the way of what comes next.
    pub(crate) fn print(&self, stream: Stream, data: Vec<u8>) {
        let mut kept = self.kept();
        let weight = weight(&data);
        while kept.bytes + weight > self.max_bytes {
            // Asked anew before each frame that goes: the next one may be waited for.
            if kept.is_awaited() {
                kept = self.room.wait(kept).unwrap_or_else(PoisonError::into_inner);
            } else if let Some(oldest) = kept.frames.pop_front() {
                kept.bytes -= self::weight(&oldest.data_b64.0);
            } else {
                break;
            }
        }
        kept.bytes += weight;
        kept.add(Frame { data_b64: Bytes64(data), ..frame(stream) });
        drop(kept);
        self.news.notify_waiters();
    }

    /// Adds the last frame; nothing is known of a command whose sandbox failed.
    pub(crate) fn end(&self, ended: Option<&Ended>) {
        let mut kept = self.kept();
        kept.add(Frame {
            exit_code: ended.and_then(|ended| ended.exit_code),
            signal: ended.and_then(|ended| ended.signal),
            class: ended.map(|ended| ended.class),
            truncated: ended.is_some_and(|ended| ended.class == Class::OutputLimit),
            ..frame(Stream::Exit)
        });
        kept.ended = true;
        drop(kept);
        self.news.notify_waiters();
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.kept().ended
    }

    /// How much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.kept().bytes
    }

    /// Nobody is waited for any more who has not moved for too long.
    pub(crate) fn expire(&self, now_ms: i64) {
        let mut kept = self.kept();
        let next_seq = kept.next_seq;
        kept.readers.retain(|_, place| {
            // Whoever has read everything is not late, however long nothing is printed.
            if place.here && place.next_seq >= next_seq {
                place.moved_ms = now_ms;
            }
            place.late = now_ms.saturating_sub(place.moved_ms) > PATIENCE_MS;
            place.here || !place.late
        });
        drop(kept);
        self.room.notify_all();
    }

    /// Nobody is waited for at all: the sandbox has ended.
    pub(crate) fn hurry(&self) {
        self.kept().hurried = true;
        self.room.notify_all();
    }
}

/// An empty one, whose number is given when it is added.
fn frame(stream: Stream) -> Frame {
    Frame {
        seq: 0,
        stream,
        data_b64: Bytes64::default(),
        exit_code: None,
        signal: None,
        class: None,
        truncated: false,
    }
}

impl Kept {
    fn add(&mut self, mut frame: Frame) {
        frame.seq = self.next_seq;
        self.next_seq += 1;
        self.frames.push_back(frame);
    }

    fn first_seq(&self) -> u64 {
        self.frames.front().map_or(self.next_seq, |frame| frame.seq)
    }

    /// Whether somebody who is waited for may not have the oldest frame.
    fn is_awaited(&self) -> bool {
        let first = self.first_seq();
        !self.hurried
            && !self.frames.is_empty()
            && self.readers.values().any(|place| !place.late && place.kept_from <= first)
    }
}

/// One who reads. Dropping it is being cut off: it is waited for a while longer.
pub(crate) struct Reader {
    output: std::sync::Arc<Output>,
    id: u64,
    /// How much it was sent.
    sent: usize,
}

impl Reader {
    /// Begins at the frame with this number.
    pub(crate) fn new(output: std::sync::Arc<Output>, from: u64, now_ms: i64) -> Reader {
        let mut kept = output.kept();
        let from = from.max(1);
        // Whoever was cut off where this one goes on has come again.
        let again = |(id, place): (&u64, &Place)| {
            let fits = !place.here && (place.kept_from..=place.next_seq).contains(&from);
            fits.then_some(*id)
        };
        if let Some(again) = kept.readers.iter().find_map(again) {
            kept.readers.remove(&again);
        }
        kept.readers_made += 1;
        let id = kept.readers_made;
        kept.readers.insert(id, Place::new(from, now_ms));
        drop(kept);
        output.room.notify_all();
        Reader { output, id, sent: 0 }
    }

    /// How many read this output.
    pub(crate) fn count(output: &Output) -> usize {
        output.kept().readers.values().filter(|place| place.here).count()
    }

    /// What there is for it now, a bounded piece at a time; `None` behind the last frame, and when it has been sent so
    /// much that it must come again.
    pub(crate) fn take(&mut self, max_bytes: usize, now_ms: i64) -> Option<Vec<Frame>> {
        if self.sent >= self.output.max_bytes / 2 {
            return None;
        }
        let mut kept = self.output.kept();
        let from = kept.readers.get(&self.id)?.next_seq;
        let first = kept.first_seq();
        let mut frames = Vec::new();
        let mut next = from;
        if from < first {
            frames.push(Frame { seq: first - 1, truncated: true, ..frame(Stream::Gap) });
            next = first;
        }
        let skipped = usize::try_from(next - first).unwrap_or(usize::MAX);
        let max_bytes = max_bytes.min(self.output.max_bytes / 2 - self.sent);
        let mut bytes = 0;
        for one in kept.frames.iter().skip(skipped) {
            if bytes >= max_bytes {
                break;
            }
            bytes += weight(&one.data_b64.0);
            next = one.seq + 1;
            frames.push(one.clone());
        }
        let is_over = kept.ended && from >= kept.next_seq;
        if let Some(place) = kept.readers.get_mut(&self.id) {
            (place.next_seq, place.moved_ms, place.late) = (next, now_ms, false);
        }
        drop(kept);
        self.sent += bytes;
        self.output.room.notify_all();
        if is_over { None } else { Some(frames) }
    }

    /// Waits until there may be something new.
    pub(crate) async fn news(&self) {
        let news = self.output.news.notified();
        let mut news = std::pin::pin!(news);
        // From now on nothing is missed.
        news.as_mut().enable();
        let has_some = {
            let kept = self.output.kept();
            let next = kept.readers.get(&self.id).map_or(u64::MAX, |place| place.next_seq);
            kept.ended || next < kept.next_seq
        };
        if !has_some {
            news.await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut kept = self.output.kept();
        if kept.ended {
            kept.readers.remove(&self.id);
        } else if let Some(place) = kept.readers.get_mut(&self.id) {
            place.here = false;
        }
        drop(kept);
        self.output.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    fn numbers(frames: &[Frame]) -> Vec<(u64, Stream)> {
        frames.iter().map(|frame| (frame.seq, frame.stream)).collect()
    }

    #[test]
    fn a_reader_gets_every_frame_once_and_then_the_end() {
        let output = Arc::new(Output::new(1_000, 0));
        output.print(Stream::Stdout, b"a".to_vec());
        let mut reader = Reader::new(output.clone(), 0, 0);
        assert_eq!(numbers(&reader.take(999, 0).unwrap()), [(1, Stream::Stdout)]);
        assert_eq!(reader.take(999, 0), Some(vec![]));
        output.print(Stream::Stderr, b"b".to_vec());
        let ended = Ended {
            class: Class::Exited,
            exit_code: Some(0),
            signal: None,
            flags: Vec::new(),
            wall_us: 1,
        };
        output.end(Some(&ended));
        let frames = reader.take(999, 0).unwrap();
        assert_eq!(numbers(&frames), [(2, Stream::Stderr), (3, Stream::Exit)]);
        assert_eq!(frames[1].exit_code, Some(0));
        assert_eq!(reader.take(999, 0), None);
        let mut again = Reader::new(output, 2, 0);
        assert_eq!(again.take(999, 0).unwrap(), frames);
        assert_eq!(again.take(999, 0), None);
    }

    #[test]
    fn a_command_waits_for_its_reader_and_not_for_ever() {
        // Room for three frames, of which a reader gets two at once.
        let output = Arc::new(Output::new(1_000, 0));
        let frame = || vec![1; 300 - FRAME_BYTES];
        let printer = {
            let output = output.clone();
            thread::spawn(move || (0..7).for_each(|_| output.print(Stream::Stdout, frame())))
        };
        let printed = |count: u64| {
            while output.kept().next_seq <= count {
                thread::yield_now();
            }
            assert_eq!(output.kept().next_seq, count + 1);
        };
        printed(3);
        // It is cut off without having taken anything, and is waited for.
        drop(Reader::new(output.clone(), 1, 5_000));
        output.expire(5_000 + PATIENCE_MS);
        printed(3);
        let mut reader = Reader::new(output.clone(), 1, 20_000);
        let two = [(1, Stream::Stdout), (2, Stream::Stdout)];
        assert_eq!(numbers(&reader.take(999, 20_000).unwrap()), two);
        assert_eq!(reader.take(999, 20_000), None, "it must come again");
        drop(reader);
        // It has not said that it got them, so they are kept.
        assert_eq!(output.kept().first_seq(), 1);
        let reader = Reader::new(output.clone(), 3, 20_000);
        printed(5);
        assert_eq!(output.kept().first_seq(), 3);
        // Now it stands still, so the rest is printed over what it has not got.
        while !printer.is_finished() {
            output.expire(20_001 + PATIENCE_MS);
        }
        printer.join().unwrap();
        drop(reader);
        let frames = Reader::new(output.clone(), 3, 0).take(1, 0).unwrap();
        assert_eq!(numbers(&frames), [(4, Stream::Gap), (5, Stream::Stdout)]);
        assert!(frames[0].truncated);
        assert!(output.bytes() <= 1_000);
    }

    /// A large frame needs the room of several small ones, of which the reader has only the first.
    #[test]
    fn only_frames_that_nobody_waits_for_make_room() {
        let output = Arc::new(Output::new(1_000, 0));
        (0..4).for_each(|_| output.print(Stream::Stdout, vec![1; 200 - FRAME_BYTES]));
        let mut reader = Reader::new(output.clone(), 1, 0);
        assert!(reader.take(1, 0).is_some());
        drop(reader);
        let mut reader = Reader::new(output.clone(), 2, 0);
        let printer = {
            let output = output.clone();
            thread::spawn(move || output.print(Stream::Stdout, vec![2; 450 - FRAME_BYTES]))
        };
        while output.kept().first_seq() == 1 {
            thread::yield_now();
        }
        let numbers = numbers(&reader.take(1, 0).unwrap());
        assert_eq!(numbers, [(2, Stream::Stdout)], "nothing is missing");
        drop(reader);
        drop(Reader::new(output.clone(), 3, 0));
        printer.join().unwrap();
        assert_eq!(output.kept().first_seq(), 3);
    }

    #[test]
    fn nobody_who_has_read_everything_is_late() {
        let output = Arc::new(Output::new(200, 0));
        let reader = Reader::new(output.clone(), 1, 0);
        output.expire(100 * PATIENCE_MS);
        output.print(Stream::Stdout, vec![1; 20]);
        assert!(output.kept().is_awaited());
        assert_eq!(Reader::count(&output), 1);
        drop(reader);
        assert_eq!(Reader::count(&output), 0);
    }

    #[test]
    fn whoever_comes_again_takes_nobody_else_s_place() {
        let output = Arc::new(Output::new(400, 0));
        output.print(Stream::Stdout, vec![1; 20]);
        let mut slow = Reader::new(output.clone(), 1, 0);
        let mut fast = Reader::new(output.clone(), 1, 0);
        assert!(fast.take(99, 0).is_some() && slow.take(99, 0).is_some());
        drop((slow, fast));
        let fast = Reader::new(output.clone(), 2, 0);
        let places = |output: &Output| {
            let kept = output.kept();
            kept.readers.values().map(|place| (place.kept_from, place.here)).collect::<Vec<_>>()
        };
        assert_eq!(places(&output), [(1, false), (2, true)], "the slow one is still waited for");
        drop(fast);
    }

    #[test]
    fn at_the_end_of_the_sandbox_nobody_is_waited_for() {
        let output = Arc::new(Output::new(200, 0));
        output.print(Stream::Stdout, vec![1; 20]);
        let printed = |output: &Arc<Output>| {
            let printer = {
                let output = output.clone();
                thread::spawn(move || output.print(Stream::Stdout, vec![2; 20]))
            };
            for _ in 0..5_000_000 {
                if printer.is_finished() {
                    return printer.join().is_ok();
                }
                thread::yield_now();
            }
            false
        };
        output.hurry();
        assert!(printed(&output));
        assert_eq!(output.kept().first_seq(), 2);
        // Neither the clock, nor one who reads, nor one who comes is waited for again.
        output.expire(1);
        assert!(printed(&output), "the clock brought it back");
        let mut reader = Reader::new(output.clone(), 1, 1);
        assert!(printed(&output), "one who has just come is waited for");
        assert!(reader.take(1, 2).is_some());
        assert!(printed(&output), "one who reads is waited for");
    }
}
