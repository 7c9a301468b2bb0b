//! The choice of chunks to flush (IPDPS'19, Algorithm 3).

use tierflow_placement::stores::{FlushOrder, Store, StoreId};

use super::super::Command;
use super::{ChunkId, ChunkPlacement, Phase};

impl ChunkPlacement {
    /// A chunk is written.
    pub(super) fn is_to_flush(&mut self, id: ChunkId, store: StoreId) {
        self.to_flush[store.0].push_back((self.came, id));
        self.came += 1;
    }

    /// Starts flushes, as many as there may be.
    pub(super) fn flush(&mut self, now: u64, commands: &mut Vec<Command>) {
        while self.flushes < self.most_flushes
            && let Some(store) = self.next_to_flush()
            && let Some((_, id)) = self.to_flush[store].pop_front()
        {
            if let Some(chunk) = self.chunks.get_mut(&id) {
                self.flushes += 1;
                let bandwidths = [&mut self.bandwidth, self.stores[store].flushes_mut()];
                let started = bandwidths.map(|bandwidth| bandwidth.started(now));
                chunk.phase = Phase::Flushing { started };
                commands.push(Command::Flush {
                    chunk: id,
                    store: chunk.store,
                    bytes: chunk.bytes,
                });
            }
        }
    }

    /// The store whose first chunk is the next to be flushed.
    fn next_to_flush(&self) -> Option<usize> {
        let is_writing = self.to_write > 0 || self.stores.iter().any(|store| store.writers() > 0);
        let last = match self.policy.flush_order() {
            FlushOrder::FastestStore if is_writing => {
                let holds = |store: &Store| store.chunks() > 0;
                self.stores.iter().position(holds)
            }
            _ => None,
        };
        let last = last.unwrap_or(self.stores.len());
        let waiting = self.to_flush.iter().enumerate();
        waiting
            .filter(|(at, _)| *at <= last || !self.stores[*at].has_room())
            .filter_map(|(at, chunks)| Some((chunks.front()?.0, at)))
            .min()
            .map(|(_, at)| at)
    }
}
