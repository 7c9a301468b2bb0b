//! Tables of Markdown files that are made of the reports kept in docs/reports. A table stands between two comments, of which the
//! first names, as TOML, the reports and what of them is shown; docs/src/report.md describes it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::figures::{Selection, compared};
use super::group::{pairs, sections};
use super::units::human;
use super::{Row, read_rows};

/// The comment after a table.
const END: &str = "<!-- end of table -->";

/// The comment before a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Marker {
    table: KeptTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptTable {
    /// Files of docs/reports without their extension: a machine, and the date behind it.
    reports: Vec<String>,
    of: Shown,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum Shown {
    /// The numbers of the papers, and ours beside them.
    Papers,
    Rows(Columns),
}

/// Rows of an experiment. A line is a case, a column a metric.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Columns {
    experiment: String,
    metrics: Vec<String>,
    /// Pairs, or keys of pairs, that a case has to have.
    #[serde(default)]
    keep: Vec<String>,
    /// The key of the pair whose values have a column each.
    across: Option<String>,
}

/// The Markdown files of README.md, docs and docs/src that are not what the kept reports say: each with what it is to be.
///
/// # Errors
/// When a file cannot be read, a comment is not as this module reads it, or a table finds no row.
pub fn stale(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut paths = vec![root.join("README.md")];
    for folder in ["docs", "docs/src"] {
        let listed = std::fs::read_dir(root.join(folder)).context(folder)?;
        let listed = listed.map(|entry| Ok(entry?.path()));
        paths.extend(listed.collect::<Result<Vec<_>>>()?);
    }
    paths.retain(|path| path.extension().is_some_and(|own| own == "md"));
    let report = |name: &str| read_rows(&root.join("docs/reports").join(format!("{name}.json")));
    let mut stale = Vec::new();
    for path in paths {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(&path).with_context(name)?;
        let text = text.replace("\r\n", "\n");
        let now = with_tables(&text, &report).with_context(name)?;
        if now != text {
            stale.push((path, now));
        }
    }
    Ok(stale)
}

/// The text with its tables made anew.
fn with_tables(text: &str, report: &dyn Fn(&str) -> Result<Vec<Row>>) -> Result<String> {
    let mut made = String::new();
    let mut is_code = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        made += line;
        made.push('\n');
        is_code ^= line.starts_with("```");
        let comment = line.strip_prefix("<!-- ").filter(|_| !is_code);
        let comment = comment.and_then(|line| line.strip_suffix(" -->"));
        if let Some(toml) = comment.filter(|comment| comment.starts_with("table = ")) {
            let marker: Marker = toml::from_str(toml).with_context(|| line.to_owned())?;
            let shown = marker.table.text(report).with_context(|| line.to_owned())?;
            made += &format!("{shown}{END}\n");
            ensure!(lines.any(|line| line == END), "no {END} after {line}");
        }
    }
    Ok(made)
}

impl KeptTable {
    /// A line that says where the table is from, and the table.
    fn text(&self, report: &dyn Fn(&str) -> Result<Vec<Row>>) -> Result<String> {
        let rows = self.reports.iter().map(|name| report(name));
        let rows = rows.collect::<Result<Vec<_>>>()?.concat();
        let origins = self.reports.iter().map(|name| {
            let parts = name.len().checked_sub("-2026-11-23".len());
            let parts = parts.and_then(|at| name.split_at_checked(at));
            let (machine, date) = parts.context("a report is named by its machine and date")?;
            let date = date.trim_start_matches('-');
            Ok(format!("{machine}, {date} (`docs/reports/{name}.json`)"))
        });
        let origins = origins.collect::<Result<Vec<_>>>()?.join("; ");
        let (about, table) = match &self.of {
            Shown::Papers => (String::new(), compared(&rows)?),
            Shown::Rows(columns) => columns.table(&rows)?,
        };
        Ok(format!("From {origins}{about}:\n\n{table}\n"))
    }
}

impl Columns {
    /// What all cells are of, and the table.
    fn table(&self, rows: &[Row]) -> Result<(String, String)> {
        let mut chosen = Vec::new();
        for metric in &self.metrics {
            let selection = Selection {
                experiment: self.experiment.clone(),
                metric: metric.clone(),
                keep: self.keep.clone(),
                simulated: false,
            };
            let before = chosen.len();
            chosen.extend(selection.of(rows).cloned());
            ensure!(chosen.len() > before, "no row has the metric {metric:?}");
        }
        let is_across = |pair: &&str| {
            let key = pair.split_once('=').map(|(key, _)| key);
            key.is_some() && key == self.across.as_deref()
        };
        let is_common = |pair: &&str| {
            let mut cases = chosen.iter().map(|row| pairs(&row.case));
            cases.all(|mut case| case.any(|own| own == *pair))
        };
        let (mut lines, mut columns): (Vec<String>, Vec<String>) = Default::default();
        let mut cells = Vec::new();
        for metric in sections(&chosen)
            .iter()
            .flat_map(|section| &section.metrics)
        {
            for point in &metric.points {
                let case = || pairs(&point.row.case);
                let own = case().filter(|pair| !is_common(pair) && !is_across(pair));
                let line = at(&mut lines, own.collect::<Vec<_>>().join(", "));
                let name = (self.metrics.len() > 1 || self.across.is_none()).then_some(metric.name);
                let name = name.into_iter().chain(case().filter(is_across));
                let column = at(&mut columns, name.collect::<Vec<_>>().join(", "));
                let shown = |value| human(value, metric.unit);
                let extremes = point.extremes.map_or_else(String::new, |(min, max)| {
                    format!(" ({}–{})", shown(min), shown(max))
                });
                cells.push((line, column, shown(point.row.value) + &extremes));
            }
        }
        let mut filled = vec![vec![String::new(); columns.len()]; lines.len()];
        for (line, column, cell) in cells {
            ensure!(
                filled[line][column].is_empty(),
                "{:?} has several rows of {:?}",
                lines[line],
                columns[column]
            );
            filled[line][column] = cell;
        }
        let header: Vec<&str> = std::iter::once("case")
            .chain(columns.iter().map(String::as_str))
            .collect();
        let lines = lines.into_iter().zip(filled);
        let lines = lines.map(|(name, cells)| [vec![name], cells].concat());
        let mut about = vec![format!("`{}`", self.experiment), self.metrics.join(", ")];
        let first = chosen.first().map(|row| pairs(&row.case));
        let common = first.into_iter().flatten().filter(is_common);
        about.extend(common.filter(|pair| !is_across(pair)).map(str::to_owned));
        let about = format!(": {}", about.join(", "));
        Ok((about, table(&header, lines)))
    }
}

/// Where `name` stands in `names`; at their end, if it is new.
fn at(names: &mut Vec<String>, name: String) -> usize {
    let found = names.iter().position(|own| *own == name);
    found.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

/// A table in Markdown.
pub(crate) fn table(header: &[&str], lines: impl IntoIterator<Item = Vec<String>>) -> String {
    let rule = format!("|{}\n", "---|".repeat(header.len()));
    let mut table = format!("| {} |\n{rule}", header.join(" | "));
    for line in lines {
        table += &format!("| {} |\n", line.join(" | "));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;

    fn report(_: &str) -> Result<Vec<Row>> {
        let mut run = Run::new("copy", true);
        for (kind, threads, value) in [("near", 1, 1e9), ("near", 2, 2e9), ("far", 1, 5e8)] {
            let case = format!("kind={kind}, threads={threads}");
            run.value(&case, "bandwidth", "bytes/s", value)?;
        }
        run.samples("kind=far, threads=2", "time", "ns", &[1.0, 2.0, 4.0])?;
        Ok(run.into_rows())
    }

    fn made(of: &str) -> Result<String> {
        let marker = format!("<!-- table = {{ reports = ['big-2026-01-02'], of = {of} }} -->");
        let text = format!("before\n{marker}\n| stale |\n{END}\nafter\n");
        let now = with_tables(&text, &report)?;
        assert_eq!(with_tables(&now, &report)?, now);
        let rest = now.strip_prefix(&format!("before\n{marker}\n")).unwrap();
        let table = rest.strip_suffix(&format!("{END}\nafter\n")).unwrap();
        Ok(table.to_owned())
    }

    #[test]
    fn lines_are_cases_and_columns_are_metrics_or_values_of_a_key() {
        let across =
            "{ rows = { experiment = 'copy', metrics = ['bandwidth'], across = 'threads' } }";
        assert_eq!(
            made(across).unwrap(),
            "From big, 2026-01-02 (`docs/reports/big-2026-01-02.json`): `copy`, bandwidth, run=quick:\n\n\
             | case | threads=1 | threads=2 |\n|---|---|---|\n| kind=near | 1 GB/s | 2 GB/s |\n| kind=far | 500 MB/s |  |\n\n"
        );
        let kept = "{ rows = { experiment = 'copy', metrics = ['bandwidth', 'time'], keep = ['kind=far'] } }";
        assert_eq!(
            made(kept).unwrap(),
            "From big, 2026-01-02 (`docs/reports/big-2026-01-02.json`): `copy`, bandwidth, time, run=quick, kind=far:\n\n\
             | case | bandwidth | time |\n|---|---|---|\n| threads=1 | 500 MB/s |  |\n| threads=2 |  | 2 ns (1 ns–4 ns) |\n\n"
        );
    }

    #[test]
    fn what_finds_no_row_or_no_end_is_an_error() {
        assert!(made("{ rows = { experiment = 'copy', metrics = ['heat'] } }").is_err());
        assert!(made("{ rows = { experiment = 'copy', metric = 'bandwidth' } }").is_err());
        let open = "<!-- table = { reports = ['big-2026-01-02'], of = 'papers' } -->\n";
        assert!(with_tables(open, &report).is_err());
    }

    #[test]
    fn the_tables_of_the_tree_are_what_the_kept_reports_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let stale: Vec<PathBuf> = stale(&root)
            .unwrap()
            .into_iter()
            .map(|(path, _)| path)
            .collect();
        assert!(
            stale.is_empty(),
            "`cargo xtask tables` writes {stale:?} anew"
        );
    }
}
