use std::fmt;

macro_rules! ids {
    ($($(#[$about:meta])* $name:ident, $word:literal;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A GPU, counted from 0 in the order of [`Topology::gpu`](crate::Topology::gpu).
    GpuId, "GPU";
    /// A link between two GPUs in one direction, counted from 0.
    LinkId, "link";
    /// A switch between GPUs, counted from 0.
    SwitchId, "switch";
    /// A host, counted from 0.
    HostId, "host";
    /// A link to a host, counted from 0.
    HostLinkId, "host link";
}

/// A limit of a schedule: a bandwidth, or room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The bandwidth of all that a GPU sends.
    Egress(GpuId),
    /// The bandwidth of all that peers send to a GPU.
    Ingress(GpuId),
    /// A link between two GPUs.
    Link {
        /// The link.
        link: LinkId,
        /// The GPU that sends.
        from: GpuId,
        /// The GPU that receives.
        to: GpuId,
    },
    /// The bandwidth of a GPU's port to a switch.
    SwitchSend {
        /// The switch.
        switch: SwitchId,
        /// The GPU.
        gpu: GpuId,
    },
    /// The bandwidth of a GPU's port from a switch.
    SwitchReceive {
        /// The switch.
        switch: SwitchId,
        /// The GPU.
        gpu: GpuId,
    },
    /// The bandwidth of all that a switch carries.
    Switch(SwitchId),
    /// The bandwidth of a GPU's own part of a host link.
    HostPort {
        /// The host link that the port leads to.
        link: HostLinkId,
        /// The GPU.
        gpu: GpuId,
    },
    /// The bandwidth of a link to a host.
    HostLink(HostLinkId),
    /// The bandwidth of all that is written to a host.
    HostIngress(HostId),
    /// The spare capacity of a GPU, in bytes.
    Spare(GpuId),
    /// The room of a host, in bytes.
    HostSpare(HostId),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Egress(gpu) => write!(f, "the egress of {gpu}"),
            Self::Ingress(gpu) => write!(f, "the ingress of {gpu}"),
            Self::Link { from, to, .. } => write!(f, "the link from {from} to {to}"),
            Self::SwitchSend { switch, gpu } => {
                write!(f, "the port by which {gpu} sends to {switch}")
            }
            Self::SwitchReceive { switch, gpu } => {
                write!(f, "the port by which {gpu} receives from {switch}")
            }
            Self::Switch(switch) => write!(f, "the backplane of {switch}"),
            Self::HostPort { link, gpu } => write!(f, "the way of {gpu} to {link}"),
            Self::HostLink(link) => write!(f, "{link}"),
            Self::HostIngress(host) => write!(f, "the ingress of {host}"),
            Self::Spare(gpu) => write!(f, "the spare capacity of {gpu}"),
            Self::HostSpare(host) => write!(f, "the room of {host}"),
        }
    }
}
