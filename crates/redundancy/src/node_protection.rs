//! The redundancy of an engine's builder: a scheme over a transport.

use crate::relocation::Relocation;
use crate::{
    Error, Membership, ParityStore, Protected, Redundancy, Transport, TransportCollective,
};
use std::sync::Arc;
use tierflow_store::{NodeDirectory, Protection, Protector, Result};

/// The protection of an engine's node-local versions against the loss of nodes, for the `redundancy` of its builder.
#[derive(Debug, Clone)]
pub struct NodeProtection {
    scheme: Redundancy,
    transport: Arc<dyn Transport>,
    domain: Option<String>,
}

impl Redundancy {
    /// Applies this scheme among ranks that send each other messages over `transport`.
    #[must_use]
    pub fn over(self, transport: Arc<dyn Transport>) -> NodeProtection {
        NodeProtection {
            scheme: self,
            transport,
            domain: None,
        }
    }
}

impl NodeProtection {
    /// Names the failure domain of this rank, such as its rack: ranks of one domain are lost together. By default, the domain is the
    /// name of the host.
    #[must_use]
    pub fn failure_domain(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }
}

/// Returns the name of this host.
fn host() -> crate::Result<String> {
    let path = "/proc/sys/kernel/hostname";
    let name = std::fs::read_to_string(path).map_err(Error::io(path))?;
    Ok(name.trim().to_owned())
}

impl Protection for NodeProtection {
    fn open(&self, node: NodeDirectory<'_>) -> Result<Arc<dyn Protector>> {
        let failed = |error: Error| match error {
            Error::Store(error) => error,
            Error::Scheme { .. } => tierflow_store::Error::Argument(error.to_string()),
            error => tierflow_store::Error::Remote(error.to_string()),
        };
        let domain = self.domain.clone().map_or_else(host, Ok);
        let store = ParityStore::of_rank(node.path, node.rank).map_err(failed)?;
        let over_transport =
            TransportCollective::new(Arc::clone(&self.transport), node.rank, node.ranks);
        let member = Membership {
            rank: node.rank,
            ranks: node.ranks,
            node: domain.map_err(failed)?,
            scheme: self.scheme,
            transport: Arc::clone(&self.transport),
            patience: node.patience,
        };
        let collective = node.collective.unwrap_or(&over_transport);
        let relocation = Relocation {
            path: node.path,
            rank: node.rank,
            ranks: node.ranks,
            repository: &node.repository,
            store: &store,
            elsewhere: node.elsewhere,
            transport: &*self.transport,
            patience: node.patience,
        };
        relocation.run(collective).map_err(failed)?;
        let opened = Protected::open(node.repository, store, member, collective, node.elsewhere);
        Ok(Arc::new(opened.map_err(failed)?))
    }
}
