//! Numbers that follow from a seed, and the campaign's variables.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Numbers that look random, the same for the same seed: SplitMix64.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (word ^ (word >> 31)) % end
    }

    /// True once in `in_so_many`.
    pub(crate) fn once(&mut self, in_so_many: u64) -> bool {
        self.below(in_so_many) == 0
    }

    pub(crate) fn one_of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// A variable of the campaign's, or what it is by default.
pub(crate) fn variable<T: FromStr>(name: &str, default: T) -> T {
    let given = std::env::var(name);
    given.map_or(default, |text| {
        let parsed = text.parse();
        parsed.unwrap_or_else(|_| panic!("{name} = {text}"))
    })
}

/// Calls `history` with each seed of the campaign, `TIERFLOW_JOBS` at a time, and begins none after `TIERFLOW_SECONDS`.
pub(crate) fn each_seed(count: u64, history: impl Fn(u64) + Sync) {
    let first = variable("TIERFLOW_SEED", 1);
    let (next, run) = (AtomicU64::new(first), AtomicU64::new(0));
    let (begun, most) = (Instant::now(), variable("TIERFLOW_SECONDS", u64::MAX));
    std::thread::scope(|scope| {
        for _ in 0..variable("TIERFLOW_JOBS", 2) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= first + count || begun.elapsed().as_secs() >= most {
                        return;
                    }
                    history(seed);
                    run.fetch_add(1, Relaxed);
                }
            });
        }
    });
    println!("{} histories, from seed {first} on", run.into_inner());
}
