//! Target residency: the versions used first belong on the fastest tier, those that follow on the next, the rest on the
//! lowest.
//!
//! Sums of bytes along the order of use give every version its target. Transfers bring versions there. Evictions take
//! replicas outside their target first, then those used last.

use super::Ledger;
use crate::TierId;
use crate::config::AfterRestore;
use crate::order::{Point, Position};
use crate::statistics::PrefetchDistance;
use smallvec::SmallVec;

/// Room that is kept on the fastest tier while writes are expected, in quarters of the last checkpoint's bytes. With
/// less, a checkpoint a little larger than the last one waits for an eviction; with more, bytes are written down that
/// could have stayed.
const WRITE_RESERVE_QUARTERS: u64 = 5;

/// Largest ratio of a later version's size to the last one's, if sizes vary: compressed wavefields of a shot begin
/// below a hundredth of their peak.
const GROWTH: u64 = 16;

/// A history is expected to become this many times as long where read versions stay: further shots come on top of it.
const PILED_UP: u64 = 3;

/// The observed behaviour of the application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Phase {
    /// Bytes of the last checkpoint that was asked for.
    pub(crate) last_size: u64,
    /// True if checkpoints had different sizes.
    pub(crate) sizes_vary: bool,
    /// True if the application has read since it last wrote.
    pub(crate) is_reading: bool,
    /// True if prefetching may go on.
    pub(crate) prefetches: bool,
    /// A checkpoint was asked for: adopted copies may be written to tiers that outlive the application.
    pub(crate) has_begun: bool,
    /// The most bytes that the history held at once.
    pub(crate) peak: u64,
    /// True if a version of the history was read.
    pub(crate) has_read: bool,
    /// True if a hint named the last reading.
    pub(crate) follows_hints: bool,
    /// Hinted readings since the last checkpoint was asked for, between that one and the one before it, and so on. The last number is for the case that a
    /// checkpoint comes to nothing.
    pub(crate) reads: [u64; 4],
}

/// The places of the next checkpoint in the order of use.
#[derive(Debug, Clone, Copy)]
struct CheckpointPlace {
    /// The first reading behind the checkpoint.
    written: Point,
    /// The first reading of a version that is not written yet. Behind it, the order counts that version's bytes.
    read: Point,
}

impl Phase {
    /// Begins another history: the last version of the one before went.
    pub(crate) fn begin_history(&mut self) {
        self.prefetches = false;
        self.is_reading = false;
        self.has_read = false;
        self.peak = 0;
        self.reads = [0; 4];
    }

    /// Notes that the application asks for a checkpoint.
    pub(crate) fn begin_checkpoint(&mut self, size: u64) {
        self.sizes_vary |= self.last_size != 0 && self.last_size != size;
        self.last_size = size;
        self.is_reading = false;
        self.has_begun = true;
        self.reads.rotate_right(1);
        self.reads[0] = 0;
    }

    /// Notes that the last checkpoint came to nothing: the readings before it and behind it come before the next one.
    pub(crate) fn forget_checkpoint(&mut self) {
        let since = std::mem::take(&mut self.reads[0]);
        self.reads.rotate_left(1);
        self.reads[0] += since;
    }

    /// Returns the place of the next checkpoint among the hinted readings, if the last two came after equally many of them, and a hinted version
    /// is not written yet: as many readings come before the next checkpoint, but none of that version. A checkpoint behind more readings than the plan looks at ahead of a
    /// reading has no place: the fastest tier seldom holds so many versions, and each is counted at each event.
    fn place_of_checkpoint(&self, ledger: &Ledger) -> Option<CheckpointPlace> {
        let [since, between, before, _] = self.reads;
        let left = usize::try_from(between.checked_sub(since)?).ok()?;
        let is_steady = between > 0 && between == before && left <= PrefetchDistance::MOST;
        if !is_steady || !ledger.policy.follows_hints() {
            return None;
        }
        let point = |sequence| Point {
            position: ledger.order.hinted(sequence),
            byte: 0,
        };
        Some(CheckpointPlace {
            written: point(ledger.hints.following(left)?),
            read: point(ledger.hints.first_unwritten()?),
        })
    }

    /// Returns the positions before which versions are prefetched that were not read yet, and those that were: while the application writes, only those that it named, also while it reads and names the next
    /// reading each time. While it reads named versions and holds others that it named, those that it has read and did not name again are not: fetched
    /// now, they would take room and links from the named ones.
    fn fetch_limits(&self, ledger: &Ledger) -> (Position, Position) {
        let names_next = self.follows_hints && !ledger.hints_reach_far;
        let unread = match (self.prefetches, self.is_reading && !names_next) {
            (false, _) => Position::FIRST,
            (true, false) => Position::UNKNOWN,
            (true, true) => Position::LAST,
        };
        let read = match self.follows_hints && ledger.order.known().bytes > 0 {
            true => unread.min(Position::UNKNOWN),
            false => unread,
        };
        (unread, read)
    }
}

/// The boundary between the bytes that belong on a tier or above and the rest.
#[derive(Debug, Clone)]
struct Boundary {
    /// The first byte that belongs below.
    end: Point,
    /// True if the held bytes and those to come may not fit above.
    overflows: bool,
}

/// The target of every byte at the moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outlook {
    /// By tier, without the lowest.
    boundaries: SmallVec<[Boundary; 3]>,
    /// Bytes to be kept free on the fastest tier.
    pub(crate) write_reserve: u64,
    /// Bytes of the last checkpoint.
    pub(crate) last_size: u64,
    /// True if checkpoints are still to come.
    pub(crate) expects_writes: bool,
    /// The first reading behind the next checkpoint, or the first of all if its place is not known.
    pub(crate) next_checkpoint: Position,
    /// Versions that were not read yet, and those that were, are prefetched if their positions come before these.
    pub(crate) unread_before: Position,
    pub(crate) read_before: Position,
    /// True if a checkpoint was asked for.
    pub(crate) has_begun: bool,
    /// True if read versions stay, and a history [`PILED_UP`] times as long does not fit above the lowest tier.
    pub(crate) piles_up: bool,
}

impl Outlook {
    pub(crate) fn new(ledger: &Ledger, phase: &Phase) -> Self {
        let held = ledger.order.total();
        let known = ledger.order.known().bytes;
        let all_known = known == held.bytes;
        let unwritten = ledger.hints.unwritten();
        let holds_any = !ledger.records.is_empty();
        let expects_writes = unwritten > 0 || !(phase.is_reading || (all_known && holds_any));
        let growth = if phase.sizes_vary { GROWTH } else { 1 };
        let total = held.at(phase.last_size.saturating_mul(growth));
        // Without hints about them, the versions to come may be any.
        let is_told = all_known && unwritten > 0;
        let fits = |bytes: u64| (is_told || !expects_writes) && total <= bytes;
        let fastest = ledger.tiers[0].space.limit();
        // A program that reads between its writes needs the room for its readings.
        let write_reserve = match expects_writes && !phase.has_read && !fits(fastest) {
            true => phase.last_size.saturating_mul(WRITE_RESERVE_QUARTERS) / 4,
            false => 0,
        };
        let next_checkpoint = phase.place_of_checkpoint(ledger);
        // A program that writes between its reads holds its hinted versions one after the other. So the bytes that are held
        // and used again grow to their peak at most.
        let growth_left = match phase.has_read {
            true => phase.peak.saturating_sub(known),
            false => u64::MAX,
        };
        let mut reach = 0_u64;
        let pairs = ledger.tiers.windows(2).enumerate();
        let boundaries = pairs.map(|(above, tiers)| {
            let limit = tiers[0].space.limit();
            let holds = match ledger.lies_encoded(TierId(above)) {
                true => ledger.encoded_sizes.held_by(limit),
                false => limit,
            };
            reach = reach.saturating_add(holds);
            let boundary = |usable: u64| {
                let all_live = ledger.order.boundary(usable, phase.last_size);
                match usable.checked_sub(growth_left) {
                    Some(rest) => all_live.max(ledger.order.boundary(rest, 0)),
                    None => all_live,
                }
            };
            let mut end = boundary(reach.saturating_sub(write_reserve));
            // Versions that are read before the next checkpoint may fill the tier, as each leaves its room behind. Versions that are read behind it lie beside
            // its bytes.
            if let Some(place) = next_checkpoint {
                let beside = boundary(reach.saturating_sub(phase.last_size));
                if beside < place.read {
                    end = beside.max(place.written.min(end));
                }
            }
            // A part of a version can belong above only if versions move in parts.
            let in_parts = ledger.are_cut() && tiers.iter().all(|tier| !tier.config.whole);
            let least = match in_parts {
                true => ledger.extents.least,
                false => u64::MAX,
            };
            if end != Point::LAST {
                end.byte = end.byte / least * least;
            }
            Boundary {
                end,
                overflows: expects_writes && !fits(reach),
            }
        });
        let boundaries = boundaries.collect();
        let longer = held.bytes.saturating_mul(PILED_UP);
        let (unread_before, read_before) = phase.fetch_limits(ledger);
        let piles_up = ledger.after_restore == AfterRestore::Keep && longer > reach;
        Self {
            boundaries,
            write_reserve,
            last_size: phase.last_size,
            expects_writes,
            next_checkpoint: next_checkpoint
                .map_or(Position::FIRST, |place| place.written.position),
            unread_before,
            read_before,
            has_begun: phase.has_begun,
            piles_up,
        }
    }

    /// Returns true if the held bytes and those to come may not fit on `tier` and above, so that writing them down
    /// early pays.
    pub(crate) fn overflows(&self, tier: TierId) -> bool {
        let boundary = self.boundaries.get(tier.0);
        boundary.is_some_and(|boundary| boundary.overflows)
    }

    /// Returns the tier where a byte belongs.
    pub(crate) fn target(&self, point: Point) -> TierId {
        let above = self.boundaries.iter();
        TierId(above.take_while(|above| point >= above.end).count())
    }

    /// Returns the first byte that belongs below a tier.
    pub(crate) fn end(&self, tier: TierId) -> Point {
        let boundary = self.boundaries.get(tier.0);
        boundary.map_or(Point::LAST, |boundary| boundary.end)
    }
}
