"""State that is copied to an engine beside the work that follows."""

from __future__ import annotations

import copy
import pickle
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from concurrent.futures import Future
from contextlib import suppress
from traceback import clear_frames
from types import NoneType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass
from torch.utils.dlpack import from_dlpack

from .._errors import ArgumentError, TierflowError
from ._layout import ALIGNMENT, Layout, bytes_of

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

    from .._tierflow import Engine

__all__ = ["FOOTER", "MAGIC", "Staged", "Staging", "footer", "of_bytes"]

# A rank's piece ends with these, where its metadata begins, and how long it is.
FOOTER = struct.Struct("<8sQQ")
MAGIC = b"tierdcp1"

# Seconds that what follows the copies waits for the next update at most.
_PATIENCE = 0.25

# Bytes that a GPU copies to host memory in about half a millisecond.
_PIECE = 32 << 20

# Types of tensors that consist of no others, and of values of a known size.
_SIMPLE = frozenset((torch.Tensor, torch.nn.Parameter))
_ATOMS = frozenset((NoneType, bool, int, float, complex))


def of_bytes(given: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(given), dtype=torch.uint8) if given else torch.empty(0, dtype=torch.uint8)


def footer(at: int, metadata: bytes) -> torch.Tensor:
    return of_bytes(FOOTER.pack(MAGIC, at, len(metadata)))


class Staged:
    """A slot of the engine, with tensors in it, and room for what is known later."""

    def __init__(
        self, engine: Engine, version: int, layout: Layout, spare: int, stream: torch.cuda.Stream | None
    ) -> None:
        self.version = version
        self._layout = layout
        self._end = layout.end
        self._limit = layout.end + spare - FOOTER.size
        self._slot = engine.produce(version, layout.end + spare, "uint8")
        # Where the copies run; the slot is a version behind them.
        self._stream = stream
        # The buffer and the slot's bytes that lie there alone.
        self._buffer: torch.Tensor | None = None
        self._buffered = range(0)
        self._one_empties = threading.Lock()

    def put(self, at: int, bytes: torch.Tensor) -> None:
        if bytes.nbytes:
            self._slot.write(bytes, at)

    def add(self, bytes: torch.Tensor) -> int:
        """Behind all else."""
        at = self._end + -self._end % ALIGNMENT
        if at + bytes.nbytes > self._limit:
            raise ArgumentError(
                f"what was staged has no room left for {bytes.nbytes} bytes more: make the writer with a larger spare="
            )
        self.put(at, bytes)
        self._end = at + bytes.nbytes
        return at

    def keep(
        self, tensors: list[torch.Tensor], buffer: torch.Tensor | None, goes_on: Callable[[], None]
    ) -> list[torch.Tensor]:
        """Copies the tensors to their places, by few calls where they are on the slot's device, and to `buffer`, which has room for the last of them,
        if the slot is in host memory. `goes_on` is called behind the copies of those that the program may change at once.
        Returns tensors over the GPU's memory that is being read."""
        layout, read = self._layout, []
        # A slot is committed without other users of its bytes: what this makes of it is dropped here.
        whole = from_dlpack(self._slot)
        phases = [[places] for places in layout.in_slot(whole, tensors)]
        if buffer is not None and not whole.is_cuda:
            self._buffer = buffer
            self._buffered, in_buffer = layout.in_buffer(buffer, tensors)
            for phase, places in zip(phases, in_buffer, strict=True):
                phase.append(places)
        del whole
        for phase in phases:
            for places in phase:
                read += places.copy(tensors)
            for index in phase[0].elsewhere:
                if layout.offsets[index] not in self._buffered:
                    read.append(self._keep(layout.offsets[index], tensors[index]))
            if phase is phases[0]:
                goes_on()
        self.put(*layout.gathered(tensors))
        return [tensor for tensor in read if tensor.is_cuda]

    def _keep(self, at: int, tensor: torch.Tensor) -> torch.Tensor:
        bytes = bytes_of(tensor)
        if self._stream is None or not tensor.is_cuda:
            self.put(at, bytes.cpu() if self._stream is None else bytes)
        else:
            self._slot.write(bytes, at, stream=self._stream)
        return bytes

    def keep_buffered(self) -> None:
        """Copies to their places what `keep` copied to the buffer, a piece at a time: a program that synchronizes the device meanwhile
        waits for a piece at most."""
        with self._one_empties:
            if self._stream is not None and self._buffer is not None:
                with torch.cuda.stream(self._stream):
                    for at in range(0, len(self._buffered), _PIECE):
                        end = min(at + _PIECE, len(self._buffered))
                        self._slot.write(self._buffer[at:end], self._buffered.start + at)
                        self._stream.synchronize()
            self._buffer = None

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

    def commit(self, metadata: bytes) -> None:
        self.put(self._limit, footer(self.add(of_bytes(metadata)), metadata))
        self.keep_buffered()
        self._slot.commit(self._stream)

    def give_up(self) -> None:
        """Gives the room back, as who keeps an error keeps all that its stack has."""
        self._buffer = None
        # What the error left of it may be nothing.
        with suppress(TierflowError, BufferError):
            self._slot.give_up()


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


class _Updates:
    """The steps of optimizers, each of which comes after the copies that began before it, on the GPU."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._copied: list[torch.cuda.Event] = []
        # Optimizers that were seen to step, and whether all of their steps are seen: a CUDA graph replays those in it without.
        self._seen: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()
        # How often that has changed.
        self.changes = 0
        self._is_over = threading.Event()
        self._is_over.set()
        # A compiler leaves it as it is.
        self.hook: RemovableHandle = register_optimizer_step_pre_hook(torch.compiler.disable(self._before))

    def come_after(self, copied: torch.cuda.Event) -> None:
        self._copied.append(copied)
        self._is_over.clear()

    def _before(self, optimizer: Optimizer, *_: Any) -> None:
        in_graph = torch.cuda.is_current_stream_capturing()
        was_seen = self._seen.get(optimizer)
        is_seen = was_seen is not False and not in_graph
        if is_seen is not was_seen:
            self._seen[optimizer] = is_seen
            self.changes += 1
        if not in_graph:
            for copied in self._copied:
                torch.cuda.current_stream(self._device).wait_event(copied)
            # Another optimizer may have another stream.
            self._copied = [copied for copied in self._copied if not copied.query()]
        self._is_over.set()

    def awaited(self) -> set[int]:
        """The addresses of the tensors of optimizers all of whose steps are seen."""
        optimizers = [optimizer for optimizer, is_seen in self._seen.items() if is_seen]
        tensors = [one for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]]
        states = [state for optimizer in optimizers for state in optimizer.state.values() if isinstance(state, dict)]
        tensors += [value for state in states for value in state.values()]
        return {plain.data_ptr() for tensor in tensors for plain in _plain(tensor)}

    def settle(self) -> None:
        """Waits until the next update, by which time the program has launched the work of its step: until then, another thread that
        computes in Python would keep it from that, a switch interval of the interpreter for each kernel."""
        self._is_over.wait(_PATIENCE)


# Those that the writers of an engine have in common: one may be made for each save.
_updates: weakref.WeakKeyDictionary[Engine, _Updates] = weakref.WeakKeyDictionary()


def _updates_of(engine: Engine) -> _Updates:
    if engine not in _updates:
        _updates[engine] = _Updates(engine.device)
        weakref.finalize(engine, _updates[engine].hook.remove)
    return _updates[engine]


class _State:
    """A copy of a state's branches, and the tensors that it has in place of the leaves.

    Branches are those in which DCP looks for tensors. What it pickles as a whole, such as a tuple, is copied with its tensors' values.
    """

    def __init__(self, state: dict[str, Any]) -> None:
        self.tensors: list[torch.Tensor] = []
        self.others: list[Any] = []
        self._leaves: list[tuple[Any, Any, Any]] = []
        self._copy = self._copied(state)

    def _copied(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            copied: Any = [None] * len(value)
            parts: Iterable[tuple[Any, Any]] = enumerate(value)
        elif kind is dict or isinstance(value, MutableMapping):
            copied = {} if kind is dict else copy.copy(value)
            parts = value.items()
        else:
            self.others.append(value)
            return value if kind in _ATOMS else copy.deepcopy(value)
        for key, part in parts:
            # Nearly all leaves are of these types, and of those that follow it takes longer to tell.
            if type(part) in _SIMPLE:
                self.tensors.append(part)
            elif isinstance(part, torch.Tensor):
                self.tensors += _plain(part)
            else:
                copied[key] = self._copied(part)
                continue
            # A place in the order of keys.
            copied[key] = None
            self._leaves.append((copied, key, part))
        return copied

    def named(self, names: list[torch.Tensor]) -> dict[str, Any]:
        """The copy, with what stands for the tensors."""
        left = iter(names)
        for branch, key, leaf in self._leaves:
            branch[key] = next(left) if type(leaf) in _SIMPLE else _named(leaf, left)
        result: dict[str, Any] = self._copy
        return result


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


class _Copies(Future[dict[str, Any]]):
    """The state, once somebody asked for it and has waited for the copies. The thread in which DCP saves it does, so it takes no other one."""

    def __init__(self, wait: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self._wait: Callable[[], dict[str, Any]] | None = wait
        # A callback that `set_result` calls may ask for the result.
        self._one_waits = threading.RLock()

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        with self._one_waits:
            wait, self._wait = self._wait, None
            if wait is not None:
                try:
                    self.set_result(wait())
                except BaseException as error:
                    self.set_exception(error)
        return super().result(timeout)


class _Now(threading.local):
    """What was staged of the state that this thread saves: several may be on their way."""

    staged: Staged | None = None
    # What the save has to raise, on all ranks.
    failure: Exception | None = None


class Staging:
    """Takes states in. The thread that waits for one's copies saves it next."""

    def __init__(self, engine: Engine, spare: int | None, buffer: int) -> None:
        self.now = _Now()
        self._engine = engine
        self._spare = spare
        # The one before, which may have bytes in the buffer.
        self._last: Callable[[], Staged | None] = lambda: None
        self._buffer_bytes = buffer
        self._buffer: torch.Tensor | None = None
        self._stream: torch.cuda.Stream | None = None
        self._layout = Layout([])
        # The changes of `_Updates` that it is made with.
        self._changes = 0
        self._guard = _Guard()

    def begin(self, number: Callable[[], int], state: dict[str, Any]) -> Future[dict[str, Any]]:
        """Starts the copies to the version that `number` returns, and returns what stands for the state, once it may be changed. It raises nothing:
        other ranks would wait for this one."""
        try:
            return _Copies(self._begun(number(), state))
        except Exception as error:
            # The caller may keep the error, and the slot would be kept with the stack.
            clear_frames(error.__traceback__)
            failure = error
            return _Copies(lambda: self._is_saved_next(state, None, failure))

    def _begun(self, version: int, state: dict[str, Any]) -> Callable[[], dict[str, Any]]:
        updates = self._on_gpu()
        taken = _State(state)
        changes = 0 if updates is None else updates.changes
        if self._changes != changes or not self._layout.is_of(taken.tensors):
            self._layout = Layout(taken.tensors, set() if updates is None else updates.awaited())
            self._changes = changes
        layout = self._layout
        self._empty_buffer()
        staged = Staged(self._engine, version, layout, self._spare_for(taken), self._stream)
        self._last = weakref.ref(staged)
        stream = self._stream
        if updates is None or stream is None:
            staged.keep(taken.tensors, None, lambda: None)
            result = taken.named(layout.names)
            return lambda: self._is_saved_next(result, staged)
        program = torch.cuda.current_stream(self._engine.device)
        stream.wait_stream(program)
        with torch.cuda.stream(stream):
            if self._buffer_bytes and self._buffer is None:
                # Gaps between tensors are stored, too.
                self._buffer = torch.zeros(self._buffer_bytes, dtype=torch.uint8, device=stream.device)
            read = staged.keep(taken.tensors, self._buffer, lambda: program.wait_event(stream.record_event()))
        copied = stream.record_event()
        updates.come_after(copied)
        # The GPU copies meanwhile.
        is_there = self._guard.hold(read, stream)
        result = taken.named(layout.names)

        def wait() -> dict[str, Any]:
            copied.synchronize()
            text = "memory of a tensor was given up by resize_ while it was copied, and the copy may have other bytes: wait for staging_completion before that"
            return self._is_saved_next(result, staged, None if is_there() else ArgumentError(text))

        return wait

    def _on_gpu(self) -> _Updates | None:
        """What copies on a GPU need; None for an engine of main memory."""
        device = self._engine.device
        if self._stream is None and device == "host":
            return None
        if torch.cuda.is_current_stream_capturing():
            raise ArgumentError("a CUDA graph is being captured, and would have the copies: save before or after that")
        self._stream = self._stream or torch.cuda.Stream(device)
        return _updates_of(self._engine)

    def _empty_buffer(self) -> None:
        if (last := self._last()) is not None:
            last.keep_buffered()

    def _spare_for(self, state: _State) -> int:
        if self._spare is not None:
            return self._spare
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        pickled = sum(len(pickle.dumps(other)) for other in state.others if type(other) not in _ATOMS)
        leaves = len(state.tensors) + len(state.others)
        return (1 << 20) + 4096 * len(state.others) + 2 * pickled + 2048 * ranks * leaves

    def _is_saved_next(
        self, state: dict[str, Any], staged: Staged | None, failure: Exception | None = None
    ) -> dict[str, Any]:
        self.now.staged, self.now.failure = staged, failure
        return state

    def staged_as(self) -> int | None:
        """The version that this thread saves; None if it was not staged. Raises what staging failed with."""
        failure, self.now.failure = self.now.failure, None
        if failure is not None:
            raise failure
        return None if self.now.staged is None else self.now.staged.version

    def take(self) -> Staged | None:
        staged, self.now.staged = self.now.staged, None
        return staged

    def settle(self) -> None:
        """Has a thread wait as `_Updates.settle` does, if it saves what was staged on a GPU."""
        if self.now.staged is not None and self._stream is not None:
            _updates_of(self._engine).settle()

    def close(self) -> None:
        self.now.staged = self._buffer = None
        # It has tensors over the buffer.
        self._layout = Layout([])
