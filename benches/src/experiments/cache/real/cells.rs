//! The matrix of HPDC'23 (Figures 5 and 6), at a quarter of its size.

use std::time::Duration;

use anyhow::Result;
use tierflow_sim::{Hints, Order, Shot};

use super::super::{HINTS, ORDERS};
use super::sitting::Sitting;
use super::{Machine, Way};
use crate::experiments::Run;

const PATIENCE: Duration = Duration::from_secs(140);

/// A combination of sizes, order, hints and waiting.
struct Cell {
    name: String,
    shot: Shot,
    /// The cell in which policies differ most: sizes that vary, in an irregular order.
    is_hard: bool,
}

pub(super) fn run(run: &mut Run) -> Result<()> {
    let mut sitting = Sitting::new(run, PATIENCE);
    let machine = Machine::measure(sitting.run, 1)?;
    let cells = cells(&machine)?;
    let main = [Way::Residency];
    let in_memory = [Way::InMemory, Way::Uvm];
    let others = [Way::Score, Way::Lru, Way::Fifo, Way::OnDemand];
    // The cells that tell most come first: time may not suffice for all.
    for wait in [false, true] {
        let these = || cells.iter().filter(|cell| cell.shot.wait == wait);
        for ways in [&main[..], &in_memory, &others] {
            sitting.compare_all(&machine, these().filter(|cell| cell.is_hard), ways)?;
        }
        for hints in [Hints::All, Hints::None, Hints::Single] {
            let easy = these().filter(|cell| cell.shot.hints == hints && !cell.is_hard);
            for cell in easy {
                sitting.compare_all(&machine, [cell], &main)?;
                sitting.compare_all(&machine, [cell], &in_memory)?;
            }
        }
    }
    for cell in cells.iter().filter(|cell| !cell.is_hard) {
        sitting.compare_all(&machine, [cell], &others)?;
    }
    sitting.end()
}

impl Sitting<'_> {
    fn compare_all<'a>(
        &mut self,
        machine: &Machine,
        cells: impl IntoIterator<Item = &'a Cell>,
        ways: &[Way],
    ) -> Result<()> {
        for cell in cells {
            for &way in ways {
                let case = format!("{}, policy={}", cell.name, way.name());
                self.compare(machine, &case, way, &cell.shot.workload())?;
            }
        }
        Ok(())
    }
}

fn cells(machine: &Machine) -> Result<Vec<Cell>> {
    let uniform = machine.scale.uniform();
    let variable = machine.scale.variable(1)?.swap_remove(0);
    let mut cells = Vec::new();
    for wait in [false, true] {
        for (kind, sizes) in [("variable", &variable), ("uniform", &uniform)] {
            for (order_name, order) in ORDERS.into_iter().rev() {
                for (hints_name, hints) in HINTS {
                    let shot = Shot {
                        order,
                        hints,
                        wait,
                        ..machine.scale.shot(sizes.clone())
                    };
                    cells.push(Cell {
                        name: format!(
                            "sizes={kind}, wait={wait}, order={order_name}, hints={hints_name}"
                        ),
                        shot,
                        is_hard: kind == "variable" && matches!(order, Order::Irregular(_)),
                    });
                }
            }
        }
    }
    Ok(cells)
}
