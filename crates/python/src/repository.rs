//! The class `Repository`.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tierflow_bind::{DeviceStreams, Failure, parse};
use tierflow_device::{Choice, open};
use tierflow_engine::{RegionMut, Version};
use tierflow_objects::History;
use tierflow_store::Piece;
use tierflow_store::container::Element;

use crate::array::{Arrays, Use};
use crate::engine::{Described, described};
use crate::errors::{Answer, Number};
use crate::order;

/// A region that differs: name, shape, number of elements, index of the first element that differs, number of elements that differ,
/// largest distance, and index of the first element with that distance.
type Differs = (String, Vec<u64>, u64, u64, u64, f64, u64);

/// Versions that outlive their engines. A repository reads them without an engine: those of all ranks, and of groups of any size.
///
/// `directory` is that of `external=` or `node_local=`, or the URL of an object store. An engine may write to it meanwhile.
#[pyclass(frozen, subclass, module = "tierflow")]
pub(crate) struct Repository {
    inner: History,
    /// Streams of plain memory, as arrays to read into are in main memory.
    streams: DeviceStreams,
}

impl Repository {
    fn piece(&self, py: Python<'_>, version: Number, rank: u32) -> Answer<Piece> {
        Ok(py.detach(|| self.inner.piece_of(version.0, rank))?)
    }
}

#[pymethods]
impl Repository {
    #[new]
    fn new(py: Python<'_>, directory: PathBuf) -> Answer<Self> {
        let wrong = |why| Failure::argument(format!("{}: {why}", directory.display()));
        let place = parse::path(&directory).map_err(wrong)?;
        Ok(Self {
            inner: py.detach(|| History::open(place))?,
            streams: DeviceStreams::new(open(Choice::Host)?),
        })
    }

    /// Returns the versions of which every rank's piece is there, in ascending order.
    fn versions(&self, py: Python<'_>) -> Answer<Vec<Version>> {
        let versions = py.detach(|| self.inner.versions())?;
        Ok(versions.iter().map(|info| info.version).collect())
    }

    /// Returns the newest version of which every rank's piece is there; with `before`, the newest of a smaller number than `before`.
    /// Returns `None` if there is none.
    #[pyo3(signature = (before = None))]
    fn latest(&self, py: Python<'_>, before: Option<Number>) -> Answer<Option<Version>> {
        let before = before.map(|version| version.0);
        Ok(py.detach(|| self.inner.latest(before))?)
    }

    /// Returns the number of ranks that have a piece of `version`.
    fn ranks(&self, py: Python<'_>, version: Number) -> Answer<u32> {
        let (_, ranks) = self.piece(py, version, 0)?.rank();
        Ok(ranks)
    }

    /// Returns the bytes of the piece that `rank` has of `version`.
    fn size(&self, py: Python<'_>, version: Number, rank: u32) -> Answer<u64> {
        Ok(self.piece(py, version, rank)?.info().bytes)
    }

    /// Returns the regions of the piece that `rank` has of `version`, in their order: the name and the number of bytes of each.
    fn regions(&self, py: Python<'_>, version: Number, rank: u32) -> Answer<Vec<(String, u64)>> {
        let piece = self.piece(py, version, rank)?;
        let regions = piece.layout().iter();
        Ok(regions
            .map(|info| (info.name.clone(), info.length))
            .collect())
    }

    /// Returns the regions of the piece that `rank` has of `version`, in their order: name, element type, shape and number of bytes of each.
    /// The type is `None` for a region of plain bytes.
    fn layout(&self, py: Python<'_>, version: Number, rank: u32) -> Answer<Vec<Described>> {
        Ok(described(self.piece(py, version, rank)?.layout()))
    }

    /// Compares the pieces that `rank` has of `version` here and of `theirs` in the repository `other`. Returns the regions that differ, and
    /// the names of regions that only one piece has, or that have another type or shape there. `region` and `within` are those of
    /// `tierflow.compare`, which calls this method.
    #[pyo3(signature = (version, rank, other, theirs, region = None, within = None))]
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn differences(
        &self,
        py: Python<'_>,
        version: Number,
        rank: u32,
        other: &Bound<'_, Self>,
        theirs: Number,
        region: Option<&str>,
        within: Option<f64>,
    ) -> Answer<(Vec<Differs>, Vec<String>)> {
        let piece = self.piece(py, version, rank)?;
        let other = other.get().piece(py, theirs, rank)?;
        let found = py.detach(|| piece.compare(&other, region, within))?;
        let rows = found.regions.into_iter().map(|found| {
            let (region, difference) = (found.region, found.difference);
            let elements = region.length / region.element.size();
            let (first, count) = (difference.first, difference.count);
            let (largest, at) = (difference.largest, difference.largest_at);
            (
                region.name,
                region.shape,
                elements,
                first,
                count,
                largest,
                at,
            )
        });
        Ok((rows.collect(), found.unlike))
    }

    /// Fills `arrays`, in main memory, with parts of the piece that `rank` has of `version`. The part of each array begins at its entry of
    /// `offsets`, in bytes. Parts must not overlap. The checksum of every block is checked.
    #[pyo3(signature = (version, rank, offsets, *arrays))]
    fn read(
        &self,
        py: Python<'_>,
        version: Number,
        rank: u32,
        offsets: Vec<u64>,
        arrays: &Bound<'_, PyTuple>,
    ) -> Answer {
        if offsets.len() != arrays.len() {
            let (offsets, arrays) = (offsets.len(), arrays.len());
            let text = format!("there are {offsets} offsets for {arrays} arrays: each has its own");
            return Err(Failure::argument(text).into());
        }
        let number = version.0;
        let piece = self.piece(py, version, rank)?;
        let mut regions = piece.regions().iter();
        if regions.any(|region| region.element == Element::Encoded) {
            let text = format!(
                "version {number} lies there as a difference, or compressed: restore it by an engine with dedup= or compress="
            );
            return Err(Failure::argument(text).into());
        }
        let mut order = order::behind(&self.streams, None)?;
        let mut given = Arrays::of(arrays, Use::Write, &mut order)?;
        let mut parts: Vec<(u64, &mut [u8])> = Vec::new();
        for (offset, target) in offsets.into_iter().zip(given.regions_mut()) {
            if let RegionMut::Bytes(bytes) = target {
                parts.push((offset, bytes));
            }
        }
        Ok(py.detach(|| piece.restore_range_parts(&mut parts))?)
    }
}
