//! EVM accounts: addresses with their checksum (EIP-55), and messages that people sign (EIP-191).

use std::fmt;
use std::str::FromStr;

use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use secp256k1::{Message, PublicKey, SECP256K1};
use sha3::{Digest, Keccak256};

use crate::hash::to_hex;
use crate::{Error, Result};

/// The codes of this module.
pub mod code {
    crate::codes! {
        BAD_ADDRESS = "evm.address_malformed", Invalid,
            "An EVM address is not 0x and 40 hex digits with the checksum of EIP-55.",
            "Copy the address whole, with its capital letters.";
        BAD_SIGNATURE = "evm.signature_malformed", Invalid,
            "An EVM signature is not 0x and 130 hex digits in the one form that is read.",
            "Send the 65 bytes that the wallet gives, as hex digits.";
        NO_SIGNER = "evm.no_signer", Invalid,
            "No account can have made this signature of this message.",
            "Sign exactly the bytes that are sent.";
    }
}

/// The Keccak-256 digest that EVM chains use.
pub fn keccak(bytes: &[u8]) -> [u8; 32] {
    Keccak256::digest(bytes).into()
}

/// The address of an account. Written with the mixed-case checksum of EIP-55, and read only so: one wrong character is
/// noticed.
///
/// ```
/// use guild_protocol::evm::Address;
/// let address: Address = "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf".parse().unwrap();
/// assert_eq!(address.to_string(), "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf");
/// assert!("0x7e5f4552091a69125d5dfcb7b8c2659029395bdf".parse::<Address>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address([u8; 20]);

impl Address {
    /// The address with these bytes.
    pub const fn from_bytes(bytes: [u8; 20]) -> Address {
        Address(bytes)
    }

    /// The 20 bytes.
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// The address of whoever has this key.
    pub(crate) fn of_key(key: &PublicKey) -> Address {
        let digest = keccak(key.serialize_uncompressed().get(1..).unwrap_or_default());
        let mut address = [0; 20];
        for (place, byte) in address.iter_mut().zip(digest.iter().skip(12)) {
            *place = *byte;
        }
        Address(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = to_hex(&self.0);
        let check = keccak(hex.as_bytes());
        let nibbles = check.iter().flat_map(|b| [b >> 4, b & 0x0f]);
        let cased = hex
            .chars()
            .zip(nibbles)
            .map(|(c, nibble)| if nibble >= 8 { c.to_ascii_uppercase() } else { c });
        write!(f, "0x{}", cased.collect::<String>())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Address {
    type Err = Error;
    fn from_str(text: &str) -> Result<Address> {
        let malformed = |message| Error::new(&code::BAD_ADDRESS, message);
        let bytes = bytes_of(text)
            .ok_or_else(|| malformed("an address is 0x and 40 hex digits"))
            .map(Address)?;
        if bytes.to_string() == text {
            return Ok(bytes);
        }
        Err(malformed("the capital letters of the address are not its checksum (EIP-55)"))
    }
}

/// The bytes of `0x` and exactly so many hex digits, small or capital.
fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.strip_prefix("0x")?;
    crate::hash::from_hex_exact(&digits.to_ascii_lowercase())
}

/// A signature of 65 bytes: r, s and which of the possible keys it is. Only the low form of s is read: of the two that
/// fit, no stranger can make the other.
///
/// It opens a door, so its `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(RecoverableSignature);

impl Signature {
    /// Reads r, s and v: 27 or 28, or 0 or 1 as some wallets write it.
    pub fn from_bytes(bytes: &[u8; 65]) -> Result<Signature> {
        let malformed = |message| Error::new(&code::BAD_SIGNATURE, message);
        let (rs, v) = bytes.split_at_checked(64).unwrap_or_default();
        let which = match v {
            [0 | 27] => RecoveryId::Zero,
            [1 | 28] => RecoveryId::One,
            _ => return Err(malformed("the last byte of a signature is 27 or 28, or 0 or 1")),
        };
        let signature = RecoverableSignature::from_compact(rs, which)
            .map_err(|_| malformed("r or s is not below the order of the curve"))?;
        let standard = signature.to_standard();
        let mut low = standard;
        low.normalize_s();
        if low != standard {
            return Err(malformed("s is in the upper half"));
        }
        Ok(Signature(signature))
    }

    /// The 65 bytes, ending in 27 or 28.
    pub fn to_bytes(&self) -> [u8; 65] {
        let (which, rs) = self.0.serialize_compact();
        let mut bytes = [if which == RecoveryId::Zero { 27 } else { 28 }; 65];
        for (place, byte) in bytes.iter_mut().zip(rs) {
            *place = byte;
        }
        bytes
    }

    /// `0x` and 130 hex digits, for the one who asked for the signature.
    pub fn hex(&self) -> String {
        format!("0x{}", to_hex(&self.to_bytes()))
    }

    /// Whoever signed this message by EIP-191's version 0x45, as wallets do for people.
    pub fn signer_of(&self, message: &[u8]) -> Result<Address> {
        let key = SECP256K1.recover_ecdsa(&digest(message), &self.0);
        key.map(|key| Address::of_key(&key))
            .map_err(|_| Error::new(&code::NO_SIGNER, "no key fits the signature"))
    }

    pub(crate) fn make(message: &[u8], key: &secp256k1::SecretKey) -> Signature {
        Signature(SECP256K1.sign_ecdsa_recoverable(&digest(message), key))
    }
}

impl FromStr for Signature {
    type Err = Error;
    fn from_str(text: &str) -> Result<Signature> {
        // The text is not repeated: whoever reads the message must not be able to use it.
        let malformed = || Error::new(&code::BAD_SIGNATURE, "a signature is 0x and 130 hex digits");
        Signature::from_bytes(&bytes_of(text).ok_or_else(malformed)?)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(…)")
    }
}

/// What is signed for a message (EIP-191): no transaction begins like this.
fn digest(message: &[u8]) -> Message {
    let mut signed = format!("\x19Ethereum Signed Message:\n{}", message.len()).into_bytes();
    signed.extend_from_slice(message);
    Message::from_digest(keccak(&signed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::SecretKey;

    fn one() -> SecretKey {
        format!("{:064x}", 1).parse().unwrap()
    }

    #[test]
    fn addresses_of_eip_55_are_read_and_others_refused() {
        for known in [
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
            "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        ] {
            let address: Address = known.parse().unwrap();
            assert_eq!(address.to_string(), known);
            let upper = format!("0x{}", known[2..].to_uppercase());
            for bad in
                [&known.to_lowercase(), &upper, &known[2..], &known[..41], &format!("{known}0")]
            {
                assert_eq!(bad.parse::<Address>().unwrap_err().code(), &code::BAD_ADDRESS, "{bad}");
            }
        }
    }

    #[test]
    fn a_signed_message_names_its_signer() {
        let signature = one().sign_message(b"hello");
        assert_eq!(signature.signer_of(b"hello").unwrap(), one().address());
        assert_ne!(signature.signer_of(b"hallo").ok(), Some(one().address()));
        assert_eq!(signature.hex().parse::<Signature>().unwrap(), signature);
        let mut small_v = signature.to_bytes();
        small_v[64] -= 27;
        assert_eq!(Signature::from_bytes(&small_v).unwrap(), signature);
        assert_eq!(format!("{signature:?}"), "Signature(…)");
    }

    #[test]
    fn what_is_not_in_the_one_form_is_refused() {
        const ORDER: [u8; 32] = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            0xff, 0xfe, 0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b, 0xbf, 0xd2, 0x5e, 0x8c,
            0xd0, 0x36, 0x41, 0x41,
        ];
        let good = one().sign_message(b"hello").to_bytes();
        // The other signature that fits the same key and message: order − s, and the other v.
        let mut high = good;
        let mut borrow = 0;
        for i in (0..32).rev() {
            let digit = i32::from(ORDER[i]) - i32::from(good[32 + i]) - borrow;
            borrow = i32::from(digit < 0);
            high[32 + i] = u8::try_from(digit.rem_euclid(256)).unwrap();
        }
        high[64] = 55 - good[64];
        let why = |bytes: &[u8; 65]| Signature::from_bytes(bytes).unwrap_err().to_string();
        assert_eq!(why(&high), "s is in the upper half");
        for v in [2, 3, 26, 29, 255] {
            let mut other = good;
            other[64] = v;
            assert!(why(&other).starts_with("the last byte"), "{v}");
        }
        let mut too_large = good;
        too_large[..32].copy_from_slice(&ORDER);
        assert!(why(&too_large).starts_with("r or s"));
        let text = one().sign_message(b"hello").hex();
        for bad in
            ["", "0x", &text[2..], &text[..130], &format!("{text}00"), &text.replace("0x", "0X")]
        {
            assert_eq!(bad.parse::<Signature>().unwrap_err().code(), &code::BAD_SIGNATURE);
        }
        assert!(
            Signature::from_bytes(&[0; 65]).is_err_and(|e| e.code() == &code::BAD_SIGNATURE)
                || Signature::from_bytes(&[0; 65]).unwrap().signer_of(b"").is_err()
        );
    }
}
