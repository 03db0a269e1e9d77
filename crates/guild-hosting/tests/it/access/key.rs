//! API keys and sessions: what they open, how they end, and how they are escaped from.

use guild_hosting::access::key::{self, NewKey, USE_EVERY_MS};
use guild_hosting::access::session::{self, Via};
use guild_hosting::access::{self, Caller, Credential, KeyId, Scope, Scopes, SessionId};
use guild_hosting::{Result, UserId};

use super::{DAY_MS, Dice, NOW, Node, both, new_session, wallet, why};

fn revoke(node: &Node, caller: &Caller, key_id: &KeyId) -> Result<usize> {
    let (caller, key_id) = (caller.clone(), key_id.clone());
    node.write(move |tx| key::revoke(tx, &caller, &key_id, NOW))
}

fn close(node: &Node, caller: &Caller, session_id: &SessionId) -> Result<()> {
    let (caller, session_id) = (caller.clone(), session_id.clone());
    node.write(move |tx| session::close(tx, &caller, &session_id, NOW))
}

#[test]
fn a_key_opens_what_its_scopes_say_until_it_expires() {
    both(|node| {
        let owner = node.caller(&wallet(1));
        let (made, token) =
            node.make_key(&owner, "jobs:read sandboxes:exec", NOW + DAY_MS).unwrap();
        let caller = node.who(&token, NOW).unwrap();
        assert_eq!((&caller.user_id, caller.scopes), (&owner.user_id, made.scopes));
        for scope in Scope::ALL {
            let has = matches!(scope, Scope::JobsRead | Scope::SandboxesExec);
            let expected = if has { "nothing" } else { "access.scope_missing" };
            assert_eq!(why(caller.require(*scope)), expected, "{scope}");
        }
        assert_eq!(why(caller.require_session()), "access.needs_session");
        assert!(node.who(&token, NOW + DAY_MS - 1).is_ok());
        assert_eq!(why(node.who(&token, NOW + DAY_MS)), "access.unauthenticated");
        assert_eq!(revoke(node, &owner, &made.key_id).unwrap(), 1);
        assert_eq!(why(node.who(&token, NOW)), "access.unauthenticated");
        assert_eq!(why(revoke(node, &owner, &made.key_id)), "access.key_unknown");
    });
}

#[test]
fn a_key_makes_no_key_that_may_more_than_itself() {
    both(|node| {
        let owner = node.caller(&wallet(1));
        let (_, token) = node.make_key(&owner, "jobs:read keys:write", NOW + 1_000).unwrap();
        let maker = node.who(&token, NOW).unwrap();
        let tried = |scopes: &str, expires_ms| why(node.make_key(&maker, scopes, expires_ms));
        for scope in Scope::ALL {
            let has = matches!(scope, Scope::JobsRead | Scope::KeysWrite);
            let expected = if has { "nothing" } else { "access.scope_wider" };
            assert_eq!(tried(scope.as_str(), NOW + 1_000), expected);
            assert_eq!(why(node.make_key(&owner, scope.as_str(), NOW + 1_000)), "nothing");
        }
        assert_eq!(tried(&Scopes::ALL.to_string(), NOW + 1_000), "access.scope_wider");
        assert_eq!(
            tried("jobs:read", NOW + 1_001),
            "access.scope_wider",
            "nor one that lives longer"
        );
        let (_, weak) = node.make_key(&owner, "jobs:read jobs:write", NOW + 1_000).unwrap();
        let weak = node.who(&weak, NOW).unwrap();
        assert_eq!(why(node.make_key(&weak, "jobs:read", NOW + 1_000)), "access.scope_missing");
        // A session that is not there makes none, whatever its caller says of itself.
        let rows = node.rows("access_key");
        let mut boastful = maker.clone();
        boastful.credential = Credential::Session(SessionId::make(&Dice, &Dice));
        assert_eq!(
            why(node.make_key(&boastful, "jobs:read", NOW + 1_000)),
            "access.unauthenticated"
        );
        assert_eq!(node.rows("access_key"), rows);
    });
}

#[test]
fn a_revoked_key_takes_with_it_what_it_made_and_makes_nothing_more() {
    both(|node| {
        let owner = node.caller(&wallet(1));
        let all = "jobs:read keys:write";
        let (stolen, token) = node.make_key(&owner, all, NOW + DAY_MS).unwrap();
        let thief = node.who(&token, NOW).unwrap();
        let (child, child_token) = node.make_key(&thief, all, NOW + DAY_MS).unwrap();
        let child_caller = node.who(&child_token, NOW).unwrap();
        let (_, grandchild_token) = node.make_key(&child_caller, all, NOW + DAY_MS).unwrap();
        let (other, other_token) = node.make_key(&owner, all, NOW + DAY_MS).unwrap();
        // It reaches neither its maker nor others.
        assert_eq!(why(revoke(node, &thief, &other.key_id)), "access.key_unknown");
        assert_eq!(why(revoke(node, &child_caller, &stolen.key_id)), "access.key_unknown");
        assert_eq!(revoke(node, &owner, &stolen.key_id).unwrap(), 3);
        for gone in [&token, &child_token, &grandchild_token] {
            assert_eq!(why(node.who(gone, NOW)), "access.unauthenticated");
        }
        assert!(node.who(&other_token, NOW).is_ok());
        // A request that was let in before the revocation changes nothing after it.
        assert_eq!(why(node.make_key(&thief, all, NOW + DAY_MS)), "access.unauthenticated");
        assert_eq!(why(revoke(node, &thief, &child.key_id)), "access.unauthenticated");
    });
}

#[test]
fn a_key_gives_itself_up_and_what_it_made() {
    both(|node| {
        let owner = node.caller(&wallet(1));
        let (weak, token) = node.make_key(&owner, "jobs:read", NOW + DAY_MS).unwrap();
        let weak_caller = node.who(&token, NOW).unwrap();
        assert_eq!(revoke(node, &weak_caller, &weak.key_id).unwrap(), 1);
        let (_, token) = node.make_key(&owner, "jobs:read keys:write", NOW + DAY_MS).unwrap();
        let maker = node.who(&token, NOW).unwrap();
        let (child, _) = node.make_key(&maker, "jobs:read", NOW + DAY_MS).unwrap();
        assert_eq!(child.made_by.as_ref().map(KeyId::as_str), Some(maker.rate_key()));
        assert_eq!(revoke(node, &maker, &child.key_id).unwrap(), 1);
        assert!(node.who(&token, NOW).is_ok());
    });
}

#[test]
fn nobody_reaches_another_users_keys_and_sessions() {
    both(|node| {
        let (one, other) = (node.caller(&wallet(1)), node.caller(&wallet(2)));
        let (key, token) = node.make_key(&one, "jobs:read", NOW + DAY_MS).unwrap();
        let session_of_one = one.require_session().unwrap();
        assert_eq!(why(revoke(node, &other, &key.key_id)), "access.key_unknown");
        assert_eq!(why(close(node, &other, session_of_one)), "access.session_unknown");
        assert!(node.who(&token, NOW).is_ok());
        let keys = node.read({
            let other = other.clone();
            move |rx| key::list(rx, &other, NOW)
        });
        assert_eq!(keys.unwrap(), []);
        let sessions = node.read(move |rx| session::list(rx, &other, NOW)).unwrap();
        assert_eq!(sessions.len(), 1);
        assert_ne!(&sessions[0].session_id, session_of_one);
        close(node, &one, session_of_one).unwrap();
        assert_eq!(why(node.make_key(&one, "jobs:read", NOW + 1)), "access.unauthenticated");
        assert!(node.who(&token, NOW).is_ok(), "a key outlives the session that made it");
    });
}

#[test]
fn keys_reach_no_session() {
    both(|node| {
        let owner = node.caller(&wallet(1));
        let (_, token) = node.make_key(&owner, &Scopes::ALL.to_string(), NOW + DAY_MS).unwrap();
        let key = node.who(&token, NOW).unwrap();
        let session_id = owner.require_session().unwrap();
        assert_eq!(why(close(node, &key, session_id)), "access.needs_session");
        assert_eq!(why(node.read(move |rx| session::list(rx, &key, NOW))), "access.needs_session");
    });
}

#[test]
fn what_is_asked_for_a_key_has_bounds() {
    both(|node| {
        let owner = node.caller(&wallet(1));
        let named = |name: &str, scopes: Scopes, expires_ms| {
            let new = NewKey::make(&Dice, &Dice, name, scopes, expires_ms);
            let owner = owner.clone();
            why(node.write(move |tx| key::make(tx, &owner, &new, NOW)))
        };
        let year_ms = key::MAX_LIFETIME_MS;
        for bad in ["", &"é".repeat(65), "a\nb", "a\0b"] {
            assert_eq!(named(bad, Scopes::ALL, NOW + 1), "access.key_malformed");
        }
        assert_eq!(named("x", Scopes::NONE, NOW + 1), "access.key_malformed");
        for bad in [NOW, NOW - 1, NOW + year_ms + 1, i64::MAX, i64::MIN, 0] {
            assert_eq!(named("x", Scopes::ALL, bad), "access.key_malformed");
        }
        assert_eq!(node.rows("access_key"), 0);
        for _ in 0..key::MAX_PER_USER {
            assert_eq!(named(&"é".repeat(64), Scopes::ALL, NOW + year_ms), "nothing");
        }
        assert_eq!(named("one more", Scopes::ALL, NOW + 1), "access.key_limit");
        let other = node.caller(&wallet(2));
        assert_eq!(why(node.make_key(&other, "jobs:read", NOW + 1)), "nothing");
    });
}

#[test]
fn the_use_of_a_key_is_written_down_once_an_hour() {
    both(|node| {
        let owner = node.caller(&wallet(1));
        let (made, token) = node.make_key(&owner, "keys:write", NOW + DAY_MS).unwrap();
        let due = |now_ms| match node.who(&token, now_ms).unwrap().credential {
            Credential::Key { use_due, .. } => use_due,
            Credential::Session(_) | Credential::Page(_) => false,
        };
        let used = |now_ms| {
            let key_id = made.key_id.clone();
            node.write(move |tx| key::used(tx, &key_id, now_ms)).unwrap();
        };
        let last = || {
            let owner = owner.clone();
            node.read(move |rx| key::list(rx, &owner, NOW)).unwrap()[0].last_used_ms
        };
        assert!(due(NOW) && last().is_none());
        used(NOW);
        used(NOW + 5);
        assert_eq!(last(), Some(NOW));
        assert!(!due(NOW + USE_EVERY_MS - 1) && due(NOW + USE_EVERY_MS));
        used(NOW + USE_EVERY_MS);
        assert_eq!(last(), Some(NOW + USE_EVERY_MS));
    });
}

#[test]
fn a_user_has_so_many_sessions_and_the_oldest_end() {
    both(|node| {
        let user: UserId = format!("eip155:0x{}", "00".repeat(20)).parse().unwrap();
        let open = |via, now_ms| {
            let (new, user) = (new_session(), user.clone());
            let token = new.token.clone();
            node.write(move |tx| session::open(tx, &user, via, &new, now_ms)).unwrap();
            token
        };
        let tokens: Vec<_> = (0..40).map(|n| open(Via::Siwe, NOW + n)).collect();
        let good = |token| node.who(token, NOW + 100).is_ok();
        let ended = tokens.iter().take_while(|token| !good(token)).count();
        assert_eq!((ended, tokens.iter().filter(|token| good(token)).count()), (8, 32));
        // A session without a proof ends when the node starts without the flag.
        let bypassed = open(Via::Bypass, NOW + 41);
        assert!(good(&bypassed));
        assert_eq!(node.write(session::end_bypassed).unwrap(), 1);
        assert!(!good(&bypassed) && good(&tokens[39]));
        node.write(|tx| access::sweep(tx, NOW + DAY_MS + 100)).unwrap();
        assert_eq!(node.rows("access_session"), 0);
    });
}
