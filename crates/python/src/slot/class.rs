//! The classes `ProduceSlot` and `ConsumeSlot`.
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "what pyo3 makes of the buffer protocol's methods calls them so"
)]

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi::Py_buffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tierflow_bind::Slot;
use tierflow_engine::Version;

use super::Layout;
use super::lent::LentSlot;
use super::own::SlotOwner;
use crate::array::Use;
use crate::errors::Answer;
use crate::ffi;

/// Defines a class of slots: the methods that both classes have, then its own methods.
macro_rules! slot_class {
    ($(#[$doc:meta])* $class:ident { $version:literal $($own:tt)* }) => {
        $(#[$doc])*
        #[pyclass(frozen, weakref, module = "tierflow")]
        pub(crate) struct $class(SlotOwner);

        impl $class {
            pub(crate) fn new(slot: Slot, layout: Layout, version: Version) -> Self {
                Self(SlotOwner::new(LentSlot::new(slot, layout, version)))
            }
        }

        #[pymethods]
        impl $class {
            #[doc = $version]
            #[getter]
            fn version(&self) -> Version {
                self.0.version
            }

            /// Elements along each dimension.
            #[getter]
            fn shape<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyTuple>> {
                self.0.shape(py)
            }

            /// The name of the element type.
            #[getter]
            fn dtype(&self) -> &'static str {
                self.0.dtype
            }

            /// Bytes in all.
            #[getter]
            fn nbytes(&self) -> usize {
                self.0.bytes
            }

            #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
            fn __dlpack__<'py>(
                &self,
                py: Python<'py>,
                stream: Option<&Bound<'_, PyAny>>,
                max_version: Option<(u32, u32)>,
                dl_device: Option<(i32, i32)>,
                copy: Option<bool>,
            ) -> Answer<Bound<'py, PyAny>> {
                // No stream has to wait: no copy of the engine is under way on the slot's bytes.
                let _ = stream;
                self.0.dlpack(py, max_version, dl_device, copy)
            }

            fn __dlpack_device__(&self) -> Answer<(i32, i32)> {
                self.0.dlpack_device()
            }

            #[getter]
            fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> Answer<Bound<'py, PyDict>> {
                self.0.cuda_interface(py)
            }

            #[allow(unsafe_code, reason = "the protocol's signature")]
            unsafe fn __getbuffer__(
                slf: Bound<'_, Self>,
                view: *mut Py_buffer,
                flags: c_int,
            ) -> Answer {
                let lent = slf.get().0.shared()?;
                // SAFETY: `view` is the interpreter's own place for the answer.
                Ok(unsafe { ffi::buffer::fill(view, flags, lent, slf.into_any()) }?)
            }

            #[allow(unsafe_code, reason = "the protocol's signature")]
            unsafe fn __releasebuffer__(&self, view: *mut Py_buffer) {
                // SAFETY: the interpreter passes a view that `__getbuffer__` filled, once.
                unsafe { ffi::buffer::release(view) };
            }

            fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
                slf
            }

            fn __repr__(&self) -> Answer<String> {
                self.0.described(stringify!($class))
            }

            $($own)*
        }
    };
}

slot_class! {
    /// Room in the cache for a checkpoint, as an array of every framework: write the array, then call `commit`.
    ///
    /// NumPy, and every library that uses the buffer protocol, DLPack or `__cuda_array_interface__`, takes the slot without a copy.
    /// Arrays made of the slot keep the room. The bytes become a checkpoint by `commit`, or at the end of a `with` block that raised no
    /// exception. If the slot and the last array are dropped before, the room is freed.
    ProduceSlot {
        "The version that the bytes are to be."

        /// Makes the bytes the checkpoint, without a copy. Raises `BufferError` if arrays over the bytes are left: delete them before.
        ///
        /// On a GPU, `commit` returns at once. The version is there when the work given to `stream` so far is done; without a `stream`,
        /// all work given to the device.
        #[pyo3(signature = (stream = None))]
        fn commit(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> Answer {
            let lent = self.0.alone("a checkpoint")?;
            self.0.end(py, lent, stream)
        }

        /// Frees the room: the version is not made, and its number stays free. Raises `BufferError` if arrays over the room are left.
        fn give_up(&self, py: Python<'_>) -> Answer {
            let lent = self.0.alone("given up")?;
            py.detach(|| drop(lent));
            Ok(())
        }

        /// Copies `array` to the slot's bytes, from `offset` on.
        ///
        /// An array on a GPU is copied in the order of its framework's current stream, or of `stream` behind that one, without waiting:
        /// call `commit` with the same stream, and do not change the array until the stream has done the copy. An array in main memory is
        /// copied when `write` returns, as is one whose framework names no stream, such as CuPy and JAX, without a `stream`. CUDA's own copies refuse host memory that was pinned in parts, such as an engine's; `write` copies
        /// to it.
        #[pyo3(signature = (array, offset = 0, *, stream = None))]
        fn write(
            &self,
            array: &Bound<'_, PyAny>,
            offset: usize,
            stream: Option<&Bound<'_, PyAny>>,
        ) -> Answer {
            self.0.copy(array, (Use::Read, offset), stream)
        }

        #[pyo3(signature = (kind, error, trace))]
        fn __exit__(
            &self,
            py: Python<'_>,
            kind: &Bound<'_, PyAny>,
            error: &Bound<'_, PyAny>,
            trace: &Bound<'_, PyAny>,
        ) -> Answer<bool> {
            let _ = (error, trace);
            if !self.0.is_there()? {
                return Ok(false);
            }
            match kind.is_none() {
                true => self.commit(py, None)?,
                // Other users of the bytes, such as the traceback, keep the bytes, which can no longer be committed.
                false => {
                    let lent = self.0.taken()?;
                    py.detach(|| drop(lent));
                }
            }
            Ok(false)
        }
    }
}

slot_class! {
    /// A version in the cache, as a read-only array of every framework.
    ///
    /// Arrays and views made of the slot keep the bytes in place. The last of them that is dropped gives the bytes back and counts the
    /// version as consumed.
    ConsumeSlot {
        "The version that it holds."

        /// True if the slot's bytes are those in the cache. If the cache had no room, the bytes are a copy.
        #[getter]
        fn is_cached(&self) -> bool {
            self.0.is_cached
        }

        /// Gives the bytes back and counts the version as consumed, or leaves that to the last array over them.
        ///
        /// On a GPU, `finish` returns at once. The next write of the bytes waits for the work given to `stream` so far; without a
        /// `stream`, for all work given to the device.
        #[pyo3(signature = (stream = None))]
        fn finish(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> Answer {
            let lent = self.0.taken()?;
            if !lent.engine().is_cuda() || stream.is_none() {
                py.detach(|| drop(lent));
                return Ok(());
            }
            match Arc::into_inner(lent) {
                Some(lent) => self.0.end(py, lent, stream),
                // There are other users of the bytes: the last one gives them back behind all work of the device.
                None => Ok(()),
            }
        }

        /// Gives the bytes back and leaves the version unconsumed, or leaves that to the last array over them. On a GPU, the next write
        /// of the bytes waits for all work given to the device, as some of it may read them.
        fn give_back(&self, py: Python<'_>) -> Answer {
            let lent = self.0.taken()?;
            lent.leave_unconsumed();
            py.detach(|| drop(lent));
            Ok(())
        }

        /// Copies the slot's bytes, from `offset` on, to `array`.
        ///
        /// An array on a GPU is filled in the order of its framework's current stream, or of `stream` behind that one, without waiting:
        /// call `finish` with the same stream. An array in main memory is filled when `read` returns, as is one whose framework names no
        /// stream, such as CuPy and JAX, without a `stream`. CUDA's own copies refuse host memory that was pinned in parts, such as an
        /// engine's; `read` copies from it.
        #[pyo3(signature = (array, offset = 0, *, stream = None))]
        fn read(
            &self,
            array: &Bound<'_, PyAny>,
            offset: usize,
            stream: Option<&Bound<'_, PyAny>>,
        ) -> Answer {
            self.0.copy(array, (Use::Write, offset), stream)
        }

        #[pyo3(signature = (*_arguments))]
        fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyTuple>) -> Answer<bool> {
            if self.0.is_there()? {
                self.finish(py, None)?;
            }
            Ok(false)
        }
    }
}

impl ProduceSlot {
    /// Returns the lent slot to one more user of the bytes, who keeps it lent.
    ///
    /// # Errors
    /// `ClosedError` if the slot was given back.
    pub(crate) fn lent(&self) -> Answer<Arc<LentSlot>> {
        self.0.shared()
    }
}
