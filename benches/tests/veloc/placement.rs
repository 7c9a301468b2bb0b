//! The placement of chunks: what it decides.

use crate::store::{CHUNK, after, flat};
use tierflow_benches::papers::veloc::{
    CacheOnly, ChunkId, ChunkPlacement, Command, Event, HybridNaive, HybridOpt, HybridRoom,
    PlacementError, ProducerId, SsdOnly,
};
use tierflow_placement::stores::{ShortestWait, Store, StorePolicy};

/// A cache of one chunk at 10 GB/s and an SSD of 100 at 0.5 GB/s.
fn backend(policy: impl StorePolicy + 'static) -> ChunkPlacement {
    let stores = vec![Store::new(flat(10e9), 1), Store::new(flat(0.5e9), 100)];
    ChunkPlacement::new(CHUNK, stores, Box::new(policy)).unwrap()
}

fn ask(producer: u64) -> Event {
    Event::ChunkAsked {
        producer: ProducerId(producer),
        bytes: CHUNK,
    }
}

/// Who is told to write where.
fn writes(commands: &[Command]) -> Vec<(u64, usize)> {
    let writes = commands.iter().filter_map(|command| match *command {
        Command::Write {
            producer, store, ..
        } => Some((producer.0, store.0)),
        _ => None,
    });
    writes.collect()
}

/// Has the cache's chunk flushed in `flush_ns`, with two more producers that wait or not.
fn with_flushes_of(flush_ns: u64, policy: impl StorePolicy + 'static) -> Vec<(u64, usize)> {
    let mut backend = backend(policy);
    assert_eq!(writes(&after(&mut backend, 0, ask(1))), [(1, 0)]);
    after(&mut backend, 0, Event::ChunkWritten { chunk: ChunkId(0) });
    let freed = Event::ChunkFlushed { chunk: ChunkId(0) };
    after(&mut backend, flush_ns, freed);
    let mut commands = after(&mut backend, flush_ns, ask(2));
    commands.extend(after(&mut backend, flush_ns, ask(3)));
    commands.extend(after(&mut backend, flush_ns, ask(4)));
    writes(&commands)
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
        let mut backend = backend(policy);
        after(&mut backend, 0, ask(1));
        assert_eq!(writes(&after(&mut backend, 0, ask(2))), [(2, 1)]);
        let written = |chunk| Event::ChunkWritten {
            chunk: ChunkId(chunk),
        };
        let flushed = |chunk| Event::ChunkFlushed {
            chunk: ChunkId(chunk),
        };
        after(&mut backend, 0, written(0));
        after(&mut backend, 64_000_000, flushed(0));
        after(&mut backend, 64_000_000, written(1));
        after(&mut backend, 704_000_000, flushed(1));
        after(&mut backend, 704_000_000, ask(3));
        writes(&after(&mut backend, 704_000_000, ask(4)))
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
    let mut backend = backend(SsdOnly);
    assert_eq!(writes(&after(&mut backend, 0, ask(1))), [(1, 1)]);
}

#[test]
fn the_one_that_waits_longest_gets_the_room() {
    let mut backend = backend(CacheOnly);
    after(&mut backend, 0, ask(9));
    after(&mut backend, 5, ask(3));
    after(&mut backend, 6, ask(7));
    let flushes = after(&mut backend, 10, Event::ChunkWritten { chunk: ChunkId(0) });
    assert!(
        matches!(flushes[..], [Command::Flush { .. }]),
        "{flushes:?}"
    );
    let commands = after(&mut backend, 25, Event::ChunkFlushed { chunk: ChunkId(0) });
    assert_eq!(writes(&commands), [(3, 0)]);
    assert_eq!((backend.waiting(), backend.statistics().waited_ns), (1, 20));
}

/// Four flushes of 64 MiB in 0.25 s, side by side or one after the other: the external storage takes 1 GiB/s. Those that
/// come first in turn seem to take a quarter of the time and to be one of four.
#[test]
fn the_flush_bandwidth_is_that_of_all_flushes_together() {
    for ends in [[250; 4], [63, 125, 188, 250]] {
        let mut backend = backend(SsdOnly);
        for producer in 0..4 {
            after(&mut backend, 0, ask(producer));
            let chunk = ChunkId(producer);
            after(&mut backend, 0, Event::ChunkWritten { chunk });
        }
        assert_eq!(
            (backend.flushing(), backend.flush_bandwidth().get()),
            (4, None)
        );
        for (chunk, end) in (0..4).map(ChunkId).zip(ends) {
            after(&mut backend, end * 1_000_000, Event::ChunkFlushed { chunk });
        }
        let bandwidth = backend.flush_bandwidth().get().unwrap();
        assert!((bandwidth - (1 << 30) as f64).abs() < 1.0, "{bandwidth}");
    }
}

#[test]
fn no_more_flushes_than_allowed() {
    let mut backend = backend(SsdOnly).with_most_flushes(1);
    for producer in 0..3 {
        after(&mut backend, 0, ask(producer));
        let chunk = ChunkId(producer);
        after(&mut backend, 0, Event::ChunkWritten { chunk });
        assert_eq!(backend.flushing(), 1);
    }
}

/// Flushed chunks, in the order in which that was begun.
fn flushes(commands: &[Command]) -> Vec<u64> {
    let flushes = commands.iter().filter_map(|command| match *command {
        Command::Flush { chunk, .. } => Some(chunk.0),
        _ => None,
    });
    flushes.collect()
}

#[test]
fn shortest_wait_flushes_the_slow_store_when_the_writers_are_done() {
    let written = |chunk| Event::ChunkWritten {
        chunk: ChunkId(chunk),
    };
    for (naive, wanted) in [
        (true, [vec![1], vec![0], vec![]]),
        (false, [vec![], vec![0], vec![1]]),
    ] {
        let mut backend = match naive {
            true => backend(HybridNaive),
            false => backend(ShortestWait),
        };
        let producer = ProducerId(1);
        let bytes = 2 * CHUNK;
        after(&mut backend, 0, Event::Announced { producer, bytes });
        after(&mut backend, 0, ask(1));
        after(&mut backend, 0, ask(2));
        let found = [1, 0].map(|chunk| flushes(&after(&mut backend, 9, written(chunk))));
        // Producer 1 says that it has done; until then, the chunk on the slow store waits while one is on the fast.
        let done = Event::Announced { producer, bytes: 0 };
        let last = flushes(&after(&mut backend, 10, done));
        assert_eq!([&found[0], &found[1], &last], wanted.each_ref());
    }
}

#[test]
fn what_a_full_slow_store_holds_is_not_held_back() {
    let stores = vec![Store::new(flat(10e9), 1), Store::new(flat(0.5e9), 1)];
    let mut backend = ChunkPlacement::new(CHUNK, stores, Box::new(ShortestWait)).unwrap();
    for producer in 0..3 {
        after(&mut backend, 0, ask(producer));
    }
    let commands = after(&mut backend, 9, Event::ChunkWritten { chunk: ChunkId(1) });
    assert_eq!(flushes(&commands), [1]);
}

/// Where flushes seem faster than every store and nothing is stored, there is nothing to wait for.
#[test]
fn no_producer_waits_for_a_flush_that_cannot_come() {
    let stores = vec![Store::new(flat(1e3), 1), Store::new(flat(2e3), 1)];
    let mut backend = ChunkPlacement::new(CHUNK, stores, Box::new(HybridOpt)).unwrap();
    for round in 0..3_u64 {
        let commands = after(&mut backend, round * 1000, ask(round));
        assert_eq!(writes(&commands), [(round, 1)]);
        let chunk = ChunkId(round);
        after(&mut backend, round * 1000, Event::ChunkWritten { chunk });
        after(
            &mut backend,
            round * 1000 + 9,
            Event::ChunkFlushed { chunk },
        );
    }
    assert_eq!(backend.statistics().forced, 2);
}

#[test]
fn events_that_cannot_have_happened_change_nothing() {
    let mut backend = backend(HybridNaive);
    after(&mut backend, 0, ask(1));
    let before = format!("{backend:?}");
    let (chunk, none) = (ChunkId(0), ChunkId(7));
    let producer = ProducerId(1);
    for (event, wanted) in [
        (ask(1), PlacementError::Busy(producer)),
        (
            Event::ChunkWritten { chunk: none },
            PlacementError::NotWriting(none),
        ),
        (
            Event::ChunkFlushed { chunk },
            PlacementError::NotFlushing(chunk),
        ),
    ] {
        let mut commands = Vec::new();
        assert_eq!(backend.handle(9, event, &mut commands), Err(wanted));
        assert_eq!((format!("{backend:?}"), commands), (before.clone(), vec![]));
    }
    for bytes in [0, CHUNK + 1] {
        let producer = ProducerId(2);
        let event = Event::ChunkAsked { producer, bytes };
        assert!(backend.handle(9, event, &mut Vec::new()).is_err());
    }
}

#[test]
fn stores_that_hold_nothing_are_refused() {
    let of = |capacities: [usize; 2], policy: Box<dyn StorePolicy>| {
        let stores = capacities.map(|capacity| Store::new(flat(1e9), capacity));
        ChunkPlacement::new(CHUNK, stores.into(), policy).map(|_| ())
    };
    let none = |policy| Err(PlacementError::NoStore { policy });
    assert_eq!(of([0, 5], Box::new(CacheOnly)), none("cache-only"));
    assert_eq!(of([5, 0], Box::new(SsdOnly)), none("ssd-only"));
    assert_eq!(of([0, 0], Box::new(HybridOpt)), none("hybrid-opt"));
    assert_eq!(of([0, 5], Box::new(HybridOpt)), Ok(()));
    let empty = ChunkPlacement::new(CHUNK, vec![], Box::new(SsdOnly));
    assert!(empty.is_err());
}
