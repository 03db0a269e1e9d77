//! The small part of protobuf that blocks use, in its one normal form: shortest varints, no groups, no 64-bit fields.

/// Why the bytes are refused; the caller knows the place and the code.
pub(super) type Parsed<T> = Result<T, &'static str>;

/// The value of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> Parsed<u64> {
        match self {
            Value::Varint(number) => Ok(number),
            _ => Err("a field that holds a number is of another type"),
        }
    }

    pub(super) fn bytes(self) -> Parsed<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err("a field that holds bytes is of another type"),
        }
    }
}

/// The fields of one message, in the order in which they stand.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { rest: message }
    }

    /// The number and the value of the next field.
    pub(super) fn next(&mut self) -> Parsed<Option<(u64, Value<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 0b111 {
            0 => Value::Varint(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                Value::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = <[u8; 4]>::try_from(self.take(4)?).unwrap_or_default();
                Value::Fixed32(u32::from_le_bytes(bytes))
            }
            _ => return Err("a field has an unknown wire type"),
        };
        Ok(Some((tag >> 3, value)))
    }

    fn take(&mut self, length: usize) -> Parsed<&'a [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or("a field is longer than its message")?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Parsed<u64> {
        let mut number = 0u64;
        for place in 0u32..10 {
            let (&byte, rest) = self.rest.split_first().ok_or("a number is cut off")?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                break;
            }
            number |= bits << place.saturating_mul(7);
            if byte & 0x80 == 0 {
                // A last byte of zero adds nothing: the number has a shorter form.
                return if byte == 0 && place > 0 {
                    Err("a number is not in its shortest form")
                } else {
                    Ok(number)
                };
            }
        }
        Err("a number does not fit into 64 bits")
    }
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = (number & 0x7f).to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low);
        }
        out.push(low | 0x80);
    }
}

/// How many bytes [`put_varint`] writes.
pub(super) fn varint_bytes(number: u64) -> u64 {
    let bits = 64u64.saturating_sub(u64::from(number.leading_zeros()));
    bits.div_ceil(7).max(1)
}

pub(super) fn put_number(out: &mut Vec<u8>, field: u8, number: u64) {
    out.push(field << 3);
    put_varint(out, number);
}

pub(super) fn put_fixed32(out: &mut Vec<u8>, field: u8, number: u32) {
    out.push((field << 3) | 5);
    out.extend_from_slice(&number.to_le_bytes());
}

/// The tag and the length; the bytes must follow.
pub(super) fn put_length(out: &mut Vec<u8>, field: u8, length: u64) {
    out.push((field << 3) | 2);
    put_varint(out, length);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    put_length(out, field, byte_count(bytes));
    out.extend_from_slice(bytes);
}

/// The length as numbers in blocks are.
pub(super) fn byte_count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(message: &[u8]) -> Parsed<Vec<(u64, Value<'_>)>> {
        let mut fields = Fields::of(message);
        let mut all = Vec::new();
        while let Some(field) = fields.next()? {
            all.push(field);
        }
        Ok(all)
    }

    #[test]
    fn only_the_shortest_numbers_are_read() {
        let max = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(read_all(&max), Ok(vec![(1, Value::Varint(u64::MAX))]));
        for (bad, why) in [
            (&[0x08u8, 0x80, 0x00][..], "a number is not in its shortest form"),
            (&[0x88, 0x00, 0x01], "a number is not in its shortest form"),
            (&[0x08, 0x80], "a number is cut off"),
            (&[0x08], "a number is cut off"),
            (&[0x0a, 0x02, 0x00], "a field is longer than its message"),
            (&[0x0d, 1, 2, 3], "a field is longer than its message"),
            (&[0x09, 1, 2, 3, 4, 5, 6, 7, 8], "a field has an unknown wire type"),
            (&[0x0b], "a field has an unknown wire type"),
            (
                &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
                "a number does not fit into 64 bits",
            ),
        ] {
            assert_eq!(read_all(bad), Err(why), "{bad:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read(number: u64, shift in 0u32..64, fixed: u32, bytes: Vec<u8>) {
            let number = number >> shift;
            let mut out = Vec::new();
            put_varint(&mut out, number);
            prop_assert_eq!(byte_count(&out), varint_bytes(number));
            out.clear();
            put_number(&mut out, 1, number);
            put_fixed32(&mut out, 2, fixed);
            put_bytes(&mut out, 3, &bytes);
            let expected =
                vec![(1, Value::Varint(number)), (2, Value::Fixed32(fixed)), (3, Value::Bytes(&bytes))];
            prop_assert_eq!(read_all(&out), Ok(expected));
        }
    }
}
