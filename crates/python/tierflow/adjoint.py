"""Checkpoints of a schedule of `checkpoint_schedules`, in an engine.

A schedule says which states of a forward run to keep, and when to go back to which. What it keeps becomes versions of an
engine, whatever storage it names: the engine has its own tiers. The order in which it will come back for them is known
ahead, and becomes the hints.

`run` does a whole schedule. `Storage` is for a loop of one's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkpoint_schedules import (
    CheckpointAction,
    CheckpointSchedule,
    Copy,
    EndForward,
    EndReverse,
    Forward,
    Move,
    Reverse,
    StorageType,
)

if TYPE_CHECKING:
    from ._tierflow import Engine

__all__ = ["Storage", "run"]


@dataclass(frozen=True)
class _Entry:
    """What lies in one place of the schedule's."""

    version: int
    # Whether the forward can go on from it, and whether the adjoint can use it.
    restart: bool
    adjoint: bool


def _wanted(action: Forward, step: int) -> tuple[bool, bool]:
    """Whether a state at the start of `step` is to be kept for the forward, and for the adjoint."""
    if action.storage is StorageType.NONE:
        return False, False
    return bool(action.write_ics) and step == action.n0, bool(action.write_adj_deps)


@dataclass
class _Places:
    """Which version lies where. The same version may lie in several places: nothing is copied."""

    entries: dict[tuple[StorageType, int], _Entry] = field(default_factory=dict)

    def copy(self) -> _Places:
        return _Places(dict(self.entries))

    def put(self, storage: StorageType, step: int, entry: _Entry) -> list[int]:
        """Returns the versions that lie nowhere any more."""
        gone = self.take(storage, step)
        self.entries[storage, step] = entry
        return gone

    def take(self, storage: StorageType, step: int) -> list[int]:
        entry = self.entries.pop((storage, step), None)
        if entry is None or any(entry.version == other.version for other in self.entries.values()):
            return []
        return [entry.version]

    def move(self, action: Copy | Move, following: CheckpointAction | None) -> tuple[int | None, list[int]]:
        """Returns the version that the forward goes on from, if it does, and those that lie nowhere any more."""
        source = (action.from_storage, action.n)
        entry = self.entries[source]
        gone: list[int] = []
        restarts = entry.restart and isinstance(following, Forward)
        to = action.to_storage
        if to not in (StorageType.NONE, StorageType.WORK) or (to is StorageType.WORK and entry.adjoint):
            gone += self.put(to, action.n, entry)
        if isinstance(action, Move):
            gone += self.take(*source)
        return (entry.version if restarts and to is StorageType.WORK else None), gone

    def used(self, step: int) -> int:
        """The version that the adjoint of `step` needs."""
        return self.entries[StorageType.WORK, step].version


class Storage:
    """The actions of `schedule`, one after the other, and `engine` to keep what they want kept.

        for action in storage:
            if isinstance(action, Forward):
                for step in storage.steps(action):
                    storage.save(step, state)
                    ...  # advance `state`, in place
            elif isinstance(action, Reverse):
                for step in action:
                    storage.load(step, state)
                    ...  # the adjoint of `step`, from the state at its start
            else:
                storage.restart(state)

    The engine keeps versions that were restored (`after_restore="keep"`), as the schedule comes back for some more than once;
    what it needs no more is discarded. A version takes the next free number from `first` on; `next_version` is where another
    storage in the same engine may begin. Where the number of steps is not known to the schedule, call its `finalize` at the end
    of the forward, as ever.
    """

    def __init__(self, engine: Engine, schedule: CheckpointSchedule, *, first: int = 0) -> None:
        self._engine = engine
        self._schedule = schedule
        self._places = _Places()
        self._ahead: deque[CheckpointAction] = deque()
        self._action: CheckpointAction | None = None
        self._restart: int | None = None
        self.next_version = first

    def __iter__(self) -> Iterator[CheckpointAction]:
        while (action := self._next()) is not None:
            self._action = action
            gone: list[int] = []
            if isinstance(action, Copy | Move):
                following = self._ahead[0] if self._ahead else None
                self._restart, gone = self._places.move(action, following)
            yield action
            if isinstance(action, Reverse) and action.clear_adj_deps:
                gone = [version for step in action for version in self._places.take(StorageType.WORK, step)]
            self._restart = None
            self._discard(gone)

    def steps(self, action: Forward) -> range:
        """The steps of `action`, as far as they are known: to its end, or to that of the run."""
        most = self._schedule.max_n
        return range(action.n0, action.n1 if most is None else min(action.n1, most))

    def save(self, step: int, *arrays: Any) -> bool:
        """In a `Forward`: keeps the state at the start of `step`, if the schedule wants it."""
        if not isinstance(self._action, Forward):
            raise RuntimeError(f"{self._action!r} saves nothing: call save in a Forward")
        restart, adjoint = _wanted(self._action, step)
        if not (restart or adjoint):
            return False
        entry = _Entry(self.next_version, restart, adjoint)
        self._engine.checkpoint(entry.version, *arrays)
        self.next_version += 1
        self._discard(self._places.put(self._action.storage, step, entry))
        return True

    def restart(self, *arrays: Any) -> bool:
        """In a `Copy` or `Move`: brings back the state that the forward goes on from, if that is what it is for."""
        if self._restart is None:
            return False
        self._engine.restore(self._restart, *arrays)
        return True

    def load(self, step: int, *arrays: Any) -> None:
        """In a `Reverse`: brings back the state at the start of `step`."""
        if not isinstance(self._action, Reverse):
            raise RuntimeError(f"{self._action!r} loads nothing: call load in a Reverse")
        self._engine.restore(self._places.used(step), *arrays)

    def clear(self) -> None:
        """Discards what the schedule has left."""
        left = {entry.version for entry in self._places.entries.values()}
        self._places.entries.clear()
        self._discard(sorted(left))

    def _discard(self, versions: Sequence[int]) -> None:
        for version in versions:
            self._engine.discard(version)

    def _next(self) -> CheckpointAction | None:
        if not self._ahead:
            self._look_ahead()
        return self._ahead.popleft() if self._ahead else None

    def _look_ahead(self) -> None:
        """Takes the actions up to the end of the next adjoint, and hints what they will read; one only while the number of
        steps is not known."""
        if self._schedule.is_exhausted:
            return
        while (action := next(self._schedule, None)) is not None:
            self._ahead.append(action)
            if self._schedule.max_n is None:
                return
            if isinstance(action, EndReverse):
                break
        self._engine.hint(self._reads())

    def _reads(self) -> list[int]:
        """The versions that the actions ahead restore, in their order."""
        places, version, reads = self._places.copy(), self.next_version, []
        actions = list(self._ahead)
        for action, following in zip(actions, [*actions[1:], None], strict=True):
            if isinstance(action, Forward):
                for step in self.steps(action):
                    restart, adjoint = _wanted(action, step)
                    if restart or adjoint:
                        places.put(action.storage, step, _Entry(version, restart, adjoint))
                        version += 1
            elif isinstance(action, Copy | Move):
                read, _ = places.move(action, following)
                reads += [] if read is None else [read]
            elif isinstance(action, Reverse):
                reads += [places.used(step) for step in action]
                if action.clear_adj_deps:
                    for step in action:
                        places.take(StorageType.WORK, step)
        return reads


def run(
    engine: Engine,
    schedule: CheckpointSchedule,
    *,
    state: Sequence[Any],
    forward: Callable[[int], object],
    reverse: Callable[[int], object],
    end_forward: Callable[[], object] | None = None,
    steps: int | None = None,
    first: int = 0,
) -> Storage:
    """Runs a schedule: forward to the end, and back.

    `state` is arrays that hold the state at the start of a step. `forward(step)` makes it the state at the start of the next one,
    in place. `reverse(step)` is the adjoint of a step; `state` is then what it was at the start of that step. `end_forward()` is
    called in between, when `state` is the last one. `steps` is for schedules that do not know it.

    Returns what is left: of a schedule that keeps its data for further adjoints, `clear` it.
    """
    if schedule.max_n is None and steps is None:
        raise ValueError("the schedule does not know the number of steps: pass steps=")
    if steps is not None and schedule.max_n not in (None, steps):
        raise ValueError(f"the schedule is for {schedule.max_n} steps, and there are to be {steps}: leave steps out")
    storage = Storage(engine, schedule, first=first)
    for action in storage:
        if isinstance(action, Forward):
            for step in storage.steps(action):
                if step == steps:
                    break
                storage.save(step, *state)
                forward(step)
            if schedule.max_n is None and steps is not None and action.n1 >= steps:
                schedule.finalize(steps)
        elif isinstance(action, EndForward):
            if end_forward is not None:
                end_forward()
        elif isinstance(action, Reverse):
            for step in action:
                storage.load(step, *state)
                reverse(step)
        elif isinstance(action, EndReverse):
            break
        else:
            storage.restart(*state)
    return storage
