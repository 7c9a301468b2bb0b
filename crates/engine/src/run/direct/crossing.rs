//! Copies between memory of a device and a file: by cuFile, or through pinned buffers.

use super::choice::Way;
use super::{DirectTarget, StraightError};
use crate::run::ends::{Destination, Origin};
use crate::run::lane::{Failed, Lane, Stop, WITH_STORAGE};
use crate::run::staging::STAGED;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tierflow_device::{Place, Stream};

/// Why a copy did not go straight.
enum Not {
    /// The memory is not the device's own.
    Reached,
    Stopped(Failed),
    Failed(String),
}

/// A copy between a device and a file.
struct Crossing<'c> {
    from: &'c dyn Origin,
    to: &'c mut dyn Destination,
    bytes: Range<u64>,
    is_down: bool,
    /// Where in the file the first of the bytes is.
    offset: u64,
}

impl Crossing<'_> {
    /// Whether it can go straight: its memory is a device's, and its bytes begin with a block of the file.
    fn can_be_direct(&mut self) -> bool {
        let Range { start, end } = self.bytes;
        let place = match self.is_down {
            true => {
                let lent = self.from.lend(start..start + self.to.whole(end - start));
                lent.map(|lent| lent.map(|lent| lent.place()))
            }
            false => {
                let lent = self
                    .to
                    .lend_mut(start..start + self.from.whole(end - start));
                lent.map(|lent| lent.map(|lent| lent.place()))
            }
        };
        matches!(place, Some(Ok(Place::Device))) && self.from.before(start) == 0
    }

    /// Copies the bytes from `at` on, as many as go at once. Returns how many.
    fn part(&mut self, at: u64, file: &dyn DirectTarget) -> Result<u64, Not> {
        let length = WITH_STORAGE.min(self.bytes.end - at);
        let offset = self.offset + (at - self.bytes.start);
        let copied = if self.is_down {
            match self.from.lend(at..at + self.to.whole(length)) {
                Some(Ok(lent)) => file.write(offset, &lent),
                _ => Err(StraightError::Memory),
            }
        } else {
            match self.to.lend_mut(at..at + self.from.whole(length)) {
                Some(Ok(mut lent)) => file.read(offset, &mut lent),
                _ => Err(StraightError::Memory),
            }
        };
        copied.map_err(|error| match error {
            StraightError::Memory => Not::Reached,
            StraightError::Failed(why) => Not::Failed(why),
        })?;
        Ok(length)
    }

    fn go(&mut self, file: &dyn DirectTarget, stop: &Stop) -> Result<(), Not> {
        let mut at = self.bytes.start;
        while at < self.bytes.end {
            stop.look().map_err(Not::Stopped)?;
            at += self.part(at, file)?;
        }
        Ok(())
    }
}

impl Lane {
    /// Copies the first of these bytes where no end reaches the memory of the other: straight between a device and a file, or
    /// through pinned buffers. Returns how many.
    pub(in crate::run) fn copy_across(
        &mut self,
        from: &dyn Origin,
        to: &mut dyn Destination,
        bytes: Range<u64>,
        theirs: Option<&Stream>,
    ) -> Result<u64, Failed> {
        let (is_down, (direct, offset)) = match (to.direct(bytes.start), from.direct(bytes.start)) {
            (Some(there), None) => (true, there),
            (None, Some(there)) => (false, there),
            _ => return self.copy_staged(from, to, bytes, theirs),
        };
        let side = if is_down { &direct.down } else { &direct.up };
        let length = bytes.end - bytes.start;
        let mut crossing = Crossing {
            from,
            to,
            bytes: bytes.clone(),
            is_down,
            offset,
        };
        let file = direct.file.as_deref().filter(|_| direct.is_open());
        let file = file.filter(|_| crossing.can_be_direct());
        let way = match file {
            None => Way::Staged,
            Some(_) if !direct.is_measured => Way::Direct,
            Some(_) if length < STAGED => Way::Staged,
            Some(_) => side.choice.lock().decide(length),
        };
        let begun = Instant::now();
        let mut failure = None;
        if let (Some(file), Way::Direct) = (file, way) {
            if is_down {
                direct.written_past(offset, crossing.to.whole(length));
            }
            match crossing.go(file, &self.stop()) {
                Ok(()) => {
                    side.count(way, length, Some(begun.elapsed()));
                    return Ok(length);
                }
                Err(Not::Stopped(stopped)) => return Err(stopped),
                Err(Not::Reached) => {}
                Err(Not::Failed(error)) => {
                    direct.failed.fetch_add(1, Ordering::Relaxed);
                    failure = Some(error);
                }
            }
        }
        let copied = self.copy_staged(from, crossing.to, bytes, theirs)?;
        let is_comparable = file.is_some() && way == Way::Staged;
        side.count(Way::Staged, copied, is_comparable.then(|| begun.elapsed()));
        if let Some(error) = failure {
            direct.close(&error);
        }
        Ok(copied)
    }
}
