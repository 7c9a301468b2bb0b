//! Memory of peers for the overflow of a group checkpoint, in the amounts of a schedule.

use tierflow_device::Device;
use tierflow_placement::{
    Destination, GpuId, MinTimeMaxFlow, Problem, Schedule, Share, Strategy, Topology,
};

use crate::cache::{Part, PeerCache, Recall};
use crate::error::{Error, Result};

/// Bytes of which a GPU's transfers are multiples. An engine cuts checkpoints at multiples of this or a smaller number, so that it uses the
/// parts of its peers to their ends.
const GRAIN: u64 = 4 << 20;

/// Memory of peers and the host for one GPU's part in a group checkpoint whose sizes are known.
///
/// All processes of the group call [`new`](Self::new) with the same topology and the same shares, and get the same schedule without a
/// message, as a schedule depends on nothing else.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tierflow_device::host;
/// # let gpus = (0..3).map(|n| host::open(host::Options::default().ordinal(n))).collect::<Result<Vec<_>, _>>()?;
/// use tierflow_peers::{Effort, GroupOverflow, calibrate};
/// use tierflow_placement::{GpuId, Share};
///
/// let topology = calibrate(&gpus, Effort::default().bytes(1 << 20))?.topology()?;
/// let shares = [Share::Remainder(3 << 20), Share::Spare(4 << 20), Share::Spare(4 << 20)];
/// let overflow = GroupOverflow::new(&gpus, GpuId(0), &topology, &shares)?;
/// println!("the group is blocked for {}", overflow.schedule.makespan());
/// // A tier of the engine, `Tier::peers`; the host cache below it takes what the schedule gives the host.
/// let cache = overflow.cache;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct GroupOverflow {
    /// The memory of peers; `None` if the host takes all.
    pub cache: Option<PeerCache>,
    /// The handles by which peers take their memory back.
    pub recalls: Vec<(GpuId, Recall)>,
    /// The schedule. After a refusal, it has only this GPU's transfers.
    pub schedule: Schedule,
    /// The peers that refused, with their errors.
    pub refusals: Vec<(GpuId, Error)>,
}

impl GroupOverflow {
    /// Makes the schedule by [`MinTimeMaxFlow`], and maps as much memory of each peer as the schedule sends there from GPU `from`. GPU n is the
    /// n-th device, and has the n-th share.
    ///
    /// If a peer refuses, this GPU's remainder is scheduled again: with the bytes that the peer has free, if they are fewer than were asked for,
    /// else without the peer; without it, too, if it refuses again. The other GPUs keep the room of their transfers in the first schedule, as
    /// they do not learn of the refusal. Hosts have room for everything.
    ///
    /// # Errors
    /// [`Error::Placement`] if the shares do not fit the topology, or a GPU has no way out; [`Error::Mismatch`] if the topology has more
    /// GPUs than there are devices; [`Error::Device`] if addresses are short.
    pub fn new(
        gpus: &[Device],
        from: GpuId,
        topology: &Topology,
        shares: &[Share],
    ) -> Result<Self> {
        let granularity = gpus.iter().map(|gpu| gpu.info().granularity as u64);
        let grain = granularity.fold(GRAIN, u64::max);
        let device = gpus.get(from.0).ok_or(Error::NoDevices)?;
        let mut shares = shares.to_vec();
        let mut refusals: Vec<(GpuId, Error)> = Vec::new();
        loop {
            let problem = Problem::new(topology, &shares)?.aligned_to(grain)?;
            let schedule = MinTimeMaxFlow::default().schedule(&problem)?;
            let (peers, parts) = parts(gpus, from, &schedule)?;
            let (parts, recalls): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            let (cache, refused) = match parts.is_empty() {
                true => (None, Vec::new()),
                false => {
                    let (cache, refused) = PeerCache::of_those_that_lend(device, parts)?;
                    (Some(cache), refused)
                }
            };
            if refused.is_empty() {
                let recalls = peers.into_iter().map(|(peer, _)| peer).zip(recalls);
                return Ok(Self {
                    cache,
                    recalls: recalls.collect(),
                    schedule,
                    refusals,
                });
            }
            // The cache is dropped first, so that the free bytes of the peers include the memory that they lent.
            drop(cache);
            leave_to_others(&mut shares, from, &schedule);
            for (number, why) in refused {
                let (peer, asked) = peers[number];
                let is_first = !refusals.iter().any(|(refused, _)| *refused == peer);
                let free = gpus[peer.0].free_bytes().unwrap_or(0);
                let most = if is_first && free < asked { free } else { 0 };
                if let Share::Spare(spare) = &mut shares[peer.0] {
                    *spare = most.min(*spare);
                }
                refusals.push((peer, why));
            }
        }
    }
}

/// The peers to which a schedule sends bytes of `from`, with the number of bytes, and the parts for them.
type ByPeer = (Vec<(GpuId, u64)>, Vec<(Part, Recall)>);

fn parts(gpus: &[Device], from: GpuId, schedule: &Schedule) -> Result<ByPeer> {
    let ours = schedule.transfers().iter();
    let to_peers = ours.filter_map(|transfer| match transfer.to {
        Destination::Peer(peer) if transfer.from == from => Some((peer, transfer.bytes)),
        _ => None,
    });
    Ok((to_peers.collect(), Part::by_schedule(gpus, from, schedule)?))
}

/// Subtracts the room of the other GPUs' transfers from the shares, and sets their remainders to spare room of 0.
fn leave_to_others(shares: &mut [Share], from: GpuId, schedule: &Schedule) {
    for (gpu, share) in shares.iter_mut().enumerate() {
        let others = schedule.transfers().iter().filter(|transfer| {
            transfer.from != from && transfer.to == Destination::Peer(GpuId(gpu))
        });
        let taken: u64 = others.map(|transfer| transfer.bytes).sum();
        match share {
            Share::Remainder(_) if gpu != from.0 => *share = Share::Spare(0),
            Share::Spare(spare) => *spare = spare.saturating_sub(taken),
            Share::Remainder(_) => {}
        }
    }
}
