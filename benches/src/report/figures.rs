//! The papers' figures and the numbers of their prose, each beside the paper's own method rebuilt here and beside ours:
//! `benches/figures.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::query::{Point, Query};
use super::units::human;
use super::{Row, read_kept};

/// A value that reaches this share of the paper's value counts as reproduced, as machines differ by as much.
const ENOUGH: f64 = 0.8;

/// The line after a table of a Markdown file.
const END: &str = "<!-- end of table -->";

/// The file `figures.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    #[serde(rename = "paper")]
    pub(crate) papers: Vec<Paper>,
    /// Results that no paper has.
    #[serde(rename = "picture")]
    pub(crate) pictures: Vec<Figure>,
    /// Tables of Markdown files, by name: a line for each value.
    lines: BTreeMap<String, Vec<TableLine>>,
}

/// A paper, or a talk.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    /// The conference and the year.
    pub(crate) name: String,
    title: String,
    /// The machine that the paper measured, and at which size.
    machine: String,
    #[serde(rename = "figure", skip_serializing)]
    pub(crate) figures: Vec<Figure>,
}

/// A figure, a part of one, a table or a slide.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) number: String,
    shows: String,
    /// The axes: across; up.
    axes: String,
    /// The size of our measurement and its differences from the paper's, or the reason why there is none.
    size: String,
    /// The rows that are drawn.
    #[serde(default, skip_serializing)]
    pub(crate) rows: Vec<Query>,
    #[serde(default, rename = "claim", skip_serializing)]
    pub(crate) claims: Vec<Statement>,
}

/// A number of the paper's prose.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Statement {
    /// The paper's sentence, and its place.
    says: String,
    paper: f64,
    /// The unit of the number; a quotient has none.
    unit: Option<String>,
    /// True if a smaller value is better.
    less: bool,
    /// The paper's own method over its baseline, rebuilt here.
    pub(crate) theirs: Option<Query>,
    /// Our method over the same baseline.
    pub(crate) ours: Option<Query>,
    /// The reason why the rows are not of the same work.
    other_work: Option<String>,
    /// The reason why nothing was run, or why the value differs.
    why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableLine {
    what: String,
    of: Query,
}

/// A claim as people read it: a line of the index.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Judged {
    pub(crate) says: String,
    pub(crate) paper: String,
    pub(crate) theirs: String,
    pub(crate) ours: String,
    pub(crate) verdict: String,
    /// The reports of the rows.
    pub(crate) from: String,
}

/// Reads `figures.toml`.
///
/// # Errors
/// An error if the file is not as this module reads it.
pub(crate) fn read() -> Result<Figures> {
    toml::from_str(include_str!("../../figures.toml")).context("benches/figures.toml")
}

/// Returns the index: every number of the papers' prose with its verdict, as tables in Markdown.
///
/// # Errors
/// An error if `figures.toml` is not as this module reads it.
pub fn index(rows: &[Row]) -> Result<String> {
    let mut text = String::new();
    for paper in read()?.papers {
        text += &format!(
            "\n### {}\n\n{}. The paper's machine: {}.\n\n",
            paper.name, paper.title, paper.machine
        );
        let claims = paper.figures.iter().flat_map(|figure| {
            let judged = figure.claims.iter().map(|claim| claim.judge(rows));
            judged.map(|line| {
                [
                    &figure.number,
                    &line.says,
                    &line.paper,
                    &line.theirs,
                    &line.ours,
                    &line.verdict,
                    &line.from,
                ]
                .map(String::clone)
            })
        });
        let header = [
            "figure",
            "the paper says",
            "paper",
            "theirs, rebuilt here",
            "ours",
            "verdict",
            "report",
        ];
        text += &markdown(&header, claims);
    }
    Ok(text + "\n")
}

/// Returns a table in Markdown.
pub(crate) fn markdown<const N: usize>(
    header: &[&str; N],
    lines: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rule = format!("|{}\n", "---|".repeat(N));
    let lines = lines
        .into_iter()
        .map(|line| format!("| {} |\n", line.join(" | ")));
    format!("| {} |\n{rule}", header.join(" | ")) + &lines.collect::<String>()
}

impl Statement {
    fn unit(&self) -> &str {
        self.unit.as_deref().unwrap_or("×")
    }

    /// Returns the paper's sentence, its number, theirs and ours, and the verdict.
    pub(crate) fn judge(&self, rows: &[Row]) -> Judged {
        let found = |query: &Option<Query>| query.as_ref().and_then(|query| query.taken(rows));
        let (theirs, ours) = (found(&self.theirs), found(&self.ours));
        let text = |point: &Option<Point<'_>>| match point {
            Some(point) => Point {
                unit: self.unit(),
                ..*point
            }
            .text(),
            None => "–".to_owned(),
        };
        let mut from: Vec<&str> = [&theirs, &ours]
            .into_iter()
            .flatten()
            .filter_map(|point| point.row.origin.as_deref())
            .collect();
        from.dedup();
        Judged {
            says: self.says.clone(),
            paper: human(self.paper, self.unit()),
            theirs: text(&theirs),
            ours: text(&ours),
            verdict: self.verdict(theirs, ours),
            from: from.join(", "),
        }
    }

    fn verdict(&self, theirs: Option<Point<'_>>, ours: Option<Point<'_>>) -> String {
        let with_reason = |verdict: &str| match self.why.is_empty() {
            true => verdict.to_owned(),
            false => format!("{verdict}: {}", self.why),
        };
        // For a quotient, the gain counts: its difference from 1.
        let none = if self.unit.is_none() { 1.0 } else { 0.0 };
        let reaches = |point: Point<'_>, part: f64| match self.less {
            true => point.value.median * part <= self.paper,
            false => point.value.median - none >= (self.paper - none) * part,
        };
        let is_quick = |point: &Point<'_>| point.row.is_quick();
        let first = match (theirs, &self.other_work) {
            (_, Some(reason)) => return format!("not the same work: {reason}"),
            (None, None) if ours.is_none() => {
                let named = self.theirs.as_ref().or(self.ours.as_ref());
                let missing =
                    named.map(|query| format!("not run: no kept row of {}", query.experiment));
                return missing.unwrap_or_else(|| with_reason("not run"));
            }
            (None, None) => with_reason("theirs not run"),
            (Some(point), _) if is_quick(&point) => "no verdict: theirs is a quick run".to_owned(),
            (Some(point), _) if reaches(point, ENOUGH) => "reproduced".to_owned(),
            (Some(_), _) => with_reason("not reproduced"),
        };
        match ours {
            Some(point) if is_quick(&point) => first + "; ours is a quick run",
            Some(point) if !reaches(point, 1.0) => {
                let falls_short = format!("{first}; ours falls short of the paper's number");
                match first.as_str() {
                    "reproduced" => with_reason(&falls_short),
                    _ => falls_short,
                }
            }
            Some(_) => first + "; ours reaches the paper's number",
            None => first,
        }
    }
}

/// Returns the Markdown files of README.md, docs and docs/src whose tables the kept reports do not give, each with its new text.
///
/// # Errors
/// An error if a file cannot be read, a comment names no table, or a line finds no row of a full run.
pub fn stale(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let rows = kept(root)?;
    let lines = read()?.lines;
    let table = |name: &str| match name {
        "papers" => index(&rows),
        name => of_lines(
            lines
                .get(name)
                .context("benches/figures.toml has no such lines")?,
            &rows,
        ),
    };
    let mut stale = Vec::new();
    let pages = ["docs", "docs/src"].map(|folder| files(&root.join(folder), "md"));
    let [docs, book] = pages;
    for path in [vec![root.join("README.md")], docs?, book?].concat() {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(&path).with_context(name)?;
        let text = text.replace("\r\n", "\n");
        let now = with_tables(&text, &table).with_context(name)?;
        if now != text {
            stale.push((path, now));
        }
    }
    Ok(stale)
}

/// Returns the rows of all reports that are kept with the book.
pub(crate) fn kept(root: &Path) -> Result<Vec<Row>> {
    let reports = files(&root.join("docs/reports"), "json")?;
    let rows = reports.iter().map(|path| read_kept(path));
    Ok(rows.collect::<Result<Vec<_>>>()?.concat())
}

/// Returns the files of a folder with this extension, in the order of their names.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let listed = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = listed
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|own| own == extension));
    files.sort();
    Ok(files)
}

/// Returns the text with its tables made anew.
fn with_tables(text: &str, table: &dyn Fn(&str) -> Result<String>) -> Result<String> {
    let mut made = String::new();
    let mut is_code = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        made += &format!("{line}\n");
        is_code ^= line.starts_with("```");
        let name = line.strip_prefix("<!-- table ").filter(|_| !is_code);
        if let Some(name) = name.and_then(|rest| rest.strip_suffix(" -->")) {
            made += &format!("{}{END}\n", table(name).with_context(|| line.to_owned())?);
            ensure!(lines.any(|line| line == END), "no {END} after {line}");
        }
    }
    Ok(made)
}

/// Returns a table with a line for each query: the value of its row, or the least and the largest value of its rows.
fn of_lines(lines: &[TableLine], rows: &[Row]) -> Result<String> {
    let line = |TableLine { what, of }: &TableLine| {
        let points = of.points(rows);
        ensure!(
            points.iter().all(|point| !point.row.is_quick()),
            "{what}: quick rows are not for quoting"
        );
        let by_value = |a: &&Point<'_>, b: &&Point<'_>| a.value.median.total_cmp(&b.value.median);
        let ends = points
            .iter()
            .min_by(by_value)
            .zip(points.iter().max_by(by_value));
        let (least, most) = ends.with_context(|| format!("no row is of {what}"))?;
        let figure = match points.len() {
            1 => least.text(),
            _ => format!(
                "{}–{}",
                human(least.value.median, least.unit),
                human(most.value.median, most.unit)
            ),
        };
        let origin = least.row.origin.clone().unwrap_or_default();
        Ok([what.clone(), figure, origin])
    };
    let lines = lines.iter().map(line).collect::<Result<Vec<_>>>()?;
    Ok(markdown(&["", "figure", "report"], lines) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::{Run, find};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn the_tables_of_the_tree_are_what_the_kept_reports_say() {
        let stale = stale(&root()).unwrap();
        let stale: Vec<_> = stale.iter().map(|(path, _)| path).collect();
        assert!(
            stale.is_empty(),
            "`cargo xtask tables` writes {stale:?} anew"
        );
    }

    #[test]
    fn figures_name_experiments_and_a_claim_without_queries_has_a_reason() {
        let papers = read().unwrap().papers.into_iter();
        for figure in papers.flat_map(|paper| paper.figures) {
            let claims = figure.claims.iter();
            let queries = claims.flat_map(|claim| [&claim.theirs, &claim.ours]);
            for query in figure.rows.iter().chain(queries.flatten()) {
                let found = find(&query.experiment);
                assert!(found.is_some(), "{}: {query:?}", figure.number);
            }
            for claim in &figure.claims {
                assert_ne!(claim.judge(&[]).verdict, "not run", "{}", figure.number);
            }
        }
    }

    #[test]
    fn a_verdict_is_of_their_method_and_a_miss_looks_like_one() {
        let rows = |run: bool, theirs: f64, ours: f64| {
            let mut run = Run::new("alloc", run);
            for (who, value) in [
                ("baseline", 100.0),
                ("theirs", 100.0 / theirs),
                ("ours", 100.0 / ours),
            ] {
                run.value(&format!("who={who}"), "time", "ns", value)
                    .unwrap();
            }
            run.into_rows()
        };
        let query = |who: &str| {
            let query =
                format!("experiment = 'alloc'\nkeep = ['who=baseline']\nover = ['who={who}']");
            Some(toml::from_str(&query).unwrap())
        };
        let claim = Statement {
            paper: 10.0,
            theirs: query("theirs"),
            ours: query("ours"),
            why: "another disk".to_owned(),
            ..Statement::default()
        };
        let verdict = |claim: &Statement, rows: &[Row]| claim.judge(rows).verdict;
        assert_eq!(
            verdict(&claim, &rows(false, 8.5, 20.0)),
            "reproduced; ours reaches the paper's number"
        );
        assert_eq!(
            verdict(&claim, &rows(false, 8.5, 9.0)),
            "reproduced; ours falls short of the paper's number: another disk"
        );
        assert_eq!(
            verdict(&claim, &rows(false, 5.0, 9.0)),
            "not reproduced: another disk; ours falls short of the paper's number"
        );
        assert_eq!(
            verdict(&claim, &rows(true, 8.0, 20.0)),
            "no verdict: theirs is a quick run; ours is a quick run"
        );
        assert_eq!(verdict(&claim, &[]), "not run: no kept row of alloc");
        let other = Statement {
            other_work: Some("one GPU".to_owned()),
            ..claim
        };
        assert_eq!(
            verdict(&other, &rows(false, 8.0, 20.0)),
            "not the same work: one GPU"
        );
        let less = Statement {
            less: true,
            other_work: None,
            ..other
        };
        assert_eq!(
            verdict(&less, &rows(false, 12.5, 9.0)),
            "reproduced; ours reaches the paper's number"
        );
    }
}
