//! Storage of the application's: what it says of itself is looked at before anything is kept there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use parking_lot::Mutex;
use std::sync::Arc;
use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error, Region, RegionMut};
use tierflow_store::Storage;

/// Storage in memory, of an alignment of its own.
#[derive(Debug)]
struct Blocks {
    alignment: usize,
    bytes: Mutex<Vec<u8>>,
}

impl Storage for Blocks {
    fn alignment(&self) -> usize {
        self.alignment
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> tierflow_store::Result<()> {
        let mut all = self.bytes.lock();
        let end = offset as usize + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[end - bytes.len()..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> tierflow_store::Result<()> {
        let start = offset as usize;
        let length = bytes.len();
        bytes.copy_from_slice(&self.bytes.lock()[start..start + length]);
        Ok(())
    }
}

fn engine(alignment: usize) -> Result<Engine, Error> {
    let storage = Blocks {
        alignment,
        bytes: Mutex::default(),
    };
    let device = open(Choice::Host).unwrap();
    Engine::builder(&device).storage(Arc::new(storage)).build()
}

#[test]
fn an_alignment_that_is_none_is_refused() {
    for alignment in [0, 3, 12, 4095, 8192, usize::MAX] {
        match engine(alignment) {
            Err(Error::Alignment {
                alignment: told, ..
            }) => assert_eq!(told, alignment),
            other => panic!("{alignment}: {other:?}"),
        }
    }
}

#[test]
fn every_alignment_that_is_one_works() {
    for shift in 0..=12 {
        let engine = engine(1 << shift).unwrap();
        let bytes: Vec<u8> = (0..10_001_u32).map(|i| (i % 251) as u8).collect();
        for version in 0..3 {
            engine
                .checkpoint(version, &[Region::from(bytes.as_slice())])
                .unwrap();
        }
        let mut back = vec![0; bytes.len()];
        engine
            .restore(1, &mut [RegionMut::from(back.as_mut_slice())])
            .unwrap();
        assert!(back == bytes, "alignment {}", 1 << shift);
    }
}
