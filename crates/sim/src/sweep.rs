//! A sweep: configurations drawn from a seed, on which plans are compared with each other and with the fluid bound.
//!
//! Every parameter of a cell is drawn by itself, so no machine and no shot is special. A cell depends on the seed and
//! on its index alone: the first hundred cells of a sweep are the same, however many follow. Judge a policy that was
//! tuned on one seed by another.
//!
//! ```
//! use tierflow_sim::{Simulation, fluid_bound, sweep};
//!
//! for cell in sweep::cells(7, 2) {
//!     let workloads = [cell.workload];
//!     let bound = fluid_bound(&cell.hardware, &workloads)?;
//!     let outcome = Simulation::new(cell.hardware).run(&workloads)?;
//!     println!("{}: {:.2} x the bound", cell.name, outcome.lost_ns() as f64 / bound.lost_ns as f64);
//! }
//! # Ok::<(), tierflow_sim::Error>(())
//! ```

mod random;
mod ratios;
mod shape;
mod wide;

pub use ratios::Ratios;
pub use wide::wide_cells;

use crate::hardware::{Hardware, Link};
use crate::workload::{Hints, Mistake, Mistakes, Order, Shot, Workload};
use random::CellRandom;
use shape::Shape;
use std::fmt;
use tierflow_plan::AfterRestore;

/// A configuration: a GPU, and the workload of its application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// All parameters, without commas. The name is unique in its sweep.
    pub name: String,
    /// The hints of the application.
    pub hints: Hints,
    /// A GPU with the links of [`Hardware::h100`], but drawn caches and a drawn disk. In wide cells, the link to the host and the
    /// latencies are drawn, too.
    pub hardware: Hardware,
    /// A shot, or several one after the other.
    pub workload: Workload,
}

/// Returns the first `count` cells of the sweep of a seed.
#[must_use]
pub fn cells(seed: u64, count: usize) -> Vec<Cell> {
    cells_with(seed, count, &[])
}

/// Returns the cells of [`cells`], but with recorded sizes in place of made-up ones: stretched to the number of versions of
/// the cell, and scaled to its bytes. If `recorded` is empty, the cells are those of [`cells`].
#[must_use]
pub fn cells_with(seed: u64, count: usize, recorded: &[Vec<u64>]) -> Vec<Cell> {
    let each = (0..count as u64).map(|at| Parameters::drawn(CellRandom::of(seed, at), recorded));
    each.map(|parameters| parameters.cell(recorded)).collect()
}

/// The drawn parameters of a cell.
struct Parameters {
    /// Time of computing before each checkpoint and after each restore, in µs.
    interval_us: u64,
    device_mib: u64,
    host_mib: u64,
    /// MB/s to the disk.
    disk_down: u64,
    /// MB/s from the disk.
    disk_up: u64,
    /// True if both directions share the larger rate.
    is_shared: bool,
    /// Versions of one shot.
    versions: usize,
    /// MB of one shot.
    megabytes: u64,
    shape: Shape,
    order: Order,
    hints: Hints,
    shots: u64,
    wait: bool,
    keep: bool,
    passes: usize,
    /// Seed of sizes, orders and mistakes, for each shot anew.
    seed: u64,
}

impl Parameters {
    /// Draws all parameters, each independently of the others.
    fn drawn(mut random: CellRandom, recorded: &[Vec<u64>]) -> Self {
        let interval_us = random.logarithmic(1_000, 100_000);
        let device_mib = random.logarithmic(512, 16 << 10);
        let host_mib = random.logarithmic(4 << 10, 128 << 10);
        let (disk, ratio) = (
            random.logarithmic(500, 8_000),
            random.logarithmic(500, 2_000),
        );
        let other = [disk, (disk * ratio / 1_000).clamp(500, 8_000)][random.below(2)];
        let [disk_down, disk_up] = [[disk, other], [other, disk]][random.below(2)];
        let is_shared = random.below(2) == 1;
        let versions = 100 + random.below(301);
        let megabytes = 4_000 + random.below(96_001) as u64;
        let seed = random.below(1 << 20) as u64;
        let shape = Shape::ALL[random.below(Shape::ALL.len())].among(recorded, seed);
        let order = any_order(&mut random, seed);
        let hints = hints(&mut random, seed);
        let shots = [1, 1, 2, 3][random.below(4)];
        let wait = random.below(2) == 1;
        let (keep, passes) = [(false, 1), (false, 1), (true, 1), (true, 2)][random.below(4)];
        Self {
            interval_us,
            device_mib,
            host_mib,
            disk_down,
            disk_up,
            is_shared,
            versions,
            megabytes,
            shape,
            order,
            hints,
            shots,
            wait,
            keep,
            passes,
            seed,
        }
    }

    fn hardware(&self) -> Hardware {
        let (down, up) = (self.disk_down * 1_000_000, self.disk_up * 1_000_000);
        let separate = Link {
            down,
            up,
            ..Link::own(down)
        };
        let disk = if self.is_shared {
            separate.together(down.max(up))
        } else {
            separate
        };
        let mut hardware = Hardware::h100(self.device_mib << 20, self.host_mib << 20);
        if let Some(hop) = hardware.hops.last_mut() {
            hop.links = vec![disk];
        }
        // A workload that waits for the lowest tier has versions flushed eagerly.
        if let Some(tier) = hardware.tiers.last_mut() {
            tier.eager = self.wait;
        }
        hardware
    }

    fn shot(&self, number: u64, recorded: &[Vec<u64>]) -> Workload {
        let seed = self.seed + (number << 20);
        let bytes = self.megabytes * 1_000_000;
        let shot = Shot {
            order: match self.order {
                Order::Irregular(_) => Order::Irregular(seed),
                Order::IrregularBlocks { length, .. } => Order::IrregularBlocks { length, seed },
                regular => regular,
            },
            hints: match self.hints {
                Hints::Wrong(mistakes) => Hints::Wrong(Mistakes { seed, ..mistakes }),
                right => right,
            },
            wait: self.wait,
            passes: self.passes,
            after_restore: if self.keep {
                AfterRestore::Keep
            } else {
                AfterRestore::Discard
            },
            ..Shot::new(
                self.shape.sizes(self.versions, bytes, seed, recorded),
                self.interval_us * 1_000,
            )
        };
        shot.workload()
    }

    fn cell(&self, recorded: &[Vec<u64>]) -> Cell {
        let first = self.shot(0, recorded);
        let workload = (1..self.shots).fold(first, |earlier, number| {
            earlier.then(&self.shot(number, recorded))
        });
        Cell {
            name: self.to_string(),
            hints: self.hints,
            hardware: self.hardware(),
            workload,
        }
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (interval, device, host) = (self.interval_us, self.device_mib, self.host_mib);
        let together = if self.is_shared { " shared" } else { "" };
        let (down, up, bytes) = (self.disk_down, self.disk_up, self.megabytes);
        write!(
            f,
            "interval={interval}us device={device}MiB host={host}MiB disk={down}/{up}MB/s{together} "
        )?;
        let (versions, shape, shots) = (self.versions, self.shape, self.shots);
        let (wait, keep, passes, seed) = (self.wait, self.keep, self.passes, self.seed);
        write!(
            f,
            "versions={versions} bytes={bytes}MB sizes={shape} shots={shots} wait={wait} keep={keep} passes={passes} seed={seed} "
        )?;
        write!(f, "order={} hints={}", order_name(self.order), self.hints)
    }
}

fn order_name(order: Order) -> String {
    match order {
        Order::Sequential => "sequential".to_owned(),
        Order::Reverse => "reverse".to_owned(),
        Order::Irregular(_) => "irregular".to_owned(),
        Order::ReverseBlocks(length) => format!("reverse-blocks({length})"),
        Order::IrregularBlocks { length, .. } => format!("irregular-blocks({length})"),
        Order::Strides(step) => format!("strides({step})"),
    }
}

fn any_order(random: &mut CellRandom, seed: u64) -> Order {
    let length = [4, 8, 16, 32][random.below(4)];
    let orders = [
        Order::Sequential,
        Order::Reverse,
        Order::Irregular(seed),
        Order::ReverseBlocks(length),
        Order::IrregularBlocks { length, seed },
        Order::Strides(length),
    ];
    orders[random.below(orders.len())]
}

/// Draws the hints: of 18 draws, six are `All`, three each `Single` and `None`, two each of the others.
fn hints(random: &mut CellRandom, seed: u64) -> Hints {
    let late = Hints::Late([0, 10, 25, 50][random.below(4)]);
    let parts = Hints::Parts([2, 4, 8, 16][random.below(4)]);
    let wrong = Hints::Wrong(Mistakes {
        percent: [2, 5, 10, 25][random.below(4)],
        kind: [Mistake::Misplaced, Mistake::Unwritten][random.below(2)],
        seed,
    });
    match random.below(18) {
        0..6 => Hints::All,
        6..9 => Hints::Single,
        9..12 => Hints::None,
        12..14 => late,
        14..16 => parts,
        _ => wrong,
    }
}
