//! Campaigns over every door: they test the guarantees for an application, whatever happens to it. Each history follows from its seed.
//! Programs of the doors run it (see `children/README.md`), and processes that begin afterwards check it.
//!
//! | variable | is |
//! |---|---|
//! | `TIERFLOW_HISTORIES` | histories of each campaign and door, in place of CI's few |
//! | `TIERFLOW_KILLS` | kills of each door and storage in `kills`, in place of CI's few |
//! | `TIERFLOW_SOAK` | seconds that each door runs in `soak` |
//! | `TIERFLOW_SECONDS` | seconds after which no further history begins: the program ends some seconds later, with its tallies |
//! | `TIERFLOW_SEED` | the seed of the first history; default 1 |
//! | `TIERFLOW_DOORS` | doors to run, such as `rust,c`, which must be there; default all that can run |
//! | `TIERFLOW_JOBS` | histories of all campaigns at a time; default the number of cores |
//! | `TIERFLOW_TELL` | 1: each finding is printed at once |
//! | `TIERFLOW_KNOWN` | `none`: known failures (`KNOWN` of each campaign) fail the campaign, too |
//! | `TIERFLOW_PYTHON` | the interpreter that has the module; default the environment of `cargo xtask python`, or `python3` |
//! | `TIERFLOW_S3` | a bucket for `kills`, such as `s3://runs`, in place of the campaign's own server; other variables have its endpoint and credentials |
//! | `TIERFLOW_CHILDREN` | the folder with the programs of the doors, as `cargo xtask dist` makes it |

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod doors;
mod draws;
mod ends;
mod kills;
mod nodes;
mod s3;
mod soak;
mod start;
mod tally;
