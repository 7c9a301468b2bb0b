//! The source signature.

use std::f32::consts::PI;

/// A Ricker wavelet of peak frequency `frequency` (Hz), sampled every `dt` seconds. The wavelet starts near zero and
/// peaks after [`delay`].
pub fn ricker(frequency: f32, dt: f32, samples: usize) -> Vec<f32> {
    (0..samples)
        .map(|n| {
            let a = (PI * frequency * (n as f32 * dt - delay(frequency))).powi(2);
            (1.0 - 2.0 * a) * (-a).exp()
        })
        .collect()
}

/// Seconds from the first sample to the wavelet's peak.
pub fn delay(frequency: f32) -> f32 {
    1.4 / frequency
}

/// The frequency above which a Ricker wavelet holds next to nothing.
pub fn highest(frequency: f32) -> f32 {
    2.5 * frequency
}
