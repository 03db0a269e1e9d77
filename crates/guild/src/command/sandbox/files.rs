//! Files into a sandbox and out of it: `guild sandbox cp`. They are sent and written as they are read, whatever their
//! size.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;

use guild_gateway::encoded;
use guild_protocol::env::Clock;
use guild_protocol::hash::{Hash, Hasher};
use serde_json::{Value, json};

use super::super::Context;
use super::super::hosted::{remark_pace, word};
use super::hosted::host;
use crate::error::{Error, Result, code};
use crate::host::Host;
use crate::input::{Draft, Existing};
use crate::output::{Answer, Output};
use crate::real::{SystemClock, runtime};

const PIECE_BYTES: usize = 64 << 10;
/// How often it is said how far it is.
const TELL_MS: i64 = 200;

/// Copy a file into a sandbox or out of it
///
/// One of the two is SANDBOX:PATH, as in `guild sandbox cp main.py sbx_…:main.py`.
#[derive(Debug, clap::Args)]
pub(crate) struct CpArgs {
    /// From here
    from: String,
    /// To here
    to: String,
}

/// A place in a sandbox.
fn inside(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(id, _)| id.starts_with("sbx_"))
}

pub(super) fn cp(args: &CpArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let host = host(cx)?;
    let files = |id: &str, path: &str| {
        Ok::<_, Error>(format!("/v1/sandboxes/{}/files?path={}", word(id)?, encoded(path)))
    };
    let sandbox_id = [&args.from, &args.to].into_iter().find_map(|text| Some(inside(text)?.0));
    let told = match (inside(&args.from), inside(&args.to)) {
        (None, Some((id, path))) => {
            upload(&host, &PathBuf::from(&args.from), &files(id, path)?, cx.out)?
        }
        (Some((id, path)), None) => {
            let bytes = download(&host, &files(id, path)?, &PathBuf::from(&args.to), cx.out)?;
            json!({ "path": args.to, "bytes": bytes })
        }
        _ => {
            let message = "one of the two is SANDBOX:PATH, and the other a path of this host";
            return Err(Error::new(&code::USAGE, message));
        }
    };
    cx.out.progress("");
    if cx.out.json() {
        cx.out.object(true, told)?;
    } else {
        cx.out.line(&format!("{} bytes to {}", told["bytes"], args.to))?;
        sandbox_id.and_then(|id| remark_pace(&host, id, cx.out));
    }
    Ok(Answer::Yes)
}

fn upload(host: &Host, from: &Path, path: &str, out: &mut Output) -> Result<Value> {
    let wrong = |e: std::io::Error| Error::io(from, &e);
    let file = File::open(from).map_err(wrong)?;
    let about = file.metadata().map_err(wrong)?;
    if about.is_dir() {
        let message = "this is a directory; pack it first, as by tar";
        return Err(Error::new(&code::IO_NOT_A_FILE, message).in_file(from));
    }
    let hash = hash_of(&file, about.len(), out).map_err(wrong)?;
    let path = format!("{path}&executable={}", is_executable(&about));
    let runtime = runtime()?;
    thread::scope(|scope| {
        let sending = scope.spawn(|| host.put_file(&path, &file, &hash));
        while !sending.is_finished() {
            // Both handles have one place in the file: that of whoever reads it.
            let at = { &file }.stream_position().unwrap_or(0);
            tell(out, "sent", at, Some(about.len()));
            runtime.block_on(SystemClock.sleep(TELL_MS));
        }
        let broken = |_| Error::new(&code::IO_FAILED, "sending it broke off");
        sending.join().map_err(broken)?
    })
}

fn hash_of(file: &File, size: u64, out: &mut Output) -> std::io::Result<Hash> {
    let (mut hasher, mut piece, mut done) = (Hasher::new(), vec![0; PIECE_BYTES], 0_u64);
    loop {
        let length = { file }.read(&mut piece)?;
        if length == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(piece.get(..length).unwrap_or_default());
        done += length as u64;
        if done.is_multiple_of(64 << 20) {
            tell(out, "looked at", done, Some(size));
        }
    }
}

fn download(host: &Host, path: &str, to: &Path, out: &mut Output) -> Result<u64> {
    let wrong = |e: std::io::Error| Error::io(to, &e);
    let (size, mut from) = host.fetch(path)?;
    let draft = Draft::begin(to, 0o644, Existing::Replace)?;
    let (mut file, mut piece, mut done) = (draft.handle()?, vec![0; PIECE_BYTES], 0_u64);
    let mut told_ms = SystemClock.now_ms();
    loop {
        let length = from.read(&mut piece).map_err(wrong)?;
        if length == 0 {
            break;
        }
        file.write_all(piece.get(..length).unwrap_or_default()).map_err(wrong)?;
        done += length as u64;
        if SystemClock.now_ms() - told_ms >= TELL_MS {
            told_ms = SystemClock.now_ms();
            tell(out, "received", done, size);
        }
    }
    if size.is_some_and(|size| size != done) {
        let message = "the file broke off before its end; nothing was written";
        return Err(Error::new(&code::NODE_UNREACHABLE, message));
    }
    draft.keep()?;
    Ok(done)
}

/// Says how far it is.
fn tell(out: &mut Output, what: &str, done: u64, size: Option<u64>) {
    const MIB: u64 = 1 << 20;
    let of = match size {
        Some(size) if size > 0 => {
            format!(" of {} MiB ({} %)", size / MIB, done.saturating_mul(100) / size)
        }
        _ => " MiB".to_owned(),
    };
    out.progress(&format!("{what} {}{of}", done / MIB));
}

fn is_executable(about: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    about.permissions().mode() & 0o100 != 0
}
