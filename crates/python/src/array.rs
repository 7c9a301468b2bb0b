//! The arrays of a call: the protocol that finds each array's bytes, and the errors of objects that no call can use.

use std::ffi::CStr;

use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule, PyDict, PyTuple};
use tierflow_bind::{CallMemory, Order, Span};
use tierflow_device::{Device, Memory};
use tierflow_engine::{Region, RegionMut};

use crate::dtype::ArrayType;
use crate::errors::{Answer, Raised};
use crate::ffi::cuda_interface::Interface;
use crate::ffi::dlpack::{
    COMPLEX, CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Described, HANDLES, Managed, VERSION,
};
use crate::ffi::exchange::Api;
use crate::ffi::given::{Given, Hold};
use crate::ffi::view::View;
use crate::order;

/// The direction in which a call copies an array's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The call checkpoints the array's bytes.
    Read,
    /// The call restores bytes to the array.
    Write,
}

/// The arguments of one call.
pub(crate) struct Arrays(Vec<Given>);

impl Arrays {
    /// Finds the bytes of all `arrays`, and orders the call after the work that makes them.
    ///
    /// # Errors
    /// `TypeError` if an argument is no array; `ArrayError` if the engine cannot use an array, or if two arrays to restore to share bytes;
    /// the exceptions of an array's own protocol.
    pub(crate) fn of(
        arrays: &Bound<'_, PyTuple>,
        access: Use,
        order: &mut Order<'_>,
    ) -> Answer<Self> {
        let mut all = Vec::with_capacity(arrays.len());
        for (index, array) in arrays.iter().enumerate() {
            let which = Argument {
                array: &array,
                index,
                access,
            };
            all.push(which.given(order)?);
        }
        if access == Use::Write {
            disjoint(&all)?;
        }
        Ok(Self(all))
    }

    /// Calls `call` with the memory of each array that has bytes, in their order, until `call` fails.
    pub(crate) fn each<E>(&self, call: impl FnMut(&CallMemory) -> Result<(), E>) -> Result<(), E> {
        self.0
            .iter()
            .map(|given| &given.memory)
            .filter(|memory| memory.span().bytes() > 0)
            .try_for_each(call)
    }

    /// Returns true if no array with bytes lies in main memory.
    pub(crate) fn are_on_device(&self) -> bool {
        let mut memories = self.0.iter().map(|given| &given.memory);
        memories.all(|memory| memory.is_on_device() || memory.span().bytes() == 0)
    }

    /// Returns the address of the first array, and how many bytes it has.
    pub(crate) fn span(&self) -> (u64, usize) {
        let first = self.0.first().map(|given| given.memory.span());
        first.map_or((0, 0), |span| (span.address(), span.bytes()))
    }

    /// Returns the memory of the first array, to be copied by streams of `device`.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn memory(&self, device: &Device) -> tierflow_device::Result<Option<Memory>> {
        let first = self.0.first().map(|given| given.memory.lendable(device));
        first.transpose()
    }

    /// Returns the type of each array; `None` for an array that names no known type.
    pub(crate) fn types(&self) -> impl Iterator<Item = Option<&ArrayType>> {
        self.0.iter().map(|given| given.array.as_ref())
    }

    /// Returns the arrays' bytes as regions to read. The regions borrow `self`, which holds the bytes.
    pub(crate) fn regions(&self) -> Vec<Region<'_>> {
        self.0.iter().map(|given| given.memory.region()).collect()
    }

    /// Returns the arrays' bytes as regions to write. The regions borrow `self`, which holds the bytes.
    pub(crate) fn regions_mut(&mut self) -> Vec<RegionMut<'_>> {
        let all = self.0.iter_mut();
        all.map(|given| given.memory.region_mut()).collect()
    }
}

/// Checks that no two arrays share bytes.
///
/// # Errors
/// `ArrayError` if two arrays do.
fn disjoint(all: &[Given]) -> Answer {
    let spans = all.iter().map(|given| given.memory.span()).enumerate();
    let mut spans: Vec<_> = spans.filter(|(_, span)| span.bytes() > 0).collect();
    spans.sort_by_key(|(_, span)| span.address());
    // If any two share bytes, so do two whose addresses follow each other.
    match spans.windows(2).find(|both| both[0].1.overlaps(both[1].1)) {
        Some(&[(one, _), (other, _)]) => {
            let (one, other) = (one.min(other), one.max(other));
            let text = "share memory: restore into arrays of their own";
            Err(Raised::array(format!("arrays {one} and {other} {text}")))
        }
        _ => Ok(()),
    }
}

/// Returns true if a buffer's format has an element `O`, a Python object. The names of a structure's fields stand between colons.
fn has_objects(format: &CStr) -> bool {
    let parts = format.to_bytes().split(|byte| *byte == b':');
    parts.step_by(2).any(|codes| codes.contains(&b'O'))
}

/// An argument of a call: the object, its place among the arguments, and the direction of the copy.
struct Argument<'a, 'py> {
    array: &'a Bound<'py, PyAny>,
    index: usize,
    access: Use,
}

impl<'py> Argument<'_, 'py> {
    fn given(&self, order: &mut Order<'_>) -> Answer<Given> {
        if View::is_spoken_by(self.array) {
            self.no_mask()?;
            if let Some(given) = self.by_buffer()? {
                return Ok(given);
            }
        }
        if let Some(api) = Api::of(self.array) {
            let given = self.by_exchange(api, order);
            return given.map_err(|error| self.without_memory(error));
        }
        let py = self.array.py();
        if self.array.hasattr(intern!(py, "__dlpack_device__"))? {
            let given = self.by_dlpack(order);
            return given.map_err(|error| self.without_memory(error));
        }
        if let Some(interface) = self
            .array
            .getattr_opt(intern!(py, "__cuda_array_interface__"))?
        {
            return self.by_cuda_interface(interface, order);
        }
        Err(self.no_array())
    }

    /// Finds the array's bytes by the buffer protocol. Returns `None` if the type has the protocol and this object of it does not.
    fn by_buffer(&self) -> Answer<Option<Given>> {
        let access = match self.access {
            Use::Read => 0,
            Use::Write => View::WRITABLE,
        };
        let (view, array) = match View::of(self.array, View::IN_C_ORDER | View::FORMAT | access) {
            Ok(view) => {
                if view.format().is_some_and(has_objects) {
                    return Err(self.holds_objects());
                }
                let array = ArrayType::of_format(view.format(), view.item_bytes(), view.shape());
                (view, array)
            }
            Err(refused) => match self.look_again(refused, access)? {
                Some(view) => {
                    let array = ArrayType::of_attribute(self.array, view.shape());
                    (view, array)
                }
                None => return Ok(None),
            },
        };
        let memory = CallMemory::on_host(view.span());
        Ok(Some(Given::new(memory, array, Hold::View(view))))
    }

    /// Returns the view without a format, if only the name of the element type was missing. Returns `None` if DLPack may find the bytes.
    ///
    /// # Errors
    /// `ArrayError` if the array is read-only, has objects as elements, or is not contiguous; else `refused`.
    fn look_again(&self, refused: PyErr, access: i32) -> Answer<Option<View>> {
        let py = self.array.py();
        if let Ok(view) = View::of(self.array, View::IN_C_ORDER | access) {
            let dtype = self.array.getattr_opt(intern!(py, "dtype"))?;
            let has = dtype.map(|dtype| dtype.getattr_opt(intern!(py, "hasobject")));
            return match has.transpose()?.flatten() {
                Some(has) if has.is_truthy()? => Err(self.holds_objects()),
                _ => Ok(Some(view)),
            };
        }
        match View::of(self.array, View::STRIDED) {
            Ok(view) if self.access == Use::Write && view.is_read_only() => {
                Err(self.is_read_only())
            }
            Ok(view) => Err(self.is_not_contiguous(view.is_fortran())),
            // For example, a slot in device memory.
            Err(_) if self.array.hasattr(intern!(py, "__dlpack_device__"))? => Ok(None),
            Err(_) => Err(refused.into()),
        }
    }

    fn by_exchange(&self, api: Api, order: &mut Order<'_>) -> Answer<Given> {
        self.no_gradient()?;
        let (described, hold) = api.describe(self.array)?;
        let (device, is_complex) = (described.device, described.dtype.code == COMPLEX);
        self.no_lazy_math(is_complex)?;
        let given = self.checked(described, order, hold)?;
        if given.memory.is_on_device() {
            let py = self.array.py();
            order::after(py, order, api.stream(py, device)?)?;
        }
        Ok(given)
    }

    fn by_dlpack(&self, order: &mut Order<'_>) -> Answer<Given> {
        let py = self.array.py();
        self.no_gradient()?;
        self.no_lazy_math(true)?;
        if self.access == Use::Write && self.is_of("jax") {
            return Err(self.is_read_only());
        }
        let device = self.array.call_method0(intern!(py, "__dlpack_device__"))?;
        let (kind, _number): (i32, i32) = device.extract()?;
        let stream = match kind {
            CUDA | CUDA_MANAGED if order.is_cuda() => Some(py.detach(|| order.handle())?),
            _ => None,
        };
        let method = self.array.getattr(intern!(py, "__dlpack__"))?;
        let keywords: Bound<'_, PyDict> = match stream {
            Some(stream) => [("stream", stream)].into_py_dict(py)?,
            None => PyDict::new(py),
        };
        keywords.set_item(intern!(py, "max_version"), (VERSION.major, VERSION.minor))?;
        let mut answer = method.call((), Some(&keywords));
        if matches!(&answer, Err(error) if error.is_instance_of::<PyTypeError>(py)) {
            // Arrays of DLPack's older versions do not know `max_version`.
            keywords.del_item(intern!(py, "max_version"))?;
            answer = method.call((), Some(&keywords));
        }
        let capsule = answer.map_err(|error| self.refused(error))?;
        let capsule = capsule.cast_into::<PyCapsule>().map_err(PyErr::from)?;
        let managed = Managed::take(&capsule)?;
        self.checked(managed.described(), order, Hold::Managed(managed))
    }

    /// Returns a `BufferError` of `__dlpack__` as an `ArrayError` that names the argument. Other exceptions stay as they are.
    fn refused(&self, error: PyErr) -> Raised {
        let py = self.array.py();
        if !error.is_instance_of::<PyBufferError>(py) {
            return error.into();
        }
        let said = error.value(py).to_string();
        let ours = self.error(&format!("it does not give its memory away: {said}"));
        ours.because(py, error)
    }

    fn by_cuda_interface(
        &self,
        interface: Bound<'py, PyAny>,
        order: &mut Order<'_>,
    ) -> Answer<Given> {
        let py = self.array.py();
        let interface = Interface::read(&interface)?;
        if self.access == Use::Write && interface.is_read_only {
            return Err(self.is_read_only());
        }
        if interface.has_mask {
            return Err(self.error("it is masked: pass its data and its mask as two arrays"));
        }
        if !interface.is_contiguous {
            return Err(self.is_not_contiguous(false));
        }
        self.has_memory(interface.span)?;
        let owner = match order.device().as_cuda() {
            Some(cuda) => cuda.owner_of(interface.span.address()),
            None => Ok(None),
        };
        let array = ArrayType::of_typestr(&interface.typestr, interface.shape);
        let memory = self.on_device(interface.span, owner?, order)?;
        if let (Some(stream), true) = (interface.stream, memory.is_on_device()) {
            order::after(py, order, stream)?;
        }
        Ok(Given::new(memory, array, Hold::Nothing))
    }

    /// Finds the bytes that `tensor` describes. `hold` keeps them in place.
    ///
    /// # Errors
    /// `ArrayError` if the engine cannot use the tensor, such as a read-only one to restore to.
    fn checked(&self, tensor: Described, order: &Order<'_>, hold: Hold) -> Answer<Given> {
        if self.access == Use::Write && tensor.is_read_only == Some(true) {
            return Err(self.is_read_only());
        }
        if tensor.dtype.code == HANDLES {
            return Err(self.holds_objects());
        }
        if !tensor.is_contiguous {
            return Err(self.is_not_contiguous(false));
        }
        self.has_memory(tensor.span)?;
        let array = ArrayType::of_dlpack(tensor.dtype, tensor.shape);
        let memory = match tensor.device.kind {
            CPU | CUDA_HOST => Ok(CallMemory::on_host(tensor.span)),
            CUDA | CUDA_MANAGED => {
                let number = usize::try_from(tensor.device.number).ok();
                self.on_device(tensor.span, number, order)
            }
            kind => Err(self.error(&format!(
                "it lies on a device of DLPack's kind {kind}, and the engine reaches main memory and NVIDIA GPUs: copy \
                 it there first"
            ))),
        };
        Ok(Given::new(memory?, array, hold))
    }

    /// Returns `span` as memory of the engine's device. `number` is that of the GPU that has the bytes, if it is known.
    ///
    /// # Errors
    /// `ArrayError` if the engine keeps plain memory, or has another GPU.
    fn on_device(
        &self,
        span: Span,
        number: Option<usize>,
        order: &Order<'_>,
    ) -> Answer<CallMemory> {
        if span.bytes() == 0 {
            return Ok(CallMemory::on_host(span));
        }
        let own = order.device().info().ordinal;
        let gpu = number.map_or_else(|| "cuda".to_owned(), |number| format!("cuda:{number}"));
        if !order.is_cuda() {
            return Err(self.error(&format!(
                "it lies on a GPU, and the engine keeps plain memory: build it with device=\"{gpu}\""
            )));
        }
        if number.is_some_and(|number| number != own) {
            return Err(self.error(&format!(
                "it lies on {gpu}, and the engine is of cuda:{own}: move the array there, or give {gpu} an engine of its \
                 own"
            )));
        }
        Ok(CallMemory::on_device(span, order.device())?)
    }

    /// Checks that the array has memory. A wrapper of other tensors has none.
    fn has_memory(&self, span: Span) -> Answer {
        if span.address() == 0 && span.bytes() > 0 {
            return Err(self.error(
                "it has no memory of its own: pass what it is made of, such as t.to_local()",
            ));
        }
        Ok(())
    }

    /// Refuses NumPy's masked arrays and arrays of its subclasses: their buffer has the data without the mask.
    fn no_mask(&self) -> Answer {
        let py = self.array.py();
        // A mask is an attribute of the object. Most arrays have no attributes, and a look-up that fails costs more than the rest of the call.
        let own_attributes = self
            .array
            .get_type()
            .getattr(intern!(py, "__dictoffset__"))?;
        if own_attributes.extract::<isize>()? == 0 {
            return Ok(());
        }
        match self.array.getattr_opt(intern!(py, "_mask"))? {
            None => Ok(()),
            Some(_) => Err(self.error(
                "it is masked, and its mask is an array of its own: pass a.data and np.ma.getmaskarray(a), which are two arrays",
            )),
        }
    }

    /// Refuses arrays that require gradients: autograd would not see the copy.
    fn no_gradient(&self) -> Answer {
        let py = self.array.py();
        let requires = self.array.getattr_opt(intern!(py, "requires_grad"))?;
        match requires {
            Some(requires) if requires.is_truthy()? => Err(self
                .error("it requires a gradient, which a copy does not know of: pass t.detach()")),
            _ => Ok(()),
        }
    }

    /// Refuses tensors whose bytes are not their numbers: PyTorch may defer a conjugation, or a negation, to the reader.
    fn no_lazy_math(&self, is_complex: bool) -> Answer {
        let py = self.array.py();
        let both = [
            (intern!(py, "is_neg"), "t.resolve_neg()"),
            (intern!(py, "is_conj"), "t.resolve_conj()"),
        ];
        for (asks, resolve) in both.into_iter().take(1 + usize::from(is_complex)) {
            let Some(asks) = self.array.getattr_opt(asks)? else {
                return Ok(());
            };
            if asks.call0()?.is_truthy()? {
                return Err(self.error(&format!(
                    "its bytes are not its numbers yet, as PyTorch puts that off: pass {resolve}"
                )));
            }
        }
        Ok(())
    }

    /// Returns the sentence that the function `why` of `tierflow/_refusals.py` makes of `given`.
    fn words(&self, why: &str, given: impl PyCallArgs<'py>) -> PyResult<Option<String>> {
        let refusals = self.array.py().import("tierflow._refusals")?;
        refusals.getattr(why)?.call1(given)?.extract()
    }

    fn refused_as(&self, why: &str, given: impl PyCallArgs<'py>) -> Raised {
        match self.words(why, given) {
            Ok(words) => self.error(&words.unwrap_or_default()),
            Err(error) => error.into(),
        }
    }

    fn is_not_contiguous(&self, is_fortran: bool) -> Raised {
        let is_restored = self.access == Use::Write;
        self.refused_as("not_contiguous", (self.array, is_restored, is_fortran))
    }

    fn is_read_only(&self) -> Raised {
        self.refused_as("read_only", (self.array,))
    }

    /// Returns an `ArrayError` that explains why the tensor's bytes do not lie in one place, or `error` for any other tensor.
    fn without_memory(&self, error: Raised) -> Raised {
        match self.words("scattered", (self.array,)) {
            Ok(Some(words)) => self.error(&words).because(self.array.py(), error.into()),
            _ => error,
        }
    }

    /// Returns the error for an object that is no array.
    fn no_array(&self) -> Raised {
        match self.words("no_array", (self.array,)) {
            Ok(words) => {
                let (index, kind, words) = (self.index, self.kind(), words.unwrap_or_default());
                PyTypeError::new_err(format!("array {index} is a {kind}: {words}")).into()
            }
            Err(error) => error.into(),
        }
    }

    fn holds_objects(&self) -> Raised {
        self.error("its elements are Python objects, whose bytes are addresses: give it a dtype of numbers, or pickle it")
    }

    fn error(&self, what: &str) -> Raised {
        let (index, kind) = (self.index, self.kind());
        Raised::array(format!("array {index}, a {kind}: {what}"))
    }

    /// Returns the full name of the array's type.
    fn kind(&self) -> String {
        let name = self.array.get_type().fully_qualified_name();
        name.map_or_else(|_| "thing".to_owned(), |name| name.to_string())
    }

    /// Returns true if the type is of this package or of its compiled part.
    fn is_of(&self, package: &str) -> bool {
        self.kind().starts_with(package)
    }
}
