//! `tierflow agent`.

use crate::output::Output;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;
use tierflow_agent::protocol::Status;
use tierflow_agent::{Client, Settings, serve};

#[derive(Debug, Args)]
pub(crate) struct AgentArguments {
    /// The scratch directory in which applications find the agent
    scratch: PathBuf,
    /// Ask the running agent how it is doing
    #[arg(long, conflicts_with = "stop")]
    status: bool,
    /// Let the running agent bring what is there, and end
    #[arg(long)]
    stop: bool,
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

#[derive(Debug, Serialize)]
struct Stopped {
    stopped: bool,
}

pub(crate) fn agent(arguments: &AgentArguments, output: Output) -> Result<()> {
    if arguments.status {
        let status = Client::connect(&arguments.scratch)?.status()?;
        return output.answer(&status, &text(&status)?);
    }
    if arguments.stop {
        Client::connect(&arguments.scratch)?.stop()?;
        let stopped = Stopped { stopped: true };
        return output.answer(&stopped, "it ends when it has brought what is there\n");
    }
    let settings = Settings {
        most_threads: arguments.threads,
        patience: Duration::from_secs(arguments.patience),
        idle: arguments.exit_when_idle.map(Duration::from_secs),
    };
    Ok(serve(&arguments.scratch, settings)?)
}

fn text(status: &Status) -> Result<String> {
    let Status {
        process,
        threads,
        routes,
    } = status;
    let mut text = format!("process {process}, {threads} thread(s) at work\n");
    for on in routes {
        let route = &on.route;
        writeln!(
            text,
            "{} -> {}, rank {} of {}: {} client(s), {} brought, {} to bring{}",
            route.local,
            route.external,
            route.rank,
            route.ranks,
            on.clients,
            on.brought,
            on.pending.len().saturating_add(on.unlisted),
            on.trouble
                .as_ref()
                .map_or(String::new(), |why| format!("; last trouble: {why}"))
        )?;
    }
    if routes.is_empty() {
        text.push_str("nothing to bring\n");
    }
    Ok(text)
}
