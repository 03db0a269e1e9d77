//! What a minute of a sandbox costs: computed once, when it is bought.

use serde::{Deserialize, Serialize};

use crate::error::code;
use crate::{Error, Result};

/// What is bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Thousandths of a virtual processor.
    pub cpu_milli: i64,
    /// Memory.
    pub ram_mib: i64,
    /// Disk.
    pub disk_mib: i64,
}

impl Shape {
    /// What both of two shapes have.
    pub fn smaller(&self, other: &Shape) -> Shape {
        Shape {
            cpu_milli: self.cpu_milli.min(other.cpu_milli),
            ram_mib: self.ram_mib.min(other.ram_mib),
            disk_mib: self.disk_mib.min(other.disk_mib),
        }
    }
}

/// What a minute costs, in micro-USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// For each virtual processor.
    pub vcpu: i64,
    /// For each GiB of memory.
    pub ram_gib: i64,
}

impl Default for Rates {
    fn default() -> Rates {
        Rates { vcpu: 840, ram_gib: 270 }
    }
}

/// The price of a minute in micro-USD: exact, then rounded half up, at least 1.
///
/// ```
/// # use guild_hosting::price::{Rates, Shape, per_minute};
/// let shape = Shape { cpu_milli: 2_000, ram_mib: 4_096, disk_mib: 10_240 };
/// assert_eq!(per_minute(&Rates::default(), &shape)?, 2 * 840 + 4 * 270);
/// # Ok::<(), guild_hosting::Error>(())
/// ```
pub fn per_minute(rates: &Rates, shape: &Shape) -> Result<i64> {
    let all = [rates.vcpu, rates.ram_gib, shape.cpu_milli, shape.ram_mib, shape.disk_mib];
    if all.iter().any(|number| *number < 0) {
        return Err(Error::refused(&code::MALFORMED, "a shape and its rates are zero or more"));
    }
    // Both parts over one denominator, so that only the sum is rounded.
    const WHOLE: i128 = 1_000 * 1_024;
    let part = |rate: i64, count: i64, other: i128| {
        i128::from(rate).checked_mul(i128::from(count))?.checked_mul(other)
    };
    let price = || {
        let cpu = part(rates.vcpu, shape.cpu_milli, 1_024)?;
        let ram = part(rates.ram_gib, shape.ram_mib, 1_000)?;
        let rounded = cpu.checked_add(ram)?.checked_add(WHOLE / 2)?.checked_div(WHOLE)?;
        i64::try_from(rounded).ok()
    };
    match price() {
        Some(price) => Ok(price.max(1)),
        None => Err(Error::refused(&code::MALFORMED, "the price of this shape does not fit")),
    }
}

/// What so many minutes cost, if that fits.
pub fn of_minutes(price: i64, minutes: i64) -> Result<i64> {
    price.checked_mul(minutes).ok_or_else(|| {
        let message = format!("{minutes} minutes at {price} are more than fits");
        Error::refused(&code::MALFORMED, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(cpu_milli: i64, ram_mib: i64) -> i64 {
        let shape = Shape { cpu_milli, ram_mib, disk_mib: 1 };
        per_minute(&Rates::default(), &shape).unwrap()
    }

    #[test]
    fn the_sum_is_rounded_half_up_and_never_free() {
        assert_eq!(price(1_000, 1_024), 1_110);
        assert_eq!(price(500, 512), 555);
        assert_eq!(price(0, 0), 1);
        // 840 / 1000 is 0.84, and 270 / 1024 is 0.26…: each alone is one or nothing, together one.
        assert_eq!(price(1, 1), 1);
        // 0.84 · 250 = 210, 270 · 128 / 1024 = 33.75.
        assert_eq!(price(250, 128), 244);
        let half = Rates { vcpu: 1, ram_gib: 0 };
        let of = |cpu_milli| Shape { cpu_milli, ram_mib: 0, disk_mib: 0 };
        assert_eq!(per_minute(&half, &of(1_500)).unwrap(), 2);
        assert_eq!(per_minute(&half, &of(1_499)).unwrap(), 1);
        assert_eq!(per_minute(&half, &of(2_500)).unwrap(), 3);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let shape = |cpu_milli, ram_mib| Shape { cpu_milli, ram_mib, disk_mib: 1 };
        for bad in [shape(-1, 1), shape(1, i64::MIN), shape(i64::MAX, i64::MAX)] {
            let error = per_minute(&Rates::default(), &bad).unwrap_err();
            assert_eq!(error.code(), &code::MALFORMED, "{bad:?}");
        }
        assert_eq!(of_minutes(i64::MAX, 2).unwrap_err().code(), &code::MALFORMED);
        assert_eq!(of_minutes(1_110, 60).unwrap(), 66_600);
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]
        #[test]
        fn more_never_costs_less(cpu in 0..64_000_i64, ram in 0..1_000_000_i64, more in 0..10_000_i64) {
            proptest::prop_assert!(price(cpu + more, ram) >= price(cpu, ram));
            proptest::prop_assert!(price(cpu, ram + more) >= price(cpu, ram));
            // Rounded: at most half a unit away from the exact number.
            let exact = 840 * cpu * 1_024 + 270 * ram * 1_000;
            let off = price(cpu, ram) * 1_024_000 - exact;
            proptest::prop_assert!(price(cpu, ram) == 1 || (-512_000 < off && off <= 512_000));
        }
    }
}
