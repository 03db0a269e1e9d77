//! The pages in a real browser: what it makes of them, what it asks for, and pictures for people to look at.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use guild_gateway::{Options, Service};
use testbed::{Browser, Look};

use crate::bazaar::public;
use crate::explore::fill;
use crate::{MinuteLater, Scene};

const DESK: Look = Look { width: 1_100, height: 1_400, dark: false };
const PHONE: Look = Look { width: 360, height: 1_600, dark: false };

/// Where pictures are left; `cargo xtask pictures` takes them from here.
fn place() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    std::fs::create_dir_all(&place).unwrap();
    place
}

#[test]
fn a_browser_shows_the_pages_and_asks_nobody_else() {
    let scene = Scene::new(Options::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let told = runtime.block_on(fill(&scene));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let home = format!("http://{}", listener.local_addr().unwrap());
    let shutdown = scene.shutdown.clone();
    let gateway = Service::new(
        Options::default(),
        scene.roles.clone(),
        Arc::new(MinuteLater),
        "secret",
        shutdown.clone(),
    );
    let serving = std::thread::spawn(move || runtime.block_on(gateway.run(listener)));
    let pages = [
        ("overview", "/".to_owned(), "A market where programs hire programs"),
        ("providers", "/providers".to_owned(), "Quiet corner"),
        (
            "provider",
            format!("/providers/{}", public(2).npub()),
            "1 of 1 results accepted, 5 sat paid.",
        ),
        ("matrix", "/matrix".to_owned(), "Who is hired for which work"),
        ("route", "/matrix/oa.embedding.v1".to_owned(), "Whom each policy would choose now"),
        ("requests", "/requests".to_owned(), "ordered here"),
        ("request", format!("/requests/{}", told.good.id.hex()), "Receipt signed"),
        ("receipts", "/receipts".to_owned(), "Released"),
        ("receipt", format!("/receipts/{}", told.receipt_id), "This receipt holds"),
        ("missing", "/nowhere".to_owned(), "Nothing is here"),
    ];
    look_at(&home, &pages, "/api/market/events");
    shutdown.trigger();
    // A connection that the browser left open is dropped with the runtime; time stands still here.
    drop(serving);
}

/// What a page asks for. A browser on a busy host may be gone before a script asks for events: then it looks again.
fn asked(browser: &Browser, url: &str, is_live: bool) -> Vec<String> {
    let mut asked = browser.asked(url, DESK).unwrap();
    for _ in 0..5 {
        if !is_live || asked.iter().any(|address| address.contains("/events")) {
            break;
        }
        asked = browser.asked(url, DESK).unwrap();
    }
    asked
}

/// Looks at pages as people do. The first follows `events`, or nothing, and asks nobody else.
pub(crate) fn look_at(home: &str, pages: &[(&str, String, &str)], events: &str) {
    let (browser, place) = (Browser::new().unwrap(), place());
    for (name, path, words) in pages {
        let url = format!("{home}{path}");
        let dom = browser.dom(&url, DESK).unwrap();
        assert!(dom.contains(words), "{name}: {dom}");
        for (kind, look) in
            [("light", DESK), ("dark", Look { dark: true, ..DESK }), ("phone", PHONE)]
        {
            let picture = place.join(format!("{name}-{kind}.png"));
            browser.picture(&url, look, &picture).unwrap();
            assert!(std::fs::read(&picture).unwrap().starts_with(b"\x89PNG"), "{name}-{kind}");
        }
    }
    let first = pages.first().map_or("/", |(_, path, _)| path);
    let asked = asked(&browser, &format!("{home}{first}"), !events.is_empty());
    assert!(asked.iter().any(|address| address.contains("/assets/style-")), "{asked:?}");
    let live = asked.iter().any(|address| address.contains("/events"));
    assert_eq!(live, !events.is_empty(), "{asked:?}");
    assert!(!live || asked.iter().any(|address| address.contains(events)), "{asked:?}");
    let outside: Vec<_> = asked.iter().filter(|address| !address.starts_with(home)).collect();
    assert!(outside.is_empty(), "asked outside of this node: {outside:?}");
}
