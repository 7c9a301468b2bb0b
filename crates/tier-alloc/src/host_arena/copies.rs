//! Copies between a host arena and the tier above it. Each part goes by the device or the ring, whichever is faster.

use std::ops::Range;
use std::time::{Duration, Instant};

use tierflow_device::{ReadLoan, Stream, Transfer, WriteLoan};

use super::HostArena;
#[cfg(feature = "baselines")]
use super::baselines::Flush;
use crate::error::Result;
use crate::gate::Pass;

/// The ring's rate in bytes/s, as measured on an H100 machine: see [`Ring`](crate::Ring).
const RING_RATE: f64 = 19e9;

/// A flush that counts as under way until this value is dropped.
#[derive(Debug)]
#[must_use = "it counts as under way until it is dropped"]
pub struct Transferring<'arena> {
    #[cfg(feature = "baselines")]
    _measured: Flush<'arena>,
    _pass: Pass<'arena>,
}

impl HostArena {
    /// Tells the arena that bytes are about to be flushed into `range`, for strategies that touch pages only during flushes or
    /// only between them. Hold the returned value until the flush is done. Call this once for a whole checkpoint, so that the
    /// arena can measure the time between checkpoints.
    #[cfg_attr(not(feature = "baselines"), allow(unused_variables))]
    pub fn transferring(&self, range: Range<usize>) -> Transferring<'_> {
        Transferring {
            #[cfg(feature = "baselines")]
            _measured: Flush::begin(&self.growing, &range),
            _pass: self.growing.gate.enter_transfer(),
        }
    }

    /// Starts to copy bytes into the arena, from byte `at` on. The device copies to pinned memory, and the arena's
    /// [`Ring`](crate::Ring), if it has one, to the rest. First waits for pinning if that reaches the bytes sooner than the
    /// ring would copy them. The device copies on after this returns, until the returned transfer ends; the bytes that the
    /// ring copied are there.
    ///
    /// With a ring, memory that is not pinned is never handed to the driver: such a copy would be slow, and the driver would
    /// make every other copy wait for it.
    ///
    /// # Errors
    ///
    /// The errors of [`lend_mut`](Self::lend_mut) and of the copy.
    pub fn begin_copy_in(
        &self,
        stream: &Stream,
        src: ReadLoan,
        at: usize,
    ) -> Result<Option<Transfer>> {
        let range = at..at.saturating_add(src.len());
        let direct = self.direct(&range, src.host_accessible());
        self.begin(stream, direct, src, self.lend_mut(range)?)
    }

    /// Starts to copy bytes out of the arena, as [`begin_copy_in`](Self::begin_copy_in).
    ///
    /// # Errors
    ///
    /// The errors of [`lend`](Self::lend) and of the copy.
    pub fn begin_copy_out(
        &self,
        stream: &Stream,
        at: usize,
        dst: WriteLoan,
    ) -> Result<Option<Transfer>> {
        let range = at..at.saturating_add(dst.len());
        let direct = self.direct(&range, dst.host_accessible());
        self.begin(stream, direct, self.lend(range)?, dst)
    }

    /// Lets the device copy the first `direct` bytes, and the ring the others.
    fn begin(
        &self,
        stream: &Stream,
        direct: usize,
        src: ReadLoan,
        dst: WriteLoan,
    ) -> Result<Option<Transfer>> {
        let (src, ring_src) = src.split_at(direct);
        let (dst, ring_dst) = dst.split_at(direct);
        let transfer = (!src.is_empty()).then(|| {
            let _submission = self
                .ring
                .as_ref()
                .map(|_| self.growing.gate.enter_submission());
            stream.copy(src, dst)
        });
        if let Some(ring) = self.ring.as_ref().filter(|_| !ring_src.is_empty()) {
            ring.copy(ring_src, ring_dst)?;
        }
        Ok(transfer)
    }

    /// Returns how many bytes of `range`, from the first byte on, need no ring. Waits while pinning is faster than the ring.
    fn direct(&self, range: &Range<usize>, other_is_plain: bool) -> usize {
        self.growing.need(range.end);
        if self.ring.is_none() || other_is_plain {
            return range.len();
        }
        // Waiting for pinning is faster while it pins at least half of the rest in the time of the ring for that rest.
        let pinned = &self.growing.pinned;
        let mut left = range.len();
        loop {
            let timeout = Duration::from_secs_f64(left as f64 / RING_RATE);
            let there = pinned.wait_until(range.end, Instant::now() + timeout);
            let now = range.end.saturating_sub(pinned.level()).min(range.len());
            if there || pinned.end().is_some() || now > left / 2 {
                break;
            }
            left = now;
        }
        pinned.level().clamp(range.start, range.end) - range.start
    }
}
