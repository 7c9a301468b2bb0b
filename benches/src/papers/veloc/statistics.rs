/// Counts of a backend. Bytes that were asked for are flushed, on a store, or still waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes asked for.
    pub asked_bytes: u64,
    /// Bytes written to each local store.
    pub written_bytes: Vec<u64>,
    /// Bytes that reached the external storage by a flush.
    pub flushed_bytes: u64,
    /// Nanoseconds that producers waited for a store, added up.
    pub waited_ns: u128,
    /// Chunks that were given a store that the policy would have waited for, as nothing was there to
    /// wait for.
    pub forced: u64,
}
