use thiserror::Error;

use crate::{GpuId, HostId, HostLinkId, Limit, MAX_BANDWIDTH, MAX_BYTES, MAX_TOTAL_BANDWIDTH};
use crate::{SwitchId, topology::names};

/// The reason why a [`Topology`](crate::Topology) does not accept a part. Describe the part correctly, or leave it out.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum TopologyError {
    /// The bandwidth is zero, negative, infinite, not a number or out of range.
    #[error(
        "{at} cannot have {bandwidth} bytes/s: a bandwidth lies between 1 and {MAX_BANDWIDTH} \
         bytes/s; leave a link that carries nothing out"
    )]
    BadBandwidth {
        /// The part that was to have the bandwidth.
        at: Limit,
        /// The bandwidth, in bytes per second.
        bandwidth: f64,
    },
    /// The sum of all bandwidths would be above [`MAX_TOTAL_BANDWIDTH`], beyond which times are not exact.
    #[error("with {at}, the topology has more than {MAX_TOTAL_BANDWIDTH} bytes/s in all")]
    TotalBandwidth {
        /// The part with which the sum is too large.
        at: Limit,
    },
    /// The topology has no such GPU.
    #[error("there is no {gpu}: the topology has {gpus} GPUs, counted from 0")]
    NoSuchGpu {
        /// The GPU that was named.
        gpu: GpuId,
        /// Number of GPUs in the topology.
        gpus: usize,
    },
    /// The topology has no such switch.
    #[error("there is no {0}: add it first")]
    NoSuchSwitch(SwitchId),
    /// The topology has no such host.
    #[error("there is no {0}: add it first")]
    NoSuchHost(HostId),
    /// The topology has no such host link.
    #[error("there is no {0}: add it first")]
    NoSuchHostLink(HostLinkId),
    /// A link from a GPU to itself.
    #[error("{0} cannot be linked to itself")]
    SelfLink(GpuId),
    /// The GPU has this port already. Parallel cables count as one port with the sum of their bandwidths.
    #[error("there is {at} already: add the bandwidths up into one")]
    Twice {
        /// The part that was added a second time.
        at: Limit,
    },
}

/// The reason why there is no [`Schedule`](crate::Schedule).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// The topology has no GPU: describe the machine first.
    #[error("the topology is empty: describe its GPUs first")]
    NoGpus,
    /// There must be one share for each GPU of the topology.
    #[error("{shares} shares were given for {gpus} GPUs: give one for each")]
    WrongCount {
        /// Number of shares that were given.
        shares: usize,
        /// Number of GPUs in the topology.
        gpus: usize,
    },
    /// The topology has no such host.
    #[error("there is no {0} in the topology")]
    NoSuchHost(HostId),
    /// An alignment of no bytes, or of more than a problem may have.
    #[error("transfers cannot be aligned to {0} bytes: ask for 1 to {MAX_BYTES}")]
    BadAlignment(u64),
    /// The sum of the remainders is above [`MAX_BYTES`], beyond which times are not exact.
    #[error(
        "with the remainder of {gpu}, more than {MAX_BYTES} bytes are to be placed: split the problem"
    )]
    TotalOverflows {
        /// The first GPU with which the sum is too large.
        gpu: GpuId,
    },
    /// A GPU has bytes to place, and no link over which to send them: link it to a host.
    #[error(
        "{gpu} has {bytes} bytes to place, but no host link and no link to a peer with spare \
         capacity: link it to a host or keep the checkpoint where it is"
    )]
    Disconnected {
        /// The GPU.
        gpu: GpuId,
        /// The GPU's remainder, in bytes.
        bytes: u64,
    },
    /// The room that these GPUs can reach is smaller than their remainders.
    #[error(
        "{} have {missing} bytes more to place than what they reach holds: give them a host with \
         room, more spare capacity, or less to place",
        names(gpus)
    )]
    DoesNotFit {
        /// The GPUs, in rising order.
        gpus: Vec<GpuId>,
        /// Bytes that find no place, with every remainder and every spare capacity rounded to the alignment.
        missing: u64,
    },
}
