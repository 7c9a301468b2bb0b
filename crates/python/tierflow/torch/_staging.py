"""Copies states to an engine beside the work that follows."""

from __future__ import annotations

import pickle
import struct
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from traceback import clear_frames
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.utils.dlpack import DLDeviceType

from .._errors import ArgumentError, TierflowError
from .._tierflow import gather
from ._layout import ALIGNMENT, Layout, bytes_of
from ._program import Guard, Updates, updates_of
from ._state import ATOMS, State

if TYPE_CHECKING:
    from .._tierflow import Engine

__all__ = ["FOOTER", "MAGIC", "Staged", "Staging", "footer", "of_bytes"]

# The end of a rank's piece: `MAGIC`, the offset of the metadata, and its length.
FOOTER = struct.Struct("<8sQQ")
MAGIC = b"tierdcp1"

# Bytes that a GPU copies to host memory in about half a millisecond.
_PIECE = 32 << 20


def of_bytes(given: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(given), dtype=torch.uint8) if given else torch.empty(0, dtype=torch.uint8)


def footer(at: int, metadata: bytes) -> torch.Tensor:
    return of_bytes(FOOTER.pack(MAGIC, at, len(metadata)))


class Staged:
    """A slot of the engine with tensors, and spare room for values that are known later."""

    def __init__(
        self, engine: Engine, version: int, layout: Layout, spare: int, stream: torch.cuda.Stream | None
    ) -> None:
        self.version = version
        self._engine = engine
        self._layout = layout
        self._end = layout.end
        self._limit = layout.end + spare - FOOTER.size
        self._slot = engine.produce(version, layout.end + spare, "uint8")
        # The stream of the copies. The slot becomes a version behind them.
        self._stream = stream
        # The buffer, and the range of the slot's bytes that are only there.
        self._buffer: torch.Tensor | None = None
        self._buffered = range(0)
        self._one_empties = threading.Lock()

    def put(self, at: int, bytes: torch.Tensor) -> None:
        if bytes.nbytes:
            self._slot.write(bytes, at)

    def add(self, bytes: torch.Tensor) -> int:
        """Copies `bytes` behind all other bytes. Returns their offset."""
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
        """Copies the tensors to their places, as many as possible by one call. If the slot is in host memory, the last tensors go to `buffer`,
        as many as fit. Calls `goes_on` after the copies of the tensors that the program may change at once. Returns tensors over the GPU's
        memory that the copies read."""
        layout = self._layout
        read: list[torch.Tensor] = []
        targets: list[tuple[Any, range]] = [(self._slot, range(layout.end))]
        if buffer is not None and self._slot.__dlpack_device__()[0] == DLDeviceType.kDLCPU:
            self._buffer, self._buffered = buffer, layout.buffered(buffer, tensors)
            targets = [(self._slot, range(self._buffered.start)), (buffer, self._buffered)]
        for phase in range(2):
            for into, of_slot in targets:
                copies = layout.copies(of_slot)[phase]
                some = tuple([tensors[index] for index in copies.indices])
                if some:
                    gather(self._engine, into, some, copies.offsets, stream=self._stream)
                read += some
                for index in copies.others:
                    self._keep(layout.offsets[index], tensors[index])
                    read.append(tensors[index])
            if phase == 0:
                goes_on()
        self.put(*layout.gathered(tensors))
        return [tensor for tensor in read if tensor.is_cuda]

    def _keep(self, at: int, tensor: torch.Tensor) -> None:
        bytes = bytes_of(tensor)
        if self._buffer is not None and at in self._buffered:
            at -= self._buffered.start
            self._buffer[at : at + bytes.nbytes].copy_(bytes)
        elif self._stream is None or not tensor.is_cuda:
            self.put(at, bytes.cpu() if self._stream is None else bytes)
        else:
            self._slot.write(bytes, at, stream=self._stream)

    def keep_buffered(self) -> None:
        """Copies the bytes in the buffer to their places, a piece at a time: a program that synchronizes the device meanwhile waits for one
        piece at most."""
        with self._one_empties:
            if self._stream is not None and self._buffer is not None:
                with torch.cuda.stream(self._stream):
                    for at in range(0, len(self._buffered), _PIECE):
                        end = min(at + _PIECE, len(self._buffered))
                        self._slot.write(self._buffer[at:end], self._buffered.start + at, stream=self._stream)
                        self._stream.synchronize()
            self._buffer = None

    def place(self, name: torch.Tensor) -> int | None:
        """Returns the offset of the bytes that `name` stands for: a staged tensor, or a contiguous part of one. Returns None for any other
        tensor."""
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
        """Gives the room back at once: an error that somebody keeps would keep the slot in the frames of its stack."""
        # The slot may have ended with the error. The next save may be emptying the buffer.
        with self._one_empties, suppress(TierflowError, BufferError):
            self._buffer = None
            self._slot.give_up()


class _Copies(Future[dict[str, Any]]):
    """A future of the state. `result` waits for the copies in the calling thread, the one in which DCP saves the state; so the future needs no
    thread."""

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
    """The staged state that this thread saves. Other threads may save other states."""

    staged: Staged | None = None
    # The error that the save has to raise, on all ranks.
    failure: Exception | None = None


class Staging:
    """Takes states in. A thread that waits for the copies of a state saves that state next."""

    def __init__(self, engine: Engine, spare: int | None, buffer: int) -> None:
        self.now = _Now()
        self._engine = engine
        self._spare = spare
        # The staged state before, which may have bytes in the buffer.
        self._last: Callable[[], Staged | None] = lambda: None
        self._buffer_bytes = buffer
        self._buffer: torch.Tensor | None = None
        self._stream: torch.cuda.Stream | None = None
        self._layout = Layout([])
        # The count of `Updates.changes` when the layout was made.
        self._changes = 0
        self._guard = Guard()

    def begin(self, number: Callable[[], int], state: dict[str, Any]) -> Future[dict[str, Any]]:
        """Starts the copies to the version that `number` returns. Returns a future of the state's stand-in, once the program may change the
        state. Raises nothing, as the other ranks would wait for this one."""
        try:
            return _Copies(self._begun(number(), state))
        except Exception as error:
            # The caller may keep the error, and with it the slot in the frames of the stack.
            clear_frames(error.__traceback__)
            failure = error
            return _Copies(lambda: self._is_saved_next(state, None, failure))

    def _begun(self, version: int, state: dict[str, Any]) -> Callable[[], dict[str, Any]]:
        updates = self._on_gpu()
        taken = State(state)
        changes = 0 if updates is None else updates.changes
        if self._changes != changes or not self._layout.is_of(taken.tensors):
            self._layout = Layout(
                taken.tensors, set() if updates is None else updates.awaited(), self._engine.device != "host"
            )
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
                # The buffer begins with zeros, as gaps between tensors are stored, too.
                self._buffer = torch.zeros(self._buffer_bytes, dtype=torch.uint8, device=stream.device)
            read = staged.keep(taken.tensors, self._buffer, lambda: program.wait_event(stream.record_event()))
        copied = stream.record_event()
        updates.come_after(copied)
        # The GPU copies while the lines that follow run.
        is_there = self._guard.hold(read, stream)
        result = taken.named(layout.names)

        def wait() -> dict[str, Any]:
            copied.synchronize()
            text = "memory of a tensor was given up by resize_ while it was copied, and the copy may have other bytes: wait for staging_completion before that"
            return self._is_saved_next(result, staged, None if is_there() else ArgumentError(text))

        return wait

    def _on_gpu(self) -> Updates | None:
        """Makes the stream of copies on a GPU, and returns the optimizers' updates; None for an engine with only main memory."""
        device = self._engine.device
        if self._stream is None and device == "host":
            return None
        if torch.cuda.is_current_stream_capturing():
            raise ArgumentError("a CUDA graph is being captured, and would have the copies: save before or after that")
        self._stream = self._stream or torch.cuda.Stream(device)
        return updates_of(self._engine)

    def _empty_buffer(self) -> None:
        if (last := self._last()) is not None:
            last.keep_buffered()

    def _spare_for(self, state: State) -> int:
        if self._spare is not None:
            return self._spare
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        pickled = sum(len(pickle.dumps(other)) for other in state.others if type(other) not in ATOMS)
        leaves = len(state.tensors) + len(state.others)
        return (1 << 20) + 4096 * len(state.others) + 2 * pickled + 2048 * ranks * leaves

    def _is_saved_next(
        self, state: dict[str, Any], staged: Staged | None, failure: Exception | None = None
    ) -> dict[str, Any]:
        self.now.staged, self.now.failure = None if failure else staged, failure
        return state

    def staged_as(self) -> int | None:
        """Returns the version that this thread saves; None if it was not staged. Raises the error of the staging."""
        failure, self.now.failure = self.now.failure, None
        if failure is not None:
            raise failure
        return None if self.now.staged is None else self.now.staged.version

    def take(self) -> Staged | None:
        staged, self.now.staged = self.now.staged, None
        return staged

    def settle(self) -> None:
        """Waits as `Updates.settle` does, if this thread saves a state that was staged on a GPU."""
        if self.now.staged is not None and self._stream is not None:
            updates_of(self._engine).settle()

    def close(self) -> None:
        self.now.staged = self._buffer = None
        # The layout holds the gathered bytes of small tensors, which are freed, too.
        self._layout = Layout([])
