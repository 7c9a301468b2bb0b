//! Cells of a table: values with their extremes and ratios, and cases.

use anyhow::{Result, bail};

use crate::report::query::{Point, Ratio};
use crate::report::units::{digits, human};

impl Ratio {
    /// Returns the value of a point, its ratio, or both.
    ///
    /// # Errors
    /// When the ratio is to stand alone and the row has no reference.
    pub(super) fn cell(self, point: &Point<'_>) -> Result<String> {
        let row = point.row;
        let value = spread(row.value, point.extremes, &row.unit);
        Ok(match (self, row.reference.zip(row.ratio)) {
            (Self::Alone, Some((reference, ratio))) => {
                let over = |(min, max)| (min / reference, max / reference);
                spread(ratio, point.extremes.map(over), "×")
            }
            (Self::Alone, None) => bail!("{} of {} has no reference", row.metric, row.case),
            (Self::Beside, Some((_, ratio))) => format!("{value}, {} ×", digits(ratio)),
            _ => value,
        })
    }
}

/// `12.5 µs (11.9–14.0)`: a median and its extremes, each with its unit where they differ in that.
fn spread(value: f64, extremes: Option<(f64, f64)>, unit: &str) -> String {
    let shown = human(value, unit);
    let Some((min, max)) = extremes.map(|(min, max)| (human(min, unit), human(max, unit))) else {
        return shown;
    };
    match [&min, &shown, &max].map(|text| text.rsplit_once(' ')) {
        _ if min == shown && max == shown => shown,
        [Some((low, one)), Some((_, own)), Some((high, other))] if one == own && own == other => {
            format!("{shown} ({low}–{high})")
        }
        _ => format!("{shown} ({min}–{max})"),
    }
}

/// `0.5–0.6 µs`: from the least to the largest of some values, which need not be in order.
pub(super) fn range(values: impl IntoIterator<Item = f64>, unit: &str) -> String {
    let ends = values
        .into_iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    let (least, largest) = (human(ends.0, unit), human(ends.1, unit));
    match (least.rsplit_once(' '), largest.rsplit_once(' ')) {
        _ if least == largest => least,
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number}–{largest}"),
        _ => format!("{least}–{largest}"),
    }
}

/// Returns the columns that tell lines apart, and their cells in each line: a column for each key where
/// all lines have the same keys, else one with the pairs of each.
pub(super) fn leading(lines: &[Vec<String>]) -> (Vec<String>, Vec<Vec<String>>) {
    let keys = |line: &[String]| -> Option<Vec<String>> {
        line.iter()
            .map(|pair| key(pair).map(str::to_owned))
            .collect()
    };
    let first = lines.first().and_then(|line| keys(line));
    let same = first.filter(|first| lines.iter().all(|line| keys(line).as_ref() == Some(first)));
    let shown = lines.iter().map(|line| line.iter().map(|own| pair(own)));
    if let Some(keys) = same {
        let value = |pair: String| pair.split_once('=').map(|(_, value)| value.to_owned());
        return (
            keys,
            shown.map(|line| line.filter_map(value).collect()).collect(),
        );
    }
    let joined = shown.map(|line| vec![line.collect::<Vec<_>>().join(", ")]);
    (vec!["case".to_owned()], joined.collect())
}

pub(super) fn key(pair: &str) -> Option<&str> {
    Some(pair.split_once('=')?.0)
}

/// Returns a pair as a table shows it: a whole number of MiB is one of bytes.
pub(super) fn pair(pair: &str) -> String {
    let number = pair
        .split_once('=')
        .and_then(|(key, value)| Some((key, value.parse::<u64>().ok()?)));
    match number {
        Some((key, bytes)) if bytes > 0 && bytes.is_multiple_of(1 << 20) => {
            format!("{key}={}", human(bytes as f64, "bytes"))
        }
        _ => pair.to_owned(),
    }
}

/// Returns a table in Markdown.
pub(crate) fn table(header: &[&str], lines: impl IntoIterator<Item = Vec<String>>) -> String {
    let rule = format!("|{}\n", "---|".repeat(header.len()));
    let mut table = format!("| {} |\n{rule}", header.join(" | "));
    lines
        .into_iter()
        .for_each(|line| table += &format!("| {} |\n", line.join(" | ")));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::query::pairs;

    #[test]
    fn a_unit_stands_once_where_all_have_it() {
        assert_eq!(spread(2e3, Some((1e3, 4e3)), "ns"), "2 µs (1–4)");
        assert_eq!(spread(2e3, Some((500.0, 4e3)), "ns"), "2 µs (500 ns–4 µs)");
        assert_eq!(spread(2.0, Some((2.0, 2.0)), "1"), "2");
        assert_eq!(spread(1.5, Some((1.0, 2.0)), "1"), "1.50 (1–2)");
        assert_eq!(range([3e9, 2e9], "bytes/s"), "2–3 GB/s");
        assert_eq!(range([2e12, 9e11], "bytes/s"), "900 GB/s–2 TB/s");
        assert_eq!(range([7.0], "1"), "7");
    }

    #[test]
    fn lines_with_the_same_keys_have_a_column_for_each() {
        let lines = |cases: &[&str]| -> Vec<Vec<String>> {
            let cases = cases
                .iter()
                .map(|case| pairs(case).map(str::to_owned).collect());
            cases.collect()
        };
        let (header, cells) = leading(&lines(&[
            "way=save, bytes=33554432",
            "way=restore, bytes=4096",
        ]));
        assert_eq!(header, ["way", "bytes"]);
        assert_eq!(cells, [["save", "32 MiB"], ["restore", "4096"]]);
        let (header, cells) = leading(&lines(&["way=save", "all at once"]));
        assert_eq!(header, ["case"]);
        assert_eq!(cells, [["way=save"], ["all at once"]]);
    }
}
