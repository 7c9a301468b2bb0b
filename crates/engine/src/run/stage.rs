//! The stage between tiers that hold checkpoints as they are and those below: what becomes of checkpoints on the way down, and
//! checkpoints of that on the way up.
//!
//! It works where the bytes are: of what lies in device memory the device makes less, of what lies in host memory the host's
//! cores do; and so with checkpoints that come up again. What lies there says itself what it is, so that either stage reads what
//! the other one wrote, the other one's on the host's cores.

use super::context::{TierContext, TransferError};
use super::layouts::Layout;
use super::medium::TierState;
use super::placed_piece::PlacedPiece;
use super::regions::TargetRegions;
use crate::kind::Kind;
use crate::plan::{Overhead, Piece, Place, Stored};
use crate::{CompressionMetrics, Result, Version};
use std::any::Any;
use tierflow_device::{Device, Stream};
use tierflow_store::container::RegionInfo;

/// A version that does not lie as it is, where, and what it builds upon, nearest first.
pub(crate) type Links<'a> = (Version, &'a Place, &'a [(Version, Place)]);

/// The version that a stage is to encode, and the facts that it needs for that.
#[cfg_attr(not(feature = "stage"), expect(dead_code))]
pub(crate) struct StageInput<'a> {
    pub(super) version: Version,
    /// The version that it is to build upon.
    pub(super) base: Option<Version>,
    /// How many began their way before it.
    pub(super) turn: u64,
    /// The names of its regions.
    pub(super) layout: &'a dyn Fn() -> Option<Layout>,
    /// The largest error of its values, if its call named one.
    pub(super) error: Option<f64>,
    /// Bytes/s of the slowest way between the tiers below, of those that were used.
    pub(super) below: &'a dyn Fn() -> Option<f64>,
    /// Hears what was made, or that it goes as it is, and says where that is to lie: as close to others as there is room by then.
    pub(super) encoded: &'a dyn Fn(Option<Stored>) -> Option<Piece>,
}

/// The builder's choice of a [`Stage`].
pub(crate) trait StageOptions: Any + Send {
    /// Returns true if versions may build upon others.
    fn differs(&self) -> bool;

    /// Returns how many of these tiers, the fastest first, hold versions as they are in any case.
    fn whole_on(&self, kinds: &[Kind]) -> usize;

    /// Checks that these tiers go together with the stage.
    fn check(&self, kinds: &[Kind]) -> Result<()>;

    /// Makes the stage for these tiers.
    fn make(&self, device: &Device, tiers: &[TierState]) -> Result<Option<Box<dyn Stage>>>;
}

/// Encodes checkpoints for tiers that do not hold them as they are.
pub(crate) trait Stage: std::fmt::Debug + Send + Sync {
    /// The most bytes by which what it makes is larger than the checkpoint.
    fn overhead(&self) -> Overhead;

    /// Versions in a chain, at most.
    fn longest_chain(&self) -> u32;

    /// Checks that the regions of a checkpoint can be stored in the chosen way, with the error that its call allows.
    fn check(&self, version: Version, layout: &[RegionInfo], error: Option<f64>) -> Result<()>;

    fn metrics(&self) -> Option<CompressionMetrics>;

    /// The engine ends: those before a version may never come, and are not waited for.
    fn close(&self) {}

    /// Takes a version down. Returns what was stored; `None` if it went as it is.
    fn down(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        stage_input: &StageInput<'_>,
        from: PlacedPiece<'_>,
        to: PlacedPiece<'_>,
    ) -> std::result::Result<Option<Stored>, TransferError>;

    /// Makes a checkpoint, on a tier that holds it as it is, of what lies below.
    fn up(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        chain: Links<'_>,
        to: PlacedPiece<'_>,
    ) -> std::result::Result<(), TransferError>;

    /// Reads a version of `size` bytes that does not lie as it is into the application's regions.
    fn read(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        chain: Links<'_>,
        size: u64,
        to: &mut TargetRegions<'_, '_>,
        stream: Option<&Stream>,
    ) -> Result<()>;
}
