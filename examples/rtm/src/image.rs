//! From stacked correlations to the image that an interpreter looks at.

use crate::grid::Shape;
use crate::stencil::ILLUMINATION_UNITS;

/// The illumination map as floats.
pub fn illumination(map: &[i64]) -> Vec<f32> {
    map.iter()
        .map(|&v| (v as f64 / f64::from(ILLUMINATION_UNITS)) as f32)
        .collect()
}

/// Divides the stacked correlations by the illumination, so that reflectors that little energy reaches show as well.
pub fn balance(correlation: &[f32], illumination: &[f32]) -> Vec<f32> {
    let mean = illumination.iter().map(|v| f64::from(*v)).sum::<f64>() / illumination.len() as f64;
    // The floor keeps cells that hardly any energy reached from showing noise.
    let floor = (mean * 1e-2) as f32 + f32::MIN_POSITIVE;
    let cells = correlation.iter().zip(illumination);
    cells.map(|(c, i)| c / (i + floor)).collect()
}

/// [Balances](balance) the stacked correlations and takes the Laplacian, which removes the smooth noise that waves going
/// the same way leave behind (Zhang and Sun, First Break 27, 2009). The first `mute` cells below
/// the surface, where sources and receivers are, fade out.
pub fn filter(shape: Shape, correlation: &[f32], illumination: &[f32], mute: usize) -> Vec<f32> {
    let balanced = balance(correlation, illumination);
    let [nx, ny, nz] = shape;
    let mut out = vec![0.0; balanced.len()];
    for x in 1..nx - 1 {
        for y in if ny == 1 { 0..1 } else { 1..ny - 1 } {
            for z in 1..nz - 1 {
                let i = (x * ny + y) * nz + z;
                let second =
                    |stride: usize| balanced[i - stride] - 2.0 * balanced[i] + balanced[i + stride];
                let lateral = if ny == 1 { 0.0 } else { second(nz) };
                let fade = ((z as f32 / mute.max(1) as f32) - 1.0).clamp(0.0, 1.0);
                out[i] = -fade * (second(1) + second(ny * nz) + lateral);
            }
        }
    }
    out
}

/// Illumination relative to the strongest, in decibels, from -60 up.
pub fn decibels(illumination: &[f32]) -> Vec<f32> {
    let most = illumination
        .iter()
        .copied()
        .fold(f32::MIN_POSITIVE, f32::max);
    illumination
        .iter()
        .map(|v| (10.0 * (v / most).log10()).max(-60.0))
        .collect()
}
