//! The command `tierflow`. See the README, or `tierflow --help`.
#![forbid(unsafe_code)]

mod agent;
mod calibrate;
mod compare;
mod contents;
mod copy;
mod doctor;
mod export;
mod manual;
mod names;
mod output;
mod prune;
mod redundancy;
mod remove;
mod show;
mod tree;
mod verify;
mod versions;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use output::Output;
use std::path::PathBuf;
use std::process::ExitCode;

/// Lists, checks, compares, exports, copies and prunes checkpoints.
#[derive(Debug, Parser)]
#[command(name = "tierflow", version, arg_required_else_help = true)]
struct Cli {
    /// Answer with one JSON value
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the whole versions, and what is known to be damaged; of a node's directory with redundancy, what is protected
    List {
        /// The directory of versions, one above it, or the URL of an object store: s3://bucket/prefix
        directory: PathBuf,
    },
    /// Show what a version consists of
    Show(show::ShowArguments),
    /// Read everything and check every checksum; exit code 1 if something is damaged
    Verify(verify::VerifyArguments),
    /// Find where two histories, or two versions, differ, and how far; exit code 1 if they do
    Compare(compare::CompareArguments),
    /// Write regions to files
    Export(export::ExportArguments),
    /// Remove versions that no rule keeps; of those that stay, at least one is read, and its checksums match
    Prune(prune::PruneArguments),
    /// Give up versions by their numbers
    Remove(remove::RemoveArguments),
    /// Copy versions to another directory or object store, with their checksums, which are checked
    Copy(copy::CopyArguments),
    /// Measure how fast a directory's disk is, by the number of writers
    Calibrate(calibrate::CalibrateArguments),
    /// Measure every path of this machine, and say what limits the engines that ran on it; exit code 1 if something is found
    Doctor(doctor::DoctorArguments),
    /// Rebuild what lost nodes had of versions that other nodes protect, without the application; exit code 1 if something is lost
    Rebuild(redundancy::RebuildArguments),
    /// Bring checkpoints from this node to external storage, or ask the agent that does
    Agent(agent::AgentArguments),
    /// Write a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page, in the form that `man` reads
    Manual,
}

/// Lets a write beyond the limit of a file's size fail, as a write to a full disk does. By default, a signal ends the process.
fn survive_limits() {
    let was_signalled = std::sync::Arc::default();
    // If the handler cannot be registered, the system's default stays.
    let _registered = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, was_signalled);
}

fn main() -> ExitCode {
    survive_limits();
    let cli = Cli::parse();
    let output = Output::new(cli.json);
    match run(cli.command, output) {
        Ok(code) => code,
        Err(error) => {
            output.error(&error);
            ExitCode::from(2)
        }
    }
}

fn run(action: Action, output: Output) -> Result<ExitCode> {
    match action {
        Action::List { directory } => show::list(&directory, output)?,
        Action::Show(arguments) => show::show(&arguments, output)?,
        Action::Verify(arguments) => return verify::verify(&arguments, output),
        Action::Compare(arguments) => return compare::compare(&arguments, output),
        Action::Export(arguments) => export::export(&arguments, output)?,
        Action::Prune(arguments) => prune::prune(&arguments, output)?,
        Action::Remove(arguments) => remove::remove(&arguments, output)?,
        Action::Copy(arguments) => copy::copy(&arguments, output)?,
        Action::Calibrate(arguments) => calibrate::calibrate(&arguments, output)?,
        Action::Doctor(arguments) => return doctor::doctor(&arguments, output),
        Action::Rebuild(arguments) => return redundancy::rebuild(&arguments, output),
        Action::Agent(arguments) => agent::agent(&arguments, output)?,
        Action::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tierflow", &mut script);
            output.raw(&script)?;
        }
        Action::Manual => output.raw(&manual::page(Cli::command())?)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
