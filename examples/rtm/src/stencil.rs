//! The arithmetic of the host back end, on plain slices.
//!
//! Every cell of a result depends on its inputs alone and is computed by one thread in one fixed
//! order of operations, so the number of threads never changes a bit. [`crate::cuda`]'s kernels
//! are the same formulas.

use rayon::prelude::*;

use crate::grid::{Grid, HALO, Spread};

/// Second derivative, 8th order: the coefficient of the cell itself.
pub const CENTRE: f32 = -205.0 / 72.0;
/// Second derivative, 8th order: the coefficients of the cells 1, 2, 3 and 4 away.
pub const SIDE: [f32; HALO] = [8.0 / 5.0, -1.0 / 5.0, 8.0 / 315.0, -1.0 / 560.0];

/// The least number of cells that is worth handing to another thread.
const GRAIN: usize = 8192;

/// Sponge factors along each axis.
#[derive(Debug)]
pub struct Sponge {
    pub x: Vec<f32>,
    pub y: Vec<f32>,
    pub z: Vec<f32>,
}

impl Sponge {
    pub fn new(grid: &Grid) -> Self {
        Self {
            x: grid.sponge(0),
            y: grid.sponge(1),
            z: grid.sponge(2),
        }
    }
}

/// Computes a time step. `next` holds the field before `now` and becomes the field after it: `next = g (2 now - g next
/// + (v dt / h)² L now)`, with the sponge's `g` and the Laplacian `L`.
pub fn step(grid: &Grid, sponge: &Sponge, courant2: &[f32], now: &[f32], next: &mut [f32]) {
    let plane = grid.x_stride();
    let [nx, ny, nz] = grid.shape;
    let flat = grid.is_flat();
    next.par_chunks_mut(plane)
        .enumerate()
        .with_min_len(GRAIN.div_ceil(plane))
        .filter(|(x, _)| (HALO..nx - HALO).contains(x))
        .for_each(|(x, next)| {
            let rows = if flat { 0..1 } else { HALO..ny - HALO };
            for y in rows {
                let start = x * plane + y * nz;
                let row = Row {
                    now,
                    start: start + HALO,
                    len: nz - 2 * HALO,
                    courant2: &courant2[start + HALO..start + nz - HALO],
                    across: sponge.x[x] * sponge.y[y],
                    along: &sponge.z[HALO..nz - HALO],
                };
                let next = &mut next[y * nz + HALO..(y + 1) * nz - HALO];
                if flat {
                    row.step_2d(plane, next)
                } else {
                    row.step_3d(plane, nz, next)
                }
            }
        });
}

/// Values that no receiver could tell from nothing become nothing. Ahead of the wavefront and in
/// the sponge fields would else fade into subnormal numbers, which processors are a hundred times
/// slower at.
fn quiet(value: f32) -> f32 {
    if value.abs() < 1e-20 { 0.0 } else { value }
}

/// A row of cells along z, without its dead ends.
struct Row<'a> {
    now: &'a [f32],
    start: usize,
    len: usize,
    courant2: &'a [f32],
    across: f32,
    along: &'a [f32],
}

impl<'a> Row<'a> {
    /// The rows at `-k * stride` and `k * stride` for k = 1 … 4. Slices of one length: the loops
    /// over them need no bounds checks and become vector instructions.
    fn sides(&self, stride: usize) -> [(&'a [f32], &'a [f32]); HALO] {
        std::array::from_fn(|k| {
            let away = (k + 1) * stride;
            let (before, after) = (self.start - away, self.start + away);
            (
                &self.now[before..before + self.len],
                &self.now[after..after + self.len],
            )
        })
    }

    fn step_2d(&self, x_stride: usize, next: &mut [f32]) {
        let n = self.len;
        let here = &self.now[self.start..self.start + n];
        let (courant2, along, next) = (&self.courant2[..n], &self.along[..n], &mut next[..n]);
        let [(xa, xb), (xc, xd), (xe, xf), (xg, xh)] = self.sides(x_stride);
        let [(za, zb), (zc, zd), (ze, zf), (zg, zh)] = self.sides(1);
        let [s1, s2, s3, s4] = SIDE;
        for i in 0..n {
            let laplacian = 2.0 * CENTRE * here[i]
                + s1 * ((xa[i] + xb[i]) + (za[i] + zb[i]))
                + s2 * ((xc[i] + xd[i]) + (zc[i] + zd[i]))
                + s3 * ((xe[i] + xf[i]) + (ze[i] + zf[i]))
                + s4 * ((xg[i] + xh[i]) + (zg[i] + zh[i]));
            let g = self.across * along[i];
            next[i] = quiet(g * (2.0 * here[i] - g * next[i] + courant2[i] * laplacian));
        }
    }

    fn step_3d(&self, x_stride: usize, y_stride: usize, next: &mut [f32]) {
        let n = self.len;
        let here = &self.now[self.start..self.start + n];
        let (courant2, along, next) = (&self.courant2[..n], &self.along[..n], &mut next[..n]);
        let [(xa, xb), (xc, xd), (xe, xf), (xg, xh)] = self.sides(x_stride);
        let [(ya, yb), (yc, yd), (ye, yf), (yg, yh)] = self.sides(y_stride);
        let [(za, zb), (zc, zd), (ze, zf), (zg, zh)] = self.sides(1);
        let [s1, s2, s3, s4] = SIDE;
        for i in 0..n {
            let laplacian = 3.0 * CENTRE * here[i]
                + s1 * ((xa[i] + xb[i]) + (ya[i] + yb[i]) + (za[i] + zb[i]))
                + s2 * ((xc[i] + xd[i]) + (yc[i] + yd[i]) + (zc[i] + zd[i]))
                + s3 * ((xe[i] + xf[i]) + (ye[i] + yf[i]) + (ze[i] + zf[i]))
                + s4 * ((xg[i] + xh[i]) + (yg[i] + yh[i]) + (zg[i] + zh[i]));
            let g = self.across * along[i];
            next[i] = quiet(g * (2.0 * here[i] - g * next[i] + courant2[i] * laplacian));
        }
    }
}

/// A receiver's treatment of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Keep it: the data observed.
    Store,
    /// Keep what was recorded before, less this: what the smooth model does not explain.
    Subtract,
}

/// Records the field at every receiver into one time sample of the traces.
pub fn record(spread: Spread, field: &[f32], sample: &mut [f32], how: Record) {
    for (r, sample) in sample.iter_mut().enumerate() {
        let seen = field[spread.cell(r)];
        *sample = match how {
            Record::Store => seen,
            Record::Subtract => *sample - seen,
        };
    }
}

/// Adds one amplitude per receiver to the field: each receiver as a source.
pub fn inject(spread: Spread, courant2: &[f32], sample: &[f32], field: &mut [f32]) {
    for (r, &sample) in sample.iter().enumerate() {
        let cell = spread.cell(r);
        field[cell] += courant2[cell] * sample;
    }
}

/// The imaging condition of Claerbout (1971): `image += source * receiver`, cell by cell.
pub fn correlate(source: &[f32], receiver: &[f32], image: &mut [f32]) {
    image
        .par_iter_mut()
        .zip(source)
        .zip(receiver)
        .with_min_len(GRAIN)
        .for_each(|((image, s), r)| *image += s * r);
}

/// How many units of the illumination map make one: a power of two, so that scaling is exact.
pub const ILLUMINATION_UNITS: f32 = (1u64 << 40) as f32;

/// The source illumination: `map += source²`.
///
/// A sum of floats depends on the order of its terms, and snapshots may come back in any order.
/// So the squares are rounded once to whole units of 2⁻⁴⁰ and summed as integers. Integer sums
/// are associative, and so are saturating sums of what is never negative: the map is the same,
/// bit for bit, whatever the order.
pub fn illuminate(source: &[f32], map: &mut [i64]) {
    map.par_iter_mut()
        .zip(source)
        .with_min_len(GRAIN)
        .for_each(|(map, s)| *map = map.saturating_add((s * s * ILLUMINATION_UNITS) as i64));
}
