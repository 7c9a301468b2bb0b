//! The codes: parity shards from which lost shards are rebuilt.

use crate::{Error, Result};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use std::collections::{BTreeMap, BTreeSet};

/// Computes `into ^= other`, up to the end of the shorter slice.
pub fn xor_into(into: &mut [u8], other: &[u8]) {
    // The compiler turns this loop into wide loads.
    for (into, other) in into.iter_mut().zip(other) {
        *into ^= *other;
    }
}

/// A code of `data` data shards and `parity` parity shards, of which any `parity` may be lost. The value keeps its working
/// memory for the next call.
///
/// A single parity shard is the exclusive or of the data. Several parity shards are those of a Reed-Solomon code over GF(2¹⁶)
/// ([`reed_solomon_simd`]).
pub struct Code {
    data: usize,
    parity: usize,
    encoder: Option<ReedSolomonEncoder>,
    decoder: Option<ReedSolomonDecoder>,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Code");
        shown
            .field("data", &self.data)
            .field("parity", &self.parity);
        shown.finish_non_exhaustive()
    }
}

impl Code {
    /// Makes a code.
    ///
    /// # Errors
    /// [`Error::Scheme`] if `data` or `parity` is 0, or their sum exceeds 255.
    pub fn new(data: usize, parity: usize) -> Result<Self> {
        let scheme = crate::Redundancy::ReedSolomon { data, parity };
        scheme.check()?;
        Ok(Self {
            data,
            parity,
            encoder: None,
            decoder: None,
        })
    }

    fn wrong(&self, why: impl std::fmt::Display) -> Error {
        Error::Scheme {
            scheme: format!("a code of {} + {} shards", self.data, self.parity),
            why: why.to_string(),
        }
    }

    /// Makes the parity shards of data shards.
    ///
    /// # Errors
    /// [`Error::Scheme`] unless all shards have the same length, a multiple of 64 bytes, and are as many as the code has.
    pub fn encode(&mut self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<()> {
        let bytes = data.first().map_or(0, |shard| shard.len());
        self.check(data.iter().map(|shard| shard.len()), self.data, bytes)?;
        self.check(parity.iter().map(|shard| shard.len()), self.parity, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        if let [only] = parity {
            xor_all(only, data.iter().copied());
            return Ok(());
        }
        let encoder = match &mut self.encoder {
            Some(encoder) => {
                encoder
                    .reset(self.data, self.parity, bytes)
                    .map_err(wrong)?;
                encoder
            }
            none => {
                let made = ReedSolomonEncoder::new(self.data, self.parity, bytes);
                none.insert(made.map_err(wrong)?)
            }
        };
        for shard in data {
            encoder.add_original_shard(shard).map_err(wrong)?;
        }
        let made = encoder.encode().map_err(wrong)?;
        for (into, shard) in parity.iter_mut().zip(made.recovery_iter()) {
            into.copy_from_slice(shard);
        }
        Ok(())
    }

    /// Rebuilds lost shards. `shards` has the data shards, then the parity shards, `None` for lost ones; at least as many are there
    /// as the code has data shards. Returns the shards with the indexes `wanted`, in this order, each with its index.
    ///
    /// # Errors
    /// [`Error::Scheme`] as for [`Code::encode`], if too few shards are there, or if a wanted shard is not lost or is named twice.
    pub fn rebuild(
        &mut self,
        shards: &[Option<&[u8]>],
        wanted: &[usize],
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        let there = || shards.iter().flatten();
        let bytes = there().next().map_or(0, |shard| shard.len());
        let is_lost = |index: &usize| shards.get(*index).is_some_and(Option::is_none);
        if shards.len() != self.data + self.parity
            || there().count() < self.data
            || !wanted.iter().all(is_lost)
            || wanted.iter().collect::<BTreeSet<_>>().len() != wanted.len()
        {
            let text = format!(
                "{} of {} shards are there, and {wanted:?} are wanted",
                there().count(),
                shards.len()
            );
            return Err(self.wrong(text));
        }
        self.check(there().map(|shard| shard.len()), there().count(), bytes)?;
        let made = match (bytes, self.parity) {
            (0, _) => wanted.iter().map(|index| (*index, Vec::new())).collect(),
            (_, 1) => {
                let mut lost = vec![0; bytes];
                xor_all(&mut lost, there().copied());
                // At most one shard is lost, so at most one is wanted.
                wanted
                    .iter()
                    .map(|index| (*index, std::mem::take(&mut lost)))
                    .collect()
            }
            _ => self.rebuild_several(shards, wanted, bytes)?,
        };
        Ok(made)
    }

    /// Does what [`Code::rebuild`] does, for shards that the caller gives away. An exclusive or is computed in the memory of the first
    /// of them.
    pub(crate) fn rebuild_of(
        &mut self,
        mut shards: Vec<Option<Vec<u8>>>,
        wanted: &[usize],
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        let bytes = shards.iter().flatten().next().map_or(0, Vec::len);
        let is_whole = |shard: &Vec<u8>| shard.len() == bytes && bytes.is_multiple_of(64);
        let are_right = shards.len() == self.data + 1
            && shards.iter().flatten().count() == self.data
            && shards.iter().flatten().all(is_whole);
        if let ([only], 1, true) = (wanted, self.parity, are_right)
            && shards.get(*only).is_some_and(Option::is_none)
            && let Some(mut made) = shards.iter_mut().find_map(Option::take)
        {
            for shard in shards.iter().flatten() {
                xor_into(&mut made, shard);
            }
            return Ok(vec![(*only, made)]);
        }
        let shards: Vec<Option<&[u8]>> = shards.iter().map(Option::as_deref).collect();
        self.rebuild(&shards, wanted)
    }

    fn rebuild_several(
        &mut self,
        shards: &[Option<&[u8]>],
        wanted: &[usize],
        bytes: usize,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        let mut made: BTreeMap<usize, Vec<u8>> = self.missing_data(shards, bytes)?;
        if wanted.iter().any(|index| *index >= self.data) {
            let there = |index: usize| shards.get(index).copied().flatten();
            let data: Vec<&[u8]> = (0..self.data)
                .filter_map(|index| there(index).or_else(|| made.get(&index).map(Vec::as_slice)))
                .collect();
            let mut parity = vec![vec![0; bytes]; self.parity];
            let mut into: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
            self.encode(&data, &mut into)?;
            made.extend((self.data..).zip(parity));
        }
        let missing = || self.wrong("a shard was not made");
        let wanted = wanted.iter().map(|index| {
            let shard = made.remove(index).ok_or_else(missing)?;
            Ok((*index, shard))
        });
        wanted.collect()
    }

    fn missing_data(
        &mut self,
        shards: &[Option<&[u8]>],
        bytes: usize,
    ) -> Result<BTreeMap<usize, Vec<u8>>> {
        if shards.iter().take(self.data).all(Option::is_some) {
            return Ok(BTreeMap::new());
        }
        let decoder = match &mut self.decoder {
            Some(decoder) => {
                decoder
                    .reset(self.data, self.parity, bytes)
                    .map_err(wrong)?;
                decoder
            }
            none => {
                let made = ReedSolomonDecoder::new(self.data, self.parity, bytes);
                none.insert(made.map_err(wrong)?)
            }
        };
        for (index, shard) in shards.iter().enumerate() {
            let Some(shard) = shard else { continue };
            match index.checked_sub(self.data) {
                None => decoder.add_original_shard(index, shard).map_err(wrong)?,
                Some(parity) => decoder.add_recovery_shard(parity, shard).map_err(wrong)?,
            }
        }
        let made = decoder.decode().map_err(wrong)?;
        let restored = made.restored_original_iter();
        Ok(restored
            .map(|(index, shard)| (index, shard.to_vec()))
            .collect())
    }

    fn check(
        &self,
        lengths: impl Iterator<Item = usize>,
        count: usize,
        bytes: usize,
    ) -> Result<()> {
        let mut seen = 0;
        for length in lengths {
            if length != bytes || length % 64 != 0 {
                return Err(self.wrong("shards have the same length, a multiple of 64 bytes"));
            }
            seen += 1;
        }
        match seen == count {
            true => Ok(()),
            false => Err(self.wrong(format!("{seen} shards were given instead of {count}"))),
        }
    }
}

fn wrong(error: reed_solomon_simd::Error) -> Error {
    Error::Scheme {
        scheme: "Reed-Solomon".to_owned(),
        why: error.to_string(),
    }
}

fn xor_all<'a>(into: &mut [u8], shards: impl IntoIterator<Item = &'a [u8]>) {
    let mut shards = shards.into_iter();
    match shards.next() {
        Some(first) => into.copy_from_slice(first),
        None => into.fill(0),
    }
    for shard in shards {
        xor_into(into, shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_do_not_fit_are_refused() {
        let mut code = Code::new(2, 1).unwrap();
        let (a, b) = ([1_u8; 64], [2_u8; 128]);
        let mut parity = [0_u8; 64];
        assert!(code.encode(&[&a, &b], &mut [&mut parity]).is_err());
        assert!(code.encode(&[&a], &mut [&mut parity]).is_err());
        assert!(
            code.encode(&[&a[..3], &a[..3]], &mut [&mut parity[..3]])
                .is_err()
        );
        assert!(code.rebuild(&[Some(&a), None, None], &[1]).is_err());
        assert!(code.rebuild(&[Some(&a), None, Some(&a)], &[1, 1]).is_err());
        code.encode(&[&a, &a], &mut [&mut parity]).unwrap();
        assert_eq!(parity, [0; 64]);
        assert!(Code::new(0, 1).is_err() && Code::new(200, 56).is_err());
    }

    #[test]
    fn whatever_is_lost_comes_back_as_far_as_the_code_bears() {
        for (data, parity) in [(1, 1), (4, 1), (1, 2), (2, 3), (5, 2), (8, 2)] {
            let mut code = Code::new(data, parity).unwrap();
            let byte = |shard: usize, at: usize| (shard * 31 + at * 7 + at / 251) as u8;
            let shard = |shard| (0..192).map(|at| byte(shard, at)).collect::<Vec<u8>>();
            let mut all: Vec<Vec<u8>> = (0..data).map(shard).collect();
            let mut made = vec![vec![0; 192]; parity];
            let given: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let mut into: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            code.encode(&given, &mut into).unwrap();
            all.append(&mut made);
            for lost in 0_u32..1 << (data + parity) {
                let is_lost = |index: usize| lost >> index & 1 == 1;
                let there: Vec<Option<&[u8]>> = all
                    .iter()
                    .enumerate()
                    .map(|(index, shard)| (!is_lost(index)).then_some(shard.as_slice()))
                    .collect();
                let wanted: Vec<usize> = (0..all.len()).filter(|index| is_lost(*index)).collect();
                let rebuilt = code.rebuild(&there, &wanted);
                let owned = there.iter().map(|shard| shard.map(<[u8]>::to_vec));
                let of_owned = code.rebuild_of(owned.collect(), &wanted);
                assert_eq!(rebuilt.as_ref().ok(), of_owned.as_ref().ok());
                if lost.count_ones() as usize > parity {
                    assert!(rebuilt.is_err());
                    continue;
                }
                let rebuilt = rebuilt.unwrap();
                assert_eq!(
                    rebuilt.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
                    wanted
                );
                for (index, shard) in rebuilt {
                    assert_eq!(
                        shard, all[index],
                        "{data} + {parity}, shard {index} of {lost:b}"
                    );
                }
            }
        }
    }
}
