//! The chores of the workspace: `cargo xtask --help`.
//!
//! Each chore is one module. None of them is needed to build or to use the crates.
#![forbid(unsafe_code)]

mod api;
mod bench;
mod cargo;
mod dist;
mod features;
mod install;
mod kernels;
mod python;
mod recipes;
mod release;
mod semver;
mod site;
mod test;
mod tidy;
mod toolchain;
mod words;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The chores of the Tierflow workspace")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Find the locked nvcc; get it from PyPI into target/cuda where there is none
    Toolchain,
    /// Compile kernels/*.cu to the PTX files of the crates that embed them
    Kernels {
        /// Only compare sources and PTX with kernels/kernels.lock; needs no nvcc
        #[arg(long)]
        check: bool,
    },
    /// Check what neither rustc nor clippy checks: who depends on whom, and the shape of the tree
    Tidy,
    /// Compare the public interface of each library with its api.txt, and that with the last release's
    Api {
        /// Write the texts instead
        #[arg(long)]
        write: bool,
    },
    /// Compare the public interface of each library with that of the last release; needs cargo-semver-checks
    Semver {
        /// Another commit in the place of the one that Cargo.toml names
        commit: Option<String>,
    },
    /// Compare names of types and first words of comments with what xtask/words.toml still allows; tidy does so, too
    Words {
        /// Lower the numbers there to those of the tree
        #[arg(long)]
        write: bool,
    },
    /// Build and run all tests of the workspace, several programs of them at a time
    Test {
        /// Programs that run at a time
        #[arg(long, default_value_t = 3)]
        jobs: usize,
        /// Arguments for cargo that select packages, in place of --workspace
        #[arg(last = true)]
        selected: Vec<String>,
    },
    /// Check every choice of features of every crate, and that the light crates stay light
    Features,
    /// Run the criterion benches, then the experiments; their report is under target/bench
    Bench {
        /// Short measurements: less than two minutes in all without a GPU
        #[arg(long)]
        quick: bool,
        /// Bench targets and experiments to run; all of them when none is named
        names: Vec<String>,
    },
    /// Write those tables of README.md and docs anew that are made of docs/reports; a test of benches compares them
    Tables,
    /// Build the wheel of crates/python, and run its tests and checks in a virtual environment under target/python
    Python {
        /// Only build the wheel, into target/python/wheels
        #[arg(long)]
        wheel: bool,
        /// Arguments for pytest, in place of all tests
        #[arg(last = true)]
        pytest: Vec<String>,
    },
    /// Build the book, the reference of all crates and that of the Python package as one site under target/site, and check its links
    Site,
    /// Read the recipes and scripts of packaging/ by the programs that they are for
    Recipes,
    /// Make the files of a release, under target/publish: sources with all dependencies, wheels, libraries and programs
    Release(release::ReleaseArguments),
    /// Install the library for C, C++ and Fortran, the command and the agent, with their manual pages and completions
    Install {
        #[command(flatten)]
        destination: install::InstallFolders,
        /// The profile to build by
        #[arg(long, default_value = "release")]
        profile: String,
        /// The compiler for C that links the shared library, and its first arguments
        #[arg(long, default_value = "cc", env = "CC")]
        cc: String,
        /// An MPI compiler for C: makes libveloc-client.so, too, which links to its MPI
        #[arg(long)]
        mpicc: Option<String>,
    },
    /// Put release tests, benches and examples into target/bundle/tierflow, for a machine without Rust
    Dist {
        /// Packages or targets to carry, separated by commas; all of them when left out
        #[arg(long, value_delimiter = ',')]
        only: Vec<String>,
    },
}

fn main() -> Result<()> {
    match Cli::parse().chore {
        Chore::Toolchain => toolchain::run(),
        Chore::Kernels { check } => kernels::run(check),
        Chore::Tidy => tidy::run(),
        Chore::Api { write } => api::run(write),
        Chore::Semver { commit } => semver::run(commit.as_deref()),
        Chore::Words { write } => words::run(write),
        Chore::Test { jobs, selected } => test::run(jobs, &selected),
        Chore::Features => features::run(),
        Chore::Bench { quick, names } => bench::run(quick, &names),
        Chore::Tables => bench::tables(),
        Chore::Python { wheel, pytest } => python::run(wheel, &pytest),
        Chore::Site => site::run(),
        Chore::Recipes => recipes::run(),
        Chore::Release(arguments) => release::run(&arguments),
        Chore::Install {
            destination,
            profile,
            cc,
            mpicc,
        } => install::run(&destination, &profile, &cc, mpicc),
        Chore::Dist { only } => dist::run(&only),
    }
}
