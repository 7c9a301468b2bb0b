//! Tasks of workers: transfers between tiers, and parts of copies that callers make.

use super::core::EngineCore;
use crate::Result;
use crate::plan::Transfer;
use std::sync::Arc;
use tierflow_store::Storage;
use tierflow_sync::model::{AtomicBool, AtomicU64, AtomicUsize, Ordering, Receiver, Sender};
use tierflow_transfer::{Buffer, whole_blocks};

/// Bytes of a transfer that is small: it goes with others.
pub(super) const SMALL: u64 = 64 << 10;

/// Which way a worker carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    /// Into its tier from above.
    Down,
    /// Out of its tier upwards.
    Up,
}

/// A task for one worker.
#[derive(Debug)]
pub(crate) enum Task {
    Transfer(Arc<Job>),
    Help(CallParts),
    /// The plan is to hear of the queued events.
    Plan,
}

/// A transfer, and the flag that stops it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) transfer: Transfer,
    /// How many that encode were begun before it.
    pub(super) turn: u64,
    pub(super) cancelled: Arc<AtomicBool>,
    /// When the plan asked for it, on the plan's clock.
    pub(super) asked_ns: u64,
    /// When a worker began it last; 0 before.
    pub(super) begun_ns: AtomicU64,
}

impl Job {
    pub(super) fn new(transfer: Transfer, turn: u64, asked_ns: u64) -> Self {
        Self {
            transfer,
            turn,
            cancelled: Arc::default(),
            asked_ns,
            begun_ns: AtomicU64::new(0),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.transfer
            .from
            .iter()
            .map(|piece| piece.place.size)
            .sum()
    }

    /// A worker begins it.
    pub(super) fn begin(&self, now_ns: u64) {
        self.begun_ns.store(now_ns, Ordering::Relaxed);
    }
}

/// A part of a version that is read or written at once, and the buffer that it goes through.
#[derive(Debug)]
pub(super) struct BufferedPart {
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) buffer: Buffer,
}

/// The parts of a call's copy, for workers that have time. There are no more once the call ends.
#[derive(Debug, Clone)]
pub(crate) struct CallParts {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) direction: Direction,
    /// The part of the version at `start` lies at `offset`.
    pub(super) start: u64,
    pub(super) offset: u64,
    pub(super) parts: Receiver<BufferedPart>,
    pub(super) done: Sender<(BufferedPart, Result<()>)>,
    pub(super) helpers: Arc<AtomicUsize>,
}

impl CallParts {
    /// Copies parts until the call has no more.
    pub(super) fn run(&self, shared: &EngineCore) {
        self.helpers.fetch_add(1, Ordering::Relaxed);
        for part in &self.parts {
            let served = shared.count_copy(|| self.serve(&part)).flatten();
            if self.done.send((part, served)).is_err() {
                return;
            }
        }
    }

    pub(super) fn serve(&self, BufferedPart { at, length, buffer }: &BufferedPart) -> Result<()> {
        let (at, whole) = (
            at - self.start + self.offset,
            whole_blocks(self.storage.alignment() as u64, *length),
        );
        match self.direction {
            Direction::Up => {
                let mut memory = buffer.lend_mut(0..whole)?;
                Ok(self.storage.read_at(at, memory.bytes_mut()?)?)
            }
            Direction::Down => {
                let memory = buffer.lend(0..whole)?;
                Ok(self.storage.write_at(at, memory.bytes()?)?)
            }
        }
    }
}
