//! What an argument is, where its bytes lie, and why it will not do.

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule, PyDict, PyTuple};
use tierflow_engine::{Region, RegionMut};

use crate::dtype::ArrayType;
use crate::errors::{self, OrRaise};
use crate::ffi::cuda_interface::Interface;
use crate::ffi::dlpack::{
    CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Described, HANDLES, Managed, VERSION,
};
use crate::ffi::exchange::Api;
use crate::ffi::given::{Given, Hold};
use crate::ffi::span::Span;
use crate::ffi::view::View;
use crate::order::Order;

/// What a call does with an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its bytes are checkpointed.
    Read,
    /// Bytes are restored to it.
    Write,
}

/// The arguments of one call.
pub(crate) struct Arrays(Vec<Given>);

impl Arrays {
    /// Finds the bytes of all `arrays`, and orders the call after the work that makes them.
    ///
    /// # Errors
    /// `TypeError` for what is no array, `ArrayError` for one that will not do.
    pub(crate) fn of(
        arrays: &Bound<'_, PyTuple>,
        access: Use,
        order: &mut Order<'_>,
    ) -> PyResult<Self> {
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
            disjoint(arrays.py(), &all)?;
        }
        Ok(Self(all))
    }

    /// Calls `call` with one after the other, until it fails.
    pub(crate) fn each<E>(&self, call: impl FnMut(&Given) -> Result<(), E>) -> Result<(), E> {
        self.0
            .iter()
            .filter(|given| given.span().bytes() > 0)
            .try_for_each(call)
    }

    /// What the arrays are, as far as they say it.
    pub(crate) fn types(&self) -> impl Iterator<Item = Option<&ArrayType>> {
        self.0.iter().map(Given::array)
    }

    /// To read, as long as `self` holds them.
    pub(crate) fn regions(&self) -> Vec<Region<'_>> {
        self.0.iter().map(Given::region).collect()
    }

    /// To write, as long as `self` holds them.
    pub(crate) fn regions_mut(&mut self) -> Vec<RegionMut<'_>> {
        self.0.iter_mut().map(Given::region_mut).collect()
    }
}

/// That no two of these share bytes.
fn disjoint(py: Python<'_>, all: &[Given]) -> PyResult<()> {
    for (index, one) in all.iter().enumerate() {
        let others = all.iter().take(index);
        if let Some(other) = others
            .into_iter()
            .position(|other| one.span().overlaps(other.span()))
        {
            return Err(errors::array(
                py,
                format!(
                    "arrays {other} and {index} share memory: restore into arrays of their own"
                ),
            ));
        }
    }
    Ok(())
}

/// Tensors of PyTorch's whose bytes do not lie in one place, by the attribute that says so, and the arrays to pass instead.
const SCATTERED: [(&str, &str); 4] = [
    (
        "is_meta",
        "it is a meta tensor, which has a shape and no bytes: make a real one, as torch.empty_like(t, device=\"cpu\") does",
    ),
    (
        "is_nested",
        "it is nested, and lies in several tensors: pass those, as *t.unbind()",
    ),
    (
        "is_quantized",
        "it is quantized: pass t.int_repr(), and keep its scale and its zero point",
    ),
    (
        "is_sparse",
        "it is sparse, and lies in several tensors: pass those, as t.indices() and t.values() of t.coalesce(), or t.to_dense()",
    ),
];
/// The same of sparse tensors whose indices are compressed.
const COMPRESSED: &str = "it is sparse, and lies in several tensors: pass those, as t.values(), with t.crow_indices() and t.col_indices() of CSR \
     and BSR, or t.ccol_indices() and t.row_indices() of CSC and BSC; or pass t.to_dense()";

/// One argument.
struct Argument<'a, 'py> {
    array: &'a Bound<'py, PyAny>,
    index: usize,
    access: Use,
}

impl<'py> Argument<'_, 'py> {
    fn given(&self, order: &mut Order<'_>) -> PyResult<Given> {
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

    /// `None` if the type has the protocol and this object of it does not.
    fn by_buffer(&self) -> PyResult<Option<Given>> {
        let access = match self.access {
            Use::Read => 0,
            Use::Write => View::WRITABLE,
        };
        let (view, array) = match View::of(self.array, View::IN_C_ORDER | View::FORMAT | access) {
            Ok(view) => {
                if view
                    .format()
                    .is_some_and(|format| format.to_bytes().contains(&b'O'))
                {
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
        let given = Given::on_host(view.span(), Hold::View(view));
        Ok(Some(given.typed(array)))
    }

    /// Why there was no view, or the view, if all that it lacks is a name for its element type.
    fn look_again(&self, refused: PyErr, access: i32) -> PyResult<Option<View>> {
        let py = self.array.py();
        if let Ok(view) = View::of(self.array, View::IN_C_ORDER | access) {
            let dtype = self.array.getattr_opt(intern!(py, "dtype"))?;
            let has_objects = match dtype {
                Some(dtype) => match dtype.getattr_opt(intern!(py, "hasobject"))? {
                    Some(has) => has.is_truthy()?,
                    None => false,
                },
                None => false,
            };
            return match has_objects {
                true => Err(self.holds_objects()),
                false => Ok(Some(view)),
            };
        }
        match View::of(self.array, View::STRIDED) {
            Ok(view) if self.access == Use::Write && view.is_read_only() => {
                Err(self.is_read_only())
            }
            Ok(view) => Err(self.is_not_contiguous(view.is_fortran())),
            // A slot in device memory, say.
            Err(_) if self.array.hasattr(intern!(py, "__dlpack_device__"))? => Ok(None),
            Err(_) => Err(refused),
        }
    }

    fn by_exchange(&self, api: Api, order: &mut Order<'_>) -> PyResult<Given> {
        self.no_gradient()?;
        let (described, hold) = api.describe(self.array)?;
        let device = described.device;
        self.no_lazy_math()?;
        let given = self.checked(described, order, hold)?;
        if given.is_on_device() {
            let py = self.array.py();
            order.after(py, api.stream(py, device)?)?;
        }
        Ok(given)
    }

    fn by_dlpack(&self, order: &mut Order<'_>) -> PyResult<Given> {
        let py = self.array.py();
        self.no_gradient()?;
        if self.access == Use::Write && self.is_of("jax") {
            return Err(self.is_read_only());
        }
        let device = self.array.call_method0(intern!(py, "__dlpack_device__"))?;
        let (kind, _number): (i32, i32) = device.extract()?;
        let stream = match kind {
            CUDA | CUDA_MANAGED if order.is_cuda() => Some(order.handle(py)?),
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
            // An array from before the versions.
            keywords.del_item(intern!(py, "max_version"))?;
            answer = method.call((), Some(&keywords));
        }
        let capsule = answer.map_err(|error| self.refused(error))?;
        let capsule = capsule.cast_into::<PyCapsule>().map_err(PyErr::from)?;
        let managed = Managed::take(&capsule)?;
        self.checked(managed.described(), order, Hold::Managed(managed))
    }

    /// The refusal of `__dlpack__`, in words of ours where they say more.
    fn refused(&self, error: PyErr) -> PyErr {
        let py = self.array.py();
        if !error.is_instance_of::<PyBufferError>(py) {
            return error;
        }
        let said = error.value(py).to_string();
        let ours = self.error(&format!("it does not give its memory away: {said}"));
        ours.set_cause(py, Some(error));
        ours
    }

    fn by_cuda_interface(
        &self,
        interface: Bound<'py, PyAny>,
        order: &mut Order<'_>,
    ) -> PyResult<Given> {
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
        let owner = owner.or_raise(py)?;
        let array = ArrayType::of_typestr(&interface.typestr, interface.shape);
        let given = self.on_device(interface.span, owner, order, Hold::Nothing)?;
        let given = given.typed(array);
        if let (Some(stream), true) = (interface.stream, given.is_on_device()) {
            order.after(py, stream)?;
        }
        Ok(given)
    }

    /// What a tensor said of itself will do.
    fn checked(&self, tensor: Described, order: &Order<'_>, hold: Hold) -> PyResult<Given> {
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
        let given = match tensor.device.kind {
            CPU | CUDA_HOST => Ok(Given::on_host(tensor.span, hold)),
            CUDA | CUDA_MANAGED => {
                let number = usize::try_from(tensor.device.number).ok();
                self.on_device(tensor.span, number, order, hold)
            }
            kind => Err(self.error(&format!(
                "it lies on a device of DLPack's kind {kind}, and the engine reaches main memory and NVIDIA GPUs: copy \
                 it there first"
            ))),
        };
        Ok(given?.typed(array))
    }

    /// Memory of the engine's device, which is the GPU of this number.
    fn on_device(
        &self,
        span: Span,
        number: Option<usize>,
        order: &Order<'_>,
        hold: Hold,
    ) -> PyResult<Given> {
        let py = self.array.py();
        if span.bytes() == 0 {
            return Ok(Given::on_host(span, hold));
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
        Given::on_device(span, order.device(), hold).or_raise(py)
    }

    /// That the array is more than a description of others.
    fn has_memory(&self, span: Span) -> PyResult<()> {
        if span.address() == 0 && span.bytes() > 0 {
            return Err(self.error(
                "it has no memory of its own: pass what it is made of, such as t.to_local()",
            ));
        }
        Ok(())
    }

    /// Refuses masked arrays of NumPy's and of its subclasses: their buffer has the data alone.
    fn no_mask(&self) -> PyResult<()> {
        let py = self.array.py();
        match self.array.getattr_opt(intern!(py, "_mask"))? {
            None => Ok(()),
            Some(_) => Err(self.error(
                "it is masked, and its mask is an array of its own: pass a.data and np.ma.getmaskarray(a), which are two arrays",
            )),
        }
    }

    /// The error of a tensor that has no bytes in one place, in words of ours.
    fn without_memory(&self, error: PyErr) -> PyErr {
        let py = self.array.py();
        let attribute = |name: &str| self.array.getattr_opt(name).ok().flatten();
        let is =
            |name: &str| attribute(name).is_some_and(|answer| answer.is_truthy().unwrap_or(false));
        let known = SCATTERED.iter().find(|(name, _)| is(name));
        let what = match (known, attribute("layout")) {
            (Some((_, what)), _) => *what,
            (None, Some(layout)) if layout.to_string() != "torch.strided" => COMPRESSED,
            _ => return error,
        };
        let ours = self.error(what);
        ours.set_cause(py, Some(error));
        ours
    }

    /// The error of an object that is no array.
    fn no_array(&self) -> PyErr {
        let has = |name: &str| self.array.hasattr(name).unwrap_or(false);
        let what = match () {
            () if self.is_of("jax") && self.kind().ends_with("KeyArray") => {
                "pass its numbers, as jax.random.key_data(a)"
            }
            () if self.is_of("jax") && self.kind().ends_with("Tracer") => {
                "it stands for an array while JAX compiles a function: call the engine outside of that function; for loops, \
                 see tierflow.jax.scan"
            }
            () if has("toarray") => "pass the arrays that it is made of, or a.toarray()",
            () if has("todense") => "pass the arrays that it is made of, or a.todense()",
            () => {
                "pass arrays of NumPy, CuPy, PyTorch or JAX, or whatever has the buffer protocol, DLPack or \
                 __cuda_array_interface__; for numbers, np.asarray(a)"
            }
        };
        PyTypeError::new_err(format!("array {} is a {}: {what}", self.index, self.kind()))
    }

    /// Refuses arrays that need gradients: autograd would not see the copy.
    fn no_gradient(&self) -> PyResult<()> {
        let py = self.array.py();
        let requires = self.array.getattr_opt(intern!(py, "requires_grad"))?;
        match requires {
            Some(requires) if requires.is_truthy()? => Err(self
                .error("it requires a gradient, which a copy does not know of: pass t.detach()")),
            _ => Ok(()),
        }
    }

    /// Refuses tensors whose bytes are not their numbers: PyTorch may defer a conjugation or a negation to the reader.
    fn no_lazy_math(&self) -> PyResult<()> {
        let py = self.array.py();
        for (asks, resolve) in [
            (intern!(py, "is_conj"), "t.resolve_conj()"),
            (intern!(py, "is_neg"), "t.resolve_neg()"),
        ] {
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

    fn is_not_contiguous(&self, is_fortran: bool) -> PyErr {
        let copy = match () {
            () if self.is_of("torch") => "t.contiguous()",
            () if self.is_of("cupy") => "cp.ascontiguousarray(a)",
            () => "np.ascontiguousarray(a)",
        };
        let instead = match (self.access, is_fortran) {
            (_, true) => format!(
                "its first index runs fastest: pass a.T, which has the same bytes in C order, every time, or {copy}"
            ),
            (Use::Read, false) => {
                format!("its bytes do not lie in one run in C order: pass {copy}")
            }
            (Use::Write, false) => format!(
                "its bytes do not lie in one run in C order: restore to b = {copy}, then a[...] = b"
            ),
        };
        self.error(&instead)
    }

    fn is_read_only(&self) -> PyErr {
        if self.is_of("jax") {
            return self.error(
                "arrays of JAX never change: restore to a NumPy array, or make a new one of what comes back, as \
                 jnp.asarray(engine.restore(version))",
            );
        }
        self.error("it is read-only: restore to a copy that may be written, as of a.copy() or bytearray(a)")
    }

    fn holds_objects(&self) -> PyErr {
        self.error("its elements are Python objects, whose bytes are addresses: give it a dtype of numbers, or pickle it")
    }

    fn error(&self, what: &str) -> PyErr {
        let (py, index, kind) = (self.array.py(), self.index, self.kind());
        errors::array(py, format!("array {index}, a {kind}: {what}"))
    }

    /// Its type, in full.
    fn kind(&self) -> String {
        let name = self.array.get_type().fully_qualified_name();
        name.map_or_else(|_| "thing".to_owned(), |name| name.to_string())
    }

    /// Whether the type is of this package or of its compiled part.
    fn is_of(&self, package: &str) -> bool {
        self.kind().starts_with(package)
    }
}
