//! Memory of other GPUs as a tier: a number of bytes of each, or the shares that the schedule of a group checkpoint sends there.

use std::collections::BTreeMap;

use tierflow_device::{Choice, Device, Kind, host, open};
use tierflow_peers::placement::{GpuId, Share};
use tierflow_peers::{Effort, Error, GroupOverflow, Machine, Part, PeerCache, calibrate};

use super::site::is_there;
use super::{Options, value};
use crate::failure::{Failure, Outcome, Status, System};

/// Bytes of a copy that measures a link between host devices. Such links share one memory bus, and have no start-up time to hide.
const HOST_BYTES: usize = 4 << 20;

/// Parses GPUs and their bytes, such as `cuda:1=8GiB, cuda:2=8GiB`.
pub(super) fn parse(text: &str) -> Result<Vec<(Choice, usize)>, String> {
    let each = text.split(',').map(|one| {
        let (peer, bytes) = one
            .split_once('=')
            .ok_or("write such as cuda:1=8GiB, cuda:2=8GiB")?;
        let bytes = usize::try_from(value::bytes(bytes.trim())?).map_err(|e| e.to_string())?;
        Ok((value::device(peer.trim())?, bytes))
    });
    each.collect()
}

impl Options {
    /// Allocates the memory of the peers. Returns `None` if the options name no peers.
    pub(super) fn peer_cache(&self, device: &Device) -> Outcome<Option<PeerCache>> {
        if !self.overflow.is_empty() {
            return self.by_schedule(device);
        }
        if self.machine.is_some() {
            return Err(Failure::argument(
                "machine is the file of links for a schedule: name the bytes to be placed as overflow",
            ));
        }
        if self.peers.is_empty() {
            return Ok(None);
        }
        let parts = self
            .peers
            .iter()
            .enumerate()
            .map(|(number, (peer, bytes))| {
                let (part, _never_recalled) = Part::on(&open_peer(*peer, number)?, *bytes);
                Ok(part)
            });
        let parts = parts.collect::<Outcome<_>>()?;
        Ok(Some(PeerCache::new(device, parts).map_err(failed)?))
    }

    /// Allocates on each peer the share that min-time max-flow sends there from this device.
    fn by_schedule(&self, device: &Device) -> Outcome<Option<PeerCache>> {
        // The GPUs are in the order of their numbers, so every engine of the group solves the same problem.
        let own = device.info().ordinal;
        let mut group = BTreeMap::from([(own, (device.clone(), Share::Spare(0)))]);
        let mut named = BTreeMap::new();
        let mut name = |ordinal, option| match named.insert(ordinal, option) {
            None => Ok(()),
            Some(before) if before == option => Err(Failure::argument(format!(
                "GPU {ordinal} is named twice in {option}: name it once, with all of its bytes"
            ))),
            Some(_) => Err(Failure::argument(format!(
                "GPU {ordinal} is named in overflow and in peers: its checkpoint is larger than its cache, or it has memory to spare"
            ))),
        };
        for (choice, bytes) in &self.overflow {
            let gpu = match choice {
                Choice::Cuda { ordinal } if *ordinal != own => open(*choice)?,
                _ => device.clone(),
            };
            let share = Share::Remainder(*bytes as u64);
            name(gpu.info().ordinal, "overflow")?;
            group.insert(gpu.info().ordinal, (gpu, share));
        }
        for (number, (peer, bytes)) in self.peers.iter().enumerate() {
            let gpu = open_peer(*peer, number)?;
            let ordinal = gpu.info().ordinal;
            name(ordinal, "peers")?;
            group.insert(ordinal, (gpu, Share::Spare(*bytes as u64)));
        }
        let from = group.keys().position(|ordinal| *ordinal == own);
        let from = GpuId(from.unwrap_or_default());
        let (gpus, shares): (Vec<_>, Vec<_>) = group.into_values().unzip();
        let topology = self.links_of(&gpus)?.topology().map_err(failed)?;
        let overflow = GroupOverflow::new(&gpus, from, &topology, &shares).map_err(failed)?;
        for (peer, why) in &overflow.refusals {
            let ordinal = gpus[peer.0].info().ordinal;
            tracing::warn!("GPU {ordinal} has no memory for its share of the overflow: {why}");
        }
        let schedule = &overflow.schedule;
        tracing::info!("the overflow is predicted to take {}", schedule.makespan());
        Ok(overflow.cache)
    }

    /// Reads the links from the file, or measures them and writes the file.
    fn links_of(&self, gpus: &[Device]) -> Outcome<Machine> {
        if let Some(path) = &self.machine
            && is_there(path)?
        {
            let machine = Machine::load(path).map_err(failed)?;
            machine.fits(gpus).map_err(failed)?;
            return Ok(machine);
        }
        let is_host = gpus.iter().all(|gpu| gpu.info().kind == Kind::Host);
        let effort = match is_host {
            true => Effort::default().bytes(HOST_BYTES),
            false => Effort::default(),
        };
        let machine = calibrate(gpus, effort).map_err(failed)?;
        if let Some(path) = &self.machine {
            machine.save(path).map_err(failed)?;
        }
        Ok(machine)
    }
}

/// Opens a peer. Host devices that stand for GPUs get numbers from 1 on, in the order of `peers`.
fn open_peer(choice: Choice, number: usize) -> Outcome<Device> {
    Ok(match choice {
        Choice::Host => host::open(host::Options::default().ordinal(number + 1))?,
        _ => open(choice)?,
    })
}

/// Sorts a failure by the caller's next step.
fn failed(error: Error) -> Failure {
    let (status, system) = match &error {
        Error::Device { why, .. } => (why.into(), System::default()),
        Error::TimedOut { .. } => (Status::TimedOut, System::default()),
        Error::NothingToLend { .. } => (Status::NoRoom, System::default()),
        Error::File { path, why, .. } => (Status::Storage, System::of(path, why)),
        // The options, the file of links, or the links that were measured do not fit together.
        _ => (Status::Argument, System::default()),
    };
    Failure {
        system,
        ..Failure::new(status, error.to_string())
    }
}
