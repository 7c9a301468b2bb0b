//! Compares a volume's choice of a store with an oracle: Algorithm 2 of VeloC (IPDPS'19) without flushes, with observed rates.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use proptest::prelude::*;
use tierflow_placement::stores::{Calibration, ChunkMap, Placed, ShortestWait, Store};

const CHUNK: u64 = 1 << 20;

/// Most writers of a store. The calibration has a sample of each number up to this one.
const WRITERS: u32 = 12;

/// A store as the oracle sees it.
#[derive(Clone, Debug)]
struct Known {
    /// Bytes/s of all writers together. The index is their number less one.
    samples: Vec<f64>,
    capacity: usize,
    chunks: usize,
    writers: u32,
}

impl Known {
    /// Returns the seconds in which one further writer writes a chunk, if all share the store evenly.
    fn seconds(&self) -> f64 {
        let writers = self.writers + 1;
        f64::from(writers) * CHUNK as f64 / self.samples[writers as usize - 1]
    }
}

fn stores() -> impl Strategy<Value = Vec<Known>> {
    let samples = prop::collection::vec(1e6_f64..3e9, WRITERS as usize);
    let store = (samples, 1_usize..12).prop_map(|(samples, capacity)| Known {
        samples,
        capacity,
        chunks: 0,
        writers: 0,
    });
    prop::collection::vec(store, 1..5)
}

proptest! {
    /// Writes take no time here, so no observation corrects a calibration: the samples alone decide.
    #[test]
    fn a_chunk_goes_to_the_store_that_has_it_first(
        mut known in stores(),
        steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..60),
    ) {
        let made = known.iter().map(|known| {
            let calibration = Calibration::new(1, 1, &known.samples).unwrap();
            Store::new(calibration, known.capacity)
        });
        let mut map = ChunkMap::new(CHUNK, made.collect(), Box::new(ShortestWait), 0);
        let mut under_way: Vec<Placed> = Vec::new();
        let mut chunk = 0;
        for (ends, which) in steps {
            if ends && !under_way.is_empty() {
                let placed = under_way.swap_remove(which.index(under_way.len()));
                known[placed.extent.store.0].writers -= 1;
                map.failed(0, &placed);
                // A failed write leaves no chunk behind, and with a pause of 0 the store is chosen again at once.
                known[placed.extent.store.0].chunks -= 1;
                continue;
            }
            if under_way.len() as u32 + 1 >= WRITERS {
                continue;
            }
            let free = known.iter().filter(|known| known.chunks < known.capacity);
            let least = free.map(Known::seconds).reduce(f64::min);
            let start = chunk * CHUNK;
            let placed = (start + CHUNK <= map.bytes())
                .then(|| map.place(0, start..start + CHUNK, &[]))
                .flatten();
            chunk += u64::from(placed.is_some());
            let Some(placed) = placed else {
                prop_assert!(least.is_none() || start + CHUNK > map.bytes());
                continue;
            };
            let store = &mut known[placed.extent.store.0];
            let (seconds, least) = (store.seconds(), least.unwrap());
            prop_assert!(store.chunks < store.capacity);
            // The spline goes through its samples except for rounding, and never below half of the least sample.
            prop_assert!(seconds <= least * (1.0 + 1e-9), "{seconds} s, and {least} elsewhere");
            store.chunks += 1;
            store.writers += 1;
            under_way.push(placed);
        }
    }

    /// A store is slower than its calibration says, and slower than the second store. The observed rates must move the choice to the second.
    #[test]
    fn observed_rates_decide_against_a_wrong_calibration(
        rate in 1e7_f64..1e9,
        wrong in 2.0_f64..8.0,
    ) {
        // The calibration of the first store is too fast by the factor `wrong`. The calibration of the second is right, and between the two rates.
        let calibrated = |rate: f64| Calibration::new(1, 1, &[rate; 4]).unwrap();
        let second = rate * wrong.sqrt();
        let stores = vec![
            Store::new(calibrated(rate * wrong), 4096),
            Store::new(calibrated(second), 4096),
        ];
        let rates = [rate, second];
        let mut map = ChunkMap::new(CHUNK, stores, Box::new(ShortestWait), 0);
        let (mut now, mut last) = (0_u64, Vec::new());
        for chunk in 0..200 {
            let placed = map.place(now, chunk * CHUNK..(chunk + 1) * CHUNK, &[]).unwrap();
            let store = placed.extent.store.0;
            now += (CHUNK as f64 / rates[store] * 1e9) as u64;
            map.written(now, &placed);
            last.push(store);
        }
        prop_assert_eq!(last[0], 0, "the calibration decides at first");
        prop_assert_eq!(last[199], 1, "observed rates decide in the end: {:?}", last);
    }
}

#[test]
fn chunks_that_cannot_be_placed_anew_stay_where_they_are() {
    let store = || Store::new(Calibration::new(1, 1, &[1e9]).unwrap(), 2);
    let mut map = ChunkMap::new(CHUNK, vec![store()], Box::new(ShortestWait), 0);
    let placed = map.place(0, 0..2 * CHUNK, &[]).unwrap();
    map.written(1, &placed);
    let found = map.find(&(0..2 * CHUNK)).unwrap();
    assert!(map.place(2, 0..2 * CHUNK, &[found.store]).is_none());
    assert_eq!(map.find(&(0..2 * CHUNK)), Ok(found));
    assert_eq!(map.chunks(), [2]);
    // The chunks can be placed into their own slots.
    assert!(map.place(2, 0..2 * CHUNK, &[]).is_some());
}

#[test]
fn a_write_of_no_bytes_does_not_spoil_the_speed() {
    let mut store = Store::new(Calibration::new(1, 1, &[1e9]).unwrap(), 2);
    for now in [0, 1_000_000] {
        let write = store.begin_write(now, 0);
        store.end_write(now + 500_000, write, Some(0));
    }
    assert_eq!(store.state().correction, 1.0);
}
