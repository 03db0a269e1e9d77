//! Those who buy. They ask any node, again with the same key until they are answered.

use std::pin::pin;

use futures_util::future::{Either, ready, select};
use guild_hosting::access::Token;
use guild_hosting::access::idempotency::Reply;
use guild_hosting::api::{
    ConfirmBody, CreditBody, ExtendBody, FailBody, NewJobBody, NewSandboxBody, WithdrawBody,
};
use guild_hosting::clamp::Policy;
use guild_hosting::desk::{Desk, Sent};
use guild_hosting::machine::Machine;
use guild_hosting::price::Shape;
use guild_hosting::sandbox::{self, Sandbox, Status};
use guild_hosting::{Error, Result, SandboxId, UserId};
use guild_protocol::env::{BoxFuture, Clock};
use guild_protocol::error::Kind;
use guild_protocol::hash::Hash;
use serde_json::Value;

use super::{IMAGE, Node, Shared, WISHES_UNTIL_MS, lock};

/// So often somebody asks who is not answered.
const TRIES_MAX: u32 = 60;
/// What a minute of the usual sandbox costs, about.
const MINUTE_UNITS: u64 = 1_000;

/// One user, from its first wish to its last.
pub(super) async fn live(shared: Shared, number: u64) {
    let finished = shared.finished.clone();
    let mut bytes = [1; 20];
    bytes[19] = u8::try_from(number).unwrap_or(0);
    let user_id = UserId::of_wallet(bytes);
    let mut user = User {
        shared,
        number,
        user_id,
        token: None,
        jobs: Vec::new(),
        sandboxes: Vec::new(),
        wishes: 0,
    };
    user.sign_in().await;
    user.credit().await;
    user.create_job().await;
    user.create_sandbox().await;
    while user.shared.world.now_ms() < WISHES_UNTIL_MS && !user.shared.world.is_violated() {
        user.wish().await;
        user.pause(20_000).await;
    }
    *lock(&finished) += 1;
}

struct User {
    shared: Shared,
    number: u64,
    user_id: UserId,
    token: Option<Token>,
    jobs: Vec<String>,
    sandboxes: Vec<String>,
    wishes: u64,
}

impl User {
    fn below(&self, n: u64) -> u64 {
        self.shared.world.below(n)
    }

    /// A number between these, both of them included.
    fn between(&self, least: u64, most: u64) -> i64 {
        i64::try_from(least + self.below(most - least + 1)).unwrap_or(1)
    }

    fn maybe(&self, one_in: u64, value: impl FnOnce() -> i64) -> Option<i64> {
        (self.below(one_in) == 0).then(value)
    }

    async fn pause(&self, max_ms: u64) {
        let world = &self.shared.world;
        world.sleep(world.below_ms(max_ms)).await;
    }

    async fn wish(&mut self) {
        match self.below(20) {
            0 | 1 => self.create_job().await,
            2..=6 => self.create_sandbox().await,
            7..=9 => self.enter().await,
            10 => self.extend_job().await,
            11 | 12 => self.extend_sandbox().await,
            13 => self.resize().await,
            14 => self.pause_it().await,
            15 => self.end().await,
            16 => self.stop_job().await,
            17 => self.withdraw().await,
            _ => self.credit().await,
        }
    }

    /// Asks until there is an answer; the body of a good one.
    async fn ask(
        &mut self,
        path: String,
        call: impl Fn(Desk, Sent) -> BoxFuture<Result<Reply>>,
    ) -> Option<Value> {
        self.wishes += 1;
        let sent = Sent {
            token: self.token.clone()?,
            idempotency_key: format!("wish-{}-{}", self.number, self.wishes),
            method: "POST".to_owned(),
            path,
            query: String::new(),
            body_hash: Hash::of(b""),
        };
        let reply = self.answered(|node| call(node.desk.clone(), sent.clone())).await?;
        let status = reply.answer.status();
        if reply.repeated {
            self.shared.world.count("answer of an earlier request");
        }
        if status == 402 {
            self.shared.world.count("quoted");
            return None;
        }
        serde_json::from_str(reply.answer.body()).ok()
    }

    /// Asks until there is an answer, or for long in vain.
    async fn answered<T>(&self, call: impl Fn(&Node) -> BoxFuture<Result<T>>) -> Option<T> {
        let world = &self.shared.world;
        for _ in 0..TRIES_MAX {
            self.pause(2_000).await;
            let Some(node) = self.shared.node() else { continue };
            match asked(&self.shared, &node, call(&node)).await {
                Ok(answer) => return Some(answer),
                Err(Error::Store(_) | Error::Ledger(guild_ledger::Error::Store(_))) => {
                    world.count("ask without an answer");
                }
                Err(error) => {
                    let code = error.code();
                    world.count(code.name);
                    if matches!(code.kind, Kind::Internal | Kind::Corrupt) {
                        world.violate(format!("[answer] {error}"));
                    }
                    return None;
                }
            }
        }
        world.count("ask that was given up");
        None
    }

    async fn sign_in(&mut self) {
        let user_id = self.user_id.to_string();
        while self.token.is_none() && !self.shared.world.is_violated() {
            let session = self.answered(|node| {
                let (desk, user_id) = (node.desk.clone(), user_id.clone());
                Box::pin(async move { desk.sign_in_unproven(&user_id).await })
            });
            self.token = session.await.and_then(|session| session.token.parse().ok());
        }
    }

    async fn credit(&mut self) {
        self.wishes += 1;
        let most = [4, 12, 60][usize::try_from(self.below(3)).unwrap_or(0)] * MINUTE_UNITS;
        let body = CreditBody {
            user_id: self.user_id.to_string(),
            amount_micro_usd: Some(self.between(1, most)),
            amount_cents: None,
            reference: format!("payment {} {}", self.number, self.wishes),
        };
        let credited = self.answered(|node| {
            let (desk, body) = (node.desk.clone(), body.clone());
            Box::pin(async move { desk.credit(body).await })
        });
        if credited.await.is_some() {
            self.shared.world.count("credited");
        }
    }

    async fn create_job(&mut self) {
        let most = [4, 20, 200][usize::try_from(self.below(3)).unwrap_or(0)] * MINUTE_UNITS;
        let body = NewJobBody {
            name: None,
            max_spend_micro_usd: Some(self.between(MINUTE_UNITS, most)),
            max_spend_cents: None,
            ttl_s: self.between(30, 400),
            idle_timeout_s: self.maybe(3, || self.between(20, 150)),
        };
        let made = self.ask("/v1/jobs".to_owned(), move |desk, sent| {
            let body = body.clone();
            Box::pin(async move { desk.create_job(sent, body).await })
        });
        if let Some(job) = made.await {
            self.shared.world.count("job");
            self.jobs.extend(job["job_id"].as_str().map(str::to_owned));
        }
    }

    async fn create_sandbox(&mut self) {
        let Some(job_id) = self.one_of(&self.jobs) else { return };
        let body = NewSandboxBody {
            image: IMAGE.to_owned(),
            cpu_milli: Some([500, 1_000, 2_000][usize::try_from(self.below(3)).unwrap_or(0)]),
            ram_mib: Some(256),
            disk_mib: None,
            max_spend_micro_usd: self.maybe(2, || self.between(500, 8 * MINUTE_UNITS)),
            max_spend_cents: None,
            ttl_s: self.maybe(2, || self.between(20, 400)),
            idle_timeout_s: self.maybe(3, || self.between(20, 150)),
            security_mode: None,
        };
        let path = format!("/v1/jobs/{job_id}/sandboxes");
        let made = self.ask(path, move |desk, sent| {
            let (job_id, body) = (job_id.clone(), body.clone());
            Box::pin(async move { desk.create_sandbox(sent, &job_id, body).await })
        });
        if let Some(sandbox) = made.await {
            self.shared.world.count("sandbox");
            self.sandboxes.extend(sandbox["sandbox_id"].as_str().map(str::to_owned));
        }
    }

    /// One of the newest.
    fn one_of(&self, ids: &[String]) -> Option<String> {
        let newest = &ids[ids.len().saturating_sub(3)..];
        let at = usize::try_from(self.below(newest.len().max(1) as u64)).unwrap_or(0);
        newest.get(at).cloned()
    }

    async fn enter(&mut self) {
        let Some(id) = self.one_of(&self.sandboxes) else { return };
        let Ok(id) = id.parse::<SandboxId>() else { return };
        let user_id = self.user_id.clone();
        let entered = self.answered(|node| {
            let (entrance, user_id, id) = (node.entrance.clone(), user_id.clone(), id.clone());
            Box::pin(async move { entrance.enter(&user_id, &id).await.map(drop) })
        });
        if entered.await.is_some() {
            self.shared.world.count("use");
        }
    }

    async fn extend_job(&mut self) {
        let Some((job_id, token)) = self.one_of(&self.jobs).zip(self.token.clone()) else { return };
        let read = job_id.clone();
        let job = self.answered(move |node| {
            let (desk, token, id) = (node.desk.clone(), token.clone(), read.clone());
            Box::pin(async move { desk.job(token, &id).await })
        });
        let Some(job) = job.await else { return };
        let body = ExtendBody {
            version: job.version,
            max_spend_micro_usd: self
                .maybe(2, || job.max_spend_micro_usd + self.between(0, 9 * MINUTE_UNITS)),
            max_spend_cents: None,
            expires_ms: self.maybe(2, || job.expires_ms + self.between(0, 120_000)),
            idle_timeout_s: self.maybe(4, || self.between(20, 150)),
        };
        let extended = self.ask(format!("/v1/jobs/{job_id}/extend"), move |desk, sent| {
            let (job_id, body) = (job_id.clone(), body.clone());
            Box::pin(async move { desk.extend_job(sent, &job_id, body).await })
        });
        if extended.await.is_some() {
            self.shared.world.count("job extended");
        }
    }

    async fn view(&self, id: &str) -> Option<guild_hosting::api::SandboxView> {
        let (token, id) = (self.token.clone()?, id.to_owned());
        let view = self.answered(move |node| {
            let (desk, token, id) = (node.desk.clone(), token.clone(), id.clone());
            Box::pin(async move { desk.sandbox(token, &id).await })
        });
        view.await
    }

    async fn extend_sandbox(&mut self) {
        let Some(id) = self.one_of(&self.sandboxes) else { return };
        let Some(view) = self.view(&id).await else { return };
        let least = view.spent_micro_usd.max(1);
        let body = ExtendBody {
            version: view.version,
            max_spend_micro_usd: self.maybe(2, || least + self.between(0, 6 * MINUTE_UNITS)),
            max_spend_cents: None,
            expires_ms: self.maybe(2, || view.expires_ms + self.between(0, 120_000)),
            idle_timeout_s: self.maybe(4, || self.between(20, 150)),
        };
        let extended = self.ask(format!("/v1/sandboxes/{id}/extend"), move |desk, sent| {
            let (id, body) = (id.clone(), body.clone());
            Box::pin(async move { desk.extend_sandbox(sent, &id, body).await })
        });
        if extended.await.is_some() {
            self.shared.world.count("sandbox extended");
        }
    }

    async fn resize(&mut self) {
        let Some(id) = self.one_of(&self.sandboxes) else { return };
        let Some(view) = self.view(&id).await else { return };
        let cpu_milli = [500, 1_500, 3_000][usize::try_from(self.below(3)).unwrap_or(0)];
        let (user_id, version) = (self.user_id.clone(), view.version);
        // As the desk does it, which would ask the agent over a network: what is given up is taken away first.
        let yard = self.shared.yard.clone();
        let resized = self.answered(move |node| {
            let Ok(id) = id.parse::<SandboxId>() else { return Box::pin(ready(Ok(()))) };
            let (user_id, clock, yard) = (user_id.clone(), node.clock.clone(), yard.clone());
            let store = node.store.clone();
            Box::pin(async move {
                let wanted = move |present: &Sandbox| Shape {
                    cpu_milli,
                    ..present.next.map_or(present.shape, |next| next.shape)
                };
                let (owner, which) = (user_id.clone(), id.clone());
                let present = store.read(move |rx| sandbox::get(rx, &owner, &which)).await?;
                if present.version == version && present.status == Status::Running {
                    let least = present.held_at(clock.now_ms()).smaller(&wanted(&present));
                    yard.resize(&id, least.cpu_milli, least.ram_mib).await?;
                }
                let write = store.write(move |tx| {
                    let shape = wanted(&sandbox::get(tx, &user_id, &id)?);
                    let (policy, now_ms) = (Policy::default(), clock.now_ms());
                    sandbox::resize(tx, &user_id, &id, version, &shape, &policy, now_ms).map(drop)
                });
                write.await
            })
        });
        if resized.await.is_some() {
            self.shared.world.count("resized");
        }
    }

    async fn pause_it(&mut self) {
        let Some(id) = self.one_of(&self.sandboxes) else { return };
        let pauses = self.below(2) == 0;
        let word = if pauses { "pause" } else { "resume" };
        self.ask(format!("/v1/sandboxes/{id}/{word}"), move |desk, sent| {
            let id = id.clone();
            Box::pin(async move {
                match pauses {
                    true => desk.pause_sandbox(sent, &id).await,
                    false => desk.resume_sandbox(sent, &id).await,
                }
            })
        })
        .await;
    }

    async fn end(&mut self) {
        let Some(id) = self.one_of(&self.sandboxes) else { return };
        let destroys = self.below(2) == 0;
        lock(&self.shared.unwanted).insert(id.clone());
        let word = if destroys { "destroy" } else { "stop" };
        let ended = self.ask(format!("/v1/sandboxes/{id}/{word}"), move |desk, sent| {
            let id = id.clone();
            Box::pin(async move {
                match destroys {
                    true => desk.destroy_sandbox(sent, &id).await,
                    false => desk.stop_sandbox(sent, &id).await,
                }
            })
        });
        if ended.await.is_some() {
            self.shared.world.count(if destroys { "destroyed" } else { "stopped" });
        }
    }

    async fn stop_job(&mut self) {
        let Some(job_id) = self.one_of(&self.jobs).filter(|_| self.jobs.len() > 1) else { return };
        let stopped = self.ask(format!("/v1/jobs/{job_id}/stop"), move |desk, sent| {
            let job_id = job_id.clone();
            Box::pin(async move { desk.stop_job(sent, &job_id).await })
        });
        if stopped.await.is_some() {
            self.shared.world.count("job stopped");
        }
    }

    /// Asks for money out; the operator sends it or not.
    async fn withdraw(&mut self) {
        let body = WithdrawBody {
            amount_micro_usd: Some(self.between(1, 5 * MINUTE_UNITS)),
            amount_cents: None,
            destination: "there".to_owned(),
        };
        let asked = self.ask("/v1/withdrawals".to_owned(), move |desk, sent| {
            let body = body.clone();
            Box::pin(async move { desk.withdraw(sent, body).await })
        });
        let Some(withdrawal) = asked.await else { return };
        let Some(id) = withdrawal["withdrawal_id"].as_str().map(str::to_owned) else { return };
        self.pause(30_000).await;
        let sends = self.below(3) > 0;
        let done = self.answered(|node| {
            let (desk, id) = (node.desk.clone(), id.clone());
            Box::pin(async move {
                match sends {
                    true => {
                        let body = ConfirmBody { reference: format!("sent {id}") };
                        desk.confirm_withdrawal(&id, body).await
                    }
                    false => {
                        let body = FailBody { words: "nobody there".to_owned() };
                        desk.fail_withdrawal(&id, body).await
                    }
                }
            })
        });
        if done.await.is_some() {
            self.shared.world.count(if sends { "withdrawn" } else { "withdrawal failed" });
        }
    }
}

/// The answer of a node, or that it has died: nobody is left then to say so.
pub(super) async fn asked<T>(
    shared: &Shared,
    node: &Node,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let dies = async {
        while !node.life.is_dead() {
            shared.world.sleep(2_000).await;
        }
    };
    match select(pin!(call), pin!(dies)).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(guild_store::Error::Closed.into()),
    }
}
