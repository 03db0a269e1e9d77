//! Machines: two nodes on one PostgreSQL, each with a name of its own; images that stay what they were.

use testbed::Database;

use super::{HOSTING, good, text};
use crate::key::KEYSTORE;
use crate::node::Node;
use crate::support::Home;

#[test]
fn other_files_under_a_version_are_refused() {
    let (home, tree) = (Home::new(), Home::new());
    let file = tree.write("bin", "one");
    let at = format!("hosting.images=base:v1.0.0={}", tree.path().display());
    let up = |image: &str| home.run(&[&["up"], &HOSTING[..], &["--set", image]].concat());
    assert_eq!(Node::up(&home, &[&HOSTING[..], &["--set", &at]].concat()).stop(), 0);
    std::fs::write(&file, "two").unwrap();
    let refused = up(&at);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("hosting.image_changed"), "{refused:?}");
    // As it was again, also by its digest, and by no other.
    std::fs::write(&file, "one").unwrap();
    let digest = guild_hosting::machine::image::tree_digest(tree.path()).unwrap();
    let named = format!("{at}@{digest}");
    assert_eq!(Node::up(&home, &[&HOSTING[..], &["--set", &named]].concat()).stop(), 0);
    let refused = up(&format!("{at}@sha256:{}", "0".repeat(64)));
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("hosting.image_changed"), "{refused:?}");
    assert!(refused.stderr.contains(&digest.to_string()), "{refused:?}");
    assert_ne!(up(&format!("{at}@sha256:12")).code, 0);
}

#[test]
fn two_nodes_of_one_database_need_two_names() {
    let database = Database::new().unwrap();
    let home = || Home::new().with("GUILD_STORE_URL", &database.url());
    let (first, second, buyer) = (home(), home(), Home::new());
    // They are one to others, so they have one identity.
    assert_eq!(first.run(&["key", "new"]).code, 0);
    second.copy_private(&first, KEYSTORE);
    let node = Node::up(&first, &HOSTING);
    let refused = second.run(&[&["up"], &HOSTING[..]].concat());
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("hosting.machine_taken"), "{refused:?}");
    assert!(refused.stderr.contains("set hosting.machine to another name"), "{refused:?}");

    // A sandbox of the first goes on whatever the second does.
    let url = format!("http://{}", node.address());
    good(&buyer, &["key", "new"]);
    let user_id = text(&good(&buyer, &["login", "--host", &url]), "user_id");
    good(&first, &["billing", "credit", &user_id, "10c", "--reference", "wire 1"]);
    let job_id = text(&good(&buyer, &["job", "create", "--budget", "5c"]), "job_id");
    let id = text(&good(&buyer, &["sandbox", "create", &job_id]), "sandbox_id");
    let named = [&HOSTING[..], &["--set", "hosting.machine=second"]].concat();
    let other = Node::up(&second, &named);
    assert_eq!(buyer.run(&["sandbox", "exec", &id, "--", "true"]).code, 0);
    assert_eq!(other.stop(), 0);
    // Whoever was killed has its machine again at once.
    node.kill();
    let node = Node::up(&first, &HOSTING);
    let url = format!("http://{}", node.address());
    good(&buyer, &["login", "--host", &url]);
    assert_eq!(text(&good(&buyer, &["sandbox", "show", &id]), "status"), "running");
    good(&buyer, &["sandbox", "destroy", &id]);
    let wrong = [&["up"], &HOSTING[..], &["--set", "hosting.machine=Not One"]].concat();
    assert_ne!(second.run(&wrong).code, 0);
    node.stop();
}
