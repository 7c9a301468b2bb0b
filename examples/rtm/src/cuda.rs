//! The propagator on a GPU: kernels/rtm.cu, one safe wrapper for each kernel.
//!
//! Only this file of the program has unsafe code: launches, whose arguments only this file checks. Launches are sound
//! because:
//!
//! - A wrapper passes as many arguments as its kernel has parameters: the compiler counts the
//!   arguments, a test the parameters in the PTX.
//! - A kernel reaches only memory whose loan for writing is in `lent`, and the wrapper has checked
//!   its length against the grid's, the spread's or the map's number of cells.
//! - Loans leave `lent` only after the stream was synchronised.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::mem;

use anyhow::{Context, Result, ensure};
use tierflow_device::cuda::{Arg, Function, Launch, Module};
use tierflow_device::{Device, Memory, Stream, WriteLoan};

use crate::grid::{Grid, HALO, Spread};
use crate::propagator::{Medium, Propagator, Traces, Wavefield};
use crate::stencil::{Record, Sponge};

const PTX: &str = include_str!("rtm.ptx");
/// Cells along z and y of a block of `rtm_step_3d`; TILE_Z and TILE_Y in the kernel.
const TILE: [u32; 2] = [32, 16];
/// Planes that a block of `rtm_step_3d` marches over.
const MARCH: u32 = 64;
/// Threads along z and x of a block of `rtm_step_2d`.
const BLOCK_2D: [u32; 2] = [64, 4];
/// Threads of a block of the other kernels.
const BLOCK: u32 = 256;

/// The CUDA back end.
pub struct Cuda {
    grid: Grid,
    stream: Stream,
    kernels: Kernels,
    sponge: [Memory; 3],
    /// Loans that launches since the last `finish` may still use, by address.
    lent: RefCell<HashMap<u64, WriteLoan>>,
}

/// A kernel of `N` parameters by the name of its `.entry`.
struct Entry<const N: usize>(&'static str);

const STEP_2D: Entry<7> = Entry("rtm_step_2d");
const STEP_3D: Entry<10> = Entry("rtm_step_3d");
const INJECT_SOURCE: Entry<4> = Entry("rtm_inject_source");
const INJECT_TRACES: Entry<8> = Entry("rtm_inject_traces");
const RECORD: Entry<8> = Entry("rtm_record");
const GATHER: Entry<5> = Entry("rtm_gather");
const CORRELATE: Entry<4> = Entry("rtm_correlate");
const ILLUMINATE: Entry<3> = Entry("rtm_illuminate");

/// A kernel that can be launched, with `N` arguments and no other number.
struct Kernel<const N: usize>(Function);

impl<const N: usize> Kernel<N> {
    fn load(module: &Module, entry: &Entry<N>) -> Result<Self> {
        Ok(Self(module.function(entry.0)?))
    }

    /// # Safety
    /// As for [`Stream::launch`], but for the number of arguments.
    unsafe fn launch(&self, stream: &Stream, shape: Launch, args: [Arg; N]) -> Result<()> {
        // SAFETY: the caller's promise; the number of arguments is the kernel's own.
        Ok(unsafe { stream.launch(&self.0, shape, &args) }?)
    }
}

/// All kernels, found when the program starts.
struct Kernels {
    step_2d: Kernel<7>,
    step_3d: Kernel<10>,
    inject_source: Kernel<4>,
    inject_traces: Kernel<8>,
    record: Kernel<8>,
    gather: Kernel<5>,
    correlate: Kernel<4>,
    illuminate: Kernel<3>,
}

impl Kernels {
    fn load(module: &Module) -> Result<Self> {
        Ok(Self {
            step_2d: Kernel::load(module, &STEP_2D)?,
            step_3d: Kernel::load(module, &STEP_3D)?,
            inject_source: Kernel::load(module, &INJECT_SOURCE)?,
            inject_traces: Kernel::load(module, &INJECT_TRACES)?,
            record: Kernel::load(module, &RECORD)?,
            gather: Kernel::load(module, &GATHER)?,
            correlate: Kernel::load(module, &CORRELATE)?,
            illuminate: Kernel::load(module, &ILLUMINATE)?,
        })
    }
}

impl Cuda {
    /// A propagator on this grid.
    pub fn new(device: &Device, grid: Grid) -> Result<Self> {
        let cuda = device.as_cuda().context("the device is no GPU")?;
        let module = Module::load(cuda, PTX).context("the kernels of rtm cannot be loaded")?;
        let stream = device.stream()?;
        let factors = Sponge::new(&grid);
        let upload = |factors: &[f32]| -> Result<Memory> {
            let memory = device.alloc(size_of_val(factors))?;
            let bytes = 0..memory.len();
            stream.write(bytemuck::cast_slice(factors), &mut memory.lend_mut(bytes)?)?;
            Ok(memory)
        };
        Ok(Self {
            sponge: [
                upload(&factors.x)?,
                upload(&factors.y)?,
                upload(&factors.z)?,
            ],
            kernels: Kernels::load(&module)?,
            lent: RefCell::default(),
            stream,
            grid,
        })
    }

    /// The address of memory of `len` elements of `T`, lent until the next `finish`.
    fn lend<T>(&self, memory: &Memory, len: usize) -> Result<u64> {
        ensure!(
            memory.len() == len * size_of::<T>() && memory.device().is_same(self.stream.device()),
            "{} bytes of memory for {len} elements, or memory of another device",
            memory.len()
        );
        // An empty loan never waits and tells where the memory is.
        let address = memory.lend(0..0)?.address();
        let mut lent = self.lent.borrow_mut();
        if let Slot::Vacant(slot) = lent.entry(address) {
            slot.insert(memory.lend_mut(0..memory.len())?);
        }
        Ok(address)
    }

    fn lend_field(&self, memory: &Memory) -> Result<Arg> {
        self.lend::<f32>(memory, self.grid.cells())
            .map(Arg::address)
    }

    /// The spread's five parameters; every receiver is a cell of the grid.
    fn spread(&self, spread: Spread) -> Result<[Arg; 5]> {
        let last = spread
            .len()
            .checked_sub(1)
            .context("a spread without receivers")?;
        ensure!(
            spread.cell(last) < self.grid.cells(),
            "receivers outside the grid"
        );
        Ok([
            int(spread.len())?,
            int(spread.origin)?,
            int(spread.count[1])?,
            int(spread.stride[0])?,
            int(spread.stride[1])?,
        ])
    }

    /// The address of sample `step` of the traces.
    fn sample(&self, traces: &Traces, step: usize) -> Result<Arg> {
        let range = traces.range(step);
        ensure!(
            range.end <= traces.samples.len(),
            "step {step} is beyond the traces"
        );
        let base = self.lend::<u8>(&traces.samples, traces.samples.len())?;
        Ok(Arg::address(base + range.start as u64))
    }

    fn cells_launch(&self, count: usize) -> Launch {
        Launch {
            grid: [(count as u32).div_ceil(BLOCK), 1, 1],
            block: [BLOCK, 1, 1],
            shared_bytes: 0,
        }
    }
}

/// An `int` parameter; the grid's size was checked to fit.
fn int(value: usize) -> Result<Arg> {
    Ok(Arg::i32(
        i32::try_from(value).context("too large for the kernels")?,
    ))
}

impl Propagator for Cuda {
    fn grid(&self) -> &Grid {
        &self.grid
    }

    fn step(&self, medium: &Medium, field: &mut Wavefield) -> Result<()> {
        let [nx, ny, nz] = self.grid.shape;
        let now = self.lend_field(&field.now)?;
        let next = self.lend_field(&field.before)?;
        let courant2 = self.lend_field(&medium.0)?;
        let [sx, sy, sz] = &self.sponge;
        let sx = Arg::address(self.lend::<f32>(sx, nx)?);
        let sy = Arg::address(self.lend::<f32>(sy, ny)?);
        let sz = Arg::address(self.lend::<f32>(sz, nz)?);
        let updated = |n: usize| (n - 2 * HALO) as u32;
        if self.grid.is_flat() {
            let args = [int(nx)?, int(nz)?, now, next, courant2, sx, sz];
            let [z, x] = BLOCK_2D;
            let shape = Launch {
                grid: [updated(nz).div_ceil(z), updated(nx).div_ceil(x), 1],
                block: [z, x, 1],
                shared_bytes: 0,
            };
            // SAFETY: rtm_step_2d(int nx, int nz, now, next, courant2, sponge_x, sponge_z). Threads
            // update cells from HALO to n - HALO on both axes and read up to HALO cells away, all
            // within the nx * nz floats of `now`, `next` and `courant2`; sponge_x and sponge_z have
            // nx and nz. All are lent until the stream is synchronised.
            unsafe { self.kernels.step_2d.launch(&self.stream, shape, args) }?;
        } else {
            let march = Arg::i32(MARCH as i32);
            let args = [
                int(nx)?,
                int(ny)?,
                int(nz)?,
                march,
                now,
                next,
                courant2,
                sx,
                sy,
                sz,
            ];
            let [z, y] = TILE;
            let grid = [
                updated(nz).div_ceil(z),
                updated(ny).div_ceil(y),
                updated(nx).div_ceil(MARCH),
            ];
            let shape = Launch {
                grid,
                block: [z, y, 1],
                shared_bytes: 0,
            };
            // SAFETY: rtm_step_3d(int nx, int ny, int nz, int march, now, next, courant2, sponge_x,
            // sponge_y, sponge_z). A block of TILE threads, as the kernel's tile wants, updates
            // cells from HALO to n - HALO on each axis and reads cells that are inside nx * ny * nz
            // (`readable`, `fetch_*`, `after_*` keep the tile's overhang out). Lent as above.
            unsafe { self.kernels.step_3d.launch(&self.stream, shape, args) }?;
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
        ensure!(cell < self.grid.cells(), "the source is outside the grid");
        let args = [
            self.lend_field(&medium.0)?,
            self.lend_field(&field.now)?,
            int(cell)?,
            Arg::f32(amplitude),
        ];
        let shape = Launch {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
        };
        // SAFETY: rtm_inject_source(courant2, field, int cell, float amplitude): one thread reads
        // and writes one cell, which is inside both; both are lent until synchronised.
        unsafe { self.kernels.inject_source.launch(&self.stream, shape, args) }
    }

    fn inject_traces(
        &self,
        medium: &Medium,
        field: &Wavefield,
        traces: &Traces,
        step: usize,
    ) -> Result<()> {
        let [count, origin, across, stride, across_stride] = self.spread(traces.spread)?;
        let args = [
            count,
            origin,
            across,
            stride,
            across_stride,
            self.lend_field(&medium.0)?,
            self.sample(traces, step)?,
            self.lend_field(&field.now)?,
        ];
        let shape = self.cells_launch(traces.spread.len());
        // SAFETY: rtm_inject_traces(five ints of the spread, courant2, sample, field). Threads
        // below the number of receivers touch the cell of one receiver each, inside the grid as
        // the last one is, and one float of the sample, which has one for each. All are lent.
        unsafe { self.kernels.inject_traces.launch(&self.stream, shape, args) }
    }

    fn record(&self, field: &Wavefield, traces: &Traces, step: usize, how: Record) -> Result<()> {
        let [count, origin, across, stride, across_stride] = self.spread(traces.spread)?;
        let args = [
            count,
            origin,
            across,
            stride,
            across_stride,
            self.lend_field(&field.now)?,
            self.sample(traces, step)?,
            Arg::i32(i32::from(how == Record::Subtract)),
        ];
        let shape = self.cells_launch(traces.spread.len());
        // SAFETY: rtm_record(five ints of the spread, field, sample, int subtract): as above.
        unsafe { self.kernels.record.launch(&self.stream, shape, args) }
    }

    fn gather(&self, field: &Wavefield, cells: &Memory, rows: &Memory, row: usize) -> Result<()> {
        let count = cells.len() / size_of::<u32>();
        let range = row * cells.len()..(row + 1) * cells.len();
        ensure!(range.end <= rows.len(), "row {row} is beyond the sample");
        let base = self.lend::<u8>(rows, rows.len())?;
        let args = [
            int(count)?,
            int(self.grid.cells())?,
            Arg::address(self.lend::<u32>(cells, count)?),
            self.lend_field(&field.now)?,
            Arg::address(base + range.start as u64),
        ];
        let shape = self.cells_launch(count);
        // SAFETY: rtm_gather(int count, int cells, indices, field, row): threads below `count` read an index and write one float of the
        // row, which has as many; the kernel reads no cell that is not in the field. All are lent until synchronised.
        unsafe { self.kernels.gather.launch(&self.stream, shape, args) }
    }

    fn correlate(&self, source: &Wavefield, receiver: &Wavefield, image: &Memory) -> Result<()> {
        let cells = self.grid.cells();
        let args = [
            int(cells)?,
            self.lend_field(&source.now)?,
            self.lend_field(&receiver.now)?,
            self.lend_field(image)?,
        ];
        // SAFETY: rtm_correlate(int cells, source, receiver, image): threads below `cells` touch
        // one float each of three fields of that many, all lent until synchronised.
        unsafe {
            self.kernels
                .correlate
                .launch(&self.stream, self.cells_launch(cells), args)
        }
    }

    fn illuminate(&self, source: &Wavefield, map: &Memory) -> Result<()> {
        let cells = self.grid.cells();
        let map = Arg::address(self.lend::<i64>(map, cells)?);
        let args = [int(cells)?, self.lend_field(&source.now)?, map];
        // SAFETY: rtm_illuminate(int cells, source, map): threads below `cells` touch one float
        // and one 64-bit integer each of arrays of that many, both lent until synchronised.
        unsafe {
            self.kernels
                .illuminate
                .launch(&self.stream, self.cells_launch(cells), args)
        }
    }

    fn stream(&self) -> &Stream {
        &self.stream
    }

    fn finish(&self) -> Result<()> {
        let lent = self.lent.take();
        match self.stream.synchronize() {
            Ok(()) => Ok(()),
            Err(error) => {
                // Kernels may still run, so their memory is never given back.
                mem::forget(lent);
                Err(error.into())
            }
        }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // An error was reported by the call that met it, and `finish` has kept the memory.
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests;
