//! The placement of chunks: what must hold in whatever order things happen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::store::{CHUNK, after, flat};
use proptest::prelude::*;
use tierflow_benches::papers::veloc::{
    CacheOnly, ChunkId, ChunkPlacement, Command, Event, HybridNaive, HybridOpt, HybridRoom,
    ProducerId, SsdOnly,
};
use tierflow_placement::stores::{ShortestWait, Store, StoreId, StorePolicy};

/// A run in which whatever can happen next happens in a random order.
struct Run {
    backend: ChunkPlacement,
    capacities: [usize; 2],
    /// What each producer has still to write.
    chunks: Vec<VecDeque<u64>>,
    /// Who asked, in the order in which they are to be served.
    asked: VecDeque<(u64, u64)>,
    writing: BTreeMap<ChunkId, (u64, StoreId, u64)>,
    written: BTreeMap<ChunkId, (StoreId, u64)>,
    flushing: BTreeSet<ChunkId>,
    bytes_flushed: u64,
    now: u64,
}

impl Run {
    fn busy(&self) -> BTreeSet<u64> {
        let writing = self.writing.values().map(|chunk| chunk.0);
        self.asked
            .iter()
            .map(|asked| asked.0)
            .chain(writing)
            .collect()
    }

    /// What could happen now.
    fn possible(&self, with_announcements: bool) -> Vec<Event> {
        let busy = self.busy();
        let idle =
            self.chunks.iter().enumerate().filter(|(producer, chunks)| {
                !chunks.is_empty() && !busy.contains(&(*producer as u64))
            });
        let mut events: Vec<_> = idle
            .map(|(producer, chunks)| Event::ChunkAsked {
                producer: ProducerId(producer as u64),
                bytes: chunks[0],
            })
            .collect();
        let writing = self.writing.keys().copied();
        events.extend(writing.map(|chunk| Event::ChunkWritten { chunk }));
        let flushing = self.flushing.iter().copied();
        events.extend(flushing.map(|chunk| Event::ChunkFlushed { chunk }));
        if with_announcements {
            // Not all keep what they say.
            let all = self.chunks.iter().enumerate();
            events.extend(all.map(|(producer, chunks)| Event::Announced {
                producer: ProducerId(producer as u64),
                bytes: chunks.iter().sum::<u64>() * (self.now / 1000 % 3),
            }));
        }
        events
    }

    fn happens(&mut self, event: Event) {
        self.now += 1000;
        match event {
            Event::ChunkAsked { producer, bytes } => {
                self.chunks[producer.0 as usize].pop_front();
                self.asked.push_back((producer.0, bytes));
            }
            Event::ChunkWritten { chunk } => {
                let (_, store, bytes) = self.writing.remove(&chunk).unwrap();
                self.written.insert(chunk, (store, bytes));
            }
            Event::ChunkFlushed { chunk } => {
                self.flushing.remove(&chunk);
                self.bytes_flushed += self.written.remove(&chunk).unwrap().1;
            }
            Event::Announced { .. } => {}
        }
        for command in after(&mut self.backend, self.now, event) {
            self.obey(command);
        }
        self.check();
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Write {
                producer,
                chunk,
                store,
            } => {
                let (first, bytes) = self.asked.pop_front().expect("a producer waits");
                assert_eq!(first, producer.0, "first come, first served");
                self.writing.insert(chunk, (first, store, bytes));
            }
            Command::Flush {
                chunk,
                store,
                bytes,
            } => {
                assert_eq!(self.written.get(&chunk), Some(&(store, bytes)));
                assert!(self.flushing.insert(chunk), "{chunk} is flushed twice");
            }
        }
    }

    fn check(&self) {
        let writing = |store| self.writing.values().filter(move |chunk| chunk.1 == store);
        let written = |store| self.written.values().filter(move |chunk| chunk.0 == store);
        for (at, capacity) in self.capacities.into_iter().enumerate() {
            let (store, is) = (StoreId(at), &self.backend.stores()[at]);
            assert!(is.chunks() <= capacity);
            assert_eq!(is.chunks(), writing(store).count() + written(store).count());
            assert_eq!(is.writers() as usize, writing(store).count());
        }
        let statistics = self.backend.statistics();
        let waiting: u64 = self.asked.iter().map(|asked| asked.1).sum();
        let writing: u64 = self.writing.values().map(|chunk| chunk.2).sum();
        let written: u64 = self.written.values().map(|chunk| chunk.1).sum();
        assert_eq!(
            statistics.asked_bytes,
            statistics.flushed_bytes + waiting + writing + written
        );
        assert_eq!(statistics.flushed_bytes, self.bytes_flushed);
        let on_stores: u64 = statistics.written_bytes.iter().sum();
        assert_eq!(on_stores, self.bytes_flushed + written);
        assert_eq!(self.backend.waiting(), self.asked.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_chunk_is_lost_and_no_producer_starves(
        policy in 0..6_usize,
        capacities in prop::array::uniform2(1..4_usize),
        speeds in prop::array::uniform2(1e3..1e12_f64),
        chunks in prop::collection::vec(prop::collection::vec(1..=CHUNK, 0..5), 1..6),
        most_flushes in 1..4_usize,
        choices in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        rest in any::<prop::sample::Selector>(),
    ) {
        let policies: [Box<dyn StorePolicy>; 6] = [
            Box::new(CacheOnly),
            Box::new(SsdOnly),
            Box::new(HybridNaive),
            Box::new(HybridOpt),
            Box::new(HybridRoom),
            Box::new(ShortestWait),
        ];
        let policy = policies.into_iter().nth(policy).unwrap();
        let stores = [0, 1].map(|at| Store::new(flat(speeds[at]), capacities[at]));
        let backend = ChunkPlacement::new(CHUNK, stores.into(), policy).unwrap();
        let mut run = Run {
            backend: backend.with_most_flushes(most_flushes),
            capacities,
            chunks: chunks.into_iter().map(VecDeque::from).collect(),
            asked: VecDeque::new(),
            writing: BTreeMap::new(),
            written: BTreeMap::new(),
            flushing: BTreeSet::new(),
            bytes_flushed: 0,
            now: 0,
        };
        for choice in choices {
            let events = run.possible(true);
            run.happens(*choice.get(&events));
            prop_assert!(run.backend.flushing() <= most_flushes);
        }
        // Everything gets where it is to be.
        while let Some(event) = rest.try_select(run.possible(false)) {
            run.happens(event);
        }
        prop_assert!(run.chunks.iter().all(VecDeque::is_empty));
        prop_assert_eq!(run.backend.waiting(), 0);
        let statistics = run.backend.statistics();
        prop_assert_eq!(statistics.asked_bytes, statistics.flushed_bytes);
    }
}
