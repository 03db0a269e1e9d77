//! The database that the processes of a world share: where it is, how they reach it, and an eye that looks at it from
//! outside of all of them.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use guild_protocol::env::{Clock, UnixMs};
use guild_store::{
    Access, Column, Columns, Db, Decode, Error, FromVal, Hooks, Migrations, Pump, Result, Rx, Sql,
    Sqlite, Store, Val, pumps,
};

use crate::clock::BEGIN_MS;
use crate::executor::Life;
use crate::world::World;

/// Where the database is: most seeds in memory, one in ten on a file.
enum Place {
    Memory(String),
    File(tempfile::TempDir),
}

impl Place {
    fn for_seed(seed: u64, node: usize) -> Place {
        if seed % 10 == 9
            && let Ok(dir) = tempfile::tempdir()
        {
            return Place::File(dir);
        }
        // The name is shared by all threads of this program.
        Place::Memory(format!("seed-{seed}-{node}-{:?}", std::thread::current().id()))
    }

    fn connect(&self) -> Result<Sqlite> {
        match self {
            Place::Memory(name) => Sqlite::open_memory(name),
            Place::File(dir) => Sqlite::open_simulated(&dir.path().join("node.db")),
        }
    }
}

/// A bug in how the program speaks with its database, planted where the two meet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plant {
    /// In every statement and migration, the first text becomes the second.
    pub edits: &'static [(&'static str, &'static str)],
    /// The database does not check what the schema says must hold.
    pub unchecked: bool,
    /// One in so many commits is answered and does not happen, because the process dies in between; zero is never.
    pub answers_early_one_in: u64,
    /// What is queued for this sink of the outbox is heard by others before its commit: [`Database::overheard`].
    pub overheard_sink: Option<&'static str>,
}

/// The database of a world.
#[derive(Clone)]
pub struct Database {
    world: World,
    place: Arc<Place>,
    plant: Plant,
    eye: Arc<Mutex<Eye>>,
    overheard: Overheard,
}

/// Messages that were queued, whether that was committed or not.
type Overheard = Arc<Mutex<Vec<String>>>;

struct Eye {
    db: Sqlite,
    store: Store,
    reads: Pump,
}

impl Database {
    /// A fresh database for this seed with these tables, and perhaps a bug.
    pub fn new(
        world: &World,
        seed: u64,
        migrations: &Migrations,
        plant: Plant,
    ) -> Result<Database> {
        Database::of_node(world, seed, 0, migrations, plant)
    }

    /// As [`Database::new`], for one of several nodes, each with a database of its own.
    pub fn of_node(
        world: &World,
        seed: u64,
        node: usize,
        migrations: &Migrations,
        plant: Plant,
    ) -> Result<Database> {
        plant.edits.iter().for_each(|(from, _)| world.plant(from));
        let place = Place::for_seed(seed, node);
        let db = place.connect()?;
        let overheard = Overheard::default();
        let mut db =
            SimDb { db, world: world.clone(), plant, life: None, overheard: overheard.clone() };
        migrations.apply(&mut db, BEGIN_MS)?;
        let (store, _, reads) = pumps(10, &Hooks::default());
        let eye = Arc::new(Mutex::new(Eye { db: db.db, store, reads }));
        Ok(Database { world: world.clone(), place: Arc::new(place), plant, eye, overheard })
    }

    /// The two connections of a life: one that writes, and one that cannot, as in production.
    pub fn connect(&self, life: &Life) -> Result<(SimDb, SimDb)> {
        let connection = |life: Option<&Life>| -> Result<SimDb> {
            let (world, plant) = (self.world.clone(), self.plant);
            let (db, overheard) = (self.place.connect()?, self.overheard.clone());
            Ok(SimDb { db, world, plant, life: life.cloned(), overheard })
        };
        let (mut writer, mut reader) = (connection(Some(life))?, connection(None)?);
        if self.plant.unchecked {
            writer.db.batch("PRAGMA ignore_check_constraints = ON")?;
        }
        reader.db.batch("PRAGMA query_only = ON")?;
        Ok((writer, reader))
    }

    /// The messages that were queued since the last time, where that is planted, whether they were committed or not.
    pub fn overheard(&self) -> Vec<String> {
        std::mem::take(&mut *self.overheard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All rows of a query, seen from outside.
    pub fn all<T: Decode>(&self, sql: &str, args: &[Val<'_>]) -> Result<Vec<T>> {
        let mut rows = Vec::new();
        self.with_eye(|eye| {
            eye.db.query(sql, args, &mut |row| {
                rows.push(T::decode(row)?);
                Ok(())
            })
        })?;
        Ok(rows)
    }

    /// The first value of a query, seen from outside.
    pub fn one<T: FromVal>(&self, sql: &str, args: &[Val<'_>]) -> Result<Option<T>> {
        Ok(self.all::<(T,)>(sql, args)?.pop().map(|(value,)| value))
    }

    /// Runs a reading closure of the product on one snapshot, from outside.
    pub fn read<T, E, F>(&self, closure: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: Fn(&mut Rx<'_>) -> Result<T, E> + Send + 'static,
    {
        self.with_eye(|eye| {
            let answer = eye.store.read(closure);
            eye.reads.drain(&mut eye.db, 1)?;
            // It has been drained, so it has been answered.
            answer.now_or_never().unwrap_or_else(|| Err(Error::Closed.into()))
        })
    }

    fn with_eye<T>(&self, look: impl FnOnce(&mut Eye) -> T) -> T {
        look(&mut self.eye.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection as a process has it. It is SQLite; it also tells the time, as a database server would, and may have a
/// bug planted.
pub struct SimDb {
    db: Sqlite,
    world: World,
    plant: Plant,
    life: Option<Life>,
    overheard: Overheard,
}

/// What SQLite cannot answer: the question for the database's clock.
const NOW: &str = "the time";

struct Now(UnixMs);

impl Columns for Now {
    fn val(&self, _: usize) -> Result<Val<'_>> {
        Ok(Val::Int(self.0))
    }
}

impl SimDb {
    fn overhear(&self, sql: &str, args: &[Val<'_>]) {
        if let (Some(sink), [Val::Text(of), _, _, Val::Text(body), ..]) =
            (self.plant.overheard_sink, args)
            && *of == sink
            && sql.starts_with("INSERT INTO outbox (")
        {
            let mut overheard = self.overheard.lock().unwrap_or_else(PoisonError::into_inner);
            overheard.push((*body).to_owned());
        }
    }

    fn edited<'a>(&self, sql: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(sql);
        for (from, to) in self.plant.edits {
            if text.contains(from) {
                self.world.planted(from);
                text = Cow::Owned(text.replace(from, to));
            }
        }
        text
    }
}

impl Db for SimDb {
    fn pick(&self, sql: Sql) -> &'static str {
        if sql.pg.contains("clock_timestamp()") { NOW } else { self.db.pick(sql) }
    }

    fn begin(&mut self, access: Access) -> Result<()> {
        self.db.begin(access)
    }

    fn commit(&mut self) -> Result<()> {
        let early = self.plant.answers_early_one_in;
        match &self.life {
            Some(life) if early > 0 && self.world.below(early) == 0 => {
                life.doom();
                self.db.rollback();
                Ok(())
            }
            _ => self.db.commit(),
        }
    }

    fn rollback(&mut self) {
        self.db.rollback();
    }

    fn in_transaction(&self) -> bool {
        self.db.in_transaction()
    }

    fn savepoint(&mut self) -> Result<()> {
        self.db.savepoint()
    }

    fn release_savepoint(&mut self) -> Result<()> {
        self.db.release_savepoint()
    }

    fn rollback_to_savepoint(&mut self) -> Result<()> {
        self.db.rollback_to_savepoint()
    }

    fn try_again(&mut self, error: &Error, tries: u32) -> bool {
        self.db.try_again(error, tries)
    }

    fn exec(&mut self, sql: &str, args: &[Val<'_>]) -> Result<u64> {
        let sql = self.edited(sql);
        self.db.exec(&sql, args)
    }

    fn query(
        &mut self,
        sql: &str,
        args: &[Val<'_>],
        each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
    ) -> Result<()> {
        if sql == NOW {
            return each(&Now(BEGIN_MS + self.world.now_ms()));
        }
        self.overhear(sql, args);
        let sql = self.edited(sql);
        self.db.query(&sql, args, each)
    }

    fn exec_set(&mut self, sql: &str, columns: &[Column<'_>]) -> Result<u64> {
        let sql = self.edited(sql);
        self.db.exec_set(&sql, columns)
    }

    fn query_set(
        &mut self,
        sql: &str,
        columns: &[Column<'_>],
        each: &mut dyn FnMut(&dyn Columns) -> Result<()>,
    ) -> Result<()> {
        let sql = self.edited(sql);
        self.db.query_set(&sql, columns, each)
    }

    fn batch(&mut self, sql: &str) -> Result<()> {
        let sql = self.edited(sql);
        self.db.batch(&sql)
    }
}
