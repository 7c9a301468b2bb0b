//! A tier that outlives the engine: copies lie under their versions' numbers, whole or not at all, with checksums.

mod many;
mod removal;
mod unfit;

use super::empty_checkpoints::EmptyCheckpoints;
use super::first_write::FirstWrite;
use super::layouts::{Layout, Layouts};
use super::publish_order::{OrderObserver, PublishOrder};
use crate::Version;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tierflow_store::container::{Element, RegionInfo};
use tierflow_store::{
    Error, Piece, PieceInfo, Protector, Region, Repository, Result, Retention, Snapshot, Vault,
    last_restorable,
};
use tierflow_sync::model::{AtomicU64, Mutex, Ordering};
use tierflow_sync::rank;
use tierflow_transfer::Stop;

/// Given-up copies are removed once there are so many, or once they have so many bytes: small copies share files, which a removal writes
/// anew.
const REMOVED_AT_ONCE: usize = 256;
const BYTES_REMOVED_AT_ONCE: u64 = 64 << 20;

/// Name of the one region that is saved for a checkpoint whose regions have no names: their bytes follow one another.
const NAME: &str = crate::region::UNNAMED;
/// Name of the region that holds a difference.
const DIFFERENCE: &str = "difference";
/// Name of the region that holds a compressed checkpoint.
const COMPRESSED: &str = "compressed";

/// The form of the bytes that are stored under a version's number.
#[derive(Debug, Clone, Copy)]
pub(super) enum StoredForm {
    /// The bytes of the checkpoint.
    Whole,
    /// The difference of a checkpoint of `size` bytes, to `base` if there is one, or the compressed bytes of such a checkpoint.
    Difference { size: u64, base: Option<Version> },
}

/// The settings of a durable tier, and the records that all durable tiers of an engine share.
#[derive(Debug, Clone)]
pub(crate) struct TierSettings {
    pub(crate) retention: Option<Retention>,
    /// The most bytes of the tier, if they are limited, and the directory that counts them.
    pub(crate) limit: Option<(u64, Arc<Repository>)>,
    /// True if the engine's versions build upon others.
    pub(crate) builds: bool,
    /// True if versions become durable in the order of their numbers.
    pub(crate) in_order: bool,
    /// The versions that are kept without bytes.
    pub(crate) empties: Arc<EmptyCheckpoints>,
    /// The names of the versions' regions.
    pub(crate) layouts: Arc<Layouts>,
    /// The writer of the notes that precede the first change on any of the tiers.
    pub(crate) first: Arc<FirstWrite>,
    /// The protection that is told of discarded versions before their copies are removed.
    pub(crate) protected: Option<Arc<dyn Protector>>,
    /// True if only storage of the nodes outlives the engine. There, a version stays if `protected` could not be told of its discard.
    pub(crate) is_node_lowest: bool,
}

/// A copy that was given up and is still there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DroppedCopy {
    pub(crate) bytes: u64,
    /// True if the version is given up on every tier, and protection has not heard of it.
    pub(crate) is_discarded: bool,
    /// True once a removal of the copy failed.
    pub(crate) is_stuck: bool,
}

/// A tier that keeps its copies in a vault.
#[derive(Debug)]
pub(crate) struct DurableTier {
    vault: Arc<dyn Vault>,
    /// The durable tier below, which may have the bases of versions here.
    below: Option<Arc<DurableTier>>,
    /// The directory of the vault, if it is one and the rank has no group.
    directory: Option<Arc<Repository>>,
    settings: TierSettings,
    /// The order of publishing, if versions become durable here in the order of their numbers.
    turns: Option<PublishOrder>,
    /// `(arrived, threshold)`: [`Self::not_retained`] lists the versions again when `arrived` copies since its last list reach `threshold`.
    came: Mutex<(usize, usize)>,
    /// Versions whose copies here are known to be sound: this engine saved them, or read them to check.
    sound: Mutex<BTreeSet<Version>>,
    /// Copies that were found here and that the plan does not know, with their bytes. A removal takes them once a version of this engine is
    /// durable.
    unfit: Mutex<BTreeMap<Version, u64>>,
    /// Given-up copies that are not removed yet.
    dropped: Mutex<BTreeMap<Version, DroppedCopy>>,
    /// Discarded versions of which `protected` could not note the discard for lack of room. The next note names them again.
    unheard: Mutex<BTreeSet<Version>>,
    /// Number of times that bytes arrived here, or were about to.
    moved: Arc<AtomicU64>,
    /// Serialises removals. [`Self::dropped`] is locked under the plan's lock, so it is never held during a removal.
    removing: Mutex<(), { rank::DURABLE }>,
    /// Held while `protected` is told of discarded versions.
    noting: Mutex<(), { rank::FIRST_WRITE }>,
}

impl DurableTier {
    pub(crate) fn new(
        vault: Arc<dyn Vault>,
        below: Option<Arc<Self>>,
        directory: Option<Arc<Repository>>,
        settings: TierSettings,
    ) -> Self {
        Self {
            vault,
            below,
            directory,
            turns: settings.in_order.then(PublishOrder::default),
            settings,
            came: Mutex::default(),
            sound: Mutex::default(),
            unfit: Mutex::default(),
            dropped: Mutex::default(),
            unheard: Mutex::default(),
            moved: Arc::new(AtomicU64::new(0)),
            removing: Mutex::default(),
            noting: Mutex::default(),
        }
    }

    /// Returns the pieces in the directory, whether or not their bases lie there. `None` if the vault is no directory, or the rank has a
    /// group.
    pub(crate) fn parts(&self) -> Result<Option<Vec<PieceInfo>>> {
        let directory = self.directory.as_deref();
        directory.map(Repository::own_pieces).transpose()
    }

    pub(crate) fn vault(&self) -> &dyn Vault {
        &*self.vault
    }

    /// Saves `length` bytes under a version's number. `pull` fetches the bytes as they are written. Nothing is published if `stop` is set
    /// before.
    pub(super) fn save(
        &self,
        version: Version,
        length: u64,
        form: StoredForm,
        pull: &tierflow_store::Pull<'_>,
        stop: &Stop,
    ) -> Result<()> {
        let layout = self.layout_of(version, form, length);
        let pull = &|at, into: &mut [u8]| {
            self.moved.fetch_add(1, Ordering::Relaxed);
            pull(at, into)
        };
        match layout.as_deref() {
            Some(layout) if matches!(form, StoredForm::Whole) => {
                let pulls: Vec<_> = layout
                    .iter()
                    .map(|info| move |at, into: &mut [u8]| pull(info.offset + at, into))
                    .collect();
                let regions = layout.iter().zip(&pulls);
                let regions: Vec<Region<'_>> = regions
                    .map(|(info, pull)| {
                        Region::pulled(&info.name, info.length, pull)
                            .array(info.element, &info.shape)
                    })
                    .collect();
                self.put_regions(version, None, &regions, stop)
            }
            parts => {
                let region = Region::pulled(self.name_of(form), length, pull);
                self.save_one(version, form, region, parts, stop)
            }
        }
    }

    fn name_of(&self, form: StoredForm) -> &'static str {
        match form {
            StoredForm::Whole => NAME,
            StoredForm::Difference { .. } if self.settings.builds => DIFFERENCE,
            StoredForm::Difference { .. } => COMPRESSED,
        }
    }

    /// Returns the regions of a version, if they are known and have as many bytes together as the checkpoint: `length`, or the size in
    /// `form`.
    fn layout_of(&self, version: Version, form: StoredForm, length: u64) -> Option<Layout> {
        let size = match form {
            StoredForm::Whole => length,
            StoredForm::Difference { size, .. } => size,
        };
        let adopted = || {
            let below = self.below.as_ref();
            let below = below.filter(|_| self.settings.layouts.may_be_adopted(version))?;
            below.layout(version).map(Layout::from)
        };
        let layout = self.settings.layouts.get(version).or_else(adopted)?;
        let total: u64 = layout.iter().map(|info| info.length).sum();
        (total == size).then_some(layout)
    }

    /// Returns true for a version without bytes.
    pub(super) fn is_empty(&self, version: Version) -> bool {
        self.settings.empties.has(version)
    }

    /// Saves a version as one region. An encoded version decodes to `parts`.
    fn save_one<'a>(
        &self,
        version: Version,
        form: StoredForm,
        region: Region<'a>,
        parts: Option<&'a [RegionInfo]>,
        stop: &Stop,
    ) -> Result<()> {
        match form {
            StoredForm::Whole if self.is_empty(version) => {
                self.put_regions(version, None, &[Region::new(NAME, &[])], stop)
            }
            StoredForm::Whole => self.put_regions(version, None, &[region], stop),
            StoredForm::Difference { size, base } => {
                let extent = [size];
                let region = region.array(Element::Encoded, &extent);
                let region = region.decoded_to(parts.unwrap_or_default());
                self.put_regions(version, base, &[region], stop)
            }
        }
    }

    fn put_regions(
        &self,
        version: Version,
        base: Option<Version>,
        regions: &[Region<'_>],
        stop: &Stop,
    ) -> Result<()> {
        let snapshot = Snapshot {
            version,
            base,
            regions,
        };
        let ready = || self.turn(version, stop);
        self.put(version, || self.vault.save(&snapshot, &ready))?;
        self.settings.first.has_written();
        Ok(())
    }

    /// Saves a copy of another vault's piece, with its checksums.
    pub(super) fn copy(&self, piece: Piece, stop: &Stop) -> Result<()> {
        let (moved, stopped) = (Arc::clone(&self.moved), stop.clone());
        let version = piece.version();
        // The closure is called between two blocks.
        let piece = piece.unless(move || {
            moved.fetch_add(1, Ordering::Relaxed);
            stopped.is_set()
        });
        let ready = || self.turn(version, stop);
        self.put(version, || self.vault.copy(&piece, &ready))
    }

    /// Returns a number that grows with the bytes that arrive here.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Returns true if versions become durable here in the order of their numbers.
    pub(super) fn is_in_order(&self) -> bool {
        self.turns.is_some()
    }

    /// Sets the observer of the versions that wait for others, if versions become durable here in order.
    pub(super) fn tell(&self, hear: Box<OrderObserver>) {
        if let Some(turns) = &self.turns {
            turns.tell(hear);
        }
    }

    /// Notes that a version is on its way here.
    pub(super) fn expect(&self, version: Version) {
        if let Some(turns) = &self.turns {
            turns.expect(version);
        }
    }

    /// Notes that a version is no longer on its way: it arrived, is not wanted any more, or failed and will be sent again.
    pub(crate) fn end(&self, version: Version, has_failed: bool) {
        if let Some(turns) = &self.turns {
            turns.end(version, has_failed);
        }
    }

    /// Notes that a version was given up on all tiers.
    pub(super) fn forget(&self, version: Version) {
        if let Some(turns) = &self.turns {
            turns.forget(version);
        }
    }

    /// Waits for a version's turn to be published.
    fn turn(&self, version: Version, stop: &Stop) -> Result<()> {
        if let Some(turns) = &self.turns {
            turns.wait(version)?;
        }
        match stop.is_set() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// Ends the waits of transfers for their turns, as the engine ends.
    pub(super) fn close(&self) {
        if let Some(turns) = &self.turns {
            turns.close();
        }
    }

    /// Removes given-up copies before a write if they have the same number, or after a write if the disk is full.
    fn put(&self, version: Version, put: impl Fn() -> Result<()>) -> Result<()> {
        let put = || {
            self.make_way([version])?;
            self.settings.first.note()?;
            put()
        };
        match put() {
            Err(Error::Full { .. }) if self.make_room() => {
                let removed = self.remove_dropped();
                match put() {
                    // The error of the removal names the file that is in the way.
                    Err(Error::Full { .. }) if removed.is_err() => removed,
                    done => done,
                }
            }
            done => done,
        }?;
        self.came.lock().0 += 1;
        self.moved.fetch_add(1, Ordering::Relaxed);
        if self.settings.retention.is_some() {
            self.sound.lock().insert(version);
        }
        Ok(())
    }

    /// Returns the versions that the retention gives up. Lists the versions again only after an eighth as many new ones, so the lists cost
    /// next to nothing. Keeps one version that can be restored: versions that are known to be damaged do not count.
    pub(super) fn not_retained(&self, is_known_sound: impl Fn(Version) -> bool) -> Vec<Version> {
        let Some(retention) = self.settings.retention else {
            return Vec::new();
        };
        {
            let mut came = self.came.lock();
            if came.0 < came.1 {
                return Vec::new();
            }
            // A single thread lists at a time, and saves do not wait for the list.
            *came = (0, usize::MAX);
        }
        // If the list fails, the next version that arrives has it tried again.
        let mut versions = self.vault.versions().unwrap_or_default();
        let dropped = self.dropped.lock();
        versions.retain(|info| !dropped.contains_key(&info.version));
        drop(dropped);
        self.came.lock().1 = versions.len() / 8;
        let mut given_up = retention.given_up(&versions);
        // Without a group, every piece is a version.
        let is_group = versions.last().is_some_and(|newest| newest.ranks > 1);
        let pieces = match is_group {
            true => self.vault.pieces().unwrap_or_default(),
            false => Vec::new(),
        };
        let mut left_behind = retention.left_behind(&versions, &pieces);
        let gone: BTreeSet<Version> = given_up.iter().copied().collect();
        let kept = versions.iter().map(|info| info.version);
        let kept: BTreeSet<Version> = kept.filter(|version| !gone.contains(version)).collect();
        self.sound.lock().retain(|version| kept.contains(version));
        let last = last_restorable(kept, gone, |version| {
            is_known_sound(version) && self.is_sound(version)
        });
        given_up.retain(|version| Some(*version) != last);
        given_up.append(&mut left_behind);
        given_up
    }

    /// Returns true if all checksums of a version's piece here match.
    fn is_sound(&self, version: Version) -> bool {
        if self.sound.lock().contains(&version) {
            return true;
        }
        let piece = self.vault.piece(version);
        let is_sound = piece.and_then(|piece| piece.verify(&|_| {})).is_ok();
        if is_sound {
            self.sound.lock().insert(version);
        }
        is_sound
    }

    /// Makes the next [`Self::not_retained`] list the versions in any case.
    pub(super) fn look_again(&self) {
        self.came.lock().1 = 0;
    }

    /// Returns the writer of the notes and the lists that the run leaves once.
    pub(crate) fn first(&self) -> &Arc<FirstWrite> {
        &self.settings.first
    }

    /// Removes given-up copies if they are many, and found copies that do not count, once a version of this engine is durable.
    pub(super) fn tidy(&self) {
        let is_unfit = self.settings.first.may_remove() && self.drop_all_unfit();
        if self.settings.first.may_remove() {
            self.settings.first.remove_superseded();
        }
        let is_much = is_unfit || {
            let dropped = self.dropped.lock();
            let bytes = dropped.values().map(|one| one.bytes).sum::<u64>();
            dropped.len() >= REMOVED_AT_ONCE || bytes >= BYTES_REMOVED_AT_ONCE
        };
        if is_much {
            // The next version that arrives has the removal tried again, and so has the end of the engine.
            let _still_there = self.remove_dropped();
        }
    }

    /// Returns the regions of a version as it lies here, with their offsets in the checkpoint.
    pub(crate) fn layout(&self, version: Version) -> Option<Vec<RegionInfo>> {
        let piece = self.vault.piece(version).ok()?;
        let mut layout = piece.layout().to_vec();
        let mut offset = 0;
        for info in &mut layout {
            info.offset = offset;
            offset += info.length;
        }
        (!layout.is_empty()).then_some(layout)
    }
}
