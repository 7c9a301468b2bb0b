//! The second pass: enters the chunks that the record did not have. The lowest chunk of each digest is the first-time
//! occurrence; the other chunks are its shifted duplicates.

use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;

use super::leaves::Block;
use super::{Pass, State};
use crate::record::Shard;

impl State {
    pub(super) fn resolve(&mut self, pass: &mut Pass<'_>, blocks: &mut [Block]) {
        let candidates = blocks.iter().map(|block| block.candidates.len() as u64);
        self.record.make_room(candidates.sum());
        let blocks = &*blocks;
        let shared = &*pass;
        let digests = &self.digests;
        let enter = |(at, shard): (usize, &mut Shard)| {
            let (mut entered, mut collisions) = (0, 0);
            for block in blocks {
                let start = at.checked_sub(1).map_or(0, |before| block.ends[before]);
                for &index in &block.candidates[start as usize..block.ends[at] as usize] {
                    let chunk = block.changed[index as usize];
                    let own = shared.place(chunk);
                    let found = shard.enter(digests[chunk as usize], own);
                    entered += u64::from(found.is_none());
                    // Verification compares bytes where digests match.
                    let same = |chunk| self.kept.is_none() || is_same(shared, own.chunk, chunk);
                    let place = found.filter(|found| same(found.chunk));
                    collisions += u64::from(found.is_some() && place.is_none());
                    block.packed[index as usize].store(place.unwrap_or(own).pack(), Relaxed);
                }
            }
            (entered, collisions)
        };
        let counts = self
            .record
            .shards_mut()
            .par_iter_mut()
            .enumerate()
            .map(enter);
        let (entered, collisions) = counts.reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.record.entered(pass.ordinal, entered);
        pass.collisions += collisions;
    }
}

fn is_same(pass: &Pass<'_>, one: u32, other: u32) -> bool {
    pass.chunk(one) == pass.chunk(other)
}
