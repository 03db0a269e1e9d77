//! Listens to the model of an agent, through the node that runs.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use guild_kernel::AgentKey;
use guild_protocol::env::Clock;
use guild_roles::live::Heard;

use crate::client::Client;
use crate::config::Loaded;
use crate::node::NodeFile;
use crate::real::{SystemClock, runtime};

/// So many pieces wait to be told.
const PIECES_MAX: usize = 1_024;
/// How long the first answer of the node is waited for, so that the beginning is not missed.
const READY_MAX: Duration = Duration::from_secs(5);
/// How soon a node that was away is looked for again.
const AGAIN_MS: i64 = 500;

/// Somebody who listens. What cannot be heard is told later, by cards.
pub(in crate::command) struct Ears {
    heard: Receiver<Heard>,
    gone: Arc<AtomicBool>,
}

impl Ears {
    /// Listens to an agent from now on, also to the node that comes after the one that runs now.
    pub(in crate::command) fn open(loaded: &Loaded, key: &AgentKey) -> Ears {
        let (say, heard) = sync_channel(PIECES_MAX);
        let (ready, is_ready) = sync_channel(1);
        let gone = Arc::new(AtomicBool::new(false));
        let (data_dir, key, stop) = (loaded.config.data_dir.clone(), key.clone(), gone.clone());
        let listening = thread::Builder::new().name("ears".to_owned()).spawn(move || {
            listen(&data_dir, &key, &stop, &ready, &say);
        });
        if listening.is_ok() {
            // Whoever does not answer in time is listened to as soon as it does.
            let _ = is_ready.recv_timeout(READY_MAX);
        }
        Ears { heard, gone }
    }

    /// The next piece, if there is one.
    pub(super) fn hear(&self) -> Option<Heard> {
        self.heard.try_recv().ok()
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

fn listen(
    data_dir: &Path,
    key: &AgentKey,
    gone: &AtomicBool,
    ready: &SyncSender<()>,
    say: &SyncSender<Heard>,
) {
    let Ok(runtime) = runtime() else { return };
    while !gone.load(Ordering::Relaxed) {
        let node = NodeFile::of_running(data_dir).ok().flatten();
        let stream = node.and_then(|node| Client::new(&node).live(key).ok());
        let _ = ready.try_send(());
        let lines = stream.into_iter().flat_map(|stream| BufReader::new(stream).lines());
        for line in lines.map_while(Result::ok) {
            let piece = line.strip_prefix("data:").map(|data| serde_json::from_str(data.trim()));
            let told =
                piece.and_then(Result::ok).is_none_or(|piece: Heard| say.send(piece).is_ok());
            if !told || gone.load(Ordering::Relaxed) {
                return;
            }
        }
        runtime.block_on(SystemClock.sleep(AGAIN_MS));
    }
}
