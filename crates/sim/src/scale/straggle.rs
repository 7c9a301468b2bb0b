//! GPUs that are slower than others now and then.

/// The slowdown of GPUs, drawn anew in each round. A GPU that is slowed down computes longer by a share of the interval,
/// which is exponentially distributed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Straggle {
    /// The probability that a GPU is slowed down in a round; 0 for never.
    pub probability: f64,
    /// Mean of the slowdowns, as a share of the interval.
    pub mean: f64,
}

impl Straggle {
    /// Returns the largest slowdown of `draws` GPUs, computed from one uniform number below 1.
    pub(super) fn largest_of(self, draws: u32, uniform: f64) -> f64 {
        if self.probability <= 0.0 {
            return 0.0;
        }
        // The share of GPUs with a larger slowdown, 1 - uniform^(1 / draws). The power itself may round to 1.
        let share = -(uniform.ln() / f64::from(draws)).exp_m1();
        let rest = share / self.probability;
        match rest < 1.0 {
            true => -self.mean * rest.ln(),
            false => 0.0,
        }
    }
}

/// Uniform numbers (SplitMix64).
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// Draws from [0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Draws from the exponential distribution; infinite if the mean is.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        match mean.is_finite() {
            true => -mean * (1.0 - self.uniform()).ln(),
            false => f64::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_slowdown_is_finite() {
        let straggle = Straggle {
            probability: 0.3,
            mean: 0.5,
        };
        let largest_draw = 1.0 - f64::EPSILON / 2.0;
        for draws in [1, 8, u32::MAX] {
            let largest = straggle.largest_of(draws, largest_draw);
            assert!(largest.is_finite() && largest > 0.0, "{draws}: {largest}");
            assert_eq!(straggle.largest_of(draws, 0.0), 0.0);
        }
    }

    #[test]
    fn the_largest_of_a_nodes_draws_is_one_draw() {
        let straggle = Straggle {
            probability: 0.3,
            mean: 0.5,
        };
        let mut random = Random(1);
        let count = 200_000;
        let one: f64 = (0..count)
            .map(|_| straggle.largest_of(8, random.uniform()))
            .sum();
        let each: f64 = (0..count)
            .map(|_| {
                let draws = (0..8).map(|_| straggle.largest_of(1, random.uniform()));
                draws.fold(0.0, f64::max)
            })
            .sum();
        assert!((one / each - 1.0).abs() < 0.01, "{one} {each}");
    }
}
