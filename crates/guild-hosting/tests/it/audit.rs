//! The audit: silent when all is well, and loud about every kind of lie.

use guild_hosting::money::{self, NewWithdrawal};
use guild_hosting::sandbox::NewSandbox;
use guild_hosting::{Error, UserId, audit, code};
use guild_ledger::{Account, NewTransfer, Step, TransferId, ledger};
use guild_protocol::amount::{Amount, AssetId};
use guild_store::{Tx, args};

use crate::world::{
    MINUTE_MS, Node, PRICE, T0, both, new_job, new_sandbox, sandbox_id, user, withdrawal_id,
};

/// Two sandboxes that run, one that starts, a withdrawal on its way and one that has arrived.
fn busy(node: &Node) {
    node.fund(1, 1_000_000_000);
    node.fund(2, 1_000);
    node.create_job(&new_job(1), T0).unwrap();
    node.run(&new_sandbox(1), T0);
    node.run(&NewSandbox { cap: 2 * PRICE, ..new_sandbox(2) }, T0);
    node.ticks(T0, T0 + 170_000);
    node.order(&new_sandbox(3), T0 + 170_000);
    for n in [1, 2] {
        let new = NewWithdrawal {
            withdrawal_id: withdrawal_id(n),
            user_id: user(1),
            units: 100,
            destination: "there".to_owned(),
        };
        node.write(move |tx| money::withdraw(tx, &new, &Default::default(), T0 + 170_000)).unwrap();
    }
    node.write(|tx| money::confirm(tx, &withdrawal_id(2), "tx", T0 + 171_000)).unwrap();
}

#[test]
fn all_is_well_after_an_honest_life() {
    both(|node| {
        assert_eq!(node.audit(), audit::Report::default());
        busy(node);
        let report = node.audit();
        assert_eq!(report.problems, Vec::<String>::new());
        assert_eq!((report.jobs, report.sandboxes, report.minutes), (1, 3, 6));
        assert_eq!((report.overrun_ms, report.lost_units), (0, 0));
    });
}

type Plant = fn(&mut Tx<'_>);

fn sql(tx: &mut Tx<'_>, text: &'static str) {
    assert!(tx.exec(text, args![]).unwrap() > 0, "{text}");
}

/// Books a transfer that our own code would not.
fn book(tx: &mut Tx<'_>, from: Account, to: Account, id: TransferId, memo: &str, at_ms: i64) {
    let amount = Amount::new(AssetId::usd_micro(), 5);
    for account in [&from, &to] {
        ledger::open(tx, account, at_ms).unwrap();
    }
    let step = Step::Post { debit: from.account_id, credit: to.account_id, amount };
    let transfer = NewTransfer::new(id, step, memo).unwrap();
    ledger::book(tx, &[vec![transfer]], at_ms).unwrap().remove(0).unwrap();
}

fn of(n: u8) -> Account {
    money::account(&user(n)).unwrap()
}

fn revenue() -> Account {
    money::revenue().unwrap()
}

fn odd() -> TransferId {
    TransferId::named(T0, &["planted"])
}

/// A minute of sandbox 1, as it would be named.
fn minute(number: i64) -> (TransferId, String) {
    let (id, number_text) = (sandbox_id(1), number.to_string());
    let begins_ms = T0 + number * MINUTE_MS;
    let words = ["sandbox.minute", id.as_str(), &number_text];
    (TransferId::named(begins_ms, &words), words.join(" "))
}

const PLANTS: [(&str, Plant); 28] = [
    (
        "the last minute of sbx_00000000000000000000000000000001 is paid with 1110, it costs 2220",
        |tx| sql(tx, "UPDATE hosting_sandbox SET price = 2 * price"),
    ),
    ("minute 1 of sbx_00000000000000000000000000000001 is paid twice", |tx| {
        book(tx, of(1), revenue(), odd(), &minute(1).1, T0);
    }),
    ("minute 4 of sbx_00000000000000000000000000000001 is missing before minute 5", |tx| {
        let (id, memo) = minute(5);
        book(tx, of(1), revenue(), id, &memo, T0);
    }),
    ("minute 4 of sbx_00000000000000000000000000000001 was paid 1 ms after it began", |tx| {
        let (id, memo) = minute(4);
        book(tx, of(1), revenue(), id, &memo, T0 + 4 * MINUTE_MS + 1);
    }),
    ("is booked under an id of another", |tx| {
        book(tx, of(1), revenue(), odd(), &minute(4).1, T0);
    }),
    ("minute 4 of sbx_00000000000000000000000000000001 is paid by eip155:0x0202", |tx| {
        let (id, memo) = minute(4);
        book(tx, of(2), revenue(), id, &memo, T0);
    }),
    ("sbx_00000000000000000000000000000001 has spent 4439, its transfers are 4440", |tx| {
        sql(tx, "UPDATE hosting_run SET spent = spent - 1 WHERE spent = 4440");
    }),
    ("job_00000000000000000000000000000001 has spent 6661, its transfers are 6660", |tx| {
        sql(tx, "UPDATE hosting_job SET spent = spent + 1");
    }),
    ("job_00000000000000000000000000000001 holds 1111, what starts in it costs 1110", |tx| {
        sql(tx, "UPDATE hosting_job SET held = held + 1");
    }),
    ("sbx_00000000000000000000000000000001 has spent 4440 of a cap of 4439", |tx| {
        sql(tx, "UPDATE hosting_run SET spent = 4439, cap = 4439 WHERE spent = 4440");
    }),
    ("job_00000000000000000000000000000001 has spent 7770 of a budget of 7769", |tx| {
        sql(tx, "UPDATE hosting_job SET max_spend = 7769, spent = 6659");
    }),
    ("has 5 paid minutes, 4 are booked", |tx| {
        sql(tx, "UPDATE hosting_run SET paid_minutes = 5 WHERE paid_minutes = 4");
    }),
    ("it is paid until", |tx| {
        let text = "UPDATE hosting_run SET paid_minutes = 5, ends_ms = ends_ms + 60000 WHERE paid_minutes = 4";
        sql(tx, text);
    }),
    ("sbx_00000000000000000000000000000001 ran 1 ms that nobody has paid", |tx| {
        sql(tx, "UPDATE hosting_sandbox SET ran_ms = 240001 WHERE sandbox_no = 1");
    }),
    ("ran 30000 ms that nobody has paid: 5 are booked as lost, not 555", |tx| {
        sql(tx, "UPDATE hosting_sandbox SET ran_ms = 270000, lost_units = 5 WHERE sandbox_no = 1");
        let memo = format!("sandbox.loss {} 30000", sandbox_id(1));
        book(tx, money::loss().unwrap(), revenue(), odd(), &memo, T0);
    }),
    ("sbx_00000000000000000000000000000001 lost 7, its transfers are 0", |tx| {
        sql(tx, "UPDATE hosting_sandbox SET lost_units = 7 WHERE sandbox_no = 1");
    }),
    ("a loss of sbx_00000000000000000000000000000001 is borne by eip155:0x0101", |tx| {
        book(tx, of(1), revenue(), odd(), &format!("sandbox.loss {} 5", sandbox_id(1)), T0);
    }),
    ("pays us for \"a tip\", which we do not sell", |tx| {
        book(tx, of(1), revenue(), odd(), "a tip", T0);
    }),
    ("is about sbx_00000000000000000000000000000009, which does not exist", |tx| {
        book(tx, of(1), revenue(), odd(), &format!("sandbox.minute {} 0", sandbox_id(9)), T0);
    }),
    ("job_00000000000000000000000000000001 has ended, and 2 of its sandboxes run", |tx| {
        sql(tx, "UPDATE hosting_job SET status = 'stopped', due_ms = NULL, ended_ms = 1");
    }),
    ("wd_00000000000000000000000000000001 over 100 is confirmed, and None went out for it", |tx| {
        sql(
            tx,
            "UPDATE hosting_withdrawal SET status = 'confirmed', reference = 'x' WHERE status = 'requested'",
        );
    }),
    ("together hold 1, not zero", |tx| {
        sql(
            tx,
            "UPDATE ledger_account SET credits_posted = credits_posted + 1 WHERE owner = 'outside'",
        );
    }),
    (
        "sbx_00000000000000000000000000000001 may run until 1768435440000, its time is over at",
        |tx| {
            sql(tx, "UPDATE hosting_sandbox SET expires_ms = 1768435439999 WHERE sandbox_no = 1");
        },
    ),
    (
        "sbx_00000000000000000000000000000001 may run until 1768435440000, its time is over at",
        |tx| {
            sql(tx, "UPDATE hosting_job SET expires_ms = 1768435439999");
        },
    ),
    ("sbx_00000000000000000000000000000002 ended by its cap of 3330, which pays for 3330", |tx| {
        sql(tx, "UPDATE hosting_run SET cap = 3330 WHERE sandbox_no = 2");
    }),
    (
        "job_00000000000000000000000000000001 ended by its budget of 1000000, which pays for 7770",
        |tx| {
            sql(tx, "UPDATE hosting_sandbox SET stop_reason = 'job_cap' WHERE sandbox_no = 2");
        },
    ),
    ("sbx_00000000000000000000000000000002 ended by its time, which is over at", |tx| {
        sql(tx, "UPDATE hosting_sandbox SET stop_reason = 'sandbox_ttl' WHERE sandbox_no = 2");
    }),
    ("goes out for \"a gift\"", |tx| {
        book(tx, of(2), money::outside().unwrap(), odd(), "a gift", T0);
    }),
];

/// Plants, audits, and takes everything back.
fn found(node: &Node, plant: Plant) -> String {
    let report = node.write::<()>(move |tx| {
        plant(tx);
        let report = audit::run(tx)?;
        Err(Error::refused(&code::MALFORMED, report.problems.join("\n")))
    });
    report.unwrap_err().to_string()
}

#[test]
fn every_kind_of_lie_is_seen() {
    both(|node| {
        busy(node);
        for (words, plant) in PLANTS {
            let found = found(node, plant);
            assert!(found.contains(words), "{words:?} is not in:\n{found}");
        }
        let poor = found(node, |tx| {
            let text = "UPDATE ledger_account SET balance_limit = 'none', debits_posted = credits_posted + 1
                        WHERE owner = $1";
            assert_eq!(tx.exec(text, args![user(2).as_str()]).unwrap(), 1);
        });
        assert!(poor.contains("02 has -1 free"), "{poor}");
        assert_eq!(node.audit().problems, Vec::<String>::new(), "all of it was taken back");
        let of: UserId = user(2);
        assert!(of.as_str().starts_with("eip155:0x0202"));
    });
}
