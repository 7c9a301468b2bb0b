//! The engine's own stages: differences between versions, compression, and both.
//!
//! A stage works where the bytes are: the device encodes the contents of device memory, the host's cores those of host memory. The
//! stored bytes name their format, so that either stage reads the other's, if need be by the host's cores.

mod choice;
mod coder;
mod compressed;
mod difference_stage;
mod options;
mod sequencer;
mod stored;

pub use choice::{Bound, CompressedTiers, Compression, Differences, NvcompCodec, Value};

use super::stage::{Links, Stage, StageInput};
use compressed::Compressed;
use difference_stage::DifferenceStage;

use super::context::TransferError;
use super::medium::{Medium, TierState};
use crate::{BuildError, Error, Result};
use tierflow_device::Error as DeviceError;
use tierflow_transfer::{TransferError as CopyError, to_usize};

impl BuildError {
    pub(crate) fn reduction(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Reduction(Box::new(error))
    }
}

impl From<tierflow_dedup::Error> for Error {
    fn from(error: tierflow_dedup::Error) -> Self {
        use tierflow_dedup::{Error as Dedup, Invalid};
        match error {
            Dedup::Device(error) => Self::Device(error),
            // A kernel was not started, which says nothing of stored bytes.
            Dedup::Broken => Self::Device(DeviceError::Driver {
                call: "a kernel of differences",
                reason: error.to_string(),
            }),
            Dedup::Corrupt { .. }
            | Dedup::Missing { .. }
            | Dedup::Foreign { .. }
            // The stored bytes are differences, but not those of the version.
            | Dedup::Invalid(
                Invalid::Length { .. } | Invalid::NoSuchVersion { .. } | Invalid::Twice { .. },
            ) => Self::Damaged(Box::new(error)),
            error => BuildError::reduction(error).into(),
        }
    }
}

impl From<tierflow_codec::Error> for Error {
    fn from(error: tierflow_codec::Error) -> Self {
        use tierflow_codec::{Error as Codec, Invalid};
        match error {
            Codec::Device(error) => Self::Device(error),
            // nvCOMP refused the call, which says nothing about the bytes.
            Codec::Nvcomp { .. } => Self::Device(DeviceError::Driver {
                call: "nvCOMP",
                reason: error.to_string(),
            }),
            Codec::Corrupt { .. }
            // The stored bytes are containers, but not those of the version.
            | Codec::Invalid(
                Invalid::Length { .. } | Invalid::Limit { .. } | Invalid::OtherCodec { .. },
            ) => Self::Damaged(Box::new(error)),
            error => BuildError::reduction(error).into(),
        }
    }
}

/// Returns the checkpoint that these containers hold; `None` for a difference.
pub(crate) fn decompressed(containers: &[u8]) -> Option<Result<Vec<u8>>> {
    let decode = || {
        let mut whole = vec![0; tierflow_codec::decoded_len(containers)? as usize];
        tierflow_codec::decode_all(containers, &mut whole)?;
        Ok(whole)
    };
    tierflow_codec::Header::is_one(containers).then(decode)
}

/// Returns true if the fastest tier is memory of the device.
fn starts_on_device(tiers: &[TierState]) -> bool {
    let fastest = tiers.first();
    fastest.is_some_and(|tier| matches!(tier.medium, Medium::Device(_)))
}

/// Returns a failure of the source. Storage that was cancelled has not failed: its error becomes a cancelled transfer.
fn at_source(error: impl Into<Error>) -> TransferError {
    CopyError::source(error.into().into()).into()
}

/// Returns a failure of the target. Storage that was cancelled has not failed: its error becomes a cancelled transfer.
fn at_destination(error: impl Into<Error>) -> TransferError {
    CopyError::target(error.into().into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bytes_are_not_damaged_if_the_options_do_not_suit_the_checkpoint() {
        use tierflow_dedup::Invalid;
        let (len, chunk) = (1 << 40, 64);
        let large = Invalid::TooManyChunks { len, chunk };
        let (version, expected) = (7, 100);
        let refused = Error::from(tierflow_dedup::Error::from(large));
        assert!(matches!(refused, Error::Build(_)), "{refused:?}");
        for of_another in [
            Invalid::Length { len, expected },
            Invalid::Twice { version },
        ] {
            let damaged = Error::from(tierflow_dedup::Error::from(of_another));
            assert!(matches!(damaged, Error::Damaged(_)), "{damaged:?}");
        }
        let missing = tierflow_codec::Error::NotBuilt {
            codec: "a codec",
            feature: "codec",
        };
        let refused = Error::from(missing);
        assert!(matches!(refused, Error::Build(_)), "{refused:?}");
    }

    #[test]
    fn a_lineage_that_broke_damages_nothing() {
        let broken = Error::from(tierflow_dedup::Error::Broken);
        assert!(matches!(broken, Error::Device(_)), "{broken:?}");
    }

    #[test]
    fn stored_bytes_are_damaged_only_if_the_codec_blames_them() {
        let refused = tierflow_codec::Error::Nvcomp {
            what: "decompress",
            status: 1000,
        };
        let refused = at_source(refused);
        let is_devices = matches!(refused.error, Some(Error::Device(_)));
        assert!(is_devices, "{refused:?}");
        assert!(matches!(coder::or_by_host(Err(refused)), Ok(false)));
        let what = "a block is no LZ4 of its length";
        let damaged = tierflow_codec::Error::Corrupt { what };
        let damaged = coder::or_by_host(Err(at_source(damaged)));
        let damaged = damaged.map_err(TransferError::of_call);
        assert!(matches!(damaged, Err(Error::Damaged(_))));
    }
}
