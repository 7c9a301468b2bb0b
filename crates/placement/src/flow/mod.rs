//! A placement problem as a flow network, and maximum flows through it.

mod carried;
mod dinic;
mod fill;
mod links;
mod loads;
mod network;
mod pieces;

pub(crate) use carried::Carried;
pub(crate) use dinic::Residual;
pub(crate) use fill::Fill;
pub(crate) use links::Links;
pub(crate) use loads::Loads;
pub(crate) use network::{Edge, EdgeKind, Network, SINK, SOURCE, UNLIMITED};
pub(crate) use pieces::Pieces;
