//! Jobs.

use crate::access::idempotency::Reply;
use crate::access::{Scope, Token};
use crate::api::{ExtendBody, JobView, Jobs, NewJobBody, PageQuery, next_of};
use crate::pace::Pace;
use crate::{HostingJobId, Result, job};

use super::{Desk, Sent, answer, parse};

impl Desk {
    /// Makes a job.
    pub async fn create_job(&self, sent: Sent, body: NewJobBody) -> Result<Reply> {
        let job_id = HostingJobId::make(&*self.0.clock, &*self.0.random);
        let policy = self.0.options.policy.clone();
        self.write(sent, Scope::JobsWrite, move |tx, caller, now_ms| {
            let new = body.asked(job_id.clone(), caller.user_id.clone())?;
            let (job, granted) = job::create(tx, &new, &policy, now_ms)?;
            // Nothing is bought in it yet.
            answer(201, &JobView::granted(&job, granted, &Pace::default(), now_ms))
        })
        .await
    }

    /// Gives a job more money or time.
    pub async fn extend_job(&self, sent: Sent, job_id: &str, body: ExtendBody) -> Result<Reply> {
        let job_id: HostingJobId = parse("job_id", job_id)?;
        let policy = self.0.options.policy.clone();
        self.write(sent, Scope::JobsWrite, move |tx, caller, now_ms| {
            let asked = body.asked()?;
            let (job, granted) =
                job::extend(tx, &caller.user_id, &job_id, &asked, &policy, now_ms)?;
            let pace = Pace::of(tx, &caller.user_id)?;
            answer(200, &JobView::granted(&job, granted, &pace, now_ms))
        })
        .await
    }

    /// Ends a job and all its sandboxes.
    pub async fn stop_job(&self, sent: Sent, job_id: &str) -> Result<Reply> {
        let job_id: HostingJobId = parse("job_id", job_id)?;
        self.write(sent, Scope::JobsWrite, move |tx, caller, now_ms| {
            let job = job::stop(tx, &caller.user_id, &job_id, now_ms)?;
            // Nothing is bought in it any more.
            answer(200, &JobView::of(&job, &Pace::default(), now_ms))
        })
        .await
    }

    /// One job.
    pub async fn job(&self, token: Token, job_id: &str) -> Result<JobView> {
        let job_id: HostingJobId = parse("job_id", job_id)?;
        self.read(token, Scope::JobsRead, move |rx, caller, now_ms| {
            let job = job::get(rx, &caller.user_id, &job_id)?;
            Ok(JobView::of(&job, &Pace::of(rx, &caller.user_id)?, now_ms))
        })
        .await
    }

    /// A page of jobs.
    pub async fn jobs(&self, token: Token, page: PageQuery) -> Result<Jobs> {
        let (limit, before) = (page.limit()?, page.before::<HostingJobId>()?);
        self.read(token, Scope::JobsRead, move |rx, caller, now_ms| {
            let jobs = job::page_before(rx, &caller.user_id, before.as_ref(), limit)?;
            let next = next_of(&jobs, limit, |job| job.job_id.to_string());
            let pace = Pace::of(rx, &caller.user_id)?;
            let jobs = jobs.iter().map(|job| JobView::of(job, &pace, now_ms)).collect();
            Ok(Jobs { jobs, next })
        })
        .await
    }
}
