//! A message from its text, and back.

use std::iter::Peekable;
use std::str::Split;

use super::{Field, MAX_BYTES, MAX_RESOURCES, Malformed, Message, Time, grammar};

const WANTS: &str = " wants you to sign in with your Ethereum account:";
const RESOURCES: &str = "Resources:";

/// What the lines of the second half begin with, in their order.
const LABELS: [(Field, &str); 9] = [
    (Field::Uri, "URI: "),
    (Field::Version, "Version: "),
    (Field::ChainId, "Chain ID: "),
    (Field::Nonce, "Nonce: "),
    (Field::IssuedAt, "Issued At: "),
    (Field::ExpirationTime, "Expiration Time: "),
    (Field::NotBefore, "Not Before: "),
    (Field::RequestId, "Request ID: "),
    (Field::Resources, RESOURCES),
];

type Read<T> = Result<T, Malformed>;

fn must(good: bool, field: Field, reason: &'static str) -> Read<()> {
    if good { Ok(()) } else { Err(Malformed { field, reason }) }
}

/// Each line, without its end. Whatever else ends lines elsewhere is an ordinary character here, and allowed in no
/// field.
struct Lines<'a>(Peekable<Split<'a, char>>);

impl<'a> Lines<'a> {
    /// The next line, of a field that must be there.
    fn next(&mut self, field: Field) -> Read<&'a str> {
        self.0.next().ok_or(Malformed { field, reason: "is missing" })
    }

    fn empty(&mut self, field: Field, reason: &'static str) -> Read<()> {
        must(self.next(field)?.is_empty(), field, reason)
    }

    /// What follows the label of a field, if that is the next line.
    fn optional(&mut self, field: Field) -> Option<&'a str> {
        let rest = self.0.peek()?.strip_prefix(label(field))?;
        self.0.next();
        Some(rest)
    }

    fn required(&mut self, field: Field) -> Read<&'a str> {
        match self.optional(field) {
            Some(rest) => Ok(rest),
            None => Err(self.unexpected(field)),
        }
    }

    /// What is wrong with the next line, where this field was expected.
    fn unexpected(&mut self, expected: Field) -> Malformed {
        let known = self.0.peek().and_then(|line| {
            LABELS.iter().find(|(_, label)| line.starts_with(label)).map(|(field, _)| *field)
        });
        match known {
            Some(field) if field < expected => {
                Malformed { field, reason: "is there twice, or not in its place" }
            }
            _ => Malformed { field: expected, reason: "is missing, or not in its place" },
        }
    }
}

fn label(field: Field) -> &'static str {
    LABELS.iter().find(|(of, _)| *of == field).map_or("", |(_, label)| label)
}

pub(super) fn message(text: &str) -> Read<Message> {
    must(text.len() <= MAX_BYTES, Field::Message, "is longer than 8 KiB")?;
    let mut lines = Lines(text.split('\n').peekable());
    let (scheme, domain) = asker(lines.next(Field::Domain)?)?;
    let address = lines.next(Field::Address)?.parse();
    let address = address.map_err(|_| Malformed {
        field: Field::Address,
        reason: "is 0x and 40 hex digits with the checksum of EIP-55",
    })?;
    lines.empty(Field::Address, "is followed by an empty line")?;
    let message = Message {
        scheme,
        domain,
        address,
        statement: statement(&mut lines)?,
        uri: uri(&mut lines)?,
        chain_id: chain_id(&mut lines)?,
        nonce: lines.required(Field::Nonce)?.parse()?,
        issued_at: time(lines.required(Field::IssuedAt)?, Field::IssuedAt)?,
        expiration_time: optional_time(&mut lines, Field::ExpirationTime)?,
        not_before: optional_time(&mut lines, Field::NotBefore)?,
        request_id: request_id(&mut lines)?,
        resources: resources(&mut lines)?,
    };
    match lines.0.peek() {
        None => Ok(message),
        Some(_) => Err(match lines.unexpected(Field::Resources) {
            twice if twice.field != Field::Resources => twice,
            _ => {
                Malformed { field: Field::Message, reason: "goes on with a line of no known field" }
            }
        }),
    }
}

/// The first line: who asks for the signature.
fn asker(line: &str) -> Read<(Option<String>, String)> {
    let asker = line.strip_suffix(WANTS);
    let reason = "is followed by the words of the EIP, in one line";
    let asker = asker.ok_or(Malformed { field: Field::Domain, reason })?;
    let (scheme, domain) = match asker.split_once("://") {
        Some((scheme, domain)) => (Some(scheme), domain),
        None => (None, asker),
    };
    must(
        scheme.is_none_or(grammar::is_scheme),
        Field::Scheme,
        "is a letter, then letters, digits, +, - and .",
    )?;
    must(grammar::is_host_and_port(domain), Field::Domain, "is a host, and maybe a port")?;
    Ok((scheme.map(str::to_owned), domain.to_owned()))
}

/// The statement and the empty line behind it, or the empty line alone.
fn statement(lines: &mut Lines<'_>) -> Read<Option<String>> {
    let line = lines.next(Field::Statement)?;
    if line.is_empty() {
        return Ok(None);
    }
    let reason = "is one line of letters, digits, spaces and the signs of RFC 3986";
    must(grammar::is_statement(line), Field::Statement, reason)?;
    lines.empty(Field::Statement, "is followed by an empty line")?;
    Ok(Some(line.to_owned()))
}

/// The URI, and the version behind it.
fn uri(lines: &mut Lines<'_>) -> Read<String> {
    let uri = lines.required(Field::Uri)?;
    must(grammar::is_uri(uri), Field::Uri, "is a URI of RFC 3986")?;
    must(lines.required(Field::Version)? == "1", Field::Version, "is 1")?;
    Ok(uri.to_owned())
}

fn chain_id(lines: &mut Lines<'_>) -> Read<u64> {
    let digits = lines.required(Field::ChainId)?;
    // The standard reader takes a sign, and zeros before the number.
    let number: Option<u64> = digits.parse().ok();
    let number = number.filter(|number| number.to_string() == digits);
    number.ok_or(Malformed { field: Field::ChainId, reason: "is a whole number below 2^64" })
}

fn time(text: &str, field: Field) -> Read<Time> {
    let reason = "is a moment of RFC 3339, like 2026-01-15T08:30:00Z";
    grammar::time(text).ok_or(Malformed { field, reason })
}

fn optional_time(lines: &mut Lines<'_>, field: Field) -> Read<Option<Time>> {
    lines.optional(field).map(|text| time(text, field)).transpose()
}

fn request_id(lines: &mut Lines<'_>) -> Read<Option<String>> {
    let Some(id) = lines.optional(Field::RequestId) else { return Ok(None) };
    must(grammar::is_pchars(id), Field::RequestId, "has only characters that a path may have")?;
    Ok(Some(id.to_owned()))
}

fn resources(lines: &mut Lines<'_>) -> Read<Option<Vec<String>>> {
    let Some(rest) = lines.optional(Field::Resources) else { return Ok(None) };
    must(rest.is_empty(), Field::Resources, "has a line of its own for each")?;
    let mut all = Vec::new();
    while let Some(uri) = lines.0.peek().and_then(|line| line.strip_prefix("- ")) {
        must(grammar::is_uri(uri), Field::Resources, "are URIs of RFC 3986")?;
        must(all.len() < MAX_RESOURCES, Field::Resources, "are at most 32")?;
        all.push(uri.to_owned());
        lines.0.next();
    }
    Ok(Some(all))
}

pub(super) fn text(message: &Message) -> String {
    let scheme = message.scheme.as_ref().map(|scheme| format!("{scheme}://"));
    let mut lines = vec![
        format!("{}{}{WANTS}", scheme.unwrap_or_default(), message.domain),
        message.address.to_string(),
        String::new(),
    ];
    lines.extend(message.statement.clone());
    lines.push(String::new());
    let mut say = |field, value: &str| lines.push(format!("{}{value}", label(field)));
    say(Field::Uri, &message.uri);
    say(Field::Version, "1");
    say(Field::ChainId, &message.chain_id.to_string());
    say(Field::Nonce, message.nonce.reveal());
    say(Field::IssuedAt, &message.issued_at.text);
    if let Some(time) = &message.expiration_time {
        say(Field::ExpirationTime, &time.text);
    }
    if let Some(time) = &message.not_before {
        say(Field::NotBefore, &time.text);
    }
    if let Some(id) = &message.request_id {
        say(Field::RequestId, id);
    }
    if let Some(resources) = &message.resources {
        say(Field::Resources, "");
        lines.extend(resources.iter().map(|resource| format!("- {resource}")));
    }
    lines.join("\n")
}
