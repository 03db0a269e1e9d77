//! Numbered changes of the schema. Each crate owns its tables and contributes an area of its own.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;

use crate::db::{Access, Db, Decode, Sql};
use crate::{Error, Result, args};

/// One change of the schema. Once released its text never changes: a database remembers its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The crate that owns the tables: `store`, `ledger`, …
    pub area: &'static str,
    /// Counts from 1 within the area.
    pub number: i64,
    /// What it does, in a word or two.
    pub name: &'static str,
    /// The statements.
    pub sql: Sql,
}

impl Migration {
    fn label(&self) -> String {
        label(self.area, self.number, self.name)
    }
}

fn label(area: &str, number: i64, name: &str) -> String {
    format!("{area}/{number:04}_{name}")
}

/// All migrations that a program knows, in the order in which they are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrations(Vec<Migration>);

const LEDGER: &str = "CREATE TABLE IF NOT EXISTS schema_migration (
    area TEXT NOT NULL, number BIGINT NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL,
    applied_ms BIGINT NOT NULL, PRIMARY KEY (area, number))";

const LEDGER_EXISTS: Sql = Sql {
    lite: "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migration'",
    pg: "SELECT 1 FROM pg_catalog.pg_tables
         WHERE schemaname = current_schema() AND tablename = 'schema_migration'",
};

impl Migrations {
    /// Those of this crate.
    pub fn store() -> Migrations {
        let ground = Migration {
            area: "store",
            number: 1,
            name: "ground",
            sql: Sql {
                lite: include_str!("../migrations/sqlite/0001_ground.sql"),
                pg: include_str!("../migrations/postgres/0001_ground.sql"),
            },
        };
        Migrations(vec![
            ground,
            Migrations::leases(),
            Migrations::dead_letters(),
            Migrations::outbox_forgotten(),
        ])
    }

    /// These, then those of another crate.
    #[must_use]
    pub fn and(mut self, others: impl IntoIterator<Item = Migration>) -> Migrations {
        self.0.extend(others);
        self
    }

    /// Applies what the database lacks, all or nothing.
    pub fn apply(&self, db: &mut dyn Db, now_ms: UnixMs) -> Result<()> {
        db.begin(Access::Write)?;
        match self.apply_within(db, now_ms) {
            Ok(()) => db.commit(),
            Err(error) => {
                db.rollback();
                Err(error)
            }
        }
    }

    /// Checks, without writing, that the database has exactly what this program knows.
    pub fn check(&self, db: &mut dyn Db) -> Result<()> {
        let missing = self.missing(db)?;
        match missing.first() {
            None => Ok(()),
            Some(first) => Err(Error::OlderSchema(first.label())),
        }
    }

    fn apply_within(&self, db: &mut dyn Db, now_ms: UnixMs) -> Result<()> {
        db.exec(LEDGER, &[])?;
        for migration in self.missing(db)? {
            let text = db.pick(migration.sql);
            db.batch(text).map_err(|error| match error {
                Error::Database(said) => {
                    Error::Database(format!("migration {}: {said}", migration.label()))
                }
                // No fault of the migration.
                other => other,
            })?;
            let hash = Hash::of(text.as_bytes()).to_string();
            db.exec(
                "INSERT INTO schema_migration (area, number, name, hash, applied_ms)
                 VALUES ($1, $2, $3, $4, $5)",
                args![migration.area, migration.number, migration.name, &hash, now_ms],
            )?;
        }
        Ok(())
    }

    /// What the database lacks; an error if it has something else than we know.
    fn missing(&self, db: &mut dyn Db) -> Result<Vec<&Migration>> {
        let mut applied = BTreeMap::new();
        // A database that somebody is just making has no table yet.
        let mut made = false;
        db.query(db.pick(LEDGER_EXISTS), &[], &mut |_| {
            made = true;
            Ok(())
        })?;
        if !made {
            return Ok(self.0.iter().collect());
        }
        let sql = "SELECT area, number, name, hash FROM schema_migration";
        db.query(sql, &[], &mut |row| {
            let (area, number, name, hash) = <(String, i64, String, String)>::decode(row)?;
            applied.insert((area, number), (name, hash));
            Ok(())
        })?;
        let mut missing = Vec::new();
        for migration in &self.0 {
            match applied.remove(&(migration.area.to_owned(), migration.number)) {
                None => missing.push(migration),
                Some((_, hash)) => {
                    let ours = Hash::of(db.pick(migration.sql).as_bytes()).to_string();
                    if hash != ours {
                        return Err(Error::ChangedMigration(migration.label()));
                    }
                }
            }
        }
        match applied.into_iter().next() {
            Some(((area, number), (name, _))) => {
                Err(Error::NewerSchema(label(&area, number, &name)))
            }
            None => Ok(missing),
        }
    }
}

impl Migrations {
    /// The second of this crate.
    fn leases() -> Migration {
        let sql = Sql {
            lite: include_str!("../migrations/sqlite/0002_leases.sql"),
            pg: include_str!("../migrations/postgres/0002_leases.sql"),
        };
        Migration { area: "store", number: 2, name: "leases", sql }
    }

    /// The third of this crate.
    fn dead_letters() -> Migration {
        let sql = Sql {
            lite: include_str!("../migrations/sqlite/0003_dead_letters.sql"),
            pg: include_str!("../migrations/postgres/0003_dead_letters.sql"),
        };
        Migration { area: "store", number: 3, name: "dead_letters", sql }
    }

    /// The fourth of this crate.
    fn outbox_forgotten() -> Migration {
        let sql = Sql {
            lite: include_str!("../migrations/sqlite/0004_outbox_forgotten.sql"),
            pg: include_str!("../migrations/postgres/0004_outbox_forgotten.sql"),
        };
        Migration { area: "store", number: 4, name: "outbox_forgotten", sql }
    }

    /// The names of those that the database lacks, in their order: `store/0002_leases`. Writes nothing.
    pub fn pending(&self, db: &mut dyn Db) -> Result<Vec<String>> {
        Ok(self.missing(db)?.into_iter().map(Migration::label).collect())
    }
}
