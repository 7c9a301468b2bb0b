//! Velocity models: one that we make ourselves, smoothing, decimation.

use anyhow::{Context, Result, ensure};

use crate::grid::{Shape, cells};

/// P-wave velocities in m/s; z (depth) is the fastest axis.
#[derive(Clone, Debug)]
pub struct Model {
    pub shape: Shape,
    /// Metres between cells.
    pub spacing: f32,
    pub velocity: Vec<f32>,
}

impl Model {
    /// Checks that velocities are what the propagator can work with. Values below 20 everywhere
    /// are taken as km/s, as models are distributed in both units.
    pub fn new(shape: Shape, spacing: f32, mut velocity: Vec<f32>) -> Result<Self> {
        ensure!(
            velocity.len() == cells(shape)?,
            "{} velocities for {} cells",
            velocity.len(),
            cells(shape)?
        );
        if let Some(i) = velocity.iter().position(|v| !v.is_finite() || *v <= 0.0) {
            anyhow::bail!(
                "the velocity of cell {i} is {}: all must be positive numbers; are shape, byte \
                 order (little-endian) and type (float32) right?",
                velocity[i]
            );
        }
        if velocity.iter().all(|v| *v < 20.0) {
            velocity.iter_mut().for_each(|v| *v *= 1000.0);
        }
        let model = Self {
            shape,
            spacing,
            velocity,
        };
        let (slowest, fastest) = model.range();
        ensure!(
            slowest >= 50.0 && fastest <= 20_000.0,
            "velocities go from {slowest} to {fastest} m/s, which no rock has: are the byte order \
             (little-endian) and the type (float32) right?"
        );
        Ok(model)
    }

    /// Slowest and fastest velocity.
    pub fn range(&self) -> (f32, f32) {
        self.velocity
            .iter()
            .fold((f32::MAX, 0.0), |(lo, hi), &v| (lo.min(v), hi.max(v)))
    }

    /// The column of velocities below (x, y).
    pub fn row(&self, x: usize, y: usize) -> &[f32] {
        let start = (x * self.shape[1] + y) * self.shape[2];
        &self.velocity[start..start + self.shape[2]]
    }

    /// Seconds that a wave takes straight down, averaged over the surface.
    pub fn vertical_time(&self) -> f32 {
        let columns = (self.shape[0] * self.shape[1]) as f64;
        let slowness: f64 = self.velocity.iter().map(|v| 1.0 / f64::from(*v)).sum();
        (slowness * f64::from(self.spacing) / columns) as f32
    }

    /// Every `n`-th cell along each axis.
    pub fn decimate(&self, n: usize) -> Result<Self> {
        ensure!(n >= 1, "--decimate 0 leaves nothing: give 1 or more");
        let shape = self.shape.map(|cells| cells.div_ceil(n));
        let mut velocity = Vec::with_capacity(cells(shape)?);
        for x in (0..self.shape[0]).step_by(n) {
            for y in (0..self.shape[1]).step_by(n) {
                velocity.extend(self.row(x, y).iter().step_by(n));
            }
        }
        Ok(Self {
            shape,
            spacing: self.spacing * n as f32,
            velocity,
        })
    }

    /// The model as an interpreter would know it before migration: slowness smoothed by about a
    /// Gaussian of `sigma` cells, which keeps travel times. The top, down to where the velocity of
    /// the water or the weathering layer changes, is known and stays.
    pub fn smooth(&self, sigma: f32) -> Self {
        let mut slowness: Vec<f32> = self.velocity.iter().map(|v| 1.0 / v).collect();
        let [nx, ny, nz] = self.shape;
        // Three boxes in a row are nearly a Gaussian; a box of width w has variance (w² - 1) / 12.
        let half = (((4.0 * sigma * sigma + 1.0).sqrt() - 1.0) / 2.0).round() as usize;
        let strides = [(nx, ny * nz), (ny, nz), (nz, 1)];
        let mut line = Vec::new();
        let mut sums = Vec::new();
        for (n, stride) in strides {
            for start in (0..slowness.len()).filter(|i| (i / stride) % n == 0) {
                line.clear();
                line.extend((0..n).map(|i| slowness[start + i * stride]));
                for _ in 0..3 {
                    box_mean(&mut line, half, &mut sums);
                }
                for (i, &v) in line.iter().enumerate() {
                    slowness[start + i * stride] = v;
                }
            }
        }
        let mut velocity: Vec<f32> = slowness.into_iter().map(|s| 1.0 / s).collect();
        for (smooth, sharp) in velocity.chunks_mut(nz).zip(self.velocity.chunks(nz)) {
            let known = sharp
                .iter()
                .take_while(|v| (**v - sharp[0]).abs() <= 1.0)
                .count();
            let known = if known == nz { 0 } else { known };
            smooth[..known].copy_from_slice(&sharp[..known]);
        }
        Self {
            shape: self.shape,
            spacing: self.spacing,
            velocity,
        }
    }

    /// The model we make ourselves: water over dipping layers, cut by a fault, around a salt body.
    /// In 3-D the layers undulate along y too.
    pub fn made(shape: Shape, spacing: f32) -> Result<Self> {
        /// Velocity below each interface (m/s), and the interface's depth as a share of the whole.
        const LAYERS: [(f32, f32); 8] = [
            (1500.0, 0.0),
            (1750.0, 0.10),
            (2000.0, 0.22),
            (2300.0, 0.33),
            (2150.0, 0.44),
            (2700.0, 0.56),
            (3000.0, 0.70),
            (3400.0, 0.84),
        ];
        let total = cells(shape)?;
        let mut velocity = Vec::new();
        velocity
            .try_reserve_exact(total)
            .with_context(|| format!("no memory for a model of {total} cells"))?;
        let share = |i: usize, n: usize| (i as f32 + 0.5) / n as f32;
        for x in 0..shape[0] {
            let fx = share(x, shape[0]);
            for y in 0..shape[1] {
                let fy = if shape[1] == 1 {
                    0.5
                } else {
                    share(y, shape[1])
                };
                for z in 0..shape[2] {
                    let fz = share(z, shape[2]);
                    // A normal fault dips to the right; what lies right of it has gone down.
                    let thrown = if fx > 0.62 + 0.25 * fz { 0.07 } else { 0.0 };
                    let bent = 0.03 * (5.0 * fx + 2.0 * (fy - 0.5)).sin() + 0.05 * (fx - 0.5);
                    let layer = LAYERS.iter().rev().find(|(_, top)| {
                        // The sea floor is younger than fault and folds.
                        let moved = if *top > 0.15 {
                            thrown + bent
                        } else {
                            0.2 * bent
                        };
                        fz >= top + moved || *top == 0.0
                    });
                    // Salt: a stock with a wider cap, in the left half.
                    let (dx, dy) = (fx - 0.3, 0.7 * (fy - 0.5));
                    let side = (dx * dx + dy * dy).sqrt();
                    let cap = (side / 0.15).powi(2) + ((fz - 0.45) / 0.10).powi(2) < 1.0;
                    let stem = side < 0.07 && (0.45..0.75).contains(&fz);
                    let v = if cap || stem {
                        4500.0
                    } else {
                        layer.map_or(1500.0, |(v, _)| *v)
                    };
                    velocity.push(v);
                }
            }
        }
        Self::new(shape, spacing, velocity)
    }
}

/// Replaces each value by the mean over `half` neighbours either side; the ends repeat.
fn box_mean(line: &mut [f32], half: usize, sums: &mut Vec<f64>) {
    let n = line.len();
    let at = |i: isize| f64::from(line[i.clamp(0, n as isize - 1) as usize]);
    sums.clear();
    let mut sum = 0.0;
    sums.push(0.0);
    for i in -(half as isize)..(n + half) as isize {
        sum += at(i);
        sums.push(sum);
    }
    let width = 2 * half + 1;
    for (i, value) in line.iter_mut().enumerate() {
        *value = ((sums[i + width] - sums[i]) / width as f64) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_keeps_the_mean_slowness_and_the_water() {
        let model = Model::made([60, 1, 50], 10.0).unwrap();
        let smooth = model.smooth(4.0);
        assert!((smooth.vertical_time() / model.vertical_time() - 1.0).abs() < 0.02);
        assert_eq!(smooth.row(10, 0)[0], 1500.0);
        let step = |m: &Model| {
            m.velocity
                .windows(2)
                .map(|w| (w[1] - w[0]).abs())
                .fold(0.0, f32::max)
        };
        assert!(
            smooth
                .row(18, 0)
                .windows(2)
                .all(|w| (w[1] - w[0]).abs() < 400.0)
        );
        assert!(step(&model) > 1000.0);
    }

    #[test]
    fn smoothing_by_nothing_changes_nothing() {
        let model = Model::made([20, 1, 20], 10.0).unwrap();
        let smooth = model.smooth(0.0);
        for (a, b) in smooth.velocity.iter().zip(&model.velocity) {
            assert!((a / b - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn the_made_model_has_water_layers_and_salt() {
        let model = Model::made([361, 1, 241], 10.0).unwrap();
        assert_eq!(model.range(), (1500.0, 4500.0));
        let kinds: std::collections::BTreeSet<u32> =
            model.velocity.iter().map(|v| *v as u32).collect();
        assert_eq!(kinds.len(), 9);
    }

    #[test]
    fn decimation_keeps_every_nth_cell() {
        let model = Model::new([5, 1, 9], 7.5, (0..45).map(|i| 1000.0 + i as f32).collect());
        let half = model.unwrap().decimate(2).unwrap();
        assert_eq!((half.shape, half.spacing), ([3, 1, 5], 15.0));
        assert_eq!(half.row(1, 0), [1018.0, 1020.0, 1022.0, 1024.0, 1026.0]);
    }

    #[test]
    fn units_are_told_apart_and_nonsense_is_refused() {
        let km = Model::new([8, 1, 8], 10.0, vec![1.5; 64]).unwrap();
        assert_eq!(km.range(), (1500.0, 1500.0));
        for bad in [f32::NAN, 0.0, -1.0, f32::INFINITY, 1e9] {
            let mut v = vec![1500.0; 64];
            v[7] = bad;
            assert!(Model::new([8, 1, 8], 10.0, v).is_err(), "{bad}");
        }
    }
}
