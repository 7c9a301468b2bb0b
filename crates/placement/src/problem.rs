use crate::{GpuId, HostId, MAX_BYTES, PlacementError, Topology};

/// A GPU's part in a group checkpoint, in bytes (SC'22 showcase, slides 49 and 61).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// Bytes by which the checkpoint is larger than the free space, to be sent elsewhere.
    Remainder(u64),
    /// Bytes by which the free space is larger than the checkpoint. Other GPUs may use this room.
    Spare(u64),
}

/// A group checkpoint whose remainders are to be placed.
///
/// ```
/// use tierflow_placement::{Problem, Share, Topology};
///
/// let topology = Topology::hgx_h200();
/// let mut shares = [Share::Spare(64 << 20); 8];
/// shares[2] = Share::Remainder(300 << 20);
/// let problem = Problem::new(&topology, &shares)?.aligned_to(512)?;
/// # Ok::<(), tierflow_placement::PlacementError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) shares: Vec<Share>,
    pub(crate) host_spare: Vec<u64>,
    pub(crate) alignment: u64,
}

impl<'a> Problem<'a> {
    /// Makes the problem with one share for each GPU, hosts with room for everything, and transfers of any number of bytes.
    ///
    /// # Errors
    /// [`NoGpus`](PlacementError::NoGpus) if the topology is empty, [`WrongCount`](PlacementError::WrongCount) if the number
    /// of shares is not that of the GPUs, [`TotalOverflows`](PlacementError::TotalOverflows) if the remainders are more than
    /// [`MAX_BYTES`].
    pub fn new(topology: &'a Topology, shares: &[Share]) -> Result<Self, PlacementError> {
        if topology.gpus() == 0 {
            return Err(PlacementError::NoGpus);
        }
        if shares.len() != topology.gpus() {
            return Err(PlacementError::WrongCount {
                shares: shares.len(),
                gpus: topology.gpus(),
            });
        }
        let problem = Self {
            topology,
            shares: shares.to_vec(),
            host_spare: vec![u64::MAX; topology.hosts.len()],
            alignment: 1,
        };
        problem.check_total(1)?;
        Ok(problem)
    }

    /// Makes the problem of GPUs with these sizes of checkpoints and this free space, in bytes.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new), and [`WrongCount`](PlacementError::WrongCount) if the two lists differ in length.
    pub fn of_checkpoints(
        topology: &'a Topology,
        sizes: &[u64],
        free: &[u64],
    ) -> Result<Self, PlacementError> {
        if sizes.len() != free.len() {
            return Err(PlacementError::WrongCount {
                shares: free.len(),
                gpus: sizes.len(),
            });
        }
        let shares = sizes.iter().zip(free).map(|(&size, &free)| {
            if size > free {
                Share::Remainder(size - free)
            } else {
                Share::Spare(free - size)
            }
        });
        Self::new(topology, &shares.collect::<Vec<_>>())
    }

    /// Lets every transfer start and end at a multiple of `alignment` bytes, except at a remainder's end.
    ///
    /// # Errors
    /// [`BadAlignment`](PlacementError::BadAlignment) if it is 0 or above [`MAX_BYTES`],
    /// [`TotalOverflows`](PlacementError::TotalOverflows) if the remainders, rounded up, are more than [`MAX_BYTES`].
    pub fn aligned_to(mut self, alignment: u64) -> Result<Self, PlacementError> {
        if !(1..=MAX_BYTES).contains(&alignment) {
            return Err(PlacementError::BadAlignment(alignment));
        }
        self.check_total(alignment)?;
        self.alignment = alignment;
        Ok(self)
    }

    /// Limits the room of a host to `bytes`.
    ///
    /// # Errors
    /// [`NoSuchHost`](PlacementError::NoSuchHost) if the topology has no such host.
    pub fn with_host_spare(mut self, host: HostId, bytes: u64) -> Result<Self, PlacementError> {
        let spare = self.host_spare.get_mut(host.0);
        *spare.ok_or(PlacementError::NoSuchHost(host))? = bytes;
        Ok(self)
    }

    /// Returns the machine.
    pub fn topology(&self) -> &'a Topology {
        self.topology
    }

    /// Returns the share of each GPU.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Returns the bytes of all remainders.
    pub fn remainder(&self) -> u64 {
        self.remainders().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the GPUs that have a remainder, each with its bytes.
    pub(crate) fn remainders(&self) -> impl Iterator<Item = (GpuId, u64)> {
        let shares = self.shares.iter().enumerate();
        shares.filter_map(|(gpu, share)| match *share {
            Share::Remainder(bytes) if bytes > 0 => Some((GpuId(gpu), bytes)),
            _ => None,
        })
    }

    /// Returns the spare capacity of a GPU, in bytes.
    pub(crate) fn spare(&self, gpu: GpuId) -> u64 {
        match self.shares[gpu.0] {
            Share::Spare(bytes) => bytes,
            Share::Remainder(_) => 0,
        }
    }

    /// Checks that the remainders, each rounded up to `grain`, are at most [`MAX_BYTES`] together.
    pub(crate) fn check_total(&self, grain: u64) -> Result<(), PlacementError> {
        let mut total = 0_u64;
        for (gpu, bytes) in self.remainders() {
            let padded = bytes.checked_next_multiple_of(grain);
            total = padded
                .and_then(|padded| total.checked_add(padded))
                .filter(|total| *total <= MAX_BYTES)
                .ok_or(PlacementError::TotalOverflows { gpu })?;
        }
        Ok(())
    }
}
