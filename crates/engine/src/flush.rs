//! The time at which versions are written to the lowest tier.

/// The time at which versions are written to the lowest tier. With both choices, the engine flushes for a call that is blocked or
/// that waits for all versions. Also with both, tiers that outlive the engine get each version at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Flush {
    /// Writes a version as soon as a link is free: for histories that will reach the lowest tier in any case.
    Eager,
    /// Writes versions that do not belong on a higher tier: a history that fits the caches is never written down. While checkpoints
    /// are still to come, writes early if the held and the hinted versions together may not fit.
    #[default]
    Needed,
}
