"""Protects copies of a state that run beside the program's work on a GPU: optimizers' updates wait for them, and memory stays."""

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

# Seconds that `settle` waits for the next update at most.
_PATIENCE = 0.25


class Updates:
    """The steps of optimizers. On the GPU, each step comes after the copies that began before it."""

    def __init__(self, device: str) -> None:
        self._device = device
        # A fork has the hook, but cannot use the GPU.
        self._process = os.getpid()
        self._copied: list[torch.cuda.Event] = []
        # Optimizers that were seen to step. False if a CUDA graph has steps of the optimizer, as it replays them without calling the hook.
        self._seen: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()
        # Counts the changes of `_seen`.
        self.changes = 0
        self._is_over = threading.Event()
        self._is_over.set()
        # A compiler must not trace the hook.
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
            # Running copies stay in the list: another optimizer may step on another stream.
            self._copied = self._running()
        self._is_over.set()

    def awaited(self) -> set[int]:
        """Returns the addresses of the tensors of those optimizers whose steps are all seen."""
        optimizers = [optimizer for optimizer, is_seen in self._seen.items() if is_seen]
        tensors = [one for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]]
        states = [state for optimizer in optimizers for state in optimizer.state.values() if isinstance(state, dict)]
        tensors += [value for state in states for value in state.values()]
        return {part.data_ptr() for tensor in tensors for part in plain(tensor)}

    def settle(self) -> None:
        """Waits until the next update, or for `_PATIENCE`. By the update, the program has launched the work of its step. Before that, another
        thread that computes in Python would delay each kernel by a switch interval of the interpreter."""
        self._is_over.wait(_PATIENCE)


# The writers of an engine share an `Updates`, as a program may make a writer for each save.
_updates: weakref.WeakKeyDictionary[Engine, Updates] = weakref.WeakKeyDictionary()


def updates_of(engine: Engine) -> Updates:
    if engine not in _updates:
        _updates[engine] = Updates(engine.device)
        weakref.finalize(engine, _updates[engine].hook.remove)
    return _updates[engine]


class Guard:
    """Protects the memory of tensors from reuse while a stream reads it.

    The guard holds the tensors' storages. `resize_` frees the memory of a held storage, too; then the allocator waits for the streams that were
    noted for that memory (`record_stream`). A note takes longer than all other work of a checkpoint for the tensor, and lasts as long as the
    memory is allocated. So a checkpoint notes nothing if its storages and their addresses are those of the checkpoint before. If a storage's
    memory was freed since then, and allocated again at the same address, it has no note: a copy of it counts only if the memory is still there
    afterwards.
    """

    def __init__(self) -> None:
        self._noted: list[tuple[int, int, int]] = []
        # While a weak reference is kept, no other storage gets the number (`_cdata`) of a noted one.
        self._known: list[StorageWeakRef] = []
        self._notes_all = False

    def hold(self, tensors: list[torch.Tensor], stream: torch.cuda.Stream) -> Callable[[], bool]:
        """Holds the memory of `tensors`. Call the returned function once the stream's work is over; false means that the copies may be wrong."""
        storages = [tensor.untyped_storage() for tensor in tensors]
        marks = _marks(storages)
        if self._notes_all or marks != self._noted:
            for tensor in tensors:
                tensor.record_stream(stream)
            self._noted, self._known = marks, [StorageWeakRef(storage) for storage in storages]
            # The function holds the storages until it is called.
            return lambda: storages is not None

        def is_there() -> bool:
            self._notes_all = _marks(storages) != marks
            return not self._notes_all

        return is_there


def _marks(storages: list[torch.UntypedStorage]) -> list[tuple[int, int, int]]:
    return [(storage._cdata, storage.data_ptr(), storage.nbytes()) for storage in storages]
