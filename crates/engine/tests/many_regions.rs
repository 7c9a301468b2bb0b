//! Checkpoints have very many regions of all lengths, in the memory of the device, of the host, and of the process.

#![allow(clippy::unwrap_used)]

use std::ops::Range;
use tierflow_device::{Choice, Device, HostReservation, Memory, open};
use tierflow_engine::{Engine, EngineBuilder, Region, RegionMut, Version};
use tierflow_testing::Draws;

const MIB: usize = 1 << 20;
const ROOM: usize = 4 * MIB;

/// An application's memory of each kind.
struct Application {
    device: Device,
    near: Memory,
    far: HostReservation,
    own: Vec<u8>,
}

/// The memory of a region, as an index, and its range there.
type Place = (usize, Range<usize>);

impl Application {
    fn new(device: &Device, seed: u64) -> Self {
        let mut draws = Draws(seed);
        let mut bytes = || -> Vec<u8> {
            let first = draws.index(1 << 20);
            let words = (first as u64..).map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            words.take(ROOM / 8).flat_map(u64::to_le_bytes).collect()
        };
        let near = device.alloc(ROOM).unwrap();
        let far = device.reserve_host(ROOM).unwrap();
        let stream = device.stream().unwrap();
        for memory in [&near, far.memory()] {
            let mut all = memory.lend_mut(0..ROOM).unwrap();
            stream.write(&bytes(), &mut all).unwrap();
        }
        Self {
            device: device.clone(),
            near,
            far,
            own: bytes(),
        }
    }

    /// Returns another application with other bytes, to restore to.
    fn other(&self) -> Self {
        Self::new(&self.device, 77)
    }

    fn regions<'a>(&'a self, places: &[Place]) -> Vec<Region<'a>> {
        let region = |(kind, range): &Place| match kind {
            0 => Region::Memory(&self.near, range.clone()),
            1 => Region::Memory(self.far.memory(), range.clone()),
            _ => Region::Bytes(&self.own[range.clone()]),
        };
        places.iter().map(region).collect()
    }

    /// Returns the regions at these places. Places of one kind must not overlap, and those in the process's memory must ascend.
    fn regions_mut<'a>(&'a mut self, places: &[Place]) -> Vec<RegionMut<'a>> {
        let (mut rest, mut cut) = (self.own.as_mut_slice(), 0);
        let mut regions = Vec::new();
        for (kind, range) in places {
            regions.push(match kind {
                0 => RegionMut::Memory(&self.near, range.clone()),
                1 => RegionMut::Memory(self.far.memory(), range.clone()),
                _ => {
                    let (taken, behind) = std::mem::take(&mut rest).split_at_mut(range.end - cut);
                    let region = RegionMut::Bytes(&mut taken[range.start - cut..]);
                    (rest, cut) = (behind, range.end);
                    region
                }
            });
        }
        regions
    }

    fn read(&self, (kind, range): &Place) -> Vec<u8> {
        let memory = match kind {
            0 => &self.near,
            1 => self.far.memory(),
            _ => return self.own[range.clone()].to_vec(),
        };
        let mut bytes = vec![0; range.len()];
        let stream = self.device.stream().unwrap();
        stream
            .read(&memory.lend(range.clone()).unwrap(), &mut bytes)
            .unwrap();
        bytes
    }
}

/// Returns places of regions of any length, many of them empty. Regions of one memory are adjacent or apart, and regions of device and
/// host are mixed.
fn places(draws: &mut Draws, count: usize) -> Vec<Place> {
    let mut at = [0; 3];
    let mut places: Vec<Place> = (0..count)
        .map(|_| {
            let kind = draws.index(3);
            let length = match draws.index(16) {
                0..3 => 0,
                3 => draws.index(40_000),
                4..8 => 16 * draws.index(64),
                _ => draws.index(700),
            };
            let start = (at[kind] + draws.index(3) * draws.index(20)).min(ROOM);
            let end = (start + length).min(ROOM);
            at[kind] = end;
            (kind, start..end)
        })
        .collect();
    for _ in 0..count {
        let (one, other) = (draws.index(count), draws.index(count));
        if places[one].0 < 2 && places[other].0 < 2 {
            places.swap(one, other);
        }
    }
    places
}

/// Asserts that all regions are restored, and that some of them are in another order.
fn come_back(device: &Device, builder: &dyn Fn() -> EngineBuilder, (seed, count): (u64, usize)) {
    let mut draws = Draws(seed);
    let application = Application::new(device, seed);
    let places = places(&mut draws, count);
    let engine = builder().build().unwrap();
    let regions = application.regions(&places);
    let version: Version = 3;
    engine.checkpoint(version, &regions).unwrap();
    let mut back = application.other();
    engine
        .restore(version, &mut back.regions_mut(&places))
        .unwrap();
    for place in &places {
        assert!(back.read(place) == application.read(place), "{place:?}");
    }

    let names: Vec<String> = (0..count).map(|number| format!("r{number}")).collect();
    let named = regions.iter().zip(&names);
    let named: Vec<Region<'_>> = named
        .map(|(region, name)| region.clone().named(name))
        .collect();
    let version = 4;
    engine.checkpoint(version, &named).unwrap();
    let chosen: Vec<usize> = (0..count).filter(|_| draws.index(3) == 0).collect();
    let chosen_places: Vec<Place> = chosen.iter().map(|at| places[*at].clone()).collect();
    let mut back = application.other();
    let untouched = application.other();
    {
        let targets = back.regions_mut(&chosen_places);
        let names = chosen.iter().map(|at| names[*at].as_str());
        let mut targets: Vec<_> = names.zip(targets).collect();
        targets.reverse();
        engine
            .call()
            .restore_regions(version, &mut targets)
            .unwrap();
    }
    for (number, place) in places.iter().enumerate() {
        let expected = match chosen.binary_search(&number).is_ok() {
            true => &application,
            false => &untouched,
        };
        assert!(back.read(place) == expected.read(place), "{place:?}");
    }
}

fn everywhere(device: &Device, (seeds, count): (Range<u64>, usize)) {
    for seed in seeds {
        let seed = 0x9E37_79B9 + seed;
        let cached = || Engine::builder(device).device_cache(64 * MIB);
        come_back(device, &cached, (seed, count));
        // The checkpoint begins in one cache and continues in the other.
        let spread = || {
            Engine::builder(device)
                .device_cache(2 * MIB)
                .host_cache(64 * MIB)
        };
        come_back(device, &spread, (seed, count));
        let directory = tempfile::tempdir().unwrap();
        let scratch = || Engine::builder(device).scratch(directory.path());
        come_back(device, &scratch, (seed, count));
        let lasting = || Engine::builder(device).node_local(directory.path().join("kept"));
        come_back(device, &lasting, (seed, count));
    }
}

#[test]
fn regions_of_all_kinds_come_back_from_everywhere() {
    everywhere(&open(Choice::Host).unwrap(), (0..6, 150));
}

#[test]
fn very_many_regions_come_back_from_everywhere() {
    everywhere(&open(Choice::Host).unwrap(), (20..21, 3000));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn regions_come_back_over_gpu_memory() {
    everywhere(&open(Choice::Cuda { ordinal: 0 }).unwrap(), (0..6, 3000));
}
