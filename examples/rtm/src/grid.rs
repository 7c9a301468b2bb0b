//! The finite-difference grid: the velocity model, surrounded by an absorbing layer.

use anyhow::{Context, Result, ensure};

use crate::model::Model;

/// Half width of the 8th-order stencil. The outermost `HALO` cells of the grid stay zero, so that
/// no update ever looks outside, and the sponge in front of them lets little reach them.
pub const HALO: usize = 4;

/// Cells along x, y and z. z (depth) is the fastest axis in memory; a 2-D grid has one y.
pub type Shape = [usize; 3];

/// The number of cells of a shape, or an error if no memory could ever hold them.
pub fn cells(shape: Shape) -> Result<usize> {
    let [x, y, z] = shape;
    x.checked_mul(y)
        .and_then(|xy| xy.checked_mul(z))
        // The CUDA kernels count in `int`, up to a block beyond the last cell.
        .filter(|&cells| cells <= 1 << 30)
        .with_context(|| format!("a grid of {x}x{y}x{z} cells is too large: 2^30 are the limit"))
}

/// A wave equation discretised: where the cells are, how long a step is.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Cells with the absorbing layer.
    pub shape: Shape,
    /// Cells of the velocity model itself.
    pub inner: Shape,
    /// Thickness of the absorbing layer in cells, on every face.
    pub pad: usize,
    /// Distance between cells in metres, the same on all axes.
    pub spacing: f32,
    /// Length of a time step in seconds.
    pub dt: f32,
}

impl Grid {
    /// A grid around `inner` cells whose time step is stable for velocities up to `fastest` (m/s).
    ///
    /// The stability (CFL) limit of the scheme is `v dt / h < 2 / sqrt(d * sum |c_k|)` with the
    /// stencil's coefficients `c_k` on each of `d` axes; we take nine tenths of it.
    pub fn new(inner: Shape, pad: usize, spacing: f32, fastest: f32) -> Result<Self> {
        ensure!(
            (1e-3..=1e6).contains(&spacing),
            "the spacing is {spacing} m: give --spacing 0.001 to 1000000 metres"
        );
        let flat = inner[1] == 1;
        for (axis, n) in ["x", "y", "z"].into_iter().zip(inner) {
            ensure!(
                n >= 8 || (axis == "y" && flat),
                "the model has {n} cells along {axis}: at least 8 are needed"
            );
        }
        ensure!(
            pad > HALO,
            "an absorbing layer needs more than {HALO} cells"
        );
        let around = |n: usize| {
            n.checked_add(2 * pad)
                .context("the model is too large: an axis overflows")
        };
        let shape = [
            around(inner[0])?,
            if flat { 1 } else { around(inner[1])? },
            around(inner[2])?,
        ];
        cells(shape)?;
        let axes = if flat { 2.0 } else { 3.0 };
        let weight: f32 = crate::stencil::CENTRE.abs()
            + 2.0 * crate::stencil::SIDE.iter().map(|c| c.abs()).sum::<f32>();
        let courant = 0.9 * 2.0 / (axes * weight).sqrt();
        Ok(Self {
            shape,
            inner,
            pad,
            spacing,
            dt: courant * spacing / fastest,
        })
    }

    /// All cells, those of the absorbing layer too.
    pub fn cells(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if the grid is a section (x, z).
    pub fn is_flat(&self) -> bool {
        self.shape[1] == 1
    }

    /// Cells between neighbours along x.
    pub fn x_stride(&self) -> usize {
        self.shape[1] * self.shape[2]
    }

    /// Cells between neighbours along y.
    pub fn y_stride(&self) -> usize {
        self.shape[2]
    }

    /// The index of a cell of the velocity model.
    pub fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        let y = if self.is_flat() { 0 } else { y + self.pad };
        (x + self.pad) * self.x_stride() + y * self.y_stride() + z + self.pad
    }

    /// `(v dt / h)²` in every cell; the model's outermost velocities go on through the sponge.
    pub fn courant_squared(&self, model: &Model) -> Vec<f32> {
        let mut out = Vec::with_capacity(self.cells());
        let inside = |i: usize, n: usize| i.saturating_sub(self.pad).min(n - 1);
        for x in 0..self.shape[0] {
            for y in 0..self.shape[1] {
                let y = if self.is_flat() {
                    0
                } else {
                    inside(y, self.inner[1])
                };
                let row = model.row(inside(x, self.inner[0]), y);
                out.extend((0..self.shape[2]).map(|z| {
                    let courant = row[inside(z, self.inner[2])] * self.dt / self.spacing;
                    courant * courant
                }));
            }
        }
        out
    }

    /// The sponge of Cerjan et al. (Geophysics 50, 1985) along one axis: the factor by which each
    /// step shrinks the wavefield, one inside and falling smoothly towards both ends.
    pub fn sponge(&self, axis: usize) -> Vec<f32> {
        let n = self.shape[axis];
        if axis == 1 && self.is_flat() {
            return vec![1.0];
        }
        // Chosen so that a wave at any of our grids' Courant numbers leaves less than a
        // thousandth behind; the constant of the paper, 0.015 at 20 cells, scales like this.
        let strength = 0.3 / self.pad as f32;
        (0..n)
            .map(|i| {
                let depth = self.pad.saturating_sub(i.min(n - 1 - i)) as f32;
                (-(strength * depth).powi(2)).exp()
            })
            .collect()
    }

    /// Takes the velocity model's part out of a field over the whole grid.
    pub fn crop<T: Copy>(&self, field: &[T]) -> Vec<T> {
        let mut out = Vec::with_capacity(self.inner.iter().product());
        for x in 0..self.inner[0] {
            for y in 0..self.inner[1] {
                let start = self.index([x, y, 0]);
                out.extend_from_slice(&field[start..start + self.inner[2]]);
            }
        }
        out
    }
}

/// Receivers on a rectangle of grid points: every point of the surface.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Index of the first receiver's cell.
    pub origin: usize,
    /// Receivers along x and y.
    pub count: [usize; 2],
    /// Cells between neighbours along x and y.
    pub stride: [usize; 2],
}

impl Spread {
    /// Receivers above every cell of the model, `depth` cells below its top.
    pub fn surface(grid: &Grid, depth: usize) -> Self {
        Self {
            origin: grid.index([0, 0, depth]),
            count: [grid.inner[0], grid.inner[1]],
            stride: [grid.x_stride(), grid.y_stride()],
        }
    }

    /// Returns the spread of a single receiver.
    #[cfg(test)]
    pub fn single(cell: usize) -> Self {
        Self {
            origin: cell,
            count: [1, 1],
            stride: [0, 0],
        }
    }

    /// How many receivers there are.
    pub fn len(&self) -> usize {
        self.count[0] * self.count[1]
    }

    /// The cell of receiver `r`.
    pub fn cell(&self, r: usize) -> usize {
        self.origin + (r / self.count[1]) * self.stride[0] + (r % self.count[1]) * self.stride[1]
    }
}
