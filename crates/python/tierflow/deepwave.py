"""The wavefield history of Deepwave's propagators, in an engine.

    engine = tierflow.Engine(device="cuda", device_cache="1GiB", host_cache="32GiB", scratch="/nvme", after_restore="discard")
    with tierflow.deepwave.history(engine, chunk="256MiB"):
        out = deepwave.scalar(v, dx, dt, ...)  # an unchanged call, of any propagator
    loss(out).backward()

Within the block, calls that would keep the history on the device (`storage_mode="device"`, compressed or not) keep a few chunks of it
there, and the other chunks in the engine. A chunk has consecutive steps, and is a version of the engine. Nothing is computed twice, and
results and gradients are those of the device mode, bit for bit. Other storage modes work as without the block.

Deepwave's compiled functions find step `i` of the history at `store + i * bytes_of_a_step`. The module runs the time loop chunk by chunk,
and passes a `store` that lies before the chunk by the distance of the chunk's first step from step 0. If the engine's fastest memory is on
the model's device, the functions write and read the engine's memory directly; else the module has two buffers beside the engine.

The module works with Deepwave 0.1.0. Importing it wraps Deepwave's `StorageManager.allocate` and `run_backend_loop`.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import deepwave
import torch
from deepwave import _engine as _deepwave_engine
from deepwave import _storage as _deepwave_storage
from torch.utils.dlpack import from_dlpack

from ._errors import ClosedError, UnknownVersionError
from ._tierflow import Engine, ProduceSlot, number_of_bytes

__all__ = ["history"]

_VERSIONS = ("0.1.0",)
_ALIGNMENT = 256  # bytes: each store of a chunk begins at a multiple
_POINTER = (1 << 64) - 1
_NO_FILES = (ctypes.c_char_p * 0)()
_HAS_GONE = (
    "this history was used by an earlier backward, and is gone: for more than one, use tierflow.deepwave.history(engine, again=True) "
    "with an engine that keeps what was restored (after_restore='keep')"
)


class _ThreadState(threading.local):
    """The histories that a thread has entered, and the time loop that the thread runs."""

    def __init__(self) -> None:
        self.entered: list[history] = []
        self.loop: _TimeLoop | None = None


_thread = _ThreadState()
_entered_anywhere = 0
_lock = threading.Lock()


class history:
    """A context in which Deepwave's histories go to `engine`, until their backward has used them.

    A chunk has at most `chunk` bytes and at most a third of the fastest tier, but at least one step. With `again`, a backward keeps the
    chunks that it used, for `backward(retain_graph=True)`. With `beside`, two buffers beside the engine are used even if the engine's
    fastest memory is on the device. The context belongs to the thread that enters it, and may be entered again.
    """

    def __init__(
        self, engine: Engine, *, chunk: int | str = "256MiB", again: bool = False, beside: bool = False
    ) -> None:
        self.engine, self.again, self.beside = engine, again, beside
        self.chunk = min(number_of_bytes(chunk), max(1, engine.metrics()["tiers"][0]["capacity"] // 3))
        self.helper = ThreadPoolExecutor(1, thread_name_prefix="tierflow-deepwave")
        self._live: list[weakref.ref[_ChunkedStorage]] = []
        self._hinted: list[int] = []

    def __enter__(self) -> history:
        global _entered_anywhere
        _thread.entered.append(self)
        with _lock:
            _entered_anywhere += 1
        return self

    def __exit__(self, *_: object) -> None:
        global _entered_anywhere
        _thread.entered.remove(self)
        with _lock:
            _entered_anywhere -= 1

    def add(self, storage: _ChunkedStorage) -> None:
        """Hints the chunks of `storage` from now on, as long as `storage` lives. A storage adds itself."""
        self._live.append(weakref.ref(storage))

    def hint(self) -> None:
        """Hints all chunks in the order of their reads: the newest history comes first, and each history begins with its last chunk."""
        self._live = [storage for storage in self._live if storage() is not None]
        live = [storage for reference in reversed(self._live) if (storage := reference()) is not None]
        order = [version for storage in live for version in storage.to_read()]
        self.engine.forget_hints(self._hinted)
        self.engine.hint(order)
        self._hinted = order


@dataclass(frozen=True)
class _Layout:
    """The cut of a history into chunks. A chunk has all stores of a manager, one after the other."""

    steps: int  # number of stored steps
    chunk_steps: int  # steps of each chunk but the last
    step_bytes: int  # bytes of a step in one store, for all shots
    stores: int
    first: int  # version of the first chunk

    @property
    def chunks(self) -> int:
        return -(-self.steps // self.chunk_steps)

    def store_bytes(self, chunk: int) -> int:
        length = min(self.chunk_steps, self.steps - chunk * self.chunk_steps) * self.step_bytes
        return length + -length % _ALIGNMENT


def _cut(manager: _ChunkedStorage) -> _Layout:
    shot = manager.shot_bytes_comp if manager.storage_compression else manager.shot_bytes_uncomp
    step_bytes, steps, stores = shot * manager.n_shots, manager.nt // manager.step_ratio, sum(manager.kept)
    chunk_steps = min(max(1, manager.owner.chunk // (stores * step_bytes)), max(1, steps))
    if 1 < chunk_steps < steps and chunk_steps * manager.step_ratio % 2:
        chunk_steps -= 1  # after an even number of time steps, Deepwave's two buffers are in their places
    first = manager.owner.engine.reserve(-(-steps // chunk_steps)).start
    return _Layout(steps, chunk_steps, step_bytes, stores, first)


def _discard(engine: Engine, held: set[int], versions: Iterable[int]) -> None:
    for version in versions:
        held.discard(version)
        with suppress(UnknownVersionError, ClosedError):
            engine.discard(version)


def _discard_all(engine: Engine, held: set[int]) -> None:
    _discard(engine, held, sorted(held))


class _InPlace:
    """Chunks in the engine's own memory, on the model's device."""

    def __init__(self, engine: Engine, device: torch.device) -> None:
        self.engine, self.device = engine, device
        self.slot: Any = None
        self.memory: torch.Tensor | None = None

    def open_to_write(self, version: int, size: int) -> int:
        self.slot = self.engine.produce(version, size, "uint8")
        return self._address().zero_().data_ptr()

    def written(self, version: int) -> None:
        self._take().commit(self._stream())

    def open_to_read(self, version: int, size: int) -> int:
        self.slot = self.engine.consume(version)
        return self._address().data_ptr()

    def read_ahead(self, version: int, size: int) -> None:
        """Does nothing: the engine prefetches by its hints."""

    def used(self) -> None:
        self._take().finish(self._stream())

    def finish(self) -> None:
        """Does nothing: the engine orders its copies behind the stream."""

    def give_up(self) -> None:
        if self.slot is not None:
            slot = self._take()
            (slot.give_up if isinstance(slot, ProduceSlot) else slot.give_back)()

    def _stream(self) -> Any:
        return torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None

    def _address(self) -> torch.Tensor:
        self.memory = from_dlpack(self.slot)
        return self.memory

    def _take(self) -> Any:
        slot, self.slot, self.memory = self.slot, None, None
        return slot


class _Staged:
    """Chunks in two buffers beside the engine: the model computes with one while the other is copied on a separate stream."""

    def __init__(self, owner: history, device: torch.device) -> None:
        self.engine, self.helper, self.device = owner.engine, owner.helper, device
        self.side = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.memory: torch.Tensor | None = None
        self.storing: Future[None] | None = None
        self.ahead: tuple[int, Future[torch.Tensor]] | None = None

    def open_to_write(self, version: int, size: int) -> int:
        self.memory = torch.zeros(size, dtype=torch.uint8, device=self.device)
        return self.memory.data_ptr()

    def written(self, version: int) -> None:
        self.finish()
        memory, self.memory = self.memory, None
        self.storing = self.helper.submit(self._store, version, memory, self._mark())

    def open_to_read(self, version: int, size: int) -> int:
        if self.ahead is None or self.ahead[0] != version:
            self.read_ahead(version, size)
        assert self.ahead is not None
        self.memory, self.ahead = self.ahead[1].result(), None
        return self.memory.data_ptr()

    def read_ahead(self, version: int, size: int) -> None:
        room = torch.empty(size, dtype=torch.uint8, device=self.device)
        self.ahead = version, self.helper.submit(self._load, version, room, self._mark())

    def used(self) -> None:
        # PyTorch reuses the memory only for later work on the same stream.
        self.memory = None

    def finish(self) -> None:
        storing, self.storing = self.storing, None
        if storing is not None:
            storing.result()

    def give_up(self) -> None:
        running = [self.storing, self.ahead and self.ahead[1]]
        self.memory = self.storing = self.ahead = None
        for future in running:
            if future is not None:
                future.exception()

    def _mark(self) -> Any:
        return None if self.side is None else torch.cuda.current_stream(self.device).record_event()

    def _store(self, version: int, memory: Any, computed: Any) -> None:
        with self.engine.produce(version, memory.nbytes, "uint8") as slot:
            self._copy(slot.write, slot.commit, memory, computed)

    def _load(self, version: int, room: torch.Tensor, free: Any) -> torch.Tensor:
        with self.engine.consume(version) as slot:
            self._copy(slot.read, slot.finish, room, free)
        return room

    def _copy(self, copy: Callable[..., None], end: Callable[..., None], memory: torch.Tensor, after: Any) -> None:
        if self.side is None:
            copy(memory)
            end()
            return
        self.side.wait_event(after)
        copy(memory, stream=self.side)
        copied = self.side.record_event()
        end(self.side)
        copied.synchronize()


class _ChunkedStorage(_deepwave_storage.StorageManager):
    """A manager of Deepwave whose history is in an engine. `_allocate` changes a plain manager to this class."""

    owner: history

    def begin(self, owner: history) -> None:
        self.owner = owner
        self.kept: list[bool] = []  # a flag for each store: true if it is wanted
        self.buffers: list[torch.Tensor] = []  # two for each compressed store
        self.held: set[int] = set()  # versions to discard when the manager is deleted
        self.layout: _Layout | None = None
        self.is_reading = False
        self.chunk: int | None = None  # the open chunk
        self.address = 0  # address of the open chunk
        kind, _, number = owner.engine.device.partition(":")
        device = (kind, int(number)) if number else ("cpu", 0)
        has_cache = kind == "host" or owner.engine.metrics()["tiers"][0]["name"] == "device"
        is_same = device == (self.device.type, self.device.index or 0)
        in_place = is_same and has_cache and not owner.beside
        self.place = _InPlace(owner.engine, self.device) if in_place else _Staged(owner, self.device)
        weakref.finalize(self, _discard_all, owner.engine, self.held).atexit = False
        owner.add(self)

    def keep(self, is_wanted: bool) -> None:
        self.kept.append(is_wanted)
        if is_wanted and self.storage_compression:
            shape = (self.n_shots, *self.shot_shape)
            self.buffers += [torch.zeros(shape, device=self.device, dtype=self.dtype) for _ in range(2)]

    def cut(self) -> _Layout:
        self.layout = self.layout or _cut(self)
        return self.layout

    def to_read(self) -> list[int]:
        if self.layout is None:
            return []
        versions = range(self.layout.first, self.layout.first + self.layout.chunks)
        return [version for version in reversed(versions) if not self.is_reading or version in self.held]

    @property
    def storage_ptrs(self) -> list[Any]:
        """The arguments of a compiled function, five for each store, for the next part of the time loop."""
        if not any(self.kept):
            return [0, 0, 0, 0, _NO_FILES] * len(self.kept)
        loop = _thread.loop
        if loop is None:
            raise RuntimeError(
                "Deepwave asks for a history outside its time loop, which tierflow.deepwave does not know of: call without history()"
            )
        layout, chunk = self.cut(), loop.chunk_of(self)
        if chunk != self.chunk:
            self.close(loop.is_forward)
            self.open(chunk, loop.is_forward)
        loop.touched[id(self)] = self
        at = self.address - chunk * layout.chunk_steps * layout.step_bytes
        pointers: list[Any] = []
        buffers = iter(buffer.data_ptr() for buffer in self.buffers)
        for is_wanted in self.kept:
            if not is_wanted:
                pointers += [0, 0, 0, 0, _NO_FILES]
                continue
            place = at & _POINTER
            pointers += [next(buffers), next(buffers), place] if self.storage_compression else [place, 0, 0]
            pointers += [0, _NO_FILES]
            at += layout.store_bytes(chunk)
        return pointers

    @storage_ptrs.setter
    def storage_ptrs(self, value: list[Any]) -> None:
        self.__dict__["storage_ptrs"] = value

    def open(self, chunk: int, is_forward: bool) -> None:
        layout = self.cut()
        version, size = layout.first + chunk, layout.stores * layout.store_bytes(chunk)
        if is_forward:
            if self.chunk is None:
                self.owner.hint()
            self.address = self.place.open_to_write(version, size)
        else:
            if not self.is_reading:
                self.is_reading = True
                self.owner.hint()
                self.owner.engine.prefetch_start()
            if version not in self.held:
                raise RuntimeError(_HAS_GONE)
            try:
                self.address = self.place.open_to_read(version, size)
            except UnknownVersionError as gone:
                raise RuntimeError(_HAS_GONE) from gone
            if chunk and version - 1 in self.held:
                self.place.read_ahead(version - 1, layout.stores * layout.store_bytes(chunk - 1))
        self.chunk = chunk

    def close(self, is_forward: bool, is_last: bool = False) -> None:
        """Closes the open chunk, which the time loop has written, or used. `is_last` says that the time loop is over."""
        if self.chunk is not None:
            version = self.cut().first + self.chunk
            if is_forward:
                self.held.add(version)
                self.place.written(version)
            else:
                self.place.used()
                if not self.owner.again:
                    _discard(self.owner.engine, self.held, [version])
        if is_last:
            self.chunk, self.is_reading = None, False
            self.place.finish()

    def give_up(self) -> None:
        """Gives up the open chunk: an exception ended the time loop."""
        self.chunk, self.is_reading = None, False
        self.place.give_up()


class _BeyondChunk(Exception):
    """The exception for a part of the time loop that reaches beyond a chunk. Raised before anything is computed."""


class _TimeLoop:
    """A pass over the time steps in parts. No part reaches beyond a chunk of any manager."""

    def __init__(self, is_forward: bool) -> None:
        self.is_forward = is_forward
        self.lengths: set[int] = set()  # time steps of a chunk, of each manager so far
        self.touched: dict[int, _ChunkedStorage] = {}
        self.part = range(0)

    def chunk_of(self, manager: _ChunkedStorage) -> int:
        length = manager.cut().chunk_steps * manager.step_ratio
        if length not in self.lengths:
            self.lengths.add(length)
            raise _BeyondChunk
        return self.part.start // length

    def parts(self, span: range) -> list[range]:
        ends = {span.start, span.stop}
        for length in self.lengths:
            ends.update(range(-(-span.start // length) * length, span.stop, length))
        ordered = sorted(ends)
        parts = [range(a, b) for a, b in pairwise(ordered)]
        return parts if self.is_forward else parts[::-1]


def _sums(call: Any, grad_scratch: Any, callback: Any) -> list[torch.Tensor]:
    """Returns the tensors to set to zero between the parts of a backward pass.

    A compiled function adds its scratch to the gradient when it ends. Without a callback, nobody reads the gradient before the end of the pass.
    Then the scratch is kept and the gradient is set to zero, so that the last part adds in the order of a single call.
    """
    cells = (cell.cell_contents for cell in getattr(call, "__closure__", None) or ())
    state = next((cell for cell in cells if isinstance(cell, _deepwave_engine.BackendState)), None)
    sums = {}
    if state is not None and callback is None:
        sums = {id(scratch): total for scratch, total in zip(state.grad_models_tmp, state.grad_models, strict=True)}
    return [sums.get(id(scratch), scratch) for scratch in grad_scratch or () if scratch.numel()]


def _run_loop(*, direction: str, call: Any, swap: Any = None, grad_scratch: Any = None, **others: Any) -> None:
    """Replaces Deepwave's `run_backend_loop`: computes spans of time steps in parts if a history is in an engine."""
    is_forward = direction == "forward"
    loop = _TimeLoop(is_forward)
    to_zero = [] if is_forward else _sums(call, grad_scratch, others.get("callback"))
    has_computed = False

    def in_parts(boundary: int, length: int) -> int:
        nonlocal has_computed
        rest = range(boundary, boundary + length) if is_forward else range(boundary - length, boundary)
        while rest:
            with suppress(_BeyondChunk):
                for part in loop.parts(rest):
                    if has_computed:
                        for tensor in to_zero:
                            tensor.zero_()
                    loop.part = part
                    status: int = call(part.start if is_forward else part.stop, len(part))
                    has_computed = True
                    if status:
                        return status
                    rest = range(part.stop, rest.stop) if is_forward else range(rest.start, part.start)
                    # After the span, Deepwave itself swaps its buffers once if the span has an odd number of steps.
                    if swap is not None and (len(part) if rest else len(part) - length) % 2:
                        swap()
        return 0

    before, _thread.loop = _thread.loop, loop
    try:
        _run_backend_loop(direction=direction, call=in_parts, swap=swap, grad_scratch=grad_scratch, **others)
        for manager in loop.touched.values():
            manager.close(is_forward, is_last=True)
    except BaseException:
        for manager in loop.touched.values():
            manager.give_up()
        raise
    finally:
        _thread.loop = before


def _allocate(self: Any, requires_grad: bool) -> None:
    """Replaces Deepwave's `StorageManager.allocate`: changes a new manager to one with chunks if the thread has entered a history."""
    if not isinstance(self, _ChunkedStorage):
        is_on_device = self.storage_mode == _deepwave_storage.StorageMode.DEVICE
        if self.storages or not is_on_device or not _thread.entered:
            if is_on_device and requires_grad and _entered_anywhere and not _thread.entered:
                warnings.warn(
                    "another thread entered tierflow.deepwave.history, and this one did not: this call keeps its history on the device",
                    RuntimeWarning,
                    stacklevel=2,
                )
            _plain_allocate(self, requires_grad)
            return
        del self.__dict__["storage_ptrs"]
        self.__class__ = _ChunkedStorage
        self.begin(_thread.entered[-1])
    self.keep(requires_grad)


def _check(function: Any, names: set[str]) -> Any:
    missing = names - set(inspect.signature(function).parameters)
    if deepwave.__version__ not in _VERSIONS or missing:
        raise ImportError(
            f"tierflow.deepwave works with Deepwave {' and '.join(_VERSIONS)}, and this is {deepwave.__version__}",
            name="deepwave",
        )
    return function


_plain_allocate = _check(_deepwave_storage.StorageManager.allocate, {"requires_grad"})
_run_backend_loop = _check(_deepwave_engine.run_backend_loop, {"direction", "call", "swap", "grad_scratch", "callback"})
setattr(_deepwave_storage.StorageManager, "allocate", _allocate)  # noqa: B010
setattr(_deepwave_engine, "run_backend_loop", _run_loop)  # noqa: B010
