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

/// The route of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Route {
    /// The link between the two GPUs.
    Link(LinkId),
    /// The switch on which both GPUs have a port.
    Switch(SwitchId),
    /// A link to the host.
    Host(HostLinkId),
}

/// A piece of a remainder, its destination and its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The GPU whose remainder the piece is of.
    pub from: GpuId,
    /// The memory that gets the piece.
    pub to: Destination,
    /// The route that the piece takes.
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

/// A proof that no schedule of [aligned](Problem::aligned_to) transfers ends earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// The time of the cut. If all remainders are multiples of the alignment, the time is the makespan of the best schedule
    /// for bytes that can be divided at will. Otherwise that makespan is longer, by less than the time that the cut takes for
    /// one multiple of the alignment of each of its GPUs.
    pub time: ExactTime,
    /// The reason why the time is not shorter.
    pub cut: Cut,
}

/// A group of GPUs, and all limits through which their remainders can leave.
///
/// The GPUs have `remainder` bytes. `room` bytes of them fit behind the [limits](Limit) of room, and the other limits carry
/// `bandwidth` together. The rest takes (`remainder` − `room`) / `bandwidth`, or no time if `room` is larger. All fields
/// are empty if there was nothing to place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The GPUs, in rising order.
    pub gpus: Vec<GpuId>,
    /// The GPUs' remainders, in bytes.
    pub remainder: u64,
    /// Bytes that fit through limits of room. Each limit counts whole multiples of the alignment.
    pub room: u64,
    /// The bandwidth of the other limits, in bytes per second.
    pub bandwidth: u64,
    /// The limits.
    pub limits: Vec<Limit>,
}

impl Schedule {
    /// Makes a schedule of these transfers, which place the remainders of `problem`.
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

    /// Returns the transfers, by GPU and offset. Together they contain every byte of every remainder once.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// Returns the time at which the last transfer ends, if transfers share each limit in proportion to their bytes: the
    /// longest of the times that the links, ports and limits take for the bytes that pass them.
    pub fn makespan(&self) -> ExactTime {
        self.makespan
    }

    /// Returns the limit that is used for the longest time; `None` if there is no transfer.
    pub fn busiest(&self) -> Option<Limit> {
        self.busiest
    }

    /// Returns a lower bound on every schedule, with its proof; `None` from strategies that do not find the optimum.
    pub fn bound(&self) -> Option<&Bound> {
        self.bound.as_ref()
    }

    /// Returns the number of bytes that go to hosts.
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
