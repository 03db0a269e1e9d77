//! Leases: signed here, and taken to the agent of a real sandbox, which checks and keeps them.

use std::sync::Arc;

use guild_hosting::SandboxId;
use guild_hosting::machine::image::{Images, Source};
use guild_hosting::machine::link::Link;
use guild_hosting::machine::local::{Local, Options};
use guild_hosting::machine::{Machine, Order};
use guild_protocol::env::Clock;
use guild_protocol::identity::SecretKey;
use guild_sandbox::agent::{Client, Lease};
use testbed::bench::{Arguments, Measured, Watch};
use tokio::runtime::Runtime;

use crate::hall::{Dice, Since};
use crate::said;

const IMAGE: &str = "sandbox-base:v1.0.0";

pub(crate) fn measure(runtime: &Runtime, arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let random = Arc::new(Dice::default());
    // The agent goes by the clock of this host.
    let clock = Arc::new(Since(testbed::now_ms(), Watch::start()));
    let key = Arc::new(SecretKey::make(&*random));
    let link = Link::new(key.clone(), clock.clone(), random);
    let images = Images::new().with(IMAGE.parse().map_err(said)?, Source::Host);
    let place = std::path::absolute(&arguments.directory).map_err(said)?;
    let options = Options {
        words: vec!["--data-dir".into(), place.clone().into(), "sandbox-agent".into()],
        ..Options::new(place.join("sandboxes"), env!("CARGO_BIN_EXE_guild"))
    };
    let machine = Local::new(options, Arc::new(images), link.clone()).map_err(said)?;
    let sandbox_id: SandboxId = format!("sbx_{:032x}", 1).parse().map_err(said)?;
    let order = Order {
        sandbox_id: sandbox_id.clone(),
        cpu_milli: 1_000,
        ram_mib: 256,
        disk_mib: 64,
        image: IMAGE.to_owned(),
    };
    let seconds = arguments.seconds.max(1);
    runtime
        .block_on(async {
            let instance = machine.create(&order).await.map_err(said)?;
            let measured = async {
                let client = link.client_of(&instance).map_err(said)?;
                let pushed = push(&client, &*clock, seconds).await?;
                let party = client.party();
                let signed = sign(seconds, |n| {
                    Lease::until(party, clock.now_ms() + n, clock.now_ms(), &*key).map(drop)
                })?;
                Ok((pushed, signed))
            };
            let measured = measured.await;
            machine.destroy(&sandbox_id).await.map_err(said)?;
            measured
        })
        .map(|(pushed, signed)| {
            let result = || "leases, signed one after another".to_owned();
            vec![
                Measured { name: "guild", per_s: pushed, result: result() },
                Measured { name: "signed, not sent", per_s: signed, result: result() },
            ]
        })
}

async fn push(client: &Client, clock: &dyn Clock, seconds: u64) -> Result<f64, String> {
    let (watch, mut pushed) = (Watch::start(), 0_u64);
    while watch.before(seconds) {
        client.lease(clock.now_ms() + 60_000).await.map_err(said)?;
        pushed += 1;
    }
    let per_s = watch.per_s(pushed);
    // Of two that were issued in one millisecond the agent keeps the first.
    clock.sleep(5).await;
    let until_ms = clock.now_ms() + 60_000;
    let stands = client.lease(until_ms).await.map_err(said)?;
    if stands.run_until_ms < until_ms {
        return Err("a lease was taken, and does not stand".to_owned());
    }
    Ok(per_s)
}

fn sign<E: std::fmt::Display>(
    seconds: u64,
    sign: impl Fn(i64) -> Result<(), E>,
) -> Result<f64, String> {
    let (watch, mut signed) = (Watch::start(), 0_u64);
    while watch.before(seconds) {
        for n in 0..100 {
            sign(60_000 + n).map_err(said)?;
        }
        signed += 100;
    }
    Ok(watch.per_s(signed))
}
