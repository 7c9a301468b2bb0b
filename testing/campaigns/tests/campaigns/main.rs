//! Campaigns over every door: what an application relies on, whatever happens to it. Each history follows from its seed, is run by
//! programs of the doors (see `children/README.md`), and is checked by processes that begin afterwards.
//!
//! | variable | is |
//! |---|---|
//! | `TIERFLOW_HISTORIES` | histories of each campaign and door, in place of CI's few |
//! | `TIERFLOW_KILLS` | the same of `kills`: kills of each door and storage |
//! | `TIERFLOW_SOAK` | seconds that each door runs in `soak` |
//! | `TIERFLOW_SECONDS` | nothing begins when the program has run for so many: it ends by itself some seconds later, with its tallies |
//! | `TIERFLOW_SEED` | the seed of the first history; 1 |
//! | `TIERFLOW_DOORS` | doors to run, such as `rust,c`, which must be there; all that there are |
//! | `TIERFLOW_JOBS` | histories at a time, of all campaigns; as many as there are cores |
//! | `TIERFLOW_TELL` | 1: what is found is printed at once |
//! | `TIERFLOW_KNOWN` | `none`: what is known to fail, `KNOWN` of each campaign, fails too |
//! | `TIERFLOW_PYTHON` | the interpreter that has the module; the environment of `cargo xtask python`, or `python3` |
//! | `TIERFLOW_S3` | a bucket for `kills`, such as `s3://runs`, in place of a server of the campaign's; the environment says how to get there |
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
