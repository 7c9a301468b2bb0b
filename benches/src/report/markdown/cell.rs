//! Cells of a table: values with their extremes and ratios, and cases.

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::report::Row;
use crate::report::group::{Point, pairs};
use crate::report::units::{digits, human};

/// What a cell shows of the reference that its row has.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ratio {
    /// Nothing of it: the value alone.
    #[default]
    Without,
    /// The value, and behind it its ratio to the reference, if it has one.
    Beside,
    /// The ratio in place of the value.
    Alone,
}

impl Ratio {
    /// The value of a point in `unit`, or its ratio.
    ///
    /// # Errors
    /// When the ratio is to stand alone and the row has no reference.
    pub(super) fn cell(self, point: &Point<'_>, unit: &str) -> Result<String> {
        let row = point.row;
        let value = spread(row.value, point.extremes, unit);
        Ok(match (self, row.reference.zip(row.ratio)) {
            (Self::Alone, Some((reference, ratio))) => {
                let over = |(min, max)| (min / reference, max / reference);
                spread(ratio, point.extremes.map(over), "×")
            }
            (Self::Alone, None) => bail!("{} of {} has no reference", row.metric, row.case),
            (Self::Beside, Some((_, ratio))) => format!("{value}, {} ×", digits(ratio)),
            (Self::Without, _) | (Self::Beside, None) => value,
        })
    }
}

/// `12.5 µs (11.9–14.0)`: a median and its extremes, each with its unit where they differ in that.
fn spread(value: f64, extremes: Option<(f64, f64)>, unit: &str) -> String {
    let shown = human(value, unit);
    let Some((min, max)) = extremes.map(|(min, max)| (human(min, unit), human(max, unit))) else {
        return shown;
    };
    if min == shown && max == shown {
        return shown;
    }
    match [&min, &shown, &max].map(|text| text.rsplit_once(' ')) {
        [Some((low, one)), Some((_, own)), Some((high, other))] if one == own && own == other => {
            format!("{shown} ({low}–{high})")
        }
        _ => format!("{shown} ({min}–{max})"),
    }
}

/// `0.5–0.6 µs`: from the least to the largest of some values, which need not be in order.
pub(super) fn range(values: &[f64], unit: &str) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (least, largest) = (human(least, unit), human(largest, unit));
    if least == largest {
        return least;
    }
    match (least.rsplit_once(' '), largest.rsplit_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number}–{largest}"),
        _ => format!("{least}–{largest}"),
    }
}

/// The pairs that all of these rows' cases have, in the order of the first.
pub(super) fn common<'a>(rows: &[&'a Row]) -> Vec<&'a str> {
    let is_common = |pair: &&str| {
        let mut cases = rows.iter().map(|row| pairs(&row.case));
        cases.all(|mut case| case.any(|own| own == *pair))
    };
    let first = rows.first().map(|row| pairs(&row.case));
    first.into_iter().flatten().filter(is_common).collect()
}

/// The columns that tell lines apart, and their cells in each line: a column for each key where all lines have the same keys, else one
/// with the pairs of each.
pub(super) fn leading(lines: &[Vec<&str>]) -> (Vec<String>, Vec<Vec<String>>) {
    let keys = |line: &Vec<&str>| {
        let keys = line
            .iter()
            .map(|pair| pair.split_once('=').map(|(key, _)| key.to_owned()));
        keys.collect::<Option<Vec<_>>>()
    };
    let first = lines.first().and_then(keys);
    let same = first.filter(|first| lines.iter().all(|line| keys(line).as_ref() == Some(first)));
    let Some(keys) = same else {
        let joined = |line: &Vec<&str>| {
            vec![
                line.iter()
                    .map(|own| pair(own))
                    .collect::<Vec<_>>()
                    .join(", "),
            ]
        };
        return (vec!["case".to_owned()], lines.iter().map(joined).collect());
    };
    let values = |line: &Vec<&str>| {
        let values = line.iter().filter_map(|pair| pair.split_once('='));
        values.map(|(_, own)| value(own)).collect()
    };
    (keys, lines.iter().map(values).collect())
}

/// A pair as a table shows it.
pub(super) fn pair(pair: &str) -> String {
    match pair.split_once('=') {
        Some((key, own)) => format!("{key}={}", value(own)),
        None => pair.to_owned(),
    }
}

/// A whole number of MiB is one of bytes, and is written so.
fn value(text: &str) -> String {
    match text.parse::<u64>() {
        Ok(bytes) if bytes > 0 && bytes.is_multiple_of(1 << 20) => human(bytes as f64, "bytes"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_stands_once_where_all_have_it() {
        assert_eq!(spread(2e3, Some((1e3, 4e3)), "ns"), "2 µs (1–4)");
        assert_eq!(spread(2e3, Some((500.0, 4e3)), "ns"), "2 µs (500 ns–4 µs)");
        assert_eq!(spread(2.0, Some((2.0, 2.0)), "1"), "2");
        assert_eq!(spread(1.5, Some((1.0, 2.0)), "1"), "1.50 (1–2)");
        assert_eq!(range(&[3e9, 2e9], "bytes/s"), "2–3 GB/s");
        assert_eq!(range(&[2e12, 9e11], "bytes/s"), "900 GB/s–2 TB/s");
        assert_eq!(range(&[7.0], "1"), "7");
    }

    #[test]
    fn lines_with_the_same_keys_have_a_column_for_each() {
        let (header, cells) = leading(&[
            vec!["way=save", "bytes=33554432"],
            vec!["way=restore", "bytes=4096"],
        ]);
        assert_eq!(header, ["way", "bytes"]);
        assert_eq!(cells, [["save", "32 MiB"], ["restore", "4096"]]);
        let (header, cells) = leading(&[vec!["way=save"], vec!["all at once"]]);
        assert_eq!(header, ["case"]);
        assert_eq!(cells, [["way=save"], ["all at once"]]);
    }
}
