//! Damaged and forged files give a clear error, never a panic and never wrong bytes.

use crate::common::{Draws, METHODS, histories};
use tierflow_dedup::{Chain, Config, Container, Error, Lineage, Method};

/// Histories whose differences are small but have every kind of entry.
fn small() -> Vec<Vec<u8>> {
    let mut random = Draws(9);
    let a = random.bytes(600);
    let mut b = a.clone();
    b[100..132].fill(1);
    b[320..384].copy_from_slice(&a[0..64]);
    b[512..600].fill(0);
    let c = [&b[64..], &b[..64]].concat();
    vec![a, b, c]
}

fn stored(config: Config, history: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut lineage = Lineage::new(config).unwrap();
    let encode =
        |(data, version): (&Vec<u8>, u64)| lineage.encode(version, data).unwrap().into_bytes();
    history.iter().zip(0..).map(encode).collect()
}

/// Makes a chain of these files, or returns the first error.
fn chain<'a>(files: impl IntoIterator<Item = &'a [u8]>) -> Result<Chain<&'a [u8]>, Error> {
    let mut chain = Chain::new();
    for file in files {
        chain.push(file)?;
    }
    Ok(chain)
}

#[test]
fn every_truncation_is_found() {
    for method in METHODS {
        for file in stored(Config::new(method).chunk(32), &small()) {
            for len in 0..file.len() {
                assert!(matches!(
                    Container::parse(&file[..len]),
                    Err(Error::Corrupt { .. })
                ));
            }
            let longer = [&file[..], &[0]].concat();
            assert!(Container::parse(&longer).is_err());
        }
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for method in METHODS {
        let history = small();
        let files = stored(Config::new(method).chunk(32), &history);
        for (damaged, file) in files.iter().enumerate() {
            for bit in 0..file.len() * 8 {
                let mut file = file.clone();
                file[bit / 8] ^= 1 << (bit % 8);
                let with = |at: usize| {
                    if at == damaged {
                        &file[..]
                    } else {
                        &files[at][..]
                    }
                };
                let found = chain((0..files.len()).map(with));
                let Ok(chain) = found else { continue };
                assert!(chain.verify().is_err(), "{method:?} {damaged} bit {bit}");
                // A caller that does not verify gets correct bytes or an error.
                for (data, version) in history.iter().zip(0..) {
                    if let Ok(restored) = chain.to_vec(version) {
                        assert!(restored == *data, "{method:?} {damaged} bit {bit}");
                    }
                }
                assert!(chain.compact(&[2]).is_err());
                assert!(Lineage::resume(Config::new(method).chunk(32), &chain).is_err());
            }
        }
    }
}

#[test]
fn missing_foreign_and_repeated_files_are_told_apart() {
    let history = small();
    let config = Config::new(Method::Tree).chunk(32).seed(0);
    let files = stored(config, &history);
    let mut other = history.clone();
    other[0][3] ^= 1;
    other[1][3] ^= 1;
    let others = stored(config, &other);

    let without = chain([&files[0][..], &files[2]]).unwrap();
    assert!(matches!(
        without.to_vec(2),
        Err(Error::Missing { ordinal: 1, .. })
    ));
    assert!(without.verify().is_err());
    assert!(without.dependencies(2).is_err());
    let swapped = chain([&files[0][..], &others[1], &files[2]]).unwrap();
    // Version 2 may need no byte of the swapped file; then it is correct.
    assert!(swapped.to_vec(2).map_or(true, |data| data == history[2]));
    assert!(matches!(
        swapped.verify(),
        Err(Error::Foreign { what: "parent", .. })
    ));
    let reordered = chain([&files[2][..], &files[0], &files[1]]).unwrap();
    assert_eq!(reordered.to_vec(2).unwrap(), history[2]);
    assert!(chain([&files[1][..], &files[1]]).is_err());

    for foreign in [config.seed(1), config.chunk(64)] {
        let foreign = stored(foreign, &history);
        assert!(matches!(
            chain([&files[0][..], &foreign[1]]),
            Err(Error::Foreign { .. })
        ));
    }
    let longer = stored(config, &[vec![0; 601]]);
    assert!(matches!(
        chain([&files[1][..], &longer[0]]),
        Err(Error::Foreign { what: "length", .. })
    ));
}

/// Changes a file and makes its sums match again.
fn forge(file: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut file = file.to_vec();
    change(&mut file);
    tierflow_dedup_forge::seal(&mut file);
    file
}

/// The sums of the format, computed anew from its description in docs/src/dedup.md.
mod tierflow_dedup_forge {
    fn stir(mut x: u64) -> u64 {
        x ^= x >> 33;
        x = x.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        x ^= x >> 29;
        x = x.wrapping_mul(0x1656_67B1_9E37_79F9);
        x ^ (x >> 32)
    }

    fn u32_at(file: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(file[at..at + 4].try_into().unwrap())
    }

    pub(super) fn seal(file: &mut [u8]) {
        let entries = 4 * u32_at(file, 64) as usize + 12 * u32_at(file, 68) as usize;
        if let Some(metadata) = file.get(192..192 + entries) {
            let words = metadata.chunks(4).map(|word| u32_at(word, 0));
            let sum = words.zip(1_u64..).fold(0_u64, |sum, (word, n)| {
                let n = n.wrapping_mul(0x9E37_79B1_85EB_CA87);
                sum.wrapping_add(stir(u64::from(word).wrapping_add(n)))
            });
            file[120..128].copy_from_slice(&sum.to_le_bytes());
        }
        let sum = xxhash_rust::xxh3::xxh3_64(&file[..184]);
        file[184..192].copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn forged_fields_and_entries_are_refused_or_harmless() {
    let history = small();
    let files = stored(Config::new(Method::Tree).chunk(32), &history);
    // A file sealed again without a change is the same file.
    for file in &files {
        assert_eq!(&forge(file, |_| ()), file);
    }
    let interesting = [
        0,
        1,
        2,
        3,
        31,
        32,
        0x7FFF_FFFF,
        0x8000_0000,
        0x8000_0001,
        u32::MAX - 1,
        u32::MAX,
    ];
    for (at, file) in files.iter().enumerate() {
        let header_and_metadata = (8..184).chain(192..file.len().min(400)).step_by(4);
        for offset in header_and_metadata {
            for value in interesting {
                let forged = forge(file, |file| {
                    file[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
                });
                let with = |other: usize| {
                    if other == at {
                        &forged[..]
                    } else {
                        &files[other][..]
                    }
                };
                let Ok(chain) = chain((0..files.len()).map(with)) else {
                    continue;
                };
                let _ = chain.verify();
                let versions: Vec<u64> = chain.versions().collect();
                for version in versions {
                    let _ = chain.dependencies(version);
                    // A forged file may name another version, or claim to be another checkpoint. Bytes that match a sum which was not
                    // forged must be the written ones.
                    if let Ok(restored) = chain.to_vec(version)
                        && let Some(data) = history.get(version as usize)
                        && !(72..104).contains(&offset)
                    {
                        assert!(
                            restored == *data || (24..32).contains(&offset),
                            "{at} {offset} {value}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_short_file_cannot_ask_for_much_memory() {
    let files = stored(Config::new(Method::Tree).chunk(32), &small());
    // The forged file claims 2^36 bytes, of which no file of the chain stores any.
    let forged = forge(&files[1], |file| {
        file[40..48].copy_from_slice(&(1_u64 << 36).to_le_bytes());
        file[36..40].copy_from_slice(&u32::MAX.to_le_bytes());
    });
    if let Ok(chain) = chain([&forged[..]]) {
        assert!(chain.to_vec(1).is_err());
        assert!(chain.verify().is_err());
        assert!(chain.compact(&[1]).is_err());
        assert!(Lineage::resume(Config::new(Method::Tree).chunk(32), &chain).is_err());
    }
}

#[test]
fn any_bytes_are_an_error() {
    let mut random = Draws(2);
    for len in (0..600).chain([10_000]) {
        assert!(Container::parse(&random.bytes(len)).is_err());
    }
    for (_, history) in histories(2000, 32) {
        let file = stored(Config::new(Method::Tree).chunk(32), &history).remove(0);
        for _ in 0..200 {
            let mut file = file.clone();
            let (from, to) = (random.index(file.len()), random.index(file.len()));
            let len = random.index(64).min(file.len() - from.max(to));
            let piece = file[from..from + len].to_vec();
            if file[to..to + len] == piece {
                continue;
            }
            file[to..to + len].copy_from_slice(&piece);
            let Ok(chain) = chain([&file[..]]) else {
                continue;
            };
            assert!(chain.verify().is_err());
        }
    }
}
