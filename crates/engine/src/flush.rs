//! When copies are flushed.

/// When copies are flushed to the tier below. Whoever is blocked, or waits for all flushes, is served whatever this says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Flush {
    /// As soon as they are written, as in the papers: for histories that are to reach the lowest tier in any case.
    Eager,
    /// Once their tier is fuller than this share, whatever is known of what comes. A history that stays below costs no
    /// transfer; one that does not has the rest of the tier to hide them behind.
    Above {
        /// Percent of the tier's usable capacity; 100 and more flushes only for those who wait.
        percent: u8,
    },
    /// As soon as they are written, unless all that is foreseen fits their tier: then not at all.
    ///
    /// A history is foreseen where its versions were hinted before the first of them was written: what is still to be written
    /// takes as many times the size of a version; where sizes differ, sixteen times the largest one, as they may grow. Else it
    /// is expected to be at most an eighth larger than the one before, if there was any. A history ends when nothing of it is
    /// held any more.
    #[default]
    Foreseen,
}
