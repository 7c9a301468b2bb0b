//! The choice of a store for each producer (IPDPS'19, Algorithm 2).

use tierflow_placement::stores::{Backlog, Store, StoreId};

use super::super::Command;
use super::{Assigned, ChunkId, ChunkPlacement, Phase, Waiting};

impl ChunkPlacement {
    /// Serves waiting producers, in the order in which they asked, until one has to go on waiting.
    pub(super) fn assign(&mut self, now: u64, commands: &mut Vec<Command>) {
        while let Some(&waiting) = self.queue.front() {
            let Waiting {
                producer, bytes, ..
            } = waiting;
            let Some(store) = self.store_for_next() else {
                return;
            };
            let chunk = ChunkId(self.next);
            self.next += 1;
            self.stores[store.0].add_chunks(1);
            let announced = self.announced(producer);
            let phase = Phase::Writing(self.stores[store.0].begin_write(now, announced));
            let assigned = Assigned {
                producer,
                store,
                bytes,
                phase,
            };
            self.chunks.insert(chunk, assigned);
            self.queue.pop_front();
            self.to_write = self.to_write.saturating_sub(bytes);
            self.statistics.waited_ns += u128::from(now.saturating_sub(waiting.since_ns));
            commands.push(Command::Write {
                producer,
                chunk,
                store,
            });
        }
    }

    fn store_for_next(&mut self) -> Option<StoreId> {
        let states: Vec<_> = self.stores.iter().map(Store::state).collect();
        let first = self.queue.front()?;
        let backlog = Backlog {
            flush_bandwidth: self.bandwidth.get().unwrap_or_default(),
            chunk_size: self.chunk_size,
            to_write: self.to_write,
            own: first.bytes.saturating_add(self.announced(first.producer)),
        };
        let chosen = self.policy.choose(&states, backlog);
        if let Some(store) = chosen.filter(|&store| states[store].has_room) {
            return Some(StoreId(store));
        }
        // Something on a store will be flushed, and then we look again.
        if !self.chunks.is_empty() {
            return None;
        }
        let predicted = |&store: &usize| states[store].calibration.throughput(1);
        let usable = self.policy.usable(states.len());
        let fastest = usable
            .filter(|&store| states[store].has_room)
            .max_by(|a, b| predicted(a).total_cmp(&predicted(b)))?;
        self.statistics.forced += 1;
        Some(StoreId(fastest))
    }
}
