//! Histories of checkpoints to encode, and an encoder that is as simple as possible.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::HashMap;

use tierflow_dedup::{Chain, Config, Lineage, Method};
pub(crate) use tierflow_testing::Draws;

pub(crate) const METHODS: [Method; 5] = [
    Method::Full,
    Method::Basic,
    Method::List,
    Method::Tree,
    Method::Auto,
];

/// Histories of small checkpoints, of every kind that the benches measure.
pub(crate) fn histories(len: usize, chunk: usize) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut random = Draws(len as u64);
    let base = random.bytes(len);
    let mut all = Vec::new();

    let mut sparse = vec![base.clone()];
    for _ in 0..4 {
        let mut next = sparse[sparse.len() - 1].clone();
        for _ in 0..1 + len / chunk / 50 {
            let at = random.index(len);
            next[at] = next[at].wrapping_add(1);
        }
        sparse.push(next);
    }
    all.push(("sparse changes", sparse));

    let other = random.bytes(len);
    all.push((
        "A, B, A, B, A",
        vec![
            base.clone(),
            other.clone(),
            base.clone(),
            other,
            base.clone(),
        ],
    ));
    all.push((
        "zeros",
        vec![vec![0; len], vec![0; len], base.clone(), vec![0; len]],
    ));
    all.push(("all changes", (0..3).map(|_| random.bytes(len)).collect()));

    let rotate = |by: usize| {
        let mut rotated = base.clone();
        rotated.rotate_left((by * chunk).min(len));
        rotated
    };
    all.push(("rotation", [0, 1, 2, 5, 16].map(rotate).to_vec()));

    let mut growing = vec![0; len];
    let mut append = Vec::new();
    for part in 0..4 {
        let (from, to) = (part * len / 4, (part + 1) * len / 4);
        growing[from..to].copy_from_slice(&random.bytes(to - from));
        append.push(growing.clone());
    }
    all.push(("append", append));

    // Rows of a table of few kinds, as in embeddings and graphlet counts.
    let kinds: Vec<Vec<u8>> = (0..5).map(|_| random.bytes(chunk)).collect();
    let mut rows = Vec::new();
    for _ in 0..4 {
        let mut state: Vec<u8> = Vec::with_capacity(len + chunk);
        while state.len() < len {
            let skewed = random.index(5).min(random.index(5));
            state.extend_from_slice(&kinds[skewed]);
        }
        state.truncate(len);
        rows.push(state);
    }
    all.push(("few kinds", rows));
    all
}

/// Encodes and stores a history as versions 10, 20, 30 …
pub(crate) fn encode(config: Config, history: &[Vec<u8>]) -> Chain<Vec<u8>> {
    let mut lineage = Lineage::new(config).unwrap();
    let mut chain = Chain::new();
    for (data, version) in history.iter().zip(1..) {
        let difference = lineage.encode(10 * version, data).unwrap();
        assert_eq!(
            difference.summary().stored_bytes,
            difference.as_bytes().len() as u64
        );
        chain.push(difference.into_bytes()).unwrap();
    }
    chain
}

/// Restores every version and compares it with the history.
pub(crate) fn check(chain: &Chain<Vec<u8>>, history: &[Vec<u8>], what: &str) {
    chain
        .verify()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    for (data, version) in history.iter().zip(1..) {
        let restored = chain.to_vec(10 * version);
        let restored = restored.unwrap_or_else(|error| panic!("{what}, {version}: {error}"));
        assert!(restored == *data, "{what}: version {version} differs");
    }
}

/// Returns what the List method stores per checkpoint: bytes of first-time occurrences, their number, and that of shifted
/// duplicates. Compares the bytes of chunks, not digests.
pub(crate) fn oracle(history: &[Vec<u8>], chunk: usize) -> Vec<(u64, u32, u32)> {
    let mut seen: HashMap<&[u8], ()> = HashMap::new();
    let mut before: Option<&Vec<u8>> = None;
    let mut stored = Vec::new();
    for data in history {
        let (mut bytes, mut first, mut shifted) = (0, 0, 0);
        for (at, piece) in data.chunks(chunk).enumerate() {
            let start = at * chunk;
            if before.is_some_and(|before| &before[start..start + piece.len()] == piece) {
                continue;
            }
            if seen.insert(piece, ()).is_none() {
                bytes += piece.len() as u64;
                first += 1;
            } else {
                shifted += 1;
            }
        }
        stored.push((bytes, first, shifted));
        before = Some(data);
    }
    stored
}

/// Two chunks of 32 bytes with the same XXH3-128 digest under seed 0. The known secret lets both products of the hash
/// vanish, so that only the sums of the halves count.
pub(crate) fn colliding() -> ([u8; 32], [u8; 32]) {
    let secret = [
        0xbe4b_a423_396c_feb8_u64,
        0x1cad_21f7_2c81_017c,
        0xdb97_9083_e96d_d4de,
        0x1f67_b3b7_a4a4_4072,
    ];
    let total = 0x1234_5678_9ABC_DEF0_u64;
    let halves = [
        [secret[0], total.wrapping_sub(secret[0])],
        [total.wrapping_sub(secret[1]), secret[1]],
    ];
    let second = [secret[2], 77];
    let chunk = |half: [u64; 2]| {
        let mut chunk = [0; 32];
        for (bytes, word) in chunk.chunks_mut(8).zip([half, second].concat()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        chunk
    };
    (chunk(halves[0]), chunk(halves[1]))
}

/// Chunks of 32 bytes that collide within a checkpoint, at the same place in the next, and elsewhere in a later one.
pub(crate) fn colliding_history() -> Vec<Vec<u8>> {
    let (x, y) = colliding();
    let fill = Draws(3).bytes(20 * 32);
    let with = |chunks: &[(usize, &[u8; 32])]| {
        let mut state = fill.clone();
        for (at, chunk) in chunks {
            state[at * 32..][..32].copy_from_slice(*chunk);
        }
        state
    };
    vec![
        with(&[(0, &x), (5, &y), (6, &x)]),
        with(&[(0, &y), (5, &x), (6, &x)]),
        with(&[(0, &y), (5, &x), (9, &y), (10, &x)]),
    ]
}
