//! A device's operations for a migration. [`crate::host`] and [`crate::cuda`] implement them.

use anyhow::Result;
use tierflow_device::{Device, Memory, Stream};

use crate::grid::{Grid, Spread};
use crate::model::Model;
use crate::stencil::Record;

/// Two consecutive time levels of a wavefield: all that it takes to go on from here, and thereby
/// what one checkpoint holds.
#[derive(Debug)]
pub struct Wavefield {
    /// The field now.
    pub now: Memory,
    /// The field one time step earlier.
    pub before: Memory,
}

impl Wavefield {
    /// A wavefield on the grid, of unspecified content.
    pub fn new(device: &Device, grid: &Grid) -> Result<Self> {
        let bytes = grid.cells() * size_of::<f32>();
        Ok(Self {
            now: device.alloc(bytes)?,
            before: device.alloc(bytes)?,
        })
    }

    /// The field now, then the one before.
    pub fn levels(&self) -> [&Memory; 2] {
        [&self.now, &self.before]
    }
}

/// `(v dt / h)²` in every cell, in device memory.
#[derive(Debug)]
pub struct Medium(pub Memory);

/// The record of a shot's receivers: for each time step a sample per receiver.
#[derive(Debug)]
pub struct Traces {
    /// The cells of the receivers.
    pub spread: Spread,
    /// The samples.
    pub samples: Memory,
}

impl Traces {
    /// Room for `steps` samples of every receiver, of unspecified content.
    pub fn new(device: &Device, spread: Spread, steps: usize) -> Result<Self> {
        Ok(Self {
            spread,
            samples: device.alloc(spread.len() * steps * size_of::<f32>())?,
        })
    }

    /// The bytes of the samples of one time step.
    pub fn range(&self, step: usize) -> std::ops::Range<usize> {
        let row = self.spread.len() * size_of::<f32>();
        step * row..(step + 1) * row
    }
}

/// The computing side of a device.
///
/// Work is done in the order of the calls; a call may return before its work is done, and
/// [`finish`](Self::finish) waits. All memory is of the device that the propagator was made on.
/// Fields are f32 over the whole grid, maps of the illumination i64.
pub trait Propagator {
    /// The grid.
    fn grid(&self) -> &Grid;

    /// Advances the field by one time step.
    fn step(&self, medium: &Medium, field: &mut Wavefield) -> Result<()>;

    /// Adds the amplitude of a point source to the field in one cell.
    fn inject_source(
        &self,
        medium: &Medium,
        field: &Wavefield,
        cell: usize,
        amplitude: f32,
    ) -> Result<()>;

    /// Adds every receiver's sample of time step `step` to the field.
    fn inject_traces(
        &self,
        medium: &Medium,
        field: &Wavefield,
        traces: &Traces,
        step: usize,
    ) -> Result<()>;

    /// Records the field at every receiver as sample `step` of the traces.
    fn record(&self, field: &Wavefield, traces: &Traces, step: usize, how: Record) -> Result<()>;

    /// Copies the field's values in some cells, which are `u32` indices, into row `row` of `rows`.
    fn gather(&self, field: &Wavefield, cells: &Memory, rows: &Memory, row: usize) -> Result<()>;

    /// `image += source * receiver`.
    fn correlate(&self, source: &Wavefield, receiver: &Wavefield, image: &Memory) -> Result<()>;

    /// `map += source²`, in units of [`crate::stencil::ILLUMINATION_UNITS`].
    fn illuminate(&self, source: &Wavefield, map: &Memory) -> Result<()>;

    /// The stream that the work is done on.
    fn stream(&self) -> &Stream;

    /// Waits until all work is done, and gives back all memory that is lent to it.
    fn finish(&self) -> Result<()>;

    /// Sets all bytes to zero.
    fn clear(&self, memory: &Memory) -> Result<()> {
        self.finish()?;
        Ok(self
            .stream()
            .fill(&mut memory.lend_mut(0..memory.len())?, 0)?)
    }

    /// Copies bytes into device memory; both have one length.
    fn upload(&self, bytes: &[u8], memory: &Memory) -> Result<()> {
        self.finish()?;
        Ok(self
            .stream()
            .write(bytes, &mut memory.lend_mut(0..memory.len())?)?)
    }

    /// Copies device memory out; both have one length.
    fn download(&self, memory: &Memory, bytes: &mut [u8]) -> Result<()> {
        self.finish()?;
        Ok(self.stream().read(&memory.lend(0..memory.len())?, bytes)?)
    }
}

/// Puts a velocity model where the propagator can use it.
pub fn medium(device: &Device, propagator: &dyn Propagator, model: &Model) -> Result<Medium> {
    let courant2 = propagator.grid().courant_squared(model);
    let memory = device.alloc(size_of_val(courant2.as_slice()))?;
    propagator.upload(bytemuck::cast_slice(&courant2), &memory)?;
    Ok(Medium(memory))
}

/// Reads a field or map out of device memory.
pub fn read<T: bytemuck::Pod>(propagator: &dyn Propagator, memory: &Memory) -> Result<Vec<T>> {
    let mut values = vec![T::zeroed(); memory.len() / size_of::<T>()];
    propagator.download(memory, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}
