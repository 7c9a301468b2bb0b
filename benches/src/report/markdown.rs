//! Tables of Markdown files that are made of the reports kept in docs/reports. A table stands between two comments, of which the
//! first names, as TOML, the reports and what of them is shown; docs/src/report.md describes it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::figures::compared;
use super::{Row, read_rows};

mod cell;
mod columns;
mod lines;

use columns::Columns;
use lines::{Against, Quoted, quoted};

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
    Against(Against),
    Quoted(Vec<Quoted>),
}

/// A report: its name, the machine and the date in it, and its rows.
struct Origin {
    name: String,
    machine: String,
    date: String,
    rows: Vec<Row>,
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
        let begin = line.strip_prefix("<!-- ").filter(|_| !is_code);
        let Some(begin) = begin.filter(|begin| begin.starts_with("table = ")) else {
            continue;
        };
        let mut comment = begin.to_owned();
        while !comment.ends_with("-->") {
            let more = lines
                .next()
                .with_context(|| format!("no end of the comment {line}"))?;
            made += &format!("{more}\n");
            comment += &format!("\n{more}");
        }
        let marker: Marker =
            toml::from_str(comment.trim_end_matches("-->")).with_context(|| line.to_owned())?;
        let shown = marker.table.text(report).with_context(|| line.to_owned())?;
        made += &format!("{shown}{END}\n");
        ensure!(lines.any(|line| line == END), "no {END} after {line}");
    }
    Ok(made)
}

impl KeptTable {
    /// A line that says where the table is from, and the table.
    fn text(&self, report: &dyn Fn(&str) -> Result<Vec<Row>>) -> Result<String> {
        let origins = self
            .reports
            .iter()
            .map(|name| Origin::new(name, report(name)?));
        let origins = origins.collect::<Result<Vec<_>>>()?;
        let rows = || {
            let rows = origins.iter().flat_map(|origin| &origin.rows);
            rows.cloned().collect::<Vec<_>>()
        };
        let (about, table) = match &self.of {
            Shown::Papers => (String::new(), compared(&rows())?),
            Shown::Rows(columns) => columns.table(&rows())?,
            Shown::Against(against) => against.table(&rows())?,
            Shown::Quoted(lines) => (String::new(), quoted(lines, &origins)?),
        };
        let named = |origin: &Origin| {
            let Origin {
                name,
                machine,
                date,
                ..
            } = origin;
            format!("{machine}, {date} (`docs/reports/{name}.json`)")
        };
        let named: Vec<_> = origins.iter().map(named).collect();
        Ok(format!("From {}{about}:\n\n{table}\n", named.join("; ")))
    }
}

impl Origin {
    fn new(name: &str, rows: Vec<Row>) -> Result<Self> {
        let parts = name.len().checked_sub("-2026-11-23".len());
        let parts = parts.and_then(|at| name.split_at_checked(at));
        let (machine, date) = parts.context("a report is named by its machine and date")?;
        Ok(Self {
            name: name.to_owned(),
            machine: machine.to_owned(),
            date: date.trim_start_matches('-').to_owned(),
            rows,
        })
    }
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
        run.samples("kind=far, threads=2", "time", "ns", &[1.0, 2.0, 4.0])?
            .against(4.0);
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
        assert!(
            made("{ rows = { experiment = 'copy', metrics = ['bandwidth'], ratio = 'alone' } }")
                .is_err()
        );
        let against = made("{ against = { experiment = 'copy' } }").unwrap();
        assert!(
            against.contains("`copy`, run=quick, kind=far, threads=2:"),
            "{against}"
        );
        assert!(against.contains("| metric | measured | against | ratio |\n|---|---|---|---|\n| time | 2 ns (1–4) | 4 ns | 0.500 |"));
        assert!(made("{ against = { experiment = 'copy', metrics = ['bandwidth'] } }").is_err());
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
    fn quoted_figures_have_a_line_each() {
        let of = |rest: &str| format!("report = 'big-2026-01-02', experiment = 'copy', {rest}");
        let lines = [
            of("what = 'all', metric = 'bandwidth'"),
            of("what = 'far', metric = 'time', ratio = 'alone'"),
            of(
                "what = 'near to far', metric = 'bandwidth', keep = ['kind=near', 'threads=1'], over = ['kind=far']",
            ),
        ];
        let lines: Vec<_> = lines
            .iter()
            .map(|line| format!("{{ {line} }},\n"))
            .collect();
        let quoted = |lines: &str| made(&format!("{{ quoted = [\n{lines}] }}"));
        assert_eq!(
            quoted(&lines.concat()).unwrap(),
            "From big, 2026-01-02 (`docs/reports/big-2026-01-02.json`):\n\n\
             | what | figure |\n|---|---|\n| all | 500 MB/s–2 GB/s, quick run |\n| far | 0.500 × (0.250–1), quick run |\n| near to far | 2 ×, quick run |\n\n"
        );
        let elsewhere = lines[0].replace("big", "small");
        assert!(quoted(&elsewhere).is_err());
        let of_the_only_one = lines[0].replace("report = 'big-2026-01-02', ", "");
        assert!(
            quoted(&of_the_only_one)
                .unwrap()
                .contains("| all | 500 MB/s–2 GB/s, quick run |")
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
