//! The form of canonical JSON that earlier systems wrote, kept to check their old hashes.
//!
//! It sorts keys by UTF-8 bytes, writes them **unescaped**, keeps 64-bit integers and prints floats as `1.0` and
//! `1e+16`. Unescaped keys let two different objects share a text (`{"a\":1,\"b":2}` and `{"a":1,"b":2}`), so an
//! object with a key that needs escaping is refused. Nothing that Guildhall signs uses this form.

use std::borrow::Cow;

use super::{Doc, Limits, code, parse, write};
use crate::hash::{Hash, shorten};
use crate::{Error, Result};

/// The legacy text of a JSON text.
pub fn to_legacy(text: &[u8]) -> Result<Vec<u8>> {
    let doc = parse::parse(text, Limits::default(), parse::Integers::Any)?;
    let mut out = Vec::with_capacity(text.len());
    legacy(&doc, &mut out)?;
    Ok(out)
}

/// The hash over the legacy text of a JSON text.
pub fn hash_text(text: &[u8]) -> Result<Hash> {
    Ok(Hash::of(&to_legacy(text)?))
}

fn legacy(doc: &Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
    match doc {
        Doc::Number(written) => out.extend_from_slice(number(written)?.as_bytes()),
        Doc::Null | Doc::Bool(_) | Doc::Text(_) => write::canonical(doc, out),
        Doc::Array(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                legacy(item, out).map_err(|e| e.within(&format!("[{i}]")))?;
            }
            out.push(b']');
        }
        Doc::Object(members) => object(members, out)?,
    }
    Ok(())
}

fn object(members: &[(Cow<'_, str>, Doc<'_>)], out: &mut Vec<u8>) -> Result<()> {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
    out.push(b'{');
    for (i, (key, value)) in sorted.into_iter().enumerate() {
        if key.bytes().any(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)) {
            let short = shorten(key);
            let message =
                format!("the key {short:?} needs escaping, which the legacy form does not do");
            return Err(Error::new(&code::LEGACY_KEY, message));
        }
        if i > 0 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
        legacy(value, out).map_err(|e| e.within(&shorten(key)))?;
    }
    out.push(b'}');
    Ok(())
}

fn number(written: &str) -> Result<Cow<'_, str>> {
    let integer = !written.bytes().any(|b| matches!(b, b'.' | b'e' | b'E'));
    let kept = written.parse::<u64>().is_ok() || written.parse::<i64>().is_ok();
    if integer && kept && written != "-0" {
        return Ok(Cow::Borrowed(written));
    }
    let float = rough_float(written);
    if !float.is_finite() {
        let message = format!("{} was too large for the old parser", shorten(written));
        return Err(Error::new(&code::NOT_FINITE, message));
    }
    Ok(Cow::Owned(print_float(float)))
}

/// The float that the old parser made of a literal. It is not always the nearest one: the digits were read into a
/// 64-bit integer, further digits dropped, and the result multiplied or divided once by a power of ten.
fn rough_float(written: &str) -> f64 {
    let (sign, rest) = match written.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, written),
    };
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut significand = 0u64;
    let beyond = if exponent.starts_with('-') { i32::MIN } else { i32::MAX };
    let mut power = exponent.parse::<i32>().unwrap_or(beyond);
    let mut full = false;
    for digit in whole.bytes() {
        match push_digit(significand, digit).filter(|_| !full) {
            Some(next) => significand = next,
            None => {
                full = true;
                power = power.saturating_add(1);
            }
        }
    }
    for digit in fraction.bytes() {
        let Some(next) = push_digit(significand, digit).filter(|_| !full) else { break };
        significand = next;
        power = power.saturating_sub(1);
    }
    // Zero stays zero, whatever its exponent.
    if significand == 0 { sign * 0.0 } else { sign * scale(significand, power) }
}

fn push_digit(significand: u64, digit: u8) -> Option<u64> {
    significand.checked_mul(10)?.checked_add(u64::from(digit.checked_sub(b'0')?))
}

#[expect(clippy::cast_precision_loss, reason = "the old parser rounded here too")]
fn scale(significand: u64, power: i32) -> f64 {
    let ten_to = |n: u32| format!("1e{n}").parse::<f64>().unwrap_or(f64::INFINITY);
    let (mut float, mut power) = (significand as f64, power);
    while power < -308 && float != 0.0 {
        float /= 1e308;
        power = power.saturating_add(308);
    }
    if power >= 0 {
        float * ten_to(power.unsigned_abs())
    } else {
        float / ten_to(power.unsigned_abs())
    }
}

/// Shortest digits; a point and at least one decimal between 1e-5 and 1e16, else an exponent with its sign.
fn print_float(float: f64) -> String {
    let sign = if float.is_sign_negative() { "-" } else { "" };
    let (digits, exponent) = shortest_digits(float.abs());
    let after_first = digits.get(1..).unwrap_or_default();
    let point_after = usize::try_from(exponent).map(|e| e.saturating_add(1));
    match point_after {
        // The point stands inside the digits, or zeros are added up to it.
        Ok(point) if point <= 16 => {
            let whole = format!("{:0<point$}", digits.get(..point).unwrap_or(&digits));
            let fraction = digits.get(point..).filter(|f| !f.is_empty()).unwrap_or("0");
            format!("{sign}{whole}.{fraction}")
        }
        Err(_) if exponent >= -5 => {
            let zeros = usize::try_from(exponent.saturating_add(1).unsigned_abs()).unwrap_or(0);
            format!("{sign}0.{}{digits}", "0".repeat(zeros))
        }
        _ => {
            let first = digits.get(..1).unwrap_or("0");
            let point = if after_first.is_empty() { "" } else { "." };
            let plus = if exponent > 0 { "+" } else { "" };
            format!("{sign}{first}{point}{after_first}e{plus}{exponent}")
        }
    }
}

/// The shortest digits that read back as `float`, and the exponent of the first one. Of two equally short ones the
/// nearer, then the even: the standard library decides a tie differently, so its printer cannot be used.
fn shortest_digits(float: f64) -> (String, i32) {
    let mut buffer = ryu_js::Buffer::new();
    let text = buffer.format(float);
    let (mantissa, power) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let leading_zeros = all.len().saturating_sub(digits.len());
    if digits.is_empty() {
        return ("0".to_owned(), 0);
    }
    let before_point = i32::try_from(whole.len()).unwrap_or(0);
    let skipped = i32::try_from(leading_zeros).unwrap_or(0).saturating_add(1);
    let exponent =
        power.parse::<i32>().unwrap_or(0).saturating_add(before_point).saturating_sub(skipped);
    (digits.trim_end_matches('0').to_owned(), exponent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5_000) })]

        /// The printer against the library that the old systems used.
        #[test]
        fn floats_print_as_the_old_library_prints_them(float in any::<f64>()) {
            prop_assume!(float.is_finite());
            prop_assert_eq!(print_float(float), serde_json::to_string(&float).unwrap());
        }

        #[test]
        fn ordinary_floats_too(whole in -1_000_000i64..1_000_000, scale in -12i32..25) {
            let float = format!("{whole}e{scale}").parse::<f64>().unwrap();
            prop_assert_eq!(print_float(float), serde_json::to_string(&float).unwrap());
        }
    }
}
