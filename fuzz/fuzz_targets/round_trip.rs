//! Encodes any history by any method. The history must be restored as it was, and a resumed lineage must continue as an uninterrupted one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierflow_dedup::{Chain, Config, Lineage, Method};

const METHODS: [Method; 5] = [
    Method::Full,
    Method::Basic,
    Method::List,
    Method::Tree,
    Method::Auto,
];

/// Method, chunk size, length, record, and the writes of each checkpoint: an offset and a content. The content is a byte or a piece of
/// the checkpoint before.
type Input = (u8, u8, u16, u16, Vec<Vec<(u16, u16, u8)>>);

fuzz_target!(|input: Input| {
    let (method, chunk, len, capacity, edits) = input;
    let len = usize::from(len).max(1);
    let config = Config::new(METHODS[usize::from(method) % METHODS.len()])
        .chunk(32 << (chunk % 12))
        .record_capacity(capacity.into())
        .seed(0);
    let mut lineage = Lineage::new(config).expect("a sound configuration");
    let mut chain = Chain::new();
    let mut history = vec![vec![0_u8; len]];
    for (edits, version) in edits.iter().take(12).zip(1..) {
        let mut state = history[history.len() - 1].clone();
        for &(to, from, byte) in edits {
            let (to, from) = (usize::from(to) % len, usize::from(from) % len);
            let count = (usize::from(byte) * 32).min(len - to.max(from));
            if byte % 2 == 0 {
                state.copy_within(from..from + count, to);
            } else {
                state[to] = byte;
            }
        }
        let mut resumed = Lineage::resume(config, &chain).expect("a sound chain");
        let difference = lineage.encode(version, &state).expect("a sound checkpoint");
        assert_eq!(
            resumed.encode(version, &state).expect("a sound checkpoint"),
            difference
        );
        chain
            .push(difference.into_bytes())
            .expect("a sound difference");
        history.push(state);
    }
    chain.verify().expect("a sound chain");
    for (state, version) in history.iter().skip(1).zip(1..) {
        assert_eq!(chain.to_vec(version).as_ref(), Ok(state));
    }
});
