//! One piece of work that several do: who is paid, and what can never be.

use std::collections::BTreeSet;

use guild_ledger::policy::{Bundle, Tier};
use guild_ledger::receivable;
use guild_market::delegation::judge::{Finding, Question};
use guild_market::delegation::{
    self, Closed, Criticality, Delegation, DelegationId, Means, NewDelegation, NewReplica, Options,
    Posted, Replica, Standing, State, Step, vote,
};
use guild_market::order::{self, NewOrder, Order, OrderId, Waits};
use guild_market::routing::{self, work as routed};
use guild_market::settle::{self, Keys, Settled};
use guild_market::verify::{Options as Strictness, Subject, Verdict, verify_ballot};
use guild_market::{Error, Result};
use guild_protocol::amount::{AssetId, Msat};
use guild_protocol::env::Signer;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::schema::{Job, Registry};
use guild_store::Tx;
use serde_json::{Value, json};

use crate::world::{
    Dice, Node, T0, TIME_MS, both, buyer, cheap, claimant, key, output, result_of, why, work,
};

/// What everybody asks for.
const PRICE: i64 = 100;
/// From then on somebody is slow.
const SLOW_MS: i64 = T0 + 20_000;

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

fn means_of<'a>(registry: &'a Registry, options: &'a Options, has_judge: bool) -> Means<'a> {
    Means { registry, options, has_judge }
}

/// Work that only a comparison can judge.
fn ranking() -> Job {
    let candidates: Vec<Value> =
        (0..9).map(|n| json!({"id": n.to_string(), "content": "c"})).collect();
    let input = json!({"user_task": "t", "candidates": candidates});
    Registry::builtin().validate_input(&"oa.retrieval_rerank.v1".parse().unwrap(), &input).unwrap()
}

/// What the replica of this number thinks is the best.
fn ranked(first: u8) -> String {
    let topk = [json!({"rank": 1, "id": first.to_string(), "score": 0.5})];
    let provenance = json!({"model": "m", "provider_id": who(first + 1).npub()});
    json!({"topk": topk, "provenance": provenance}).to_string()
}

fn new(criticality: Criticality, job: Job) -> NewDelegation {
    let options = Options::default();
    NewDelegation {
        delegation_key: "it".to_owned(),
        buyer: buyer().public_key(),
        kind: 5050,
        job,
        criticality,
        replicas: options.replicas(criticality),
        extra_max: options.extra_max,
        budget: Msat(700),
        deadline_ms: T0 + TIME_MS,
        private: false,
    }
}

fn replica(new: &NewDelegation, number: i64, provider: &SecretKey, cluster: &str) -> NewReplica {
    let order = NewOrder {
        order_key: new.order_key(number),
        kind: new.kind,
        job: new.job.clone(),
        provider: Some(provider.public_key()),
        provider_tier: Tier::Secondary,
        price: Some(Msat(PRICE)),
        budget: Msat(PRICE),
        deadline_ms: new.deadline_ms,
        private: false,
        relays: vec!["wss://relay.example".to_owned()],
    };
    let request = order.request(&buyer(), &Dice, T0).unwrap();
    NewReplica { order, request, cluster: cluster.to_owned(), slow_from_ms: SLOW_MS }
}

/// A delegation in the making, on a database.
struct Council<'a> {
    node: &'a Node,
    new: NewDelegation,
}

impl<'a> Council<'a> {
    fn posted(node: &'a Node, new: NewDelegation) -> Council<'a> {
        node.fund(10_000);
        let council = Council { node, new };
        let posted = council.post(council.first()).unwrap();
        assert!(matches!(posted, Posted::New(_, orders) if orders.len() == council.first().len()));
        council
    }

    /// Providers 2, 3, 4 and so on, each an operator of its own.
    fn first(&self) -> Vec<NewReplica> {
        let seat = |number: i64| {
            let n = u8::try_from(number).unwrap() + 1;
            replica(&self.new, number, &key(n), &who(n).npub())
        };
        (1..=i64::from(self.new.replicas)).map(seat).collect()
    }

    fn post(&self, replicas: Vec<NewReplica>) -> Result<Posted> {
        let new = self.new.clone();
        let bundle = Bundle::builtin().unwrap();
        self.node.write(move |tx| delegation::post(tx, &new, &replicas, &bundle, T0))
    }

    fn id(&self) -> DelegationId {
        self.new.delegation_id()
    }

    fn now(&self) -> Delegation {
        let id = self.id();
        self.node.read(move |rx| delegation::get(rx, &id))
    }

    fn seated(&self) -> Vec<(Replica, Order)> {
        let id = self.id();
        self.node.read(move |rx| delegation::with_orders(rx, &id))
    }

    /// Where each stands, beside where its order stands.
    fn standings(&self) -> String {
        let shown = |(replica, order): &(Replica, Order)| {
            format!("{}/{}", replica.standing.as_str(), order.state.as_str())
        };
        self.seated().iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    fn order_id(&self, number: i64) -> OrderId {
        OrderId::of_key(&self.new.order_key(number))
    }

    /// The result of a replica comes, and is checked by itself.
    fn answers(&self, number: i64, content: &str, at_ms: i64) {
        self.delivers(number, content, at_ms);
        self.votes(number, at_ms);
    }

    fn delivers(&self, number: i64, content: &str, at_ms: i64) {
        let order = self.node.order(&self.order_id(number));
        let n = u8::try_from(number).unwrap() + 1;
        let result = result_of(&order.request().unwrap(), content, &key(n), at_ms);
        let delivery = self.node.deliver(&result, at_ms).unwrap();
        if delivery.standing == order::Standing::Late {
            let order_id = order.order_id;
            self.node.write(move |tx| delegation::late(tx, &order_id)).unwrap();
        }
    }

    fn votes(&self, number: i64, at_ms: i64) {
        let order_id = self.order_id(number);
        self.node
            .write(move |tx| {
                let order = order::get(tx, &order_id)?;
                let (verdict, says) = ballot(&order);
                let claim = order::claim(tx, &order_id, &claimant(), at_ms)?.unwrap();
                delegation::voted(tx, &order_id, &claim, (&verdict, says), at_ms)
            })
            .unwrap();
    }

    fn step(&self, at_ms: i64) -> Step {
        self.step_with(at_ms, false)
    }

    fn step_with(&self, at_ms: i64, has_judge: bool) -> Step {
        let id = self.id();
        let stepped = self.node.write(move |tx| {
            let (registry, options) = (Registry::builtin(), Options::default());
            delegation::step(tx, &id, means_of(&registry, &options, has_judge), at_ms)
        });
        stepped.unwrap()
    }

    fn add(&self, replica: NewReplica, at_ms: i64) -> Result<Option<Order>> {
        let id = self.id();
        self.node.write(move |tx| {
            let (registry, options) = (Registry::builtin(), Options::default());
            let means = means_of(&registry, &options, false);
            delegation::add(tx, &id, &replica, means, &Bundle::builtin().unwrap(), at_ms)
        })
    }

    fn adjudged(&self, asked: Question, found: Result<Finding, String>) -> Option<Closed> {
        let id = self.id();
        let called = self.node.write(move |tx| {
            let (registry, options) = (Registry::builtin(), Options::default());
            let means = means_of(&registry, &options, true);
            delegation::adjudged(tx, &id, &asked, &found, means, T0 + 9_000)
        });
        called.unwrap()
    }

    /// What whoever looks next finds to settle, and settles.
    fn settle_all(&self, at_ms: i64) -> Vec<OrderId> {
        let waiting = self.waiting(at_ms);
        for order_id in &waiting {
            self.settle(order_id, at_ms).unwrap();
        }
        waiting
    }

    fn waiting(&self, at_ms: i64) -> Vec<OrderId> {
        self.node.read(move |rx| {
            order::waiting(rx, Waits::Verdict, (&claimant(), at_ms), &BTreeSet::new(), 100)
        })
    }

    fn settle(&self, order_id: &OrderId, at_ms: i64) -> Result<Settled> {
        let order_id = order_id.clone();
        self.node.write(move |tx| settle_by_rows(tx, &order_id, at_ms))
    }

    fn owed(&self, n: u8) -> i64 {
        self.node.balance(&receivable::payable(&who(n), AssetId::btc_ln()).unwrap()).0
    }

    /// What an audit of the delegations finds, and one of the ledger.
    fn problems(&self) -> Vec<String> {
        let mut problems = self.node.read(delegation::audit::run).problems;
        problems.extend(self.node.problems());
        problems
    }
}

fn ballot(order: &Order) -> (Verdict, Option<guild_protocol::hash::Hash>) {
    let registry = Registry::builtin();
    let (job, text) = (order.job(&registry).unwrap(), order.output_text.clone().unwrap());
    let provider = order.deliverer().unwrap();
    let subject = Subject { job: &job, provider: &provider, output_text: &text };
    let verdict = verify_ballot(&registry, &Strictness::default(), &subject, &[]).unwrap();
    (verdict, vote::projection(&registry, &job, &text))
}

fn settle_by_rows(tx: &mut Tx<'_>, order_id: &OrderId, at_ms: i64) -> Result<Settled> {
    let order = order::get(tx, order_id)?;
    let replica = delegation::replica_of(tx, order_id)?.unwrap();
    let all = delegation::get(tx, &replica.delegation_id)?;
    let replicas = delegation::replicas(tx, &replica.delegation_id)?;
    let verdict = delegation::verdict_of(&all, &replicas, &replica, &order)?;
    let keys = Keys { key: &buyer(), random: &Dice };
    let claim = order::claim(tx, order_id, &claimant(), at_ms)?.unwrap();
    let settled = settle::settle(tx, order_id, &claim, &verdict, keys, at_ms)?;
    routed::ended(tx, &routing::Options::default(), &settled.order, at_ms)?;
    Ok(settled)
}

#[test]
fn two_liars_one_slow_and_one_dead_of_five() {
    both(|node| {
        let council = Council::posted(node, new(Criticality::Critical, work("it")));
        let job = &council.new.job;
        assert_eq!(node.wallet(), (10_000, 9_500), "each has its own budget");
        let lie = |n: u8| cheap(job, &who(n)).to_string();
        council.answers(1, &lie(2), T0 + 1_000);
        council.answers(2, &lie(3), T0 + 1_000);
        assert_eq!(council.step(T0 + 1_000), Step::Waits, "two who say the same are not three");
        council.answers(3, &output(job, &who(4)).to_string(), T0 + 2_000);
        // Nothing is settled before it is decided.
        assert!(council.waiting(T0 + 2_000).is_empty());
        let Step::Closed(closed) = council.step(T0 + 2_000) else { panic!("it is decided") };
        assert_eq!(closed.cancelled.len(), 2);
        assert_eq!(council.step(T0 + 2_000), Step::Over);
        // Whoever decided it may be dead by now: the rows say what is due.
        assert_eq!(council.settle_all(T0 + 3_000).len(), 3);
        let standings = "differs/withheld differs/withheld agrees/released cancelled/cancelled cancelled/cancelled";
        assert_eq!(council.standings(), standings);
        assert_eq!([2, 3, 4, 5, 6].map(|n| council.owed(n)), [0, 0, PRICE, 0, 0]);
        assert_eq!(node.wallet(), (9_900, 9_900));
        // The slow one delivers in the end.
        council.delivers(4, &output(job, &who(5)).to_string(), T0 + 30_000);
        let (late, dead) = (Standing::Late, Standing::Cancelled);
        assert_eq!([3, 4].map(|at| council.seated()[at].0.standing), [late, dead]);
        assert_eq!(council.now(), closed.delegation);
        assert!(council.settle_all(T0 + 31_000).is_empty());
        assert_eq!((node.wallet(), council.owed(5)), ((9_900, 9_900), 0));
        assert_eq!(council.problems(), Vec::<String>::new());
        // The record says who is paid and why.
        let verdict = council.seated()[2].1.verdict.clone().unwrap();
        let verdict: Value = serde_json::from_str(&verdict).unwrap();
        let consensus = &verdict["consensus"];
        assert_eq!(
            (&consensus["agreeing"], &consensus["needed"], &consensus["by"]),
            (&json!(1), &json!(3), &json!("votes"))
        );
        assert_eq!(consensus["vote"], consensus["winner"]);
        assert_eq!(verdict["passed"], json!(true));
    });
}

#[test]
fn a_replica_is_never_settled_alone() {
    both(|node| {
        let council = Council::posted(node, new(Criticality::High, work("it")));
        let honest = |n: u8| output(&council.new.job, &who(n)).to_string();
        council.answers(1, &honest(2), T0 + 1_000);
        let order_id = council.order_id(1);
        assert_eq!(why(council.settle(&order_id, T0 + 1_000)), "delegation.open");
        let (verdict, _) = ballot(&node.order(&order_id));
        assert!(verdict.passed);
        assert_eq!(why(node.settle(&order_id, &verdict, T0 + 1_000)), "delegation.open");
        council.answers(2, &honest(3), T0 + 1_000);
        assert!(matches!(council.step(T0 + 1_000), Step::Closed(_)));
        // Its own check alone is not what it is paid by.
        assert_eq!(why(node.settle(&order_id, &verdict, T0 + 1_000)), "delegation.differs");
        assert_eq!(council.settle_all(T0 + 1_000).len(), 2);
        assert_eq!(council.standings(), "agrees/released agrees/released cancelled/cancelled");
        assert_eq!(council.problems(), Vec::<String>::new());
    });
}

#[test]
fn all_are_ordered_or_none_is() {
    both(|node| {
        node.fund(250);
        let council = Council { node, new: new(Criticality::High, work("it")) };
        assert_eq!(why(council.post(council.first())), "market.wallet_empty");
        let mut two = council.first();
        two[1].cluster = two[0].cluster.clone();
        assert_eq!(why(council.post(two)), "delegation.malformed");
        assert_eq!(why(council.post(council.first()[..2].to_vec())), "delegation.malformed");
        let dear =
            Council { node, new: NewDelegation { budget: Msat(299), ..council.new.clone() } };
        assert_eq!(why(dear.post(dear.first())), "market.price_above_budget");
        let low = NewDelegation { criticality: Criticality::Low, ..council.new.clone() };
        assert_eq!(why(Council { node, new: low }.post(Vec::new())), "delegation.malformed");
        assert_eq!(node.wallet(), (250, 250));
        let id = council.id();
        assert_eq!(node.read(move |rx| delegation::find(rx, &id)), None);
        assert_eq!(node.read(|rx| order::page_before(rx, None, 9)), []);
    });
}

#[test]
fn delegating_again_is_the_same_delegation() {
    both(|node| {
        let council = Council::posted(node, new(Criticality::Medium, work("it")));
        let again = council.post(council.first()).unwrap();
        assert_eq!(again, Posted::Known(council.now()));
        let mut other = Council { node, new: council.new };
        other.new.budget = Msat(701);
        assert_eq!(why(other.post(other.first())), "delegation.conflict");
        assert_eq!(node.wallet(), (10_000, 9_800));
    });
}

#[test]
fn one_more_is_asked_within_the_budget_and_of_another_operator() {
    both(|node| {
        let mut asked = new(Criticality::High, work("it"));
        asked.budget = Msat(400);
        let council = Council::posted(node, asked);
        let honest = |n: u8| output(&council.new.job, &who(n)).to_string();
        council.answers(1, &honest(2), T0 + 1_000);
        assert_eq!(council.step(T0 + 1_000), Step::Waits);
        let seat = |cluster: &str| replica(&council.new, 4, &key(9), cluster);
        assert_eq!(council.add(seat("other"), T0 + 1_000), Ok(None), "nobody is slow yet");
        let hedge = delegation::Reason::Hedge;
        assert_eq!(council.step(SLOW_MS), Step::More(hedge));
        assert_eq!(why(council.add(seat(&who(2).npub()), SLOW_MS)), "delegation.malformed");
        assert!(council.add(seat("other"), SLOW_MS).unwrap().is_some());
        assert_eq!(council.seated()[3].0.reason, hedge);
        // Its own time is over as well, and there is no money left for one more.
        assert_eq!(council.step(SLOW_MS + 1), Step::Waits);
        assert_eq!(council.add(seat("third"), SLOW_MS + 1), Ok(None));
        let id = council.id();
        node.write(move |tx| delegation::exhaust(tx, &id)).unwrap();
        assert!(council.now().exhausted);
        assert_eq!(node.wallet(), (10_000, 9_600));
    });
}

#[test]
fn a_judge_chooses_where_nobody_agrees() {
    let asked = |council: &Council<'_>| {
        for number in 1..=3 {
            council.answers(number, &ranked(u8::try_from(number).unwrap()), T0 + 1_000);
        }
        // Nobody else can be found.
        let id = council.id();
        council.node.write(move |tx| delegation::exhaust(tx, &id)).unwrap();
        let Step::Ask(question) = council.step_with(T0 + 2_000, true) else { panic!("it asks") };
        assert_eq!(question.answers.len(), 3);
        question
    };
    both(|node| {
        let council = Council::posted(node, new(Criticality::High, ranking()));
        let question = asked(&council);
        let winner = council.seated()[1].0.says.unwrap();
        let finding = Finding { winner: Some(winner), reason: "the second".to_owned() };
        let mut other = question.clone();
        other.payload.push(' ');
        assert_eq!(council.adjudged(other, Ok(finding.clone())), None, "that was not asked");
        let closed = council.adjudged(question.clone(), Ok(finding.clone())).unwrap();
        assert_eq!(closed.delegation.decided_by, Some(delegation::DecidedBy::Judge));
        assert_eq!(council.adjudged(question, Ok(finding)), None, "it is decided once");
        assert_eq!(council.settle_all(T0 + 10_000).len(), 3);
        assert_eq!(council.standings(), "differs/withheld agrees/released differs/withheld");
        assert_eq!(council.problems(), Vec::<String>::new());
    });
    both(|node| {
        let council = Council::posted(node, new(Criticality::High, ranking()));
        let question = asked(&council);
        let closed = council.adjudged(question, Err("the model is busy".to_owned())).unwrap();
        assert_eq!(closed.delegation.state, State::Undecided);
        council.settle_all(T0 + 10_000);
        assert_eq!(council.standings(), "differs/withheld differs/withheld differs/withheld");
        assert_eq!(node.wallet(), (10_000, 10_000));
        assert_eq!(council.problems(), Vec::<String>::new());
        // Nobody knows who was right, so nobody is blamed.
        let task = "oa.retrieval_rerank.v1".parse().unwrap();
        let entry = node.read(move |rx| routing::log::latest(rx, &task, &who(2)));
        assert_eq!(entry, None);
    });
}

#[test]
fn it_is_given_up_only_before_something_came() {
    both(|node| {
        let council = Council::posted(node, new(Criticality::Medium, work("it")));
        let cancel = |at_ms| {
            let id = council.id();
            node.write(move |tx| delegation::cancel(tx, &id, at_ms))
        };
        council.delivers(1, &output(&council.new.job, &who(2)).to_string(), T0 + 1_000);
        assert_eq!(why(cancel(T0 + 1_000)), "delegation.closed");
        council.votes(1, T0 + 1_000);
        assert!(matches!(council.step(T0 + 1_000), Step::Closed(_)));
        assert_eq!(why(cancel(T0 + 1_000)), "delegation.closed");
        council.settle_all(T0 + 1_000);
        assert_eq!(council.standings(), "agrees/released cancelled/cancelled");
    });
    both(|node| {
        let council = Council::posted(node, new(Criticality::Medium, work("it")));
        let id = council.id();
        let closed = node.write(move |tx| delegation::cancel(tx, &id, T0 + 1)).unwrap();
        assert_eq!((closed.delegation.state, closed.cancelled.len()), (State::Cancelled, 2));
        assert_eq!(node.wallet(), (10_000, 10_000));
        let id = council.id();
        let again = node.write(move |tx| delegation::cancel(tx, &id, T0 + 2)).unwrap();
        assert_eq!(again.delegation, closed.delegation);
    });
}

#[test]
fn what_can_never_be_cannot_be_written() {
    both(|node| {
        let council = Council::posted(node, new(Criticality::Medium, work("it")));
        let refused = |sql: &'static str| {
            let called = node.write(move |tx| Ok::<_, Error>(tx.exec(sql, &[])?));
            assert!(called.is_err(), "{sql}");
        };
        refused("UPDATE market_delegation SET budget_units = 9999");
        refused("UPDATE market_delegation SET state = 'decided', why = 'x', decided_by = 'votes'");
        refused("UPDATE market_delegation SET state = 'undecided'");
        refused("DELETE FROM market_replica");
        refused("DELETE FROM market_delegation");
        refused("UPDATE market_replica SET provider = 'x'");
        refused("UPDATE market_replica SET standing = 'agrees'");
        refused("UPDATE market_replica SET standing = 'differs'");
        refused("UPDATE market_replica SET vote = 'x'");
        council.answers(1, &output(&council.new.job, &who(2)).to_string(), T0 + 1_000);
        assert!(matches!(council.step(T0 + 1_000), Step::Closed(_)));
        refused("UPDATE market_delegation SET winner = 'x'");
        refused("UPDATE market_replica SET standing = 'differs' WHERE number = 1");
        refused("UPDATE market_replica SET standing = 'waiting' WHERE number = 2");
    });
}

/// A checker that finds nothing proves nothing: here is something to find.
#[test]
fn the_audit_finds_what_is_planted() {
    let planted = |sql: &'static str| -> Vec<String> {
        let node = Node::sqlite(guild_store::Hooks::default());
        let council = Council::posted(&node, new(Criticality::High, work("it")));
        let honest = |n: u8| output(&council.new.job, &who(n)).to_string();
        council.answers(1, &honest(2), T0 + 1_000);
        council.answers(2, &honest(3), T0 + 1_000);
        assert!(matches!(council.step(T0 + 1_000), Step::Closed(_)));
        council.settle_all(T0 + 2_000);
        assert_eq!(council.problems(), Vec::<String>::new());
        let triggers = [
            "DROP TRIGGER market_replica_stays_decided",
            "DROP TRIGGER market_delegation_stays_closed",
            "DROP TRIGGER market_delegation_terms_are_fixed",
            "DROP TRIGGER market_order_stays_closed",
        ];
        for sql in triggers.into_iter().chain([sql]) {
            node.write(move |tx| Ok::<_, Error>(tx.exec(sql, &[])?)).unwrap();
        }
        let problems = node.read(delegation::audit::run).problems;
        problems.iter().map(|one| one.split_once(' ').unwrap().1.to_owned()).collect()
    };
    let other = "UPDATE market_replica SET vote = 'sha256:00' WHERE number = 1";
    assert_eq!(planted(other), ["pays an answer that did not win"]);
    let nobody = "UPDATE market_delegation SET winner = 'sha256:00'";
    let found = planted(nobody);
    assert!(found.contains(&"is decided, and nobody gave its answer".to_owned()), "{found:?}");
    assert_eq!(
        planted("UPDATE market_delegation SET budget_units = 199"),
        ["pays more than its budget"]
    );
    let open =
        "UPDATE market_delegation SET state = 'open', winner = NULL, decided_by = NULL, why = NULL";
    let found = planted(open);
    assert!(
        found.contains(&"was settled before its delegation was decided".to_owned()),
        "{found:?}"
    );
    assert_eq!(
        planted("UPDATE market_replica SET standing = 'differs' WHERE number = 2"),
        ["ended otherwise than its delegation says"]
    );
    assert_eq!(
        planted("UPDATE market_replica SET standing = 'waiting' WHERE number = 3"),
        ["has ended, and somebody still waits"]
    );
    assert_eq!(
        planted("UPDATE market_delegation SET job_hash = 'x'").len(),
        3,
        "each of the three is of other work"
    );
}
