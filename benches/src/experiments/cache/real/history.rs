//! A history kept by one approach, with the calls that all approaches have.

use anyhow::Result;
use tierflow_device::Memory;
use tierflow_engine::{Engine, Metrics, Region, RegionMut, Tier, Version};
use tierflow_sim::Workload;
use tierflow_tier_alloc::HostOptions;

use super::{Approach, Machine, host_for_all, scratch};
use crate::experiments::wait_grown;
use crate::papers::uvm::Uvm;

pub(super) enum History {
    Engine(Box<Engine>),
    Uvm(Uvm),
}

impl History {
    /// Makes an empty history, whose memory is all allocated.
    pub(super) fn new(machine: &Machine, way: Approach, workload: &Workload) -> Result<Self> {
        Ok(match way {
            Approach::Uvm => Self::Uvm(uvm(machine, workload)?),
            _ => Self::Engine(Box::new(engine(machine, way, workload)?)),
        })
    }

    pub(super) fn checkpoint(&self, version: Version, from: &Memory, bytes: u64) -> Result<()> {
        match self {
            Self::Engine(engine) => {
                let region = Region::Memory(from, 0..bytes as usize);
                Ok(engine.checkpoint(version, &[region])?)
            }
            Self::Uvm(uvm) => uvm.checkpoint(version, from, bytes),
        }
    }

    pub(super) fn restore(&mut self, version: Version, to: &Memory, bytes: u64) -> Result<()> {
        match self {
            Self::Engine(engine) => {
                let region = RegionMut::Memory(to, 0..bytes as usize);
                engine.restore(version, &mut [region])?;
                Ok(())
            }
            Self::Uvm(uvm) => uvm.restore(version, to, bytes),
        }
    }

    pub(super) fn discard(&self, version: Version) -> Result<()> {
        match self {
            Self::Engine(engine) => Ok(engine.discard(version)?),
            Self::Uvm(uvm) => uvm.discard(version),
        }
    }

    pub(super) fn hint(&self, versions: &[Version]) {
        match self {
            Self::Engine(engine) => engine.hint(versions.iter().copied()),
            Self::Uvm(uvm) => uvm.hint(versions),
        }
    }

    pub(super) fn prefetch_start(&self) {
        match self {
            Self::Engine(engine) => engine.hints().prefetch_start(),
            Self::Uvm(uvm) => uvm.prefetch_start(),
        }
    }

    pub(super) fn wait(&self) -> Result<()> {
        match self {
            Self::Engine(engine) => Ok(engine.wait()?),
            Self::Uvm(uvm) => uvm.wait(),
        }
    }

    /// Returns the engine's metrics; `None` without an engine.
    pub(super) fn metrics(&self) -> Option<Metrics> {
        match self {
            Self::Engine(engine) => Some(engine.metrics()),
            Self::Uvm(_) => None,
        }
    }

    /// Returns the rates at which managed memory moved, by name.
    pub(super) fn migration(&self) -> Vec<(&'static str, f64)> {
        match self {
            Self::Engine(_) => Vec::new(),
            Self::Uvm(uvm) => uvm.migration(),
        }
    }

    /// Returns the prefetch distance at the last restore, and the sum over all restores.
    pub(super) fn distances(&self) -> (u64, u64) {
        match self {
            Self::Engine(engine) => {
                let distance = engine.metrics().prefetch_distance;
                (distance.last, distance.sum)
            }
            Self::Uvm(uvm) => uvm.distances(),
        }
    }
}

fn engine(machine: &Machine, way: Approach, workload: &Workload) -> Result<Engine> {
    let device_cache = match way {
        Approach::OnDemand => 0,
        _ => machine.scale.device as usize,
    };
    let builder = Engine::builder(&machine.device)
        .device_cache(device_cache)
        .after_restore(workload.after_restore);
    let builder = way.engine(builder);
    let host = |bytes: u64| Tier::host(bytes as usize).growth(HostOptions::default());
    let builder = if way.keeps_all_in_memory() {
        builder.tier(host(host_for_all(workload)))
    } else {
        builder.tier(host(machine.scale.host)).scratch(scratch())
    };
    let engine = builder.build()?;
    wait_grown(&engine);
    Ok(engine)
}

/// Makes a history in the machine's managed memory, with as many bytes on the device as the device cache has.
pub(super) fn uvm(machine: &Machine, workload: &Workload) -> Result<Uvm> {
    let managed = |bytes| machine.managed(bytes);
    Uvm::new(&machine.device, machine.scale.device, workload, managed)
}
