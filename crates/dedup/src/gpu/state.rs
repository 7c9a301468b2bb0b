//! The device memory of a lineage: one allocation, which starts with the `State`. The `State` has the address of each array
//! in the allocation, for the kernels. kernels/dedup_state.cuh declares the same fields.

use tierflow_device::{Device, Stream, WriteLoan};

use super::past::{History, Table, history_bytes};
use super::plan::{ARRAYS, Array, Plan};
use super::report::RESULT_BYTES;
use crate::config::Method;
use crate::error::Result;
use crate::hash::{Digest, Hasher};

/// Bytes of `State` before the pointers.
const CONSTANTS: usize = 48 * 8 + 3 * 8 + 6 * 4;
/// Bytes of `State` from `content` to `generation_count`.
const HISTORY: usize = 2 * 16 + 8 + 2 * 4;
/// Bytes of `State` behind `generation_count`, all zero between checkpoints.
const SCRATCH: usize = 8 + 8 * 4 + 2 * 4 + RESULT_BYTES;
/// Bytes of `State`.
pub(super) const STATE_BYTES: usize = CONSTANTS + 8 * ARRAYS.len() + HISTORY + SCRATCH;

/// The allocation. The memory is lent while this value lives, and this value lives while a kernel may use the memory.
#[derive(Debug)]
pub(super) struct Arena {
    loan: WriteLoan,
}

impl Arena {
    /// Allocates and initialises the memory, with the history in `past` if there is one. Waits.
    pub(super) fn new(
        device: &Device,
        stream: &Stream,
        plan: &Plan,
        hasher: &Hasher,
        past: Option<&History<'_>>,
    ) -> Result<Self> {
        let (offsets, total) = plan.offsets();
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let memory = device.alloc(total)?;
        let loan = memory.lend_mut(0..total)?;
        let base = loan.address();
        drop(loan);
        stream.fill(&mut memory.lend_mut(0..total)?, 0)?;
        let at = |array: Array| {
            let start = offsets[array as usize] as usize;
            start..start + plan.bytes(array) as usize
        };
        if plan.slots() > 0 && plan.encodes {
            stream.fill(&mut memory.lend_mut(at(Array::Owners))?, 0xFF)?;
        }
        let write = |array: Array, bytes: &[u8]| {
            let range = at(array);
            match bytes.len().min(range.len()) {
                0 => Ok(()),
                len => {
                    let part = range.start..range.start + len;
                    stream.write(&bytes[..len], &mut memory.lend_mut(part)?)
                }
            }
        };
        let mut state = state_bytes(plan, hasher, base, &offsets);
        if let Some(past) = past {
            let rebuilt = past.rebuilt;
            write(Array::Digests, &digests(rebuilt.digests.iter().copied()))?;
            let table = Table::new(plan, past);
            write(Array::Keys, &digests(table.keys.into_iter()))?;
            write(Array::Owners, &words(table.owners.into_iter()))?;
            write(Array::Generations, &words(table.generations.into_iter()))?;
            write(Array::Pool, &table.pool)?;
            write(Array::Previous, past.previous)?;
            let history = state.len() - SCRATCH - HISTORY;
            state[history..history + HISTORY].copy_from_slice(&history_bytes(rebuilt));
        }
        stream.write(&state, &mut memory.lend_mut(0..state.len())?)?;
        Ok(Self {
            loan: memory.lend_mut(0..total)?,
        })
    }

    /// Returns the address of the `State`.
    pub(super) fn state(&self) -> u64 {
        self.loan.address()
    }
}

fn digests(digests: impl Iterator<Item = Digest>) -> Vec<u8> {
    let words = digests.flat_map(|digest| [digest.low, digest.high]);
    words.flat_map(u64::to_le_bytes).collect()
}

fn words(words: impl Iterator<Item = u64>) -> Vec<u8> {
    words.flat_map(u64::to_le_bytes).collect()
}

fn state_bytes(plan: &Plan, hasher: &Hasher, base: u64, offsets: &[u64]) -> Vec<u8> {
    let secret = hasher.secret();
    let mut state = Vec::new();
    state.extend_from_slice(secret);
    for from in [121, 11, 117] {
        state.extend_from_slice(&secret[from..from + 64]);
    }
    for field in [plan.layout.len, plan.slots(), plan.capacity] {
        state.extend_from_slice(&field.to_le_bytes());
    }
    let shift = plan.layout.chunk.trailing_zeros();
    let method = match plan.method {
        Method::Full => 0,
        Method::Basic => 1,
        Method::List => 2,
        Method::Tree => 3,
        Method::Auto => 4,
    };
    for field in [
        plan.layout.count,
        shift,
        plan.words,
        plan.tiles,
        method,
        0_u32,
    ] {
        state.extend_from_slice(&field.to_le_bytes());
    }
    for (array, offset) in ARRAYS.iter().zip(offsets) {
        let is_there = plan.bytes(*array) > 0;
        let address = if is_there { base + offset } else { 0 };
        state.extend_from_slice(&address.to_le_bytes());
    }
    state.resize(state.len() + HISTORY + SCRATCH, 0);
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::layout::Layout;

    #[test]
    fn the_state_is_as_long_as_the_kernels_say() {
        let layout = Layout::new(1000, 64).unwrap();
        let plan = Plan::new(&Config::new(Method::Tree).chunk(64), layout);
        let (offsets, _) = plan.offsets();
        let bytes = state_bytes(&plan, &Hasher::new(0), 0, &offsets);
        assert_eq!(bytes.len(), STATE_BYTES);
        assert!(bytes.len() as u64 <= offsets[0]);
    }
}
