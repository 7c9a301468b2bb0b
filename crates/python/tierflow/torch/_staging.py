"""State that is copied to an engine beside the work that follows."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass
from torch.utils.dlpack import from_dlpack

from .._errors import ArgumentError

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from .._tierflow import Engine

__all__ = ["Staged", "Staging", "bytes_of"]

_ALIGNMENT = 64

# A key tells a tensor's bytes from those of others: device, address, type of elements, size, strides, and whether its values are the
# conjugate or the negative of those in memory.
Key = tuple[torch.device, int, torch.dtype, torch.Size, tuple[int, ...], tuple[bool, bool]]

# The kind of device in DLPack whose memory kernels of a stream write to.
_CUDA = 2

# Seconds that what follows the copies waits for the next update at most.
_PATIENCE = 0.25


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor, in C order."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


class Names:
    """Tensors without memory that stand for those at places in a slot. A later checkpoint of the same tensors uses them again: to make
    them takes longer than all else for which a checkpoint keeps the program waiting."""

    def __init__(self, tensors: dict[Key, tuple[torch.Tensor, int]]) -> None:
        self.keys = list(tensors)
        self.by_key: dict[Key, torch.Tensor] = {}
        # By the address of its storage, each name's place. The storage is held, so that no other one gets its address.
        self.places: dict[int, tuple[torch.UntypedStorage, int]] = {}
        for key, (tensor, at) in tensors.items():
            name = torch.empty(tensor.size(), dtype=tensor.dtype, device="meta")
            storage = name.untyped_storage()
            self.by_key[key] = name
            self.places[storage._cdata] = (storage, at)


class Staged:
    """A slot of the engine, with tensors in it, and room for what is known later."""

    def __init__(self, engine: Engine, version: int, tensors: int, size: int, footer: int) -> None:
        self.version = version
        self.size = size
        self._end = tensors
        self._limit = size - footer
        self.names = Names({})
        self._slot = engine.produce(version, size, "uint8")
        self._on_gpu = self._slot.__dlpack_device__()[0] == _CUDA
        # Where the copies run; the slot is a version behind them.
        self.stream: torch.cuda.Stream | None = None
        if engine.device != "host":
            self.stream = torch.cuda.Stream(engine.device)
            self.stream.wait_stream(torch.cuda.current_stream(engine.device))

    def put(self, at: int, bytes: torch.Tensor) -> None:
        if bytes.nbytes:
            self._slot.write(bytes, at)

    def add(self, bytes: torch.Tensor) -> int:
        """Behind the tensors."""
        at = self._end + -self._end % _ALIGNMENT
        if at + bytes.nbytes > self._limit:
            raise ArgumentError(
                f"what was staged has no room left for {bytes.nbytes} bytes more: make the writer with a larger spare="
            )
        self.put(at, bytes)
        self._end = at + bytes.nbytes
        return at

    def keep_all(self, tensors: Iterable[tuple[int, torch.Tensor]]) -> None:
        """Copies tensors to their places: those of the slot's own GPU by a few kernels, as a call for each would keep the program
        waiting for longer than the copies take."""
        stream = self.stream
        together: dict[torch.dtype, list[tuple[int, torch.Tensor]]] = {}
        for at, tensor in tensors:
            if stream is not None and self._on_gpu and tensor.device == stream.device and tensor.is_contiguous():
                together.setdefault(tensor.dtype, []).append((at, tensor))
            else:
                self.keep(at, tensor)
        if not together or stream is None:
            return
        with torch.cuda.stream(stream):
            whole = from_dlpack(self._slot)
            for dtype, of_one in together.items():
                numbers = whole[: self.size // dtype.itemsize * dtype.itemsize].view(dtype)
                sources = [tensor for _, tensor in of_one]
                places = [numbers.as_strided(one.size(), one.stride(), at // dtype.itemsize) for at, one in of_one]
                torch._foreach_copy_(places, sources)
                for source in sources:
                    source.record_stream(stream)

    def keep(self, at: int, tensor: torch.Tensor) -> None:
        """Copies a tensor to its place."""
        bytes = bytes_of(tensor)
        if self.stream is None or not tensor.is_cuda:
            self.put(at, bytes.cpu() if self.stream is None else bytes)
        elif bytes.nbytes:
            self._slot.write(bytes, at, stream=self.stream)
            bytes.record_stream(self.stream)

    def place(self, name: torch.Tensor) -> int | None:
        """Where what stands for a tensor, or for a run of it, is to be found."""
        storage, at = self.names.places.get(name.untyped_storage()._cdata, (None, 0))
        if storage is None or not name.is_contiguous():
            if name.is_meta:
                raise ArgumentError(
                    "a planner asks for a part of a tensor that does not lie in one run: save without staging"
                )
            return None
        return int(at + name.storage_offset() * name.element_size())

    def commit(self) -> None:
        self._slot.commit(self.stream)


class Staging:
    """Takes state in, one checkpoint at a time."""

    def __init__(self, engine: Engine, spare: int | None, *, footer: int) -> None:
        self._engine = engine
        self._spare = spare
        self._footer = footer
        self._thread: ThreadPoolExecutor | None = None
        self._hook: RemovableHandle | None = None
        self._copied: torch.cuda.Event | None = None
        self._names = Names({})
        self._updated = threading.Event()
        self._updated.set()
        self.current: Staged | None = None

    def begin(self, version: int, state: dict[str, Any]) -> Future[dict[str, Any]]:
        """Starts the copies, and returns what stands for the state, once it may be changed."""
        # An earlier one that came to nothing gives its room back.
        self.current = None
        leaves, structure = pytree.tree_flatten(state)
        tensors: dict[Key, tuple[torch.Tensor, int]] = {}
        end, others = 0, 0
        for leaf in leaves:
            for tensor in _plain(leaf):
                key = _key(tensor)
                if key not in tensors:
                    tensors[key] = (tensor, end)
                    end += tensor.nbytes + -tensor.nbytes % _ALIGNMENT
            if not isinstance(leaf, torch.Tensor):
                others += 4096 + 2 * len(pickle.dumps(leaf))
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        spare = self._spare
        if spare is None:
            spare = (1 << 20) + others + 2048 * ranks * len(leaves)
        staged = Staged(self._engine, version, end, end + spare, self._footer)
        staged.keep_all((at, tensor.detach()) for tensor, at in tensors.values())
        copied = None if staged.stream is None else staged.stream.record_event()
        # The GPU copies meanwhile.
        if self._names.keys != list(tensors):
            self._names = Names(tensors)
        staged.names = self._names
        stand_ins = [_named(leaf, self._names.by_key) for leaf in leaves]
        self.current = staged
        result = pytree.tree_unflatten(stand_ins, structure)
        if copied is None:
            return self.over(result)
        self._before_an_update(copied)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tierflow-staging")
        return self._thread.submit(_when, copied, result)

    def _before_an_update(self, copied: torch.cuda.Event) -> None:
        """The work of the next step of an optimizer comes after the copies."""
        self._copied = copied
        self._updated.clear()
        if self._hook is None:
            self._hook = register_optimizer_step_pre_hook(self._updates)

    def _updates(self, *_: Any) -> None:
        copied, self._copied = self._copied, None
        if copied is not None:
            torch.cuda.current_stream(self._engine.device).wait_event(copied)
        self._updated.set()

    def settle(self) -> None:
        """Waits until the next update, by which time the program has launched the work of its step: until then, another thread that
        computes in Python would keep it from that, a switch interval of the interpreter for each kernel."""
        self._updated.wait(_PATIENCE)

    def over(self, state: dict[str, Any]) -> Future[dict[str, Any]]:
        done: Future[dict[str, Any]] = Future()
        done.set_result(state)
        return done

    def take(self) -> Staged | None:
        staged, self.current = self.current, None
        return staged

    def close(self) -> None:
        self.current = None
        self._updated.set()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None


def _when(copied: torch.cuda.Event, state: dict[str, Any]) -> dict[str, Any]:
    copied.synchronize()
    return state


def _plain(leaf: Any) -> Iterator[torch.Tensor]:
    """The tensors with memory of which a leaf consists, such as the local one of a distributed tensor."""
    if is_traceable_wrapper_subclass(leaf):
        names, _ = leaf.__tensor_flatten__()
        for name in names:
            yield from _plain(getattr(leaf, name))
    elif isinstance(leaf, torch.Tensor):
        yield leaf


def _key(tensor: torch.Tensor) -> Key:
    """The same for tensors that have the same bytes, such as weights that are tied."""
    first = tensor.data_ptr() if tensor.nbytes else id(tensor)
    lazy = (tensor.is_conj(), tensor.is_neg())
    return (tensor.device, first, tensor.dtype, tensor.size(), tensor.stride(), lazy)


def _named(leaf: Any, names: dict[Key, torch.Tensor]) -> Any:
    if is_traceable_wrapper_subclass(leaf):
        return transform_subclass(leaf, lambda _, inner: _named(inner, names))
    if isinstance(leaf, torch.Tensor):
        return names[_key(leaf)]
    return copy.deepcopy(leaf)
