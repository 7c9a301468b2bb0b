//! Touch all, then pin all at once: the strategies of the HiPC'22 paper.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tierflow_device::{HostReservation, Pinned};

use super::model::Touching;
use crate::error::Result;
use crate::host_arena::backing::{Backing, InitialBacking, Wanted};
use crate::host_arena::growing::Growing;
use crate::host_arena::strategy::Strategy;
use crate::watermark::End;
use crate::workers::{Stop, Workers};

/// Time between two checks of the stop flag.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes touched between two checks of the stop flag and the copies: about a millisecond's work.
const STEP: usize = 8 << 20;

/// See [`Baseline::IncrementalMemset`](super::Baseline::IncrementalMemset).
#[derive(Debug)]
pub(in crate::host_arena) struct Memset;

impl Strategy for Memset {
    fn obtain(&self, wanted: &Wanted<'_>) -> Result<InitialBacking> {
        let (reservation, why_not_node) = wanted.reserve()?;
        reservation.small_pages()?;
        Ok(InitialBacking {
            why_not_node,
            ..InitialBacking::nothing_yet(Backing::Reserved(reservation))
        })
    }

    fn grow(self: Box<Self>, growing: &Arc<Growing>, workers: &mut Workers) -> Result<()> {
        let (theirs, stop) = (Arc::clone(growing), workers.stop());
        workers.spawn("tierflow-memset", move || {
            touch_then_pin(&theirs, &stop, true, Touching::Concurrent, set_to_zero);
        })
    }
}

/// Sets bytes to 0. No other code has a loan of them, as they become usable only afterwards.
fn set_to_zero(reservation: &HostReservation, range: Range<usize>) -> tierflow_device::Result<()> {
    let mut bytes = reservation.memory().lend_mut(range)?;
    bytes.bytes_mut()?.fill(0);
    Ok(())
}

/// See [`Baseline::TouchThenPin`](super::Baseline::TouchThenPin).
#[derive(Debug)]
pub(in crate::host_arena) struct TouchThenPin {
    pub(in crate::host_arena) touching: Touching,
}

impl Strategy for TouchThenPin {
    fn obtain(&self, wanted: &Wanted<'_>) -> Result<InitialBacking> {
        let (reservation, why_not_node) = wanted.reserve()?;
        let backing = Backing::Reserved(reservation);
        let initial = match self.touching {
            Touching::Concurrent => InitialBacking::nothing_yet(backing),
            Touching::Sequential | Touching::Auto => InitialBacking::usable(backing),
        };
        Ok(InitialBacking {
            why_not_node,
            ..initial
        })
    }

    fn grow(self: Box<Self>, growing: &Arc<Growing>, workers: &mut Workers) -> Result<()> {
        let (theirs, stop) = (Arc::clone(growing), workers.stop());
        let touching = self.touching;
        let waited_for = touching == Touching::Concurrent;
        workers.spawn("tierflow-touch", move || {
            touch_then_pin(&theirs, &stop, waited_for, touching, HostReservation::touch);
        })
    }
}

/// Touches all memory step by step, then pins it. If `waited_for`, bytes become usable as they are touched.
fn touch_then_pin(
    growing: &Growing,
    stop: &Stop,
    waited_for: bool,
    touching: Touching,
    touch: impl Fn(&HostReservation, Range<usize>) -> tierflow_device::Result<()>,
) {
    let _ends = growing.levels().map(|level| level.raising());
    let Some(reservation) = growing.backing.reserved() else {
        return;
    };
    let capacity = growing.capacity();
    let mut start = 0;
    while start < capacity {
        let end = start.saturating_add(STEP).min(capacity);
        if !may_touch(growing, stop, touching) {
            return;
        }
        let (begun, beside) = (Instant::now(), growing.gate.is_transferring());
        if let Err(error) = touch(reservation, start..end) {
            if waited_for {
                growing.usable.finish(End::Failed(error.clone()));
            }
            return growing.touched.finish(End::Failed(error));
        }
        let beside = beside || growing.gate.is_transferring();
        growing
            .concurrency
            .measured
            .touched(end - start, begun.elapsed(), beside);
        growing.touched.raise(end);
        if waited_for {
            growing.usable.raise(end);
        }
        growing.sample();
        start = end;
    }
    growing.touched.finish(End::Complete);
    growing.usable.finish(End::Complete);
    pin_whole(growing, stop, reservation);
}

/// Waits until the next step may be touched. Returns false if the arena is to stop.
fn may_touch(growing: &Growing, stop: &Stop, touching: Touching) -> bool {
    loop {
        if stop.is_set() {
            return false;
        }
        let now = match touching {
            Touching::Auto => growing
                .concurrency
                .measured
                .figures()
                .map_or(Touching::Concurrent, |figures| figures.best()),
            set => set,
        };
        growing.concurrency.set(now);
        if now != Touching::Sequential || growing.gate.wait_no_transfer(LOOK) {
            return true;
        }
    }
}

fn pin_whole(growing: &Growing, stop: &Stop, reservation: &HostReservation) {
    if stop.is_set() {
        return;
    }
    let capacity = growing.capacity();
    let Some(pinned) = growing.pin(stop, reservation, 0..capacity) else {
        return;
    };
    match pinned {
        Ok(Pinned::Yes) => {
            growing.pinned.raise(capacity);
            growing.pinned.finish(End::Complete);
            growing.sample();
        }
        Ok(Pinned::No(why)) => growing.set_unpinned(why),
        Err(error) => growing.pinned.finish(End::Failed(error)),
    }
}
