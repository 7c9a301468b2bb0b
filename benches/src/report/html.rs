//! The report's pages: `report.html` of all rows, `index.html` of the papers' figures, and a page for each paper. Each needs
//! nothing else.

use std::fmt::Write;

use anyhow::Result;

use super::Row;
use super::chart::{chart, escape};
use super::figures::{Comparison, Figure, FigureState, Paper};
use super::group::{Metric, sections};
use super::table::{HEADER, cells};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem}\
    table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.15rem .6rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}\
    .n{text-align:right;white-space:nowrap}svg{max-width:100%;height:auto}summary{cursor:pointer}\
    td[style]{background:linear-gradient(90deg,#cfe3f3 var(--part),transparent var(--part));min-width:9rem}";

/// A table with more values is closed at first.
const MOST_OPEN: usize = 12;

/// The index's tables have their columns below each other.
const INDEX_STYLE: &str = "<style>table{width:100%;table-layout:fixed}th{box-sizing:border-box}th:nth-child(1){width:10%}\
    th:nth-child(2){width:24%}th:nth-child(3){width:11%}th:nth-child(4){width:29%}th:nth-child(7){width:6%}</style>\n";

/// A cell: its text, whether it is a number, and how much of it a bar fills.
struct HtmlCell(String, bool, Option<f64>);

fn text(text: &str) -> HtmlCell {
    HtmlCell(escape(text), false, None)
}

fn number(text: String) -> HtmlCell {
    HtmlCell(escape(&text), true, None)
}

/// All rows: for each metric a chart where its cases are numbers, and a table.
///
/// # Errors
/// When a chart cannot be drawn.
pub(crate) fn all_rows(rows: &[Row], facts: &[String]) -> Result<String> {
    let mut body = rows_of(rows)?;
    body.insert_str(0, "<p><a href=\"index.html\">The papers' figures</a></p>\n");
    Ok(document("Tierflow: all rows", facts, &body))
}

/// Every figure of every paper with its state, the paper's number and ours.
pub(crate) fn index(papers: &[Paper], rows: &[Row], facts: &[String]) -> String {
    let mut body = INDEX_STYLE.to_owned();
    let all = papers.iter().flat_map(|paper| &paper.figures);
    let states: Vec<FigureState> = all.map(|figure| figure.state(rows)).collect();
    let count = |is: fn(&FigureState) -> bool| states.iter().filter(|state| is(state)).count();
    let measured = count(|state| *state == FigureState::Measured);
    let simulated = count(|state| *state == FigureState::Simulated);
    let without = count(|state| *state == FigureState::Unmeasured);
    let _ = writeln!(
        body,
        "<p>{} figures, tables and slides: {measured} measured, {simulated} simulated, {without} that no experiment has, {} without \
         rows in this report. A figure is counted once for each x-axis or set of curves. \
         <a href=\"report.html\">All rows</a>, as <a href=\"report.json\">JSON</a>.</p>\n\
         <p>The papers' numbers are those of their text. The ratio is ours over the paper's: of a quotient, more than 1 says \
         that we gain more than the paper does.</p>",
        states.len(),
        states.len() - measured - simulated - without,
    );
    for paper in papers {
        let lines = paper.figures.iter().map(|figure| {
            let link = format!(
                "<a href=\"{}#{}\">{}</a>",
                file(paper),
                anchor(figure),
                escape(&figure.number)
            );
            let head = [
                HtmlCell(link, false, None),
                text(&figure.shows),
                text(&said(figure, rows)),
            ];
            let first = compared(figure.comparisons.first(), rows);
            head.into_iter().chain(first).collect()
        });
        let _ = writeln!(
            body,
            "<h2><a href=\"{}\">{}</a></h2>\n<p>{}</p>",
            file(paper),
            escape(&paper.name),
            escape(&paper.title)
        );
        body += &table(
            &[
                "",
                "what it shows",
                "state",
                "the paper says",
                "paper",
                "ours",
                "ratio",
            ],
            lines,
        );
    }
    document("Tierflow: the papers' figures", facts, &body)
}

/// One paper's figures: its numbers beside ours, and our rows.
///
/// # Errors
/// When a chart cannot be drawn.
pub(crate) fn paper(paper: &Paper, rows: &[Row], facts: &[String]) -> Result<String> {
    let mut body = format!(
        "<p><a href=\"index.html\">All papers</a></p>\n<p>{}</p>\n<p>The paper's machine: {}. A cross in a chart is a number of the paper's.</p>\n",
        escape(&paper.title),
        escape(&paper.machine)
    );
    for figure in &paper.figures {
        let _ = writeln!(
            body,
            "<h2 id=\"{}\">{}: {}</h2>\n<p>Axes: {}. State: {}. {}</p>",
            anchor(figure),
            escape(&figure.number),
            escape(&figure.shows),
            escape(&figure.axes),
            said(figure, rows),
            escape(figure.unmeasured.as_ref().unwrap_or(&figure.differs)),
        );
        if !figure.comparisons.is_empty() {
            let lines = figure
                .comparisons
                .iter()
                .map(|one| compared(Some(one), rows));
            body += &table(
                &["the paper says", "paper", "ours", "ratio"],
                lines.map(Vec::from),
            );
        }
        for drawn in figure.drawn(rows) {
            body += &rows_of(&drawn)?;
        }
    }
    Ok(document(
        &format!("Tierflow beside {}", paper.name),
        facts,
        &body,
    ))
}

/// The file of a paper's page.
pub(crate) fn file(paper: &Paper) -> String {
    format!("{}.html", slug(&paper.name))
}

/// A figure's state, and that none of its numbers has one of ours beside it where that is so.
fn said(figure: &Figure, rows: &[Row]) -> String {
    let state = figure.state(rows);
    let is_compared = figure
        .comparisons
        .iter()
        .any(|one| one.value(rows).is_some());
    let has_rows = matches!(state, FigureState::Measured | FigureState::Simulated);
    if has_rows && !is_compared && !figure.comparisons.is_empty() {
        format!("{state}, not compared")
    } else {
        state.to_string()
    }
}

fn anchor(figure: &Figure) -> String {
    slug(&figure.number)
}

fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join("-").to_lowercase()
}

fn compared(one: Option<&Comparison>, rows: &[Row]) -> [HtmlCell; 4] {
    let Some(one) = one else {
        let none = || number(String::new());
        return [text("no number"), none(), none(), none()];
    };
    let [says, paper, ours, ratio] = one.texts(rows);
    [text(&says), number(paper), number(ours), number(ratio)]
}

/// For each metric a chart, where its cases are numbers, and a table: closed where it is long or the chart says the same.
fn rows_of(rows: &[Row]) -> Result<String> {
    let mut body = String::new();
    for section in sections(rows) {
        for metric in &section.metrics {
            let (experiment, name) = (escape(section.experiment), escape(metric.name));
            let _ = writeln!(body, "<h3>{experiment}: {name}</h3>");
            let chart = chart(metric)?;
            let (values, count) = (values(metric), metric.points.len());
            if chart.is_some() || count > MOST_OPEN {
                let summary = format!("<summary>{count} values</summary>");
                let _ = writeln!(
                    body,
                    "{}<details>{summary}{values}</details>",
                    chart.unwrap_or_default()
                );
            } else {
                body += &values;
            }
        }
    }
    Ok(body)
}

/// The points of a metric, a bar behind each value.
fn values(metric: &Metric<'_>) -> String {
    const METRIC: usize = 1;
    const VALUE: usize = 2;
    let lines: Vec<[String; 6]> = metric
        .points
        .iter()
        .map(|point| cells(metric, point))
        .collect();
    let is_shown = |at: &usize| *at != METRIC && lines.iter().any(|line| !line[*at].is_empty());
    let columns: Vec<usize> = (0..HEADER.len()).filter(is_shown).collect();
    let most = metric
        .points
        .iter()
        .map(|point| point.row.value)
        .fold(0.0, f64::max);
    let header: Vec<_> = columns.iter().map(|at| HEADER[*at]).collect();
    let lines = metric.points.iter().zip(&lines).map(|(point, line)| {
        let part = (most > 0.0).then(|| point.row.value.max(0.0) / most);
        let cell = |at: &usize| {
            HtmlCell(
                escape(&line[*at]),
                *at > METRIC,
                part.filter(|_| *at == VALUE),
            )
        };
        columns.iter().map(cell).collect()
    });
    table(&header, lines)
}

fn table(header: &[&str], lines: impl Iterator<Item = Vec<HtmlCell>>) -> String {
    let class = |is_number: bool| if is_number { " class=\"n\"" } else { "" };
    let mut table = String::from("<table>\n");
    for (at, line) in lines.enumerate() {
        if at == 0 {
            let names = header.iter().zip(&line);
            let names = names.map(|(name, cell)| format!("<th{}>{name}</th>", class(cell.1)));
            let _ = writeln!(table, "<tr>{}</tr>", names.collect::<String>());
        }
        table += "<tr>";
        for HtmlCell(text, is_number, bar) in line {
            let bar = bar.map(|part| format!(" style=\"--part:{:.1}%\"", part * 100.0));
            let (class, bar) = (class(is_number), bar.unwrap_or_default());
            let _ = write!(table, "<td{class}{bar}>{text}</td>");
        }
        table += "</tr>\n";
    }
    table + "</table>\n"
}

fn document(title: &str, facts: &[String], body: &str) -> String {
    let (title, facts) = (escape(title), escape(&facts.join(" · ")));
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\n<style>{STYLE}</style>\n\
         <h1>{title}</h1>\n<p>Our rows are from: {facts}.</p>\n{body}</html>\n"
    )
}
