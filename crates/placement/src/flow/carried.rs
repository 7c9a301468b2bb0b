//! The units that edges carry by a time, without a division for each.

use super::{Edge, UNLIMITED};
use crate::ExactTime;

/// A time as a fixed-point number of units: parts of a grain, of which there are 2^`shift` in each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    time: ExactTime,
    shift: u32,
    /// No edge needs to carry more than all units that there are.
    most: u64,
    /// Units in the time at one byte per second, in 2^64ths, rounded down.
    whole: u64,
    fraction: u64,
}

impl Carried {
    /// For `total` grains; `total` · 2^`shift` stays below 2^63.
    pub(crate) fn by(time: ExactTime, shift: u32, total: u64) -> Self {
        let units = u128::from(time.numerator()) << shift;
        let denominator = u128::from(time.denominator());
        let (whole, rest) = (units / denominator, units % denominator);
        Self {
            time,
            shift,
            most: total << shift,
            whole: u64::try_from(whole).unwrap_or(u64::MAX),
            fraction: ((rest << 64) / denominator) as u64,
        }
    }

    /// Returns the units that an edge carries: exactly if these are whole grains, else perhaps one unit less.
    pub(crate) fn through(&self, edge: &Edge) -> u64 {
        let volume = match edge.volume {
            // Too large a volume is none.
            volume if volume > self.most >> self.shift => self.most,
            volume => volume << self.shift,
        };
        match edge.bandwidth {
            UNLIMITED => volume,
            bandwidth => volume.min(self.at(bandwidth)),
        }
    }

    /// The same of an edge that has a bandwidth alone.
    pub(crate) fn at(&self, bandwidth: u64) -> u64 {
        let part = (u128::from(bandwidth) * u128::from(self.fraction)) >> 64;
        let carried = u128::from(bandwidth) * u128::from(self.whole) + part;
        let carried = carried.min(u128::from(self.most)) as u64;
        if self.shift > 0 {
            return carried;
        }
        let product = u128::from(bandwidth) * u128::from(self.time.numerator());
        let next = u128::from(carried + 1) * u128::from(self.time.denominator());
        (carried + u64::from(next <= product)).min(self.most)
    }

    /// The same, as good as 64-bit floating point is.
    pub(crate) fn about(&self) -> f64 {
        self.time.as_secs_f64() * self.units()
    }

    /// How many units make a grain.
    pub(crate) fn units(&self) -> f64 {
        (1_u64 << self.shift) as f64
    }
}
