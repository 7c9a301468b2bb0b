//! Tables in Markdown that are made of the reports kept in docs/reports. A line `<!-- table NAME -->` of a Markdown file names a
//! table of `benches/figures.toml`; the table follows, up to the comment that ends it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::figures::{compared, read};
use super::query::{Query, Ratio, common, pairs};
use super::units::{digits, human};
use super::{Row, read_rows};

mod cells;

pub(crate) use cells::table;
use cells::{key, leading, pair, range};

/// The line after a table.
const END: &str = "<!-- end of table -->";

/// A table of `figures.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// Files of docs/reports without their extension: a machine, and the date behind it.
    reports: Vec<String>,
    of: Shown,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
enum Shown {
    /// The numbers of the papers, and ours beside them.
    Papers,
    /// A line for each case, and a column for each metric, or for each value of a key.
    Rows(Query),
    /// A line for each query: the value of its row, or the range of its rows' values.
    Lines(Vec<Query>),
}

/// A kept report: its file's name, and its rows.
type Report = (String, Vec<Row>);

/// Returns the Markdown files of README.md, docs and docs/src whose tables the kept reports do not give, each with its new text.
///
/// # Errors
/// When a file cannot be read, a comment names no table, or a table finds no row.
pub fn stale(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let tables = read()?.tables;
    let mut paths = vec![root.join("README.md")];
    for folder in ["docs", "docs/src"] {
        let listed = std::fs::read_dir(root.join(folder)).context(folder)?;
        let listed = listed.map(|entry| Ok(entry?.path()));
        paths.extend(listed.collect::<Result<Vec<_>>>()?);
    }
    paths.retain(|path| path.extension().is_some_and(|own| own == "md"));
    let report = |name: &String| {
        let rows = read_rows(&root.join("docs/reports").join(format!("{name}.json")));
        Ok((name.clone(), rows?))
    };
    let text_of = |name: &str| {
        let table = tables
            .get(name)
            .context("benches/figures.toml has no such table")?;
        table.text(
            &table
                .reports
                .iter()
                .map(report)
                .collect::<Result<Vec<_>>>()?,
        )
    };
    let mut stale = Vec::new();
    for path in paths {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(&path)
            .with_context(name)?
            .replace("\r\n", "\n");
        let now = with_tables(&text, &text_of).with_context(name)?;
        if now != text {
            stale.push((path, now));
        }
    }
    Ok(stale)
}

/// Returns the text with its tables made anew.
fn with_tables(text: &str, table: &dyn Fn(&str) -> Result<String>) -> Result<String> {
    let mut made = String::new();
    let mut is_code = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        made += line;
        made.push('\n');
        is_code ^= line.starts_with("```");
        let name = line.strip_prefix("<!-- table ").filter(|_| !is_code);
        if let Some(name) = name.and_then(|rest| rest.strip_suffix(" -->")) {
            made += &format!("{}{END}\n", table(name).with_context(|| line.to_owned())?);
            ensure!(lines.any(|line| line == END), "no {END} after {line}");
        }
    }
    Ok(made)
}

impl Table {
    /// Returns a line that says where the table is from, and the table.
    fn text(&self, reports: &[Report]) -> Result<String> {
        let rows = || {
            reports
                .iter()
                .flat_map(|(_, rows)| rows)
                .cloned()
                .collect::<Vec<_>>()
        };
        let (about, table) = match &self.of {
            Shown::Papers => (String::new(), compared(&rows())?),
            Shown::Rows(query) => of_cases(query, &rows())?,
            Shown::Lines(queries) => (String::new(), of_queries(queries, reports)?),
        };
        let named = |(name, _): &Report| {
            let (machine, date) = machine_and_date(name)?;
            Ok(format!("{machine}, {date} (`docs/reports/{name}.json`)"))
        };
        let named = reports.iter().map(named).collect::<Result<Vec<_>>>()?;
        Ok(format!("From {}{about}:\n\n{table}\n", named.join("; ")))
    }
}

fn machine_and_date(name: &str) -> Result<(&str, &str)> {
    let at = name.len().checked_sub("-2026-11-23".len());
    let parts = at.and_then(|at| Some((name.get(..at)?, name.get(at + 1..)?)));
    parts.context("a report is named by its machine and date")
}

/// Returns the experiment, the metrics and the pairs that all cells share, and the table.
fn of_cases(query: &Query, rows: &[Row]) -> Result<(String, String)> {
    let has_columns = query.ratio == Ratio::Columns;
    let mut cells = Vec::new();
    for metric in query.metrics(rows) {
        let points = metric.points.into_iter();
        let points = points.filter(|point| !has_columns || point.row.reference.is_some());
        cells.extend(points.map(|point| (metric.name, point)));
    }
    let is_found = |name: &String| cells.iter().any(|(own, _)| own == name);
    let missing = query.metrics.iter().find(|name| !is_found(name));
    ensure!(
        has_columns || missing.is_none(),
        "no row has the metric {missing:?}"
    );
    ensure!(
        !cells.is_empty(),
        "no row of {} is of this table",
        query.experiment
    );
    let common = common(&cells.iter().map(|(_, point)| *point).collect::<Vec<_>>());
    let is_across = |pair: &str| query.across.is_some() && key(pair) == query.across.as_deref();
    let (mut lines, mut columns, mut placed) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (name, point) in &cells {
        let (across, own): (Vec<_>, Vec<_>) =
            pairs(&point.row.case).partition(|pair| is_across(pair));
        let own = own.into_iter().filter(|pair| !common.contains(pair));
        let line: Vec<String> = own.map(str::to_owned).collect();
        let mut shown = Vec::new();
        if let (true, Some(reference)) = (has_columns, point.row.reference) {
            shown.push(("metric".to_owned(), (*name).to_owned()));
            shown.push(("measured".to_owned(), query.ratio.cell(point)?));
            shown.push(("against".to_owned(), human(reference, &point.row.unit)));
            let ratio = point.row.ratio.map(digits).unwrap_or_default();
            shown.push(("ratio".to_owned(), ratio));
        } else {
            let is_named = query.metrics.len() > 1 || query.across.is_none();
            let name = is_named.then(|| (*name).to_owned()).into_iter();
            let column: Vec<_> = name.chain(across.into_iter().map(pair)).collect();
            shown.push((column.join(", "), query.ratio.cell(point)?));
        }
        let line = if has_columns {
            lines.push(line);
            lines.len() - 1
        } else {
            at(&mut lines, line)
        };
        for (column, text) in shown {
            let column = at(&mut columns, column);
            let before = placed.insert((line, column), text);
            ensure!(before.is_none(), "{:?} has several rows", lines[line]);
        }
    }
    let (mut header, mut filled) = leading(&lines);
    for (at, line) in filled.iter_mut().enumerate() {
        let cells = (0..columns.len()).map(|column| placed.remove(&(at, column)));
        line.extend(cells.map(Option::unwrap_or_default));
    }
    header.extend(columns);
    let mut about = vec![format!("`{}`", query.experiment)];
    about.extend(query.metrics.iter().filter(|_| !has_columns).cloned());
    about.extend(common.into_iter().filter(|pair| !is_across(pair)).map(pair));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    Ok((format!(": {}", about.join(", ")), table(&header, filled)))
}

/// Returns the table of single figures. It has a column for the machine where there are several reports.
fn of_queries(queries: &[Query], reports: &[Report]) -> Result<String> {
    let are_many = reports.len() > 1;
    let line = |query: &Query| {
        let is_named = |name: &str| match &query.report {
            Some(report) => report == name,
            None => !are_many,
        };
        let report = reports.iter().find(|(name, _)| is_named(name));
        let (name, rows) = report.context("of which report?")?;
        let mut cells = vec![query.what.clone(), figure(query, rows)?];
        if are_many {
            cells.push(machine_and_date(name)?.0.to_owned());
        }
        anyhow::Ok(cells)
    };
    let lines = queries.iter();
    let lines = lines.map(|query| line(query).with_context(|| query.what.clone()));
    let header = &["what", "figure", "machine"][..2 + usize::from(are_many)];
    Ok(table(header, lines.collect::<Result<Vec<_>>>()?))
}

/// Returns the value of the query's row, or the range of its rows' values.
fn figure(query: &Query, rows: &[Row]) -> Result<String> {
    let metrics = query.metrics(rows);
    let points: Vec<_> = metrics.iter().flat_map(|metric| &metric.points).collect();
    let first = points.first().context("no row is of this figure")?;
    let shown = match (&points[..], query.ratio) {
        ([point], ratio) if query.over.is_empty() => ratio.cell(point)?,
        (_, Ratio::Without) => {
            let values = query.values(rows);
            ensure!(
                values.len() == points.len(),
                "a case has no row that it is divided by"
            );
            let is_quotient = !query.over.is_empty();
            let unit = if is_quotient { "×" } else { &first.row.unit };
            range(values.into_iter().map(|(_, value)| value), unit)
        }
        _ => {
            let ratios = points.iter().map(|point| point.row.ratio);
            let ratios = ratios.collect::<Option<Vec<_>>>();
            range(ratios.context("a row has no reference")?, "×")
        }
    };
    let mut pairs = points.iter().flat_map(|point| pairs(&point.row.case));
    Ok(shown
        + if pairs.any(|pair| pair == "run=quick") {
            ", quick run"
        } else {
            ""
        })
}

/// Returns the place of `name` in `names`. A new one is added at their end.
fn at<T: PartialEq>(names: &mut Vec<T>, name: T) -> usize {
    let found = names.iter().position(|own| *own == name);
    found.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;
    use crate::experiments::Run;

    fn rows() -> Result<Vec<Row>> {
        let mut run = Run::new("copy", true);
        for (kind, threads, value) in [("near", 1, 1e9), ("near", 2, 2e9), ("far", 1, 5e8)] {
            let case = format!("kind={kind}, threads={threads}");
            run.value(&case, "bandwidth", "bytes/s", value)?;
        }
        run.samples("kind=far, threads=2", "time", "ns", &[1.0, 2.0, 4.0])?
            .against(4.0);
        Ok(run.into_rows())
    }

    fn made(of: &str) -> Result<String> {
        let table: Table = toml::from_str(&format!("reports = ['big-2026-01-02']\nof = {of}"))?;
        let text_of = |_: &str| table.text(&[("big-2026-01-02".to_owned(), rows()?)]);
        let marker = "<!-- table copy -->";
        let text = format!("before\n{marker}\n| stale |\n{END}\nafter\n");
        let now = with_tables(&text, &text_of)?;
        assert_eq!(with_tables(&now, &text_of)?, now);
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
             | kind | threads=1 | threads=2 |\n|---|---|---|\n| near | 1 GB/s | 2 GB/s |\n| far | 500 MB/s |  |\n\n"
        );
        let kept = "{ rows = { experiment = 'copy', metrics = ['bandwidth', 'time'], keep = ['kind=far'] } }";
        assert_eq!(
            made(kept).unwrap(),
            "From big, 2026-01-02 (`docs/reports/big-2026-01-02.json`): `copy`, bandwidth, time, run=quick, kind=far:\n\n\
             | threads | bandwidth | time |\n|---|---|---|\n| 1 | 500 MB/s |  |\n| 2 |  | 2 ns (1–4) |\n\n"
        );
    }

    #[test]
    fn a_reference_shows_as_a_ratio_or_in_columns_of_its_own() {
        let ratio = |ratio: &str| {
            let ratio = format!("metrics = ['time'], across = 'threads', ratio = '{ratio}'");
            made(&format!("{{ rows = {{ experiment = 'copy', {ratio} }} }}")).unwrap()
        };
        assert!(ratio("beside").contains("| 2 ns (1–4), 0.500 × |"));
        assert!(ratio("alone").contains("| 0.500 × (0.250–1) |"));
        let without = |metric: &str, ratio: &str| {
            let metrics = format!("metrics = ['{metric}'], ratio = '{ratio}'");
            made(&format!(
                "{{ rows = {{ experiment = 'copy', {metrics} }} }}"
            ))
        };
        assert!(without("bandwidth", "alone").is_err());
        assert!(without("bandwidth", "columns").is_err());
        let against = made("{ rows = { experiment = 'copy', ratio = 'columns' } }").unwrap();
        assert!(
            against.contains("`copy`, run=quick, kind=far, threads=2:"),
            "{against}"
        );
        assert!(against.contains("| metric | measured | against | ratio |\n|---|---|---|---|\n| time | 2 ns (1–4) | 4 ns | 0.500 |"));
    }

    #[test]
    fn cases_are_chosen_by_one_of_several_values_and_by_what_they_lack() {
        let chosen = |chosen: &str| {
            let chosen = format!("metrics = ['bandwidth'], {chosen}");
            made(&format!("{{ rows = {{ experiment = 'copy', {chosen} }} }}")).unwrap()
        };
        let near = "| threads | bandwidth |\n|---|---|\n| 1 | 1 GB/s |\n| 2 | 2 GB/s |\n";
        assert!(chosen("without = ['kind=far']").contains(near));
        assert!(chosen("keep = ['kind=near', 'threads=1|2|4']").contains(near));
    }

    #[test]
    fn queries_have_a_line_each() {
        let of = |rest: &str| format!("report = 'big-2026-01-02', experiment = 'copy', {rest}");
        let lines = [
            of("what = 'all', metrics = ['bandwidth']"),
            of("what = 'far', metrics = ['time'], ratio = 'alone'"),
            of(
                "what = 'near to far', metrics = ['bandwidth'], keep = ['kind=near', 'threads=1'], over = ['kind=far']",
            ),
        ];
        let lines: Vec<_> = lines
            .iter()
            .map(|line| format!("{{ {line} }},\n"))
            .collect();
        let made = |lines: &str| made(&format!("{{ lines = [\n{lines}] }}"));
        assert_eq!(
            made(&lines.concat()).unwrap(),
            "From big, 2026-01-02 (`docs/reports/big-2026-01-02.json`):\n\n\
             | what | figure |\n|---|---|\n| all | 500 MB/s–2 GB/s, quick run |\n| far | 0.500 × (0.250–1), quick run |\n| near to far | 2 ×, quick run |\n\n"
        );
        assert!(made(&lines[0].replace("big", "small")).is_err());
        let of_the_only_one = lines[0].replace("report = 'big-2026-01-02', ", "");
        assert!(
            made(&of_the_only_one)
                .unwrap()
                .contains("| all | 500 MB/s–2 GB/s, quick run |")
        );
    }

    #[test]
    fn a_table_without_a_row_a_name_or_an_end_is_an_error() {
        assert!(made("{ rows = { experiment = 'copy', metrics = ['heat'] } }").is_err());
        assert!(made("{ rows = { experiment = 'copy', metric = 'bandwidth' } }").is_err());
        let open = "<!-- table copy -->\n";
        assert!(with_tables(open, &|_| Ok(String::new())).is_err());
        let closed = format!("{open}{END}\n");
        assert!(with_tables(&closed, &|_| bail!("no such table")).is_err());
    }

    #[test]
    fn the_tables_of_the_tree_are_what_the_kept_reports_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let stale = stale(&root).unwrap();
        let stale: Vec<&PathBuf> = stale.iter().map(|(path, _)| path).collect();
        assert!(
            stale.is_empty(),
            "`cargo xtask tables` writes {stale:?} anew"
        );
    }
}
