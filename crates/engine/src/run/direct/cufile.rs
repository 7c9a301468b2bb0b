//! cuFile, NVIDIA's GPUDirect Storage.

use super::{DirectTarget, StraightError};
use std::os::fd::AsFd;
use tierflow_device::cuda::{DirectError, DirectFile, DirectFiles, DirectMode};
use tierflow_device::{Device, ReadLoan, WriteLoan};
use tierflow_store::Storage;

impl From<DirectError> for StraightError {
    fn from(error: DirectError) -> Self {
        match error {
            DirectError::Memory => Self::Memory,
            error => Self::Failed(error.to_string()),
        }
    }
}

impl DirectTarget for DirectFile {
    fn read(&self, offset: u64, memory: &mut WriteLoan) -> Result<(), StraightError> {
        Ok(Self::read(self, offset, memory)?)
    }

    fn write(&self, offset: u64, memory: &ReadLoan) -> Result<(), StraightError> {
        Ok(Self::write(self, offset, memory)?)
    }
}

/// Opens the file of a storage. Returns it with the name of the library's way there, or the reason why there is none.
pub(super) fn open(
    device: &Device,
    storage: &dyn Storage,
    is_measured: bool,
) -> Result<(Box<dyn DirectTarget>, &'static str), String> {
    let files = DirectFiles::open(device).map_err(|error| error.to_string())?;
    if is_measured && files.mode() == DirectMode::Compatibility {
        return Err(
            "cuFile copies through host memory itself: this machine has neither nvidia-fs nor P2PDMA"
                .to_owned(),
        );
    }
    let file = storage.file().map_err(|error| error.to_string())?;
    let file = file.ok_or("the storage is not one plain file with direct I/O")?;
    let direct = files.file(file.as_fd());
    let direct = direct.map_err(|error| error.to_string())?;
    Ok((Box::new(direct), files.mode().name()))
}
