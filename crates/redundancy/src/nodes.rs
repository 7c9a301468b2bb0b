//! What an engine is given to keep its versions though nodes are lost.

use crate::{Error, Keep, Meeting, Membership, Protected, Redundancy, Transport};
use std::sync::Arc;
use tierflow_store::{OnNode, Protect, Protection, Result};

/// A scheme over a transport, for the `redundancy` of an engine's builder.
#[derive(Debug, Clone)]
pub struct Nodes {
    scheme: Redundancy,
    transport: Arc<dyn Transport>,
    domain: Option<String>,
}

impl Redundancy {
    /// This scheme among ranks that send each other bytes by `transport`.
    #[must_use]
    pub fn over(self, transport: Arc<dyn Transport>) -> Nodes {
        Nodes {
            scheme: self,
            transport,
            domain: None,
        }
    }
}

impl Nodes {
    /// What this rank fails together with, such as its rack; its node, by the name of the host, unless you say otherwise.
    #[must_use]
    pub fn failure_domain(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }
}

/// The name of this host.
fn host() -> crate::Result<String> {
    let path = "/proc/sys/kernel/hostname";
    let name = std::fs::read_to_string(path).map_err(Error::io(path))?;
    Ok(name.trim().to_owned())
}

impl Protection for Nodes {
    fn open(&self, node: OnNode<'_>) -> Result<Arc<dyn Protect>> {
        let failed = |error: Error| match error {
            Error::Store(error) => error,
            Error::Scheme { .. } => tierflow_store::Error::Argument(error.to_string()),
            error => tierflow_store::Error::Remote(error.to_string()),
        };
        let domain = self.domain.clone().map_or_else(host, Ok);
        let keep = Keep::of_rank(node.path, node.rank).map_err(failed)?;
        let meeting = Meeting::new(Arc::clone(&self.transport), node.rank, node.ranks);
        let member = Membership {
            rank: node.rank,
            ranks: node.ranks,
            node: domain.map_err(failed)?,
            scheme: self.scheme,
            transport: Arc::clone(&self.transport),
            patience: node.patience,
        };
        let collective = node.collective.unwrap_or(&meeting);
        let opened = Protected::open(node.repository, keep, member, collective, node.elsewhere);
        Ok(Arc::new(opened.map_err(failed)?))
    }
}
