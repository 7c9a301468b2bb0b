//! Random machines from a printed seed. `TIERFLOW_SCHEDULE_SEED` repeats a draw. `TIERFLOW_SCHEDULE_LONG=400` draws 400 machines with a
//! seed from the clock.

#![allow(dead_code, reason = "each test uses a part")]

use std::fmt;
use std::time::{Duration, SystemTime};
use tierflow_schedule::{Machine, Tier};
use tierflow_testing::{Draws, variable};

/// Returns the number of draws of the long form, or `None` in the short form.
pub(crate) fn long() -> Option<usize> {
    std::env::var("TIERFLOW_SCHEDULE_LONG")
        .ok()
        .and_then(|count| count.parse().ok())
}

/// Random draws from a seed that is printed.
pub(crate) struct Dice(Draws);

impl Dice {
    /// Begins with a seed from the clock in the long form, and with a fixed seed in the short form.
    pub(crate) fn fresh() -> Self {
        let clock = || {
            SystemTime::UNIX_EPOCH
                .elapsed()
                .map_or(1, |now| now.as_nanos() as u64)
        };
        let seed = long().map_or(20_261_124, |_| clock());
        let seed = variable("TIERFLOW_SCHEDULE_SEED", seed);
        println!("TIERFLOW_SCHEDULE_SEED={seed}");
        Self(Draws(seed))
    }

    /// Draws a number from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        self.0.share()
    }

    /// Draws a number from `low` to `high` whose logarithm is uniform.
    pub(crate) fn log(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.share())
    }
}

/// A machine and the steps that it is to reverse.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    pub(crate) machine: Machine,
    pub(crate) steps: usize,
}

impl Draw {
    /// Draws 60 to 300 steps, at least `least` slots and at most a third of the steps. 15% of the machines have no host tier and 15% no
    /// disk. Host and disk hold at least as many states as the tier above, and half of the disks any number. A state takes 0.2 to 20
    /// forward steps to the host, 1 to 100 to the disk, and half to twice as long on its way up.
    pub(crate) fn new(dice: &mut Dice, least: f64) -> Self {
        let state = 1_000_000u64;
        let forward = 1e-3;
        let steps = dice.log(60.0, 300.0);
        let slots = dice.log(least, (steps / 3.0).max(least)).floor();
        let host = if dice.share() < 0.15 {
            0.0
        } else {
            dice.log(slots, steps).floor()
        };
        let disk = match dice.share() {
            share if share < 0.15 => 0.0,
            share if share < 0.575 => 1e9,
            _ => dice.log(host.max(slots), steps).floor(),
        };
        let mut tier = |low, high, room: f64| {
            let down = dice.log(low, high) * forward;
            let up = down * dice.log(0.5, 2.0);
            Tier {
                room: room as u64 * state,
                down: state as f64 / down,
                up: state as f64 / up,
            }
        };
        let tiers = vec![tier(0.2, 20.0, host), tier(1.0, 100.0, disk)];
        let machine = Machine {
            forward: Duration::from_secs_f64(forward),
            backward: Duration::from_secs_f64(forward * (1.0 + 2.0 * dice.share())),
            state,
            device: slots as u64 * state,
            tiers,
            copy: f64::INFINITY,
            codec: None,
        };
        Self {
            machine,
            steps: steps as usize,
        }
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        let forward = machine.forward.as_secs_f64();
        let steps = |rate: f64| machine.state as f64 / rate / forward;
        write!(
            f,
            "{} steps, backward {:.2}, {} slots",
            self.steps,
            machine.backward.as_secs_f64() / forward,
            machine.device / machine.state
        )?;
        for tier in &machine.tiers {
            let room = tier.room / machine.state;
            write!(
                f,
                "; {room} states, down {:.1} up {:.1}",
                steps(tier.down),
                steps(tier.up)
            )?;
        }
        Ok(())
    }
}

pub(crate) struct Summary {
    pub(crate) mean: f64,
    pub(crate) nine_tenths: f64,
    pub(crate) worst: f64,
}

impl Summary {
    pub(crate) fn of(mut ratios: Vec<f64>) -> Self {
        ratios.sort_by(f64::total_cmp);
        Self {
            mean: ratios.iter().sum::<f64>() / ratios.len() as f64,
            nine_tenths: ratios[ratios.len() * 9 / 10],
            worst: ratios[ratios.len() - 1],
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mean {:.4}, 90% {:.4}, worst {:.4}",
            self.mean, self.nine_tenths, self.worst
        )
    }
}
