//! cuFile, NVIDIA's GPUDirect Storage.

use std::os::fd::AsFd;
use std::sync::Arc;
use tierflow_device::cuda::{DirectError, DirectFile, DirectFiles, DirectMode};
use tierflow_device::{Device, ReadLoan, WriteLoan};
use tierflow_store::Storage;
use tierflow_transfer::{DirectTarget, OpenFile, StraightError};

/// A file that cuFile reaches.
#[derive(Debug)]
struct CuFile(DirectFile);

fn straight_error(error: DirectError) -> StraightError {
    match error {
        DirectError::Memory => StraightError::Memory,
        error => StraightError::Failed(error.to_string()),
    }
}

impl DirectTarget for CuFile {
    fn read(&self, offset: u64, memory: &mut WriteLoan) -> Result<(), StraightError> {
        self.0.read(offset, memory).map_err(straight_error)
    }

    fn write(&self, offset: u64, memory: &ReadLoan) -> Result<(), StraightError> {
        self.0.write(offset, memory).map_err(straight_error)
    }
}

/// Opens the file of a storage, or returns the reason why cuFile does not reach it.
pub(super) fn open(
    device: &Device,
    storage: &Arc<dyn Storage>,
    is_measured: bool,
) -> Result<OpenFile, String> {
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
    Ok(OpenFile {
        target: Box::new(CuFile(direct)),
        storage: Arc::clone(storage),
        mode: files.mode().name(),
    })
}
