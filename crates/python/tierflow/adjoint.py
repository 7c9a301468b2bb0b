"""Adjoint loops over an engine: states as trees, and the checkpoints of a schedule of `checkpoint_schedules`.

A schedule says which states of a forward run to keep, and when to go back to which. The states that it keeps become versions of
an engine, whatever storage it names: the engine has its own tiers. The order in which the schedule will come back for them is
known ahead, and becomes the hints. `Tiered` is the schedule that takes the least time on a machine whose tiers work beside the computation.

`run` does a whole schedule. `Storage` is for a loop of one's own. `Kept` is one state in an engine, and is what the doors to
other tools are made of, such as `tierflow.pyadjoint`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import finalize

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

from ._errors import ArgumentError, ClosedError, UnknownVersionError
from ._refusals import check_keeps
from ._tiered import Tiered
from ._tierflow import Machine
from ._tree import children, flatten, unflatten

if TYPE_CHECKING:
    from ._tierflow import Engine

__all__ = ["Kept", "Machine", "Storage", "Tiered", "run"]


def _has_numbers(structure: Any) -> bool:
    """Whether a tree has numbers of Python's, which cannot be written into."""
    if isinstance(structure, dict) and structure.keys() & {"float", "complex"}:
        return True
    return isinstance(structure, int | float) or any(_has_numbers(branch) for _, branch in children(structure))


def _discard(engine: Engine, version: int) -> None:
    # An engine with `after_restore="discard"` may have discarded the version, and a closed engine has none.
    with suppress(ClosedError, UnknownVersionError):
        engine.discard(version)


class Kept:
    """A state in `engine`, which is discarded when this object goes.

        kept = Kept(engine, {"u": u, "time": 0.5})
        kept.restore({"u": u, "time": 0.0})      # u as it was; returns the tree
        kept.restore()                           # the tree with new arrays of NumPy

    `state` is an array of NumPy, PyTorch, JAX or CuPy, or a tree: dictionaries, lists, tuples and dataclasses of arrays and plain
    values. The version has a number that nobody else in the engine uses (`Engine.reserve`), unless `version` is one that the caller
    has reserved.
    """

    def __init__(self, engine: Engine, state: Any, *, version: int | None = None) -> None:
        arrays, self._structure = flatten(state)
        if not arrays:
            raise ArgumentError("a state without arrays was to be kept: pass an array, or a tree of arrays and values")
        self.version: int = engine.reserve(1).start if version is None else version
        engine.checkpoint(self.version, *arrays.values())
        self._engine = engine
        self._names = list(arrays)
        self._end = finalize(self, _discard, engine, self.version)
        self._end.atexit = False

    def restore(self, into: Any = None) -> Any:
        """Brings the state back into the arrays of `into`, a tree of the same form, or into new arrays of NumPy, and returns it."""
        if into is None:
            back = self._engine.restore(self.version)
            return unflatten(
                self._structure, dict(zip(self._names, back if isinstance(back, list) else [back], strict=True))
            )
        targets: dict[str, Any] = {}
        tree = unflatten(self._structure, lambda name, _, target: targets.setdefault(name, target), into=into)
        self._engine.restore(self.version, *(targets[name] for name in self._names))
        return tree

    def discard(self) -> None:
        """Discards the version now. A second call does nothing."""
        self._end()


@dataclass(frozen=True)
class _Entry:
    """What lies in one place of the schedule's."""

    version: int
    # Whether the forward can go on from it, and whether the adjoint can use it.
    restart: bool
    adjoint: bool
    # There from the moment when the state is kept; the version is discarded when no entry has it.
    kept: Kept | None = None

    def restored(self, into: Any) -> Any:
        assert self.kept is not None, "an entry of the actions to come was restored"
        return self.kept.restore(into)


def _wanted(action: Forward, step: int) -> tuple[bool, bool]:
    """Whether a state at the start of `step` is to be kept for the forward, and for the adjoint."""
    if action.storage is StorageType.NONE:
        return False, False
    return bool(action.write_ics) and step == action.n0, bool(action.write_adj_deps)


@dataclass
class _Places:
    """Which state lies where. The same state may lie in several places: nothing is copied."""

    entries: dict[tuple[StorageType, int], _Entry] = field(default_factory=dict)

    def move(self, action: Copy | Move, following: CheckpointAction | None) -> _Entry | None:
        """Returns the state that the forward goes on from, if it does."""
        source = (action.from_storage, action.n)
        entry = self.entries[source]
        restarts = entry.restart and isinstance(following, Forward)
        to = action.to_storage
        if isinstance(action, Move):
            del self.entries[source]
        if to not in (StorageType.NONE, StorageType.WORK) or (to is StorageType.WORK and entry.adjoint):
            self.entries[to, action.n] = entry
        return entry if restarts and to is StorageType.WORK else None

    def used(self, step: int) -> _Entry:
        """The state that the adjoint of `step` needs."""
        return self.entries[StorageType.WORK, step]

    def used_up(self, action: Reverse) -> None:
        if action.clear_adj_deps:
            for step in action:
                self.entries.pop((StorageType.WORK, step), None)


class Storage:
    """The actions of `schedule`, one after the other, and `engine` to keep what they want kept.

        for action in storage:
            if isinstance(action, Forward):
                for step in storage.steps(action):
                    storage.save(step, state)
                    ...  # advance `state`
            elif isinstance(action, Reverse):
                for step in action:
                    storage.load(step, state)
                    ...  # the adjoint of `step`, from the state at its start
            else:
                storage.restart(state)

    A state is an array or a tree of arrays and numbers, as for `Kept`. `load` and `restart` write into the arrays that they are
    given; without them (`state = storage.load(step)`) they return new arrays of NumPy, for states that cannot be written into.

    The engine keeps versions that were restored (`after_restore="keep"`), as the schedule comes back for some more than once; what
    it needs no more is discarded. Versions have numbers of their own (`Engine.reserve`): several storages, one after the other or
    at once, do not meet in one engine. Where the number of steps is not known to the schedule, call its `finalize` at the end of
    the forward, as ever.
    """

    def __init__(self, engine: Engine, schedule: CheckpointSchedule) -> None:
        check_keeps(engine)
        self._engine = engine
        self._schedule = schedule
        self._places = _Places()
        self._ahead: deque[CheckpointAction] = deque()
        self._action: CheckpointAction | None = None
        self._restart: _Entry | None = None
        # The numbers of the versions that the actions ahead will keep, and the hints that were told.
        self._numbers: Iterator[int] = iter(())
        self._hinted: list[int] = []
        # The reads up to the last one of each state that was there at the end of the forward, and how many of the first ones are left.
        self._gaps: deque[list[int]] = deque()
        self._left = 0
        # The numbers of the states that are stored on the way back.
        self._late = range(0)
        # True for a loop with one state, which it advances in place; then the steps whose state is there when their adjoint begins.
        self._in_place = False
        self._there: set[int] = set()

    def __iter__(self) -> Iterator[CheckpointAction]:
        while (action := self._next()) is not None:
            self._action = action
            if isinstance(action, EndForward):
                self._hint_gap()
            if isinstance(action, Copy | Move):
                self._restart = self._places.move(action, self._ahead[0] if self._ahead else None)
            yield action
            if isinstance(action, Reverse):
                self._places.used_up(action)
            self._restart = None

    def steps(self, action: Forward) -> range:
        """The steps of `action`, as far as they are known: to its end, or to that of the run."""
        most = self._schedule.max_n
        return range(action.n0, action.n1 if most is None else min(action.n1, most))

    def save(self, step: int, state: Any) -> bool:
        """In a `Forward`: keeps the state at the start of `step`, if the schedule wants it."""
        if not isinstance(self._action, Forward):
            raise RuntimeError(f"{self._action!r} saves nothing: call save in a Forward")
        restart, adjoint = _wanted(self._action, step)
        if not (restart or adjoint):
            return False
        kept = Kept(self._engine, state, version=next(self._numbers, None))
        self._places.entries[self._action.storage, step] = _Entry(kept.version, restart, adjoint, kept)
        return True

    def restart(self, into: Any = None) -> Any:
        """In a `Copy` or `Move`: brings back the state that the forward goes on from, if that is what it is for; else `None`.
        With `into`, a state like it, its arrays are filled in place.
        """
        return None if self._restart is None else self._read(self._restart, into)

    def load(self, step: int, into: Any = None) -> Any:
        """In a `Reverse`: brings back the state at the start of `step`. With `into`, a state like it, its arrays are filled in place."""
        if not isinstance(self._action, Reverse):
            raise RuntimeError(f"{self._action!r} loads nothing: call load in a Reverse")
        if step in self._there:
            self._there.remove(step)
            return into
        return self._read(self._places.used(step), into)

    def clear(self) -> None:
        """Discards what the schedule has left, and withdraws the hints."""
        self._restart = None
        self._places.entries.clear()
        with suppress(ClosedError):
            self._engine.forget_hints(self._hinted)

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
        if self._in_place:
            self._leave_out_detours()
        actions = list(self._ahead)
        if not actions:
            return
        swept = next((at for at, action in enumerate(actions) if isinstance(action, EndForward)), 0)
        numbers = self._engine.reserve(self._saves(actions))
        late = self._late = numbers[self._saves(actions[:swept]) :]
        self._numbers = iter(numbers)
        self._hinted = self._reads(iter(numbers))
        # States that are stored on the way back would take room for themselves, and are never there at the same time.
        self._engine.hint(version for version in self._hinted if version not in late)
        last = {version: at for at, version in enumerate(self._hinted)}
        self._gaps = deque([[]])
        for at, version in enumerate(self._hinted):
            self._gaps[-1].append(version)
            if version not in late and last[version] == at:
                self._gaps.append([])
        if not isinstance(actions[swept], EndForward):
            self._hint_gap()

    def _hint_gap(self) -> None:
        """Hints the reads of the next gap before all others, if it stores states. Earlier hints of its first state follow, and go with it."""
        gap = self._gaps.popleft() if self._gaps else []
        self._left = len(gap)
        if any(version in self._late for version in gap):
            self._engine.hint_next(gap)

    def _read(self, entry: _Entry, into: Any) -> Any:
        state = entry.restored(into)
        self._left -= 1
        if self._left == 0:
            self._hint_gap()
        return state

    def _saves(self, actions: Iterable[CheckpointAction]) -> int:
        forwards = [action for action in actions if isinstance(action, Forward)]
        return sum(any(_wanted(action, step)) for action in forwards for step in self.steps(action))

    def _leave_out_detours(self) -> None:
        """Leaves out the forward of a step whose adjoint follows: the state at its start is there, and nobody needs the one after."""
        actions, left_out = list(self._ahead), set()
        for index, (before, action, following) in enumerate(zip(actions, actions[1:], actions[2:], strict=False)):
            if (
                isinstance(before, Forward)
                and isinstance(action, Forward)
                and isinstance(following, Reverse)
                and (action.n0, action.n1) == (following.n0, following.n1) == (action.n0, action.n0 + 1)
                and action.storage is StorageType.WORK
                and not action.write_ics
            ):
                self._there.add(action.n0)
                left_out.add(index + 1)
        self._ahead = deque(action for index, action in enumerate(actions) if index not in left_out)

    def _reads(self, numbers: Iterator[int]) -> list[int]:
        """The versions that the actions ahead restore, in their order."""
        places, reads = _Places(dict(self._places.entries)), []
        actions = list(self._ahead)
        for action, following in zip(actions, [*actions[1:], None], strict=True):
            if isinstance(action, Forward):
                for step in self.steps(action):
                    restart, adjoint = _wanted(action, step)
                    if restart or adjoint:
                        places.entries[action.storage, step] = _Entry(next(numbers), restart, adjoint)
            elif isinstance(action, Copy | Move):
                entry = places.move(action, following)
                reads += [] if entry is None else [entry.version]
            elif isinstance(action, Reverse):
                reads += [places.used(step).version for step in action if step not in self._there]
                places.used_up(action)
        return reads


def run(
    engine: Engine,
    schedule: CheckpointSchedule,
    *,
    state: Any,
    forward: Callable[[int], object],
    reverse: Callable[[int], object],
    end_forward: Callable[[], object] | None = None,
    steps: int | None = None,
) -> Storage:
    """Runs a schedule: forward to the end, and back. What it wants kept is kept in `engine`.

    `state` is an array or a tree of arrays that hold the state at the start of a step. `forward(step)` makes it the state at the
    start of the next one, in place. `reverse(step)` is the adjoint of a step; `state` is then what it was at the start of that step.
    `end_forward()` is called in between, when `state` is the last one. `steps` is for schedules that do not know it.

    Returns what is left: of a schedule that keeps its data for further adjoints, `clear` it. An exception leaves nothing.
    """
    if schedule.max_n is None and steps is None:
        raise ValueError("the schedule does not know the number of steps: pass steps=")
    if steps is not None and schedule.max_n not in (None, steps):
        raise ValueError(f"the schedule is for {schedule.max_n} steps, and there are to be {steps}: leave steps out")
    if _has_numbers(flatten(state)[1]):
        raise ArgumentError("a number in a state cannot be advanced in place: pass an array such as np.array(0.5)")
    storage = Storage(engine, schedule)
    storage._in_place = True
    try:
        _run(storage, schedule, state, forward, reverse, end_forward, steps)
    except BaseException:
        storage.clear()
        raise
    return storage


def _run(
    storage: Storage,
    schedule: CheckpointSchedule,
    state: Any,
    forward: Callable[[int], object],
    reverse: Callable[[int], object],
    end_forward: Callable[[], object] | None,
    steps: int | None,
) -> None:
    for action in storage:
        if isinstance(action, Forward):
            for step in storage.steps(action):
                if step == steps:
                    break
                storage.save(step, state)
                forward(step)
            if schedule.max_n is None and steps is not None and action.n1 >= steps:
                schedule.finalize(steps)
        elif isinstance(action, EndForward):
            if end_forward is not None:
                end_forward()
        elif isinstance(action, Reverse):
            for step in action:
                storage.load(step, state)
                reverse(step)
        elif isinstance(action, EndReverse):
            break
        else:
            storage.restart(state)
