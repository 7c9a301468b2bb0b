//! `report.html`: one page that needs nothing else.

use super::Row;
use super::chart::chart;
use super::group::sections;
use super::table::{cells, header};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2rem auto;padding:0 1rem}\
    table{border-collapse:collapse}td,th{padding:.15rem .8rem;border-bottom:1px solid #ddd;text-align:right}\
    td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}svg{font:12px system-ui,sans-serif;max-width:100%}";

/// The page of `rows`, with the facts of the machine at its head.
pub(crate) fn page(rows: &[Row], facts: &[String]) -> String {
    let mut body = format!(
        "<h1>Tierflow: measurements</h1>\n<p>{}</p>\n",
        escape(&facts.join(" · "))
    );
    body += "<p>Thin lines span the smallest and the largest measurement. What a value is compared with is a \
             red mark beside a bar and a dashed line beside a line.</p>\n";
    for section in sections(rows) {
        body += &format!("<h2>{}</h2>\n", escape(section.experiment));
        for metric in &section.metrics {
            body += &format!("<h3>{}</h3>\n{}", escape(metric.name), chart(metric));
        }
        body += &line("th", &header().map(str::to_owned)).replace("<tr>", "<table><tr>");
        for metric in &section.metrics {
            body.extend(
                metric
                    .points
                    .iter()
                    .map(|point| line("td", &cells(metric, point))),
            );
        }
        body += "</table>\n";
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Tierflow: measurements</title>\n\
         <style>{STYLE}</style>\n{body}</html>\n"
    )
}

fn line(tag: &str, cells: &[String]) -> String {
    let cells: String = cells
        .iter()
        .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
        .collect();
    format!("<tr>{cells}</tr>\n")
}

/// `text` as it may stand in HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
