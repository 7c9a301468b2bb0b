//! The bytes of a managed history that are on the device, never more than the limit. The window decides about moves, and moves no byte.
//!
//! Versions are one after the other in one range of addresses, whose pages are on the host at first. Pages for the next writes are moved
//! to the device ahead, as far as there is room. Versions that were written or read stay there until their room is needed, then leave for
//! the host, least recently used first, as under the driver's own eviction. Hinted versions come back in the order of the hints, and
//! stay until they were read. If a call needs room that no move can free, it copies from the host's pages over the bus, so that no call
//! waits for itself.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use tierflow_engine::Version;
use tierflow_engine::plan::PrefetchDistance;

/// Bytes of the blocks in which the driver moves memory. Versions begin at the start of a block.
pub(super) const BLOCK: u64 = 2 << 20;

/// Bytes that are moved to the device at a time, ahead of the next writes.
const AHEAD: u64 = 16 * BLOCK;

/// The state of a history, a part of which is on the device.
#[derive(Debug)]
pub(super) struct Window {
    limit: u64,
    length: u64,
    /// Bytes on the device, on their way there, or on their way back.
    resident: u64,
    /// Part of `resident` on its way back.
    leaving: u64,
    /// The next version's first byte.
    cursor: u64,
    /// End of the bytes that are on the device for the next version.
    moved_in: u64,
    /// Bytes after `moved_in` that are on their way to the device.
    moving_in: u64,
    copies: HashMap<Version, Copy>,
    /// Versions on the device that may leave, least recently used first.
    idle: VecDeque<Version>,
    /// Ranges on the device that are not needed any more.
    worthless: VecDeque<Out>,
    /// True while memory that was moved in ahead, but not written, is on its way back.
    ahead_leaving: bool,
    /// The hinted versions in their order.
    order: VecDeque<Version>,
    /// Number of the first hints whose versions are on the device or on their way there.
    taken: usize,
    started: bool,
    writing: bool,
    draining: bool,
    /// Bytes of the largest version so far.
    largest: u64,
    /// Bytes of room that a caller (`CALLER`) and the next prefetch (`PREFETCH`) wait for.
    wanted: [u64; 2],
}

#[derive(Debug)]
struct Copy {
    range: Range<u64>,
    at: At,
    /// True while the application copies from or to the version.
    busy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Device,
    Coming,
    Leaving,
    Host,
    Nowhere,
}

/// Index of the caller in `Window::wanted`.
const CALLER: usize = 0;
const PREFETCH: usize = 1;

/// The next step of a caller with a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WindowStep {
    /// Copy `range` within the device, after moving `missing` there.
    Near {
        range: Range<u64>,
        missing: Range<u64>,
    },
    /// Copy the range from or to the host's pages.
    Far(Range<u64>),
    /// Ask again after the next move.
    Later,
}

/// A move to the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum In {
    Version(Version, Range<u64>),
    /// Memory for the next writes.
    Ahead(Range<u64>),
}

/// A move to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Out {
    what: What,
    pub(super) range: Range<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Version(Version),
    /// A version that was read for the last time.
    Consumed,
    /// Memory that was moved in ahead and not written.
    Ahead,
}

impl Out {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Window {
    /// Makes the window of a history of `length` bytes, of which at most `limit` may be on the device. None is there yet.
    pub(super) fn new(length: u64, limit: u64) -> Self {
        Self {
            limit,
            length,
            resident: 0,
            leaving: 0,
            cursor: 0,
            moved_in: 0,
            moving_in: 0,
            copies: HashMap::new(),
            idle: VecDeque::new(),
            worthless: VecDeque::new(),
            ahead_leaving: false,
            order: VecDeque::new(),
            taken: 0,
            started: false,
            writing: true,
            draining: false,
            largest: 0,
            wanted: [0; 2],
        }
    }

    /// Returns the bytes of a history of versions of these sizes.
    pub(super) fn length_of(sizes: impl Iterator<Item = u64>) -> u64 {
        sizes.map(|size| size.next_multiple_of(BLOCK)).sum()
    }

    pub(super) fn write(&mut self, version: Version, bytes: u64) -> Result<WindowStep> {
        let range = self.cursor..self.cursor + bytes;
        let end = self.cursor + bytes.next_multiple_of(BLOCK);
        ensure!(end <= self.length, "the history has outgrown its memory");
        ensure!(
            !self.copies.contains_key(&version),
            "version {version} was written before"
        );
        self.writing = true;
        self.largest = self.largest.max(bytes.next_multiple_of(BLOCK));
        if self.moving_in > 0 || self.ahead_leaving {
            return Ok(WindowStep::Later);
        }
        self.take_back_ahead();
        let missing = self.moved_in.min(end)..end;
        let more = missing.end - missing.start;
        let fits = self.resident + more <= self.limit;
        let will_fit = end - self.cursor <= self.limit && self.has_movable();
        if !fits && will_fit {
            self.wanted[CALLER] = more;
            return Ok(WindowStep::Later);
        }
        self.wanted[CALLER] = 0;
        if !fits {
            self.give_back_ahead();
        }
        self.cursor = end;
        self.moved_in = self.moved_in.max(end);
        let at = if fits { At::Device } else { At::Host };
        let copy = Copy {
            range: range.start..end,
            at,
            busy: true,
        };
        self.copies.insert(version, copy);
        if !fits {
            return Ok(WindowStep::Far(range));
        }
        self.resident += more;
        Ok(WindowStep::Near { range, missing })
    }

    /// Returns true if bytes will become free without an action of the caller.
    fn has_movable(&self) -> bool {
        self.leaving > 0 || !self.idle.is_empty() || !self.worthless.is_empty()
    }

    pub(super) fn written(&mut self, version: Version) {
        self.rest(version);
    }

    pub(super) fn read(&mut self, version: Version) -> Result<WindowStep> {
        self.writing = false;
        self.give_back_ahead();
        let copy = self.copies.get_mut(&version);
        let copy = copy.with_context(|| format!("version {version} was never written"))?;
        let range = copy.range.clone();
        let turn = match copy.at {
            At::Device => {
                let missing = range.end..range.end;
                WindowStep::Near { range, missing }
            }
            At::Host => WindowStep::Far(range),
            At::Coming | At::Leaving => return Ok(WindowStep::Later),
            At::Nowhere => bail!("version {version} is gone"),
        };
        copy.busy = true;
        self.idle.retain(|&idle| idle != version);
        if let Some(at) = self.order.iter().position(|&hinted| hinted == version) {
            self.order.remove(at);
            self.taken -= usize::from(at < self.taken);
        }
        Ok(turn)
    }

    pub(super) fn was_read(&mut self, version: Version, discard: bool) {
        if !discard {
            return self.rest(version);
        }
        if let Some(copy) = self.copies.get_mut(&version) {
            if copy.at == At::Device {
                self.worthless.push_back(Out {
                    what: What::Consumed,
                    range: copy.range.clone(),
                });
            }
            copy.at = At::Nowhere;
        }
    }

    /// Notes that the caller has ended its copy of the version, which may leave now.
    fn rest(&mut self, version: Version) {
        if let Some(copy) = self.copies.get_mut(&version) {
            copy.busy = false;
            if copy.at == At::Device {
                self.idle.push_back(version);
            }
        }
    }

    /// Drops a version, and returns true; returns false if the caller has to ask again after the next move.
    pub(super) fn discard(&mut self, version: Version) -> bool {
        match self.copies.get(&version).map(|copy| copy.at) {
            Some(At::Coming | At::Leaving) => return false,
            Some(_) => {
                self.idle.retain(|&idle| idle != version);
                self.was_read(version, true);
            }
            None => {}
        }
        true
    }

    pub(super) fn hint(&mut self, versions: &[Version]) {
        self.order.extend(versions);
    }

    pub(super) fn prefetch_start(&mut self) {
        self.started = true;
    }

    /// Asks for all versions to be moved to the host. Returns true if they are there.
    pub(super) fn drain(&mut self) -> bool {
        self.writing = false;
        self.give_back_ahead();
        self.draining = self.has_movable() || self.moving_in > 0;
        !self.draining
    }

    /// Returns the number of hinted versions after this one that are on the device, up to the first that is not.
    pub(super) fn distance(&self, version: Version) -> u64 {
        let at = self.order.iter().position(|&hinted| hinted == version);
        let following = self.order.iter().skip(at.map_or(0, |at| at + 1));
        let near = following
            .take(PrefetchDistance::MOST)
            .take_while(|version| {
                self.copies
                    .get(version)
                    .is_some_and(|copy| copy.at == At::Device)
            });
        near.count() as u64
    }

    /// Returns the bytes to keep free of versions while the application writes, so that it writes there without waiting.
    fn headroom(&self) -> u64 {
        let half = self.limit / 2 / BLOCK * BLOCK;
        match (self.writing, self.largest) {
            (false, _) => 0,
            (true, 0) => half,
            (true, largest) => half.min(2 * largest),
        }
    }

    fn ahead(&self) -> u64 {
        self.moved_in - self.cursor + self.moving_in
    }

    fn give_back_ahead(&mut self) {
        // Memory on its way to the device is given back once it has arrived.
        if self.moving_in == 0 && self.moved_in > self.cursor {
            self.worthless.push_back(Out {
                what: What::Ahead,
                range: self.cursor..self.moved_in,
            });
            self.moved_in = self.cursor;
        }
    }

    /// Takes back the memory that was to be given back, as the application writes again before it left.
    fn take_back_ahead(&mut self) {
        let mut outs = self.worthless.iter();
        if let Some(at) =
            outs.position(|out| out.what == What::Ahead && out.range.start == self.cursor)
            && let Some(out) = self.worthless.remove(at)
        {
            self.moved_in = out.range.end;
        }
    }

    /// Returns the bytes on the device, on their way there, or on their way back.
    #[cfg(test)]
    pub(super) fn resident(&self) -> u64 {
        self.resident
    }

    /// Returns the bytes of room that a call waits for.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted.iter().sum()
    }

    /// Returns the next move to the host, if any. The mover calls [`left`](Self::left) after it.
    pub(super) fn next_out(&mut self) -> Option<Out> {
        let out = self.worthless.pop_front().or_else(|| self.evict())?;
        self.ahead_leaving |= out.what == What::Ahead;
        self.leaving += out.bytes();
        Some(out)
    }

    fn evict(&mut self) -> Option<Out> {
        let most = match self.draining {
            true => 0,
            false => {
                let free = self.headroom().max(self.ahead() + self.wanted());
                self.limit.saturating_sub(free)
            }
        };
        if self.resident - self.leaving - self.ahead() <= most {
            return None;
        }
        let version = self.idle.pop_front()?;
        let copy = self.copies.get_mut(&version)?;
        copy.at = At::Leaving;
        Some(Out {
            what: What::Version(version),
            range: copy.range.clone(),
        })
    }

    pub(super) fn left(&mut self, out: &Out) {
        self.leaving -= out.bytes();
        self.resident -= out.bytes();
        match out.what {
            What::Version(version) => {
                if let Some(copy) = self.copies.get_mut(&version) {
                    copy.at = At::Host;
                }
            }
            What::Ahead => self.ahead_leaving = false,
            What::Consumed => {}
        }
    }

    /// Returns the next move to the device, if there is room. The mover calls [`came`](Self::came) after it.
    pub(super) fn next_in(&mut self) -> Option<In> {
        if self.draining {
            return None;
        }
        self.next_hinted().or_else(|| self.next_ahead())
    }

    fn next_hinted(&mut self) -> Option<In> {
        self.wanted[PREFETCH] = 0;
        while self.started {
            let version = *self.order.get(self.taken)?;
            let copy = self.copies.get_mut(&version)?;
            let bytes = copy.range.end - copy.range.start;
            match copy.at {
                At::Nowhere => {
                    self.order.remove(self.taken);
                    continue;
                }
                At::Leaving => return None,
                At::Host if copy.busy => return None,
                At::Host if bytes <= self.limit => {
                    if self.resident + bytes > self.limit {
                        self.wanted[PREFETCH] = bytes;
                        return None;
                    }
                    copy.at = At::Coming;
                    self.resident += bytes;
                    self.taken += 1;
                    let coming = In::Version(version, copy.range.clone());
                    // Room for the next version is freed while this version comes, so that the two directions do not wait for each other.
                    self.wanted[PREFETCH] = self.next_hinted_bytes();
                    return Some(coming);
                }
                At::Host => {}
                At::Device | At::Coming => {
                    self.idle.retain(|&idle| idle != version);
                }
            }
            self.taken += 1;
        }
        None
    }

    /// Returns the bytes of the next hinted version if it is on the host and may come, else 0.
    fn next_hinted_bytes(&self) -> u64 {
        let next = self.order.get(self.taken);
        let copy = next.and_then(|version| self.copies.get(version));
        let bytes = copy.filter(|copy| copy.at == At::Host);
        let bytes = bytes.map_or(0, |copy| copy.range.end - copy.range.start);
        if bytes <= self.limit { bytes } else { 0 }
    }

    fn next_ahead(&mut self) -> Option<In> {
        if !self.writing || self.moving_in > 0 || self.wanted[CALLER] > 0 {
            return None;
        }
        let bytes = AHEAD
            .min(self.headroom().saturating_sub(self.ahead()))
            .min(self.length - self.moved_in)
            .min((self.limit - self.resident) / BLOCK * BLOCK);
        if bytes == 0 {
            return None;
        }
        self.resident += bytes;
        self.moving_in = bytes;
        Some(In::Ahead(self.moved_in..self.moved_in + bytes))
    }

    pub(super) fn came(&mut self, what: &In) {
        match what {
            In::Version(version, _) => {
                if let Some(copy) = self.copies.get_mut(version) {
                    copy.at = At::Device;
                }
            }
            In::Ahead(range) => {
                self.moved_in = range.end;
                self.moving_in = 0;
                if !self.writing {
                    self.give_back_ahead();
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
