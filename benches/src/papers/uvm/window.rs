//! The bytes of a managed history that lie on the device: never more than its limit. The window decides, and touches none.
//!
//! Versions lie one behind the other in one range of addresses, whose pages the host has. What is about to be written
//! is moved to the device ahead, as far as there is room. What was written or read stays there until its room is wanted, and then
//! leaves for the host, least recently used first, as the driver's own eviction would have it. What is hinted comes back
//! in the order of the hints, and stays until it was read. A call for which no room could ever come free works on the
//! host's pages from afar, so that no call waits for itself.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use tierflow_engine::Version;
use tierflow_engine::plan::PrefetchDistance;

/// The driver moves memory in blocks of this many bytes: versions begin at one.
pub(super) const BLOCK: u64 = 2 << 20;

/// Bytes that are moved in at a time ahead of what will be written.
const AHEAD: u64 = 16 * BLOCK;

/// The state of a history of which a part lies on the device.
#[derive(Debug)]
pub(super) struct Window {
    limit: u64,
    length: u64,
    /// Bytes on the device, on their way there, or on their way back.
    resident: u64,
    /// Of those, bytes on their way back.
    leaving: u64,
    /// The next version's first byte, and the end of the bytes that lie on the device for it.
    cursor: u64,
    moved_in: u64,
    /// Bytes behind `moved_in` that are on their way.
    moving_in: u64,
    copies: HashMap<Version, Copy>,
    /// Versions on the device that may leave, least recently used first.
    idle: VecDeque<Version>,
    /// Ranges on the device that are needed no more.
    worthless: VecDeque<Out>,
    /// True while memory that came ahead in vain is on its way back.
    ahead_leaving: bool,
    /// The hints, and how many of them have their version on the device or on its way there.
    order: VecDeque<Version>,
    taken: usize,
    started: bool,
    writing: bool,
    draining: bool,
    /// Bytes of the largest version so far.
    largest: u64,
    /// Bytes that a caller, and the next prefetch, need and do not have.
    wanted: [u64; 2],
}

#[derive(Debug)]
struct Copy {
    range: Range<u64>,
    at: At,
    /// The application copies from or to it.
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

/// The caller as one who wants room.
const CALLER: usize = 0;
const PREFETCH: usize = 1;

/// The next step of a caller with a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WindowStep {
    /// Copy it within the device, after having moved those bytes there.
    Near {
        range: Range<u64>,
        missing: Range<u64>,
    },
    /// Copy it where it lies, on the host.
    Far(Range<u64>),
    /// Ask again when something has moved.
    Later,
}

/// A move to the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum In {
    Version(Version, Range<u64>),
    /// For what will be written.
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
    /// Room for what was not written.
    Ahead,
}

impl Out {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Window {
    /// For a history of `length` bytes, of which `limit` may lie on the device; none does yet.
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

    /// Bytes of a history of such versions.
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

    /// Bytes that will be free without the caller's doing.
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

    /// The caller has done with it; it may leave.
    fn rest(&mut self, version: Version) {
        if let Some(copy) = self.copies.get_mut(&version) {
            copy.busy = false;
            if copy.at == At::Device {
                self.idle.push_back(version);
            }
        }
    }

    /// Returns true if the version could be dropped now; else ask again when something has moved.
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

    /// Everything is to lie on the host. Returns whether it does.
    pub(super) fn drain(&mut self) -> bool {
        self.writing = false;
        self.give_back_ahead();
        self.draining = self.has_movable() || self.moving_in > 0;
        !self.draining
    }

    /// Of the hinted versions after this one, how many lie on the device, up to the first that does not.
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

    /// Bytes to keep free of versions while the application writes: it writes there at once.
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
        // Memory on its way is given back when it has come.
        if self.moving_in == 0 && self.moved_in > self.cursor {
            self.worthless.push_back(Out {
                what: What::Ahead,
                range: self.cursor..self.moved_in,
            });
            self.moved_in = self.cursor;
        }
    }

    /// The application writes again, before that was gone.
    fn take_back_ahead(&mut self) {
        let mut outs = self.worthless.iter();
        if let Some(at) =
            outs.position(|out| out.what == What::Ahead && out.range.start == self.cursor)
            && let Some(out) = self.worthless.remove(at)
        {
            self.moved_in = out.range.end;
        }
    }

    /// Bytes on the device, on their way there, or on their way back.
    #[cfg(test)]
    pub(super) fn resident(&self) -> u64 {
        self.resident
    }

    /// Bytes that a call waits for.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted.iter().sum()
    }

    /// Returns the next move to the host, if any. Call [`left`](Self::left) when it has.
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

    /// Returns the next move to the device, if there is room. Call [`came`](Self::came) when it has.
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
                    // Room for the next one leaves while this one comes: the ways do not wait for each other.
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

    /// Bytes of the next hinted version, if it lies on the host and may come.
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
