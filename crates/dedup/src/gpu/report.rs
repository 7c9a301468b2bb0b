//! The kernels' report on a checkpoint, and the pinned memory for it.

use tierflow_device::{Device, HostReservation, WriteLoan};

use crate::container::{Header, NO_PARENT, Stored};
use crate::encode::{CheckpointId, LastCheckpoint};
use crate::error::Result;
use crate::hash::Sum;
use crate::layout::Layout;

/// Bytes of `Result` in kernels/dedup_state.cuh.
pub(super) const RESULT_BYTES: usize = 3 * 16 + 2 * 8 + 5 * 8 + 4 * 4;

/// Pinned host memory for the reports of all lineages of the kernels, one report for each checkpoint in flight.
#[derive(Debug)]
pub(super) struct Reports {
    host: HostReservation,
}

impl Reports {
    const EACH: usize = 128;
    const BYTES: usize = 32 << 10;

    pub(super) fn new(device: &Device) -> Result<Self> {
        let host = super::pinned(device, Self::BYTES)?;
        Ok(Self { host })
    }

    /// Lends memory for a report until the loan is dropped.
    ///
    /// # Errors
    ///
    /// [`tierflow_device::Error::Busy`] if too many checkpoints are in flight.
    pub(super) fn take(&self) -> Result<WriteLoan> {
        let lend = |start: usize| self.host.memory().lend_mut(start..start + RESULT_BYTES);
        let free = (0..Self::BYTES)
            .step_by(Self::EACH)
            .find_map(|start| lend(start).ok());
        Ok(free.map_or_else(|| lend(0), Ok)?)
    }
}

/// The kernels' report on a difference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    content: Sum,
    parent: Sum,
    payload: Sum,
    metadata: u64,
    payload_bytes: u64,
    /// Number of chunks whose digest equals the digest of different bytes.
    pub(super) collisions: u64,
    stored: Stored,
    first: u32,
    shifted: u32,
}

impl Report {
    pub(super) fn read(bytes: &[u8; RESULT_BYTES]) -> Self {
        let word = |n: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * n..8 * n + 8]);
            u64::from_le_bytes(word)
        };
        let sum = |n: usize| Sum {
            low: word(n),
            high: word(n + 1),
        };
        let forms = [Stored::Full, Stored::Basic, Stored::List, Stored::Tree];
        let form = word(13) as u32;
        Self {
            content: sum(0),
            parent: sum(2),
            payload: sum(4),
            metadata: word(6),
            payload_bytes: word(7),
            collisions: word(12),
            stored: forms
                .into_iter()
                .find(|stored| u32::from(stored.code()) == form)
                .unwrap_or(Stored::Full),
            first: (word(13) >> 32) as u32,
            shifted: word(14) as u32,
        }
    }

    /// Makes the header of the difference. `last` is the checkpoint before; the kernels report its content.
    pub(super) fn header(
        &self,
        layout: Layout,
        id: CheckpointId,
        seed: u64,
        last: Option<LastCheckpoint>,
    ) -> Header {
        Header {
            stored: self.stored,
            layout,
            version: id.version,
            ordinal: id.ordinal,
            parent: last.map_or(NO_PARENT, |last| last.ordinal),
            seed,
            content: self.content,
            parent_content: last.map_or(Sum::default(), |_| self.parent),
            payload: self.payload,
            payload_bytes: self.payload_bytes,
            metadata: self.metadata,
            first: self.first,
            shifted: self.shifted,
        }
    }
}
