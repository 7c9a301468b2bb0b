//! Differences of memory that only the device reads: its kernels make them, and put checkpoints together.

use super::super::stored::Bytes;
use super::{Differences, Encoder, Encodes, Made};
use crate::run::lane::Lane;
use crate::run::medium::Medium;
use crate::{Error, Result};
use tierflow_dedup::{Chain, Summary, gpu, most_stored_bytes};
use tierflow_device::{Device, ReadLoan, WriteLoan};

/// The device, and its kernels.
#[derive(Debug)]
pub(super) struct OnDevice {
    device: Device,
    kernels: gpu::Kernels,
}

impl OnDevice {
    /// `None` where the processor reads the fastest tier.
    pub(super) fn new(device: &Device, fastest: &Medium) -> Result<Option<Self>> {
        let needs_kernels = matches!(fastest, Medium::Device(_)) && device.as_cuda().is_some();
        let load = || -> Result<Self> {
            Ok(Self {
                device: device.clone(),
                kernels: gpu::Kernels::load(device)?,
            })
        };
        needs_kernels.then(load).transpose()
    }
}

impl OnDevice {
    /// Has the device put a checkpoint together.
    pub(super) fn restore(
        &self,
        lane: &mut Lane,
        (chain, number): (Chain<Bytes>, u64),
        whole: WriteLoan,
    ) -> Result<()> {
        let mut streams = lane.streams(None);
        let stream = streams.get()?;
        let mut resident = gpu::Resident::new(&self.kernels, &chain)?;
        Ok(resident.restore(stream, number, whole).wait().result?)
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
        let OnDevice { device, kernels } = self.kernels.as_ref().ok_or(Error::NoMemoryTier)?;
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
