//! The way between memory of a device and the scratch file past the host's memory, where the builder asks for it.

#[cfg(feature = "cuda")]
mod cufile;

use crate::{BuildError, DirectIo};
use std::sync::Arc;
use tierflow_device::Device;
use tierflow_store::Storage;
use tierflow_transfer::{OpenFile, Straight};

/// Opens the file of a storage for a device, or says why it cannot. The last argument refuses a library that copies through host
/// memory itself.
type OpenDirect = fn(&Device, &Arc<dyn Storage>, bool) -> Result<OpenFile, String>;

/// The libraries of this build that copy directly.
const LIBRARIES: &[OpenDirect] = &[
    #[cfg(feature = "cuda")]
    cufile::open,
];

/// Returns the direct way that the builder asks for. A measured one is opened at its first use.
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
