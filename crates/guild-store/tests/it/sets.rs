use guild_store::{Column, Error, Hooks, Migration, Migrations, Service, Sql, args};

use crate::{Engine, Place, Scratch, block_on};

on_both! {
    a_set_is_written_and_read_in_its_order,
    an_empty_set_is_no_statement,
    a_large_set_is_written_whole_or_not_at_all,
    many_rows_go_into_one_statement,
    columns_of_different_lengths_are_refused,
    a_row_that_breaks_a_rule_takes_its_whole_set_with_it,
    a_text_with_nul_is_refused,
    texts_and_numbers_come_back_as_they_went,
}

const INSERT: Sql = Sql {
    lite: "INSERT INTO parcel (number, weight, place, note) VALUES ($1, $2, $3, $4)",
    pg: "INSERT INTO parcel (number, weight, place, note)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[])",
};
const FIND: Sql = Sql {
    lite: "SELECT number, weight, place, note FROM parcel WHERE number = $1",
    pg: "SELECT number, weight, place, note FROM unnest($1::bigint[]) WITH ORDINALITY AS wanted (n, i)
         JOIN parcel ON number = n ORDER BY i",
};

type Parcel = (i64, Option<i64>, String, Option<String>);

fn open(place: &Place) -> Service {
    let table = "CREATE TABLE parcel (number BIGINT PRIMARY KEY, weight BIGINT CHECK (weight > 0),
                 place TEXT NOT NULL, note TEXT)";
    let parcels = Migration { area: "test", number: 1, name: "parcels", sql: table.into() };
    let migrations = Migrations::store().and([parcels]);
    Service::open(&place.options(), &migrations, Hooks::default(), 0).unwrap()
}

fn put(service: &Service, numbers: &[i64], weights: &[Option<i64>]) -> Result<u64, Error> {
    let (numbers, weights) = (numbers.to_vec(), weights.to_vec());
    block_on(service.handle().write(move |tx| {
        let places: Vec<String> = numbers.iter().map(|n| format!("shelf {n}")).collect();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        let notes: Vec<Option<&str>> =
            numbers.iter().map(|n| (n % 2 == 0).then_some("even")).collect();
        tx.exec_set(
            INSERT,
            &[
                Column::Ints(&numbers),
                Column::OptInts(&weights),
                Column::Texts(&places),
                Column::OptTexts(&notes),
            ],
        )
    }))
}

fn find(service: &Service, numbers: &[i64]) -> Vec<Parcel> {
    let numbers = numbers.to_vec();
    let found = service.handle().read(move |rx| rx.all_set(FIND, &[Column::Ints(&numbers)]));
    block_on::<Result<_, Error>>(found).unwrap()
}

fn a_set_is_written_and_read_in_its_order(engine: Engine) {
    let place = Place::on(engine);
    let service = open(&place);
    assert_eq!(put(&service, &[1, 2, 3], &[Some(i64::MAX), None, Some(7)]), Ok(3));
    let found = find(&service, &[3, 9, 2]);
    let wanted = [
        (3, Some(7), "shelf 3".to_owned(), None),
        (2, None, "shelf 2".to_owned(), Some("even".to_owned())),
    ];
    assert_eq!(found, wanted);
    service.close();
}

fn an_empty_set_is_no_statement(engine: Engine) {
    let place = Place::on(engine);
    let service = open(&place);
    assert_eq!(put(&service, &[], &[]), Ok(0));
    assert_eq!(find(&service, &[]), []);
    service.close();
}

fn a_large_set_is_written_whole_or_not_at_all(engine: Engine) {
    let place = Place::on(engine);
    let service = open(&place);
    for count in [63, 64, 371] {
        let numbers: Vec<i64> = (1..=count).collect();
        let weights: Vec<Option<i64>> =
            numbers.iter().map(|n| (n % 3 > 0).then_some(n * 10)).collect();
        for bad in [1, count / 2, count] {
            let mut broken = weights.clone();
            broken[usize::try_from(bad - 1).unwrap()] = Some(-1);
            assert!(put(&service, &numbers, &broken).is_err(), "{bad} of {count}");
            assert_eq!(find(&service, &numbers), []);
        }
        assert_eq!(put(&service, &numbers, &weights), Ok(u64::try_from(count).unwrap()));
        let found = find(&service, &numbers);
        let wanted: Vec<Parcel> = numbers
            .iter()
            .zip(&weights)
            .map(|(n, weight)| {
                let note = (n % 2 == 0).then(|| "even".to_owned());
                (*n, *weight, format!("shelf {n}"), note)
            })
            .collect();
        assert_eq!(found, wanted);
        assert!(put(&service, &numbers[..1], &[None]).is_err(), "it is there");
        let clear = service.handle().write(|tx| tx.exec("DELETE FROM parcel", &[]));
        assert_eq!(block_on(clear), Ok(u64::try_from(count).unwrap()));
    }
    service.close();
}

const INSERT_PLAIN: Sql = Sql {
    lite: "INSERT OR FAIL INTO plain (number, note) VALUES ($1, $2)",
    pg: "INSERT INTO plain (number, note) SELECT * FROM unnest($1::bigint[], $2::text[])",
};

fn many_rows_go_into_one_statement(engine: Engine) {
    let place = Place::on(engine);
    let table = "CREATE TABLE plain (number BIGINT PRIMARY KEY, note TEXT)";
    let plain = Migration { area: "test", number: 1, name: "plain", sql: table.into() };
    let service =
        Service::open(&place.options(), &Migrations::store().and([plain]), Hooks::default(), 0)
            .unwrap();
    // On SQLite one statement has 240 of these rows.
    for count in [1, 239, 240, 241, 480, 731] {
        let put = |numbers: Vec<i64>| {
            let write = service.handle().write(move |tx| {
                let notes: Vec<String> = numbers.iter().map(|n| format!("note {n}")).collect();
                let notes: Vec<Option<&str>> = numbers
                    .iter()
                    .zip(&notes)
                    .map(|(n, note)| (n % 2 > 0).then_some(&**note))
                    .collect();
                tx.exec_set(INSERT_PLAIN, &[Column::Ints(&numbers), Column::OptTexts(&notes)])
            });
            block_on::<Result<_, Error>>(write)
        };
        let all = || {
            let sql = "SELECT number, note FROM plain ORDER BY number";
            let read = service.handle().read(move |rx| rx.all::<(i64, Option<String>)>(sql, &[]));
            block_on::<Result<_, Error>>(read).unwrap()
        };
        for twice in [1, count / 2, count] {
            let mut numbers: Vec<i64> = (1..=count).collect();
            numbers.push(twice.max(1));
            assert!(put(numbers).is_err(), "{twice} of {count}");
            assert_eq!(all(), []);
        }
        assert_eq!(put((1..=count).rev().collect()), Ok(u64::try_from(count).unwrap()));
        let note = |n: i64| (n % 2 > 0).then(|| format!("note {n}"));
        assert_eq!(all(), (1..=count).map(|n| (n, note(n))).collect::<Vec<_>>());
        let clear = service.handle().write(|tx| tx.exec("DELETE FROM plain", &[]));
        assert_eq!(block_on::<Result<_, Error>>(clear), Ok(u64::try_from(count).unwrap()));
    }
    service.close();
}

fn columns_of_different_lengths_are_refused(engine: Engine) {
    let place = Place::on(engine);
    let service = open(&place);
    assert!(matches!(put(&service, &[1, 2], &[None]), Err(Error::Database(_))));
    assert_eq!(find(&service, &[1, 2]), []);
    service.close();
}

fn a_row_that_breaks_a_rule_takes_its_whole_set_with_it(engine: Engine) {
    let place = Place::on(engine);
    let service = open(&place);
    assert!(matches!(put(&service, &[1, 2], &[Some(5), Some(-1)]), Err(Error::Database(_))));
    assert_eq!(find(&service, &[1, 2]), []);
    assert_eq!(put(&service, &[1], &[Some(5)]), Ok(1), "and nothing is left broken");
    service.close();
}

fn a_text_with_nul_is_refused(engine: Engine) {
    let place = Place::on(engine);
    let service = open(&place);
    let put = service.handle().write(|tx| {
        tx.exec("INSERT INTO parcel (number, place) VALUES (1, $1)", guild_store::args!["a\0b"])
    });
    assert!(matches!(block_on(put), Err(Error::Database(_))));
    assert_eq!(find(&service, &[1]), []);
    service.close();
}

fn texts_and_numbers_come_back_as_they_went(engine: Engine) {
    let scratch = Scratch::on(engine);
    let texts = [
        "",
        " ",
        "'; --",
        "\u{1}\u{7f}",
        "e\u{301}",
        "\u{e9}",
        "\u{feff}",
        "\u{ffff}",
        "\u{10ffff}",
        "İıẞ",
    ];
    let numbers = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX];
    for text in texts {
        let sql = "SELECT CAST($1 AS TEXT)";
        let back = scratch.store().read(move |rx| rx.first::<(String,)>(sql, args![text]));
        assert_eq!(block_on(back).unwrap(), Some((text.to_owned(),)));
    }
    for number in numbers {
        let sql = "SELECT CAST($1 AS BIGINT)";
        let back = scratch.store().read(move |rx| rx.first::<(i64,)>(sql, args![number]));
        assert_eq!(block_on(back).unwrap(), Some((number,)));
    }
    // What looks alike is not the same, and neither database thinks so.
    let same = scratch.store().read(|rx| {
        rx.first::<(i64,)>(
            "SELECT CASE WHEN CAST($1 AS TEXT) = CAST($2 AS TEXT) THEN 1 ELSE 0 END",
            args!["e\u{301}", "\u{e9}"],
        )
    });
    assert_eq!(block_on(same).unwrap(), Some((0,)));
}
