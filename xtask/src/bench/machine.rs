//! What a number was measured on: without it the number says little.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::Result;
use crate::workspace::{self, Workspace};

/// The machine and its state before the first run.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) load_average: f64,
    pub(crate) filesystem: String,
    /// How long the disk takes to flush a page: what a durable commit costs at least.
    pub(crate) flush_us: u64,
    pub(crate) rustc: String,
    pub(crate) date: String,
}

impl Machine {
    /// Looks around. What cannot be found out is left empty: it is no reason to fail.
    pub(crate) fn look(tree: &Workspace, directory: &Path) -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let rustc = workspace::output(tree.program("rustc").arg("--version"));
        Machine {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu_model(&read("/proc/cpuinfo")),
            load_average: load_average(&read("/proc/loadavg")),
            filesystem: filesystem(&read("/proc/mounts"), directory).to_owned(),
            flush_us: flush_us(directory).unwrap_or(0),
            rustc: rustc.unwrap_or_default().trim().to_owned(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }
}

/// A directory in memory would make every commit free.
pub(crate) fn refuse_memory(directory: &Path) -> Result {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    match filesystem(&mounts, directory) {
        kind @ ("tmpfs" | "ramfs") => {
            Err(format!("{} is a {kind}: durable commits need a disk", directory.display()))
        }
        _ => Ok(()),
    }
}

/// The kind of the file system that a directory is on.
fn filesystem<'a>(mounts: &'a str, directory: &Path) -> &'a str {
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        directory.starts_with(place).then_some((place.len(), kind))
    });
    // Of those mounted at one place, the last one covers the others.
    mounted.max_by_key(|(length, _)| *length).map_or("", |(_, kind)| kind)
}

fn flush_us(directory: &Path) -> Option<u64> {
    const FLUSHES: u32 = 100;
    let mut file = File::create(directory.join("flush")).ok()?;
    let start = Instant::now();
    for _ in 0..FLUSHES {
        file.write_all(&[1; 4096]).ok()?;
        file.sync_data().ok()?;
    }
    u64::try_from((start.elapsed() / FLUSHES).as_micros()).ok()
}

fn cpu_model(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    model
        .and_then(|line| line.split_once(": "))
        .map_or_else(String::new, |(_, name)| name.to_owned())
}

fn load_average(loadavg: &str) -> f64 {
    loadavg.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast CPU @ 3GHz\n"), "Fast CPU @ 3GHz");
        assert_eq!(load_average("0.25 0.10 0.05 1/99 1234\n"), 0.25);
        assert_eq!((cpu_model(""), load_average("")), (String::new(), 0.0));
        let mounts = "/dev/a / ext4 rw 0 0\nnone /tmp tmpfs rw 0 0\n/dev/b /tmp/disk xfs rw 0 0\n";
        assert_eq!(filesystem(mounts, Path::new("/srv/x")), "ext4");
        assert_eq!(filesystem(mounts, Path::new("/tmp/x")), "tmpfs");
        assert_eq!(filesystem(mounts, Path::new("/tmp/disk/x")), "xfs");
        assert_eq!(filesystem("", Path::new("/")), "");
    }

    #[test]
    fn a_directory_in_memory_is_refused() {
        let refusal = refuse_memory(Path::new("/dev/shm"));
        let in_memory = Path::new("/dev/shm").exists();
        assert_eq!(refusal.is_err(), in_memory, "{refusal:?}");
    }
}
