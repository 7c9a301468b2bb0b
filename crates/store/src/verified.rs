//! Storage whose reads are compared with the bytes that were written.

use crate::container::checksum;
use crate::{Error, NamedFile, Result, Storage};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tierflow_sync::{Mutex, MutexGuard};

/// Bytes under one checksum, counted from the start of a write. Each checksum takes 8 bytes of memory.
const GRANULE: u64 = 64 << 10;

/// Keeps checksums in memory of all bytes that are written to a storage, and verifies reads. For storage that does not outlive the
/// process, as the checksums end with it.
///
/// A read verifies whole granules of 64 KiB. If it begins or ends within a granule, the rest of the granule is read, too. Bytes
/// that were never written here, or were [written past](Storage::written_past) this storage, are not verified.
#[derive(Debug)]
pub struct Verified<S: ?Sized> {
    inner: Arc<S>,
    written: Mutex<BTreeMap<u64, Extent>>,
    unverified: AtomicU64,
}

/// The bytes of one write, or a range of its whole granules that was not overwritten since.
#[derive(Debug)]
struct Extent {
    end: u64,
    /// The checksum of each granule. The last granule may be shorter.
    sums: Vec<u64>,
}

/// A granule of an extent.
#[derive(Debug, Clone)]
struct Granule {
    bytes: Range<u64>,
    sum: u64,
}

impl Extent {
    /// Returns the granules of this extent that have bytes within `range`. `start` is the start of the extent.
    fn granules(&self, start: u64, range: &Range<u64>) -> impl Iterator<Item = Granule> + '_ {
        let skipped = range.start.saturating_sub(start) / GRANULE;
        let begins = (start + skipped * GRANULE..self.end.min(range.end)).step_by(GRANULE as usize);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let sums = self.sums.iter().skip(skipped);
        begins.zip(sums).map(|(begin, sum)| Granule {
            bytes: begin..(begin + GRANULE).min(self.end),
            sum: *sum,
        })
    }
}

impl<S: Storage + ?Sized> Verified<S> {
    /// Verifies the reads of `inner`.
    pub fn new(inner: Arc<S>) -> Self {
        Self {
            inner,
            written: Mutex::default(),
            unverified: AtomicU64::new(0),
        }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<u64, Extent>> {
        self.written.lock()
    }

    /// Removes the checksums of granules that have bytes within `range`.
    fn forget(&self, range: &Range<u64>) {
        let mut written = self.written();
        let starts: Vec<u64> = overlapping(&written, range)
            .map(|(start, _)| start)
            .collect();
        for start in starts {
            let Some(extent) = written.remove(&start) else {
                continue;
            };
            let (mut before, mut behind) = (None, None);
            if start < range.start {
                let whole = (range.start - start) / GRANULE;
                let sums = extent.sums.iter().take(whole as usize);
                before = Some((start, start + whole * GRANULE, sums.copied().collect()));
            }
            if range.end < extent.end {
                let gone = (range.end - start).div_ceil(GRANULE);
                let sums: Vec<u64> = extent.sums.iter().skip(gone as usize).copied().collect();
                behind = Some((start + gone * GRANULE, extent.end, sums));
            }
            for (start, end, sums) in before.into_iter().chain(behind) {
                if start < end {
                    written.insert(start, Extent { end, sums });
                }
            }
        }
    }

    fn granules(&self, range: &Range<u64>) -> Vec<Granule> {
        let written = self.written();
        let mut granules: Vec<Granule> = overlapping(&written, range)
            .flat_map(|(start, extent)| extent.granules(start, range))
            .collect();
        granules.sort_unstable_by_key(|granule| granule.bytes.start);
        granules
    }

    /// Verifies a granule. `bytes` were read from `range`, which contains at least a part of the granule.
    fn verify(&self, granule: &Granule, range: &Range<u64>, bytes: &mut [u8]) -> Result<()> {
        let whole = &granule.bytes;
        let common = whole.start.max(range.start)..whole.end.min(range.end);
        let within =
            |of: &Range<u64>| (common.start - of.start) as usize..(common.end - of.start) as usize;
        let part = &mut bytes[within(range)];
        let is_right = if common == *whole {
            checksum(part) == granule.sum
        } else {
            // Memory for the whole granule, aligned for the storage.
            let alignment = self.alignment();
            let length = (whole.end - whole.start) as usize;
            let mut memory = vec![0; length + alignment];
            let from = memory.as_ptr().align_offset(alignment);
            let all = memory
                .get_mut(from..from + length)
                .ok_or(Error::Unaligned {
                    offset: whole.start,
                    bytes: length,
                    alignment,
                })?;
            self.inner.read_at(whole.start, all)?;
            let is_right = checksum(all) == granule.sum;
            part.copy_from_slice(&all[within(whole)]);
            is_right
        };
        let is_still_known = || {
            let known = self.granules(&common);
            known.iter().any(|known| known.sum == granule.sum)
        };
        match is_right || !is_still_known() {
            true => Ok(()),
            false => Err(Error::Altered {
                offset: whole.start,
                bytes: (whole.end - whole.start) as usize,
            }),
        }
    }
}

/// Returns the extents that have bytes within a range. Extents do not overlap each other.
fn overlapping<'w>(
    written: &'w BTreeMap<u64, Extent>,
    range: &Range<u64>,
) -> impl Iterator<Item = (u64, &'w Extent)> {
    let start = range.start;
    let before = written.range(..range.end).rev();
    let these = before.take_while(move |(_, extent)| extent.end > start);
    these.map(|(start, extent)| (*start, extent))
}

impl<S: Storage + ?Sized> Storage for Verified<S> {
    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_parts(offset, bytes, &[bytes.len()])
    }

    fn write_parts(&self, offset: u64, bytes: &[u8], parts: &[usize]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        self.forget(&(offset..end));
        let mut extents = Vec::with_capacity(parts.len());
        let (mut at, mut rest) = (offset, bytes);
        // The bytes behind the last part are another part.
        for length in parts.iter().copied().chain([usize::MAX]) {
            let (part, behind) = rest.split_at(length.min(rest.len()));
            rest = behind;
            let sums: Vec<u64> = part.chunks(GRANULE as usize).map(checksum).collect();
            let end = at + part.len() as u64;
            if !sums.is_empty() {
                extents.push((at, Extent { end, sums }));
            }
            at = end;
        }
        self.inner.write_parts(offset, bytes, parts)?;
        self.written().extend(extents);
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, bytes)?;
        let range = offset..offset.saturating_add(bytes.len() as u64);
        let mut verified = 0;
        for granule in self.granules(&range) {
            self.verify(&granule, &range, bytes)?;
            let of = &granule.bytes;
            verified += of.end.min(range.end) - of.start.max(range.start);
        }
        let unverified = bytes.len() as u64 - verified;
        self.unverified.fetch_add(unverified, Ordering::Relaxed);
        Ok(())
    }

    fn file(&self) -> Result<Option<NamedFile>> {
        self.inner.file()
    }

    fn unverified(&self) -> u64 {
        self.unverified.load(Ordering::Relaxed)
    }

    fn written_past(&self, offset: u64, bytes: u64) {
        self.forget(&(offset..offset.saturating_add(bytes)));
        self.inner.written_past(offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Memory that flips the bit `flipped` on reads, if there is one.
    #[derive(Debug, Default)]
    struct Bytes {
        bytes: Mutex<Vec<u8>>,
        flipped: Mutex<Option<usize>>,
        fails: AtomicBool,
    }

    const ALIGNMENT: usize = 512;

    impl Storage for Bytes {
        fn alignment(&self) -> usize {
            ALIGNMENT
        }

        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            let mut all = self.bytes.lock();
            let end = offset as usize + bytes.len();
            if all.len() < end {
                all.resize(end, 0);
            }
            let written = match self.fails.load(Ordering::Relaxed) {
                true => bytes.len() / 2,
                false => bytes.len(),
            };
            all[offset as usize..][..written].copy_from_slice(&bytes[..written]);
            match written == bytes.len() {
                true => Ok(()),
                false => Err(Error::Full {
                    place: None,
                    offset,
                    bytes: bytes.len(),
                }),
            }
        }

        fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
            assert_eq!(bytes.as_ptr().align_offset(ALIGNMENT), 0);
            let range = offset as usize..offset as usize + bytes.len();
            bytes.copy_from_slice(&self.bytes.lock()[range.clone()]);
            if let Some(bit) = *self.flipped.lock()
                && range.contains(&(bit / 8))
            {
                bytes[bit / 8 - range.start] ^= 1 << (bit % 8);
            }
            Ok(())
        }
    }

    /// Reads into memory at an aligned address.
    fn read(storage: &Verified<Bytes>, range: Range<usize>) -> Result<Vec<u8>> {
        let mut memory = vec![0; range.len() + ALIGNMENT];
        let from = memory.as_ptr().align_offset(ALIGNMENT);
        let bytes = &mut memory[from..from + range.len()];
        storage.read_at(range.start as u64, bytes)?;
        Ok(bytes.to_vec())
    }

    fn content(length: usize, seed: usize) -> Vec<u8> {
        let byte = |at: usize| ((at + seed).wrapping_mul(0x9E37_79B1) >> 11) as u8;
        (0..length).map(byte).collect()
    }

    const SIZE: usize = 5 * GRANULE as usize + 3 * ALIGNMENT;

    #[test]
    fn a_flipped_bit_is_found_by_every_read_that_has_its_block_and_by_no_other() {
        let storage = Verified::new(Arc::<Bytes>::default());
        let all = content(SIZE, 1);
        storage.write_at(0, &all).unwrap();
        let granule = GRANULE as usize;
        let ranges = [
            0..SIZE,
            0..granule,
            ALIGNMENT..2 * ALIGNMENT,
            granule - ALIGNMENT..granule + ALIGNMENT,
            3 * granule..5 * granule,
            SIZE - ALIGNMENT..SIZE,
        ];
        for range in ranges.clone() {
            assert!(read(&storage, range.clone()).unwrap() == all[range.clone()]);
        }
        for byte in [0, granule - 1, granule, 4 * granule + 7, SIZE - 1] {
            *storage.inner.flipped.lock() = Some(8 * byte + byte % 8);
            for range in ranges.clone() {
                let block = byte / granule;
                let is_hit = range.start / granule <= block && block <= (range.end - 1) / granule;
                match read(&storage, range.clone()) {
                    Ok(bytes) => assert!(!is_hit && bytes == all[range]),
                    Err(Error::Altered { offset, .. }) => {
                        assert!(is_hit && offset as usize == block * granule);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
        assert_eq!(storage.unverified(), 0);
    }

    #[test]
    fn what_is_written_over_has_new_sums_and_what_is_beside_it_keeps_its_own() {
        let storage = Verified::new(Arc::<Bytes>::default());
        let mut all = content(SIZE, 1);
        let parts = [ALIGNMENT, 3 * ALIGNMENT, SIZE - 4 * ALIGNMENT];
        storage.write_parts(0, &all, &parts).unwrap();
        // Overwrites one of the parts, and then blocks across two granules of another part.
        for range in [
            ALIGNMENT..4 * ALIGNMENT,
            4 * ALIGNMENT + 2 * GRANULE as usize..4 * ALIGNMENT + 3 * GRANULE as usize,
        ] {
            all[range.clone()].copy_from_slice(&content(range.len(), 77));
            storage
                .write_at(range.start as u64, &all[range.clone()])
                .unwrap();
        }
        assert!(read(&storage, 0..SIZE).unwrap() == all);
        assert_eq!(storage.unverified(), 0);
        for byte in 0..SIZE / ALIGNMENT {
            *storage.inner.flipped.lock() = Some(8 * ALIGNMENT * byte);
            let altered = read(&storage, 0..SIZE);
            assert!(matches!(altered, Err(Error::Altered { .. })), "{byte}");
        }
    }

    #[test]
    fn what_others_wrote_or_a_failed_write_left_is_not_called_altered() {
        let storage = Verified::new(Arc::<Bytes>::default());
        storage.write_at(0, &content(SIZE, 1)).unwrap();
        storage.inner.fails.store(true, Ordering::Relaxed);
        assert!(storage.write_at(0, &content(SIZE, 2)).is_err());
        read(&storage, 0..SIZE).unwrap();
        assert_eq!(storage.unverified(), SIZE as u64);
        storage.inner.fails.store(false, Ordering::Relaxed);
        storage.write_at(0, &content(SIZE, 1)).unwrap();
        let past = content(ALIGNMENT, 3);
        storage.inner.write_at(GRANULE, &past).unwrap();
        assert!(read(&storage, 0..SIZE).is_err());
        storage.written_past(GRANULE, ALIGNMENT as u64);
        let bytes = read(&storage, 0..SIZE).unwrap();
        assert!(bytes[GRANULE as usize..][..ALIGNMENT] == past);
        assert_eq!(storage.unverified(), SIZE as u64 + GRANULE);
    }

    #[test]
    fn it_conforms() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = crate::Scratch::open(directory.path()).unwrap();
        crate::conformance::run_all(&Verified::new(Arc::new(scratch)));
    }
}
