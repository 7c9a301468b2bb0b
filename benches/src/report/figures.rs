//! The papers' figures, tables and slides, each beside the rows of ours that show the same: `benches/figures.toml`.
//! docs/src/report.md describes it.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Row;
use super::query::{Metric, Query};
use super::tables::{Table, table};
use super::units::{digits, human};

/// The file `figures.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    #[serde(rename = "paper")]
    pub(crate) papers: Vec<Paper>,
    /// Tables of Markdown files, by name.
    pub(crate) tables: BTreeMap<String, Table>,
}

/// A paper, or a talk.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paper {
    /// The conference and the year.
    pub(crate) name: String,
    pub(crate) title: String,
    /// The machine that the paper measured, and at which size.
    pub(crate) machine: String,
    #[serde(rename = "figure", skip_serializing)]
    pub(crate) figures: Vec<Figure>,
}

/// A figure, a part of one, a table or a slide.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) number: String,
    pub(crate) shows: String,
    /// The axes: across; up.
    pub(crate) axes: String,
    /// The differences between the paper's measurement and ours.
    #[serde(default)]
    pub(crate) differs: String,
    /// The reason why we have no rows for it.
    pub(crate) unmeasured: Option<String>,
    /// The rows of ours that are drawn.
    #[serde(default, skip_serializing)]
    pub(crate) rows: Vec<Query>,
    #[serde(default, rename = "compare", skip_serializing)]
    pub(crate) comparisons: Vec<Comparison>,
}

/// A number of the paper's prose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Comparison {
    /// The paper's sentence, and its place.
    pub(crate) says: String,
    pub(crate) paper: f64,
    /// The unit of both numbers; a quotient has none.
    #[serde(default)]
    pub(crate) unit: Option<String>,
    /// The same of ours, where there is something.
    pub(crate) ours: Option<Query>,
}

/// Reads `figures.toml`.
///
/// # Errors
/// When the file is not as this module reads it.
pub(crate) fn read() -> Result<Figures> {
    toml::from_str(include_str!("../../figures.toml")).context("benches/figures.toml")
}

/// Returns the numbers of the papers that `rows` have something beside, as a table in Markdown.
///
/// # Errors
/// When `figures.toml` is not as this module reads it.
pub fn compared(rows: &[Row]) -> Result<String> {
    let mut lines = Vec::new();
    for paper in read()?.papers {
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
    /// Returns `measured` or `simulated` where the report has rows of the figure, else why it has none.
    pub(crate) fn state(&self, rows: &[Row]) -> String {
        let has = |simulated: bool| {
            let mut queries = self
                .rows
                .iter()
                .filter(|query| query.simulated == simulated);
            queries.any(|query| !query.metrics(rows).is_empty())
        };
        if self.unmeasured.is_some() {
            "not measured".to_owned()
        } else if has(false) {
            "measured".to_owned()
        } else if has(true) {
            "simulated".to_owned()
        } else {
            let mut names: Vec<_> = self.rows.iter().map(|rows| &*rows.experiment).collect();
            names.dedup();
            format!("no rows of {}", names.join(", "))
        }
    }

    /// Returns the metrics to draw. A row that is compared with a number of the paper's has that number as its reference.
    pub(crate) fn drawn<'a>(&self, rows: &'a [Row]) -> Vec<Metric<'a>> {
        let ours = self.comparisons.iter().filter_map(|one| {
            let ours = one.ours.as_ref().filter(|ours| ours.over.is_empty())?;
            Some((ours.taken(rows)?.0, one.paper))
        });
        let papers: Vec<(&Row, f64)> = ours.collect();
        let mut drawn: Vec<_> = self
            .rows
            .iter()
            .flat_map(|query| query.metrics(rows))
            .collect();
        for point in drawn.iter_mut().flat_map(|metric| &mut metric.points) {
            let paper = papers.iter().find(|(compared, _)| *compared == point.row);
            point.reference = paper.map(|(_, paper)| *paper);
        }
        drawn
    }
}

impl Comparison {
    /// Returns ours, where the rows have it in the paper's unit.
    pub(crate) fn value(&self, rows: &[Row]) -> Option<f64> {
        let ours = self.ours.as_ref()?;
        let (row, value) = ours.taken(rows)?;
        let is_alike = !ours.over.is_empty() || row.unit == self.unit();
        is_alike.then_some(value)
    }

    fn unit(&self) -> &str {
        self.unit.as_deref().unwrap_or("1")
    }

    /// Returns the paper's sentence, its number, ours and the ratio, as people read them.
    pub(crate) fn texts(&self, rows: &[Row]) -> [String; 4] {
        let shown = |value: f64| match self.unit() {
            "1" => format!("{} ×", digits(value)),
            unit => human(value, unit),
        };
        let value = self.value(rows);
        [
            self.says.clone(),
            shown(self.paper),
            value.map_or("–".to_owned(), shown),
            value.map_or_else(String::new, |value| digits(value / self.paper)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::experiments::{Run, find};

    /// The figures of HiPC'22, HPDC'23, the showcase, VeloC and ICPP'23, in this order.
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
        let papers = read().unwrap().papers;
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
        for figure in read()
            .unwrap()
            .papers
            .iter()
            .flat_map(|paper| &paper.figures)
        {
            let ours = figure
                .comparisons
                .iter()
                .filter_map(|one| one.ours.as_ref());
            let named = |query: &Query| {
                let [metric] = &query.metrics[..] else {
                    panic!("{}: one metric, not {query:?}", figure.number);
                };
                (query.experiment.clone(), metric.clone())
            };
            for one in figure.rows.iter().chain(ours).map(named) {
                let one = (&*one.0, &*one.1);
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

    fn figure(compare: &str, unit: &str) -> Figure {
        let text = format!(
            "number = 'Figure 1'\nshows = ''\naxes = ''\nrows = [{{ experiment = 'alloc', metrics = ['blocking'] }}]\n\
             [[compare]]\nsays = ''\npaper = 5\nunit = '{unit}'\n\
             ours = {{ experiment = 'alloc', metrics = ['blocking'], {compare} }}"
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_quotient_is_of_cases_that_differ_in_nothing_else() {
        let value = |compare: &str| figure(compare, "ns").comparisons[0].value(&blocking());
        let over = "keep = ['strategy=old'], over = ['strategy=new']";
        assert_eq!(value(over), Some(10.0));
        assert_eq!(value(&format!("{over}, take = 'least'")), Some(3.0));
        let at_one = over.replace("old']", "old', 'processes=1']");
        assert_eq!(value(&at_one), Some(3.0));
        assert_eq!(
            value("keep = ['strategy=old'], over = ['strategy=none']"),
            None
        );
        // A plain value is of the unit that the paper's number has.
        let plain = "keep = ['processes=2']";
        assert_eq!(value(plain), Some(30.0));
        assert_eq!(
            figure(plain, "bytes/s").comparisons[0].value(&blocking()),
            None
        );
    }

    #[test]
    fn the_papers_number_stands_at_the_row_that_is_compared() {
        let figure = figure("keep = ['strategy=new']", "ns");
        let rows = blocking();
        let drawn = figure.drawn(&rows);
        let points = drawn.iter().flat_map(|metric| &metric.points);
        let against: Vec<_> = points
            .filter_map(|point| Some((&*point.row.case, point.reference?)))
            .collect();
        assert_eq!(against, [("strategy=new, processes=2", 5.0)]);
        assert_eq!(figure.state(&rows), "measured");
        assert_eq!(figure.state(&[]), "no rows of alloc");
    }

    #[test]
    fn the_index_has_every_figure_and_links_to_it() {
        let folder = tempfile::tempdir().unwrap();
        crate::report::write(folder.path(), &given(), &["a machine".into()]).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let index = read("index.html");
        let links = index
            .split("href=\"#")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap());
        let anchors: Vec<_> = links.collect();
        assert_eq!(anchors.len(), FIGURES.concat().len());
        for anchor in anchors {
            assert_eq!(
                index.matches(&format!("id=\"{anchor}\"")).count(),
                1,
                "{anchor}"
            );
        }
    }
}
