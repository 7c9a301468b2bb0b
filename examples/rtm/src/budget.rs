//! Bounds of snapshots by what their errors do to the results.
//!
//! The image is the sum over the snapshots `n` of the source's field `s(n)` times the receivers' field `r(n)`, its partner. An error
//! of at most `b(n)` that is spread evenly and independently adds `b(n)² / 3 · rms(r(n))²` to the image's mean square error. With
//! `b(n) = within · rms(image) · sqrt(3 / N) / rms(r(n))`, each of `N` snapshots has an equal share, and all of them together keep
//! the image's root mean square error within its share of the image. The illumination, the sum of `s(n)²`, has the partner `2 s(n)`.
//! The squares of the errors make it larger besides, by `b(n)² / 3` each: all of them together may take a quarter of its share.

/// A result that is summed over the snapshots of a shot.
#[derive(Clone, Debug, Default)]
struct Sum {
    /// The root mean square of the result.
    of: f64,
    /// The root mean square of each snapshot's partner.
    partners: Vec<f64>,
}

/// The errors that snapshots may have, so that the results' root mean square errors stay within a share of the results.
///
/// The partners are known when a shot is over. So the first shot is the pilot of the others: its snapshots are kept within a
/// relative bound, and those of the others by what was found.
#[derive(Clone, Debug)]
pub struct ErrorBudget {
    within: f64,
    /// The image, then the illumination.
    sums: [Sum; 2],
}

impl ErrorBudget {
    /// Keeps the results of each shot within this share of them.
    pub fn new(within: f64, checkpoints: u64) -> Self {
        let partners = vec![0.0; usize::try_from(checkpoints).unwrap_or(0)];
        let sum = Sum { of: 0.0, partners };
        Self {
            within,
            sums: [sum.clone(), sum],
        }
    }

    /// Notes the fields of the source and of the receivers at a checkpoint of the pilot.
    pub fn partners(&mut self, checkpoint: usize, source: &[f32], receivers: &[f32]) {
        let [image, illumination] = &mut self.sums;
        for (sum, partner) in [
            (image, root_mean_square(receivers)),
            (illumination, 2.0 * root_mean_square(source)),
        ] {
            if let Some(noted) = sum.partners.get_mut(checkpoint) {
                *noted = partner;
            }
        }
    }

    /// Notes the results of the pilot. From now on there are [errors](Self::error).
    pub fn results(&mut self, image: &[f32], illumination: &[f32]) {
        for (sum, of) in self.sums.iter_mut().zip([image, illumination]) {
            sum.of = root_mean_square(of);
        }
    }

    /// Returns the error that a checkpoint may have; `None` before the pilot is over.
    pub fn error(&self, checkpoint: usize) -> Option<f64> {
        let errors = self.sums.iter().map(|sum| {
            let share = (3.0 / sum.partners.len() as f64).sqrt();
            self.within * sum.of * share / sum.partners.get(checkpoint).copied().unwrap_or_default()
        });
        let [_, illumination] = &self.sums;
        let squares = 0.25 * self.within * illumination.of / illumination.partners.len() as f64;
        let least = errors.fold((3.0 * squares).sqrt(), f64::min);
        Some(least).filter(|error| error.is_finite() && *error > 0.0)
    }
}

fn root_mean_square(values: &[f32]) -> f64 {
    let squares: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
    (squares / values.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Args, Order};
    use crate::history::{History, Tiers};
    use crate::host::Host;
    use crate::migration::{Migration, Usage};
    use crate::survey::Survey;
    use clap::Parser;
    use std::time::Duration;
    use tierflow_device::{Choice, open};
    use tierflow_engine::AfterRestore;

    #[test]
    fn the_image_of_a_budget_differs_by_no_more() {
        let line = "rtm --decimate 4 --steps 240 --every 3 --shots 3 --verify --error-budget 1e-3";
        let args = Args::parse_from(line.split(' '));
        let survey = Survey::new(&args).unwrap();
        let device = open(Choice::Host).unwrap();
        let propagator = Host::new(&device, survey.grid.clone()).unwrap();
        let usage = Usage {
            order: Order::Reverse,
            hints: args.hints,
            interval: Duration::ZERO,
            recompute: None,
            verify: args.verify,
            within: true,
            error_budget: args.error_budget,
        };
        let mut migration = Migration::new(&device, &propagator, &survey, usage).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        // The device cache holds no more than a few snapshots, so nearly all come back within bounds.
        let tiers = Tiers {
            device_cache: 3 * migration.checkpoint_bytes(),
            host_cache: args.host_cache,
            scratch: scratch.path(),
            scratch_limit: u64::MAX,
            compress: crate::compress(&args),
            after_restore: AfterRestore::Discard,
        };
        let mut history = None;
        for shot in 0..args.shots {
            let open = || History::open(&device, tiers);
            migration.shot(shot, &mut history, open).unwrap();
        }
        let (_, norm) = migration.difference().unwrap().unwrap();
        assert!((1e-5..=1e-3).contains(&norm), "{norm:e}");
        let compression = history.unwrap().metrics().compression.unwrap();
        assert!(
            compression.stored < compression.compressed / 8,
            "{compression:?}"
        );
    }

    #[test]
    fn errors_as_large_as_allowed_keep_the_results_within_their_share() {
        const CHECKPOINTS: usize = 300;
        const CELLS: usize = 500;
        let within = 1e-3;
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut field = |n: usize| -> Vec<f32> {
            let size = 10_f32.powi(n as i32 % 7 - 3);
            (0..CELLS).map(|_| size * random()).collect()
        };
        let sources: Vec<_> = (0..CHECKPOINTS).map(&mut field).collect();
        let receivers: Vec<_> = (0..CHECKPOINTS).map(|n| field(n + 3)).collect();
        let sum = |left: &[Vec<f32>], right: &[Vec<f32>]| {
            let mut sum = vec![0.0_f64; CELLS];
            for (left, right) in left.iter().zip(right) {
                for ((sum, left), right) in sum.iter_mut().zip(left).zip(right) {
                    *sum += f64::from(*left) * f64::from(*right);
                }
            }
            sum.into_iter()
                .map(|value| value as f32)
                .collect::<Vec<_>>()
        };
        let results = |sources: &[Vec<f32>]| [sum(sources, &receivers), sum(sources, sources)];
        let truth = results(&sources);
        let mut budget = ErrorBudget::new(within, CHECKPOINTS as u64);
        assert_eq!(budget.error(0), None);
        for (n, (source, receivers)) in sources.iter().zip(&receivers).enumerate() {
            budget.partners(n, source, receivers);
        }
        budget.results(&truth[0], &truth[1]);
        let changed: Vec<Vec<f32>> = sources
            .iter()
            .enumerate()
            .map(|(n, source)| {
                let error = budget.error(n).unwrap() as f32;
                source
                    .iter()
                    .map(|value| value + error * random())
                    .collect()
            })
            .collect();
        let shares = truth.iter().zip(results(&changed)).map(|(truth, changed)| {
            let difference: Vec<f32> = truth.iter().zip(changed).map(|(a, b)| a - b).collect();
            root_mean_square(&difference) / root_mean_square(truth)
        });
        let shares: Vec<f64> = shares.collect();
        assert!(
            shares.iter().all(|share| *share < 1.1 * within),
            "{shares:?}"
        );
        // One of them uses all of it.
        assert!(
            shares.iter().any(|share| *share > within / 2.0),
            "{shares:?}"
        );
    }
}
