"""The program beside whose work a state is copied on a GPU: the updates that wait for the copies, and the memory that is read."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ._state import plain

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

    from .._tierflow import Engine

__all__ = ["Guard", "Updates", "updates_of"]

# Seconds that what follows the copies waits for the next update at most.
_PATIENCE = 0.25


class Updates:
    """The steps of optimizers, each of which comes after the copies that began before it, on the GPU."""

    def __init__(self, device: str) -> None:
        self._device = device
        # A fork has the hook, and not the GPU.
        self._process = os.getpid()
        self._copied: list[torch.cuda.Event] = []
        # Optimizers that were seen to step, and whether all of their steps are seen: a CUDA graph replays those in it without.
        self._seen: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()
        # Counts the changes of `_seen`.
        self.changes = 0
        self._is_over = threading.Event()
        self._is_over.set()
        # A compiler leaves it as it is.
        self.hook: RemovableHandle = register_optimizer_step_pre_hook(torch.compiler.disable(self._before))

    def come_after(self, copied: torch.cuda.Event) -> None:
        self._copied = [*self._running(), copied]
        self._is_over.clear()

    def _running(self) -> list[torch.cuda.Event]:
        return [copied for copied in self._copied if not copied.query()]

    def _before(self, optimizer: Optimizer, *_: Any) -> None:
        if os.getpid() != self._process:
            return
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
            self._copied = self._running()
        self._is_over.set()

    def awaited(self) -> set[int]:
        """The addresses of the tensors of optimizers all of whose steps are seen."""
        optimizers = [optimizer for optimizer, is_seen in self._seen.items() if is_seen]
        tensors = [one for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]]
        states = [state for optimizer in optimizers for state in optimizer.state.values() if isinstance(state, dict)]
        tensors += [value for state in states for value in state.values()]
        return {part.data_ptr() for tensor in tensors for part in plain(tensor)}

    def settle(self) -> None:
        """Waits until the next update, by which time the program has launched the work of its step: until then, another thread that
        computes in Python would keep it from that, a switch interval of the interpreter for each kernel."""
        self._is_over.wait(_PATIENCE)


# The writers of an engine have one in common, as a program may make a writer for each save.
_updates: weakref.WeakKeyDictionary[Engine, Updates] = weakref.WeakKeyDictionary()


def updates_of(engine: Engine) -> Updates:
    if engine not in _updates:
        _updates[engine] = Updates(engine.device)
        weakref.finalize(engine, _updates[engine].hook.remove)
    return _updates[engine]


class Guard:
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
