//! Typed ids. One recipe for what is made: `prefix_` + a UUIDv7 in 32 hex digits, from the injected clock and
//! randomness, so ids sort by the time they were made. What *is* its content is named by its hash instead:
//! `prefix_` + 64 hex digits of SHA-256.

use crate::env::{Clock, Random};
use crate::hash::{Hash, shorten};
use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        BAD_ID = "id.malformed", Invalid,
            "An id does not have the form its type demands.",
            "Copy the id whole: a prefix, an underscore, and lower-case hex digits.";
    }
}

/// The 32 hex digits of a UUIDv7: 48 bits of Unix milliseconds, version, variant, 74 random bits.
pub fn uuid_v7_hex(clock: &dyn Clock, random: &dyn Random) -> String {
    let mut bytes = [0u8; 16];
    random.fill(&mut bytes);
    let ms = u64::try_from(clock.now_ms()).unwrap_or(0).to_be_bytes();
    for (to, from) in bytes.iter_mut().zip(ms.iter().skip(2)) {
        *to = *from;
    }
    if let Some(version) = bytes.get_mut(6) {
        *version = (*version & 0x0f) | 0x70;
    }
    if let Some(variant) = bytes.get_mut(8) {
        *variant = (*variant & 0x3f) | 0x80;
    }
    crate::hash::to_hex(&bytes)
}

/// Checks `text` against `prefix_` + `digits` lower-case hex digits.
pub fn check(text: &str, prefix: &str, digits: usize) -> Result<()> {
    let rest = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('_'));
    let hex = |rest: &str| rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    match rest {
        Some(rest) if rest.len() == digits && hex(rest) => Ok(()),
        _ => Err(Error::new(
            &code::BAD_ID,
            format!(
                "{:?} is not an id of the form {prefix}_ + {digits} lower-case hex digits",
                shorten(text)
            ),
        )),
    }
}

/// The text of a content-derived id.
pub fn of_content(prefix: &str, content: &Hash) -> String {
    format!("{prefix}_{}", content.hex())
}

/// Declares a typed id. `made` ids come from clock and randomness, `content` ids from a hash.
///
/// ```
/// use guild_protocol::{hash::Hash, typed_id};
/// typed_id! {
///     /// Names a parcel.
///     ParcelId = "parcel", content;
/// }
/// let id = ParcelId::of(&Hash::of(b"what is in it"));
/// assert_eq!(id.as_str().parse::<ParcelId>().unwrap(), id);
/// assert!("letter_00".parse::<ParcelId>().is_err());
/// ```
#[macro_export]
macro_rules! typed_id {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal, $recipe:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// What every such id begins with.
            pub const PREFIX: &'static str = $prefix;

            $crate::typed_id!(@constructor $recipe);

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::Error;
            fn from_str(text: &str) -> $crate::Result<Self> {
                $crate::id::check(text, $prefix, $crate::typed_id!(@digits $recipe))?;
                Ok(Self(text.to_owned()))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(from)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    )+};
    (@digits made) => { 32 };
    (@digits content) => { 64 };
    (@constructor made) => {
        /// A new id, from the injected clock and randomness.
        pub fn make(clock: &dyn $crate::env::Clock, random: &dyn $crate::env::Random) -> Self {
            Self(format!("{}_{}", Self::PREFIX, $crate::id::uuid_v7_hex(clock, random)))
        }
    };
    (@constructor content) => {
        /// The id of the thing with this content.
        pub fn of(content: &$crate::hash::Hash) -> Self {
            Self($crate::id::of_content(Self::PREFIX, content))
        }
    };
}

typed_id! {
    /// Names an entry of the audit log. Chosen by the writer, so that a repeated append is the same entry.
    EntryId = "entry", made;
    /// Names a receipt: the hash of its content.
    ReceiptId = "rcpt", content;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{BoxFuture, UnixMs};

    struct At(UnixMs);
    impl Clock for At {
        fn now_ms(&self) -> UnixMs {
            self.0
        }
        fn sleep(&self, _: i64) -> BoxFuture<()> {
            Box::pin(std::future::ready(()))
        }
    }
    struct Fixed(u8);
    impl Random for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    #[test]
    fn made_ids_carry_time_version_and_variant() {
        let id = EntryId::make(&At(0x0192_3456_789a), &Fixed(0xff));
        assert_eq!(id.as_str(), "entry_01923456789a7fffbfffffffffffffff");
        assert_eq!(id.as_str().parse::<EntryId>().unwrap(), id);
        assert!(EntryId::make(&At(1), &Fixed(0xff)) < EntryId::make(&At(2), &Fixed(0)));
    }

    #[test]
    fn foreign_forms_are_refused() {
        for bad in [
            "",
            "entry_",
            "entry_0192",
            "rcpt_01923456789a7fffbfffffffffffffff",
            "entry_01923456789A7fffbfffffffffffffff",
            "entry_01923456789a7fffbfffffffffffffff0",
        ] {
            assert_eq!(bad.parse::<EntryId>().unwrap_err().code(), &code::BAD_ID, "{bad}");
        }
    }
}
