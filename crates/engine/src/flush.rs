//! When versions are written to the lowest tier.

/// When versions are written to the lowest tier. A call that is blocked, or waits for all of them, is served whatever this says. Tiers that outlive the engine take
/// each version at once with either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Flush {
    /// As soon as a link is free for them: for histories that are to reach the lowest tier in any case.
    Eager,
    /// As far as they do not belong higher: a history that fits the caches is never written down. Early, while checkpoints
    /// are still to come, if what is held and what is hinted may not fit.
    #[default]
    Needed,
}
