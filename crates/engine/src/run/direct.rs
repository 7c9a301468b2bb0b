//! Copies between a device's memory and the scratch file past the host's memory, if the builder asks for them.

#[cfg(feature = "cuda")]
mod cufile;

use crate::{BuildError, DirectIo};
use std::sync::Arc;
use tierflow_device::Device;
use tierflow_store::Storage;
use tierflow_transfer::{OpenFile, Straight};

/// Opens the file of a storage for a device, or returns the reason why it cannot. If the last argument is true, a library that copies
/// through host memory itself is refused.
type OpenDirect = fn(&Device, &Arc<dyn Storage>, bool) -> Result<OpenFile, String>;

/// The libraries of this build that copy directly.
const LIBRARIES: &[OpenDirect] = &[
    #[cfg(feature = "cuda")]
    cufile::open,
];

/// Returns the direct copies that the builder asks for. If they are measured, the file is opened at the first copy.
pub(crate) fn find(
    device: &Device,
    storage: &Arc<dyn Storage>,
    how: DirectIo,
) -> crate::Result<Option<Straight>> {
    match how {
        DirectIo::Never => Ok(None),
        DirectIo::Measured => {
            let (device, storage) = (device.clone(), Arc::clone(storage));
            let opener = move || open(&device, &storage, true);
            Ok(Some(Straight::measured(Box::new(opener))))
        }
        DirectIo::Always => {
            let opened = open(device, storage, false);
            let file = opened.map_err(|why| BuildError::DirectIo { why })?;
            Ok(Some(Straight::always(file)))
        }
    }
}

fn open(
    device: &Device,
    storage: &Arc<dyn Storage>,
    is_measured: bool,
) -> Result<OpenFile, String> {
    let none = || {
        Err(String::from(
            "this build is without CUDA: enable the feature `cuda` of tierflow-engine",
        ))
    };
    let library = LIBRARIES.first();
    library.map_or_else(none, |open| open(device, storage, is_measured))
}
