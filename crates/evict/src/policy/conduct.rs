/// Which of the copies that wait to be flushed goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushOrder {
    /// The one that was written first (HPDC'23, §4.3.2).
    #[default]
    Written,
    /// As long as hints tell copies apart: where all are of one size, the one that the policy would give up first, were all
    /// flushed. Where sizes differ, runs of copies that were written together, as these lie together and their room is of
    /// use together; of several runs the first, unless readers would wait less for another.
    Evicted,
}

/// What a policy wants of the transfers around a cache. Which copies can be given up depends on which were flushed, and
/// what it costs on how they come back, so the one who judges evictions has a say in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Conduct {
    /// What is flushed first.
    pub flush_order: FlushOrder,
    /// Whether room that nobody claims is filled with unread versions that no hint names, while the links have nothing
    /// better to do. Only where versions are discarded once they are restored, so that all of them will be wanted.
    pub guesses: bool,
    /// Whether flushes rest while the application only restores versions that are discarded then, unless somebody waits for
    /// room: what is flushed would have to be read back, and takes the disk's time twice.
    pub rests: bool,
    /// Whether what is restored first stays in the fastest cache from its write on, with a part of that cache set aside for
    /// it: the reader finds it there, and the caches below have the time that it takes to bring up what follows. Where
    /// sizes differ and versions are discarded once they are restored.
    pub keeps_next: bool,
    /// Whether a flush that would push something out of the cache below waits until its own cache is short of room: what lies
    /// in both is counted twice, and what was pushed out has to come back.
    pub holds_back: bool,
}

impl Conduct {
    /// As in HPDC'23: flushes in the order of writes, at any time, and prefetches of what is hinted alone.
    pub const HPDC23: Self = Self {
        flush_order: FlushOrder::Written,
        guesses: false,
        rests: false,
        keeps_next: false,
        holds_back: false,
    };
}
