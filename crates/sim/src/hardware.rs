//! The machine: tiers of each GPU, and the links between them, some of which GPUs share.

use crate::{Error, Result};

/// A bandwidth or a capacity that sets no limit.
pub const UNLIMITED: u64 = u64::MAX;

/// The largest capacity that the plan's tables take.
const HUGE: u64 = 1 << 60;

/// A tier of each GPU's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// Name in tables.
    pub name: String,
    /// Bytes of one GPU's share of the tier; [`UNLIMITED`] if it holds everything.
    pub capacity: u64,
    /// Copies start at multiples of this many bytes.
    pub alignment: u64,
    /// True if the plan writes every version to the tier as soon as possible.
    pub eager: bool,
    /// Transfers into the tier at a time, and transfers out of it to faster tiers, for one GPU.
    pub depth: usize,
    /// Transfers beyond `depth` begin while those under way have fewer bytes than this together: storage carries several small
    /// ones at a time.
    pub small: u64,
}

impl Tier {
    /// Makes a tier that is not eager, with copies at multiples of 4 KiB. Two transfers at a time each way keep its links busy
    /// while one of them begins. A tier that holds everything is storage, where small transfers share the latency as in the
    /// engine: up to 1 MiB of them begin beyond the two.
    #[must_use]
    pub fn new(name: &str, capacity: u64) -> Self {
        Self {
            name: name.to_owned(),
            capacity,
            alignment: 4096,
            eager: false,
            depth: 2,
            small: if capacity == UNLIMITED { 1 << 20 } else { 0 },
        }
    }

    /// Sets the number of transfers into the tier at a time, and of those out of it to faster tiers.
    #[must_use]
    pub fn depth(mut self, transfers: usize) -> Self {
        self.depth = transfers;
        self
    }

    pub(crate) fn table_capacity(&self) -> u64 {
        self.capacity.min(HUGE)
    }
}

/// A part of the machine that transfers pass, with a bandwidth that all of them share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Bytes/s away from the application.
    pub down: u64,
    /// Bytes/s towards the application.
    pub up: u64,
    /// Bytes/s in both directions together.
    pub both: u64,
    /// Neighbouring GPUs that share one such link: 1 for a link of each GPU, 8 for one disk of a node of eight.
    pub gpus: usize,
}

impl Link {
    /// Makes a link for each GPU, with the same bandwidth in both directions, which do not slow one another.
    #[must_use]
    pub fn own(bandwidth: u64) -> Self {
        Self {
            down: bandwidth,
            up: bandwidth,
            both: UNLIMITED,
            gpus: 1,
        }
    }

    /// Shares the link among `gpus` neighbours.
    #[must_use]
    pub fn shared_by(mut self, gpus: usize) -> Self {
        self.gpus = gpus;
        self
    }

    /// Limits both directions together.
    #[must_use]
    pub fn together(mut self, both: u64) -> Self {
        self.both = both;
        self
    }
}

/// The connection between a tier and the one above it (for the first: the application's own memory).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The links that every transfer passes, all of them at once.
    pub links: Vec<Link>,
    /// ns before the first byte of a transfer moves.
    pub latency_ns: u64,
}

impl Hop {
    /// Makes a hop of one link.
    #[must_use]
    pub fn over(link: Link, latency_ns: u64) -> Self {
        Self {
            links: vec![link],
            latency_ns,
        }
    }

    /// Adds a link, which transfers pass at the same time.
    #[must_use]
    pub fn and(mut self, link: Link) -> Self {
        self.links.push(link);
        self
    }

    /// Returns true if a link carries no more in both directions together than in one of them alone.
    pub(crate) fn is_shared(&self) -> bool {
        let mut links = self.links.iter();
        links.any(|link| link.both < UNLIMITED && link.both <= link.down.max(link.up))
    }
}

/// The tiers, fastest first, each with the hop that leads to it from above.
///
/// A transfer that skips a tier passes all hops in between. A copy of the application passes the first hop and all
/// others down to the tier that serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    /// The tiers, fastest first.
    pub tiers: Vec<Tier>,
    /// The hops, as many as tiers: `hops[t]` leads from tier `t - 1`, or from the application, to tier `t`.
    pub hops: Vec<Hop>,
}

impl Hardware {
    /// Makes a machine without tiers.
    #[must_use]
    pub fn new() -> Self {
        Self {
            tiers: Vec::new(),
            hops: Vec::new(),
        }
    }

    /// Adds a tier below the others, and the hop that leads to it.
    #[must_use]
    pub fn tier(mut self, tier: Tier, hop: Hop) -> Self {
        self.tiers.push(tier);
        self.hops.push(hop);
        self
    }

    /// Makes an H100 with caches of these sizes in bytes over a local disk that carries four transfers at a time each way.
    /// All bandwidths were measured on a rented H100 (the book's chapter *Simulation*).
    #[must_use]
    pub fn h100(device_cache: u64, host_cache: u64) -> Self {
        let disk = Link {
            down: 2_600_000_000,
            up: 2_600_000_000,
            both: UNLIMITED,
            gpus: 1,
        };
        Self::of_node(device_cache, host_cache, 1_458_000_000_000, disk)
    }

    /// Makes nodes of eight H200 that share four links to the host and one disk. The GPUs' bandwidths were measured. The 55
    /// GB/s that two neighbours share are the lowest measured rate. The disk is that of [`Hardware::h100`].
    #[must_use]
    pub fn hgx_h200(device_cache: u64, host_cache: u64) -> Self {
        let disk = Link::own(2_600_000_000).shared_by(8);
        let mut node = Self::of_node(device_cache, host_cache, 2_017_000_000_000, disk);
        node.hops[1].links.push(
            Link::own(55_000_000_000)
                .together(98_000_000_000)
                .shared_by(2),
        );
        node
    }

    fn of_node(device_cache: u64, host_cache: u64, device: u64, disk: Link) -> Self {
        let pcie = Link::own(54_500_000_000).together(98_000_000_000);
        Self::new()
            .tier(
                Tier::new("device", device_cache),
                Hop::over(Link::own(device), 10_000),
            )
            .tier(Tier::new("host", host_cache), Hop::over(pcie, 10_000))
            .tier(
                Tier::new("file", UNLIMITED).depth(4),
                Hop::over(disk, 50_000),
            )
    }

    /// Returns the largest number of neighbours that share a link: transfers of GPUs of different groups never meet.
    pub(crate) fn group(&self) -> usize {
        let links = self.hops.iter().flat_map(|hop| &hop.links);
        links.map(|link| link.gpus).max().unwrap_or(1).max(1)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::Hardware(reason));
        if self.tiers.is_empty() || self.tiers.len() != self.hops.len() {
            return refuse(format!(
                "{} tiers need as many hops, at least one; there are {}",
                self.tiers.len(),
                self.hops.len()
            ));
        }
        for tier in &self.tiers {
            if tier.alignment == 0 || tier.capacity < tier.alignment {
                return refuse(format!("tier {:?} is smaller than one unit", tier.name));
            }
        }
        let group = self.group();
        for link in self.hops.iter().flat_map(|hop| &hop.links) {
            if link.down == 0 || link.up == 0 || link.both == 0 {
                return refuse("a link has no bandwidth".to_owned());
            }
            if link.gpus == 0 || !group.is_multiple_of(link.gpus) {
                return refuse(format!(
                    "{} GPUs share a link, which does not divide the {group} that share another",
                    link.gpus
                ));
            }
        }
        Ok(())
    }
}

impl Default for Hardware {
    fn default() -> Self {
        Self::new()
    }
}
