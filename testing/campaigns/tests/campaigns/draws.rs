//! Numbers that follow from a seed, and the campaign's variables.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, LazyLock, Mutex};
use std::thread::available_parallelism;
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

/// Returns true once this process has run for `TIERFLOW_SECONDS`: what runs then goes to its end, and nothing else begins.
pub(crate) fn is_over() -> bool {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGUN.elapsed().as_secs() >= variable("TIERFLOW_SECONDS", u64::MAX)
}

/// Room for a history among those of all campaigns that run, which get it in turn; given back when this is dropped.
struct Room;

/// Histories that asked for room, and those that gave it back.
struct Turns {
    asked: usize,
    ended: usize,
}

static TURNS: (Mutex<Turns>, Condvar) = (Mutex::new(Turns { asked: 0, ended: 0 }), Condvar::new());

fn most_at_a_time() -> usize {
    let cores = available_parallelism().map_or(2, usize::from);
    variable("TIERFLOW_JOBS", cores)
}

impl Room {
    fn wait() -> Self {
        let mut turns = TURNS.0.lock().unwrap();
        let (turn, most) = (turns.asked, most_at_a_time());
        turns.asked += 1;
        let is_early = |turns: &mut Turns| turn >= turns.ended + most;
        drop(TURNS.1.wait_while(turns, is_early).unwrap());
        Self
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        TURNS.0.lock().unwrap().ended += 1;
        TURNS.1.notify_all();
    }
}

/// Calls `history` with each of `count` seeds for each case, `TIERFLOW_JOBS` at a time, until the campaigns are over.
pub(crate) fn each_seed<C: Copy + Sync>(count: u64, cases: &[C], history: impl Fn(u64, C) + Sync) {
    let first: u64 = variable("TIERFLOW_SEED", 1);
    let (next, most) = (AtomicU64::new(0), count * cases.len() as u64);
    std::thread::scope(|scope| {
        for _ in 0..most_at_a_time() {
            scope.spawn(|| {
                loop {
                    let _room = Room::wait();
                    let number = next.fetch_add(1, Relaxed);
                    if number >= most || is_over() {
                        return;
                    }
                    let case = cases[number as usize % cases.len()];
                    history(first + number / cases.len() as u64, case);
                }
            });
        }
    });
}
