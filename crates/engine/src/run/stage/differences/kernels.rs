//! Differences of memory that only the device reads: its kernels make them, and put checkpoints together.

use super::super::stored::Bytes;
use super::{Differences, Encoder, Encodes, Made};
use crate::run::lane::Lane;
use crate::run::medium::Medium;
use crate::run::sync::Mutex;
use crate::{Error, Result};
use tierflow_dedup::{Summary, gpu, most_stored_bytes};
use tierflow_device::{Device, ReadLoan, WriteLoan};

/// Chains that stay in device memory, at most: as many as there are workers that bring versions up.
const CHAINS: usize = 2;

/// The device, its kernels, and the chains that were restored from last: who reads back what he wrote last needs no other.
#[derive(Debug)]
pub(super) struct OnDevice {
    device: Device,
    kernels: gpu::Kernels,
    chains: Mutex<Vec<Loaded>>,
}

/// A chain in device memory.
#[derive(Debug)]
struct Loaded {
    resident: gpu::Resident,
    /// Of each difference, the oldest first: they have sums of its content and of what it builds upon.
    heads: Vec<Vec<u8>>,
}

impl OnDevice {
    /// `None` where the processor reads the fastest tier.
    pub(super) fn new(device: &Device, fastest: &Medium) -> Result<Option<Self>> {
        let needs_kernels = matches!(fastest, Medium::Device(_)) && device.as_cuda().is_some();
        let load = || -> Result<Self> {
            Ok(Self {
                device: device.clone(),
                kernels: gpu::Kernels::load(device)?,
                chains: Mutex::default(),
            })
        };
        needs_kernels.then(load).transpose()
    }
}

impl OnDevice {
    /// Has the device put a checkpoint together of the newest of its differences and those before it, which `others` fetches if
    /// they are not in device memory.
    pub(super) fn restore(
        &self,
        lane: &mut Lane,
        newest: Bytes,
        others: impl FnOnce(&mut Lane) -> Result<Vec<Bytes>>,
        whole: WriteLoan,
    ) -> Result<()> {
        let head = gpu::head(newest.as_ref()).to_vec();
        let is_of = |chain: &Loaded| chain.heads.contains(&head);
        let found = {
            let mut chains = self.chains.lock();
            let at = chains.iter().position(is_of);
            at.map(|at| chains.swap_remove(at))
        };
        let mut chain = match found {
            Some(chain) => chain,
            None => {
                let mut stored = others(lane)?;
                stored.push(newest);
                let heads = stored.iter().map(|one| gpu::head(one.as_ref()).to_vec());
                let heads: Vec<_> = heads.collect();
                let (chain, _) = super::chain(stored)?;
                let resident = gpu::Resident::new(&self.kernels, &chain)?;
                Loaded { resident, heads }
            }
        };
        let mut numbers = std::iter::zip(chain.resident.versions(), &chain.heads);
        let number = numbers.find(|(_, known)| **known == head);
        let (number, _) = number.ok_or(Error::NoTier)?;
        drop(numbers);
        let mut streams = lane.streams(None);
        let restored = chain.resident.restore(streams.get()?, number, whole);
        restored.wait().result?;
        let mut chains = self.chains.lock();
        if chains.len() == CHAINS {
            chains.remove(0);
        }
        chains.push(chain);
        Ok(())
    }
}

impl Differences {
    /// Has the device make the difference in its own memory.
    pub(super) fn on_device(
        &self,
        encoder: &mut Encoder,
        lane: &mut Lane,
        number: u64,
        source: ReadLoan,
    ) -> Result<(Summary, Made)> {
        let OnDevice {
            device, kernels, ..
        } = self.kernels.as_ref().ok_or(Error::NoMemoryTier)?;
        let len = source.len() as u64;
        let most = most_stored_bytes(len) as usize;
        let landing = match encoder.landing.take() {
            Some(landing) if landing.len() >= most => landing,
            _ => device.alloc(most)?,
        };
        let landing = encoder.landing.insert(landing).clone();
        if !matches!(encoder.lineage, Some(Encodes::OnDevice(_))) {
            let lineage = gpu::Lineage::new(kernels, self.config, len)?;
            encoder.lineage = Some(Encodes::OnDevice(Box::new(lineage)));
        }
        let Some(Encodes::OnDevice(lineage)) = &mut encoder.lineage else {
            return Err(Error::NoMemoryTier);
        };
        let out = gpu::Landing::device(&landing, 0..most)?;
        let mut streams = lane.streams(None);
        let stream = streams.get()?;
        let summary = lineage.encode(stream, number, source, out).wait().result?;
        Ok((summary, Made::OnDevice(landing)))
    }
}
