//! A placement problem as a flow network, and maximum flows through it.

mod dinic;
mod loads;
mod network;
mod pieces;

pub(crate) use dinic::Residual;
pub(crate) use loads::Loads;
pub(crate) use network::{Edge, EdgeKind, Network, SINK, SOURCE, UNLIMITED};
pub(crate) use pieces::Pieces;
