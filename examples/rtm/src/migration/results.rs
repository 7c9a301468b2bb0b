//! The results of a migration.

use anyhow::{Result, ensure};

use super::{Maps, Migration};
use crate::propagator;
use crate::tally::Proven;

/// By how much values differ from true ones: the largest difference as a share of the largest value, and that of the Euclidean norms.
pub fn apart(values: &[f32], truth: &[f32]) -> (f64, f64) {
    let norms = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((0.0_f64, 0.0_f64), |(most, sum), value| {
            (most.max(value.abs()), sum + value * value)
        })
    };
    let pairs = values.iter().zip(truth);
    let (most, sum) = norms(&mut pairs.map(|(value, truth)| f64::from(value - truth)));
    let (peak, whole) = norms(&mut truth.iter().map(|value| f64::from(*value)));
    let share = |part: f64, whole: f64| part / whole.max(f64::MIN_POSITIVE);
    (share(most, peak), share(sum, whole).sqrt())
}

impl Migration<'_> {
    /// By how much the image differs from that of the snapshots kept in memory, as [`apart`] tells.
    pub fn difference(&self) -> Result<Option<(f64, f64)>> {
        let Some(reference) = &self.reference else {
            return Ok(None);
        };
        let truth: Vec<f32> = propagator::read(self.propagator, &reference.maps.image)?;
        Ok(Some(apart(&self.image_of_all_cells()?, &truth)))
    }

    /// The stacked correlations, with those of the absorbing layer.
    pub fn image_of_all_cells(&self) -> Result<Vec<f32>> {
        propagator::read(self.propagator, &self.maps.image)
    }

    /// The stacked correlations and the illumination, without the absorbing layer. With `verify`
    /// they were proven equal to those of the snapshots kept in memory, or this is an error.
    pub fn results(&self) -> Result<(Vec<f32>, Vec<i64>)> {
        let read = |maps: &Maps| -> Result<(Vec<f32>, Vec<i64>)> {
            Ok((
                propagator::read(self.propagator, &maps.image)?,
                propagator::read(self.propagator, &maps.illumination)?,
            ))
        };
        let (image, illumination) = read(&self.maps)?;
        if let (Some(reference), false) = (&self.reference, self.usage.within) {
            let Proven {
                snapshots,
                different,
            } = self.proven;
            ensure!(
                different == 0,
                "verify: {different} of {snapshots} snapshots came back changed; this is a defect, \
                 please report it"
            );
            let (kept_image, kept_illumination) = read(&reference.maps)?;
            let same =
                bytemuck::cast_slice::<_, u8>(&image) == bytemuck::cast_slice::<_, u8>(&kept_image);
            ensure!(
                same && illumination == kept_illumination,
                "verify: the image differs from that of the snapshots kept in memory; this is a \
                 defect, please report it"
            );
        }
        let grid = self.propagator.grid();
        Ok((grid.crop(&image), grid.crop(&illumination)))
    }
}
