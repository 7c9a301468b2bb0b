"""Keeps saved tensors in an engine from the forward to the backward."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from .._errors import NoRoomError, TierflowError, UnknownVersionError
from .._tierflow import number_of_bytes
from ._clock import Clock
from ._plan import WINDOW, Bus, Plan, Saved, plan
from ._ways import ways

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, SupportsIndex

    from .._tierflow import Engine

__all__ = ["offload"]

# Iterations that are measured, with a new plan after each. The first one is not typical: much is done for the first time, and host
# memory becomes fast in the background, once it is used.
_MEASURED = frozenset({0, 1, 2, 9})


class _Entry:
    """A storage that the graph has saved. All `_View`s of the storage hold the entry."""

    __slots__ = (
        "__weakref__",
        "arrival",
        "bytes",
        "changes",
        "index",
        "of",
        "seen",
        "tensor",
        "version",
        "was_changed",
    )

    def __init__(self, of: _Iteration, index: int, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.of = of
        self.index = index
        self.bytes = storage.nbytes()
        # A tensor over the storage while that is in memory: the saved storage, or the one that it came back to. The tensor shares its count
        # of changes with the tensor that it was detached from.
        self.tensor: torch.Tensor | None = tensor.detach()
        self.changes = tensor._version
        self.was_changed = False
        # The version of the bytes in the engine.
        self.version: int | None = None
        # The end of the copy that brings the bytes back, until the work waits for it.
        self.arrival: Any = None
        self.seen = StorageWeakRef(storage)

    def __del__(self) -> None:
        with suppress(AttributeError, TypeError):
            self.of.gone(self)


class _View:
    """The value that the graph keeps in place of a tensor."""

    __slots__ = ("dtype", "entry", "offset", "size", "stride")

    def __init__(self, entry: _Entry, tensor: torch.Tensor) -> None:
        self.entry = entry
        self.dtype = tensor.dtype
        self.size = tensor.size()
        self.stride = tensor.stride()
        self.offset = tensor.storage_offset()

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns the viewed part of the storage of `tensor`."""
        whole = torch.empty(0, dtype=self.dtype, device=tensor.device)
        return whole.set_(tensor.untyped_storage(), self.offset, self.size, self.stride)


class _Iteration:
    """An iteration: a forward, and its backward passes."""

    def __init__(self, owner: offload, plan: Plan | None, *, measured: bool) -> None:
        self.owner = owner
        self.plan = plan
        self.first = owner.next_version
        self.entries: WeakValueDictionary[tuple[int, int], _Entry] = WeakValueDictionary()
        self.by_index: WeakValueDictionary[int, _Entry] = WeakValueDictionary()
        self.sizes: list[int] = []
        self.staying = 0
        # True if all tensors so far are those of the plan.
        self.as_planned = plan is not None
        # Entries on their way out, each with the tensor that the copy reads, and the copy's end.
        self.leaving: deque[tuple[_Entry, torch.Tensor, Any]] = deque()
        self.leaving_bytes = 0
        # Bytes of entries that are being fetched, or are fetched and not used yet; 0 once they are used.
        self.ahead: dict[int, int] = {}
        self.back: deque[tuple[int, int]] = deque(plan.back if plan else ())
        self.position = {index: use for use, index in enumerate(plan.uses)} if plan else {}
        self.began_back = False
        self.clock = Clock(owner.ways) if measured else None
        self.held: set[int] = set()
        if plan is not None:
            rank = {index: self.first + rank for rank, index in enumerate(sorted(plan.leaves))}
            owner.engine.forget_hints()
            owner.engine.hint(rank[index] for index, _ in plan.back)

    # Forward.

    def pack(self, tensor: torch.Tensor) -> torch.Tensor | _View:
        owner = self.owner
        if not owner.ways.takes(tensor):
            return _without_graph(tensor)
        storage = tensor.untyped_storage()
        key = (storage._cdata, tensor._version)
        with owner.lock:
            entry = self.entries.get(key)
            if entry is None:
                if not owner.smallest <= storage.nbytes() <= owner.largest:
                    return _without_graph(tensor)
                entry = _Entry(self, len(self.sizes), tensor)
                self.entries[key] = entry
                self.by_index[entry.index] = entry
                self.sizes.append(entry.bytes)
                if self.clock:
                    self.clock.saved(entry.index)
                if not (self.is_to_leave(entry) and self.leave(entry)):
                    self.staying += entry.bytes
        return _View(entry, tensor)

    def is_to_leave(self, entry: _Entry) -> bool:
        if self.plan is not None and self.as_planned:
            sizes, index = self.plan.sizes, entry.index
            self.as_planned = index < len(sizes) and sizes[index] == entry.bytes
            if self.as_planned:
                return index in self.plan.leaves
        budget = self.owner.budget
        return budget is not None and self.staying + entry.bytes > budget

    def leave(self, entry: _Entry) -> bool:
        owner, source = self.owner, entry.tensor
        assert source is not None
        version = owner.next_version
        try:
            end = owner.ways.store(version, source, self.clock)
        except NoRoomError as error:
            owner.refused(error)
            return False
        owner.next_version += 1
        entry.version = version
        self.leaving.append((entry, source, end))
        self.leaving_bytes += entry.bytes
        while self.leaving and (end is None or (self.leaving_bytes > WINDOW and len(self.leaving) > 1)):
            self.let_go(wait=True)
        return True

    def let_go(self, *, wait: bool) -> bool:
        """Frees the tensor that left first. Work given from now on may reuse the memory, so it waits for the copy. Without `wait`, does nothing
        and returns false if the copy is not over."""
        entry, source, end = self.leaving[0]
        if end is not None and not end.query():
            if not wait:
                return False
            self.owner.ways.work_waits(end, self.clock)
        self.leaving.popleft()
        self.leaving_bytes -= entry.bytes
        # A change of the tensor may have come before the copy.
        entry.was_changed = end is not None and source._version != entry.changes
        if entry.index not in self.ahead:
            entry.tensor = None
        # Deleting the entry checks if the storage is still referenced, so `source` is deleted before.
        del source
        return True

    # Backward.

    def unpack(self, view: _View) -> torch.Tensor:
        owner, entry = self.owner, view.entry
        with owner.lock:
            if not self.began_back:
                self.begin_back()
            while self.leaving and self.let_go(wait=False):
                pass
            if self.clock:
                self.clock.used(entry.index)
            if entry.tensor is None:
                self.fetch(entry)
            # The tensor stays until the entry is deleted. Used bytes do not count.
            self.ahead[entry.index] = 0
            self.fetch_ahead(self.position.get(entry.index))
            if entry.arrival is not None:
                owner.ways.work_waits(entry.arrival, self.clock)
                entry.arrival = None
            tensor = entry.tensor
            assert tensor is not None
            if entry.was_changed or tensor._version != entry.changes:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"a {list(view.size)} of {view.dtype} that was saved as version {entry.changes} of it"
                )
            return view.of(tensor)

    def begin_back(self) -> None:
        self.began_back = True
        owner = self.owner
        if not self.as_planned or self.plan is None:
            away = sorted((entry.index for entry in self.by_index.values() if entry.version is not None), reverse=True)
            self.back = deque((index, 0) for index in away)
            versions = (self.by_index[index].version for index in away)
            owner.engine.forget_hints()
            owner.engine.hint(version for version in versions if version is not None)
        owner.engine.prefetch_start()

    def fetch(self, entry: _Entry) -> None:
        if entry.version is None:
            raise RuntimeError("a saved tensor is neither here nor in the engine")
        entry.tensor, entry.arrival = self.owner.ways.load(entry.version, entry.bytes, self.clock)
        entry.version = None
        entry.changes = entry.tensor._version
        self.ahead[entry.index] = entry.bytes

    def fetch_ahead(self, use: int | None) -> None:
        """Fetches the storages that are needed soon: those that the plan starts by this use, at most as many as the window holds."""
        while self.back:
            index, starts_at = self.back[0]
            entry = self.by_index.get(index)
            if entry is not None and entry.tensor is None and entry.version is not None:
                if use is not None and starts_at > use:
                    return
                ahead = sum(self.ahead.values())
                if ahead and ahead + entry.bytes > WINDOW:
                    return
                self.fetch(entry)
            self.back.popleft()

    def gone(self, entry: _Entry) -> None:
        """Discards the version of an entry that nothing refers to any more, and frees its memory."""
        if entry.arrival is not None:
            # Work that did not wait for the copy may reuse the entry's memory.
            self.owner.ways.work_waits(entry.arrival, None)
        self.ahead.pop(entry.index, None)
        if entry.version is not None:
            self.owner.discarded.append(entry.version)
        entry.tensor = None
        if not entry.seen.expired():
            self.held.add(entry.index)

    def measured(self) -> tuple[list[Saved], Bus | None] | None:
        """Returns the measurements of the iteration and of the bus; None if it was not measured, or had no backward."""
        if self.clock is None or not self.began_back:
            return None
        times = self.clock.read()
        saved = []
        for index, size in enumerate(self.sizes):
            used = None if index in self.held else times.used.get(index)
            saved.append(Saved(size, times.saved[index], used))
        return saved, times.bus


class offload:
    """Keeps tensors that autograd saves for the backward in `engine`: as many as costs no time, or as many as a `budget` demands.

        saving = tierflow.torch.offload(engine)
        for batch in batches:
            with saving:
                loss = model(batch).mean()
            loss.backward()

    In the first iteration, all tensors stay, and the times at which each is saved and used are measured. From then on, as many tensors
    leave as the bus can carry away and back behind the work. With a `budget`, at most this many bytes of them stay, even if that is slower;
    the first iteration obeys the budget, too.

    A storage is stored once, even if several views of it are saved. Parameters, and storages smaller than `smallest` bytes, stay. Tensors
    leave on a separate stream, and come back before they are used. The engine must be on the model's device. If it has only host memory,
    tensors go straight there. Versions are numbered from `first` on.
    """

    def __init__(
        self,
        engine: Engine,
        budget: SupportsIndex | str | None = None,
        *,
        smallest: SupportsIndex | str = 1 << 20,
        first: int = 0,
    ) -> None:
        self.engine = engine
        self.budget = None if budget is None else number_of_bytes(budget)
        self.smallest = max(1, number_of_bytes(smallest))
        tiers = engine.metrics()["tiers"]
        self.largest: int = tiers[0]["capacity"]
        self.room = sum(tier["capacity"] for tier in tiers if tier["name"] in ("device", "host"))
        self.next_version = first
        self.discarded: deque[int] = deque()
        self.lock = threading.RLock()
        self.ways = ways(engine)
        self.plan: Plan | None = None
        self.bus: Bus | None = None
        self._seen = 0
        self._last: _Iteration | None = None
        self._hooks: saved_tensors_hooks | None = None
        self._warned = False

    def __enter__(self) -> Self:
        if self._hooks is not None:
            raise RuntimeError("this offload is entered already: make one for each model that runs at the same time")
        with self.lock:
            self._learn()
            self._forget()
            current = _Iteration(self, self.plan, measured=self._seen in _MEASURED)
            self._last = current
        self._hooks = saved_tensors_hooks(current.pack, _unpack)
        self._hooks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        if self.plan is None:
            return "<tierflow.torch.offload, not planned yet>"
        plan = self.plan
        return (
            f"<tierflow.torch.offload: of {plan.saved >> 20} MiB, {plan.leaving >> 20} MiB leave, "
            f"{plan.hidden >> 20} MiB of them behind the work; {plan.held >> 20} MiB are held by others>"
        )

    def _learn(self) -> None:
        """Makes a plan from the measurements of the last iteration."""
        last, self._last = self._last, None
        if last is None or not last.sizes:
            return
        while last.leaving:
            last.let_go(wait=True)
        if last.plan is not None and (not last.as_planned or len(last.sizes) != len(last.plan.sizes)):
            # The tensors differ from those of the plan, so the next iteration is measured.
            self._seen, self.plan = 0, None
        seen = last.measured()
        if last.began_back:
            self._seen += 1
        if seen is None:
            return
        saved, bus = seen
        self.bus = bus or self.bus or self.ways.probe(self.next_version)
        if bus is None:
            self.next_version += 1
        self.plan = plan(saved, self.bus, budget=self.budget, room=self.room)
        self._make_room(self.plan.leaving)

    def _make_room(self, bytes: int) -> None:
        """Asks the engine for as many bytes as will leave, so that it makes the memory ready in the background."""
        if 0 < bytes <= self.largest:
            with suppress(TierflowError):
                self.engine.produce(self.next_version, bytes, "uint8", timeout=0).give_up()

    def _forget(self) -> None:
        while self.discarded:
            with suppress(UnknownVersionError):
                self.engine.discard(self.discarded.popleft())

    def refused(self, error: TierflowError) -> None:
        """Warns once that tensors stay in memory, as the engine refused one with `error`."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"saved tensors stay, as the engine has no room for them: give it a larger host_cache, or scratch= ({error})",
                stacklevel=2,
            )


def _without_graph(tensor: torch.Tensor) -> torch.Tensor:
    """Returns `tensor` without its node of the graph. A node that saved its own output would else hold itself."""
    return tensor if tensor.grad_fn is None else tensor.detach()


def _unpack(packed: torch.Tensor | _View) -> torch.Tensor:
    return packed.entry.of.unpack(packed) if isinstance(packed, _View) else packed
