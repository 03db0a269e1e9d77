use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use guild_store::backup::{self, Existing};
use guild_store::event::{self, NewEvent};
use guild_store::{Error, Migrations, Options, Store, check};

use crate::{Engine, Scratch, block_on};

fn append(store: &Store, id: &'static str) {
    let event = NewEvent { topic: "t", id, kind: "k", at_ms: 0, body: "{}" };
    block_on(store.write(move |tx| event::append(tx, &event))).unwrap();
}

fn make(options: &Options, target: &Path, existing: Existing) -> Result<u64, Error> {
    backup::make(options, &Migrations::store(), target, existing)
}

fn events(file: &Path) -> usize {
    let service = backup::open(file, &Migrations::store()).unwrap();
    let found = block_on(service.handle().read(|rx| event::after(rx, "t", 0, 100))).unwrap();
    service.close();
    found.len()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_backup_beside_the_writer_is_whole_private_and_alone() {
    let scratch = Scratch::on(Engine::Sqlite);
    append(&scratch.store(), "a");
    let out = tempfile::tempdir().unwrap();
    let target = out.path().join("copy.db");
    let bytes = make(&scratch.options(), &target, Existing::Keep).unwrap();
    append(&scratch.store(), "b");
    let metadata = target.metadata().unwrap();
    assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (bytes, 0o600));
    assert_eq!(events(&target), 1);
    assert_eq!(check::file(&target, &Migrations::store()), Ok(Vec::new()));
    assert_eq!(names(out.path()), ["copy.db"], "nothing is left beside it");
}

#[test]
fn an_existing_file_is_replaced_only_by_force_and_only_by_a_whole_one() {
    let scratch = Scratch::on(Engine::Sqlite);
    append(&scratch.store(), "a");
    let out = tempfile::tempdir().unwrap();
    let target = out.path().join("copy.db");
    std::fs::write(&target, "mine").unwrap();
    let refused = make(&scratch.options(), &target, Existing::Keep).unwrap_err();
    assert_eq!(refused, Error::BackupExists(target.display().to_string()));
    let broken = Options::file(&out.path().join("broken.db"));
    std::fs::write(out.path().join("broken.db"), "rubbish ".repeat(1_000)).unwrap();
    let failed = make(&broken, &target, Existing::Replace).unwrap_err();
    assert!(matches!(failed, Error::NotADatabase(_)), "{failed:?}");
    assert_eq!(std::fs::read(&target).unwrap(), b"mine");
    make(&scratch.options(), &target, Existing::Replace).unwrap();
    assert_eq!(events(&target), 1);
    assert_eq!(names(out.path()), ["broken.db", "copy.db"]);
}

#[test]
fn a_damaged_store_makes_no_backup() {
    let mut scratch = Scratch::on(Engine::Sqlite);
    let filled = scratch.store().write(|tx| {
        for i in 0..200 {
            let (id, body) = (i.to_string(), "x".repeat(500));
            event::append(tx, &NewEvent { topic: "t", id: &id, kind: "k", at_ms: 0, body: &body })?;
        }
        Ok::<_, Error>(())
    });
    block_on(filled).unwrap();
    scratch.close();
    let file = scratch.place.dir.path().join("node.db");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let out = tempfile::tempdir().unwrap();
    let refused = make(&scratch.options(), &out.path().join("copy.db"), Existing::Keep);
    assert!(matches!(refused, Err(Error::Damaged(_))), "{refused:?}");
    assert_eq!(names(out.path()), [""; 0]);
}

#[test]
fn a_store_of_an_older_version_can_be_saved_before_the_upgrade() {
    let mut scratch = Scratch::on(Engine::Sqlite);
    append(&scratch.store(), "a");
    scratch.close();
    let out = tempfile::tempdir().unwrap();
    let target = out.path().join("copy.db");
    let later =
        guild_store::Migration { area: "later", number: 1, name: "x", sql: "SELECT 1".into() };
    let migrations = Migrations::store().and([later]);
    backup::make(&scratch.options(), &migrations, &target, Existing::Keep).unwrap();
    assert_eq!(events(&target), 1);
}

#[test]
fn a_place_that_cannot_be_written_is_a_typed_error() {
    let scratch = Scratch::on(Engine::Sqlite);
    for target in ["/nowhere/copy.db", "/proc/copy.db"] {
        let refused = make(&scratch.options(), Path::new(target), Existing::Keep).unwrap_err();
        assert_eq!(refused.code().name, "store.backup_failed", "{refused:?}");
    }
}

#[test]
fn a_backup_of_postgresql_is_whole_private_and_listed() {
    let scratch = Scratch::on(Engine::Postgres);
    append(&scratch.store(), "a");
    let options = scratch.options();
    let out = tempfile::tempdir().unwrap();
    let target = out.path().join("copy.dump");
    let bytes = make(&options, &target, Existing::Keep).unwrap();
    let metadata = target.metadata().unwrap();
    assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (bytes, 0o600));
    assert!(backup::is_dump(&target).unwrap());
    assert_eq!(backup::list(&target), Ok(()));
    assert_eq!(names(out.path()), ["copy.dump"]);
    // Cut off: it is not taken for a backup.
    let whole = std::fs::read(&target).unwrap();
    std::fs::write(&target, &whole[..whole.len() / 8]).unwrap();
    assert!(matches!(backup::list(&target), Err(Error::BackupFailed(_))));
    assert!(matches!(make(&options, &target, Existing::Keep), Err(Error::BackupExists(_))));
    // Nobody answers there.
    let gone = Options::at("postgresql://u:secret@127.0.0.1:1/x");
    let refused = make(&gone, &out.path().join("other"), Existing::Keep).unwrap_err();
    assert_eq!(refused.code().name, "store.backup_failed");
    assert!(!refused.to_string().contains("secret"), "{refused}");
    assert_eq!(names(out.path()), ["copy.dump"]);
}

#[test]
fn a_backup_never_takes_the_place_of_the_store_itself() {
    let scratch = Scratch::on(Engine::Sqlite);
    append(&scratch.store(), "a");
    let dir = scratch.place.dir.path();
    let link = dir.join("link.db");
    std::fs::hard_link(dir.join("node.db"), &link).unwrap();
    for name in ["node.db", "node.db-wal", "node.db-shm", "./node.db", "link.db"] {
        let refused = make(&scratch.options(), &dir.join(name), Existing::Replace);
        assert!(matches!(refused, Err(Error::BackupFailed(_))), "{name}: {refused:?}");
    }
    append(&scratch.store(), "b");
    // A link to the store is only a name: it is replaced, and the store stays.
    let symbolic = dir.join("symbolic.db");
    std::os::unix::fs::symlink(dir.join("node.db"), &symbolic).unwrap();
    make(&scratch.options(), &symbolic, Existing::Replace).unwrap();
    append(&scratch.store(), "c");
    assert_eq!(events(&symbolic), 2);
    assert_eq!(events(&dir.join("node.db")), 3);
}
