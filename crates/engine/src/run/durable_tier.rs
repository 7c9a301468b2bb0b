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

/// Copies given up are removed so many, or of so many bytes, at a time: small ones share files, which are written anew.
const REMOVED_AT_ONCE: usize = 256;
const BYTES_REMOVED_AT_ONCE: u64 = 64 << 20;

/// The name under which a checkpoint is saved whose regions have none: one after the other.
const NAME: &str = crate::region::UNNAMED;
/// The name under which the difference of one is saved.
const DIFFERENCE: &str = "difference";
/// The name under which a compressed one is saved.
const COMPRESSED: &str = "compressed";

/// The form of the bytes that are stored under a version's number.
#[derive(Debug, Clone, Copy)]
pub(super) enum StoredForm {
    /// The bytes of the checkpoint.
    Whole,
    /// A difference of a checkpoint of so many bytes, to `base` if there is one; or its compressed bytes.
    Difference { size: u64, base: Option<Version> },
}

/// The choices that all durable tiers of an engine share, and what they know together.
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
    /// Noted before the first change on any of the tiers.
    pub(crate) first: Arc<FirstWrite>,
    /// Hears of versions that are discarded, before they are removed.
    pub(crate) protected: Option<Arc<dyn Protector>>,
    /// True if versions outlive the engine on the nodes alone: there, a version stays that `protected` could not hear of.
    pub(crate) is_node_lowest: bool,
}

/// A copy that was given up and is still there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DroppedCopy {
    pub(crate) bytes: u64,
    /// True if the version is given up on every tier, and protection has not heard of it.
    pub(crate) is_discarded: bool,
    /// True once it could not be removed.
    pub(crate) is_stuck: bool,
}

/// A vault as a tier.
#[derive(Debug)]
pub(crate) struct DurableTier {
    vault: Arc<dyn Vault>,
    /// The vault below: it may have the bases of versions here.
    below: Option<Arc<DurableTier>>,
    /// The vault itself, if it is a directory of a rank of one.
    directory: Option<Arc<Repository>>,
    settings: TierSettings,
    /// The order of publishing, if versions become durable here in the order of their numbers.
    turns: Option<PublishOrder>,
    /// Copies that came since [`Self::not_retained`] looked last, and how many it waits for.
    came: Mutex<(usize, usize)>,
    /// Versions known to be sound here: saved by this engine, or read to see.
    sound: Mutex<BTreeSet<Version>>,
    /// Copies that were found here, are not known to the plan, and go once a version of this engine is durable; with their bytes.
    unfit: Mutex<BTreeMap<Version, u64>>,
    /// Copies given up that are still there.
    dropped: Mutex<BTreeMap<Version, DroppedCopy>>,
    /// Discarded versions whose note found no room: it is given again.
    unheard: Mutex<BTreeSet<Version>>,
    /// How often bytes got here, or were about to.
    moved: Arc<AtomicU64>,
    /// Held while they are removed: [`Self::dropped`] never is, as the plan's lock is held when it is taken.
    removing: Mutex<(), { rank::DURABLE }>,
    /// Held while protection hears of versions that are discarded.
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

    /// The pieces in a directory of a rank of one, whether or not what they build upon lies there.
    pub(crate) fn parts(&self) -> Result<Option<Vec<PieceInfo>>> {
        let directory = self.directory.as_deref();
        directory.map(Repository::own_pieces).transpose()
    }

    pub(crate) fn vault(&self) -> &dyn Vault {
        &*self.vault
    }

    /// Keeps `length` bytes under a version's number, which `pull` fetches as they are written, unless it is stopped before
    /// they are published.
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

    /// Returns the names of a version's regions, if they are known: of `length` bytes, or of the difference that these are.
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

    /// Keeps the one region that a version is.
    fn save_one<'a>(
        &self,
        version: Version,
        form: StoredForm,
        region: Region<'a>,
        parts: Option<&'a [RegionInfo]>,
        stop: &Stop,
    ) -> Result<()> {
        match form {
            StoredForm::Whole if self.settings.empties.has(version) => {
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

    /// Keeps the piece of another vault, with its checksums.
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

    /// A number that grows with the bytes that get here.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Returns true if versions become durable here in the order of their numbers.
    pub(super) fn is_in_order(&self) -> bool {
        self.turns.is_some()
    }

    /// Says who hears of a version that it waits for others, if versions become durable here in order.
    pub(super) fn tell(&self, hear: Box<OrderObserver>) {
        if let Some(turns) = &self.turns {
            turns.tell(hear);
        }
    }

    /// A version is on its way here.
    pub(super) fn expect(&self, version: Version) {
        if let Some(turns) = &self.turns {
            turns.expect(version);
        }
    }

    /// A version is on its way no longer: it arrived, is not wanted any more, or failed and will be sent again.
    pub(crate) fn end(&self, version: Version, has_failed: bool) {
        if let Some(turns) = &self.turns {
            turns.end(version, has_failed);
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

    /// The engine ends: no transfer waits for its turn any more.
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
                    // The file that is in the way is named.
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

    /// Returns the versions that the retention gives up. Lists them once for so many new ones that it costs next to nothing. One
    /// version that can be restored stays: versions that are known to be damaged do not count.
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
        // Should they not be listed, the next one that comes tries again.
        let mut versions = self.vault.versions().unwrap_or_default();
        let dropped = self.dropped.lock();
        versions.retain(|info| !dropped.contains_key(&info.version));
        drop(dropped);
        self.came.lock().1 = versions.len() / 8;
        let mut given_up = retention.given_up(&versions);
        // Of a rank alone, every piece is a version.
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

    /// Lets [`Self::not_retained`] look again in any case.
    pub(super) fn look_again(&self) {
        self.came.lock().1 = 0;
    }

    /// The notes and the lists that the run leaves once.
    pub(crate) fn first(&self) -> &Arc<FirstWrite> {
        &self.settings.first
    }

    /// Removes what was given up, once it is worth it.
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
            // Tried again with the next one, and when the engine goes.
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
