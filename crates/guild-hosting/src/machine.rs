//! What sandboxes run on, and who looks after them there.
//!
//! | module | what it settles |
//! |---|---|
//! | [`image`] | which systems can be bought |
//! | [`pins`] | that a version of these stays what it was |
//! | [`link`] | how a sandbox's agent is asked |
//! | [`claim`] | which node looks after which machine |
//! | [`local`] | a machine: this host, a process for each sandbox |
//! | [`driver`] | what is to be done next with each sandbox, and doing it |
//! | [`reconcile`] | what nobody wants, and what is lost |
//! | [`visit`] | commands, files, ports and secrets, for whoever owns a sandbox |
//!
//! A [`Machine`] only makes and removes. How long a sandbox runs is not its concern: the agent that it starts runs
//! nothing before its first lease and ends the workload by itself when the last one is over, whatever becomes of the
//! machine's owner.

pub mod claim;
pub mod driver;
pub mod image;
pub mod link;
pub mod local;
pub mod pins;
pub mod reconcile;
pub mod visit;

use guild_protocol::env::BoxFuture;
use guild_protocol::identity::PublicKey;
use guild_sandbox::agent::{Attestation, Client};
use serde::{Deserialize, Serialize};

use crate::sandbox::Sandbox;
use crate::{Error, Result, SandboxId};
use link::{Line, Link};

/// The codes of this module.
pub mod code {
    guild_protocol::codes! {
        NO_SUCH_IMAGE = "hosting.no_such_image", Invalid,
            "No image has this name and version; a version is always written out, as v1.2.3.",
            "Choose one of the images that are offered.";
        IMAGE_CHANGED = "hosting.image_changed", Corrupt,
            "The files of an image are not those that its digest names.",
            "Restore the image, or offer what is there under a new version.";
        SECRETS_NOT_RELEASED = "hosting.secrets_not_released", Conflict,
            "A command needs secrets that have not been released to this sandbox.",
            "Release the secrets, then start the command.";
        NOT_ATTESTED = "hosting.not_attested", Conflict,
            "The sandbox says that it is not the image that was bought.",
            "Destroy it and create another; release no secrets to it.";
        NOT_RUNNING = "hosting.not_running", Conflict,
            "The sandbox does not run, so this cannot be done with it.",
            "Look at its status; start another if it has ended.";
        TOO_LARGE = "hosting.too_large", Invalid,
            "A file, an archive or a command is larger than what is carried.", "Send less at once.";
        UNABLE = "hosting.machine_unable", Invalid,
            "The machine that this sandbox runs on cannot do this.", "Create another sandbox instead.";
        MACHINE_TAKEN = "hosting.machine_taken", Conflict,
            "Another directory drives the machine of this name, or this one's sandboxes were made under another name.",
            "Give each node of a database a hosting.machine of its own.";
        MACHINE = "hosting.machine_failed", Unavailable,
            "A machine could not make, find or remove a sandbox.", "It is tried again; look at the node's log.";
    }
}

/// What a machine is asked to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its name: asking twice for the same makes one.
    pub sandbox_id: SandboxId,
    /// How much it may compute at once, in thousandths of a core.
    pub cpu_milli: i64,
    /// How much memory it has.
    pub ram_mib: i64,
    /// How much it can write.
    pub disk_mib: i64,
    /// Its system, as `name:v1.2.3`.
    pub image: String,
}

/// What a machine has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// What for.
    pub sandbox_id: SandboxId,
    /// What the machine calls it.
    pub name: String,
    /// Where its agent listens.
    pub endpoint: String,
    /// The agent's key; nobody else is believed.
    pub agent_key: PublicKey,
}

/// What a machine has, of whatever origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What for.
    pub sandbox_id: SandboxId,
    /// Its agent, if it is there and can be asked.
    pub instance: Option<Instance>,
}

/// How a sandbox was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// How long commands could run, if somebody knows.
    pub ran_ms: Option<i64>,
    /// Whether its files can still be fetched.
    pub keeps_files: bool,
}

/// What a machine can do beside making and removing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Abilities {
    /// Stop everything where it is, and let it go on.
    pub pause: bool,
    /// Change how much a sandbox may use while it runs.
    pub resize: bool,
}

/// Something that sandboxes run on. All of it can be asked again after any failure: what is done is not done twice.
pub trait Machine: Send + Sync {
    /// Its name, which stands in the rows of what runs on it.
    fn name(&self) -> &str;

    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// Makes a sandbox whose agent awaits its first lease, or finds the one that was made under this name. An error
    /// may leave something, which [`Machine::destroy`] removes.
    fn create(&self, order: &Order) -> BoxFuture<Result<Instance>>;

    /// The sandbox of this name, if its agent is there.
    fn find(&self, sandbox_id: &SandboxId) -> BoxFuture<Result<Option<Instance>>>;

    /// All that is there, whole or not.
    fn list(&self) -> BoxFuture<Result<Vec<Found>>>;

    /// Ends everything inside, and keeps the files if that is possible. When it returns, nothing runs.
    fn stop(&self, sandbox_id: &SandboxId) -> BoxFuture<Result<Stopped>>;

    /// Removes all of it. What is not there is removed.
    fn destroy(&self, sandbox_id: &SandboxId) -> BoxFuture<Result<()>>;

    /// Changes how much a running sandbox may use, if the machine can.
    fn resize(&self, sandbox_id: &SandboxId, cpu_milli: i64, ram_mib: i64)
    -> BoxFuture<Result<()>>;

    /// What an image is there now: the digest of its tree, if it has one.
    fn image_digest(&self, _image: &str) -> Result<Option<String>> {
        Ok(None)
    }

    /// How the agent of what it has made is asked.
    fn line(&self, link: &Link, instance: &Instance) -> Result<Box<dyn Line>> {
        Ok(Box::new(link.client_of(instance)?))
    }
}

/// Refuses an agent that says that it is not this image.
fn check_image(said: &Attestation, image: &str) -> Result<()> {
    if said.mode == "standard" && said.image_version == image {
        return Ok(());
    }
    let why = format!("{image} was bought, its agent says that it is {}", said.image_version);
    Err(Error::refused(&code::NOT_ATTESTED, why))
}

/// Has an agent give its sandbox another shape. What it cannot is told with the layer that is missing.
async fn resize(client: &Client, cpu_milli: i64, ram_mib: i64) -> Result<()> {
    let (Ok(cpu_milli), Ok(ram_mib)) = (u32::try_from(cpu_milli), u64::try_from(ram_mib)) else {
        return Err(Error::refused(&code::UNABLE, "there is no such shape"));
    };
    let cannot = ["sandbox.layer_missing", "sandbox.bad_limit"];
    client.resize(cpu_milli, ram_mib).await.map_err(|error| match error.code().name {
        name if cannot.contains(&name) => {
            Error::refused(&crate::code::CANNOT, format!("{cpu_milli} and {ram_mib} MiB: {error}"))
        }
        _ => error.into(),
    })
}

/// What a row says that was made for it.
fn instance_of_row(row: &Sandbox) -> Result<Instance> {
    let key = row.agent_key.as_deref().and_then(|key| key.parse().ok());
    let (Some(endpoint), Some(agent_key)) = (row.endpoint.clone(), key) else {
        let why = format!("{} has no agent", row.sandbox_id);
        return Err(Error::refused(&code::NOT_RUNNING, why));
    };
    let name = row.instance.clone().unwrap_or_default();
    Ok(Instance { sandbox_id: row.sandbox_id.clone(), name, endpoint, agent_key })
}

/// The agent that a row names, at the place that it names.
fn client_of_row(link: &Link, row: &Sandbox) -> Result<Client> {
    link.client_of(&instance_of_row(row)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::clamp::{Answer, Bound, Clamped, Extend, Granted};
    use crate::price::Shape;
    use crate::sandbox::{Sandbox, Status};
    use crate::user::UserId;

    /// A row of a sandbox that was ordered.
    pub(crate) fn row() -> Sandbox {
        let clamped = Clamped { requested: 1, granted: 1, bound: Bound::Requested };
        let asked = Extend { version: 1, spend: None, expires_ms: None, idle_timeout_ms: None };
        Sandbox {
            sandbox_no: 1,
            sandbox_id: format!("sbx_{:032x}", 1).parse().unwrap(),
            job_id: format!("job_{:032x}", 1).parse().unwrap(),
            user_id: UserId::of_wallet([1; 20]),
            status: Status::Starting,
            stop_reason: None,
            words: None,
            shape: Shape { cpu_milli: 1_000, ram_mib: 256, disk_mib: 64 },
            price: 908,
            next: None,
            cap: 1_000_000,
            spent: 0,
            paid_minutes: 0,
            created_ms: 0,
            started_ms: None,
            expires_ms: 100_000_000,
            idle_timeout_ms: None,
            last_activity_ms: 0,
            ends_ms: None,
            ran_ms: 0,
            lost_units: 0,
            image: "sandbox-base:v1.2.3".to_owned(),
            image_digest: "-".to_owned(),
            machine: "local".to_owned(),
            instance: None,
            endpoint: None,
            agent_key: None,
            secrets_ms: None,
            paused: false,
            answer: Answer { asked, granted: Granted { spend: clamped, expires_ms: clamped } },
            version: 1,
        }
    }
}
