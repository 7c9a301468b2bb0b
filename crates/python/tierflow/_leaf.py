"""Conversions of every framework's arrays for a checkpoint and back."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from ._errors import ArgumentError, ArrayError
from ._tree import dtype_of

__all__ = ["Leaf", "Stored", "stored"]


class Stored(NamedTuple):
    """The element type and the shape of a region, or of some of its rows. Without a type, the region is bytes."""

    dtype: str | None
    shape: tuple[int, ...]


def stored(array: Any, framework: str, on_host: bool) -> Any:
    """Returns the array as an engine takes it in: in C order, in the machine's byte order, without a gradient, and in memory that the engine
    reaches. Copies the array only if it differs from that."""
    if framework == "torch":
        if hasattr(array, "to_local"):
            raise ArgumentError("a DTensor is a part of a tensor: save it by dcp.save with tierflow's StorageWriter")
        tensor = array.detach().resolve_conj().resolve_neg().contiguous()
        return tensor.cpu() if on_host else tensor
    if framework == "jax":
        if len(array.sharding.device_set) == 1 and not (on_host and next(iter(array.devices())).platform != "cpu"):
            return array
        if not array.is_fully_addressable:
            raise ArgumentError("an array of JAX has parts in other processes: save its `addressable_shards` here")
        framework, array = "numpy", import_module("numpy").asarray(array)
    if framework == "cupy" and on_host:
        array = array.get()
    if hasattr(array, "_mask"):
        raise ArgumentError("an array is masked, and its mask is one of its own: save a.data and np.ma.getmaskarray(a)")
    numpy = import_module("numpy" if framework != "cupy" or on_host else "cupy")
    return numpy.asarray(array, order="C", dtype=array.dtype.newbyteorder("="))


def _module(framework: str) -> Any:
    try:
        return import_module(framework)
    except ModuleNotFoundError as missing:
        text = f"the tree has an array of {framework}, which is not installed: pass plain=True for arrays of NumPy"
        raise ArgumentError(text) from missing


def _empty(region: Stored, is_tensor: bool) -> Any:
    if is_tensor and region.dtype is not None:
        torch = _module("torch")
        return torch.empty(region.shape, dtype=getattr(torch, region.dtype))
    numpy = import_module("numpy")
    name = region.dtype or "uint8"
    try:
        dtype = numpy.dtype(name)
    except TypeError:
        dtype = getattr(_module("ml_dtypes"), name)
    return numpy.empty(region.shape, dtype)


@dataclass
class Leaf:
    """An array that is being loaded. The reader fills `buffer` first; then `value` returns the leaf of the tree.

    `target` is the caller's array to fill, or None.
    """

    region: Stored
    framework: str
    target: Any
    buffer: Any = None

    def __post_init__(self) -> None:
        is_tensor = self.framework == "torch"
        if self.target is not None:
            found = Stored(dtype_of(self.target), tuple(self.target.shape))
            if found != self.region:
                raise ArgumentError(
                    f"the array is {_shown(self.region)}, and that of into= is {_shown(found)}: pass one of that kind"
                )
            if self.framework == "numpy" and not self.target.flags.writeable:
                raise ArrayError("an array of into= is read-only: pass a copy of it, as a.copy()")
            direct = self.target.detach() if is_tensor else self.target
            if self._takes_bytes(direct):
                self.buffer = direct
                return
        self.buffer = _empty(self.region, is_tensor)

    def _takes_bytes(self, array: Any) -> bool:
        """Returns true if bytes can be read directly into the caller's array, in main memory."""
        if self.framework == "torch":
            return bool(
                array.device.type == "cpu" and array.is_contiguous() and not array.is_conj() and not array.is_neg()
            )
        if self.framework == "numpy":
            return bool(array.flags.c_contiguous and array.dtype.isnative)
        return False

    @property
    def memory(self) -> tuple[int, Stored]:
        """The address and the type of the buffer, which are equal for arrays that are one."""
        if self.framework == "torch":
            return self.buffer.data_ptr(), self.region
        return self.buffer.__array_interface__["data"][0], self.region

    def value(self) -> Any:
        """Returns the leaf, once the buffer is filled: the caller's array, if there is one."""
        buffer, target = self.buffer, self.target
        match self.framework:
            case "scalar":
                return buffer[()]
            case "jax":
                # JAX's arrays cannot be changed: the new array gets the sharding of the caller's.
                jax = _module("jax")
                made = jax.numpy.asarray(buffer) if target is None else jax.device_put(buffer, target.sharding)
                if made.dtype != buffer.dtype:
                    text = f"the array is {_shown(self.region)}, and JAX makes it {made.dtype}: set jax_enable_x64, or pass plain=True"
                    raise ArgumentError(text)
                return made
            case "cupy" if target is None:
                return _module("cupy").asarray(buffer)
            case "cupy":
                target.set(buffer)
            case "torch" if target is not None:
                if target.data_ptr() != buffer.data_ptr() or not target.is_contiguous():
                    target.detach().copy_(buffer)
            case _ if target is not None and target is not buffer:
                target[...] = buffer
        return buffer if target is None else target


def _shown(region: Stored) -> str:
    return f"{region.dtype or 'bytes'} of shape {region.shape}"
