//! Random numbers of one choice: all of them follow from one seed, so a choice can be made again and looked at.

/// A generator (SplitMix64) that a seed decides. Good enough to choose by, and not for secrets.
///
/// ```
/// use guild_market::routing::Draws;
/// let (mut one, mut other) = (Draws::new(7), Draws::new(7));
/// assert_eq!(one.below(1_000), other.below(1_000));
/// ```
#[derive(Debug, Clone)]
pub struct Draws {
    state: u64,
}

impl Draws {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Draws {
        Draws { state: seed }
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below this one; zero of zero.
    pub fn below(&mut self, end: u64) -> u64 {
        let wide = u128::from(self.any()).wrapping_mul(u128::from(end));
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number above zero and at most one.
    pub fn unit(&mut self) -> f64 {
        ((self.any() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    /// A number of the normal distribution.
    fn normal(&mut self) -> f64 {
        // Marsaglia's polar method, without keeping the second number.
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }

    /// A number of the gamma distribution of this shape (Marsaglia and Tsang).
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            // Of the next shape, brought down.
            return self.gamma(shape + 1.0) * self.unit().powf(1.0 / shape.max(1e-6));
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// A number of the beta distribution: how often somebody does well, who did `good` times and did not `bad` times.
    pub fn beta(&mut self, good: f64, bad: f64) -> f64 {
        let (x, y) = (self.gamma(good.max(1e-3)), self.gamma(bad.max(1e-3)));
        if x + y > 0.0 { x / (x + y) } else { 0.5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_even() {
        let mut draws = Draws::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(draws.below(10)).unwrap()] += 1;
        }
        // The seed is fixed: this is not left to chance.
        assert!(counts.iter().all(|count| (9_700..10_300).contains(count)), "{counts:?}");
        assert_eq!(draws.below(0), 0);
        assert_eq!(draws.below(1), 0);
    }

    #[test]
    fn beta_has_its_mean_and_variance() {
        let mut draws = Draws::new(2);
        for (good, bad) in [(1.0, 1.0), (4.0, 2.0), (0.5, 0.5), (90.0, 10.0), (1_000.0, 30.0)] {
            let count = 50_000;
            let drawn: Vec<f64> = (0..count).map(|_| draws.beta(good, bad)).collect();
            assert!(drawn.iter().all(|x| (0.0..=1.0).contains(x)));
            let mean = drawn.iter().sum::<f64>() / f64::from(count);
            let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(count);
            let all: f64 = good + bad;
            let expected = good * bad / (all * all * (all + 1.0));
            assert!((mean - good / all).abs() < 0.01, "{good} {bad}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.05, "{good} {bad}: variance {variance}");
        }
    }
}
