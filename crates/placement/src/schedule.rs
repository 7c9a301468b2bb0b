use std::fmt;

use crate::flow::Loads;
use crate::topology::names;
use crate::{ExactTime, GpuId, HostId, HostLinkId, Limit, LinkId, Problem, SwitchId};

/// The end of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// The spare capacity of another GPU.
    Peer(GpuId),
    /// A host's memory.
    Host(HostId),
}

/// The way of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// The link between the two GPUs.
    Link(LinkId),
    /// The switch on which both GPUs have a port.
    Switch(SwitchId),
    /// A link to the host.
    Host(HostLinkId),
}

/// A piece of a remainder, and its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The GPU whose remainder it is.
    pub from: GpuId,
    /// The memory that gets it.
    pub to: Destination,
    /// The way that it takes.
    pub via: Route,
    /// The piece's first byte in the remainder.
    pub offset: u64,
    /// The piece's length in bytes.
    pub bytes: u64,
}

/// The transfers of a group checkpoint. All start at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    transfers: Vec<Transfer>,
    makespan: ExactTime,
    busiest: Option<Limit>,
    bound: Option<Bound>,
}

/// A proof that no schedule ends earlier, whose transfers are [aligned](Problem::aligned_to).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// The time of the cut. Where all remainders are multiples of the alignment, that is the makespan of the best schedule
    /// if bytes could be divided at will; else that is longer by less than what the cut takes for one multiple of each
    /// of its GPUs.
    pub time: ExactTime,
    /// Why it is not shorter.
    pub cut: Cut,
}

/// A group of GPUs, and everything through which their remainders can leave.
///
/// The GPUs have `remainder` bytes, of which `room` fit behind those [limits](Limit) that are room, while
/// the others carry `bandwidth` together: it takes (`remainder` − `room`) / `bandwidth`, or no time if that is less than
/// nothing. If all fields are empty, nothing had to be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The GPUs, in rising order.
    pub gpus: Vec<GpuId>,
    /// The GPUs' remainders, in bytes.
    pub remainder: u64,
    /// Bytes that fit through limits of room; of each limit, whole multiples of the alignment.
    pub room: u64,
    /// The bandwidth of the other limits, in bytes per second.
    pub bandwidth: u64,
    /// The limits.
    pub limits: Vec<Limit>,
}

impl Schedule {
    /// A schedule of these transfers, which place the remainders of `problem`.
    pub(crate) fn new(
        problem: &Problem<'_>,
        transfers: Vec<Transfer>,
        bound: Option<Bound>,
    ) -> Self {
        let (makespan, busiest) = Loads::of(problem, &transfers).longest();
        Self {
            transfers,
            makespan,
            busiest,
            bound,
        }
    }

    /// The transfers, by GPU and offset. Together they are every byte of every remainder, once.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// When the last transfer ends, if all that share a limit share it in proportion to their bytes:
    /// the longest of what each link, port and limit takes for all that passes it.
    pub fn makespan(&self) -> ExactTime {
        self.makespan
    }

    /// Returns the limit that is used for the longest time; `None` if there is no transfer.
    pub fn busiest(&self) -> Option<Limit> {
        self.busiest
    }

    /// A lower bound on every schedule, with its proof. Only strategies that find the optimum have one.
    pub fn bound(&self) -> Option<&Bound> {
        self.bound.as_ref()
    }

    /// How many bytes go to hosts.
    pub fn to_hosts(&self) -> u64 {
        let is_host = |transfer: &&Transfer| matches!(transfer.to, Destination::Host(_));
        let transfers = self.transfers.iter().filter(is_host);
        transfers.map(|transfer| transfer.bytes).sum()
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(gpu) => gpu.fmt(f),
            Self::Host(host) => host.fmt(f),
        }
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}: {} bytes", self.from, self.to, self.bytes)
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gpus.is_empty() {
            return f.write_str("nothing to place");
        }
        write!(f, "{} behind ", names(&self.gpus))?;
        for (at, limit) in self.limits.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{limit}")?;
        }
        Ok(())
    }
}
