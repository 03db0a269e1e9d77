//! Another shape, from the API through the desk to what runs.

use serde_json::{Value, json};

use super::shop::Shop;

/// Holds so much memory, and says so.
fn holds(mib: u32, then: &str) -> Value {
    let code = format!(
        "import time; x = bytearray({mib} << 20); x[::4096] = b'1' * len(x[::4096]); print('held', flush=True); {then}"
    );
    json!({"argv": ["python3", "-c", code]})
}

/// Whether so much fits.
fn fits(shop: &Shop, sandbox: &str, mib: u32) -> bool {
    let exec = shop.exec(sandbox, &holds(mib, ""));
    shop.frames(&exec).iter().any(|frame| frame["data_b64"] == "aGVsZAo=")
}

#[test]
fn another_shape_reaches_what_runs_and_a_write_that_fails_leaves_it_as_it_was() {
    let shop = Shop::open(&[]);
    let (_, sandbox) = shop.sandbox();
    let at = format!("{sandbox}/resize");
    let shown = || shop.get(&sandbox).1;
    let before = shown();
    assert_eq!(before["ram_mib"], 512, "{before}");
    let shape = |ram_mib: u32| json!({"version": shown()["version"], "ram_mib": ram_mib});

    // What gets less gets less at once.
    let (status, resized) = shop.post_as("shape", &at, &shape(300));
    if status != 200 {
        // This host cannot, and says by which layer; nothing has changed then.
        assert_eq!(resized["error"]["code"], "hosting.machine_cannot", "{resized}");
        assert!(resized["error"]["message"].as_str().unwrap().contains("cgroup_"), "{resized}");
        assert_eq!(shown()["version"], before["version"]);
        shop.close();
        return;
    }
    assert_eq!(resized["price_micro_usd_per_minute"], 919, "{resized}");
    let (again, same) =
        shop.post_as("shape", &at, &json!({"version": before["version"], "ram_mib": 300}));
    assert_eq!((again, &same["version"]), (200, &resized["version"]), "the same again");

    // A key that was used for another shape: something was taken away already, and is given back.
    let (status, refused) = shop.post_as("shape", &at, &shape(150));
    assert_eq!((status, &refused["error"]["code"]), (422, &json!("access.idempotency_mismatch")));
    assert_eq!(shown()["version"], resized["version"]);
    assert!(fits(&shop, &sandbox, 220), "what was taken away for it was given back");

    // What is in use is not taken away, and nothing is changed for it.
    let holder = shop.exec(&sandbox, &holds(200, "time.sleep(1000)"));
    assert_eq!(shop.opened(&holder).next().unwrap()["data_b64"], "aGVsZAo=");
    let (_, refused) = shop.post(&at, &shape(150));
    assert_eq!(refused["error"]["code"], "hosting.machine_cannot", "{refused}");
    assert_eq!(shown()["version"], resized["version"]);
    assert_eq!(shop.shell(&sandbox, "true").1["exit_code"], 0, "and everything goes on");
    assert_eq!(shop.post(&format!("{holder}/signal"), &json!({"signal": 9})).0, 204);
    shop.frames(&holder);

    // Last, because nobody survives it: there is no room any more for what fitted before.
    assert!(!fits(&shop, &sandbox, 400), "the shape has not reached what runs");
    shop.close();
}
