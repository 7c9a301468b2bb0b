//! No chunk is lost and no producer starves, in whatever order things happen.

use std::collections::VecDeque;

use crate::store::{CHUNK, flat, writes};
use proptest::prelude::*;
use tierflow_benches::papers::veloc::{
    CacheOnly, ChunkFlush, ChunkPlacement, ChunkWrite, HybridNaive, HybridOpt, HybridRoom, SsdOnly,
};
use tierflow_placement::stores::{ShortestWait, Store, StorePolicy};

/// Something that may happen next: to a producer, a chunk that is written, or one that is flushed.
#[derive(Clone, Copy)]
enum Event {
    Announced(u64),
    Asked(u64),
    Written(usize),
    Flushed(usize),
}

/// A run in which whatever can happen next happens in a random order.
struct Run {
    plan: ChunkPlacement,
    capacities: [usize; 2],
    most_flushes: usize,
    /// The chunks that each producer has still to write.
    chunks: Vec<VecDeque<u64>>,
    /// The producers that asked, in the order in which they are to be served.
    asked: VecDeque<(u64, u64)>,
    writing: Vec<ChunkWrite>,
    /// Chunks on each store that are not being written.
    written: [usize; 2],
    flushing: Vec<ChunkFlush>,
    now: u64,
}

impl Run {
    /// Returns the events that could happen now.
    fn possible(&self, with_announcements: bool) -> Vec<Event> {
        let waits = |producer| self.asked.iter().any(|asked| asked.0 == producer);
        let writes = |producer| {
            self.writing
                .iter()
                .any(|one| one.chunk.producer == producer)
        };
        let has_more = |producer: &u64| !self.chunks[*producer as usize].is_empty();
        let all = 0..self.chunks.len() as u64;
        let idle = all.clone().filter(has_more);
        let idle = idle.filter(|producer| !waits(*producer) && !writes(*producer));
        let mut events: Vec<_> = idle.map(Event::Asked).collect();
        events.extend((0..self.writing.len()).map(Event::Written));
        events.extend((0..self.flushing.len()).map(Event::Flushed));
        if with_announcements {
            events.extend(all.map(Event::Announced));
        }
        events
    }

    fn happens(&mut self, event: Event) {
        self.now += 1000;
        match event {
            Event::Announced(producer) => {
                // Not all keep what they say.
                let left: u64 = self.chunks[producer as usize].iter().sum();
                self.plan.announce(producer, left * (self.now / 1000 % 3));
            }
            Event::Asked(producer) => {
                let bytes = self.chunks[producer as usize].pop_front().unwrap();
                self.asked.push_back((producer, bytes));
                self.plan.ask(producer, bytes, self.now);
            }
            Event::Written(at) => {
                let writing = self.writing.swap_remove(at);
                self.written[writing.chunk.store] += 1;
                self.plan.written(self.now, writing);
            }
            Event::Flushed(at) => {
                let flushing = self.flushing.swap_remove(at);
                self.written[flushing.chunk.store] -= 1;
                self.plan.flushed(self.now, flushing);
            }
        }
        for writing in writes(&mut self.plan, self.now) {
            let first = self.asked.pop_front().expect("a producer waits");
            let chunk = writing.chunk;
            assert_eq!(
                first,
                (chunk.producer, chunk.bytes),
                "first come, first served"
            );
            self.writing.push(writing);
        }
        while self.flushing.len() < self.most_flushes
            && let Some(flushing) = self.plan.next_flush(self.now)
        {
            self.flushing.push(flushing);
        }
        self.check();
    }

    fn check(&self) {
        let mut places = Vec::new();
        places.extend(self.writing.iter().map(|one| one.chunk));
        places.extend(self.flushing.iter().map(|one| one.chunk));
        for (at, capacity) in self.capacities.into_iter().enumerate() {
            let store = &self.plan.stores()[at];
            let writing = self.writing.iter().filter(|one| one.chunk.store == at);
            let writing = writing.count();
            assert!(store.chunks() <= capacity);
            assert_eq!(store.chunks(), writing + self.written[at]);
            assert_eq!(store.writers() as usize, writing);
            let mut slots: Vec<_> = places.iter().filter(|one| one.store == at).collect();
            slots.sort_by_key(|chunk| chunk.slot);
            assert!(slots.iter().all(|chunk| chunk.slot < capacity));
            assert!(
                slots.is_sorted_by(|one, next| one.slot < next.slot),
                "two chunks in one slot"
            );
        }
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
        let all: u64 = chunks.iter().flatten().sum();
        let mut run = Run {
            plan: ChunkPlacement::new(CHUNK, stores.into(), policy).unwrap(),
            capacities,
            most_flushes,
            chunks: chunks.into_iter().map(VecDeque::from).collect(),
            asked: VecDeque::new(),
            writing: Vec::new(),
            written: [0; 2],
            flushing: Vec::new(),
            now: 0,
        };
        for choice in choices {
            let events = run.possible(true);
            run.happens(*choice.get(&events));
        }
        // Everything gets where it is to be.
        while let Some(event) = rest.try_select(run.possible(false)) {
            run.happens(event);
        }
        prop_assert!(run.chunks.iter().all(VecDeque::is_empty));
        prop_assert!(run.asked.is_empty() && run.plan.is_flushed());
        prop_assert_eq!(run.plan.flushed_bytes(), all);
        prop_assert_eq!(run.plan.written_bytes().iter().sum::<u64>(), all);
    }
}
