//! Calls that let others go first.

use std::sync::{Arc, Mutex};

use guild_store::{Error, Hooks, Pump, Sqlite, Store, Tx, pumps};

/// What ran, in order.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<Vec<String>>>);

impl Ran {
    fn call(&self, name: &str) -> impl Fn(&mut Tx<'_>) -> Result<(), Error> + Send + use<> {
        let (ran, name) = (self.clone(), name.to_owned());
        move |_| {
            ran.0.lock().unwrap().push(name.clone());
            Ok(())
        }
    }

    /// What one commit did.
    fn of_one_commit(&self, writes: &Pump, db: &mut Sqlite) -> Vec<String> {
        self.0.lock().unwrap().clear();
        writes.drain(db, 10).unwrap();
        self.0.lock().unwrap().clone()
    }
}

fn open() -> (Store, Pump, Sqlite, Ran) {
    let (store, writes, _reads) = pumps(4, &Hooks::default());
    (store, writes, Sqlite::open_memory("patient").unwrap(), Ran::default())
}

#[test]
fn whoever_waits_goes_first_and_shares_no_commit_with_a_patient_call() {
    let (store, writes, mut db, ran) = open();
    drop(store.write_patiently(ran.call("patient")));
    drop(store.write(ran.call("a")));
    drop(store.write(ran.call("b")));
    assert_eq!(ran.of_one_commit(&writes, &mut db), ["a", "b"]);
    assert_eq!(ran.of_one_commit(&writes, &mut db), ["patient"]);
}

#[test]
fn a_patient_call_gets_its_turn_however_many_come() {
    let (store, writes, mut db, ran) = open();
    for name in ["patient 1", "patient 2"] {
        drop(store.write_patiently(ran.call(name)));
    }
    let mut commits = Vec::new();
    for _ in 0..4 {
        drop(store.write(ran.call("hasty")));
        commits.extend(ran.of_one_commit(&writes, &mut db));
    }
    assert_eq!(commits, ["hasty", "patient 1", "hasty", "hasty", "patient 2"]);
}

#[test]
fn who_had_to_wait_is_counted() {
    let (store, writes, mut db, ran) = open();
    let (other, call) = (store.clone(), ran.call("came meanwhile"));
    let call = Mutex::new(Some(call));
    drop(store.write_patiently(move |_| {
        if let Some(call) = call.lock().unwrap().take() {
            drop(other.write(call));
        }
        Ok::<_, Error>(())
    }));
    assert_eq!(ran.of_one_commit(&writes, &mut db), Vec::<String>::new());
    assert_eq!(store.kept_waiting(), 1);
    assert_eq!(ran.of_one_commit(&writes, &mut db), ["came meanwhile"]);
    drop(store.write(ran.call("later")));
    assert_eq!(ran.of_one_commit(&writes, &mut db), ["later"]);
    assert_eq!(store.kept_waiting(), 1, "nobody waited for that one");
}

#[test]
fn the_queue_of_the_patient_is_bounded_and_takes_no_place_from_others() {
    let (store, writes, mut db, ran) = open();
    for _ in 0..4 {
        drop(store.write_patiently(ran.call("patient")));
    }
    let refused = crate::block_on(store.write_patiently(ran.call("one too many")));
    assert_eq!(refused, Err(Error::QueueFull(4)));
    drop(store.write(ran.call("a")));
    assert_eq!(store.waiting(), (1, 0));
    assert_eq!(ran.of_one_commit(&writes, &mut db), ["a"]);
}
