//! The engine's own stages: differences between versions, compression, and both.
//!
//! A stage works where the bytes are: the device encodes the contents of device memory, the host's cores those of host memory. The
//! stored bytes name their format, so that either stage reads the other's, if need be by the host's cores.

mod coder;
mod compressed;
mod differences;
mod line;
mod options;
mod stored;

use super::stage::{Descent, Links, Stage};
use compressed::Compressed;
use differences::Differences;

use crate::{BuildError, Error, PartError};

impl BuildError {
    pub(crate) fn reduction(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Reduction(PartError::new(error))
    }
}

impl From<tierflow_dedup::Error> for Error {
    fn from(error: tierflow_dedup::Error) -> Self {
        match error {
            tierflow_dedup::Error::Device(error) => Self::Device(error),
            error => Self::Damaged(PartError::new(error)),
        }
    }
}

impl From<tierflow_codec::Error> for Error {
    fn from(error: tierflow_codec::Error) -> Self {
        match error {
            tierflow_codec::Error::Device(error) => Self::Device(error),
            error => Self::Damaged(PartError::new(error)),
        }
    }
}
