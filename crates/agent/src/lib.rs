#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod client;
mod elastic;
mod ends;
mod error;
mod flow;
mod home;
mod notes;
pub mod protocol;
mod server;

pub use client::{AgentConnection, AgentVault, Client};
pub use error::{Error, Result};
pub use server::{Settings, serve};
