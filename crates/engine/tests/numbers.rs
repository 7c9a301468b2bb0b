//! Numbers of versions that several users of one engine choose.

#![allow(clippy::unwrap_used)]

use tierflow_device::{Choice, open};
use tierflow_engine::{Engine, Error};
use tierflow_testing::assert_matches;

#[test]
fn reserved_numbers_are_above_all_that_were_had_hinted_or_reserved() {
    let device = open(Choice::Host).unwrap();
    let engine = Engine::builder(&device).host_cache(1 << 20);
    let engine = engine.build().unwrap();
    assert_eq!(engine.reserve(3).unwrap(), 0..3);
    assert_eq!(engine.reserve(0).unwrap(), 3..3);
    engine.checkpoint(6, &[[1u8; 8].as_slice().into()]).unwrap();
    engine.discard(6).unwrap();
    assert_eq!(engine.reserve(1).unwrap(), 7..8);
    engine.hint([40, 20]);
    assert_eq!(engine.reserve(2).unwrap(), 41..43);
    // Threads that reserve at once never get the same number.
    let ranges: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..100)
                        .map(|_| engine.reserve(5).unwrap())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut numbers: Vec<_> = ranges.into_iter().flatten().collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (43..43 + 2000).collect::<Vec<_>>());
    assert_matches!(
        engine.reserve(u64::MAX),
        Err(Error::NoNumbers { count: u64::MAX })
    );
    assert_eq!(engine.reserve(1).unwrap(), 2043..2044);
}
