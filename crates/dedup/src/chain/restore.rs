//! Restores of versions to full bytes.

use rayon::prelude::*;

use super::Chain;
use super::owners::{Owner, Owners};
use crate::container::{Body, HEADER_BYTES, write};
use crate::encode::{CheckpointId, Difference, Summary, header};
use crate::error::{Error, Invalid, Result};
use crate::hash::{Hasher, Sum};

/// Bytes that a task restores.
const TASK_BYTES: usize = 1 << 20;

impl<B: AsRef<[u8]> + Sync> Chain<B> {
    /// Restores a version into `out`, which is as long as the checkpoint. Copies and hashes each byte once, from the
    /// difference that stores it.
    ///
    /// # Errors
    ///
    /// [`Invalid::NoSuchVersion`] if the chain lacks the version; [`Invalid::Length`] if `out` has another length;
    /// [`Error::Missing`] if the chain lacks a difference on which the version is based; [`Error::Foreign`] if that difference
    /// belongs to another lineage; [`Error::Corrupt`] if the bytes differ from the checkpoint's. After an error `out` is
    /// unspecified.
    pub fn restore(&self, version: u64, out: &mut [u8]) -> Result<()> {
        let target = self.position(version)?;
        let expected = self.links[target].header.layout.len;
        let len = out.len() as u64;
        if len != expected {
            return Err(Invalid::Length { len, expected }.into());
        }
        let owners = self.owners(target)?;
        self.restore_owned(target, &owners, out)
    }

    /// Restores a version into a new vector; see [`restore`](Self::restore).
    ///
    /// # Errors
    ///
    /// As for [`restore`](Self::restore).
    pub fn to_vec(&self, version: u64) -> Result<Vec<u8>> {
        let target = self.position(version)?;
        // `owners` fails if the chunks of the claimed length are not stored. Only then is memory allocated for that
        // length.
        let owners = self.owners(target)?;
        let mut out = vec![0; self.links[target].header.layout.len as usize];
        self.restore_owned(target, &owners, &mut out)?;
        Ok(out)
    }

    /// Makes a difference that needs no other one: the full checkpoint in a container, with the same version and ordinal.
    ///
    /// # Errors
    ///
    /// As for [`restore`](Self::restore).
    pub fn export(&self, version: u64) -> Result<Difference> {
        let target = self.position(version)?;
        let owners = self.owners(target)?;
        let old = self.links[target].header;
        let (body, ordinal) = (Body::Full, old.ordinal);
        let id = CheckpointId { version, ordinal };
        let mut new = header(
            old.layout,
            &body,
            id,
            old.seed,
            None,
            old.content,
            old.layout.len,
        );
        new.payload = old.content;
        let (mut bytes, payload_at) = write(&mut new, &body);
        self.restore_owned(target, &owners, &mut bytes[payload_at..])?;
        bytes[..HEADER_BYTES].copy_from_slice(&new.to_bytes());
        Ok(Difference {
            bytes,
            summary: Summary::new(&new, 0),
        })
    }

    fn restore_owned(&self, target: usize, owners: &Owners, out: &mut [u8]) -> Result<()> {
        let header = &self.links[target].header;
        let hasher = Hasher::new(header.seed);
        let chunk = header.layout.chunk_bytes();
        let per_task = (TASK_BYTES / chunk).max(1);
        let payloads: Vec<&[u8]> = (0..self.links.len()).map(|at| self.payload(at)).collect();
        let restore = |(at, (out, owners)): (usize, (&mut [u8], &[Owner]))| {
            let mut sum = Sum::default();
            let first = (at * per_task) as u64;
            for ((out, owner), place) in out.chunks_mut(chunk).zip(owners).zip(first..) {
                let start = owner.rank as usize * chunk;
                let from = payloads[owner.link as usize].get(start..start + out.len())?;
                out.copy_from_slice(from);
                sum.add(hasher.digest(out), place);
            }
            Some(sum)
        };
        let merge = |mut one: Sum, other: Sum| {
            one.merge(other);
            Some(one)
        };
        let tasks = out
            .par_chunks_mut(per_task * chunk)
            .zip(owners.of.par_chunks(per_task));
        let sum = tasks
            .enumerate()
            .map(restore)
            .try_reduce(Sum::default, merge);
        if sum == Some(header.content) {
            return Ok(());
        }
        let what = "what was restored is not what was checkpointed";
        Err(Error::corrupt(header.version, what))
    }
}
