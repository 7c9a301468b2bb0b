//! Without `compress` nothing is encoded, and what was encoded is refused.

use super::super::Descent;
use super::super::stored::Bytes;
use super::{Lane, Outcome};
use crate::run::ends::Lying;
use crate::run::kept::Form;
use crate::run::lane::Failed;
use crate::{CompressionMetrics, Error, Result, Version};
use std::marker::PhantomData;
#[cfg(feature = "cuda")]
use tierflow_device::{Device, ReadLoan};

/// What encoded differences and compressed checkpoints start with: see the chapter on compression.
const ENCODED: [&[u8]; 2] = [b"tfframe\0", b"tfcodec\0"];

/// Neither of these is ever there.
#[derive(Debug)]
pub(super) enum DifferenceCoder {}

pub(super) struct Encoded<'s> {
    never: DifferenceCoder,
    _of: PhantomData<&'s ()>,
}

impl DifferenceCoder {
    pub(super) fn encode(
        &self,
        _: &mut Lane,
        _: &Descent<'_>,
        _: &Outcome<'_>,
    ) -> Option<Encoded<'_>> {
        match *self {}
    }

    pub(super) fn send(
        &self,
        _: (u64, u64),
        _: &Descent<'_>,
        _: impl FnOnce() -> std::result::Result<(), Failed>,
    ) -> std::result::Result<(), Failed> {
        match *self {}
    }

    pub(super) fn metrics(&self) -> CompressionMetrics {
        match *self {}
    }

    #[cfg(feature = "cuda")]
    pub(super) fn decode(
        &self,
        _: &mut Lane,
        _: &Device,
        _: (&mut [Bytes], u64),
    ) -> Result<Vec<Option<ReadLoan>>> {
        match *self {}
    }
}

impl Encoded<'_> {
    pub(super) fn bytes(&self) -> u64 {
        match self.never {}
    }

    pub(super) fn put(
        &self,
        _: &mut Lane,
        _: Lying<'_>,
        _: (Version, Form),
    ) -> std::result::Result<(), Failed> {
        match self.never {}
    }
}

/// What was stored, if that is a difference.
pub(super) fn decoded(stored: Bytes, _: u64) -> Result<Bytes> {
    match ENCODED
        .iter()
        .any(|magic| stored.as_ref().starts_with(magic))
    {
        true => Err(Error::Undecodable {
            why: "it is compressed, and this build reads none: enable the feature `compress` of tierflow-engine",
        }),
        false => Ok(stored),
    }
}

/// Bytes that start with a difference's header, of what was stored of it.
#[cfg(feature = "cuda")]
pub(super) fn plain(stored: &[u8]) -> &[u8] {
    stored
}
