//! Envelopes beside a model that is too simple to be wrong: it keeps every charge and loan in a list, and adds up.

use std::collections::BTreeMap;

use guild_ledger::policy::Bundle;
use guild_market::budget::{self, Asked, Layer, Terms, Today};
use guild_market::order::{self, NewOrder, OrderId};
use guild_market::routing::TaskType;
use guild_protocol::amount::Msat;
use guild_protocol::env::Signer;
use guild_protocol::schema::{Job, Registry, SchemaId};
use guild_store::Hooks;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{
    Dice, Node, T0, TIME_MS, both, buyer, judge, new_order, output, provider, result_of, work,
};

/// Kinds of work; the last has no envelope of its own.
const TASKS: [&str; 4] = ["test.a.v1", "test.b.v1", "test.c.v1", "test.d.v1"];
/// Envelopes; the last is for all others.
const NAMES: [&str; 4] = ["test.a.v1", "test.b.v1", "test.c.v1", "*"];
const FUNDS: i64 = 1_000_000_000;
const HOUR_MS: i64 = 3_600_000;

/// Work like that of embeddings, under other names.
fn registry() -> Registry {
    let mut registry = Registry::builtin();
    let text = include_str!("../../../guild-protocol/schemas/oa.embedding.v1.json");
    for name in TASKS {
        let mut schema: Value = serde_json::from_str(text).unwrap();
        schema["schema_id"] = json!(name);
        registry.add_json(schema.to_string().as_bytes()).unwrap();
    }
    registry
}

fn job(task: usize, text: &str) -> Job {
    let id: SchemaId = TASKS[task].parse().unwrap();
    let payload = json!({"texts": [text], "dimensions": 8});
    registry().validate_input(&id, &payload).unwrap()
}

type Place = (String, Layer, String);

#[derive(Clone)]
struct Charged {
    name: String,
    today: Today,
    held: i64,
    spent: i64,
}

/// Everything that happened, and nothing that was added up.
#[derive(Clone, Default)]
struct Model {
    terms: BTreeMap<String, Terms>,
    /// The limit and what was carried over, of every period that was begun.
    begun: BTreeMap<Place, (i64, i64)>,
    charges: BTreeMap<String, Charged>,
    /// From whom to whom, when, how much.
    loans: Vec<(String, String, Layer, String, i64)>,
}

fn limit_of(terms: &Terms, layer: Layer) -> i64 {
    if layer == Layer::Day { terms.daily.0 } else { terms.monthly.0 }
}

impl Model {
    fn used(&self, (name, layer, period): &Place) -> i64 {
        let here = |one: &&Charged| one.name == *name && one.today.period(*layer) == period;
        self.charges.values().filter(here).map(|one| one.held + one.spent).sum()
    }

    fn lent(&self, (name, layer, period): &Place) -> i64 {
        let here = |loan: &&(String, String, Layer, String, i64)| {
            (&loan.0, loan.2, &loan.3) == (name, *layer, period)
        };
        self.loans.iter().filter(here).map(|loan| loan.4).sum()
    }

    fn borrowed(&self, (name, layer, period): &Place) -> i64 {
        let here = |loan: &&(String, String, Layer, String, i64)| {
            (&loan.1, loan.2, &loan.3) == (name, *layer, period)
        };
        self.loans.iter().filter(here).map(|loan| loan.4).sum()
    }

    fn room(&self, place: &Place) -> i64 {
        let (limit, rolled) = self.begun[place];
        limit + rolled + self.borrowed(place) - self.lent(place) - self.used(place)
    }

    fn begin(&mut self, name: &str, layer: Layer, today: &Today) -> Place {
        let place = (name.to_owned(), layer, today.period(layer).to_owned());
        if self.begun.contains_key(&place) {
            return place;
        }
        let terms = self.terms[name];
        let mut rolled = 0;
        let last =
            self.begun.keys().filter(|one| one.0 == name && one.1 == layer && one.2 < place.2);
        if let (Layer::Month, Some(last)) = (layer, last.max().cloned()) {
            let mut left = self.room(&last);
            let mut month = last.2;
            while month < place.2 {
                rolled = (left.max(0) * terms.rolls_bp / 10_000).min(terms.monthly.0);
                left = terms.monthly.0 + rolled;
                month = next_month(&month);
            }
        }
        self.begun.insert(place.clone(), (limit_of(&terms, layer), rolled));
        place
    }

    /// What is promised stays, whatever the limit is.
    fn bind(&mut self, place: &Place, limit: i64) {
        let rolled = self.begun[place].1.min(limit);
        let promised = self.used(place) + self.lent(place) - self.borrowed(place) - rolled;
        self.begun.insert(place.clone(), (limit.max(promised), rolled));
    }

    fn set(&mut self, name: &str, terms: Terms, now_ms: i64) {
        let today = Today::at(now_ms).unwrap();
        if self.terms.get(name) == Some(&terms) {
            return;
        }
        if self.terms.contains_key(name) {
            self.begin(name, Layer::Month, &today);
        }
        self.terms.insert(name.to_owned(), terms);
        for layer in Layer::ALL {
            let place = (name.to_owned(), layer, today.period(layer).to_owned());
            self.begun.entry(place.clone()).or_default();
            self.bind(&place, limit_of(&terms, layer));
        }
    }

    /// Whether it was charged, or is not limited.
    fn post(&mut self, key: &str, task: &str, units: i64, now_ms: i64) -> bool {
        if self.charges.contains_key(key) {
            return true;
        }
        let own = [task, "*"].into_iter().find(|name| self.terms.contains_key(*name));
        let Some(name) = own else { return true };
        let today = Today::at(now_ms).unwrap();
        let mut after = self.clone();
        for layer in Layer::ALL {
            let place = after.begin(name, layer, &today);
            let short = units - after.room(&place);
            if short > 0 && !after.borrow(name, layer, &today, short) {
                return false;
            }
        }
        let charged = Charged { name: name.to_owned(), today, held: units, spent: 0 };
        after.charges.insert(key.to_owned(), charged);
        *self = after;
        true
    }

    fn borrow(&mut self, name: &str, layer: Layer, today: &Today, mut short: i64) -> bool {
        let others: Vec<String> = self.terms.keys().filter(|one| *one != name).cloned().collect();
        let mut donors = Vec::new();
        for other in others {
            let place = self.begin(&other, layer, today);
            let (terms, left, lent) = (self.terms[&other], self.room(&place), self.lent(&place));
            let most =
                ((left + lent).max(0) * terms.lends_bp / 10_000 - lent).clamp(0, left.max(0));
            if terms.priority <= self.terms[name].priority {
                donors.push((terms.priority, -left, other, most));
            }
        }
        donors.sort();
        for (_, _, other, most) in donors {
            let units = most.min(short);
            short -= units;
            if units > 0 {
                let period = today.period(layer).to_owned();
                self.loans.push((other, name.to_owned(), layer, period, units));
            }
        }
        short == 0
    }

    fn close(&mut self, key: &str, paid: i64) {
        let Some(charged) = self.charges.get_mut(key).filter(|one| one.held > 0) else { return };
        (charged.held, charged.spent) = (0, paid);
        let (name, today) = (charged.name.clone(), charged.today.clone());
        for layer in Layer::ALL {
            let place = (name.clone(), layer, today.period(layer).to_owned());
            let limit = self.begun[&place].0.min(limit_of(&self.terms[&name], layer));
            self.bind(&place, limit);
        }
    }
}

fn next_month(month: &str) -> String {
    let (year, month) = month.split_once('-').unwrap();
    match (year.parse::<i64>().unwrap(), month.parse::<i64>().unwrap()) {
        (year, 12) => format!("{:04}-01", year + 1),
        (year, month) => format!("{year:04}-{:02}", month + 1),
    }
}

/// What happens: which act, to which of a few, and a number.
type Step = (u8, usize, i64);

struct World<'a> {
    node: &'a Node,
    model: Model,
    now_ms: i64,
    /// The work of every order, how much it may cost, and when it was posted.
    orders: Vec<(String, usize, i64, i64)>,
}

impl World<'_> {
    fn step(&mut self, (act, which, number): Step) {
        match act {
            0..=3 => self.post(which, number),
            4 => self.set(which, number),
            5 => self.settle(which),
            6 => self.cancel(which),
            7 => self.expire(which),
            8 => self.again(which),
            _ => {
                self.now_ms +=
                    [HOUR_MS, 11 * HOUR_MS, 24 * HOUR_MS, 800 * HOUR_MS][which % 4] * (number % 3);
            }
        }
        self.check();
    }

    fn new_order(&self, key: &str, task: usize, units: i64, at_ms: i64) -> NewOrder {
        let (job, deadline_ms) = (job(task, key), at_ms + TIME_MS);
        NewOrder { job, deadline_ms, ..new_order(key, units) }
    }

    fn try_to_post(&mut self, key: &str, task: usize, units: i64) -> bool {
        let now_ms = self.now_ms;
        let new = self.new_order(key, task, units, now_ms);
        let request = new.request(&buyer(), &Dice, now_ms).unwrap();
        let posted = self
            .node
            .write(move |tx| order::post(tx, &new, &request, &Bundle::builtin().unwrap(), now_ms));
        if let Err(refused) = &posted {
            assert_eq!(refused.code().name, "budget.envelope_empty", "{refused}");
        }
        posted.is_ok()
    }

    fn post(&mut self, task: usize, units: i64) {
        let (task, units) = (task % TASKS.len(), units.max(1));
        let key = format!("order {}", self.orders.len());
        let posted = self.try_to_post(&key, task, units);
        assert_eq!(posted, self.model.post(&key, TASKS[task], units, self.now_ms), "{key}");
        if posted {
            self.orders.push((key, task, units, self.now_ms));
        }
    }

    /// The same order once more.
    fn again(&mut self, which: usize) {
        let Some((key, task, units, _)) = self.pick(which) else { return };
        assert!(self.try_to_post(&key, task, units));
    }

    fn pick(&self, which: usize) -> Option<(String, usize, i64, i64)> {
        let at = which.checked_rem(self.orders.len())?;
        Some(self.orders[at].clone())
    }

    fn set(&mut self, which: usize, number: i64) {
        let name = NAMES[which % NAMES.len()];
        let terms = Terms {
            daily: Msat(number * 3 % 700),
            monthly: Msat(number * 7 % 2_000),
            priority: number % 3,
            lends_bp: number * 31 % 10_001,
            rolls_bp: number * 17 % 10_001,
        };
        let asked = Asked {
            daily: Some(terms.daily),
            monthly: Some(terms.monthly),
            priority: Some(terms.priority),
            lends_bp: Some(terms.lends_bp),
            rolls_bp: Some(terms.rolls_bp),
        };
        let (task, now_ms): (TaskType, i64) = (name.parse().unwrap(), self.now_ms);
        self.node.write(move |tx| budget::set(tx, &task, &asked, now_ms)).unwrap();
        self.model.set(name, terms, now_ms);
    }

    /// A good result comes, and is paid. What is late, or not open any more, is not.
    fn settle(&mut self, which: usize) {
        let Some((key, task, units, at_ms)) = self.pick(which) else { return };
        let new = self.new_order(&key, task, units, at_ms);
        let order = self.node.order(&new.order_id());
        let now_ms = self.now_ms.min(at_ms + TIME_MS - 1);
        let text = output(&work("x"), &provider().public_key()).to_string();
        let result = result_of(&order.request().unwrap(), &text, &provider(), now_ms);
        self.node.deliver(&result, now_ms).unwrap();
        let settled = self.node.settle(&new.order_id(), &judge(&work("x"), &text), now_ms);
        if settled.is_ok() && order.state == order::State::Posted {
            self.model.close(&key, units / 2);
        }
    }

    fn cancel(&mut self, which: usize) {
        let Some((key, ..)) = self.pick(which) else { return };
        let (order_id, now_ms) = (OrderId::of_key(&key), self.now_ms);
        if self.node.write(move |tx| order::cancel(tx, &order_id, now_ms)).is_ok() {
            self.model.close(&key, 0);
        }
    }

    fn expire(&mut self, which: usize) {
        let Some((key, ..)) = self.pick(which) else { return };
        let (order_id, now_ms) = (OrderId::of_key(&key), self.now_ms);
        let ended =
            self.node.write(move |tx| order::expire(tx, &order_id, now_ms, now_ms)).unwrap();
        if ended.is_some() {
            self.model.close(&key, 0);
        }
    }

    fn check(&self) {
        let now_ms = self.now_ms;
        let today = Today::at(now_ms).unwrap();
        let standings = self.node.read(move |rx| budget::standings(rx, now_ms));
        assert_eq!(standings.len(), self.model.terms.len());
        let mut model = self.model.clone();
        for one in standings {
            let name = one.envelope.task.as_str();
            assert_eq!(one.envelope.terms, model.terms[name]);
            for (layer, at) in [(Layer::Day, &one.today), (Layer::Month, &one.month)] {
                let place = model.begin(name, layer, &today);
                let counted = (at.held + at.spent, at.lent, at.borrowed, at.rolled, at.limit);
                let (limit, rolled) = model.begun[&place];
                let expected =
                    (model.used(&place), model.lent(&place), model.borrowed(&place), rolled, limit);
                assert_eq!(counted, expected, "{name} {layer:?}");
                assert!(at.room() >= 0, "{name} {layer:?} is exceeded: {at:?}");
            }
        }
        let found = self.node.read(budget::audit::run);
        assert_eq!(found.problems, Vec::<String>::new());
        assert_eq!(usize::try_from(found.charges).unwrap(), self.model.charges.len());
    }
}

fn run(node: &Node, steps: &[Step]) -> usize {
    node.fund(FUNDS);
    let orders = Vec::new();
    let mut world = World { node, model: Model::default(), now_ms: T0, orders };
    steps.iter().for_each(|step| world.step(*step));
    assert_eq!(node.problems(), Vec::<String>::new());
    world.model.loans.len()
}

/// Steps that look like chance and are always the same.
fn always_the_same(count: u64) -> Vec<Step> {
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    (0..count)
        .map(|_| {
            let act = u8::try_from(draw(10)).unwrap();
            (act, usize::try_from(draw(16)).unwrap(), i64::try_from(draw(600)).unwrap())
        })
        .collect()
}

#[test]
fn a_long_story_is_the_same_on_every_database() {
    both(|node| {
        let loans = run(node, &always_the_same(250));
        assert!(loans > 5, "only {loans} loans");
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn in_any_order_no_envelope_is_exceeded_and_every_sum_is_right(
        steps in prop::collection::vec((0u8..10, 0usize..16, 0i64..600), 1..60),
    ) {
        run(&Node::sqlite(Hooks::default()), &steps);
    }
}
