//! The fluid lower bound: the least time for which any schedule can block the applications.
//!
//! In the bound, bytes are a fluid that may lie anywhere, and every schedule knows the future. Three kinds of limits are
//! left, which every run obeys: the bytes that have to cross a hop between two moments need their time, at each moment no more
//! bytes lie above a hop than the tiers there hold, and no call is faster than its copy. The least time that satisfies all
//! limits is a longest path; the book's chapter *Simulation* derives it.

mod fetches;
mod moment;
mod steps;
mod window;

use crate::hardware::{Hardware, Link, UNLIMITED};
use crate::workload::Workload;
use crate::{Error, Result};
use moment::Moment;
use steps::{Step, steps};
use window::Window;

/// A lower bound for all runs, whatever their policies and hints.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bound {
    /// ns, of all GPUs together, in which their applications do not compute: the least possible
    /// [`Outcome::lost_ns`](crate::Outcome::lost_ns). Without waits and barriers, their blocking time.
    pub lost_ns: u64,
    /// Part of `lost_ns` that remains with a fastest tier of any size: ns of copies between the applications' memory and that tier.
    pub copies_ns: u64,
}

/// Bytes that have to cross one hop.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct HopBytes {
    down: f64,
    up: f64,
}

impl HopBytes {
    /// Returns the ns that a link needs for these bytes, if it carries nothing else.
    fn over(self, link: &Link) -> f64 {
        let Self { down, up } = self;
        let time = |bytes: f64, bandwidth: u64| match bandwidth {
            UNLIMITED => 0.0,
            limit => bytes / limit as f64 * 1e9,
        };
        time(down, link.down)
            .max(time(up, link.up))
            .max(time(down + up, link.both))
    }
}

/// Returns the fluid lower bound for these applications on this machine: workload `g` on GPU `g`.
///
/// The computation takes the square of the number of calls for each GPU, and more where versions written and versions read
/// soon after lack room.
///
/// # Errors
/// [`Error::Hardware`](crate::Error::Hardware) and [`Error::Workload`](crate::Error::Workload) if one of them makes
/// no sense.
pub fn fluid_bound(hardware: &Hardware, workloads: &[Workload]) -> Result<Bound> {
    hardware.validate()?;
    let mut total = 0.0;
    let mut copies = 0.0;
    for (at, neighbours) in workloads.chunks(hardware.group()).enumerate() {
        let first = at * hardware.group();
        let clients = neighbours.iter().enumerate();
        let clients: Vec<_> = clients
            .map(|(within, workload)| steps(hardware, workload, first + within))
            .collect::<Result<_, Error>>()?;
        copies += copies_of(&clients);
        let each = clients.chunks(1);
        let alone = each.map(|client| end_of(&least(hardware, client)));
        let alone: f64 = alone.sum();
        total += match are_aligned(&clients) {
            _ if clients.len() == 1 => alone,
            true => alone.max(end_of(&least(hardware, &clients))),
            false => alone.max(one_after_another(hardware, &clients)),
        };
    }
    // Sums of many thousand floats are true to some 1e-13 of their value.
    let whole = |ns: f64| (ns - ns * 1e-12 + 1e-6).max(0.0) as u64;
    Ok(Bound {
        lost_ns: whole(total),
        copies_ns: whole(copies),
    })
}

fn end_of(lost: &[f64]) -> f64 {
    lost.last().copied().unwrap_or(0.0)
}

fn copies_of(clients: &[Vec<Step>]) -> f64 {
    clients.iter().flatten().map(|step| step.copy_ns).sum()
}

/// Returns true if all clients have the same number of calls, and barriers at the same places.
fn are_aligned(clients: &[Vec<Step>]) -> bool {
    let Some((first, others)) = clients.split_first() else {
        return true;
    };
    others.iter().all(|other| {
        let mut pairs = first.iter().zip(other);
        other.len() == first.len() && pairs.all(|(a, b)| a.is_barrier() == b.is_barrier())
    })
}

/// Returns the longest path over the steps of neighbours with aligned steps: the least ns that they have lost together, by
/// node. Node `k` is the end of the first `k` steps of each.
fn least(hardware: &Hardware, clients: &[Vec<Step>]) -> Vec<f64> {
    let count = clients.first().map_or(0, Vec::len);
    let is_barrier = |at: usize| clients.iter().any(|steps| steps[at].is_barrier());
    let earliest = match clients {
        [_] => Vec::new(),
        several => earliest(hardware, several),
    };
    let mut lost = vec![0.0_f64; count + 1];
    for from in 0..count {
        let is_common = from == 0 || is_barrier(from - 1);
        let begins_phase = from == 0 || clients[0][from].begins_phase_after(&clients[0][from - 1]);
        let mut windows = all_windows(hardware, clients, from);
        // Neighbours that share links have no moments in the bound.
        let mut moment = match clients {
            [steps] => Moment::new(hardware, steps, from, &lost),
            _ => None,
        };
        let mut copied = 0.0;
        for to in from..count {
            windows.iter_mut().for_each(Window::extend);
            let alone: f64 = windows.iter().map(|window| window.lost_ns(hardware)).sum();
            copied += clients.iter().map(|steps| steps[to].copy_ns).sum::<f64>();
            let alone = alone.max(copied);
            let more = moment.as_mut().map_or(0.0, |moment| moment.extend(alone));
            lost[to + 1] = lost[to + 1].max(lost[from] + alone + more);
            let Some(earliest) = earliest.get(from) else {
                continue;
            };
            if is_common && is_barrier(to) {
                let span = together(hardware, &windows);
                let coupled = windows.iter().map(|w| span - w.compute_with_first_ns());
                lost[to + 1] = lost[to + 1].max(lost[from] + coupled.sum::<f64>());
            }
            if begins_phase {
                let ends = earliest * clients.len() as f64 + queued(hardware, &windows);
                let computed = clients.iter().map(|steps| compute_until(steps, to));
                lost[to + 1] = lost[to + 1].max(ends - computed.sum::<f64>());
            }
        }
    }
    lost
}

/// Returns the earliest moment, in ns, at which any of these neighbours can come to each step, if it has all links
/// alone.
fn earliest(hardware: &Hardware, clients: &[Vec<Step>]) -> Vec<f64> {
    let mut earliest = vec![f64::INFINITY; clients.first().map_or(0, Vec::len)];
    for steps in clients {
        let lost = least(hardware, std::slice::from_ref(steps));
        for (at, (earliest, lost)) in earliest.iter_mut().zip(lost).enumerate() {
            *earliest = earliest.min(lost + compute_until(steps, at));
        }
    }
    earliest
}

/// ns that an application computes before the call of step `at`.
fn compute_until(steps: &[Step], at: usize) -> f64 {
    steps.get(at).map_or(0.0, |step| step.computed_ns)
}

fn all_windows<'a>(hardware: &Hardware, clients: &'a [Vec<Step>], from: usize) -> Vec<Window<'a>> {
    let windows = clients.iter();
    windows
        .map(|steps| Window::new(hardware, steps, from))
        .collect()
}

/// Returns the lost ns of neighbours that share only links, from the beginning to the end.
fn one_after_another(hardware: &Hardware, clients: &[Vec<Step>]) -> f64 {
    let whole = clients.iter().map(|steps| {
        let mut window = Window::new(hardware, steps, 0);
        steps.iter().for_each(|_| window.extend());
        window
    });
    let ends = queued(hardware, &whole.collect::<Vec<_>>());
    let last = |steps: &Vec<Step>| compute_until(steps, steps.len().saturating_sub(1));
    ends - clients.iter().map(last).sum::<f64>()
}

/// Returns the ns between two moments that all neighbours have in common: a shared link carries the sum of their needs.
fn together(hardware: &Hardware, windows: &[Window<'_>]) -> f64 {
    let mut span = 0.0_f64;
    for (tier, hop) in hardware.hops.iter().enumerate().skip(1) {
        for link in &hop.links {
            for sharers in windows.chunks(link.gpus) {
                let needs = sharers.iter().map(|window| window.need(tier));
                let sum = needs.fold(HopBytes::default(), |sum, need| HopBytes {
                    down: sum.down + need.down,
                    up: sum.up + need.up,
                });
                span = span.max(sum.over(link));
            }
        }
    }
    span
}

/// Returns the sum of the ends of windows, in ns after a moment before which none begins. Among windows that share a
/// link, the `n`-th to end ends no earlier than the link has carried the `n` smallest needs.
fn queued(hardware: &Hardware, windows: &[Window<'_>]) -> f64 {
    let mut most = 0.0_f64;
    let mut times = Vec::new();
    for (tier, hop) in hardware.hops.iter().enumerate().skip(1) {
        for link in &hop.links {
            let only = Link {
                down: UNLIMITED,
                up: UNLIMITED,
                both: UNLIMITED,
                ..*link
            };
            let ways = [
                Link {
                    down: link.down,
                    ..only
                },
                Link {
                    up: link.up,
                    ..only
                },
                Link {
                    both: link.both,
                    ..only
                },
            ];
            for way in ways {
                let mut ends = 0.0;
                for sharers in windows.chunks(link.gpus) {
                    times.clear();
                    times.extend(sharers.iter().map(|window| window.need(tier).over(&way)));
                    times.sort_by(f64::total_cmp);
                    let mut end = 0.0;
                    for time in &times {
                        end += time;
                        ends += end;
                    }
                }
                most = most.max(ends);
            }
        }
    }
    most
}
