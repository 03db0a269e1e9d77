//! Looking at a dossier. Nothing here asks a row, the network or a clock, and nothing uses the code that made what is
//! looked at, but for the judge itself where it is asked to judge again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use guild_protocol::hash::Hash;
use guild_protocol::nostr::{Event, EventId, Limits};
use guild_protocol::schema::Registry;

use super::{
    DIRECTORIES, FILE_MAX_BYTES, Folder, Found, MANIFEST, Manifest, Problem, Report, code, event_at,
};

mod council;
mod document;
mod money;
mod replay;
mod review;
mod says;
mod trial;
mod work;

/// How it is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The schemas that are known.
    pub registry: &'a Registry,
    /// Whether results are judged again, as far as that needs no sandbox.
    pub rerun: bool,
}

/// Looks at everything that the files say.
///
/// ```
/// use guild_market::dossier::{Folder, Options, check};
/// let registry = guild_protocol::schema::Registry::builtin();
/// let report = check(&Folder::new(), Options { registry: &registry, rerun: false });
/// let (_, problem) = report.problems().next().unwrap();
/// assert_eq!(problem.code.name, "dossier.missing");
/// ```
pub fn check(folder: &Folder, options: Options<'_>) -> Report {
    let mut report = Report::default();
    let manifest = match open(folder) {
        Ok(manifest) => manifest,
        Err(problem) => {
            report.record("manifest", MANIFEST, Err(problem));
            return report;
        }
    };
    report.about = Some(manifest.about.clone());
    report.buyer = Some(manifest.buyer.npub());
    let mut desk = Desk {
        folder,
        manifest: &manifest,
        options,
        report,
        used: BTreeSet::new(),
        events: BTreeMap::new(),
    };
    desk.files();
    desk.read_events();
    let seats: Vec<work::Seat> =
        manifest.works.iter().map(|work| work::check(&mut desk, work)).collect();
    match &manifest.delegation {
        Some(council) => council::check(&mut desk, council, &seats),
        None => council::alone(&mut desk, &seats),
    }
    for id in &manifest.reviews {
        review::check(&mut desk, id, &seats);
    }
    desk.manifest_itself();
    desk.report
}

fn open(folder: &Folder) -> Result<Manifest, Problem> {
    let bytes = whole(folder, MANIFEST)?;
    Manifest::read(bytes).map_err(|why| Problem::new(&code::MANIFEST, why))
}

/// The bytes of a file that can be read.
fn whole<'a>(folder: &'a Folder, path: &str) -> Result<&'a [u8], Problem> {
    match folder.get(path) {
        Some(Found::Whole(bytes)) if bytes.len() <= FILE_MAX_BYTES => Ok(bytes),
        Some(Found::Whole(_) | Found::TooLarge) => {
            Err(Problem::new(&code::TOO_LARGE, "it is longer than a file may be"))
        }
        Some(Found::NotPlain) => Err(Problem::new(&code::NOT_PLAIN, "it is no plain file")),
        None => {
            // A directory that is a link hides all that should be in it.
            let parent = path.split_once('/').and_then(|(parent, _)| folder.get(parent));
            Err(match parent {
                Some(Found::NotPlain) => Problem::new(&code::NOT_PLAIN, "it lies behind a link"),
                _ => Problem::new(&code::MISSING, "it is not there"),
            })
        }
    }
}

/// What one looks at, and what was found so far.
struct Desk<'a> {
    folder: &'a Folder,
    manifest: &'a Manifest,
    options: Options<'a>,
    report: Report,
    /// The files that something refers to.
    used: BTreeSet<String>,
    /// The events that hold.
    events: BTreeMap<EventId, Arc<Event>>,
}

impl<'a> Desk<'a> {
    /// Whether every file is there and has the bytes that it had.
    fn files(&mut self) {
        for (path, hash) in &self.manifest.files {
            let outcome = match (is_place(path), whole(self.folder, path)) {
                (false, _) => Err(Problem::new(&code::MANIFEST, "no such file is in a dossier")),
                (true, Err(problem)) => Err(problem),
                (true, Ok(bytes)) if Hash::of(bytes) == *hash => Ok(()),
                (true, Ok(bytes)) => {
                    let message = format!("it has the hash {}, not {hash}", Hash::of(bytes));
                    Err(Problem::new(&code::CHANGED, message))
                }
            };
            self.report.record("file", path, outcome);
        }
        let named = |path: &&str| *path != MANIFEST && !self.manifest.files.contains_key(*path);
        self.report.not_checked = self.folder.paths().filter(named).map(str::to_owned).collect();
    }

    /// Whether every event is what its author signed. What is not is not looked at again.
    fn read_events(&mut self) {
        let paths: Vec<&'a String> =
            self.manifest.files.keys().filter(|path| path.starts_with("events/")).collect();
        for path in paths {
            let Ok(bytes) = whole(self.folder, path) else { continue };
            let outcome = match read_event(path, bytes) {
                Ok(event) => {
                    self.events.insert(event.id, Arc::new(event));
                    Ok(())
                }
                Err(message) => Err(Problem::new(&code::EVENT, message)),
            };
            self.report.record("event", path, outcome);
        }
    }

    /// The bytes of a file that something refers to. None if it cannot be read: then that has been said.
    fn bytes(&mut self, path: &str) -> Option<&'a [u8]> {
        if !self.manifest.files.contains_key(path) {
            if self.used.insert(path.to_owned()) {
                let problem = Problem::new(&code::MISSING, "it is needed, and not there");
                self.report.record("file", path, Err(problem));
            }
            return None;
        }
        self.used.insert(path.to_owned());
        whole(self.folder, path).ok()
    }

    /// An event that something refers to. None if it is not there, or not what its author signed.
    fn event(&mut self, id: &EventId) -> Option<Arc<Event>> {
        self.bytes(&event_at(id))?;
        self.events.get(id).cloned()
    }

    fn has(&self, path: &str) -> bool {
        self.manifest.files.contains_key(path)
    }

    /// Whether the manifest says nothing that the rest does not: of whom it is, and that every file is of something.
    fn manifest_itself(&mut self) {
        let manifest = self.manifest;
        let about = match &manifest.delegation {
            Some(council) => council.delegation_id.clone(),
            None => manifest.works.first().map(|work| work.request_id.hex()).unwrap_or_default(),
        };
        let unused = manifest.files.keys().find(|path| !self.used.contains(*path));
        let outcome = match unused {
            _ if about != manifest.about => {
                Err(Problem::new(&code::MANIFEST, format!("it is of {about}, and says another")))
            }
            Some(path) => Err(Problem::new(&code::MANIFEST, format!("nothing refers to {path}"))),
            None => Ok(()),
        };
        self.report.record("manifest", MANIFEST, outcome);
    }
}

/// Whether a dossier may have a file there: a plain name in one of its directories.
fn is_place(path: &str) -> bool {
    let plain = |name: &str| {
        let bytes = name.bytes();
        !name.is_empty()
            && !name.starts_with('.')
            && name.len() <= 200
            && bytes.into_iter().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    match path.split_once('/') {
        Some((directory, name)) => DIRECTORIES.contains(&directory) && plain(name),
        None => false,
    }
}

/// An event under its name, in the one form that it has.
fn read_event(path: &str, bytes: &[u8]) -> Result<Event, String> {
    let event =
        Event::parse_verified(bytes, &Limits::DEFAULT).map_err(|error| error.to_string())?;
    if event_at(&event.id) != path {
        return Err(format!("it is the event {}", event.id));
    }
    if event.to_json().as_bytes() != bytes {
        return Err("it is not in canonical form, or says more than was signed".to_owned());
    }
    Ok(event)
}
