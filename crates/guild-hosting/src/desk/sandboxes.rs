//! Sandboxes: what is bought. What is done inside of them is not asked for here.

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx};

use crate::access::idempotency::{Answer, Reply};
use crate::access::{Scope, Token};
use crate::api::{
    ExtendBody, Insufficient, NewSandboxBody, PageQuery, PriceQuery, PriceView, ProblemDetail,
    QuoteView, ResizeBody, SandboxView, Sandboxes, next_of,
};
use crate::error::code;
use crate::machine::image::Source;
use crate::money::Quote;
use crate::pace::Pace;
use crate::price::Shape;
use crate::sandbox::{self, Placed, Sandbox, SecurityMode};
use crate::{Error, HostingJobId, HostingQuoteId, Result, SandboxId, UserId, job, money};

use super::{Desk, Sent, answer, parse, text};

impl Desk {
    /// What a minute of a shape costs. Anybody may ask.
    pub fn price(&self, query: &PriceQuery) -> Result<PriceView> {
        let images = self.0.images.names().map(ToString::to_string).collect();
        query.answer(&self.0.options.policy.rates, images)
    }

    /// Orders a sandbox: its first minute is held, or a quote is given (402).
    pub async fn create_sandbox(
        &self,
        sent: Sent,
        job_id: &str,
        body: NewSandboxBody,
    ) -> Result<Reply> {
        let (clock, random) = (&*self.0.clock, &*self.0.random);
        let (sandbox_id, quote_id) =
            (SandboxId::make(clock, random), HostingQuoteId::make(clock, random));
        let job_id: HostingJobId = parse("job_id", job_id)?;
        let policy = self.0.options.policy.clone();
        let machine = self.0.options.machine.clone();
        let image_digest = self.image_digest(&body)?;
        self.write(sent, Scope::SandboxesWrite, move |tx, caller, now_ms| {
            let chosen = crate::api::Chosen {
                sandbox_id: sandbox_id.clone(),
                quote_id: quote_id.clone(),
                job_id: job_id.clone(),
                user_id: caller.user_id.clone(),
                image_digest: image_digest.clone(),
                machine: machine.clone(),
                ttl_max_ms: policy.sandbox_ttl_max_ms,
            };
            match sandbox::create(tx, &body.asked(chosen)?, &policy, now_ms)? {
                Placed::Starting(sandbox, granted) => {
                    let pace = Pace::of(tx, &caller.user_id)?;
                    answer(201, &SandboxView::granted(&sandbox, granted, &pace, now_ms))
                }
                Placed::Quoted(quote) => insufficient(&quote),
            }
        })
        .await
    }

    /// What an image on the list is now. What is not offered is refused before anything else is looked at.
    fn image_digest(&self, body: &NewSandboxBody) -> Result<String> {
        if body.security_mode()? == SecurityMode::Confidential {
            let message = "security_mode: confidential is not enabled";
            return Err(Error::refused(&code::NOT_ENABLED, message));
        }
        Ok(match self.0.images.get(&body.image)? {
            Source::Host => "host".to_owned(),
            Source::Directory { digest, .. } => digest.to_string(),
        })
    }

    /// Gives a sandbox more money or time.
    pub async fn extend_sandbox(&self, sent: Sent, id: &str, body: ExtendBody) -> Result<Reply> {
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        let policy = self.0.options.policy.clone();
        self.write(sent, Scope::SandboxesWrite, move |tx, caller, now_ms| {
            let asked = body.asked()?;
            let (sandbox, granted) =
                sandbox::extend(tx, &caller.user_id, &sandbox_id, &asked, &policy, now_ms)?;
            let pace = Pace::of(tx, &caller.user_id)?;
            answer(200, &SandboxView::granted(&sandbox, granted, &pace, now_ms))
        })
        .await
    }

    /// Gives a sandbox another shape; one that the account pays no minute of is a quote (402).
    pub async fn resize_sandbox(&self, sent: Sent, id: &str, body: ResizeBody) -> Result<Reply> {
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        let version = crate::api::version(body.version)?;
        let policy = self.0.options.policy.clone();
        let quote_id = HostingQuoteId::make(&*self.0.clock, &*self.0.random);
        let can = self.0.options.abilities.resize;
        let wanted = move |present: &Sandbox| {
            let shape = present.next.map_or(present.shape, |next| next.shape);
            Shape {
                cpu_milli: body.cpu_milli.unwrap_or(shape.cpu_milli),
                ram_mib: body.ram_mib.unwrap_or(shape.ram_mib),
                ..shape
            }
        };
        // Nobody pays for what the host cannot give, and nobody keeps what is not paid: what gets less gets less now.
        let caller = self.who(sent.token.clone()).await?;
        caller.require(Scope::SandboxesWrite)?;
        able(can, "its shape stays as it was bought")?;
        // Two at once would take each other's measure for what is paid.
        let _turn = self.0.resizes.of(&sandbox_id).await;
        let owned = (caller.user_id.clone(), sandbox_id.clone());
        let present = move || {
            let (user_id, id) = owned.clone();
            self.0.store.read(move |rx| sandbox::get(rx, &user_id, &id))
        };
        let (read_again, present) = (present.clone(), present().await?);
        let mut taken = None;
        let is_meant = move |present: &Sandbox| {
            present.version == version && present.status == sandbox::Status::Running
        };
        // What nobody pays for is not tried.
        let (asked, bounds, now_ms) = (present.clone(), policy.clone(), self.now_ms());
        let short = move |rx: &mut Rx<'_>| match is_meant(&asked) {
            true => sandbox::short_for(rx, &asked, &wanted(&asked), &bounds, now_ms),
            false => Ok(None),
        };
        let is_short = self.0.store.read(short).await?.is_some();
        if is_meant(&present) && !is_short && !present.is_resizing(self.now_ms()) {
            let least = present.held_at(self.now_ms()).smaller(&wanted(&present));
            let visit = self.door().enter(&caller.user_id, &sandbox_id).await?;
            visit.resize(least.cpu_milli, least.ram_mib).await?;
            taken = Some(visit);
        }
        let written = self.write(sent, Scope::SandboxesWrite, move |tx, caller, now_ms| {
            let present = sandbox::get(tx, &caller.user_id, &sandbox_id)?;
            let shape = wanted(&present);
            let user_id = &caller.user_id;
            if is_meant(&present)
                && let Some(buys) = sandbox::short_for(tx, &present, &shape, &policy, now_ms)?
            {
                return insufficient(&money::quote(tx, &quote_id, user_id, &buys, now_ms)?);
            }
            let sandbox =
                sandbox::resize(tx, user_id, &sandbox_id, version, &shape, &policy, now_ms)?;
            answer(200, &SandboxView::of(&sandbox, &Pace::of(tx, user_id)?, now_ms))
        });
        let written = written.await;
        let is_refused = written.as_ref().map_or(true, |reply| reply.answer.status() >= 400);
        if let (true, Some(visit)) = (is_refused, taken)
            && let Ok(row) = read_again().await
        {
            // Nothing was changed, so nothing is taken away. If this fails, whoever drives the machine sees it.
            let held = row.held_at(self.now_ms());
            let _ = visit.resize(held.cpu_milli, held.ram_mib).await;
        }
        written
    }

    /// Ends a sandbox; its files are kept.
    pub async fn stop_sandbox(&self, sent: Sent, id: &str) -> Result<Reply> {
        self.change(sent, id, sandbox::stop).await
    }

    /// Ends a sandbox, and removes it with its files.
    pub async fn destroy_sandbox(&self, sent: Sent, id: &str) -> Result<Reply> {
        self.change(sent, id, sandbox::destroy).await
    }

    /// Pauses a sandbox. It stays paid for.
    pub async fn pause_sandbox(&self, sent: Sent, id: &str) -> Result<Reply> {
        able(self.0.options.abilities.pause, "it cannot be paused")?;
        self.change(sent, id, sandbox::pause).await
    }

    /// Lets a paused sandbox go on.
    pub async fn resume_sandbox(&self, sent: Sent, id: &str) -> Result<Reply> {
        self.change(sent, id, sandbox::resume).await
    }

    async fn change(
        &self,
        sent: Sent,
        id: &str,
        change: fn(&mut Tx<'_>, &UserId, &SandboxId, UnixMs) -> Result<Sandbox>,
    ) -> Result<Reply> {
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        self.write(sent, Scope::SandboxesWrite, move |tx, caller, now_ms| {
            let sandbox = change(tx, &caller.user_id, &sandbox_id, now_ms)?;
            let pace = Pace::of(tx, &caller.user_id)?;
            answer(200, &SandboxView::of(&sandbox, &pace, now_ms))
        })
        .await
    }

    /// One sandbox.
    pub async fn sandbox(&self, token: Token, id: &str) -> Result<SandboxView> {
        let sandbox_id: SandboxId = parse("sandbox_id", id)?;
        self.read(token, Scope::SandboxesRead, move |rx, caller, now_ms| {
            let sandbox = sandbox::get(rx, &caller.user_id, &sandbox_id)?;
            Ok(SandboxView::of(&sandbox, &Pace::of(rx, &caller.user_id)?, now_ms))
        })
        .await
    }

    /// A page of sandboxes, of all jobs or of one.
    pub async fn sandboxes(
        &self,
        token: Token,
        job_id: Option<&str>,
        page: PageQuery,
    ) -> Result<Sandboxes> {
        let job_id: Option<HostingJobId> = job_id.map(|id| parse("job_id", id)).transpose()?;
        let (limit, before) = (page.limit()?, page.before::<SandboxId>()?);
        self.read(token, Scope::SandboxesRead, move |rx, caller, now_ms| {
            let sandboxes = match &job_id {
                None => sandbox::page_before(rx, &caller.user_id, before.as_ref(), limit)?,
                Some(job_id) => {
                    job::get(rx, &caller.user_id, job_id)?;
                    sandbox::page_of_job(rx, job_id, before.as_ref(), limit)?
                }
            };
            let next = next_of(&sandboxes, limit, |sandbox| sandbox.sandbox_id.to_string());
            let pace = Pace::of(rx, &caller.user_id)?;
            let sandboxes = sandboxes.iter().map(|sandbox| SandboxView::of(sandbox, &pace, now_ms));
            Ok(Sandboxes { sandboxes: sandboxes.collect(), next })
        })
        .await
    }
}

/// Nobody pays for what its machine cannot do.
fn able(can: bool, words: &str) -> Result<()> {
    if can { Ok(()) } else { Err(Error::refused(&code::CANNOT, words)) }
}

/// The answer to somebody whose account does not pay. It is not kept: after a deposit the same request buys it.
fn insufficient(quote: &Quote) -> Result<Answer> {
    let code = &code::INSUFFICIENT;
    let message = format!("{} micro-USD are missing in the account", quote.units);
    let error = ProblemDetail {
        code: code.name.to_owned(),
        kind: code.kind.as_str().to_owned(),
        message,
        field: None,
        help: code.remedy.to_owned(),
    };
    Answer::refusal(402, text(&Insufficient { error, quote: QuoteView::of(quote) })?)
}
