//! Criterion's results as rows.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Row;

/// Returns the rows of every bench that criterion kept under `home`, sorted by its path; none when there is no such folder.
///
/// A bench has the metric `time`, the median of one iteration in ns, whose `min` and `max` are the ends of
/// its confidence interval. Where it states its throughput, `bandwidth` in bytes/s or
/// `time per element` in ns follows.
///
/// # Errors
/// When a file cannot be read or is not as criterion writes it.
pub fn rows(home: &Path) -> Result<Vec<Row>> {
    let mut found = Vec::new();
    if home.exists() {
        collect(home, &mut found)?;
    }
    found.sort();
    let mut rows = Vec::new();
    for folder in found {
        let (bench, estimates) = ("benchmark.json", "estimates.json");
        let named = || folder.display().to_string();
        let found = bench_rows(&read(&folder.join(bench))?, &read(&folder.join(estimates))?);
        rows.extend(found.with_context(named)?);
    }
    Ok(rows)
}

/// Returns the rows of a bench by its names and its estimates in nanoseconds; `None` if one lacks.
fn bench_rows(bench: &Value, estimates: &Value) -> Option<Vec<Row>> {
    let group = bench["group_id"].as_str()?;
    let named = [("function", "function_id"), ("n", "value_str")];
    let pairs = named
        .into_iter()
        .filter_map(|(key, field)| match bench[field].as_str()? {
            value if value.contains('=') => Some(value.to_owned()),
            value => Some(format!("{key}={value}")),
        });
    let pairs: Vec<_> = pairs.collect();
    let case = if pairs.is_empty() {
        group.to_owned()
    } else {
        pairs.join(", ")
    };
    let median = &estimates["median"];
    let interval = &median["confidence_interval"];
    let time = median["point_estimate"].as_f64()?;
    let does = |what: &str| bench["throughput"][what].as_f64();
    let bytes = does("Bytes").or_else(|| does("BytesDecimal"));
    let each = does("Elements").map(|elements| time / elements);
    let values = [
        ("time", Some(time), "ns"),
        ("time min", Some(interval["lower_bound"].as_f64()?), "ns"),
        ("time max", Some(interval["upper_bound"].as_f64()?), "ns"),
        (
            "bandwidth",
            bytes.map(|bytes| bytes * 1e9 / time),
            "bytes/s",
        ),
        ("time per element", each, "ns"),
    ];
    let row = |(metric, value, unit): (&str, Option<f64>, &str)| {
        Some(Row {
            experiment: format!("bench/{group}"),
            case: case.clone(),
            metric: metric.to_owned(),
            value: value.filter(|value| value.is_finite())?,
            unit: unit.to_owned(),
            reference: None,
            ratio: None,
            origin: None,
        })
    };
    Some(values.into_iter().filter_map(row).collect())
}

/// Criterion keeps the latest measurement of a bench in its folder `new`.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let name = || folder.display().to_string();
    for entry in std::fs::read_dir(folder).with_context(name)? {
        let path = entry?.path();
        if path.ends_with("new") && path.join("benchmark.json").is_file() {
            found.push(path);
        } else if path.is_dir() {
            collect(&path, found)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Value> {
    let json = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&json).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(home: &Path, bench: &str, n: u32, ns: f64) {
        let folder = home
            .join("evict")
            .join(bench)
            .join(n.to_string())
            .join("new");
        std::fs::create_dir_all(&folder).unwrap();
        let id = serde_json::json!({
            "group_id": "evict", "function_id": bench, "value_str": n.to_string(),
            "throughput": { "Elements": n }, "full_id": "", "directory_name": "", "title": "",
        });
        let estimate = serde_json::json!({
            "confidence_interval": {
                "confidence_level": 0.95, "lower_bound": ns - 1.0, "upper_bound": ns + 1.0
            },
            "point_estimate": ns, "standard_error": 0.1,
        });
        std::fs::write(folder.join("benchmark.json"), id.to_string()).unwrap();
        let estimates = serde_json::json!({ "mean": estimate, "median": estimate, "slope": null });
        std::fs::write(folder.join("estimates.json"), estimates.to_string()).unwrap();
    }

    #[test]
    fn a_bench_becomes_rows_with_the_time_of_one_element() {
        let home = tempfile::tempdir().unwrap();
        for n in [1024, 16] {
            write(home.path(), "score", n, f64::from(n) * 1.5);
        }
        let rows = rows(home.path()).unwrap();
        let each: Vec<_> = rows
            .iter()
            .filter(|row| row.metric == "time per element")
            .map(|row| (row.experiment.as_str(), row.case.as_str(), row.value))
            .collect();
        assert_eq!(
            each,
            [
                ("bench/evict", "function=score, n=1024", 1.5),
                ("bench/evict", "function=score, n=16", 1.5)
            ]
        );
        assert_eq!(rows.len(), 8);
    }

    #[test]
    fn nothing_measured_is_no_error() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(rows(&home.path().join("none")).unwrap(), []);
    }
}
