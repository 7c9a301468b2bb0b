//! Compression by nvCOMP in place of our kernels, if the options ask for it.

use crate::{BuildError, Compression, Result, Value};
use tierflow_codec::{Header, NvcompCodec, gpu};
use tierflow_device::{Device, ReadLoan, Stream, WriteLoan};

/// The chosen codec, and the loaded library.
#[derive(Debug)]
pub(super) struct Nvcomp {
    codec: NvcompCodec,
    library: gpu::Nvcomp,
}

/// The scratch memory of one transfer at a time.
pub(super) type NvcompScratch = Option<gpu::NvcompCoder>;

impl Nvcomp {
    /// Loads the library if the options choose a codec of nvCOMP.
    ///
    /// # Errors
    /// [`BuildError::Reduction`] if the library is missing: the engine is not built, as no other codec takes its place.
    pub(super) fn load(how: &Compression, device: &Device) -> Result<Option<Self>> {
        let load = |codec| match gpu::Nvcomp::load(device) {
            Ok(library) => Ok(Self { codec, library }),
            Err(error) => Err(BuildError::reduction(error).into()),
        };
        how.nvcomp_codec().map(load).transpose()
    }

    /// Encodes `data` to `out`. Returns the length of the container in bytes.
    pub(super) fn encode(
        &self,
        scratch: &mut NvcompScratch,
        stream: &Stream,
        data: ReadLoan,
        value: Value,
        out: gpu::OutputBuffer,
    ) -> Result<u64> {
        let coder = scratch.get_or_insert_with(|| gpu::NvcompCoder::new(&self.library));
        let header = coder.encode(stream, (self.codec, value), data, out)?;
        Ok(header.stored_bytes)
    }

    /// Decodes a container of nvCOMP's LZ4.
    pub(super) fn decode(
        &self,
        scratch: &mut NvcompScratch,
        stream: &Stream,
        header: &Header,
        container: gpu::Origin,
        out: WriteLoan,
    ) -> Result<()> {
        let coder = scratch.get_or_insert_with(|| gpu::NvcompCoder::new(&self.library));
        Ok(coder.decode(stream, header, container, out)?)
    }
}
