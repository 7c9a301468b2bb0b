"""State that is copied to an engine beside the work that follows."""

from __future__ import annotations

import copy
import ctypes
import pickle
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from concurrent.futures import Future
from contextlib import nullcontext
from functools import cached_property
from operator import attrgetter, eq
from types import NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass
from torch.utils.dlpack import from_dlpack

from .._errors import ArgumentError, TierflowError

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from .._tierflow import Engine

__all__ = ["Staged", "Staging", "bytes_of"]

_ALIGNMENT = 64

# Tensors in main memory of at most so many bytes, such as an optimizer's steps, go to a GPU by one copy.
_SMALL = 4096

# Slots whose addresses a layout remembers.
_SLOTS = 4

# Seconds that what follows the copies waits for the next update at most.
_PATIENCE = 0.25

# Bytes that a GPU copies to host memory in about half a millisecond.
_PIECE = 32 << 20

# Types of tensors that consist of no others, and of values of a known size.
_SIMPLE = frozenset((torch.Tensor, torch.nn.Parameter))
_ATOMS = frozenset((NoneType, bool, int, float, complex))

# A tensor's key, by which its bytes are told from those of others.
_KEY: tuple[Callable[[torch.Tensor], Any], ...] = (
    torch.Tensor.data_ptr,
    torch.Tensor.size,
    torch.Tensor.stride,
    torch.Tensor.is_conj,
    torch.Tensor.is_neg,
    attrgetter("dtype"),
    attrgetter("device"),
)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor, in C order."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


class Layout:
    """Where the tensors of a state lie in a slot. Tensors of equal keys, such as weights that are tied, have one place.

    A layout follows from the keys alone. Later checkpoints of tensors with these keys use it, as making one takes longer than all else for
    which a checkpoint keeps the program waiting.
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._keys = [list(map(get, tensors)) for get in _KEY]
        self.offsets = [0] * len(tensors)
        self.end = 0
        self._distinct: list[int] = []
        places: dict[tuple[Any, ...], int] = {}
        is_small = [tensor.device.type == "cpu" and tensor.nbytes <= _SMALL for tensor in tensors]
        # Small ones lie side by side, behind the others.
        for index in sorted(range(len(tensors)), key=is_small.__getitem__):
            key = tuple(of_all[index] for of_all in self._keys)
            if key not in places:
                places[key] = self.end
                self.end += tensors[index].nbytes + -tensors[index].nbytes % _ALIGNMENT
                if tensors[index].nbytes:
                    self._distinct.append(index)
            self.offsets[index] = places[key]
        self._small = [index for index in self._distinct if is_small[index]]
        self._large = [index for index in self._distinct if not is_small[index]]
        self._in_slots: dict[int, _InSlot] = {}
        self._in_buffer: tuple[torch.Tensor, range, _InSlot] | None = None

    def is_of(self, tensors: list[torch.Tensor]) -> bool:
        """Whether the tensors have the keys that it was made of."""
        return len(tensors) == len(self.offsets) and all(
            all(map(eq, map(get, tensors), known)) for get, known in zip(_KEY, self._keys, strict=True)
        )

    @cached_property
    def names(self) -> list[torch.Tensor]:
        """Tensors without memory that stand for those of the state."""
        _, sizes, _, _, _, dtypes, _ = self._keys
        names = [torch.empty(size, dtype=dtype, device="meta") for size, dtype in zip(sizes, dtypes, strict=True)]
        for name in names:
            name.__reduce_ex__ = _refuse  # type: ignore[method-assign]
        return names

    @cached_property
    def by_name(self) -> dict[int, int]:
        """The offsets by the names' storages, which the names hold."""
        return {name.untyped_storage()._cdata: at for name, at in zip(self.names, self.offsets, strict=True)}

    def in_slot(self, whole: torch.Tensor, tensors: list[torch.Tensor]) -> _InSlot:
        """The places in a slot that has the bytes `whole`."""
        address = whole.data_ptr()
        if address not in self._in_slots:
            if len(self._in_slots) == _SLOTS:
                self._in_slots.clear()
            memory = _without_owner(address, max(1, self.end), whole.device)
            self._in_slots[address] = _InSlot(self, self._distinct, tensors, memory)
        return self._in_slots[address]

    def in_buffer(self, buffer: torch.Tensor, tensors: list[torch.Tensor]) -> tuple[range, _InSlot]:
        """The last tensors on the buffer's GPU, as many as it has room for: which bytes of a slot they are, and their places in the buffer."""
        if self._in_buffer is None or self._in_buffer[0] is not buffer:
            end = self.offsets[self._small[0]] if self._small else self.end
            first, count = end, 0
            for index in reversed(self._large):
                if tensors[index].device != buffer.device or end - self.offsets[index] > buffer.nbytes:
                    break
                first, count = self.offsets[index], count + 1
            last = self._large[len(self._large) - count :]
            self._in_buffer = buffer, range(first, end), _InSlot(self, last, tensors, buffer, first)
        return self._in_buffer[1:]

    def gathered(self, tensors: list[torch.Tensor]) -> tuple[int, torch.Tensor]:
        """Where the small tensors begin, and their bytes, which are good until the next call."""
        first, bytes, views = self._gathered
        _copy(views, [tensors[index] for index in self._small])
        return first, bytes

    @cached_property
    def _gathered(self) -> tuple[int, torch.Tensor, list[torch.Tensor]]:
        first = self.offsets[self._small[0]]
        bytes = torch.zeros(self.end - first, dtype=torch.uint8)
        _, sizes, _, _, _, dtypes, _ = self._keys
        views = []
        for index in self._small:
            at = self.offsets[index] - first
            count = sizes[index].numel() * dtypes[index].itemsize
            views.append(bytes[at : at + count].view(dtypes[index]).view(sizes[index]))
        return first, bytes, views


class _InSlot:
    """The tensors over a slot's memory to which those of a state are copied, where that is on their device.

    They do not own the memory. They are used with a slot that lies there, and stay when it is gone.
    """

    def __init__(
        self, layout: Layout, distinct: list[int], tensors: list[torch.Tensor], memory: torch.Tensor, first: int = 0
    ) -> None:
        # Tensors of one type of elements and in C order, which one call copies; others; and tensors elsewhere.
        self.dense: dict[torch.dtype, tuple[list[int], list[torch.Tensor]]] = defaultdict(lambda: ([], []))
        self.strided: list[tuple[int, torch.Tensor]] = []
        self.elsewhere: list[int] = []
        self.small: list[int] = []
        for index in distinct:
            tensor, at = tensors[index], layout.offsets[index] - first
            if tensor.device != memory.device:
                is_small = tensor.device.type == "cpu" and tensor.nbytes <= _SMALL
                (self.small if is_small else self.elsewhere).append(index)
                continue
            numbers = memory[at : at + tensor.nbytes].view(tensor.dtype)
            if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
                indices, views = self.dense[tensor.dtype]
                indices.append(index)
                views.append(numbers.as_strided(tensor.size(), tensor.stride()))
            else:
                self.strided.append((index, numbers.view(tensor.size())))

    def copy(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copies those that are on the memory's device, and returns them."""
        read = []
        for indices, views in self.dense.values():
            sources = [tensors[index] for index in indices]
            _copy(views, sources)
            read += sources
        for index, view in self.strided:
            _copy([view], [tensors[index]])
            read.append(tensors[index])
        return read


class Staged:
    """A slot of the engine, with tensors in it, and room for what is known later."""

    def __init__(
        self,
        engine: Engine,
        version: int,
        layout: Layout,
        spare: int,
        footer: int,
        stream: torch.cuda.Stream | None,
    ) -> None:
        self.version = version
        self.size = layout.end + spare
        self._layout = layout
        self._end = layout.end
        self._limit = self.size - footer
        self._slot = engine.produce(version, self.size, "uint8")
        # Where the copies run; the slot is a version behind them.
        self._stream = stream
        # The buffer and the slot's bytes that lie there alone.
        self._buffer: torch.Tensor | None = None
        self._buffered = range(0)
        self._one_empties = threading.Lock()
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(engine.device))

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

    def keep_all(self, tensors: list[torch.Tensor], buffer: torch.Tensor | None) -> list[torch.Tensor]:
        """Copies the tensors to their places, those of the slot's own device by few calls, and those for which `buffer` has room to it.
        Returns tensors over the GPU's memory that is being read."""
        stream, layout = self._stream, self._layout
        # A slot is committed without other users of its bytes: what this makes of it is dropped here.
        places = layout.in_slot(from_dlpack(self._slot), tensors)
        elsewhere = places.elsewhere
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            read = places.copy(tensors)
            if elsewhere and buffer is not None:
                self._buffer = buffer
                self._buffered, in_buffer = layout.in_buffer(buffer, tensors)
                read += in_buffer.copy(tensors)
                elsewhere = [index for index in elsewhere if layout.offsets[index] not in self._buffered]
        if places.small:
            self.put(*layout.gathered(tensors))
        read += [self._keep(layout.offsets[index], tensors[index]) for index in elsewhere]
        return [] if stream is None else [tensor for tensor in read if tensor.is_cuda]

    def keep_buffered(self) -> None:
        """Copies to their places what `keep_all` copied to the buffer, a piece at a time: a program that synchronizes the device meanwhile
        waits for a piece at most."""
        with self._one_empties:
            if self._stream is not None and self._buffer is not None:
                with torch.cuda.stream(self._stream):
                    for at in range(0, len(self._buffered), _PIECE):
                        end = min(at + _PIECE, len(self._buffered))
                        self._slot.write(self._buffer[at:end], self._buffered.start + at)
                        self._stream.synchronize()
            self._buffer = None

    def _keep(self, at: int, tensor: torch.Tensor) -> torch.Tensor:
        bytes = bytes_of(tensor)
        if self._stream is None or not tensor.is_cuda:
            self.put(at, bytes.cpu() if self._stream is None else bytes)
        else:
            self._slot.write(bytes, at, stream=self._stream)
        return bytes

    def place(self, name: torch.Tensor) -> int | None:
        """Where what stands for a tensor, or for a run of it, is to be found."""
        at = self._layout.by_name.get(name.untyped_storage()._cdata)
        if at is None or not name.is_contiguous():
            if name.is_meta:
                raise ArgumentError(
                    "a planner asks for a part of a tensor that does not lie in one run: save without staging"
                )
            return None
        return int(at + name.storage_offset() * name.element_size())

    def commit(self) -> None:
        self.keep_buffered()
        self._slot.commit(self._stream)


class _Guard:
    """Keeps the memory of tensors from being used again while a stream reads it.

    Their storages are held. `resize_` gives up memory of a storage that is held: the allocator then waits for the streams that were noted
    for that memory. A note takes longer than all else that a checkpoint does per tensor, and lasts as long as the memory is allocated. So a
    checkpoint notes nothing if all of its storages and their addresses are those of the one before. Memory that was given up since then, and
    that its storage got again at the same address, has no note: a copy of it counts only if it is still there afterwards.
    """

    def __init__(self) -> None:
        self._noted: list[tuple[int, int, int]] = []
        # No other storage gets the number of one that is known here.
        self._known: list[StorageWeakRef] = []
        self._notes_all = False

    def hold(self, tensors: list[torch.Tensor], stream: torch.cuda.Stream) -> Callable[[], bool]:
        """Call the result once the stream's work is over. It returns false if the copies may have other bytes."""
        storages = [tensor.untyped_storage() for tensor in tensors]
        marks = _marks(storages)
        if self._notes_all or marks != self._noted:
            for tensor in tensors:
                tensor.record_stream(stream)
            self._noted, self._known = marks, [StorageWeakRef(storage) for storage in storages]
            # It holds the storages until then.
            return lambda: storages is not None

        def is_there() -> bool:
            self._notes_all = _marks(storages) != marks
            return not self._notes_all

        return is_there


def _marks(storages: list[torch.UntypedStorage]) -> list[tuple[int, int, int]]:
    return [(storage._cdata, storage.data_ptr(), storage.nbytes()) for storage in storages]


class _Copies(Future[dict[str, Any]]):
    """The state, once somebody asked for it and has waited for the copies. DCP's thread does, so it takes no other one."""

    def __init__(self, wait: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self._wait = wait
        # A callback that `set_result` calls may ask for the result.
        self._one_waits = threading.RLock()

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        with self._one_waits:
            if not self.done():
                try:
                    self.set_result(self._wait())
                except BaseException as error:
                    self.set_exception(error)
        return super().result(timeout)


class Staging:
    """Takes state in, one checkpoint at a time."""

    def __init__(self, engine: Engine, spare: int | None, buffer: int, *, footer: int) -> None:
        self._engine = engine
        self._spare = spare
        # The one before, which may have bytes in the buffer.
        self._last: Callable[[], Staged | None] = lambda: None
        self._buffer_bytes = buffer
        self._buffer: torch.Tensor | None = None
        self._footer = footer
        self._stream: torch.cuda.Stream | None = None
        self._hook: RemovableHandle | None = None
        self._copied: torch.cuda.Event | None = None
        self._layout = Layout([])
        self._guard = _Guard()
        self._updated = threading.Event()
        self._updated.set()
        self.current: Staged | None = None
        # The error that the save has to raise, on all ranks.
        self.failure: TierflowError | None = None

    def begin(self, version: int, state: dict[str, Any]) -> Future[dict[str, Any]]:
        """Starts the copies, and returns what stands for the state, once it may be changed."""
        # An earlier one that came to nothing gives its room back.
        self.current = self.failure = None
        tensors: list[torch.Tensor] = []
        others: list[Any] = []
        _mapped(state, lambda leaf: tensors.extend(_plain(leaf)), others.append)
        if not self._layout.is_of(tensors):
            self._layout = Layout(tensors)
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        spare = self._spare
        if spare is None:
            pickled = sum(len(pickle.dumps(other)) for other in others if type(other) not in _ATOMS)
            spare = (1 << 20) + 4096 * len(others) + 2 * pickled + 2048 * ranks * (len(tensors) + len(others))
        if self._stream is None and self._engine.device != "host":
            self._stream = torch.cuda.Stream(self._engine.device)
        stream = self._stream
        if (last := self._last()) is not None:
            last.keep_buffered()
            last = None
        staged = Staged(self._engine, version, self._layout, spare, self._footer, stream)
        self._last = weakref.ref(staged)
        if stream is not None and self._buffer_bytes and self._buffer is None:
            with torch.cuda.stream(stream):
                # Gaps between tensors are stored, too.
                self._buffer = torch.zeros(self._buffer_bytes, dtype=torch.uint8, device=stream.device)
        read = staged.keep_all(tensors, self._buffer)
        # The GPU copies meanwhile.
        is_there = None if stream is None else self._guard.hold(read, stream)
        names = iter(self._layout.names)
        result: dict[str, Any] = _mapped(state, lambda leaf: _named(leaf, names), copy.deepcopy)
        self.current = staged
        if stream is None or is_there is None:
            return self.over(result)
        # Copies of what DCP pickles as a whole are the program's stream's.
        stream.wait_stream(torch.cuda.current_stream(self._engine.device))
        copied = stream.record_event()
        self._before_an_update(copied)

        def wait() -> dict[str, Any]:
            copied.synchronize()
            if not is_there():
                self.failure = ArgumentError(
                    "memory of a tensor was given up by resize_ while it was copied, and the copy may have other bytes: wait for "
                    "staging_completion before that"
                )
            return result

        return _Copies(wait)

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
        self.current = self._buffer = None
        # It has tensors over the buffer.
        self._layout = Layout([])
        self._updated.set()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def _copy(to: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    with torch.no_grad():
        torch._foreach_copy_(to, tensors)


def _without_owner(address: int, size: int, device: torch.device) -> torch.Tensor:
    """The bytes at an address. The tensor does not keep them there."""
    if device.type == "cuda":
        interface = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
        return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface), device=device)
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


def _refuse(*_: Any) -> Any:
    raise ArgumentError(
        "a planner pickles a tensor, and not its bytes alone, as with flatten_state_dict=False: save without staging"
    )


def _mapped(value: Any, of_tensor: Callable[[Any], Any], of_other: Callable[[Any], Any]) -> Any:
    """A state with all leaves replaced. Its branches are those in which DCP looks for tensors. What it pickles as a whole, such as a tuple,
    is a leaf, and its tensors keep their values."""
    kind = type(value)
    if kind in _ATOMS:
        return of_other(value)
    # Nearly all values are of these types, and of those that follow it takes longer to tell.
    if kind in _SIMPLE:
        return of_tensor(value)
    if kind is dict:
        return {key: _mapped(part, of_tensor, of_other) for key, part in value.items()}
    if kind is list:
        return [_mapped(part, of_tensor, of_other) for part in value]
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    if isinstance(value, MutableMapping):
        mapped = copy.copy(value)
        for key, part in value.items():
            mapped[key] = _mapped(part, of_tensor, of_other)
        return mapped
    return of_other(value)


def _plain(leaf: Any) -> Iterable[torch.Tensor]:
    """The tensors with memory of which a leaf consists, such as the local one of a distributed tensor, which has a mesh beside it."""
    if type(leaf) in _SIMPLE or not is_traceable_wrapper_subclass(leaf):
        return (leaf,) if isinstance(leaf, torch.Tensor) else ()
    names, _ = leaf.__tensor_flatten__()
    return (tensor for name in names for tensor in _plain(getattr(leaf, name)))


def _named(leaf: Any, names: Iterator[torch.Tensor]) -> Any:
    if type(leaf) in _SIMPLE or not is_traceable_wrapper_subclass(leaf):
        return next(names) if isinstance(leaf, torch.Tensor) else leaf
    return transform_subclass(leaf, lambda _, inner: _named(inner, names))
