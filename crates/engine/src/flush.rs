//! When copies are flushed.

/// When copies are flushed to the tier below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flush {
    /// As soon as they are written, as in the papers: for histories that are to reach the lowest tier in any case.
    Eager,
    /// Once their tier is fuller than this share. A history that fits costs no transfer at all, and one that does not
    /// has the rest of the tier to hide them behind.
    Above {
        /// Percent of the tier's capacity; 100 and more flushes only for those who wait.
        percent: u8,
    },
}

impl Default for Flush {
    /// Above half.
    fn default() -> Self {
        Self::Above { percent: 50 }
    }
}

impl Flush {
    pub(crate) fn above(self, capacity: u64) -> u64 {
        match self {
            Self::Eager => 0,
            Self::Above { percent } => capacity / 100 * u64::from(percent.min(100)),
        }
    }
}
