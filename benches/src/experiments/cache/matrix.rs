//! The matrix on an H100: sizes × order × hints × waiting (HPDC'23, Figures 5 and 6), and the irregular, variable case by compute
//! interval and by cache size (Figure 8).

use anyhow::Result;
use tierflow_sim::{Hardware, Hints, Order, Shot, Workload};

use super::{HINTS, INTERVAL_NS, ORDERS, POLICIES, SimulatedScale, inputs, report};
use crate::experiments::Run;

/// Ratios of one policy's time lost to the bound, summed up by their geometric mean.
#[derive(Default)]
struct Mean {
    logarithms: f64,
    count: usize,
}

impl Mean {
    fn take(&mut self, ratio: f64) {
        self.logarithms += ratio.ln();
        self.count += 1;
    }

    fn value(&self) -> f64 {
        (self.logarithms / self.count.max(1) as f64).exp()
    }
}

pub(super) fn run(run: &mut Run) -> Result<()> {
    let scale = SimulatedScale::of(run);
    let count = if run.is_quick() { 1 } else { 100 };
    let recorded = inputs::shots(count, scale.versions)?;
    let shots = recorded.items.into_iter();
    let variable: Vec<_> = shots.map(|sizes| Shot::new(sizes, INTERVAL_NS)).collect();
    let kinds = [
        ("128 MiB".to_owned(), vec![scale.uniform()]),
        (format!("variable ({})", recorded.origin), variable.clone()),
    ];
    cells(run, &scale.h100(), &kinds)?;
    let few = &variable[..variable.len().min(8)];
    by_interval(run, &scale, few)?;
    by_cache(run, &scale, few)
}

fn cells(run: &mut Run, hardware: &Hardware, kinds: &[(String, Vec<Shot>)]) -> Result<()> {
    let mut means: [[Mean; POLICIES.len()]; 2] = Default::default();
    for (kind, shots) in kinds {
        for wait in [true, false] {
            for (order_name, order) in ORDERS {
                for (hints_name, hints) in HINTS {
                    let shape = |(at, shot): (usize, &Shot)| Shot {
                        order: match order {
                            Order::Irregular(seed) => Order::Irregular(seed + at as u64),
                            regular => regular,
                        },
                        hints,
                        wait,
                        ..shot.clone()
                    };
                    let shots = shots.iter().enumerate();
                    let workloads: Vec<_> = shots.map(|shot| shape(shot).workload()).collect();
                    let case = |policy: &str| {
                        format!(
                            "sizes={kind}, wait={wait}, order={order_name}, hints={hints_name}, policy={policy}"
                        )
                    };
                    let (bound, lost) = report(run, case, hardware, &workloads)?;
                    let is_hard = kind != "128 MiB" && matches!(order, Order::Irregular(_));
                    for means in &mut means[..=usize::from(is_hard)] {
                        for (mean, lost) in means.iter_mut().zip(lost) {
                            mean.take(lost / bound.max(1.0));
                        }
                    }
                }
            }
        }
    }
    for (name, means) in ["all", "irregular and variable"].iter().zip(&means) {
        for (policy, mean) in POLICIES.iter().zip(means) {
            let case = format!("cells={name}, policy={}", policy.name);
            run.value(
                &case,
                "simulated time lost over the bound, geometric mean",
                "1",
                mean.value(),
            )?;
        }
    }
    Ok(())
}

fn irregular(shots: &[Shot], compute_ns: u64, hints: Hints) -> Vec<Workload> {
    let shape = |shot: &Shot| Shot {
        order: Order::Irregular(1),
        compute_ns,
        hints,
        ..shot.clone()
    };
    shots.iter().map(|shot| shape(shot).workload()).collect()
}

fn by_interval(run: &mut Run, scale: &SimulatedScale, shots: &[Shot]) -> Result<()> {
    let hardware = scale.h100();
    for (hints_name, hints) in [HINTS[0], HINTS[2]] {
        let all = [5, 10, 15, 20, 30];
        for milliseconds in all.into_iter().step_by(scale.every) {
            let workloads = irregular(shots, milliseconds * 1_000_000, hints);
            let case = |policy: &str| {
                format!(
                    "order=irregular, sizes=variable, hints={hints_name}, policy={policy}, compute interval in ms={milliseconds}"
                )
            };
            report(run, case, &hardware, &workloads)?;
        }
    }
    Ok(())
}

fn by_cache(run: &mut Run, scale: &SimulatedScale, shots: &[Shot]) -> Result<()> {
    for (hints_name, hints) in [HINTS[0], HINTS[2]] {
        let workloads = irregular(shots, INTERVAL_NS, hints);
        for percent in [50, 100, 200, 400].into_iter().step_by(scale.every) {
            let hardware = Hardware::h100(scale.device * percent / 100, scale.host);
            let mib = (scale.device * percent / 100) >> 20;
            let case = |policy: &str| {
                format!(
                    "order=irregular, sizes=variable, hints={hints_name}, policy={policy}, device cache in MiB={mib}"
                )
            };
            report(run, case, &hardware, &workloads)?;
        }
    }
    Ok(())
}
