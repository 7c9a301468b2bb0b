//! The units that edges carry by a time, without a division for each.

use super::{Edge, UNLIMITED};
use crate::ExactTime;

/// A time as a fixed-point number of units. A unit is a part of a grain; a grain has 2^`shift` units.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    time: ExactTime,
    shift: u32,
    /// All units of the problem: no edge needs to carry more.
    most: u64,
    /// Whole units in the time at one byte per second.
    whole: u64,
    /// The rest of a unit, in 2^64ths, rounded down.
    fraction: u64,
}

impl Carried {
    /// Makes the time for a problem of `total` grains. `total` · 2^`shift` must be below 2^63.
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

    /// Returns the units that an edge carries by the time. Exact if `shift` is 0, else at most one unit too low.
    pub(crate) fn through(&self, edge: &Edge) -> u64 {
        let volume = match edge.volume {
            // A volume above all units sets no limit.
            volume if volume > self.most >> self.shift => self.most,
            volume => volume << self.shift,
        };
        match edge.bandwidth {
            UNLIMITED => volume,
            bandwidth => volume.min(self.at(bandwidth)),
        }
    }

    /// Returns the units that an edge without a volume carries by the time, as exact as [`through`](Self::through).
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

    /// Returns the units at one byte per second as a float.
    pub(crate) fn about(&self) -> f64 {
        self.time.as_secs_f64() * self.units()
    }

    /// Returns the number of units in a grain.
    pub(crate) fn units(&self) -> f64 {
        (1_u64 << self.shift) as f64
    }
}
