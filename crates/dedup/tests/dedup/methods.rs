//! Compares the bytes that each method stores with the oracle and with other methods, and restores them.

use crate::common::{METHODS, check, encode, histories, oracle};
use tierflow_dedup::{Chain, Config, Lineage, Method, Stored, most_stored_bytes};

fn config(method: Method, chunk: usize) -> Config {
    Config::new(method)
        .chunk(chunk as u32)
        .seed(11)
        .record_capacity(u64::MAX / 2)
}

#[test]
fn every_history_comes_back_by_every_method() {
    for (len, chunk) in [
        (40_000, 32),
        (100_003, 64),
        (65_536, 128),
        (300_001, 1024),
        (200_000, 65_536),
    ] {
        for (name, history) in histories(len, chunk) {
            for method in METHODS {
                let chain = encode(config(method, chunk), &history);
                check(&chain, &history, &format!("{name}, {method:?}, {chunk}"));
            }
        }
    }
}

#[test]
fn list_stores_what_the_oracle_stores() {
    for (len, chunk) in [(40_000, 32), (100_003, 64), (300_001, 1024)] {
        for (name, history) in histories(len, chunk) {
            let chain = encode(config(Method::List, chunk), &history);
            for (version, (bytes, first, shifted)) in (1..).zip(oracle(&history, chunk)) {
                let container = chain.get(10 * version).unwrap();
                let metadata = u64::from(first) * 4 + u64::from(shifted) * 12;
                let size = (192 + metadata).next_multiple_of(64) + bytes;
                if size >= most_stored_bytes(len as u64) {
                    assert_eq!(container.stored(), Stored::Full, "{name} {version}");
                    continue;
                }
                assert_eq!(container.payload_bytes(), bytes, "{name} {version}");
                assert_eq!(container.entries(), (first, shifted), "{name} {version}");
                assert_eq!(container.metadata_bytes(), metadata);
            }
        }
    }
}

/// Metadata and payload bytes of the stored versions.
fn sizes(chain: &Chain<Vec<u8>>) -> Vec<(u64, u64)> {
    chain
        .versions()
        .map(|version| chain.get(version).unwrap())
        .map(|container| (container.metadata_bytes(), container.payload_bytes()))
        .collect()
}

#[test]
fn tree_never_stores_more_than_list_and_nothing_more_than_full() {
    for (len, chunk) in [(40_000, 32), (100_003, 64), (300_001, 1024)] {
        for (name, history) in histories(len, chunk) {
            let list = sizes(&encode(config(Method::List, chunk), &history));
            let tree = sizes(&encode(config(Method::Tree, chunk), &history));
            for (list, tree) in list.iter().zip(&tree) {
                assert!(
                    tree.0 + tree.1 <= list.0 + list.1,
                    "{name}: {tree:?} > {list:?}"
                );
                assert!(tree.1 > list.1 || tree.0 <= list.0 || list.0 == 0, "{name}");
                assert!(tree.0 + tree.1 <= len as u64, "{name}: {tree:?}");
            }
        }
    }
}

#[test]
fn a_checkpoint_that_comes_back_costs_an_entry_and_the_last_chunks_that_make_no_node() {
    let history = &histories(64 * 1024 + 5, 64)[1].1;
    let chain = encode(config(Method::Tree, 64), history);
    // 1025 chunks are the root of 1024 and one more.
    assert_eq!(chain.get(30).unwrap().entries(), (0, 2));
    assert_eq!(chain.get(30).unwrap().payload_bytes(), 0);
    check(&chain, history, "A, B, A");
}

#[test]
fn zeros_cost_an_entry_for_each_level() {
    let history = &histories(1 << 20, 64)[2].1;
    let chain = encode(config(Method::Tree, 64), history);
    let first = chain.get(10).unwrap();
    assert_eq!(first.payload_bytes(), 64);
    // Chunk 0, and then the regions 1, 2…3, 4…7, 8…15 and so on, of 16 384 chunks.
    assert_eq!(first.entries(), (1, 14));
    assert_eq!(chain.get(20).unwrap().entries(), (0, 0));
}

#[test]
fn every_number_of_chunks_with_every_kind_of_tail() {
    for chunks in 1..=1025_usize {
        let chunk = 32;
        let tail = [1, 3, 8, 16, 17, 31, 32][chunks % 7];
        let len = (chunks - 1) * chunk + tail;
        let mut random = crate::common::Draws(chunks as u64);
        let a = random.bytes(len);
        let mut b = random.bytes(len);
        let half = len / 2 / chunk * chunk;
        b[..half].copy_from_slice(&a[len - len / chunk * chunk..][..half]);
        let history = [a.clone(), b.clone(), a, b];
        for method in [Method::Basic, Method::List, Method::Tree] {
            let chain = encode(config(method, chunk), &history);
            check(&chain, &history, &format!("{chunks} chunks, {method:?}"));
            if method == Method::Tree {
                let third = chain.get(30).unwrap();
                // An entry may be longer than the chunk that it replaces.
                let is_tiny = len < 64 && third.stored() == Stored::Full;
                assert!(third.payload_bytes() == 0 || is_tiny, "{chunks}");
                assert!(third.entries().1 <= 2 * (usize::BITS - chunks.leading_zeros()));
            }
        }
    }
}

#[test]
fn chunks_of_every_size_up_to_the_largest() {
    for shift in 5..=16 {
        let chunk = 1 << shift;
        for len in [
            1,
            chunk - 1,
            chunk,
            chunk + 1,
            5 * chunk + 241,
            9 * chunk + 130,
        ] {
            for (name, history) in histories(len, chunk) {
                let chain = encode(config(Method::Tree, chunk), &history);
                check(&chain, &history, &format!("{name}, {len} by {chunk}"));
            }
        }
    }
}

#[test]
fn the_threads_do_not_show() {
    let history = &histories(5_000_001, 64)[0].1;
    let many = encode(config(Method::Tree, 64), history);
    let pool = rayon_of_one();
    let one = pool.install(|| encode(config(Method::Tree, 64), history));
    for version in many.versions() {
        assert_eq!(sizes(&many), sizes(&one));
        let (many, one) = (many.export(version).unwrap(), one.export(version).unwrap());
        assert_eq!(many, one);
    }
    let mut first = Lineage::new(config(Method::Tree, 64)).unwrap();
    let mut second = Lineage::new(config(Method::Tree, 64)).unwrap();
    for (data, version) in history.iter().zip(0..) {
        let one = pool.install(|| second.encode(version, data).unwrap());
        assert_eq!(first.encode(version, data).unwrap(), one);
    }
}

fn rayon_of_one() -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap()
}

#[test]
fn auto_gives_up_on_all_new_data_and_finds_its_way_back() {
    let len = 64 * 64 * 200;
    let mut random = crate::common::Draws(1);
    let (a, b, c) = (random.bytes(len), random.bytes(len), random.bytes(len));
    let mut d = c.clone();
    d[77] ^= 1;
    let history = [a, b, c, d];
    let chain = encode(config(Method::Auto, 64), &history);
    let stored: Vec<_> = chain
        .versions()
        .map(|v| chain.get(v).unwrap().stored())
        .collect();
    assert_eq!(stored[1..], [Stored::Full, Stored::Full, Stored::Tree]);
    assert_eq!(chain.get(40).unwrap().payload_bytes(), 64);
    check(&chain, &history, "auto");
}

/// `Auto` estimates the share of changed chunks correctly if the changes have a period, wherever in the period they are.
#[test]
fn auto_is_not_misled_by_a_period() {
    let (chunk, period) = (64, 64);
    let mut random = crate::common::Draws(9);
    let base = random.bytes(chunk * period * 512);
    for first in [0, 1, 31, 63] {
        let mut next = base.clone();
        let chunks = next.chunks_mut(chunk).skip(first).step_by(period);
        chunks.for_each(|changed| changed.copy_from_slice(&random.bytes(chunk)));
        let history = [base.clone(), next];
        let chain = encode(config(Method::Auto, chunk), &history);
        let second = chain.get(20).unwrap();
        assert_eq!(second.stored(), Stored::Tree, "from {first}");
        assert_eq!(second.payload_bytes(), (chunk * 512) as u64);
        check(&chain, &history, "period");
        // Data that is new except for such chunks counts as new.
        let mut fresh = random.bytes(base.len());
        for at in (first * chunk..base.len()).step_by(chunk * period) {
            fresh[at..at + chunk].copy_from_slice(&base[at..at + chunk]);
        }
        let mut lineage = Lineage::new(config(Method::Auto, chunk)).unwrap();
        lineage.encode(0, &base).unwrap();
        let difference = lineage.encode(1, &fresh).unwrap();
        assert_eq!(difference.summary().stored, Stored::Full);
    }
}

#[test]
fn auto_looks_at_more_than_the_first_chunk_of_a_small_checkpoint() {
    for chunks in [10, 63, 64, 65, 200] {
        let mut random = crate::common::Draws(chunks as u64);
        let base = random.bytes(64 * chunks);
        for changed in [0, chunks / 2, chunks - 1] {
            let mut next = base.clone();
            next[64 * changed] ^= 1;
            let history = [base.clone(), next];
            let chain = encode(config(Method::Auto, 64), &history);
            let second = chain.get(20).unwrap();
            assert_eq!(second.payload_bytes(), 64, "{changed} of {chunks}");
            check(&chain, &history, "small");
        }
    }
}
