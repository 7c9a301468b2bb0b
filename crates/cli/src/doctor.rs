//! `tierflow doctor`: measures each path of this machine, reads the metrics of engines that ran on it, and says in sentences what limits
//! them.

mod machine;
mod prediction;
mod rules;
mod trace;

use crate::output::Output;
use anyhow::{Context, Result};
use clap::Args;
use machine::Machine;
use rules::{Finding, RULES};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use trace::Run;

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Directories and URLs of object stores in the order of the tiers, which are written to for a second or two each
    places: Vec<PathBuf>,
    /// A run: the file of `Engine::write_timeline`, or the text of `Metrics::open_metrics`. Several are the ranks of one
    /// job
    #[arg(long, value_name = "TRACE")]
    application: Vec<PathBuf>,
    /// Measure nothing, and take the machine from the answer of an earlier `tierflow --json doctor`
    #[arg(long, value_name = "JSON", conflicts_with = "places")]
    machine: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    machine: Machine,
    findings: Vec<Finding>,
}

/// The machine, and the runs of engines on it.
#[derive(Debug)]
pub(crate) struct Examined {
    machine: Machine,
    runs: Vec<Run>,
}

/// Examines the machine and runs. Exit code 1 if a fault is found.
pub(crate) fn doctor(arguments: &DoctorArguments, output: Output) -> Result<ExitCode> {
    let machine = match &arguments.machine {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            let mut answer: serde_json::Value = serde_json::from_str(&text)?;
            serde_json::from_value(answer["machine"].take()).with_context(|| {
                format!(
                    "{} is no answer of `tierflow --json doctor`",
                    path.display()
                )
            })?
        }
        None => {
            let waiting = output.waiting("measuring".to_owned());
            let machine = Machine::measure(&arguments.places)?;
            waiting.finish_and_clear();
            machine
        }
    };
    let runs = arguments.application.iter().map(|path| Run::read(path));
    let runs = runs.collect::<Result<_>>()?;
    let examined = Examined { machine, runs };
    let findings: Vec<Finding> = RULES
        .iter()
        .flat_map(|rule| rule.findings(&examined))
        .collect();
    let mut text = examined.machine.table();
    for finding in &findings {
        text += &format!("{}: {}\n", finding.fault, finding.says);
    }
    if findings.is_empty() {
        text += "nothing found\n";
    }
    let code = ExitCode::from(u8::from(!findings.is_empty()));
    let machine = examined.machine;
    output.answer(&Diagnosis { machine, findings }, &text)?;
    Ok(code)
}
