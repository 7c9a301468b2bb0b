//! A file in the manner of GenericIO, HACC's library. The header has the names of the arrays and the offset of each rank's block. The
//! blocks follow; a block has the rank's arrays one after the other. A checksum follows the header and each array.
//!
//! GenericIO computes a CRC-64 with several threads. XXH3 replaces it here, as one thread computes XXH3 as fast.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xxhash_rust::xxh3::xxh3_64;

use super::particles::{ARRAYS, PARTICLE, Particles};

const MAGIC: &[u8; 8] = b"HACC01L\0";

/// Bytes of an array's name in the header.
const NAME: usize = 256;

/// Bytes of a checksum.
const SUM: usize = 8;

/// The ranks that share a file, all with the same number of particles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) ranks: usize,
    pub(super) particles: usize,
}

impl Layout {
    /// Returns the header with its checksum: magic, particles in all, ranks, arrays; the name and the bytes of an element of each array;
    /// the particles of each rank and the offset of its block.
    fn header(self) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        let total = self.ranks * self.particles;
        for number in [total, self.ranks, ARRAYS.len()] {
            header.extend((number as u64).to_le_bytes());
        }
        for (name, bytes) in ARRAYS {
            let mut field = [0; NAME];
            field[..name.len()].copy_from_slice(name.as_bytes());
            header.extend(field);
            header.extend((bytes as u64).to_le_bytes());
        }
        for rank in 0..self.ranks {
            header.extend((self.particles as u64).to_le_bytes());
            header.extend(self.block(rank).to_le_bytes());
        }
        let sum = xxh3_64(&header);
        header.extend(sum.to_le_bytes());
        header
    }

    /// Returns the offset at which a rank's block begins, in bytes.
    fn block(self, rank: usize) -> u64 {
        let header = MAGIC.len() + 3 * 8 + ARRAYS.len() * (NAME + 8) + self.ranks * 16 + SUM;
        let block = self.particles * PARTICLE + ARRAYS.len() * SUM;
        (header + rank * block) as u64
    }

    /// Writes a rank's block, and the header if it is the first rank. The bytes are durable when this returns.
    pub(super) fn write(self, path: &Path, rank: usize, particles: &Particles) -> Result<()> {
        let opened = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let file = opened.with_context(|| format!("cannot make {}", path.display()))?;
        if rank == 0 {
            file.write_all_at(&self.header(), 0)?;
        }
        let mut at = self.block(rank);
        for array in particles.arrays() {
            file.write_all_at(array, at)?;
            at += array.len() as u64;
            file.write_all_at(&xxh3_64(array).to_le_bytes(), at)?;
            at += SUM as u64;
        }
        Ok(file.sync_data()?)
    }

    /// Reads a rank's block, and checks every checksum.
    pub(super) fn read(self, path: &Path, rank: usize, particles: &mut Particles) -> Result<()> {
        let file = File::open(path)?;
        let mut header = vec![0; self.header().len()];
        file.read_exact_at(&mut header, 0)?;
        ensure!(header == self.header(), "the header is another one");
        let mut at = self.block(rank);
        for (array, (name, _)) in particles.arrays_mut().into_iter().zip(ARRAYS) {
            file.read_exact_at(array, at)?;
            at += array.len() as u64;
            let mut sum = [0; SUM];
            file.read_exact_at(&mut sum, at)?;
            at += SUM as u64;
            let is_sound = u64::from_le_bytes(sum) == xxh3_64(array);
            ensure!(is_sound, "array {name} of rank {rank} is damaged");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_a_file_and_damage_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step-0.gio");
        let layout = Layout {
            ranks: 2,
            particles: 50,
        };
        let mut ranks = [0, 1].map(|rank| Particles::new(50, rank));
        for (rank, particles) in ranks.iter().enumerate().rev() {
            layout.write(&path, rank, particles).unwrap();
        }
        let bytes = std::fs::metadata(&path).unwrap().len();
        assert_eq!(bytes, layout.block(2), "blocks lie side by side");
        for (rank, particles) in ranks.iter_mut().enumerate() {
            particles
                .come_back(|particles| layout.read(&path, rank, particles))
                .unwrap();
        }
        let file = File::options().read(true).write(true).open(&path).unwrap();
        for (at, told) in [(40, "header"), (layout.block(1) + 300, "array y of rank 1")] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            let error = layout.read(&path, 1, &mut ranks[1]).unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
            file.write_all_at(&byte, at).unwrap();
        }
    }
}
