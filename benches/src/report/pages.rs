//! The report for readers: pages by the template `pages.html`, and a table for the terminal.

use anyhow::Result;
use minijinja::{Environment, Value, context};

use super::Row;
use super::chart::chart;
use super::figures::{Figure, read};
use super::query::{Metric, Point, metrics};
use super::units::{digits, human};

/// Returns `report.html`: for each metric a chart where its cases are numbers, and a table.
///
/// # Errors
/// When a chart cannot be drawn.
pub(crate) fn all_rows(rows: &[Row], facts: &[String]) -> Result<String> {
    let drawn = metrics(rows)
        .iter()
        .map(drawn)
        .collect::<Result<Vec<_>>>()?;
    page(context! { title => "Tierflow: all rows", facts, drawn })
}

/// Returns `index.html`: every figure of every paper with its state, the paper's numbers and ours, and our rows.
///
/// # Errors
/// When a chart cannot be drawn.
pub(crate) fn index(rows: &[Row], facts: &[String]) -> Result<String> {
    let mut states = Vec::new();
    let mut papers = Vec::new();
    for paper in read()?.papers {
        let figures = paper.figures.iter().map(|figure| {
            let state = figure.state(rows);
            states.push(state.clone());
            let drawn = figure
                .drawn(rows)
                .iter()
                .map(drawn)
                .collect::<Result<Vec<_>>>()?;
            let compared: Vec<_> = figure
                .comparisons
                .iter()
                .map(|one| one.texts(rows))
                .collect();
            let anchor = anchor(&format!("{} {}", paper.name, figure.number));
            let state = state + not_compared(figure, rows);
            Ok(context! { anchor, state, drawn, compared, ..Value::from_serialize(figure) })
        });
        let figures = figures.collect::<Result<Vec<_>>>()?;
        papers.push(context! { figures, ..Value::from_serialize(&paper) });
    }
    let count = |state: &str| states.iter().filter(|own| *own == state).count();
    let (measured, simulated, unmeasured) =
        (count("measured"), count("simulated"), count("not measured"));
    let without_rows = states.len() - measured - simulated - unmeasured;
    let title = "Tierflow: the papers' figures";
    page(
        context! { title, facts, papers, figures => states.len(), measured, simulated, unmeasured, without_rows },
    )
}

/// Returns an addition to a figure's state: that none of its numbers has one of ours beside it, where we have rows.
fn not_compared(figure: &Figure, rows: &[Row]) -> &'static str {
    let has_rows = !figure.drawn(rows).is_empty() && !figure.comparisons.is_empty();
    let is_compared = figure
        .comparisons
        .iter()
        .any(|one| one.value(rows).is_some());
    if has_rows && !is_compared {
        ", not compared"
    } else {
        ""
    }
}

fn anchor(name: &str) -> String {
    let words = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// Returns a metric as the template takes it. `part` is how much of a value's cell a bar fills, in percent.
fn drawn(metric: &Metric<'_>) -> Result<Value> {
    let most = metric
        .points
        .iter()
        .map(|point| point.row.value)
        .fold(0.0, f64::max);
    let lines = metric.points.iter().map(|point| {
        let part = if most > 0.0 {
            point.row.value.max(0.0) / most * 100.0
        } else {
            0.0
        };
        context! { cells => cells(metric, point), part => format!("{part:.1}") }
    });
    let (experiment, name, chart) = (metric.experiment, metric.name, chart(metric)?);
    Ok(context! { experiment, name, chart, lines => lines.collect::<Vec<_>>() })
}

fn page(context: Value) -> Result<String> {
    let mut templates = Environment::new();
    templates.add_template("pages.html", include_str!("pages.html"))?;
    Ok(templates.get_template("pages.html")?.render(context)?)
}

/// The names of the columns of [`cells`].
const HEADER: [&str; 6] = ["case", "metric", "value", "min … max", "reference", "ratio"];

fn cells(metric: &Metric<'_>, point: &Point<'_>) -> [String; 6] {
    let shown = |value: f64| human(value, metric.unit);
    let extremes = |(min, max)| format!("{} … {}", shown(min), shown(max));
    let ratio = point
        .reference
        .map(|reference| digits(point.row.value / reference));
    [
        point.row.case.clone(),
        metric.name.to_owned(),
        shown(point.row.value),
        point.extremes.map(extremes).unwrap_or_default(),
        point.reference.map(shown).unwrap_or_default(),
        ratio.unwrap_or_default(),
    ]
}

/// Returns all rows for the terminal, aligned, one block for each experiment.
pub fn table(rows: &[Row]) -> String {
    let mut blocks: Vec<(&str, Vec<[String; 6]>)> = Vec::new();
    for metric in &metrics(rows) {
        if blocks
            .last()
            .is_none_or(|(experiment, _)| *experiment != metric.experiment)
        {
            blocks.push((metric.experiment, vec![HEADER.map(str::to_owned)]));
        }
        if let Some((_, lines)) = blocks.last_mut() {
            lines.extend(metric.points.iter().map(|point| cells(metric, point)));
        }
    }
    let mut text = String::new();
    for (experiment, lines) in blocks {
        text += &format!("\n{experiment}\n");
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or(0));
        for line in &lines {
            let cells = line
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0 | 1 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
            text += format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end();
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;

    #[test]
    fn columns_are_aligned() {
        let mut run = Run::new("copy", false);
        run.samples("threads=1", "bandwidth", "bytes/s", &[1e9, 2e9, 3e9])
            .unwrap()
            .against(4e9);
        run.value("threads=16", "time", "ns", 1500.0).unwrap();
        let expected = "
copy
  case        metric         value            min … max  reference   ratio
  threads=1   bandwidth     2 GB/s      1 GB/s … 3 GB/s     4 GB/s   0.500
  threads=16  time         1.50 µs
";
        let squeezed = |text: &str| -> Vec<String> {
            text.lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect()
        };
        let text = table(&run.into_rows());
        assert_eq!(squeezed(&text), squeezed(expected));
        let column = |line: &str, word: &str| line.find(word).map(|at| line[..at].chars().count());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(column(lines[2], "metric"), column(lines[3], "bandwidth"));
        assert_eq!(column(lines[3], "bandwidth"), column(lines[4], "time"));
    }
}
