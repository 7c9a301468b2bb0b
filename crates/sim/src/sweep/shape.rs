//! Sizes of the versions of a shot.

use super::random::CellRandom;
use crate::workload::made_up_sizes;
use std::fmt;

/// The change of sizes over a shot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Uniform,
    /// Made up in the shape of recorded sizes.
    MadeUp,
    /// The sizes of the recorded shot at this place of the list.
    Recorded(usize),
    /// From a tenth of the mean to 1.9 times.
    Growing,
    Shrinking,
    /// Any size from 2% to 198% of the mean.
    Random,
    /// Small sizes and sizes that are eight times as large. The large ones are a tenth to a half of all.
    Bimodal,
    /// From a thousandth of the largest on, each octave as likely as any other.
    Thousandfold,
}

impl Shape {
    pub(super) const ALL: [Self; 6] = [
        Self::Uniform,
        Self::MadeUp,
        Self::Growing,
        Self::Shrinking,
        Self::Random,
        Self::Bimodal,
    ];

    /// The shapes of wide cells.
    pub(super) const WIDE: [Self; 6] = [
        Self::Uniform,
        Self::Growing,
        Self::Shrinking,
        Self::Random,
        Self::Bimodal,
        Self::Thousandfold,
    ];

    /// Takes one of the recorded shots in place of made-up sizes, if there are any.
    pub(super) fn among(self, recorded: &[Vec<u64>], seed: u64) -> Self {
        match (self, recorded.len()) {
            (Self::MadeUp, shots @ 1..) => Self::Recorded((seed % shots as u64) as usize),
            _ => self,
        }
    }

    /// Returns `count` sizes that together are about `total` bytes.
    pub(super) fn sizes(
        self,
        count: usize,
        total: u64,
        seed: u64,
        recorded: &[Vec<u64>],
    ) -> Vec<u64> {
        let mut random = CellRandom::of(seed, 0);
        let step = |version: usize| (version as f64 + 0.5) / count as f64;
        let weights: Vec<f64> = match self {
            Self::MadeUp => return made_up_sizes(count, total, seed),
            Self::Uniform => vec![1.0; count],
            Self::Recorded(shot) => {
                let sizes = recorded.get(shot).map_or(&[][..], Vec::as_slice);
                let of = |version| sizes.get(version * sizes.len() / count);
                (0..count)
                    .map(|at| of(at).map_or(1.0, |&bytes| bytes as f64))
                    .collect()
            }
            Self::Growing => (0..count).map(|at| 0.1 + 1.8 * step(at)).collect(),
            Self::Shrinking => (0..count).map(|at| 1.9 - 1.8 * step(at)).collect(),
            Self::Random => (0..count)
                .map(|_| 0.02 + random.below(1_961) as f64 / 1e3)
                .collect(),
            Self::Bimodal => {
                let large = 10 + random.below(41);
                let size = |is_large| if is_large { 8.0 } else { 1.0 };
                (0..count)
                    .map(|_| size(random.below(100) < large))
                    .collect()
            }
            Self::Thousandfold => (0..count)
                .map(|_| random.logarithmic(1_000, 1_000_000) as f64)
                .collect(),
        };
        let sum: f64 = weights.iter().sum();
        let bytes = weights.iter().map(|weight| total as f64 * weight / sum);
        bytes.map(|bytes| bytes.max(1.0) as u64).collect()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::MadeUp => write!(f, "made-up"),
            Self::Recorded(shot) => write!(f, "recorded({shot})"),
            Self::Growing => write!(f, "growing"),
            Self::Shrinking => write!(f, "shrinking"),
            Self::Random => write!(f, "random"),
            Self::Bimodal => write!(f, "bimodal"),
            Self::Thousandfold => write!(f, "thousandfold"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_shape_and_sum() {
        let recorded = vec![vec![10, 20, 30, 40]];
        let sizes = |shape: Shape| shape.sizes(200, 2_000_000, 3, &recorded);
        for shape in Shape::ALL {
            let sum: u64 = sizes(shape).iter().sum();
            assert!(sum.abs_diff(2_000_000) <= 200, "{shape}: {sum}");
        }
        assert_eq!(sizes(Shape::Uniform), [10_000; 200]);
        assert!(sizes(Shape::Growing).is_sorted());
        assert!(sizes(Shape::Shrinking).iter().rev().is_sorted());
        let mut two = sizes(Shape::Bimodal);
        two.sort_unstable();
        two.dedup();
        assert_eq!(two.len(), 2);
        assert!(two[1].abs_diff(8 * two[0]) < 8);
        assert!(!sizes(Shape::Random).is_sorted());
        let taken = Shape::MadeUp.among(&recorded, 7);
        assert_eq!(taken, Shape::Recorded(0));
        assert_eq!((sizes(taken)[0], sizes(taken)[199]), (4_000, 16_000));
        assert_eq!(Shape::MadeUp.among(&[], 7), Shape::MadeUp);
    }
}
