use guild_store::{Db, Error, Migration, Migrations, Sqlite};

fn extra(number: i64, sql: &'static str) -> Migration {
    Migration { area: "test", number, name: "extra", sql: sql.into() }
}

fn tables(db: &mut Sqlite) -> i64 {
    let mut count = 0;
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'test_%'";
    db.query(sql, &[], &mut |row| {
        if let guild_store::Val::Int(n) = row.val(0)? {
            count = n;
        }
        Ok(())
    })
    .unwrap();
    count
}

#[test]
fn migrations_are_applied_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("node.db");
    let mut db = Sqlite::open(&path).unwrap();
    let first = Migrations::store().and([extra(1, "CREATE TABLE test_a (x BIGINT)")]);
    first.apply(&mut db, 1).unwrap();
    first.apply(&mut db, 2).unwrap();
    first.check(&mut db).unwrap();
    let both = first.clone().and([extra(2, "ALTER TABLE test_a RENAME TO test_b")]);
    assert_eq!(both.check(&mut db), Err(Error::OlderSchema("test/0002_extra".to_owned())));
    both.apply(&mut db, 3).unwrap();
    both.check(&mut db).unwrap();
}

#[test]
fn a_failing_migration_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = Sqlite::open(&dir.path().join("node.db")).unwrap();
    let broken = Migrations::store().and([
        extra(1, "CREATE TABLE test_a (x BIGINT)"),
        extra(2, "CREATE TABLE test_b (x BIGINT); INSERT INTO nowhere VALUES (1)"),
    ]);
    let error = broken.apply(&mut db, 1).unwrap_err();
    assert!(error.to_string().contains("test/0002_extra"), "{error}");
    assert_eq!(tables(&mut db), 0);
    assert!(!db.in_transaction());
    Migrations::store().apply(&mut db, 1).unwrap();
}

#[test]
fn a_newer_or_a_changed_schema_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = Sqlite::open(&dir.path().join("node.db")).unwrap();
    Migrations::store()
        .and([extra(1, "CREATE TABLE test_a (x BIGINT)")])
        .apply(&mut db, 1)
        .unwrap();
    let newer = Migrations::store().apply(&mut db, 2).unwrap_err();
    assert_eq!(newer, Error::NewerSchema("test/0001_extra".to_owned()));
    assert_eq!(newer.code().name, "store.newer_schema");
    let changed = Migrations::store().and([extra(1, "CREATE TABLE test_a (y BIGINT)")]);
    let error = changed.apply(&mut db, 2).unwrap_err();
    assert_eq!(error, Error::ChangedMigration("test/0001_extra".to_owned()));
}
