//! From fields to pictures.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result};

use crate::grid::Shape;

/// Anchors of matplotlib's `viridis`, a colour map whose steps look even.
const VIRIDIS: [[f32; 3]; 10] = [
    [68.0, 1.0, 84.0],
    [72.0, 40.0, 120.0],
    [62.0, 74.0, 137.0],
    [49.0, 104.0, 142.0],
    [38.0, 130.0, 142.0],
    [31.0, 158.0, 137.0],
    [53.0, 183.0, 121.0],
    [109.0, 205.0, 89.0],
    [180.0, 222.0, 44.0],
    [253.0, 231.0, 37.0],
];

/// Writes the vertical section through the middle of a field, dark to bright from least to
/// greatest value.
pub fn write_colour(path: &Path, shape: Shape, field: &[f32]) -> Result<()> {
    let section = Section { shape, field };
    let (low, high) = section
        .values()
        .fold((f32::MAX, f32::MIN), |(lo, hi), v| (lo.min(v), hi.max(v)));
    let scale = (VIRIDIS.len() - 1) as f32 / (high - low).max(f32::MIN_POSITIVE);
    let pixels = section.pixels().flat_map(|v| {
        let at = (v - low) * scale;
        let i = (at as usize).min(VIRIDIS.len() - 2);
        let t = at - i as f32;
        std::array::from_fn::<u8, 3, _>(|c| {
            (VIRIDIS[i][c] + t * (VIRIDIS[i + 1][c] - VIRIDIS[i][c])) as u8
        })
    });
    write(path, shape, png::ColorType::Rgb, pixels.collect())
}

/// Writes the vertical section through the middle of a field in grey, zero in the middle. The
/// strongest two percent of the values are clipped.
pub fn write_grey(path: &Path, shape: Shape, field: &[f32]) -> Result<()> {
    let section = Section { shape, field };
    let clip = quantile(section.values().map(f32::abs).collect(), 0.98);
    let scale = 127.0 / clip.max(f32::MIN_POSITIVE);
    let pixels = section
        .pixels()
        .map(|v| (127.5 + (v * scale).clamp(-127.0, 127.0)) as u8);
    write(path, shape, png::ColorType::Grayscale, pixels.collect())
}

/// The value that the share `q` of all values does not exceed.
pub fn quantile(mut values: Vec<f32>, q: f32) -> f32 {
    if values.is_empty() {
        return 0.0;
    }
    let rank = ((values.len() - 1) as f32 * q) as usize;
    *values.select_nth_unstable_by(rank, f32::total_cmp).1
}

struct Section<'a> {
    shape: Shape,
    field: &'a [f32],
}

impl Section<'_> {
    fn at(&self, x: usize, z: usize) -> f32 {
        let [_, ny, nz] = self.shape;
        self.field[(x * ny + ny / 2) * nz + z]
    }

    fn values(&self) -> impl Iterator<Item = f32> {
        (0..self.shape[0]).flat_map(move |x| (0..self.shape[2]).map(move |z| self.at(x, z)))
    }

    /// Row by row from the surface down.
    fn pixels(&self) -> impl Iterator<Item = f32> {
        (0..self.shape[2]).flat_map(move |z| (0..self.shape[0]).map(move |x| self.at(x, z)))
    }
}

fn write(path: &Path, shape: Shape, colour: png::ColorType, pixels: Vec<u8>) -> Result<()> {
    let inner = || -> Result<()> {
        let file = BufWriter::new(File::create(path)?);
        let mut encoder = png::Encoder::new(file, shape[0] as u32, shape[2] as u32);
        encoder.set_color(colour);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&pixels)?;
        Ok(writer.finish()?)
    };
    inner().with_context(|| format!("cannot write {}", path.display()))
}
