//! The way between memory of a device and the scratch file past the host's memory, where the builder asks for it.

#[cfg(feature = "cuda")]
mod cufile;

use crate::{BuildError, DirectIo, DirectMetrics, WayBytes};
#[cfg(feature = "cuda")]
use cufile::open;
use std::sync::Arc;
use tierflow_device::Device;
use tierflow_store::Storage;
use tierflow_transfer::{Straight, StraightStatistics};

/// Looks for a direct way, if one is wanted.
pub(crate) fn find(
    device: &Device,
    storage: &Arc<dyn Storage>,
    how: DirectIo,
) -> crate::Result<Option<Straight>> {
    let is_measured = match how {
        DirectIo::Measured => true,
        DirectIo::Always => false,
        DirectIo::Never => return Ok(None),
    };
    match open(device, storage, is_measured) {
        Ok(straight) => Ok(Some(straight)),
        Err(why) if is_measured => Ok(Some(Straight::closed(Some(why)))),
        Err(why) => Err(BuildError::DirectIo { why }.into()),
    }
}

/// Returns the numbers of a direct way.
pub(crate) fn metrics(straight: &Straight) -> DirectMetrics {
    let StraightStatistics {
        mode,
        closed,
        down,
        up,
        failed,
    } = straight.statistics();
    let bytes = |bytes: tierflow_transfer::WayBytes| WayBytes {
        staged: bytes.buffered,
        direct: bytes.direct,
    };
    DirectMetrics {
        mode,
        why_staged: closed,
        down: bytes(down),
        up: bytes(up),
        failed,
    }
}

/// Says that the build has no library to open.
#[cfg(not(feature = "cuda"))]
fn open(_: &Device, _: &Arc<dyn Storage>, _: bool) -> Result<Straight, String> {
    Err("this build is without CUDA: enable the feature `cuda` of tierflow-engine".to_owned())
}
