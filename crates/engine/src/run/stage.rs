//! The stage between the tiers that hold checkpoints as they are and the tiers below: encodes checkpoints on the way down, and decodes them
//! on the way up.
//!
//! The stage works where the bytes are: the device encodes and decodes bytes in device memory, and the host's cores those in host memory.
//! Encoded bytes name their format, so a stage also reads the bytes that a stage of the other kind wrote. The host's cores decode these.

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

/// An encoded version, its place, and the versions that it builds upon with their places, nearest first.
pub(crate) type Links<'a> = (Version, &'a Place, &'a [(Version, Place)]);

/// The version that a stage is to encode, and the facts that it needs for that.
#[cfg_attr(not(feature = "stage"), expect(dead_code))]
pub(crate) struct StageInput<'a> {
    pub(super) version: Version,
    /// The version that it is to build upon.
    pub(super) base: Option<Version>,
    /// Number of encoding transfers that the plan started before this one.
    pub(super) turn: u64,
    /// Returns the names of the version's regions.
    pub(super) layout: &'a dyn Fn() -> Option<Layout>,
    /// The largest error of the version's values, if its call named one.
    pub(super) error: Option<f64>,
    /// Returns the throughput, in bytes/s, of the slowest link between the tiers below, of those that were used.
    pub(super) below: &'a dyn Fn() -> Option<f64>,
    /// Reports the encoded bytes to the plan, or, with `None`, that the version goes as it is. Returns the place to write to: as close to
    /// others as there is room by then.
    pub(super) encoded: &'a dyn Fn(Option<Stored>) -> Option<Piece>,
}

/// The builder's choice of a [`Stage`].
pub(crate) trait StageOptions: Any + Send {
    /// Returns true if versions may build upon others.
    fn differs(&self) -> bool;

    /// Returns how many of these tiers, the fastest first, hold versions as they are in any case.
    fn whole_on(&self, kinds: &[Kind]) -> usize;

    /// Checks that the stage works with these tiers.
    fn check(&self, kinds: &[Kind]) -> Result<()>;

    /// Makes the stage for these tiers.
    fn make(&self, device: &Device, tiers: &[TierState]) -> Result<Option<Box<dyn Stage>>>;
}

/// Encodes checkpoints for tiers that do not hold them as they are.
pub(crate) trait Stage: std::fmt::Debug + Send + Sync {
    /// Returns the most bytes by which an encoded version is larger than the checkpoint.
    fn overhead(&self) -> Overhead;

    /// Returns the largest number of versions in a chain.
    fn longest_chain(&self) -> u32;

    /// Checks that the regions of a checkpoint can be stored in the chosen way, with the error that its call allows.
    fn check(&self, version: Version, layout: &[RegionInfo], error: Option<f64>) -> Result<()>;

    fn metrics(&self) -> Option<CompressionMetrics>;

    /// Ends all waits for earlier versions, which may never come as the engine ends.
    fn close(&self) {}

    /// Copies a version to a lower tier, encoded or as it is. Returns the result of the encoding; `None` if the version went as it is.
    fn down(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        stage_input: &StageInput<'_>,
        from: PlacedPiece<'_>,
        to: PlacedPiece<'_>,
    ) -> std::result::Result<Option<Stored>, TransferError>;

    /// Decodes a version that lies below onto a tier that holds checkpoints as they are.
    fn up(
        &self,
        context: &mut TierContext,
        tiers: &[TierState],
        chain: Links<'_>,
        to: PlacedPiece<'_>,
    ) -> std::result::Result<(), TransferError>;

    /// Decodes a version of `size` bytes into the application's regions.
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
