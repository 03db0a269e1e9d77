//! `guild key`

use guild_protocol::env::Signer;
use guild_protocol::identity::SecretKey;
use serde::Serialize;

use super::Context;
use crate::error::Result;
use crate::keystore::{self, Keystore};
use crate::output::Answer;
use crate::real::SystemRandom;

/// Make and look at the identity of this node
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    New(NewArgs),
    Show(ShowArgs),
}

/// Make a new identity and write it to the keystore
///
/// One secret gives a Nostr key and an EVM address. The keystore is readable by you alone, and never overwritten.
#[derive(Debug, clap::Args)]
pub(crate) struct NewArgs {
    /// Encrypt the secret with a passphrase (asked for twice, or read from GUILD_PASSPHRASE_FILE)
    #[arg(long)]
    passphrase: bool,
}

/// Print the public names of this node's identity
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// Show the identity that this role has on this node, such as provider or buyer
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// Print the secret too (nsec)
    #[arg(long)]
    secret: bool,
}

#[derive(Serialize)]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    npub: String,
    public_key: String,
    evm_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    nsec: Option<String>,
    keystore: std::path::PathBuf,
    encrypted: bool,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::New(args) => new(args, cx),
        Command::Show(args) => show(args, cx),
    }
}

fn new(args: &NewArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let path = Keystore::path(&cx.config()?);
    Keystore::refuse_existing(&path)?;
    let passphrase = keystore::new_passphrase(args.passphrase, cx.environment)?;
    let keystore = Keystore::create(&path, &SystemRandom, passphrase.as_deref())?;
    print(&public_half(&keystore, path), cx)?;
    let advice = match keystore.is_encrypted() {
        true => {
            "Keep a copy of the keystore and of the passphrase: without either the identity is lost."
        }
        false => {
            "Keep a copy of the keystore: it is the identity, and whoever has it can act as you."
        }
    };
    cx.out.remark(advice);
    Ok(Answer::Yes)
}

fn show(args: &ShowArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let path = Keystore::path(&cx.config()?);
    let keystore = Keystore::read(&path)?;
    let mut body = public_half(&keystore, path);
    if args.role.is_some() || args.secret {
        let mut key = keystore.unlock(cx.environment)?;
        if let Some(role) = &args.role {
            key = key.role(role)?;
        }
        body.role = args.role.clone();
        body.npub = key.public_key().npub();
        body.public_key = key.public_key().hex();
        body.evm_address = key.evm_address();
        body.nsec = secret(args, &key)?;
    }
    if body.nsec.is_some() {
        cx.out.remark("warning: whoever sees the nsec can act as this identity, for ever.");
    }
    print(&body, cx)?;
    Ok(Answer::Yes)
}

fn secret(args: &ShowArgs, key: &SecretKey) -> Result<Option<String>> {
    Ok(if args.secret { Some(key.nsec()?) } else { None })
}

fn public_half(keystore: &Keystore, path: std::path::PathBuf) -> Body {
    Body {
        role: None,
        npub: keystore.public_key.npub(),
        public_key: keystore.public_key.hex(),
        evm_address: keystore.evm_address.clone(),
        nsec: None,
        keystore: path,
        encrypted: keystore.is_encrypted(),
    }
}

fn print(body: &Body, cx: &mut Context<'_>) -> Result<()> {
    if cx.out.json() {
        return cx.out.object(true, body);
    }
    let protection = if body.encrypted { "encrypted" } else { "not encrypted" };
    let keystore = format!("{} ({protection})", body.keystore.display());
    let mut fields = Vec::new();
    if let Some(role) = &body.role {
        fields.push(("role", role.as_str()));
    }
    fields.push(("npub", &body.npub));
    fields.push(("public key", &body.public_key));
    fields.push(("EVM address", &body.evm_address));
    if let Some(nsec) = &body.nsec {
        fields.push(("nsec", nsec));
    }
    fields.push(("keystore", &keystore));
    cx.out.fields(&fields)
}
