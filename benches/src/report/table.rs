//! The table for the terminal.

use super::Row;
use super::group::{Metric, Point, sections};
use super::units::{digits, human};

pub(crate) const HEADER: [&str; 6] = ["case", "metric", "value", "min … max", "reference", "ratio"];

/// All rows, aligned, one block for each experiment.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for section in sections(rows) {
        let points = section
            .metrics
            .iter()
            .flat_map(|metric| metric.points.iter().map(move |point| cells(metric, point)));
        let lines: Vec<_> = std::iter::once(HEADER.map(str::to_owned))
            .chain(points)
            .collect();
        text += &format!("\n{}\n", section.experiment);
        text += &aligned(&lines);
    }
    text
}

/// A point as the texts under [`HEADER`].
pub(crate) fn cells(metric: &Metric<'_>, point: &Point<'_>) -> [String; 6] {
    let row = point.row;
    let extremes =
        |(min, max)| format!("{} … {}", human(min, metric.unit), human(max, metric.unit));
    [
        row.case.clone(),
        metric.name.to_owned(),
        human(row.value, metric.unit),
        point.extremes.map(extremes).unwrap_or_default(),
        row.reference
            .map(|reference| human(reference, metric.unit))
            .unwrap_or_default(),
        row.ratio.map(digits).unwrap_or_default(),
    ]
}

/// The first two columns to the left, figures to the right.
fn aligned(lines: &[[String; 6]]) -> String {
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let cells = line
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                if column < 2 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
        text += format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end();
        text.push('\n');
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
