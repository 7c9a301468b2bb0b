//! The program `tierflow-agent`. See the README, or `tierflow-agent --help`.
#![forbid(unsafe_code)]

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tierflow_agent::{Settings, serve};

/// Brings checkpoints from a node to external storage.
#[derive(Debug, Parser)]
#[command(name = "tierflow-agent", version)]
struct Arguments {
    /// The scratch directory in which applications find the agent
    scratch: PathBuf,
    /// The most threads that bring pieces at a time
    #[arg(long, default_value_t = Settings::default().most_threads)]
    threads: usize,
    /// Seconds after which a piece that is not brought counts as hanging
    #[arg(long, default_value_t = Settings::default().patience.as_secs())]
    patience: u64,
    /// End when there was nothing to do for so many seconds
    #[arg(long)]
    exit_when_idle: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Leaves the session of the process that started it, so that it does not end with that. A group's leader cannot leave.
    let _already_apart = rustix::process::setsid();
    let settings = Settings {
        most_threads: arguments.threads,
        patience: Duration::from_secs(arguments.patience),
        idle: arguments.exit_when_idle.map(Duration::from_secs),
    };
    match serve(&arguments.scratch, settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tierflow-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
