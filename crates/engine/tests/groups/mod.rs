//! Ranks as threads.

/// Calls `each` with every rank at the same time, and returns the results.
pub(crate) fn together<T: Send>(ranks: u32, each: impl Fn(u32) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = (0..ranks)
            .map(|rank| scope.spawn(move || each(rank)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(Result::unwrap).collect()
    })
}
