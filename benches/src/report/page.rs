//! The report for readers: the page `index.html`, and a table for the terminal.

use std::path::Path;

use anyhow::{Context, Result};
use minijinja::{Environment, Value, context};

use super::chart::chart;
use super::figures::{Figure, markdown, read};
use super::units::{digits, human};
use super::{Row, write_rows};

/// Writes `report.json` and `index.html` into `folder`. The page repeats `facts`, such as the machine of the rows, and that they are of a
/// quick run.
///
/// # Errors
/// An error if a file cannot be written.
pub fn write(folder: &Path, rows: &[Row], facts: &[String]) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    write_rows(&folder.join("report.json"), rows)?;
    let path = folder.join("index.html");
    std::fs::write(&path, page(rows, facts)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn page(rows: &[Row], facts: &[String]) -> Result<String> {
    let figures = read()?;
    let drawn = |of: &str, figures: &[Figure]| -> Vec<Value> {
        let figures = figures.iter().map(|figure| {
            let claims = figure.claims.iter().map(|claim| claim.judge(rows));
            let claims: Vec<_> = claims.map(Value::from_serialize).collect();
            let charts = figure.rows.iter().filter_map(|query| chart(query, rows));
            let charts: Vec<_> = charts.map(Value::from_serialize).collect();
            let anchor = format!("{of} {}", figure.number).replace([' ', ',', '\''], "-");
            context! { claims, charts, anchor, ..Value::from_serialize(figure) }
        });
        figures.collect()
    };
    let papers = figures.papers.iter().map(|paper| {
        let figures = drawn(&paper.name, &paper.figures);
        context! { figures, ..Value::from_serialize(paper) }
    });
    let papers: Vec<_> = papers.collect();
    let pictures = drawn("own", &figures.pictures);
    let mut experiments: Vec<(&str, Vec<[String; 6]>)> = Vec::new();
    for row in rows {
        let line = cells(row);
        match experiments
            .iter_mut()
            .find(|(name, _)| *name == row.experiment)
        {
            Some((_, lines)) => lines.push(line),
            None => experiments.push((&row.experiment, vec![line])),
        }
    }
    let mut environment = Environment::new();
    environment.add_template("index.html", include_str!("index.html"))?;
    let template = environment.get_template("index.html")?;
    Ok(template.render(context! { facts, papers, pictures, experiments })?)
}

/// Returns case, metric, value, reference, ratio and origin of a row.
fn cells(row: &Row) -> [String; 6] {
    let reference = row.reference.map(|value| human(value, &row.unit));
    let ratio = row.ratio.map(digits);
    let origin = row.origin.clone().unwrap_or_default();
    let value = human(row.value, &row.unit);
    [
        row.case.clone(),
        row.metric.clone(),
        value,
        reference.unwrap_or_default(),
        ratio.unwrap_or_default(),
        origin,
    ]
}

/// Returns all rows as a table for the terminal.
pub fn table(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| {
        let [case, metric, value, reference, ratio, _] = cells(row);
        [
            row.experiment.clone(),
            case,
            metric,
            value,
            reference,
            ratio,
        ]
    });
    markdown(
        &[
            "experiment",
            "case",
            "metric",
            "value",
            "reference",
            "ratio",
        ],
        lines,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::Run;

    #[test]
    fn the_page_has_every_figure_once_with_its_claims_and_all_rows() {
        let mut run = Run::new("placement", false);
        for (strategy, ns) in [("greedy", 2e7), ("min-time-max-flow", 6.7e6)] {
            let case = format!("example=slide 46, strategy={strategy}");
            run.value(&case, "predicted blocking time", "ns", ns)
                .unwrap();
        }
        let mut rows = run.into_rows();
        let mut run = Run::new("inversion", false);
        for (n, misfit) in [1.0, 0.5].into_iter().enumerate() {
            let case = format!("run=as it is, iteration={n}");
            run.value(&case, "misfit", "1", misfit).unwrap();
        }
        rows.extend(run.into_rows());
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &rows, &["a <machine>".into()]).unwrap();
        let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
        assert!(page.contains("a &lt;machine&gt;"));
        assert!(page.contains("strategy=greedy<td>predicted blocking time"));
        assert!(page.contains("<rect"), "the example is drawn in bars");
        let curves = page.matches("<polyline").count();
        assert_eq!(curves, 1, "the inversion is drawn as a line");
        for figure in read()
            .unwrap()
            .papers
            .iter()
            .flat_map(|paper| &paper.figures)
        {
            assert!(
                page.contains(&format!("{}: ", figure.number)),
                "{}",
                figure.number
            );
        }
        let anchors: Vec<_> = page
            .split("href=\"#")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert!(
            anchors
                .iter()
                .all(|anchor| page.matches(&format!("id=\"{anchor}\"")).count() == 1)
        );
    }
}
