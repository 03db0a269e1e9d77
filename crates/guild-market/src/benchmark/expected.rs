//! What the functions of `std-v3` give, computed here: no program of a provider is ever asked what is right.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

/// The details in which one task differs from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) start: i64,
    pub(super) factor: i64,
    pub(super) modulus: i64,
    pub(super) miss: i64,
    /// Whether reading makes an entry young again.
    pub(super) touches: bool,
    pub(super) separator: char,
    pub(super) comment: char,
    pub(super) keeps_first: bool,
    pub(super) count_first: bool,
}

pub(super) fn checksum(variant: &Variant, numbers: &[i64]) -> i64 {
    numbers.iter().fold(variant.start, |sum, number| {
        let next = sum.saturating_mul(variant.factor).saturating_add(*number);
        next.checked_rem_euclid(variant.modulus).unwrap_or(0)
    })
}

pub(super) fn count_pairs(numbers: &[i64], target: i64) -> i64 {
    let mut seen: BTreeMap<i64, i64> = BTreeMap::new();
    let mut pairs = 0_i64;
    for number in numbers {
        let wanted = target.saturating_sub(*number);
        pairs = pairs.saturating_add(seen.get(&wanted).copied().unwrap_or(0));
        let count = seen.entry(*number).or_default();
        *count = count.saturating_add(1);
    }
    pairs
}

/// An operation on the cache: a key alone reads, with a value it writes.
pub(super) type Operation = (String, Option<i64>);

pub(super) fn cache_trace(
    variant: &Variant,
    capacity: usize,
    operations: &[Operation],
) -> Vec<i64> {
    let mut entries: VecDeque<(&str, i64)> = VecDeque::new();
    let mut read = Vec::new();
    for (key, value) in operations {
        let at = entries.iter().position(|(known, _)| known == key);
        match (value, at) {
            (None, None) => read.push(variant.miss),
            (None, Some(at)) => {
                let value = entries.get(at).map_or(variant.miss, |(_, value)| *value);
                read.push(value);
                renew(variant, &mut entries, at);
            }
            (Some(value), Some(at)) => {
                if let Some(entry) = entries.get_mut(at) {
                    entry.1 = *value;
                }
                renew(variant, &mut entries, at);
            }
            (Some(value), None) => {
                if entries.len() >= capacity {
                    entries.pop_front();
                }
                entries.push_back((key, *value));
            }
        }
    }
    read
}

fn renew(variant: &Variant, entries: &mut VecDeque<(&str, i64)>, at: usize) {
    if variant.touches
        && let Some(entry) = entries.remove(at)
    {
        entries.push_back(entry);
    }
}

pub(super) fn window_max(numbers: &[i64], width: usize) -> Vec<i64> {
    numbers.windows(width.max(1)).filter_map(|window| window.iter().max().copied()).collect()
}

/// The records of a text; nothing if a line is none.
pub(super) fn parse_records(variant: &Variant, text: &str) -> Option<Value> {
    let mut records = BTreeMap::new();
    for line in text.split('\n').map(str::trim) {
        if line.is_empty() || line.starts_with(variant.comment) {
            continue;
        }
        let (key, value) = line.split_once(variant.separator)?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() {
            return None;
        }
        if !(variant.keeps_first && records.contains_key(key)) {
            records.insert(key, value);
        }
    }
    Some(json!(records))
}

pub(super) fn encode_runs(variant: &Variant, text: &str) -> String {
    let mut runs: Vec<(char, usize)> = Vec::new();
    for letter in text.chars() {
        match runs.last_mut() {
            Some((same, count)) if *same == letter => *count = count.saturating_add(1),
            _ => runs.push((letter, 1)),
        }
    }
    let run = |(letter, count): (char, usize)| match variant.count_first {
        true => format!("{count}{letter}"),
        false => format!("{letter}{count}"),
    };
    runs.into_iter().map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant() -> Variant {
        Variant {
            start: 7,
            factor: 31,
            modulus: 1_009,
            miss: -1,
            touches: true,
            separator: '=',
            comment: '#',
            keeps_first: false,
            count_first: false,
        }
    }

    #[test]
    fn they_give_what_a_person_computes() {
        let lru = variant();
        assert_eq!(checksum(&lru, &[]), 7);
        assert_eq!(checksum(&lru, &[1, -5]), ((7 * 31 + 1) * 31 - 5) % 1_009);
        assert_eq!(count_pairs(&[1, 2, 3, 2], 4), 2);
        assert_eq!(count_pairs(&[2, 2, 2], 4), 3);
        let op = |key: &str, value: Option<i64>| (key.to_owned(), value);
        let operations = [
            op("a", Some(1)),
            op("b", Some(2)),
            op("a", None),
            op("c", Some(3)),
            op("b", None),
            op("a", None),
        ];
        assert_eq!(cache_trace(&lru, 2, &operations), [1, -1, 1]);
        let fifo = Variant { touches: false, ..variant() };
        assert_eq!(cache_trace(&fifo, 2, &operations), [1, 2, -1]);
        assert_eq!(window_max(&[1, 3, 2, 5], 2), [3, 3, 5]);
        assert_eq!(
            parse_records(&lru, "# x\n a = 1\n\nb=2=3\na=4").unwrap(),
            json!({"a": "4", "b": "2=3"})
        );
        let first = Variant { keeps_first: true, ..variant() };
        assert_eq!(parse_records(&first, "a=1\na=4").unwrap(), json!({"a": "1"}));
        assert_eq!([parse_records(&lru, "a"), parse_records(&lru, " = 1")], [None, None]);
        assert_eq!(encode_runs(&lru, "aaab"), "a3b1");
        assert_eq!(encode_runs(&Variant { count_first: true, ..variant() }, "aaab"), "3a1b");
    }
}
