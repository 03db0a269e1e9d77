//! How long a sandbox runs, whoever talks to its agent or not.

use std::sync::Arc;

use guild_protocol::env::{Clock, Signer};
use guild_protocol::identity::SecretKey;
use guild_sandbox::Class;
use guild_sandbox::agent::{EndedBy, Health, Lease, Party, State};

use super::super::traces::Traces;
use super::{Dice, Real, Set, World, refused, sandbox_id, shell, words};
use crate::support::sandbox;

const START_MS: i64 = 1_000_000;

fn world(clock: &Set, lease_ms: i64) -> World {
    World::with(Arc::new(clock.clone()), lease_ms)
}

/// Lets the agent look, without time going by for it, until it says what is expected or a while is over.
async fn settles(world: &World, expected: impl Fn(&Health) -> bool) -> Health {
    for _ in 0..400 {
        let health = world.client.health().await.unwrap();
        if expected(&health) {
            return health;
        }
        Real.sleep(10).await;
    }
    world.client.health().await.unwrap()
}

fn has_ended(health: &Health) -> bool {
    health.class.is_some()
}

/// Lets time go by in steps that the agent can see.
async fn pass(clock: &Set, ms: i64) {
    for _ in 0..ms / 100 {
        clock.pass(100);
        Real.sleep(2).await;
    }
}

#[tokio::test]
async fn when_the_lease_is_over_the_workload_ends_though_nobody_says_a_word() {
    let clock = Set::new(START_MS);
    let world = world(&clock, 5_000);
    let id = world.client.exec(&shell("sleep 1000 & exec sleep 1000")).await.unwrap();
    pass(&clock, 4_800).await;
    assert_eq!(world.client.health().await.unwrap().state, State::Running);
    pass(&clock, 1_200).await;
    let health = settles(&world, has_ended).await;
    assert_eq!((health.state, health.ended_by), (State::Ended, Some(EndedBy::Lease)));
    assert_eq!(health.class, Some(Class::Stopped));
    let (_, _, last) = world.client.stream(&id, 1).collect(0).await.unwrap();
    assert!(last.exit_code.is_none(), "{last:?}");
    for answer in
        [world.client.exec(&words(&["true"])).await.map(drop), world.client.freeze().await]
    {
        assert_eq!(refused(answer), "agent.ended");
    }
    Traces::now().assert_none();
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_prolong_it() {
    let clock = Set::new(START_MS);
    let world = world(&clock, 5_000);
    clock.set_wall(START_MS - 10_000_000);
    for _ in 0..70 {
        clock.pass_unseen(100);
        Real.sleep(2).await;
    }
    // The client's clock is the agent's, and requests of before the start are refused: look with time set right.
    clock.set_wall(START_MS + 1);
    let health = settles(&world, has_ended).await;
    assert_eq!(health.ended_by, Some(EndedBy::Lease));
}

#[tokio::test]
async fn a_clock_that_jumps_forward_ends_it() {
    let clock = Set::new(START_MS);
    let world = world(&clock, 50_000);
    clock.set_wall(START_MS + 50_000);
    for _ in 0..20 {
        clock.pass_unseen(100);
        Real.sleep(2).await;
    }
    assert_eq!(settles(&world, has_ended).await.ended_by, Some(EndedBy::Lease));
}

#[tokio::test]
async fn what_is_frozen_ends_too() {
    let clock = Set::new(START_MS);
    let world = world(&clock, 2_000);
    world.client.exec(&shell("sleep 1000")).await.unwrap();
    world.client.freeze().await.unwrap();
    pass(&clock, 3_000).await;
    assert_eq!(settles(&world, has_ended).await.class, Some(Class::Stopped));
    Traces::now().assert_none();
}

#[tokio::test]
async fn one_that_awaits_its_lease_runs_nothing_before_and_no_longer_than_it_says() {
    let clock = Set::new(START_MS);
    let world = World::made(sandbox(), Arc::new(clock.clone()), 600_000, true);
    let client = &world.client;
    let attested = client.attestation().await.unwrap();
    assert_eq!(attested.attestation.image_version, super::IMAGE);
    for refusal in [
        client.exec(&words(&["true"])).await.map(drop),
        client.put_file("a", false, b"x").await.map(drop),
        client.connect(80).await.map(drop),
        client.freeze().await,
    ] {
        assert_eq!(refused(refusal), "agent.not_leased");
    }
    pass(&clock, 3_000).await;
    let health = client.health().await.unwrap();
    assert_eq!((health.state, health.leased, health.ran_ms), (State::Running, false, 0));
    assert!(client.lease(START_MS + 8_000).await.unwrap().changed, "shorter than the wait");
    client.exec(&shell("sleep 1000")).await.unwrap();
    pass(&clock, 4_000).await;
    let health = client.health().await.unwrap();
    assert!(health.leased && (3_500..=4_500).contains(&health.ran_ms), "{health:?}");
    pass(&clock, 2_000).await;
    let health = settles(&world, has_ended).await;
    assert_eq!(health.ended_by, Some(EndedBy::Lease));
    let ran_ms = health.ran_ms;
    pass(&clock, 5_000).await;
    assert_eq!(client.health().await.unwrap().ran_ms, ran_ms, "it counts no further");
}

#[tokio::test]
async fn one_that_gets_no_lease_goes() {
    let clock = Set::new(START_MS);
    let world = World::made(sandbox(), Arc::new(clock.clone()), 2_000, true);
    pass(&clock, 3_000).await;
    let health = settles(&world, has_ended).await;
    assert_eq!((health.ended_by, health.ran_ms), (Some(EndedBy::Lease), 0));
    Traces::now().assert_none();
}

#[tokio::test]
async fn a_lease_moves_forward_only() {
    let clock = Set::new(START_MS);
    let world = world(&clock, 5_000);
    let client = &world.client;
    let signed = |until: i64, issued: i64| {
        Lease::until(&world.party, until, issued, &*world.controller).unwrap()
    };
    let first = signed(START_MS + 20_000, START_MS + 10);
    let stands = client.send_lease(&first).await.unwrap();
    assert!(stands.changed && stands.run_until_ms == START_MS + 20_000);
    let cases = [
        ("the same again", first.clone()),
        ("a shorter one", signed(START_MS + 1_000, START_MS + 20)),
        ("an older one that says more", signed(START_MS + 90_000, START_MS + 5)),
    ];
    for (what, lease) in cases {
        let stands = client.send_lease(&lease).await.unwrap();
        assert_eq!((stands.changed, stands.run_until_ms), (false, START_MS + 20_000), "{what}");
    }
    pass(&clock, 10_000).await;
    assert_eq!(client.health().await.unwrap().state, State::Running);
    assert!(client.lease(START_MS + 30_000).await.unwrap().changed);
    pass(&clock, 12_000).await;
    assert_eq!(client.health().await.unwrap().state, State::Running);
}

#[tokio::test]
async fn only_the_controller_gives_time_and_only_to_this_sandbox_and_agent() {
    let clock = Set::new(START_MS);
    let world = world(&clock, 5_000);
    let stranger = SecretKey::make(&Dice);
    let until = START_MS + 90_000;
    let good = Lease::until(&world.party, until, START_MS + 1, &*world.controller).unwrap();
    let other_sandbox = Party { sandbox_id: sandbox_id(), ..world.party.clone() };
    let other_agent = Party { agent: stranger.public_key(), ..world.party.clone() };
    let attacks = [
        Lease::until(&world.party, until, START_MS + 1, &stranger).unwrap(),
        Lease::until(&other_sandbox, until, START_MS + 1, &*world.controller).unwrap(),
        Lease::until(&other_agent, until, START_MS + 1, &*world.controller).unwrap(),
        Lease { run_until_ms: until + 1, ..good.clone() },
        Lease { issued_ms: START_MS + 2, ..good.clone() },
        Lease { stop: true, ..good.clone() },
        Lease { sandbox_id: other_sandbox.sandbox_id.clone(), ..good },
    ];
    for lease in attacks {
        assert_eq!(refused(world.client.send_lease(&lease).await), "agent.wrong_signature");
        assert_eq!(world.client.health().await.unwrap().run_until_ms, START_MS + 5_000);
    }
}

#[tokio::test]
async fn a_signed_stop_is_final_and_files_can_still_be_fetched() {
    let clock = Set::new(START_MS);
    let world = world(&clock, 5_000_000);
    let client = &world.client;
    client.put_file("result", false, b"42").await.unwrap();
    let later = Lease::until(&world.party, START_MS + 9_000_000, START_MS + 9, &*world.controller);
    assert!(client.stop().await.unwrap().changed);
    let health = settles(&world, |health| health.ended_by.is_some()).await;
    assert_eq!(health.ended_by, Some(EndedBy::Stop));
    assert_eq!(refused(client.send_lease(&later.unwrap()).await), "agent.ended");
    assert_eq!(client.get_file("result").await.unwrap().whole(10).await.unwrap(), b"42");
    assert_eq!(refused(client.put_file("more", false, b"x").await), "agent.ended");
    // After a while the agent goes too.
    settles(&world, has_ended).await;
    pass(&clock, 61_000).await;
    world.ended().unwrap();
}
