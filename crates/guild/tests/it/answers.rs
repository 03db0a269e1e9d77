use std::io::Read;
use std::process::Stdio;

use insta::assert_snapshot;

use crate::support::Home;

#[test]
fn help_lists_the_commands() {
    let home = Home::new();
    assert_snapshot!(home.run(&["--help"]).shown(&home), @"
    exit 0
    --- stdout
    An open labour market and runtime for autonomous agents.

    Agents find each other, hire each other, do the work in metered sandboxes, have it judged, get paid,
    and leave a signed, replayable receipt of all of it.

    Exit codes: 0 yes, 1 the answer is no, 2 bad input, 3 could not find out.

    Usage: guild [OPTIONS] <COMMAND>

    Commands:
      demo           See the whole market at work, on this host alone
      up             Run this node until it is told to stop
      hire           Hire somebody for a job, check what comes back, and pay for it
      agent          Give work to an agent of your own
      turn           Look at the turns of agents; stop one, export one
      requests       Look at requests for work, seen, bought or done; give one up
      providers      Look at who offers work and how far it is trusted; meet one, or shut it out
      market         Look at the market as it is now
      benchmark      Look at the benchmarks that providers are met with, and try them
      route          Say who would be hired for which work, and why; look at the log of that
      budget         Say how much may be spent on which kind of work, by day and by month
      disputes       Disagree with the other side about a result: say why, answer, decide
      reviews        Look at what is said of providers, and what that is worth; publish a review
      receipts       List, check and export signed receipts
      log            Read and write the audit log
      ledger         Move, look at and prove the money of this node
      policy         Check, show and try policies: which payments go through; approve one
      audit          Check the books of this node, or evidence from its files alone
      evidence       Show strangers what became of some work
      outbox         Look at what must still leave this node, and try again what was given up
      store          Save, check and upgrade the database
      hash           Print the hash of a JSON document
      cid            Print the content id that IPFS gives a file
      content        Keep files and directories by the hash of their content, and get them from others
      relay          Publish events, ask for them, and look at the relays of others
      replay         Check, repair and convert replays, the record of what a session did
      blueprint      Check what a job must achieve
      judge          Judge a program by a suite of tests that it cannot see
      sandbox        Run programs that nobody trusts, here or in sandboxes bought by the minute
      sandbox-agent  Serve one sandbox over HTTP to the controller whose key is given
      login          Sign in at a node that sells sandboxes
      logout         Sign out of the node where you are signed in
      job            Make and follow jobs: spending windows in which sandboxes are bought
      billing        Look at your account at a node that sells sandboxes, and take money out
      schema         Look at job schemas and check documents against them
      key            Make and look at the identity of this node
      config         Look at the configuration
      doctor         Say what this host can and cannot do
      completions    Print a script that completes guild's commands in a shell
      help           Print this message or the help of the given subcommand(s)

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Global options:
          --json
              Answer with one JSON object on a line

          --data-dir <DIR>
              Where the node keeps its data [default: ~/.local/share/guildhall]

          --config <FILE>
              The configuration file [default: guild.toml in the data directory]

          --set <KEY=VALUE>
              Set one configuration key, as in `--set log.level=debug`; may be repeated

      -v, --verbose...
              Log more; may be repeated

      -q, --quiet...
              Log less; may be repeated
    ");
}

#[test]
fn no_command_is_a_mistake_that_shows_the_help() {
    let home = Home::new();
    let run = home.run(&[]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("Usage: guild"));
    let (code, answer) = home.json(&[]);
    assert_eq!((code, &answer["error"]["code"]), (2, &"cli.usage".into()));
}

#[test]
fn a_misspelt_command_gets_a_hint() {
    let home = Home::new();
    assert_snapshot!(home.run(&["hsh"]).shown(&home), @"
    exit 2
    --- stderr
    error[cli.usage]: unrecognized subcommand 'hsh'

      tip: a similar subcommand exists: 'hash'

    Usage: guild [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
}

#[test]
fn a_hash_does_not_depend_on_the_layout() {
    let home = Home::new();
    home.write("a.json", r#"{"b": 1.0, "a": "x"}"#);
    assert_snapshot!(home.run(&["hash", "a.json"]).shown(&home), @"
    exit 0
    --- stdout
    sha256:cdab067e9f3beb32d1252cfd63e492592fecbf591b0d08cadb24bb17f3864246
    ");
    let other = home.run_with_input(&["hash", "-"], br#"{"a":"x","b":1}"#);
    assert_eq!(other.stdout, home.run(&["hash", "a.json"]).stdout);
    assert_snapshot!(home.run(&["hash", "a.json", "--json"]).stdout, @r#"{"ok":true,"file":"a.json","form":"canonical","hash":"sha256:cdab067e9f3beb32d1252cfd63e492592fecbf591b0d08cadb24bb17f3864246"}"#);
}

#[test]
fn the_legacy_form_is_another_hash_and_refuses_what_it_cannot_say() {
    let home = Home::new();
    home.write("a.json", r#"{"b":1.0}"#);
    let (_, canonical) = home.json(&["hash", "a.json"]);
    let (_, legacy) = home.json(&["hash", "--legacy", "a.json"]);
    assert_eq!(legacy["form"], "legacy");
    assert_ne!(canonical["hash"], legacy["hash"]);
    home.write("b.json", r#"{"a\"":1}"#);
    let (code, refused) = home.json(&["hash", "--legacy", "b.json"]);
    assert_eq!((code, &refused["error"]["code"]), (2, &"json.legacy_key".into()));
}

#[test]
fn a_cid_is_the_one_that_ipfs_gives() {
    let home = Home::new();
    home.write("hello.txt", "hello world\n");
    // As `ipfs add` says for this best known of all files.
    let v0 = home.run(&["cid", "--cid-version", "0", "hello.txt"]);
    assert_eq!(v0.stdout, "QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o\n");
    assert_snapshot!(home.run(&["cid", "--json", "--wrap", "hello.txt"]).stdout, @r#"{"ok":true,"file":"hello.txt","cid":"bafybeidhkumeonuwkebh2i4fc7o7lguehauradvlk57gzake6ggjsy372a","content_bytes":12,"tree_bytes":69,"blocks":2,"wrapped_as":"hello.txt"}"#);
    let named = home.run_with_input(&["cid", "--wrap=hello.txt", "-"], b"hello world\n");
    assert_eq!(named.stdout, home.run(&["cid", "--wrap", "hello.txt"]).stdout);
    let (code, nameless) = home.json(&["cid", "--wrap", "-"]);
    assert_eq!((code, &nameless["error"]["code"]), (2, &"cli.usage".into()));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let home = Home::new();
    let mut child = home
        .command(&["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Close the pipe at once: the script is larger than what a pipe holds unread, or the write comes later.
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn an_answer_that_cannot_be_written_is_not_lost_silently() {
    let home = Home::new();
    home.write("a.json", "{}");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output =
        home.command(&["hash", "a.json"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("error[io.failed]: No space left on device"), "{stderr}");
}

#[test]
fn errors_are_said_twice_the_same_way() {
    let home = Home::new();
    home.write("bad.json", "{\"a\": 1,\n \"a\": 2}");
    assert_snapshot!(home.run(&["hash", "bad.json"]).shown(&home), @r#"
    exit 2
    --- stderr
    error[json.duplicate_key]: the key "a" stands twice
      --> bad.json, byte 17
    help: Remove one of the two.
    "#);
    let (_, answer) = home.json(&["hash", "bad.json"]);
    insta::assert_json_snapshot!(answer, @r#"
    {
      "error": {
        "at": "byte 17",
        "code": "json.duplicate_key",
        "file": "bad.json",
        "help": "Remove one of the two.",
        "kind": "invalid",
        "message": "the key \"a\" stands twice"
      },
      "ok": false
    }
    "#);
}

#[test]
fn there_is_a_completion_and_a_manual_page_for_everything() {
    let home = Home::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = home.run(&["completions", shell]);
        assert!(run.code == 0 && run.stdout.contains("doctor"), "{shell}");
    }
    let (code, answer) = home.json(&["generate", "completions", "--dir", "out"]);
    assert_eq!((code, answer["files"].as_array().unwrap().len()), (0, 5));
    let run = home.run(&["generate", "man", "--dir", "man"]);
    assert!(run.stdout.contains("man/guild.1\n") && run.stdout.contains("man/guild-key-new.1\n"));
    let page = std::fs::read_to_string(home.path().join("man/guild-key-new.1")).unwrap();
    assert!(page.contains("guild") && page.contains("passphrase"));
}
