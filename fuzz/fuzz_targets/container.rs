//! Reads files from an untrusted source: sound files with some words overwritten, with right or wrong checksums, and any bytes.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tierflow_dedup::{Chain, Config, Container, Lineage, Method};

/// The most bytes of a decoded checkpoint. A short file may stand for a long checkpoint of zeros, which is no finding.
const MOST_BYTES: u64 = 1 << 24;

/// Changes of sound files: the file, the offset, and the word that is written there.
type Edits = Vec<(u8, u16, u32)>;

/// Differences with entries of every kind, by every method.
static FILES: LazyLock<Vec<Vec<Vec<u8>>>> = LazyLock::new(|| {
    let a: Vec<u8> = (0..1500_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    let mut b = a.clone();
    b[320..384].copy_from_slice(&a[..64]);
    b[700..1100].fill(0);
    let c = [&b[64..], &b[..64]].concat();
    let history = [&a, &b, &c, &a];
    let methods = [Method::Full, Method::Basic, Method::List, Method::Tree];
    let encode = |method| {
        let mut lineage =
            Lineage::new(Config::new(method).chunk(32).seed(0)).expect("a sound configuration");
        let files = history.iter().zip(0..).map(|(data, version)| {
            let difference = lineage.encode(version, data).expect("a sound checkpoint");
            difference.into_bytes()
        });
        files.collect()
    };
    methods.into_iter().map(encode).collect()
});

fuzz_target!(|input: (u8, Edits, bool, Option<Vec<u8>>)| {
    let (method, edits, seal, more) = input;
    let mut files = FILES[usize::from(method) % FILES.len()].clone();
    for (which, at, value) in edits {
        let which = usize::from(which) % files.len();
        let file = &mut files[which];
        let at = usize::from(at) % file.len();
        let end = file.len().min(at + 4);
        file[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
    }
    if seal {
        files.iter_mut().for_each(|file| sealed(file));
    }
    files.extend(more);
    let mut chain = Chain::new();
    for file in files {
        if let Ok(container) = Container::parse(&file) {
            let _ = container.check_payload();
        }
        let _ = chain.push(file);
    }
    if chain
        .checkpoint_bytes()
        .is_none_or(|bytes| bytes > MOST_BYTES)
    {
        return;
    }
    let verified = chain.verify();
    let versions: Vec<u64> = chain.versions().collect();
    for &version in &versions {
        let _ = chain.dependencies(version);
        let restored = chain.to_vec(version);
        if verified.is_ok() {
            restored.expect("what is verified can be restored");
        }
    }
    let compacted = chain.compact(&versions);
    assert_eq!(compacted.is_ok(), verified.is_ok());
    let chunk = versions.first().and_then(|&version| chain.get(version));
    if let Some(container) = chunk {
        let config = Config::new(Method::Tree).chunk(container.chunk_bytes());
        let _ = Lineage::resume(config, &chain);
    }
});

/// Writes right checksums into a file, so that the fuzzer gets past their check; see docs/src/dedup.md.
fn sealed(file: &mut [u8]) {
    fn stir(mut x: u64) -> u64 {
        x ^= x >> 33;
        x = x.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        x ^= x >> 29;
        x = x.wrapping_mul(0x1656_67B1_9E37_79F9);
        x ^ (x >> 32)
    }
    let word = |file: &[u8], at: usize| {
        u32::from_le_bytes([file[at], file[at + 1], file[at + 2], file[at + 3]])
    };
    if file.len() < 192 {
        return;
    }
    let entries = 4 * u64::from(word(file, 64)) + 12 * u64::from(word(file, 68));
    if let Some(metadata) = usize::try_from(192 + entries)
        .ok()
        .and_then(|end| file.get(192..end))
    {
        let words = (0..metadata.len() / 4).map(|n| word(metadata, 4 * n));
        let sum = words.zip(1_u64..).fold(0_u64, |sum, (word, n)| {
            sum.wrapping_add(stir(
                u64::from(word).wrapping_add(n.wrapping_mul(0x9E37_79B1_85EB_CA87)),
            ))
        });
        file[120..128].copy_from_slice(&sum.to_le_bytes());
    }
    let sum = xxhash_rust::xxh3::xxh3_64(&file[..184]);
    file[184..192].copy_from_slice(&sum.to_le_bytes());
}
