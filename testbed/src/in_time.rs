//! A limit in real time for what a test waits for.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Much longer than anything takes that goes on, on a machine with much else to do; and shorter than the ten minutes
/// after which `cargo xtask test` ends what is silent.
const PATIENCE: Duration = Duration::from_secs(540);

/// Waits for the future, on whatever runtime it is; one that hangs fails its test.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    within(PATIENCE, future).await
}

async fn within<T>(patience: Duration, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut alarm: Option<Alarm> = None;
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(done) = future.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        // Only what waits needs one.
        let alarm = alarm.get_or_insert_with(|| Alarm::set(patience));
        assert!(!alarm.wakes(cx.waker()), "it hangs: nothing came within {patience:?}");
        Poll::Pending
    })
    .await
}

/// A thread that wakes whoever waits when the time is over, unless it is dropped before.
struct Alarm(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    waker: Option<Waker>,
    is_over: bool,
    is_dropped: bool,
}

impl Alarm {
    fn set(patience: Duration) -> Alarm {
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let alarm = Alarm(shared.clone());
        std::thread::spawn(move || {
            let (state, changed) = &*shared;
            #[expect(clippy::disallowed_methods, reason = "a test that hangs hangs in real time")]
            let start = Instant::now();
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            while !state.is_dropped {
                let left = patience.saturating_sub(start.elapsed());
                if left.is_zero() {
                    state.is_over = true;
                    return state.waker.take().map_or((), Waker::wake);
                }
                let waited = changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        });
        alarm
    }

    /// Whether the time is over; if not, whom to wake then.
    fn wakes(&self, waker: &Waker) -> bool {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.waker = Some(waker.clone());
        state.is_over
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).is_dropped = true;
        self.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::task::{Context, Wake};
    use std::thread::{Thread, current, park};

    use super::*;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }

    /// The smallest runtime.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let waker = Arc::new(Unpark(current())).into();
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(done) => return done,
                Poll::Pending => park(),
            }
        }
    }

    #[test]
    #[should_panic(expected = "it hangs: nothing came within 50ms")]
    fn what_hangs_fails() {
        block_on(within(Duration::from_millis(50), std::future::pending::<()>()));
    }

    #[test]
    fn what_comes_late_but_in_time_is_given() {
        let (send, receive) = channel();
        let mut waiting = None;
        let late = std::future::poll_fn(|cx| match receive.try_recv() {
            Ok(word) => Poll::Ready(word),
            Err(_) => {
                let (send, waker) = (send.clone(), cx.waker().clone());
                waiting.get_or_insert_with(|| {
                    std::thread::spawn(move || {
                        crate::wait_ms(20);
                        send.send("late").unwrap();
                        waker.wake();
                    })
                });
                Poll::Pending
            }
        });
        assert_eq!(block_on(in_time(late)), "late");
    }
}
