//! The papers' figures, tables and slides, each beside what of ours shows the same: `benches/figures.toml`, and what a
//! report's rows say to it. docs/src/report.md describes both.

use std::fmt::{self, Display, Formatter};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Row;
use super::group::{pairs, with_pairs};
use super::markdown::table;
use super::units::{digits, human};

/// Where the papers measured, what their figures show, and what ours is beside it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Papers {
    #[serde(rename = "paper")]
    pub(crate) papers: Vec<Paper>,
}

/// A paper, or a talk.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    /// The conference and the year.
    pub(crate) name: String,
    pub(crate) title: String,
    /// What it was measured on, and at which size.
    pub(crate) machine: String,
    #[serde(rename = "figure")]
    pub(crate) figures: Vec<Figure>,
}

/// A figure, a part of one, a table or a slide.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) number: String,
    pub(crate) shows: String,
    /// What its axes are: across; up.
    pub(crate) axes: String,
    /// What is not the same in ours.
    #[serde(default)]
    pub(crate) differs: String,
    /// Why we have no rows for it.
    pub(crate) unmeasured: Option<String>,
    /// What of ours is drawn.
    #[serde(default)]
    pub(crate) rows: Vec<Selection>,
    #[serde(default, rename = "compare")]
    pub(crate) comparisons: Vec<Comparison>,
}

/// A number of the paper's prose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Comparison {
    /// What the paper says, and where.
    pub(crate) says: String,
    pub(crate) paper: f64,
    /// The same of ours, where there is something.
    pub(crate) ours: Option<Ours>,
}

/// A value of ours: that of the cases `of`, or the quotient of it and the same case with `over` in place of `of`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ours {
    pub(crate) experiment: String,
    pub(crate) metric: String,
    #[serde(default)]
    pub(crate) keep: Vec<String>,
    /// Pairs that a case has to have.
    pub(crate) of: Vec<String>,
    /// The pairs that are other in the case it is divided by.
    #[serde(default)]
    pub(crate) over: Vec<String>,
    /// The rows' unit; a quotient has none.
    #[serde(default = "plain")]
    pub(crate) unit: String,
    /// Which one where several cases match.
    #[serde(default)]
    pub(crate) take: Take,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Take {
    #[default]
    Largest,
    Least,
}

/// Rows of one metric: those whose cases have each of the pairs, or of the keys, of `keep`, and none of `without`. `key=a|b` is a pair
/// with either value.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    pub(crate) experiment: String,
    pub(crate) metric: String,
    #[serde(default)]
    pub(crate) keep: Vec<String>,
    #[serde(default)]
    pub(crate) without: Vec<String>,
    /// Whether the values are simulated or predicted: no byte was moved.
    #[serde(default)]
    pub(crate) simulated: bool,
}

/// How far we are with a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FigureState {
    /// The report has rows for it that were measured.
    Measured,
    /// It has rows, all of them simulated or predicted.
    Simulated,
    /// These experiments have it, but the report has no row of it.
    NoRows(String),
    /// No experiment has it, and the figure says why.
    Unmeasured,
}

impl Display for FigureState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured => f.write_str("measured"),
            Self::Simulated => f.write_str("simulated"),
            Self::NoRows(experiments) => write!(f, "no rows of {experiments}"),
            Self::Unmeasured => f.write_str("not measured"),
        }
    }
}

fn plain() -> String {
    "1".to_owned()
}

/// All figures.
///
/// # Errors
/// When `figures.toml` is not as this module reads it.
pub(crate) fn papers() -> Result<Vec<Paper>> {
    let text = include_str!("../../figures.toml");
    let papers: Papers = toml::from_str(text).context("benches/figures.toml")?;
    Ok(papers.papers)
}

/// The numbers of the papers that `rows` have something beside, as a table in Markdown.
///
/// # Errors
/// When `figures.toml` is not as this module reads it.
pub fn compared(rows: &[Row]) -> Result<String> {
    let mut lines = Vec::new();
    for paper in papers()? {
        for figure in &paper.figures {
            let comparisons = figure.comparisons.iter();
            for one in comparisons.filter(|one| one.value(rows).is_some()) {
                let name = format!("{} {}", paper.name, figure.number);
                lines.push([&[name], &one.texts(rows)[..]].concat());
            }
        }
    }
    let header = ["figure", "the paper says", "paper", "ours", "ratio"];
    Ok(table(&header, lines))
}

impl Figure {
    pub(crate) fn state(&self, rows: &[Row]) -> FigureState {
        if self.unmeasured.is_some() {
            return FigureState::Unmeasured;
        }
        let (simulated, measured): (Vec<&Selection>, _) =
            self.rows.iter().partition(|selection| selection.simulated);
        let has =
            |selections: Vec<&Selection>| selections.iter().any(|s| s.of(rows).next().is_some());
        if has(measured) {
            FigureState::Measured
        } else if has(simulated) {
            FigureState::Simulated
        } else {
            let mut names: Vec<_> = self.rows.iter().map(|rows| &*rows.experiment).collect();
            names.dedup();
            FigureState::NoRows(names.join(", "))
        }
    }

    /// The rows to draw, those of each selection apart; the row that is compared with a number of the paper's is against it.
    pub(crate) fn drawn(&self, rows: &[Row]) -> Vec<Vec<Row>> {
        let ours = self.comparisons.iter().filter_map(|one| {
            let ours = one.ours.as_ref().filter(|ours| ours.over.is_empty())?;
            Some((ours.value(rows)?.0, one.paper))
        });
        let papers: Vec<(&Row, f64)> = ours.collect();
        let against = |row: &Row| {
            let mut drawn = Row {
                reference: None,
                ratio: None,
                ..row.clone()
            };
            if let Some((_, paper)) = papers.iter().find(|(compared, _)| *compared == row) {
                drawn.against(*paper);
            }
            drawn
        };
        let selections = self.rows.iter();
        selections
            .map(|selection| selection.of(rows).map(against).collect())
            .collect()
    }
}

impl Comparison {
    /// Ours, where the rows have it.
    pub(crate) fn value(&self, rows: &[Row]) -> Option<f64> {
        Some(self.ours.as_ref()?.value(rows)?.1)
    }

    /// What the paper says, its number, ours and the ratio, as people read them.
    pub(crate) fn texts(&self, rows: &[Row]) -> [String; 4] {
        let unit = self.ours.as_ref().map_or("1", |ours| &ours.unit);
        let shown = |value: f64| match unit {
            "1" => format!("{} ×", digits(value)),
            unit => human(value, unit),
        };
        let value = self.value(rows);
        let ratio = value.map(|value| digits(value / self.paper));
        [
            self.says.clone(),
            shown(self.paper),
            value.map_or("–".to_owned(), shown),
            ratio.unwrap_or_default(),
        ]
    }
}

impl Ours {
    /// The value that is taken, and the row that it is of.
    fn value<'a>(&self, rows: &'a [Row]) -> Option<(&'a Row, f64)> {
        let selection = Selection {
            experiment: self.experiment.clone(),
            metric: self.metric.clone(),
            keep: [&*self.keep, &*self.of].concat(),
            without: Vec::new(),
            simulated: false,
        };
        let chosen = rows.iter().filter(|row| selection.has(row));
        let values = chosen.filter_map(|row| {
            if self.over.is_empty() {
                return (row.unit == self.unit).then_some((row, row.value));
            }
            let case = with_pairs(&row.case, &self.over);
            let other = rows
                .iter()
                .find(|other| selection.is_of(other) && other.case == case)?;
            (other.value > 0.0).then(|| (row, row.value / other.value))
        });
        let by_value = |a: &(&Row, f64), b: &(&Row, f64)| a.1.total_cmp(&b.1);
        match self.take {
            Take::Largest => values.max_by(by_value),
            Take::Least => values.min_by(by_value),
        }
    }
}

impl Selection {
    /// The rows, with those of their extremes.
    pub(crate) fn of<'a>(&'a self, rows: &'a [Row]) -> impl Iterator<Item = &'a Row> {
        rows.iter().filter(|row| {
            let rest = row.metric.strip_prefix(&self.metric);
            row.experiment == self.experiment
                && rest.is_some_and(|rest| ["", " min", " max"].contains(&rest))
                && self.keeps(&row.case)
        })
    }

    pub(crate) fn is_of(&self, row: &Row) -> bool {
        row.experiment == self.experiment && row.metric == self.metric
    }

    pub(crate) fn has(&self, row: &Row) -> bool {
        self.is_of(row) && self.keeps(&row.case)
    }

    fn keeps(&self, case: &str) -> bool {
        let is_there = |wanted: &String| {
            pairs(case).any(
                |pair| match (pair.split_once('='), wanted.split_once('=')) {
                    (Some((own, value)), Some((key, values))) => {
                        own == key && values.split('|').any(|wanted| wanted == value)
                    }
                    (Some((key, _)), None) => key == wanted,
                    (None, _) => pair == wanted,
                },
            )
        };
        self.keep.iter().all(is_there) && !self.without.iter().any(is_there)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::experiments::{Run, find};

    /// What HiPC'22, HPDC'23, the showcase, VeloC and ICPP'23 have, in this order.
    const FIGURES: [&[&str]; 5] = [
        &[
            "Figure 3a",
            "Figures 3b, 3c",
            "Figure 4a",
            "Figures 4b, 4c",
            "Figures 5a, 5b",
            "Figure 5c",
            "Figures 6a, 6b",
            "Figure 6c",
        ],
        &[
            "Figure 4",
            "Table 1",
            "Figure 5",
            "Figure 6",
            "Figure 7",
            "Figure 8a",
            "Figure 8b",
            "Figure 9",
        ],
        &[
            "Slide 16", "Slide 17", "Slide 18", "Slide 19", "Slide 20", "Slide 46",
        ],
        &[
            "Figure 3", "Figure 4", "Figure 5", "Figure 6", "Figure 7", "Figure 8",
        ],
        &["Figure 4", "Figure 5", "Figure 6"],
    ];

    #[test]
    fn every_figure_is_there_once_and_has_rows_or_a_reason() {
        let papers = papers().unwrap();
        let numbers: Vec<Vec<&str>> = papers
            .iter()
            .map(|paper| paper.figures.iter().map(|figure| &*figure.number).collect())
            .collect();
        assert_eq!(numbers, FIGURES);
        for figure in papers.iter().flat_map(|paper| &paper.figures) {
            let is_measured = figure.unmeasured.is_none();
            assert_eq!(figure.rows.is_empty(), !is_measured, "{}", figure.number);
            assert_eq!(figure.differs.is_empty(), !is_measured, "{}", figure.number);
        }
    }

    fn rows(json: &str) -> Vec<Row> {
        serde_json::from_str(json).unwrap()
    }

    /// The rows that are kept with the book.
    fn given() -> Vec<Row> {
        let h100 = include_str!("../../../docs/reports/h100-2026-11-23.json");
        let two_cores = include_str!("../../../docs/reports/2-cores-2026-11-23.json");
        [rows(h100), rows(two_cores)].concat()
    }

    #[test]
    fn experiments_exist_and_metrics_are_in_the_given_rows() {
        let given = given();
        let given: HashSet<_> = given
            .iter()
            .map(|row| (&*row.experiment, &*row.metric))
            .collect();
        for figure in papers().unwrap().iter().flat_map(|paper| &paper.figures) {
            let ours = figure
                .comparisons
                .iter()
                .filter_map(|one| one.ours.as_ref());
            let compared = ours.map(|ours| (&*ours.experiment, &*ours.metric));
            let drawn = figure
                .rows
                .iter()
                .map(|one| (&*one.experiment, &*one.metric));
            for one in drawn.chain(compared) {
                assert!(find(one.0).is_some(), "{}: {one:?}", figure.number);
                assert!(
                    given.contains(&one),
                    "{}: no row is of {one:?}",
                    figure.number
                );
            }
        }
    }

    #[test]
    fn the_books_table_is_what_the_given_rows_say() {
        let book = include_str!("../../../docs/measurements.md").replace("\r\n", "\n");
        let table = compared(&given()).unwrap();
        assert!(
            book.contains(&table),
            "docs/measurements.md has another table than\n{table}"
        );
    }

    /// Two blocking times at 1 and at 2 processes.
    fn blocking() -> Vec<Row> {
        let mut run = Run::new("alloc", false);
        for (case, value) in [
            ("strategy=old, processes=1", 6.0),
            ("strategy=old, processes=2", 30.0),
            ("strategy=new, processes=1", 2.0),
            ("strategy=new, processes=2", 3.0),
            ("strategy=old, processes=4", 99.0),
        ] {
            run.value(case, "blocking", "ns", value).unwrap();
        }
        run.into_rows()
    }

    fn figure(compare: &str) -> Figure {
        let text = format!(
            "number = 'Figure 1'\nshows = ''\naxes = ''\nrows = [{{ experiment = 'alloc', metric = 'blocking' }}]\n\
             [[compare]]\nsays = ''\npaper = 5\n\
             ours = {{ experiment = 'alloc', metric = 'blocking', {compare} }}"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_quotient_is_of_cases_that_differ_in_nothing_else() {
        let value = |compare: &str| figure(compare).comparisons[0].value(&blocking());
        let over = "of = ['strategy=old'], over = ['strategy=new']";
        assert_eq!(value(over), Some(10.0));
        assert_eq!(value(&format!("{over}, take = 'least'")), Some(3.0));
        assert_eq!(value(&format!("{over}, keep = ['processes=1']")), Some(3.0));
        assert_eq!(
            value("of = ['strategy=old'], over = ['strategy=none']"),
            None
        );
        // A plain value is of the unit that the paper's number has.
        assert_eq!(value("of = ['processes=2'], unit = 'ns'"), Some(30.0));
        assert_eq!(value("of = ['processes=2'], unit = 'bytes/s'"), None);
    }

    #[test]
    fn the_papers_number_stands_at_the_row_that_is_compared() {
        let figure = figure("of = ['strategy=new'], unit = 'ns'");
        let drawn = figure.drawn(&blocking()).concat();
        let against: Vec<_> = drawn.iter().filter(|row| row.reference.is_some()).collect();
        assert_eq!(against.len(), 1);
        assert_eq!(
            (&*against[0].case, against[0].ratio),
            ("strategy=new, processes=2", Some(0.6))
        );
        assert_eq!(figure.state(&blocking()), FigureState::Measured);
        assert_eq!(figure.state(&[]), FigureState::NoRows("alloc".into()));
    }

    #[test]
    fn the_index_has_every_figure_and_links_to_it() {
        let folder = tempfile::tempdir().unwrap();
        crate::report::write(folder.path(), &given(), &["a machine".into()]).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let index = read("index.html");
        let links: Vec<_> = index
            .split("href=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap())
            .collect();
        let figures: Vec<_> = links
            .iter()
            .filter_map(|link| link.split_once('#'))
            .collect();
        assert_eq!(figures.len(), FIGURES.concat().len());
        for (page, anchor) in figures {
            assert_eq!(
                read(page).matches(&format!("id=\"{anchor}\"")).count(),
                1,
                "{page}#{anchor}"
            );
        }
    }
}
