//! What a build without nvCOMP has of it.

use crate::{Compression, Result, Value};
use tierflow_codec::{Header, gpu};
use tierflow_device::{Device, ReadLoan, Stream, WriteLoan};

/// There is none.
#[derive(Debug)]
pub(super) enum Nvcomp {}

pub(super) type NvcompWorking = ();

impl Nvcomp {
    #[expect(clippy::unnecessary_wraps, reason = "as with nvCOMP")]
    pub(super) fn load(_: &Compression, _: &Device) -> Result<Option<Self>> {
        Ok(None)
    }

    pub(super) fn encode(
        &self,
        _: &mut NvcompWorking,
        _: &Stream,
        _: (ReadLoan, Value),
        _: gpu::Landing,
    ) -> Result<u64> {
        match *self {}
    }

    pub(super) fn decode(
        &self,
        _: &mut NvcompWorking,
        _: &Stream,
        _: (&Header, gpu::Origin),
        _: WriteLoan,
    ) -> Result<()> {
        match *self {}
    }
}
