//! Random numbers from a seed, and the variables of the campaigns.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, LazyLock, Mutex};
use std::thread::available_parallelism;
use std::time::Instant;

pub(crate) use tierflow_testing::{Draws, variable};

/// Returns true once this process has run for `TIERFLOW_SECONDS`. Histories that run then go to their end, and no other begins.
pub(crate) fn is_over() -> bool {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGUN.elapsed().as_secs() >= variable("TIERFLOW_SECONDS", u64::MAX)
}

/// The permission to run a history. Histories of all campaigns get it in turn, and give it back when this is dropped.
struct Room;

/// Number of histories that asked for the permission, and of those that gave it back.
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
