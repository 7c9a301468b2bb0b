//! The cost of allocating caches while they are used: the figures of Maurya et al., *Towards Efficient Cache
//! Allocation for High-Frequency Checkpointing* (HiPC'22), and what we hold ourselves to.

mod child;
mod figures;
mod goals;
mod passes;
mod scale;

use super::Experiment;

pub use child::child;

/// Cold against warm, against the paper's strategies, the worst stall, and the turns of several processes.
pub const GOALS: Experiment = Experiment {
    name: "alloc-goals",
    about: "cold start against warm, worst stall, serial pinning: each against its goal",
    needs_gpu: false,
    run: goals::run,
};

/// The first of the goals alone.
pub const COLD: Experiment = Experiment {
    name: "alloc-cold",
    about: "a cold start against a warm one, at 10 and at 5 ms",
    needs_gpu: false,
    run: goals::run_cold,
};

/// The last of the goals alone, for machines with several GPUs.
pub const SERIAL: Experiment = Experiment {
    name: "alloc-serial",
    about: "several processes, each with a GPU of its own where there are enough: serial against parallel pinning",
    needs_gpu: true,
    run: goals::run_serial,
};

/// Figures 3b to 6c of the paper.
pub const FIGURES: Experiment = Experiment {
    name: "alloc",
    about: "HiPC'22 figures 3b-6c: allocation rates and blocking by strategy, interval and processes",
    needs_gpu: false,
    run: figures::run,
};
