//! The propagator on the processors of this machine.
//!
//! Each call borrows the memory it works on for as long as it runs, so that between calls the
//! engine can read and write the same memory.

use std::mem;

use anyhow::Result;
use tierflow_device::{Device, Memory, ReadLoan, Stream, WriteLoan};

use crate::grid::Grid;
use crate::propagator::{Medium, Propagator, Traces, Wavefield};
use crate::stencil::{self, Record, Sponge};

/// The host back end.
#[derive(Debug)]
pub struct Host {
    grid: Grid,
    stream: Stream,
    sponge: Sponge,
}

impl Host {
    /// A propagator on this grid.
    pub fn new(device: &Device, grid: Grid) -> Result<Self> {
        Ok(Self {
            sponge: Sponge::new(&grid),
            stream: device.stream()?,
            grid,
        })
    }
}

fn all(memory: &Memory) -> Result<ReadLoan> {
    Ok(memory.lend(0..memory.len())?)
}

fn all_mut(memory: &Memory) -> Result<WriteLoan> {
    Ok(memory.lend_mut(0..memory.len())?)
}

impl Propagator for Host {
    fn grid(&self) -> &Grid {
        &self.grid
    }

    fn step(&self, medium: &Medium, field: &mut Wavefield) -> Result<()> {
        {
            let (courant2, now) = (all(&medium.0)?, all(&field.now)?);
            let mut next = all_mut(&field.before)?;
            stencil::step(
                &self.grid,
                &self.sponge,
                bytemuck::cast_slice(courant2.bytes()?),
                bytemuck::cast_slice(now.bytes()?),
                bytemuck::cast_slice_mut(next.bytes_mut()?),
            );
        }
        mem::swap(&mut field.now, &mut field.before);
        Ok(())
    }

    fn inject_source(
        &self,
        medium: &Medium,
        field: &Wavefield,
        cell: usize,
        amplitude: f32,
    ) -> Result<()> {
        let (courant2, mut field) = (all(&medium.0)?, all_mut(&field.now)?);
        let courant2: &[f32] = bytemuck::cast_slice(courant2.bytes()?);
        let field: &mut [f32] = bytemuck::cast_slice_mut(field.bytes_mut()?);
        field[cell] += courant2[cell] * amplitude;
        Ok(())
    }

    fn inject_traces(
        &self,
        medium: &Medium,
        field: &Wavefield,
        traces: &Traces,
        step: usize,
    ) -> Result<()> {
        let (courant2, mut field) = (all(&medium.0)?, all_mut(&field.now)?);
        let sample = traces.samples.lend(traces.range(step))?;
        stencil::inject(
            traces.spread,
            bytemuck::cast_slice(courant2.bytes()?),
            bytemuck::cast_slice(sample.bytes()?),
            bytemuck::cast_slice_mut(field.bytes_mut()?),
        );
        Ok(())
    }

    fn record(&self, field: &Wavefield, traces: &Traces, step: usize, how: Record) -> Result<()> {
        let field = all(&field.now)?;
        let mut sample = traces.samples.lend_mut(traces.range(step))?;
        stencil::record(
            traces.spread,
            bytemuck::cast_slice(field.bytes()?),
            bytemuck::cast_slice_mut(sample.bytes_mut()?),
            how,
        );
        Ok(())
    }

    fn gather(&self, field: &Wavefield, cells: &Memory, rows: &Memory, row: usize) -> Result<()> {
        let (field, cells) = (all(&field.now)?, all(cells)?);
        let len = cells.len();
        let mut row = rows.lend_mut(row * len..(row + 1) * len)?;
        let field: &[f32] = bytemuck::cast_slice(field.bytes()?);
        let cells: &[u32] = bytemuck::cast_slice(cells.bytes()?);
        let row: &mut [f32] = bytemuck::cast_slice_mut(row.bytes_mut()?);
        for (value, cell) in row.iter_mut().zip(cells) {
            *value = field[*cell as usize];
        }
        Ok(())
    }

    fn correlate(&self, source: &Wavefield, receiver: &Wavefield, image: &Memory) -> Result<()> {
        let (source, receiver) = (all(&source.now)?, all(&receiver.now)?);
        let mut image = all_mut(image)?;
        stencil::correlate(
            bytemuck::cast_slice(source.bytes()?),
            bytemuck::cast_slice(receiver.bytes()?),
            bytemuck::cast_slice_mut(image.bytes_mut()?),
        );
        Ok(())
    }

    fn illuminate(&self, source: &Wavefield, map: &Memory) -> Result<()> {
        let (source, mut map) = (all(&source.now)?, all_mut(map)?);
        stencil::illuminate(
            bytemuck::cast_slice(source.bytes()?),
            bytemuck::cast_slice_mut(map.bytes_mut()?),
        );
        Ok(())
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }
}
