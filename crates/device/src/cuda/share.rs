//! Memory that several processes map: handles of virtual memory management, passed as file descriptors.

use std::any::Any;
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUmemAllocationHandleType as HandleType};

use super::context::{Context, checked};
use super::memory::{create, described, device};
use crate::backend::Exportable;
use crate::error::{Invalid, Result};
use crate::pages::pointer;

const BY_FD: HandleType = HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Memory that other processes can map. The driver frees it with the last handle and the last mapping of any process.
#[derive(Debug)]
pub(super) struct ExportedAllocation {
    context: Arc<Context>,
    handle: sys::CUmemGenericAllocationHandle,
    file: OwnedFd,
}

impl ExportedAllocation {
    pub(super) fn new(context: &Arc<Context>, len: usize) -> Result<Self> {
        let _entered = context.enter()?;
        let prop = described(device(context.device()), BY_FD);
        let what = "exported device memory (cuMemCreate)";
        let handle = create(context, len, &prop, what)?;
        let mut number: std::ffi::c_int = -1;
        let place = (&raw mut number).cast::<c_void>();
        // SAFETY: for this kind of handle the driver writes one `int` there, which is live.
        let exported = unsafe { sys::cuMemExportToShareableHandle(place, handle, BY_FD, 0) };
        if let Err(error) = checked("cuMemExportToShareableHandle", exported.result()) {
            // SAFETY: created above, not given out yet, released once.
            let _ = unsafe { sys::cuMemRelease(handle) };
            return Err(error);
        }
        // SAFETY: the driver has just opened the descriptor for this value.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self {
            context: Arc::clone(context),
            handle,
            file,
        })
    }

    /// Returns the handle of a chunk of this back end, valid as long as the chunk.
    pub(super) fn of(chunk: &dyn Exportable) -> Result<sys::CUmemGenericAllocationHandle> {
        let chunk = chunk.as_any().downcast_ref::<Self>();
        chunk
            .map(|chunk| chunk.handle)
            .ok_or_else(|| Invalid::OtherDevice.into())
    }
}

impl Drop for ExportedAllocation {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: created in `new` and released once; mappings of it keep the memory.
            let _ = unsafe { sys::cuMemRelease(self.handle) };
        }
    }
}

impl Exportable for ExportedAllocation {
    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Imports memory that another process exported, and returns a handle to be released. The context is current.
pub(super) fn import(file: BorrowedFd<'_>) -> Result<sys::CUmemGenericAllocationHandle> {
    let mut handle = 0;
    // The driver takes the descriptor's number as a pointer.
    let number = pointer(u64::from(file.as_raw_fd().unsigned_abs()));
    // SAFETY: `handle` is a valid place for the answer, and the descriptor is open; the driver
    // refuses one that is not of exported memory.
    let imported = unsafe { sys::cuMemImportFromShareableHandle(&raw mut handle, number, BY_FD) };
    checked("cuMemImportFromShareableHandle", imported.result())?;
    Ok(handle)
}
