//! The root that a sandbox sees: a tmpfs with read-only trees of the host in it.
//!
//! It is built over `/sys`, where nothing is that anybody would want inside, and becomes the root at the end.

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps, mkdirat, openat2, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_bind, mount_change, move_mount, open_tree, unmount,
};

use super::WRITABLE;
use crate::error::{Error, Result, Step};
use crate::oci::bundle::STAY;
use crate::spec::{Bind, Image, Profile, Spec};
use crate::sys;
use crate::wire::{MAX_FDS, Part, PartKind};

/// Where the root is built.
const SITE: &str = "/sys";
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// What of the host's `/etc` programs need to start.
const ETC: [&str; 3] = ["etc/ld.so.cache", "etc/alternatives", "etc/ssl/certs"];
/// The directories of the host that hold programs, some of them links.
const PROGRAMS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// What the launcher makes itself, whatever an image has there.
const OWN: [&str; 5] = ["proc", "sys", "dev", "tmp", "workspace"];

const NO_SUID: u64 = 0x2;
const NO_DEVICES: u64 = 0x4;
const READ_ONLY: u64 = 0x1;
/// When every file that is put into a sandbox was changed last: 1980, the first year that every archive can hold.
const FILE_TIME_S: i64 = 315_532_800;

/// How much of a file is in memory at once.
const PIECE_BYTES: usize = 64 << 10;

/// The bytes of a spec's files, one after the other.
pub(super) struct Files<'a> {
    pub(super) sizes: &'a [usize],
    pub(super) bytes: &'a mut dyn Read,
}

/// The parts of an image, each a link or a tree.
pub(super) fn parts(image: &Image) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    match image {
        Image::Host => {
            for at in PROGRAMS.into_iter().chain(ETC) {
                parts.extend(part(Path::new("/"), at).ok().flatten());
            }
        }
        Image::Directory(top) => {
            let fail = |error: io::Error| {
                let (path, why) = (top.display().to_string(), error.to_string());
                Error::NoImage { path, why }
            };
            for entry in fs::read_dir(top).map_err(fail)? {
                let name = entry.map_err(fail)?.file_name();
                let Some(name) = name.to_str() else { continue };
                if !OWN.contains(&name) {
                    parts.extend(part(top, name).map_err(fail)?);
                }
            }
        }
    }
    Ok(parts)
}

/// What stands at a path; links are not followed, so none leads out of the image.
fn part(top: &Path, at: &str) -> io::Result<Option<Part>> {
    let host = top.join(at);
    let kind = fs::symlink_metadata(&host)?.file_type();
    let kind = if kind.is_symlink() {
        match fs::read_link(&host)?.into_os_string().into_string() {
            Ok(target) => PartKind::Link(target),
            Err(_) => return Ok(None),
        }
    } else if kind.is_dir() || kind.is_file() {
        PartKind::Tree { host, is_dir: kind.is_dir() }
    } else {
        return Ok(None);
    };
    Ok(Some(Part { at: at.to_owned(), kind }))
}

/// Opens the trees of an image, for an init that may not walk there.
pub(super) fn open_parts(parts: &[Part]) -> Result<Vec<OwnedFd>> {
    if parts.len() > MAX_FDS {
        let why = format!("there are {} entries at its top, at most {MAX_FDS}", parts.len());
        return Err(Error::spec("image", why));
    }
    let trees = parts.iter().filter_map(|part| match &part.kind {
        PartKind::Tree { host, .. } => Some(open(host, false)),
        PartKind::Link(_) => None,
    });
    trees.collect()
}

/// As [`open_parts`], for binds.
pub(super) fn open_binds(binds: &[Bind]) -> Result<Vec<OwnedFd>> {
    binds.iter().map(|bind| open(&bind.host, bind.writable)).collect()
}

/// A copy of a tree of mounts that is nowhere yet.
fn open(host: &Path, writable: bool) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, host, flags).map_err(|errno| {
        let why = io::Error::from(errno).to_string();
        Error::NoImage { path: host.display().to_string(), why }
    })?;
    let read_only = if writable { 0 } else { READ_ONLY };
    sys::restrict_mount(tree.as_fd(), NO_SUID | NO_DEVICES | read_only, true)
        .step("restrict a mount")?;
    Ok(tree)
}

/// The root while it is built.
pub(super) struct Root {
    top: OwnedFd,
    /// Where it is seen: at its site, or nothing once it is the root.
    site: String,
    /// Options of mounts that name whose they are, if that is not whoever mounts them.
    owner: String,
    /// All processes of the sandbox. What is mounted over it hides those that do not want to be seen.
    processes: OwnedFd,
}

/// What init keeps of the root that it has built.
pub(super) struct Inside {
    /// The directory `/workspace` of the sandbox's own tmpfs, whatever is bound over it.
    pub(super) workspace: OwnedFd,
    /// All processes of the sandbox, as `/proc` shows them.
    pub(super) processes: OwnedFd,
}

impl Root {
    /// Everything that does not depend on the spec.
    pub(super) fn begin(parts: &[Part], opened: Option<Vec<OwnedFd>>) -> Result<Root> {
        leave_mounts()?;
        let top = mount_root(SITE, "")?;
        mkdirat(&top, "proc", Mode::from_raw_mode(0o755)).step("make a directory")?;
        // The kernel shows processes only to those who see them already, so this cannot wait until the host's are gone.
        mount_processes(SITE, c"")?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = rustix::fs::openat(&top, "proc", flags, Mode::empty());
        let processes = processes.step("open /proc")?;
        let mut root = Root { top, site: SITE.to_owned(), owner: String::new(), processes };
        root.furnish()?;
        let opened_by_launcher = opened.is_some();
        root.show(parts, opened)?;
        // Leaving the host's root takes long, so it is done ahead if nothing of it will be needed.
        if opened_by_launcher {
            root.enter()?;
        }
        Ok(root)
    }

    /// The same for a runtime that makes it the root by itself: at another site, and for another owner.
    pub(super) fn for_a_runtime(
        site: String,
        owner: u32,
        parts: &[Part],
        opened: Vec<OwnedFd>,
    ) -> Result<Root> {
        let owner = format!(",uid={owner},gid={owner}");
        let top = mount_root(&site, &owner)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let processes = rustix::fs::open("/proc", flags, Mode::empty()).step("open /proc")?;
        let root = Root { top, site, owner, processes };
        root.make_directory("proc").step("make a directory")?;
        root.furnish()?;
        root.show(parts, Some(opened))?;
        Ok(root)
    }

    /// Directories and devices.
    fn furnish(&self) -> Result<()> {
        for name in ["dev", "dev/shm", "tmp", "workspace", "etc"] {
            self.make_directory(name).step("make a directory")?;
        }
        self.devices()
    }

    fn show(&self, parts: &[Part], opened: Option<Vec<OwnedFd>>) -> Result<()> {
        let mut opened = opened.map(Vec::into_iter);
        for part in parts {
            match &part.kind {
                PartKind::Link(target) => self.link(target, &part.at)?,
                PartKind::Tree { host, is_dir } => {
                    let tree = match &mut opened {
                        Some(trees) => trees.next().ok_or_else(|| missing("image"))?,
                        None => open(host, false)?,
                    };
                    self.attach(&tree, &part.at, *is_dir)?;
                }
            }
        }
        self.names(parts)
    }

    fn devices(&self) -> Result<()> {
        for name in DEVICES {
            let at = format!("dev/{name}");
            self.make_file(&at, &[], Mode::from_raw_mode(0o666)).step("make a device")?;
            let (host, here) = (format!("/dev/{name}"), format!("{}/{at}", self.site));
            mount_bind(&host, &here).step("show a device")?;
        }
        let own = "/proc/self/fd";
        self.link(own, "dev/fd")?;
        for (number, name) in ["stdin", "stdout", "stderr"].into_iter().enumerate() {
            self.link(&format!("{own}/{number}"), &format!("dev/{name}"))?;
        }
        Ok(())
    }

    /// The users and names that every program may ask for, unless the image has its own.
    fn names(&self, parts: &[Part]) -> Result<()> {
        if parts.iter().any(|part| part.at == "etc") {
            return Ok(());
        }
        let files = [
            ("etc/passwd", "root:x:0:0::/:/bin/sh\nguild:x:1000:1000::/tmp:/bin/sh\n"),
            ("etc/group", "root:x:0:\nguild:x:1000:\n"),
            ("etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
            ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        ];
        files.into_iter().try_for_each(|(at, text)| {
            self.make_file(at, text.as_bytes(), Mode::from_raw_mode(0o644)).step("write a name")
        })
    }

    fn link(&self, target: &str, at: &str) -> Result<()> {
        symlinkat(target, &self.top, at).step("make a link")
    }

    /// Mounts a tree at a place that is made for it.
    fn attach(&self, tree: &OwnedFd, at: &str, is_dir: bool) -> Result<()> {
        let step = || format!("make a place at /{at}");
        match is_dir {
            true => self.make_directory(at).step(&step())?,
            false => match self.make_file(at, &[], Mode::from_raw_mode(0o644)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(Error::failed(step(), io::Error::from(errno))),
            },
        }
        let place = self.walk(at, OFlags::PATH).step(&step())?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(tree, "", &place, "", flags).step(&format!("mount /{at}"))
    }

    /// All processes, for whoever stays outside of the root.
    pub(super) fn processes(&self) -> &OwnedFd {
        &self.processes
    }

    /// Whether there is something at a path of the finished root, as a program inside would find it.
    pub(super) fn find(&self, at: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        openat2(&self.top, at, flags, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    /// Opens what is at a path below the root; never through a link.
    fn walk(&self, at: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.top, at, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// A directory, with those above it. It may be there already.
    fn make_directory(&self, at: &str) -> rustix::io::Result<()> {
        let ends = at.match_indices('/').map(|(end, _)| end).chain([at.len()]);
        for path in ends.filter_map(|end| at.get(..end)).filter(|path| !path.is_empty()) {
            let (parent, name) = self.parent(path)?;
            match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn parent<'a>(&self, at: &'a str) -> rustix::io::Result<(OwnedFd, &'a str)> {
        let (parent, name) = at.rsplit_once('/').unwrap_or((".", at));
        Ok((self.walk(parent, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    /// A new file in a directory that is there.
    fn make_file(&self, at: &str, bytes: &[u8], mode: Mode) -> rustix::io::Result<()> {
        let file = self.open_new(at, mode)?;
        write(&file, bytes)?;
        settle(&file, mode)
    }

    fn open_new(&self, at: &str, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let (parent, name) = self.parent(at)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(&parent, name, flags | OFlags::NOFOLLOW, mode)
    }

    /// What the spec adds; then it becomes the root, read-only.
    pub(super) fn finish(
        mut self,
        spec: &Spec,
        files: Files<'_>,
        opened: Option<Vec<OwnedFd>>,
    ) -> Result<Inside> {
        let workspace = self.fill(spec, files, opened)?;
        // A bought sandbox sees what there is of the kernel, and each of its commands the others; the rest see only
        // themselves and what they started.
        if spec.profile != Profile::Hosted {
            mount_processes(&self.site, c"subset=pid,hidepid=invisible")?;
        }
        if !self.site.is_empty() {
            self.enter()?;
        }
        self.lock()?;
        Ok(Inside { workspace, processes: self.processes })
    }

    /// As [`Root::finish`], for a runtime that enters it by itself; with processes, if it does not show its own.
    pub(super) fn finish_for_a_runtime(
        &self,
        spec: &Spec,
        files: Files<'_>,
        opened: Vec<OwnedFd>,
        processes: bool,
    ) -> Result<OwnedFd> {
        let workspace = self.fill(spec, files, Some(opened))?;
        if spec.stay {
            let (at, mode) = (STAY.trim_start_matches('/'), Mode::from_raw_mode(0o755));
            self.make_file(at, &[], mode).step("make what stays")?;
        }
        match (processes, spec.profile) {
            (false, _) => {}
            (true, Profile::Hosted) => mount_processes(&self.site, c"hidepid=invisible")?,
            (true, _) => mount_processes(&self.site, c"subset=pid,hidepid=invisible")?,
        }
        self.lock()?;
        Ok(workspace)
    }

    /// Nothing of the root itself can be changed any more.
    fn lock(&self) -> Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = if self.site.is_empty() { "/" } else { self.site.as_str() };
        let root = rustix::fs::open(path, flags, Mode::empty()).step("open the root")?;
        sys::restrict_mount(root.as_fd(), READ_ONLY | NO_SUID | NO_DEVICES, false)
            .step("make the root read-only")
    }

    /// The directories that can be written, the binds and the files. Gives the workspace.
    fn fill(&self, spec: &Spec, files: Files<'_>, opened: Option<Vec<OwnedFd>>) -> Result<OwnedFd> {
        let workspace = self.scratch(spec)?;
        let mut opened = opened.map(Vec::into_iter);
        for bind in &spec.binds {
            let tree = match &mut opened {
                Some(trees) => trees.next().ok_or_else(|| missing("binds"))?,
                None => open(&bind.host, bind.writable)?,
            };
            let is_dir = is_directory(tree.as_fd()).step("look at a bind")?;
            let at = bind.at.trim_start_matches('/');
            self.attach(&tree, at, is_dir)
                .map_err(|error| Error::spec("binds.at", error.to_string()))?;
        }
        for (file, size) in spec.files.iter().zip(files.sizes) {
            let at = file.at.trim_start_matches('/');
            let mode = Mode::from_raw_mode(if file.executable { 0o755 } else { 0o644 });
            let above = at.rsplit_once('/').map_or(Ok(()), |(above, _)| self.make_directory(above));
            let opened = above.and_then(|()| self.open_new(at, mode)).map_err(|errno| {
                let why = format!("{}: {}", file.at, io::Error::from(errno));
                Error::spec("files.at", why)
            })?;
            copy(files.bytes, *size, &opened)?;
            settle(&opened, mode).step("set the time of a file")?;
        }
        Ok(workspace)
    }

    /// One tmpfs for all directories that can be written into, so that they share the limit. Gives its workspace.
    fn scratch(&self, spec: &Spec) -> Result<OwnedFd> {
        let (size, inodes) = (spec.limits.disk_bytes, u64::from(spec.limits.inodes) + 8);
        let owner = &self.owner;
        let options = options(format!("mode=0755,size={size},nr_inodes={inodes}{owner}"))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let top = format!("{}/tmp", self.site);
        mount("tmpfs", &top, "tmpfs", flags, options.as_c_str()).step("mount the scratch")?;
        // `/tmp` comes last: it hides the top of the scratch itself.
        for place in WRITABLE.into_iter().rev() {
            let name = place.rsplit('/').next().unwrap_or_default();
            let inside = format!("{top}/{name}");
            fs::create_dir(&inside).step("make the scratch")?;
            let open_to_all = Mode::from_raw_mode(0o1777);
            rustix::fs::chmod(&inside, open_to_all).step("make the scratch")?;
        }
        for place in WRITABLE.into_iter().rev() {
            let name = place.rsplit('/').next().unwrap_or_default();
            let (inside, outside) = (format!("{top}/{name}"), format!("{}{place}", self.site));
            mount_bind(&inside, &outside).step("show the scratch")?;
        }
        let workspace = format!("{}/workspace", self.site);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(workspace, flags, Mode::empty()).step("open the workspace")
    }

    /// Becomes the root; the host's is gone.
    fn enter(&mut self) -> Result<()> {
        rustix::process::fchdir(&self.top).step("enter the root")?;
        rustix::process::pivot_root(".", ".").step("change the root")?;
        unmount(".", UnmountFlags::DETACH).step("leave the host's root")?;
        self.site.clear();
        rustix::process::chdir("/").step("enter the root")
    }
}

/// Copies one file of those that follow each other, in pieces: whoever holds all of it has it twice in its memory.
fn copy(from: &mut dyn Read, size: usize, to: &OwnedFd) -> Result<()> {
    let mut piece = vec![0; size.min(PIECE_BYTES)];
    let mut left = size;
    while left > 0 {
        let most = left.min(piece.len());
        let room = piece.get_mut(..most).unwrap_or_default();
        let came = from.read(room).step("hear the launcher")?;
        if came == 0 {
            return Err(Error::failed("hear the launcher", "the files are cut off"));
        }
        write(to, room.get(..came).unwrap_or_default())
            .map_err(|errno| Error::spec("files", io::Error::from(errno).to_string()))?;
        left -= came;
    }
    Ok(())
}

fn write(file: &OwnedFd, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(file, bytes))?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// The same for everybody and on every day: what programs make of a file may carry its time.
fn settle(file: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    let time = Timespec { tv_sec: FILE_TIME_S, tv_nsec: 0 };
    rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time })?;
    // Whatever the mask was.
    rustix::fs::fchmod(file, mode)
}

/// An empty root.
fn mount_root(site: &str, owner: &str) -> Result<OwnedFd> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = options(format!("mode=0755,size=128m,nr_inodes=32768{owner}"))?;
    mount("tmpfs", site, "tmpfs", flags, options.as_c_str()).step("mount the root")?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(site, flags, Mode::empty()).step("open the root")
}

/// The processes of this sandbox, in a root that is seen at this site.
fn mount_processes(site: &str, options: &CStr) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let at = format!("{site}/proc");
    mount("proc", at.as_str(), "proc", flags, options).step("mount /proc")
}

/// From here on what is mounted is seen by nobody else, and what others mount is not seen here.
pub(super) fn leave_mounts() -> Result<()> {
    let everything = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", everything).step("leave the host's mounts")
}

fn options(text: String) -> Result<CString> {
    CString::new(text).map_err(|error| Error::failed("mount", error))
}

fn is_directory(tree: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let stat = rustix::fs::statat(tree, "", AtFlags::EMPTY_PATH)?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

fn missing(field: &str) -> Error {
    Error::failed("mount the trees", format!("a descriptor of {field} is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_taken_as_it_stands() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("usr")).unwrap();
        fs::create_dir(top.path().join("proc")).unwrap();
        fs::write(top.path().join("file"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", top.path().join("etc")).unwrap();
        let mut parts = parts(&Image::Directory(top.path().to_owned())).unwrap();
        parts.sort_by(|a, b| a.at.cmp(&b.at));
        let tree = |at: &str, is_dir| Part {
            at: at.to_owned(),
            kind: PartKind::Tree { host: top.path().join(at), is_dir },
        };
        let link = Part { at: "etc".to_owned(), kind: PartKind::Link("/etc".to_owned()) };
        assert_eq!(parts, [link, tree("file", false), tree("usr", true)]);
        let gone = Image::Directory("/no/such/image".into());
        assert_eq!(super::parts(&gone).unwrap_err().code().name, "sandbox.no_image");
    }

    #[test]
    fn an_image_with_too_many_entries_is_refused_by_name() {
        let part = Part { at: "a".to_owned(), kind: PartKind::Link("b".to_owned()) };
        assert!(open_parts(&vec![part.clone(); MAX_FDS]).is_ok());
        let error = open_parts(&vec![part; MAX_FDS + 1]).unwrap_err();
        assert_eq!(error.to_string(), "image: there are 129 entries at its top, at most 128");
    }

    #[test]
    fn the_bytes_of_files_are_told_apart_exactly() {
        let top = tempfile::tempdir().unwrap();
        let copied = |sizes: &[usize]| {
            let mut bytes: &[u8] = b"abcd";
            let copied = sizes.iter().map(|size| {
                let path = top.path().join("file");
                let file = OwnedFd::from(fs::File::create(&path).unwrap());
                copy(&mut bytes, *size, &file).map(|()| fs::read(path).unwrap())
            });
            copied.collect::<Result<Vec<_>>>()
        };
        assert_eq!(copied(&[1, 0, 3]).unwrap(), [b"a".as_slice(), b"", b"bcd"]);
        assert!(copied(&[1, 4]).unwrap_err().to_string().contains("cut off"));
    }
}
