//! Full-waveform inversion: steps from the smooth model to one whose shots are like those of the true one.
//!
//! The misfit is half the sum of all squared residuals. Each iteration migrates all shots over the model so far. The image, which is the
//! residuals' correlation with the source's wavefield, is the misfit's gradient by the squared slowness, but for a weight of each frequency
//! and the sign. Divided by the illumination it is the direction of a step down. A step after which the misfit is larger is taken back,
//! and the next one has half its length.

use std::fmt::Write as _;

use anyhow::Result;

use crate::image;
use crate::model::Model;
use crate::survey::Survey;

/// The largest change of a velocity in the first step, as a share of it.
const FIRST: f32 = 0.02;
/// How much longer a step is than one that went down.
const LONGER: f32 = 1.3;

/// An inversion, and how far it is.
pub struct Inversion {
    /// The model whose shots are next.
    pub model: Model,
    /// Half the sum of the squared residuals of each iteration.
    pub misfits: Vec<f64>,
    best: Best,
    length: f32,
    range: (f32, f32),
}

/// The model of the least misfit, and the direction from there.
struct Best {
    model: Model,
    misfit: f64,
    direction: Vec<f32>,
}

impl Inversion {
    /// Begins with the survey's smooth model. Velocities stay within those of the true one, for which the time step is stable.
    pub fn new(survey: &Survey) -> Self {
        let model = survey.smooth.clone();
        Self {
            best: Best {
                model: model.clone(),
                misfit: f64::INFINITY,
                direction: Vec::new(),
            },
            model,
            misfits: Vec::new(),
            length: FIRST,
            range: survey.truth.range(),
        }
    }

    /// Takes the results of all shots over the model, and makes the next model.
    pub fn step(&mut self, survey: &Survey, misfit: f64, image: &[f32], illumination: &[f32]) {
        self.misfits.push(misfit);
        if misfit < self.best.misfit {
            self.length *= if self.misfits.len() > 1 { LONGER } else { 1.0 };
            self.best = Best {
                model: self.model.clone(),
                misfit,
                direction: direction(survey, image, illumination),
            };
        } else {
            self.length /= 2.0;
        }
        let (slowest, fastest) = self.range;
        let velocities = self.best.model.velocity.iter().zip(&self.best.direction);
        self.model.velocity = velocities
            .map(|(v, direction)| (v * (1.0 - self.length * direction)).clamp(slowest, fastest))
            .collect();
    }

    /// The misfits as rows of a report; `run` names the run.
    pub fn rows(&self, run: &str) -> Result<String> {
        let first = self.misfits.first().copied().unwrap_or(1.0);
        let mut rows = String::from("[\n");
        for (n, misfit) in self.misfits.iter().enumerate() {
            let comma = if n == 0 { "" } else { ",\n" };
            write!(
                rows,
                "{comma}{{\"experiment\":\"inversion\",\"case\":\"run={run}, iteration={n}\",\"metric\":\"misfit\",\"value\":{:e},\
                 \"unit\":\"1\",\"reference\":null,\"ratio\":null}}",
                misfit / first
            )?;
        }
        rows.push_str("\n]\n");
        Ok(rows)
    }
}

/// The image divided by the illumination, without the cells at the top, so that its largest magnitude is 1.
fn direction(survey: &Survey, image: &[f32], illumination: &[f32]) -> Vec<f32> {
    let depth = survey.grid.inner[2];
    let mut direction = image::balance(image, illumination);
    for column in direction.chunks_mut(depth) {
        column[..survey.mute().min(depth)].fill(0.0);
    }
    let most = direction
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    direction
        .iter_mut()
        .for_each(|value| *value /= most.max(f32::MIN_POSITIVE));
    direction
}
