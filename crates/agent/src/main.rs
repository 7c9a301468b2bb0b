//! The program `tierflow-agent`. See the README, or `tierflow-agent --help`.
#![forbid(unsafe_code)]

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tierflow_agent::{Settings, serve};

/// Brings checkpoints from a node to external storage.
#[derive(Debug, Parser)]
#[command(name = "tierflow-agent", version)]
struct Arguments {
    /// The scratch directory in which applications find the agent
    #[arg(required_unless_present = "print")]
    scratch: Option<PathBuf>,
    /// The most threads that bring pieces at a time
    #[arg(long, default_value_t = Settings::default().most_threads)]
    threads: usize,
    /// Seconds after which a piece that is not brought counts as hanging
    #[arg(long, default_value_t = Settings::default().patience.as_secs())]
    patience: u64,
    /// End when there was nothing to do for so many seconds
    #[arg(long)]
    exit_when_idle: Option<u64>,
    /// Write the manual page, or the completions of a shell, and end
    #[arg(long, exclusive = true)]
    print: Option<Text>,
}

/// A text that packages of the program carry.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Text {
    Manual,
    Bash,
    Fish,
    Zsh,
}

impl Text {
    fn print(self) -> std::io::Result<()> {
        let mut program = Arguments::command();
        let name = "tierflow-agent";
        let mut text = Vec::new();
        let shell = match self {
            Self::Manual => None,
            Self::Bash => Some(Shell::Bash),
            Self::Fish => Some(Shell::Fish),
            Self::Zsh => Some(Shell::Zsh),
        };
        match shell {
            // Section 8 has services. The page of `tierflow agent` is in section 1.
            None => Man::new(program).section("8").render(&mut text)?,
            Some(shell) => clap_complete::generate(shell, &mut program, name, &mut text),
        }
        std::io::stdout().write_all(&text)
    }
}

/// Serves a directory until the agent is told to end, or idle; or prints a text.
fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let Some(scratch) = arguments.scratch else {
        return Ok(arguments.print.map_or(Ok(()), Text::print)?);
    };
    // The agent leaves the session of the process that started it, so that it does not end with that session. A group's leader cannot leave.
    let _already_apart = rustix::process::setsid();
    let settings = Settings {
        most_threads: arguments.threads,
        patience: Duration::from_secs(arguments.patience),
        idle: arguments.exit_when_idle.map(Duration::from_secs),
    };
    Ok(serve(&scratch, settings)?)
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tierflow-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
