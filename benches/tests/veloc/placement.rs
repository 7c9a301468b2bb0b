//! The placement of chunks: what it decides.

use crate::store::{CHUNK, flat, flushes, writes};
use tierflow_benches::papers::veloc::{
    CacheOnly, ChunkPlacement, ChunkWrite, HybridNaive, HybridOpt, HybridRoom, SsdOnly,
};
use tierflow_placement::stores::{ShortestWait, Store, StorePolicy};

/// A cache of one chunk at 10 GB/s and an SSD of 100 at 0.5 GB/s.
fn plan(policy: impl StorePolicy + 'static) -> ChunkPlacement {
    plan_of([(10e9, 1), (0.5e9, 100)], policy)
}

/// Stores of so many bytes per second and chunks.
fn plan_of(stores: [(f64, usize); 2], policy: impl StorePolicy + 'static) -> ChunkPlacement {
    let stores = stores.map(|(throughput, chunks)| Store::new(flat(throughput), chunks));
    ChunkPlacement::new(CHUNK, stores.into(), Box::new(policy)).unwrap()
}

/// Lets these producers ask for a chunk each. Returns the writes that may begin.
fn ask(plan: &mut ChunkPlacement, now_ns: u64, producers: &[u64]) -> Vec<ChunkWrite> {
    for &producer in producers {
        plan.ask(producer, CHUNK, 0);
    }
    writes(plan, now_ns)
}

/// The producers with the stores that they write to.
fn places(writes: &[ChunkWrite]) -> Vec<(u64, usize)> {
    let writes = writes.iter().map(|writing| writing.chunk);
    writes.map(|chunk| (chunk.producer, chunk.store)).collect()
}

/// A chunk is written at once, and flushed from one time to another.
fn flush(plan: &mut ChunkPlacement, writing: ChunkWrite, from_ns: u64, until_ns: u64) {
    plan.written(from_ns, writing);
    let flushing = plan.next_flush(from_ns).unwrap();
    assert_eq!(flushing.chunk, writing.chunk);
    plan.flushed(until_ns, flushing);
}

/// Has the cache's chunk flushed in `flush_ns`, with two more producers that wait or not.
fn with_flushes_of(flush_ns: u64, policy: impl StorePolicy + 'static) -> Vec<(u64, usize)> {
    let mut plan = plan(policy);
    let first = ask(&mut plan, 0, &[1]);
    assert_eq!(places(&first), [(1, 0)]);
    flush(&mut plan, first[0], 0, flush_ns);
    places(&ask(&mut plan, flush_ns, &[2, 3, 4]))
}

#[test]
fn the_hybrids_wait_where_flushes_are_faster_than_the_ssd() {
    fn waits(policy: impl StorePolicy + Copy + 'static) {
        // 64 MiB in 64 ms are 1 GB/s.
        assert_eq!(with_flushes_of(64_000_000, policy), [(2, 0)]);
        // In 640 ms they are a fifth of the SSD's throughput.
        let slow = with_flushes_of(640_000_000, policy);
        assert_eq!(slow, [(2, 0), (3, 1), (4, 1)]);
    }
    waits(HybridOpt);
    waits(HybridRoom);
}

/// Algorithm 2 knows one average of all flushes. Here the cache's chunks take 64 ms, and the SSD's, read back, 640.
#[test]
fn hybrid_opt_counts_all_flushes_and_hybrid_room_those_that_make_room() {
    fn third(policy: impl StorePolicy + 'static) -> Vec<(u64, usize)> {
        let mut plan = plan(policy);
        let first = ask(&mut plan, 0, &[1, 2]);
        assert_eq!(places(&first), [(1, 0), (2, 1)]);
        flush(&mut plan, first[0], 0, 64_000_000);
        flush(&mut plan, first[1], 64_000_000, 704_000_000);
        ask(&mut plan, 704_000_000, &[3]);
        places(&ask(&mut plan, 704_000_000, &[4]))
    }
    // 190 MB/s on average, and 1 GB/s from the cache.
    assert_eq!(third(HybridOpt), [(4, 1)]);
    assert_eq!(third(HybridRoom), []);
}

#[test]
fn the_others_do_not_care_how_fast_flushes_are() {
    for flush_ns in [64_000_000, 640_000_000] {
        let naive = with_flushes_of(flush_ns, HybridNaive);
        assert_eq!(naive, [(2, 0), (3, 1), (4, 1)]);
        assert_eq!(with_flushes_of(flush_ns, CacheOnly), [(2, 0)]);
    }
    assert_eq!(places(&ask(&mut plan(SsdOnly), 0, &[1])), [(1, 1)]);
}

/// Four flushes of 64 MiB in 0.25 s, side by side or one after the other: the external storage takes 1 GiB/s. Flushes that
/// come first in turn seem to take a quarter of the time and to be one of four.
#[test]
fn the_flush_bandwidth_is_that_of_all_flushes_together() {
    for ends in [[250; 4], [63, 125, 188, 250]] {
        let mut plan = plan(SsdOnly);
        for writing in ask(&mut plan, 0, &[0, 1, 2, 3]) {
            plan.written(0, writing);
        }
        let flushing = flushes(&mut plan, 0);
        assert_eq!((flushing.len(), plan.flush_bandwidth().get()), (4, None));
        for (flushing, end) in flushing.into_iter().zip(ends) {
            plan.flushed(end * 1_000_000, flushing);
        }
        let bandwidth = plan.flush_bandwidth().get().unwrap();
        assert!((bandwidth - (1 << 30) as f64).abs() < 1.0, "{bandwidth}");
    }
}

#[test]
fn shortest_wait_flushes_the_slow_store_when_the_writers_are_done() {
    for (naive, wanted) in [
        (true, [vec![1], vec![0], vec![]]),
        (false, [vec![], vec![0], vec![1]]),
    ] {
        let mut plan = match naive {
            true => plan(HybridNaive),
            false => plan(ShortestWait),
        };
        let stores = |plan: &mut ChunkPlacement| -> Vec<usize> {
            let flushes = flushes(plan, 9).into_iter();
            flushes.map(|flushing| flushing.chunk.store).collect()
        };
        plan.announce(1, 2 * CHUNK);
        let [fast, slow] = ask(&mut plan, 0, &[1, 2])[..] else {
            panic!("both have a place");
        };
        let found = [slow, fast].map(|writing| {
            plan.written(9, writing);
            stores(&mut plan)
        });
        // Producer 1 says that it has done; until then, the chunk on the slow store waits while one is on the fast.
        plan.announce(1, 0);
        let last = stores(&mut plan);
        assert_eq!([&found[0], &found[1], &last], wanted.each_ref());
    }
}

#[test]
fn a_full_slow_store_holds_back_none_of_its_bytes() {
    let mut plan = plan_of([(10e9, 1), (0.5e9, 1)], ShortestWait);
    let writing = ask(&mut plan, 0, &[0, 1, 2]);
    plan.written(9, writing[1]);
    assert_eq!(flushes(&mut plan, 9)[0].chunk, writing[1].chunk);
}

/// If flushes seem faster than every store and nothing is stored, there is nothing to wait for.
#[test]
fn no_producer_waits_for_a_flush_that_cannot_come() {
    let mut plan = plan_of([(1e3, 1), (2e3, 1)], HybridOpt);
    for round in 0..3_u64 {
        let writing = ask(&mut plan, round * 1000, &[round]);
        assert_eq!(places(&writing), [(round, 1)]);
        flush(&mut plan, writing[0], round * 1000, round * 1000 + 9);
    }
}

#[test]
fn stores_that_hold_nothing_are_refused() {
    let is_refused = |capacities: [usize; 2], policy: Box<dyn StorePolicy>| {
        let stores = capacities.map(|capacity| Store::new(flat(1e9), capacity));
        ChunkPlacement::new(CHUNK, stores.into(), policy).is_err()
    };
    assert!(is_refused([0, 5], Box::new(CacheOnly)));
    assert!(is_refused([5, 0], Box::new(SsdOnly)));
    assert!(is_refused([0, 0], Box::new(HybridOpt)));
    assert!(!is_refused([0, 5], Box::new(HybridOpt)));
}
