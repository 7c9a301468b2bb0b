//! The matrix of HPDC'23 (Figures 5 and 6), at a quarter of its size.

use std::time::{Duration, Instant};

use anyhow::Result;
use tierflow_sim::{Order, Shot};

use super::super::{HINTS, ORDERS};
use super::{Machine, Way};
use crate::experiments::Run;

/// Begin no more runs after this time.
const PATIENCE: Duration = Duration::from_secs(110);

/// One combination of sizes, order, hints and waiting.
struct Cell {
    name: String,
    shot: Shot,
    /// Where policies differ most: sizes that vary, in an irregular order.
    is_hard: bool,
}

pub(super) fn run(run: &mut Run) -> Result<()> {
    let machine = Machine::measure(run, 1)?;
    let begun = Instant::now();
    let cells = cells(&machine)?;
    let main = [Way::Cost, Way::Score];
    let others = [Way::Fifo, Way::Lru, Way::OnDemand];
    // What tells most comes first: time may not suffice for all.
    let wanted = [
        (&main[..], false, true),
        (&others[..], true, true),
        (&main[..], false, false),
        (&others[..], false, true),
    ];
    let mut left = 0;
    let mut done = std::collections::HashSet::new();
    for (ways, only_hard, no_wait) in wanted {
        for cell in cells
            .iter()
            .filter(|cell| cell.shot.wait != no_wait && (cell.is_hard || !only_hard))
        {
            for &way in ways {
                let case = format!("{}, policy={}", cell.name, way.name());
                if done.contains(&case) {
                    continue;
                }
                if begun.elapsed() > PATIENCE {
                    left += 1;
                    continue;
                }
                machine.compare(run, &case, way, &cell.shot.workload())?;
                done.insert(case);
            }
        }
    }
    run.value(
        "all cells",
        "runs left out for lack of time",
        "runs",
        f64::from(left),
    )?;
    Ok(())
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
