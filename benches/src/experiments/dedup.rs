//! De-duplicated checkpoints: their ratios and rates, by workload, method and chunk size (ICPP'23, Figures 4 to 6).

use tierflow_dedup::Method;

pub(super) mod codecs;
pub(super) mod engine;
mod gdv;
pub(super) mod gpu;
pub(super) mod scaling;
mod workloads;

const METHODS: [(&str, Method); 4] = [
    ("full", Method::Full),
    ("basic", Method::Basic),
    ("list", Method::List),
    ("tree", Method::Tree),
];
