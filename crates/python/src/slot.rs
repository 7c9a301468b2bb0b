//! Parts of the cache as arrays: what `produce` and `consume` return.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi::Py_buffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tierflow_engine::{ConsumeSlot as Consumed, ProduceSlot as Produced, Version};

use crate::dtype::DType;
use crate::engine::Core;
use crate::errors::{self, OrRaise};
use crate::ffi;
use crate::ffi::dlpack::{self, CPU, CUDA};
use crate::ffi::lent::Held;
use crate::order::Order;

// The numbers of a layout are handed out as `Py_ssize_t`, too.
const _: () = assert!(size_of::<isize>() == size_of::<i64>());

/// Shape and element type of a slot, in C order.
#[derive(Debug)]
pub(crate) struct Layout {
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
    byte_strides: Vec<i64>,
    bytes: usize,
}

impl Layout {
    /// `None` if there are more bytes than addresses.
    pub(crate) fn new(dtype: DType, shape: &[usize]) -> Option<Self> {
        let numbers = shape.iter().map(|&length| i64::try_from(length).ok());
        let numbers: Vec<i64> = numbers.collect::<Option<_>>()?;
        let mut strides = vec![1_i64; numbers.len()];
        let mut elements = 1_i64;
        for (stride, &length) in strides.iter_mut().zip(&numbers).rev() {
            *stride = elements;
            elements = elements.checked_mul(length)?;
        }
        let item = i64::try_from(dtype.bytes()).ok()?;
        let bytes = usize::try_from(elements.checked_mul(item)?).ok()?;
        Some(Self {
            dtype,
            shape: numbers,
            byte_strides: strides.iter().map(|stride| stride * item).collect(),
            strides,
            bytes,
        })
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// In elements.
    pub(crate) fn strides(&self) -> &[i64] {
        &self.strides
    }

    pub(crate) fn byte_strides(&self) -> &[i64] {
        &self.byte_strides
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A slot that is out. Whoever can reach its bytes shares it; the last of them gives it back.
pub(crate) struct Lent {
    /// There until it is given back.
    slot: Option<Slot>,
    layout: Layout,
    address: u64,
    device: dlpack::Device,
    is_read_only: bool,
    version: Version,
    /// The process that has the engine.
    process: u32,
}

enum Slot {
    Produced(Held<Produced<'static>>),
    Consumed(Held<Consumed<'static>>),
}

impl Lent {
    fn new(slot: Slot, layout: Layout) -> Self {
        let (core, address, on_host, version) = match &slot {
            Slot::Produced(held) => {
                let slot = held.slot();
                (
                    held.core(),
                    slot.address(),
                    slot.host_accessible(),
                    slot.version(),
                )
            }
            Slot::Consumed(held) => {
                let slot = held.slot();
                (
                    held.core(),
                    slot.address(),
                    slot.host_accessible(),
                    slot.version(),
                )
            }
        };
        let number = i32::try_from(core.device.info().ordinal).unwrap_or(i32::MAX);
        let device = match on_host {
            true => (CPU, 0),
            false => (CUDA, number),
        };
        let is_read_only = matches!(slot, Slot::Consumed(_));
        Self {
            slot: Some(slot),
            layout,
            address,
            device: dlpack::Device {
                kind: device.0,
                number: device.1,
            },
            is_read_only,
            version,
            process: std::process::id(),
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn dlpack_device(&self) -> dlpack::Device {
        self.device
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn is_on_host(&self) -> bool {
        self.device.kind == CPU
    }

    /// # Errors
    /// `BufferError` if the processor does not reach the bytes.
    pub(crate) fn host_pointer(&self) -> PyResult<*mut c_void> {
        if self.is_on_host() {
            return Ok(std::ptr::with_exposed_provenance_mut(self.address as usize));
        }
        Err(PyBufferError::new_err(
            "the slot lies in GPU memory, which the processor does not reach: go by DLPack, as in \
             torch.from_dlpack(slot), or by cupy.asarray(slot)",
        ))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        if self.process != std::process::id() {
            // Nothing here is this process's; a thread that it does not have may hold the locks.
            std::mem::forget(slot);
            return;
        }
        match slot {
            _ if self.is_on_host() => drop(slot),
            // Kernels may still write there: nobody else may have the bytes before they are done.
            Slot::Produced(held) => {
                if let Ok(stream) = held.core().behind_all_work() {
                    let _done_or_lost = stream.synchronize();
                }
                drop(held);
            }
            Slot::Consumed(held) => held.end(|slot, core| {
                let Ok(stream) = core.behind_all_work() else {
                    return slot.give_back();
                };
                // With an error the device is lost.
                let _consumed_or_lost = slot.finish_after(&stream);
            }),
        }
    }
}

/// The object's own part in a slot, until it is ended.
struct Own {
    lent: Mutex<Option<Arc<Lent>>>,
    version: Version,
    shape: Vec<i64>,
    dtype: &'static str,
    bytes: usize,
}

impl Own {
    fn new(lent: Lent) -> Self {
        let layout = lent.layout();
        Self {
            version: lent.version,
            shape: layout.shape().to_vec(),
            dtype: layout.dtype().name,
            bytes: layout.bytes(),
            lent: Mutex::new(Some(Arc::new(lent))),
        }
    }

    /// For one more user of the bytes.
    fn shared(&self, py: Python<'_>) -> PyResult<Arc<Lent>> {
        let lent = self.lent.lock().clone().ok_or_else(|| self.ended(py))?;
        let owner = lent.process;
        if owner != std::process::id() {
            std::mem::forget(lent);
            return Err(errors::forked(py, owner));
        }
        Ok(lent)
    }

    /// The whole slot, if nobody else uses its bytes.
    fn alone(&self, py: Python<'_>, what: &str) -> PyResult<Lent> {
        drop(self.shared(py)?);
        let mut own = self.lent.lock();
        let lent = own.take().ok_or_else(|| self.ended(py))?;
        Arc::try_unwrap(lent).map_err(|lent| {
            let others = Arc::strong_count(&lent) - 1;
            *own = Some(lent);
            PyBufferError::new_err(format!(
                "arrays or views still use the bytes of version {} ({others} of them): `del` them first, for it to be {what}",
                self.version
            ))
        })
    }

    fn ended(&self, py: Python<'_>) -> PyErr {
        let version = self.version;
        errors::closed(
            py,
            &format!("the slot of version {version} was given back: it has no bytes any more"),
        )
    }

    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    fn described(&self, class: &str) -> String {
        let (version, shape, dtype) = (self.version, &self.shape, self.dtype);
        let state = match self.lent.lock().as_deref() {
            None => "given back".to_owned(),
            Some(lent) if lent.is_on_host() => "host".to_owned(),
            Some(lent) => format!("cuda:{}", lent.device.number),
        };
        format!("<tierflow.{class} of version {version}, {dtype}{shape:?}, {state}>")
    }

    fn dlpack<'py>(
        &self,
        py: Python<'py>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let lent = self.shared(py)?;
        if copy == Some(true) {
            return Err(PyBufferError::new_err(
                "a slot is lent, not copied: leave copy out, and copy what you get",
            ));
        }
        let own = lent.dlpack_device();
        if dl_device.is_some_and(|asked| asked != (own.kind, own.number)) {
            return Err(PyBufferError::new_err(format!(
                "the slot lies on device {:?} of DLPack and stays there: copy what you get without dl_device",
                (own.kind, own.number)
            )));
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= dlpack::VERSION.major);
        ffi::export::capsule(py, lent, versioned)
    }

    fn dlpack_device(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        let device = self.shared(py)?.dlpack_device();
        Ok((device.kind, device.number))
    }

    fn cuda_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let lent = self.shared(py)?;
        if lent.is_on_host() {
            return Err(PyAttributeError::new_err(
                "the slot lies in host memory: use np.asarray(slot)",
            ));
        }
        let typestr = lent.layout().dtype().typestr.ok_or_else(|| {
            PyAttributeError::new_err(format!(
                "__cuda_array_interface__ has no name for {}: go by DLPack",
                self.dtype
            ))
        })?;
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("data", (lent.address(), lent.is_read_only()))?;
        interface.set_item("strides", py.None())?;
        // What made the bytes is over.
        interface.set_item("stream", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.get_mut().take() {
            crate::engine::detached(|| drop(lent));
        }
    }
}

/// The stream that a slot is given back after: what was named, or all work of the device.
fn after<'core>(
    py: Python<'_>,
    core: &'core Core,
    stream: Option<&Bound<'_, PyAny>>,
) -> PyResult<Behind<'core>> {
    match stream {
        Some(stream) => core.order(Some(stream)).map(Behind::Named),
        None => core
            .behind_all_work()
            .map(Behind::All)
            .map_err(|error| errors::device(py, &error)),
    }
}

enum Behind<'core> {
    Named(Order<'core>),
    All(crate::engine::Borrowed<'core>),
}

impl Behind<'_> {
    fn stream(&self) -> Option<&tierflow_device::Stream> {
        match self {
            Self::Named(order) => order.stream(),
            Self::All(stream) => Some(stream),
        }
    }
}

/// Room in the cache that is to become a checkpoint, as an array of every framework: write it, then `commit`.
///
/// NumPy and whatever else has the buffer protocol, DLPack or `__cuda_array_interface__` takes it without a copy. Arrays
/// made of it keep the room. It is a checkpoint once it is committed, by `commit` or at the end of a `with` block that
/// raised nothing; if the last of them goes before that, the room is given up.
#[pyclass(frozen, weakref, module = "tierflow")]
pub(crate) struct ProduceSlot {
    own: Own,
}

impl ProduceSlot {
    pub(crate) fn new(held: Held<Produced<'static>>, layout: Layout) -> Self {
        let own = Own::new(Lent::new(Slot::Produced(held), layout));
        Self { own }
    }
}

#[pymethods]
impl ProduceSlot {
    /// The version that the bytes are to be.
    #[getter]
    fn version(&self) -> Version {
        self.own.version
    }

    /// Elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.own.shape(py)
    }

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.own.dtype
    }

    /// Bytes in all.
    #[getter]
    fn nbytes(&self) -> usize {
        self.own.bytes
    }

    /// Makes the bytes the checkpoint, without a copy. Arrays over them must be gone: `BufferError` if some are left.
    ///
    /// On a GPU, at once, and the version is there when the work given to `stream` so far is done; without one, all work
    /// given to the device.
    #[pyo3(signature = (stream = None))]
    fn commit(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let mut lent = self.own.alone(py, "a checkpoint")?;
        let on_host = lent.is_on_host();
        let Some(Slot::Produced(held)) = lent.slot.take() else {
            return Err(self.own.ended(py));
        };
        if on_host {
            held.end(|slot, _| py.detach(|| slot.commit()));
            return Ok(());
        }
        let core = Arc::clone(held.core());
        let behind = match after(py, &core, stream) {
            Ok(behind) => behind,
            Err(error) => {
                // Not committed: it is still the slot that it was.
                lent.slot = Some(Slot::Produced(held));
                *self.own.lent.lock() = Some(Arc::new(lent));
                return Err(error);
            }
        };
        held.end(|slot, _| match behind.stream() {
            Some(stream) => py.detach(|| slot.commit_after(stream)),
            None => {
                py.detach(|| slot.commit());
                Ok(())
            }
        })
        .or_raise(py)
    }

    /// Gives the room up: there is no such version, and its number stays free. Arrays over it must be gone.
    fn give_up(&self, py: Python<'_>) -> PyResult<()> {
        let lent = self.own.alone(py, "given up")?;
        py.detach(|| drop(lent));
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, error, trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (error, trace);
        if self.own.lent.lock().is_none() {
            return Ok(false);
        }
        match kind.is_none() {
            true => self.commit(py, None)?,
            // Whoever still looks at the bytes, such as the traceback, keeps them; nobody can commit them.
            false => {
                let lent = self.own.lent.lock().take();
                py.detach(|| drop(lent));
            }
        }
        Ok(false)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // No work of ours is under way on the bytes.
        let _ = stream;
        self.own.dlpack(py, max_version, dl_device, copy)
    }

    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        self.own.dlpack_device(py)
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.own.cuda_interface(py)
    }

    #[allow(unsafe_code, reason = "the protocol's signature")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let lent = slf.get().own.shared(slf.py())?;
        // SAFETY: the interpreter's own place for the answer.
        unsafe { ffi::buffer::fill(view, flags, lent, slf.into_any()) }
    }

    #[allow(unsafe_code, reason = "the protocol's signature")]
    unsafe fn __releasebuffer__(&self, view: *mut Py_buffer) {
        // SAFETY: a view that was filled above.
        unsafe { ffi::buffer::release(view) };
    }

    fn __repr__(&self) -> String {
        self.own.described("ProduceSlot")
    }
}

/// A version in the cache, as a read-only array of every framework.
///
/// Arrays made of it, and views, keep it where it is; the last of them to go gives it back, and counts the version as
/// consumed.
#[pyclass(frozen, weakref, module = "tierflow")]
pub(crate) struct ConsumeSlot {
    own: Own,
    is_cached: bool,
}

impl ConsumeSlot {
    pub(crate) fn new(held: Held<Consumed<'static>>, layout: Layout) -> Self {
        let is_cached = held.slot().is_cached();
        let own = Own::new(Lent::new(Slot::Consumed(held), layout));
        Self { own, is_cached }
    }
}

#[pymethods]
impl ConsumeSlot {
    /// The version that it holds.
    #[getter]
    fn version(&self) -> Version {
        self.own.version
    }

    /// Elements along each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.own.shape(py)
    }

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.own.dtype
    }

    /// Bytes in all.
    #[getter]
    fn nbytes(&self) -> usize {
        self.own.bytes
    }

    /// Whether these are the bytes in the cache; if not, it had no room, and they are a copy.
    #[getter]
    fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// Gives the bytes back and counts the version as consumed, or leaves that to the last array over them.
    ///
    /// On a GPU, at once, and whoever overwrites the bytes waits for the work given to `stream` so far; without one, for all
    /// work given to the device.
    #[pyo3(signature = (stream = None))]
    fn finish(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        drop(self.own.shared(py)?);
        let Some(lent) = self.own.lent.lock().take() else {
            return Err(self.own.ended(py));
        };
        if lent.is_on_host() || stream.is_none() {
            py.detach(|| drop(lent));
            return Ok(());
        }
        // With others, the last one waits for all work.
        let Some(mut lent) = Arc::into_inner(lent) else {
            return Ok(());
        };
        let Some(Slot::Consumed(held)) = lent.slot.take() else {
            return Err(self.own.ended(py));
        };
        let core = Arc::clone(held.core());
        let order = core.order(stream)?;
        held.end(|slot, _| match order.stream() {
            Some(stream) => py.detach(|| slot.finish_after(stream)),
            None => {
                py.detach(|| drop(slot));
                Ok(())
            }
        })
        .or_raise(py)
    }

    /// Gives the bytes back and leaves the version unconsumed. Arrays over them must be gone.
    fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        let mut lent = self.own.alone(py, "given back")?;
        let Some(Slot::Consumed(held)) = lent.slot.take() else {
            return Err(self.own.ended(py));
        };
        held.end(|slot, _| py.detach(|| slot.give_back()));
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_arguments))]
    fn __exit__(&self, py: Python<'_>, _arguments: &Bound<'_, PyTuple>) -> PyResult<bool> {
        if self.own.lent.lock().is_some() {
            self.finish(py, None)?;
        }
        Ok(false)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // No work of ours is under way on the bytes.
        let _ = stream;
        self.own.dlpack(py, max_version, dl_device, copy)
    }

    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        self.own.dlpack_device(py)
    }

    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.own.cuda_interface(py)
    }

    #[allow(unsafe_code, reason = "the protocol's signature")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let lent = slf.get().own.shared(slf.py())?;
        // SAFETY: the interpreter's own place for the answer.
        unsafe { ffi::buffer::fill(view, flags, lent, slf.into_any()) }
    }

    #[allow(unsafe_code, reason = "the protocol's signature")]
    unsafe fn __releasebuffer__(&self, view: *mut Py_buffer) {
        // SAFETY: a view that was filled above.
        unsafe { ffi::buffer::release(view) };
    }

    fn __repr__(&self) -> String {
        self.own.described("ConsumeSlot")
    }
}
