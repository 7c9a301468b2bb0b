//! Cells drawn wider than those of [`cells`](super::cells): other links, other sizes, and other kinds of programs.

use super::Cell;
use super::random::CellRandom;
use super::shape::Shape;
use super::{any_order, order_name};
use crate::hardware::{Hardware, Hop, Link, Tier, UNLIMITED};
use crate::workload::{Hints, Mistake, Mistakes, Op, Order, Schedule, Shot, Workload};
use std::fmt;
use tierflow_plan::{AfterRestore, Version};

/// Returns the first `count` wide cells of a seed.
///
/// | drawn | from |
/// |---|---|
/// | mean bytes of a version | 1 MiB to 1 GiB, each octave as likely as any other, as with all that follows |
/// | versions that fit on the device | 1 to 100; on the host, 1 to 32 times as many |
/// | link to the host, disk | 4–64 GB/s, 0.2–16 GB/s; the other direction up to twice as fast or slow; either shared by both directions or not |
/// | latency | 3–30 µs, 20–500 µs |
/// | time of computing | from a half of a version's time to the host to twice its time to the disk |
/// | sizes | equal, growing, shrinking, random, of two sizes, or over three orders of magnitude |
/// | program | shots, of which all or a part is read, a quarter of them after a wait for the disk; versions that are read again and again, some more often than others; binomial checkpointing |
/// | hints | half of the cells all, a quarter none, the others one ahead, late, in parts or wrong |
/// | storage | takes each version at once where the program waits for the disk, as with `Flush::Eager` of the engine |
#[must_use]
pub fn wide_cells(seed: u64, count: usize) -> Vec<Cell> {
    let each = (0..count as u64).map(|at| WideParameters::drawn(CellRandom::of(!seed, at)));
    each.map(|parameters| parameters.cell()).collect()
}

/// A link in MB/s each way.
#[derive(Debug, Clone, Copy)]
struct Rates {
    down: u64,
    up: u64,
    /// True if both directions share the larger rate.
    is_shared: bool,
}

impl Rates {
    fn drawn(random: &mut CellRandom, least: u64, most: u64) -> Self {
        let rate = random.logarithmic(least, most);
        let other = rate * random.logarithmic(500, 2_000) / 1_000;
        let [down, up] = [[rate, other], [rate, rate]][random.below(2)];
        Self {
            down,
            up,
            is_shared: random.below(2) == 1,
        }
    }

    fn link(self) -> Link {
        let (down, up) = (self.down * 1_000_000, self.up * 1_000_000);
        let separate = Link {
            down,
            up,
            ..Link::own(down)
        };
        match self.is_shared {
            true => separate.together(down.max(up)),
            false => separate,
        }
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = if self.is_shared { "+shared" } else { "" };
        write!(f, "{}/{}MB/s{shared}", self.down, self.up)
    }
}

/// The use that an application makes of its versions.
#[derive(Debug, Clone, Copy)]
enum Program {
    /// Shots one after the other. `percent` of the versions of each are read, the others are dropped at its end.
    Shots {
        count: u64,
        order: Order,
        percent: usize,
        keep: bool,
        passes: usize,
        wait: bool,
    },
    /// Between two writes, `reads` versions are read again; `recent` percent of these are among the newest tenth.
    /// The oldest version is dropped when more than a half of all are held.
    Again { reads: usize, recent: usize },
    /// Binomial checkpointing with `slots` slots.
    Revolve { slots: usize },
}

struct WideParameters {
    /// Mean bytes of a version, in KiB.
    mean_kib: u64,
    device_kib: u64,
    host_kib: u64,
    host: Rates,
    disk: Rates,
    host_latency_ns: u64,
    disk_latency_ns: u64,
    interval_ns: u64,
    versions: usize,
    shape: Shape,
    program: Program,
    hints: Hints,
    seed: u64,
}

impl WideParameters {
    /// Draws all parameters: most independently of the others, sizes of tiers and times in proportion to earlier draws.
    fn drawn(mut random: CellRandom) -> Self {
        let mean_kib = random.logarithmic(1 << 10, 1 << 20);
        let device_kib = mean_kib * random.logarithmic(1_000, 100_000) / 1_000;
        let host_kib = device_kib * random.logarithmic(1_000, 32_000) / 1_000;
        let host = Rates::drawn(&mut random, 4_000, 64_000);
        let disk = Rates::drawn(&mut random, 200, 16_000);
        let (host_latency_ns, disk_latency_ns) = (
            random.logarithmic(3_000, 30_000),
            random.logarithmic(20_000, 500_000),
        );
        let over = |rate: u64| (mean_kib << 10) * 1_000 / rate;
        let interval_ns = random.logarithmic(
            (over(host.down) / 2).min(over(disk.down)),
            2 * over(disk.down).max(over(host.down)),
        );
        let versions = 30 + random.below(171);
        let seed = random.below(1 << 20) as u64;
        let shape = Shape::WIDE[random.below(Shape::WIDE.len())];
        let program = program(&mut random, versions, seed);
        let hints = hints(&mut random, seed);
        Self {
            mean_kib,
            device_kib,
            host_kib,
            host,
            disk,
            host_latency_ns,
            disk_latency_ns,
            interval_ns,
            versions,
            shape,
            program,
            hints,
            seed,
        }
    }

    fn hardware(&self) -> Hardware {
        let storage = Tier {
            eager: matches!(self.program, Program::Shots { wait: true, .. }),
            ..Tier::new("file", UNLIMITED).depth(4)
        };
        Hardware::new()
            .tier(
                Tier::new("device", self.device_kib << 10),
                Hop::over(Link::own(1_458_000_000_000), 10_000),
            )
            .tier(
                Tier::new("host", self.host_kib << 10),
                Hop::over(self.host.link(), self.host_latency_ns),
            )
            .tier(storage, Hop::over(self.disk.link(), self.disk_latency_ns))
    }

    fn sizes(&self, seed: u64) -> Vec<u64> {
        let total = (self.mean_kib << 10) * self.versions as u64;
        self.shape.sizes(self.versions, total, seed, &[])
    }

    fn workload(&self) -> Workload {
        match self.program {
            Program::Shots { count, .. } => {
                let shots = (1..count).map(|number| self.shot(number));
                shots.fold(self.shot(0), |earlier, shot| earlier.then(&shot))
            }
            Program::Again { reads, recent } => self.again(reads, recent),
            Program::Revolve { slots } => Schedule::revolve(self.versions, slots).workload(
                self.mean_kib << 10,
                self.interval_ns,
                self.hints,
            ),
        }
    }

    fn shot(&self, number: u64) -> Workload {
        let Program::Shots {
            order,
            percent,
            keep,
            passes,
            wait,
            ..
        } = self.program
        else {
            return Workload {
                ops: Vec::new(),
                after_restore: AfterRestore::Keep,
            };
        };
        let seed = self.seed + (number << 20);
        let mut shot = Shot {
            order,
            hints: self.hints,
            wait,
            passes,
            after_restore: if keep {
                AfterRestore::Keep
            } else {
                AfterRestore::Discard
            },
            ..Shot::new(self.sizes(seed), self.interval_ns)
        };
        let mut random = CellRandom::of(seed, 1);
        shot.unread = (0..self.versions as u64)
            .filter(|_| random.below(100) >= percent)
            .collect();
        if shot.unread.len() == self.versions {
            shot.unread.clear();
        }
        shot.workload()
    }

    fn again(&self, reads: usize, recent: usize) -> Workload {
        let mut random = CellRandom::of(self.seed, 2);
        let sizes = self.sizes(self.seed);
        let mut ops = Vec::new();
        let mut first = 0;
        for (version, &bytes) in sizes.iter().enumerate() {
            ops.push(Op::Compute(self.interval_ns));
            ops.push(Op::Checkpoint {
                version: version as Version,
                bytes,
            });
            if version + 1 - first > sizes.len() / 2 {
                ops.push(Op::Drop(first as Version));
                first += 1;
            }
            let held = version + 1 - first;
            for _ in 0..reads {
                let among = match random.below(100) < recent {
                    true => held.div_ceil(10),
                    false => held,
                };
                ops.push(Op::Restore((version - random.below(among)) as Version));
                ops.push(Op::Compute(self.interval_ns));
            }
        }
        Workload {
            ops,
            after_restore: AfterRestore::Keep,
        }
        .hinted(self.hints)
    }

    fn cell(&self) -> Cell {
        Cell {
            name: self.to_string(),
            hints: self.hints,
            hardware: self.hardware(),
            workload: self.workload(),
        }
    }
}

impl fmt::Display for WideParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            mean_kib,
            device_kib,
            host_kib,
            host,
            disk,
            host_latency_ns,
            disk_latency_ns,
            interval_ns,
            versions,
            shape,
            program,
            hints,
            seed,
        } = self;
        write!(
            f,
            "wide mean={mean_kib}KiB device={device_kib}KiB host={host_kib}KiB links={host} {disk} \
             latencies={host_latency_ns}/{disk_latency_ns}ns interval={interval_ns}ns versions={versions} \
             sizes={shape} seed={seed} "
        )?;
        match program {
            Program::Shots {
                count,
                order,
                percent,
                keep,
                passes,
                wait,
            } => write!(
                f,
                "shots={count} read={percent}% keep={keep} passes={passes} wait={wait} order={}",
                order_name(*order)
            ),
            Program::Again { reads, recent } => write!(f, "again={reads} recent={recent}%"),
            Program::Revolve { slots } => write!(f, "revolve={slots}"),
        }?;
        write!(f, " hints={hints}")
    }
}

/// Draws the program: of 8 draws, four are shots, two each of the others.
fn program(random: &mut CellRandom, versions: usize, seed: u64) -> Program {
    let count = [1, 1, 2, 3][random.below(4)];
    let order = any_order(random, seed);
    let percent = [100, 100, 60, 20][random.below(4)];
    let (keep, passes) = [(false, 1), (false, 1), (true, 1), (true, 2)][random.below(4)];
    let wait = random.below(4) == 0;
    let (reads, recent) = (1 + random.below(4), [0, 50, 90][random.below(3)]);
    let slots = random.logarithmic(2, versions as u64) as usize;
    match random.below(8) {
        0..4 => Program::Shots {
            count,
            order,
            percent,
            keep,
            passes,
            wait,
        },
        4..6 => Program::Again { reads, recent },
        _ => Program::Revolve { slots },
    }
}

/// Draws the hints: of 16 draws, eight are `All`, four `None`, one each of the others.
fn hints(random: &mut CellRandom, seed: u64) -> Hints {
    match random.below(16) {
        0..8 => Hints::All,
        8..12 => Hints::None,
        12 => Hints::Single,
        13 => Hints::Late([0, 10, 25, 50][random.below(4)]),
        14 => Hints::Parts([2, 4, 8, 16][random.below(4)]),
        _ => Hints::Wrong(Mistakes {
            percent: [2, 5, 10, 25][random.below(4)],
            kind: [Mistake::Misplaced, Mistake::Unwritten][random.below(2)],
            seed,
        }),
    }
}
