//! The policies side by side in virtual time, with stores whose bandwidth is shared evenly among those who
//! use them. The tests show that the decisions are right for such stores, not how fast real ones are.

use crate::store::writes;
use tierflow_benches::papers::veloc::{
    CacheOnly, ChunkFlush, ChunkPlacement, ChunkWrite, HybridNaive, HybridRoom, SsdOnly,
};
use tierflow_placement::stores::{Calibration, ShortestWait, Store, StorePolicy};

const CHUNK: u64 = 64_000_000;
/// Flushes at once.
const MOST_FLUSHES: usize = 4;

/// Bytes per second of so many writers together.
type Throughput = fn(f64) -> f64;

/// In bytes per second, and chunks.
struct World {
    writers: u64,
    chunks_each: u64,
    cache_chunks: usize,
    external: f64,
    cache: Throughput,
    ssd: Throughput,
    /// The factor of the SSD's calibration: 1 if it is right.
    wrong_by: f64,
}

/// An SSD that is best at 16 writers (IPDPS'19, Figures 3 and 5).
fn ssd(writers: f64) -> f64 {
    let rising = writers / (writers + 2.0);
    700e6 * rising / (1.0 + (writers / 150.0).powi(2))
}

fn cache(writers: f64) -> f64 {
    20e9 * writers / (writers + 1.0)
}

/// A chunk on its way, to a store or to the external storage.
enum Way {
    ToStore(ChunkWrite),
    ToExternal(ChunkFlush),
}

struct Job {
    left: f64,
    way: Way,
}

struct Outcome {
    /// When the last chunk was written, and when the last one was flushed, in seconds.
    written: f64,
    flushed: f64,
    to_ssd: u64,
}

impl World {
    fn calibrated(&self, of: Throughput) -> Calibration {
        let samples: Vec<_> = (0..=18).map(|at| of(f64::from(1 + 10 * at))).collect();
        Calibration::new(1, 10, &samples).unwrap()
    }

    fn misjudged(&self, of: Throughput) -> Calibration {
        let samples = (0..=18).map(|at| of(f64::from(1 + 10 * at)) * self.wrong_by);
        Calibration::new(1, 10, &samples.collect::<Vec<_>>()).unwrap()
    }

    fn run(&self, policy: impl StorePolicy + 'static) -> Outcome {
        let all = (self.writers * self.chunks_each) as usize;
        // The ideal has room for everything.
        let room = if policy.name() == "cache-only" {
            all
        } else {
            self.cache_chunks
        };
        let stores = vec![
            Store::new(self.calibrated(self.cache), room),
            Store::new(self.misjudged(self.ssd), all),
        ];
        let mut plan = ChunkPlacement::new(CHUNK, stores, Box::new(policy)).unwrap();
        let mut to_write = vec![self.chunks_each; self.writers as usize];
        let (mut jobs, mut now) = (Vec::<Job>::new(), 0.0);
        for producer in 0..self.writers {
            plan.announce(producer, self.chunks_each * CHUNK);
        }
        for producer in 0..self.writers {
            plan.ask(producer, CHUNK, 0);
            begin(&mut plan, now, &mut jobs);
        }
        let mut outcome = Outcome {
            written: 0.0,
            flushed: 0.0,
            to_ssd: 0,
        };
        loop {
            let rates: Vec<_> = jobs.iter().map(|job| self.rate(job, &jobs)).collect();
            let next = jobs.iter().zip(&rates).map(|(job, rate)| job.left / rate);
            let Some(step) = next.min_by(f64::total_cmp) else {
                break;
            };
            now += step;
            for (job, rate) in jobs.iter_mut().zip(rates) {
                job.left -= rate * step;
            }
            // Fractions of a byte are done, too.
            let done: Vec<_> = jobs.extract_if(.., |job| job.left < 1.0).collect();
            for job in done {
                match job.way {
                    Way::ToExternal(flushing) => {
                        outcome.flushed = now;
                        plan.flushed(nanoseconds(now), flushing);
                    }
                    Way::ToStore(writing) => {
                        let producer = writing.chunk.producer;
                        outcome.written = now;
                        outcome.to_ssd += writing.chunk.store as u64;
                        plan.written(nanoseconds(now), writing);
                        let left = &mut to_write[producer as usize];
                        *left -= 1;
                        if *left > 0 {
                            plan.ask(producer, CHUNK, 0);
                        }
                    }
                }
                begin(&mut plan, now, &mut jobs);
            }
        }
        assert!(to_write.iter().all(|left| *left == 0));
        assert_eq!(plan.flushed_bytes(), all as u64 * CHUNK);
        outcome
    }

    /// Bytes per second of one job beside the others.
    fn rate(&self, job: &Job, jobs: &[Job]) -> f64 {
        let store = |job: &Job| match &job.way {
            Way::ToStore(writing) => Some(writing.chunk.store),
            Way::ToExternal(_) => None,
        };
        let is_like = |other: &&Job| store(other) == store(job);
        let sharing = jobs.iter().filter(is_like).count() as f64;
        match store(job) {
            None => self.external / sharing,
            Some(0) => (self.cache)(sharing) / sharing,
            Some(_) => (self.ssd)(sharing) / sharing,
        }
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Begins what can begin after an event.
fn begin(plan: &mut ChunkPlacement, now: f64, jobs: &mut Vec<Job>) {
    let mut ways: Vec<_> = writes(plan, nanoseconds(now))
        .into_iter()
        .map(Way::ToStore)
        .collect();
    let flushes = jobs
        .iter()
        .filter(|job| matches!(job.way, Way::ToExternal(_)))
        .count();
    let started = (flushes..MOST_FLUSHES).map_while(|_| plan.next_flush(nanoseconds(now)));
    ways.extend(started.map(Way::ToExternal));
    jobs.extend(ways.into_iter().map(|way| Job {
        left: CHUNK as f64,
        way,
    }));
}

fn world(writers: u64, external: f64) -> World {
    World {
        writers,
        chunks_each: 1024 / writers,
        cache_chunks: 32,
        external,
        cache,
        ssd,
        wrong_by: 1.0,
    }
}

/// As in IPDPS'19, Figure 4, where the external storage is faster than a crowded SSD.
#[test]
fn hybrid_room_avoids_an_ssd_that_is_slower_than_the_flushes() {
    for writers in [64, 128] {
        let world = world(writers, 1.5e9);
        let (best, opt) = (world.run(CacheOnly), world.run(HybridRoom));
        let (naive, worst) = (world.run(HybridNaive), world.run(SsdOnly));
        let order = [
            best.written,
            opt.written * 1.2,
            naive.written,
            worst.written,
        ];
        assert!(order.is_sorted(), "{writers}: {order:?}");
        assert!(opt.flushed <= naive.flushed);
        // Before the first flush has ended nothing is known of flushes: one chunk for each producer.
        assert_eq!(opt.to_ssd, writers);
        assert!(naive.to_ssd > 600, "{}", naive.to_ssd);
    }
}

#[test]
fn hybrid_room_uses_the_ssd_where_flushes_are_slow() {
    for writers in [16, 64, 128] {
        let world = world(writers, 0.2e9);
        let (opt, naive) = (world.run(HybridRoom), world.run(HybridNaive));
        assert!(opt.to_ssd > 900, "{}", opt.to_ssd);
        assert!(opt.written <= naive.written * 1.001);
    }
}

/// The SSD is slower than flushes for one writer and faster for 16: a rule that compares it with flushes never begins to use it.
#[test]
fn shortest_wait_uses_both_where_hybrid_room_waits_for_one() {
    let world = world(16, 0.5e9);
    let (wait, opt) = (world.run(ShortestWait), world.run(HybridRoom));
    assert!(
        wait.written * 1.3 < opt.written,
        "{} {}",
        wait.written,
        opt.written
    );
}

/// Chunks that did not stay in the cache went to the SSD, which does 650 MB/s at its best, or were flushed.
#[test]
fn shortest_wait_is_behind_neither_of_the_hybrids() {
    for writers in [16, 64, 128] {
        for external in [0.2e9, 0.5e9, 0.8e9, 1.5e9, 6e9] {
            let world = world(writers, external);
            let (opt, naive) = (world.run(HybridRoom), world.run(HybridNaive));
            let wait = world.run(ShortestWait);
            let hybrids = opt.written.min(naive.written);
            let case = format!("{writers} {external}: {} {hybrids}", wait.written);
            assert!(wait.written <= hybrids, "{case}");
            assert!(wait.written * 1.2 <= naive.written, "{case}");
            // The others crowd the SSD before they know how fast flushes are.
            if writers == 16 {
                let bound = (1024 - 32) as f64 * CHUNK as f64 / (external + 650e6);
                assert!(wait.written <= bound * 1.1, "{case} {bound}");
            }
        }
    }
}

/// Alone before a cache of one chunk, a producer that waits for each flush writes and flushes in turn.
#[test]
fn shortest_wait_keeps_both_stores_at_work_for_one_producer() {
    // In bytes per second: the cache, the SSD, the flushes.
    let worlds: [([Throughput; 2], f64); 4] = [
        ([|_| 0.5e9, |_| 0.2e9], 0.3e9),
        ([|_| 2e9, |_| 1e9], 1.5e9),
        ([|_| 1e9, |_| 0.3e9], 0.5e9),
        ([|_| 5e9, |_| 1.5e9], 2e9),
    ];
    for ([cache, ssd], external) in worlds {
        let world = World {
            chunks_each: 64,
            cache_chunks: 1,
            cache,
            ssd,
            ..world(1, external)
        };
        let (wait, naive) = (world.run(ShortestWait), world.run(HybridNaive));
        let case = format!("{external}: {} {}", wait.written, naive.written);
        assert!(wait.written <= naive.written * 1.02, "{case}");
        assert!(wait.flushed <= naive.flushed * 1.02, "{case}");
    }
}

/// An SSD that is worn, or was calibrated while others used it: the hybrids go on believing in it.
#[test]
fn shortest_wait_finds_out_that_a_calibration_is_wrong() {
    // The SSD is never used though flushes are slower, and is used though they are faster.
    let misleading = [(0.2, 0.2e9), (4.0, 1.5e9)];
    for (wrong_by, external) in [(0.2, 1.5e9), (4.0, 0.2e9)].into_iter().chain(misleading) {
        let right = world(64, external);
        let wrong = World {
            wrong_by,
            ..world(64, external)
        };
        let naive = right.run(HybridNaive).written;
        let best = right.run(HybridRoom).written.min(naive);
        let (wait, opt) = (
            wrong.run(ShortestWait).written,
            wrong.run(HybridRoom).written,
        );
        assert!(wait <= best * 1.05, "{wrong_by} {external}: {wait} {best}");
        if misleading.contains(&(wrong_by, external)) {
            assert!(opt > best * 1.5, "{wrong_by} {external}: {opt} {best}");
        }
    }
}
