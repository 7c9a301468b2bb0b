"""Adjoint loops over an engine: states as trees, and the checkpoints of a schedule of `checkpoint_schedules`.

A schedule chooses the states of a forward run to keep, and the order in which to go back to them. The states that it keeps become
versions of an engine, whatever storage the schedule names, as the engine has its own tiers. The order in which the schedule restores them
is known ahead, and becomes the hints. `Tiered` is the schedule that takes the least time on a machine whose tiers copy beside the
computation.

`run` runs a whole schedule. `Storage` is for loops that the program writes itself. `Kept` is one state in an engine; modules for other
tools use it, such as `tierflow.pyadjoint`.
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

# Arrays without names that come back one by one, at most.
_MOST_UNNAMED = 64


def _has_numbers(structure: Any) -> bool:
    """Returns true if a tree has Python's numbers, which cannot be changed in place."""
    if isinstance(structure, dict) and structure.keys() & {"float", "complex"}:
        return True
    return isinstance(structure, int | float) or any(_has_numbers(branch) for _, branch in children(structure))


def _discard(engine: Engine, version: int) -> None:
    # An engine with `after_restore="discard"` may have discarded the version, and a closed engine has none.
    with suppress(ClosedError, UnknownVersionError):
        engine.discard(version)


class Kept:
    """A state in `engine`. The engine discards its version when this object is deleted.

        kept = Kept(engine, {"u": u, "time": 0.5})
        kept.restore({"u": u, "time": 0.0})      # u as it was; returns the tree
        kept.restore()                           # the tree with new arrays of NumPy

    `state` is an array of NumPy, PyTorch, JAX or CuPy, or a tree: dictionaries, lists, tuples and dataclasses of arrays and plain
    values. `version` is a number that the caller has reserved; without it, `Kept` reserves one by `Engine.reserve`.
    """

    def __init__(self, engine: Engine, state: Any, *, version: int | None = None) -> None:
        arrays, self._structure = flatten(state)
        if not arrays:
            raise ArgumentError("a state without arrays was to be kept: pass an array, or a tree of arrays and values")
        self.version: int = engine.reserve(1).start if version is None else version
        # Without names, so many arrays would come back as one array of bytes.
        names = [f"array-{index}" for index in range(len(arrays))] if len(arrays) > _MOST_UNNAMED else None
        engine.checkpoint(self.version, *arrays.values(), names=names)
        self._engine = engine
        self._names = list(arrays)
        self._end = finalize(self, _discard, engine, self.version)
        self._end.atexit = False

    def restore(self, into: Any = None) -> Any:
        """Restores the state into the arrays of `into`, a tree of the same form, or into new arrays of NumPy, and returns the tree."""
        if into is None:
            back = self._engine.restore(self.version)
            values = back.values() if isinstance(back, dict) else back if isinstance(back, list) else [back]
            return unflatten(self._structure, dict(zip(self._names, values, strict=True)))
        targets: dict[str, Any] = {}
        tree = unflatten(self._structure, lambda name, _, target: targets.setdefault(name, target), into=into)
        self._engine.restore(self.version, *(targets[name] for name in self._names))
        return tree

    def discard(self) -> None:
        """Discards the version now. A second call does nothing."""
        self._end()


@dataclass(frozen=True)
class _Entry:
    """A state in one place of the schedule's storages."""

    version: int
    # `restart`: the forward can go on from the state. `adjoint`: the adjoint can use it.
    restart: bool
    adjoint: bool
    # None for an entry of actions to come. The version is discarded when the last entry with this object is deleted.
    kept: Kept | None = None

    def restored(self, into: Any) -> Any:
        assert self.kept is not None, "an entry of the actions to come was restored"
        return self.kept.restore(into)


def _wanted(action: Forward, step: int) -> tuple[bool, bool]:
    """Returns true if the state at the start of `step` is kept for the forward, and true if it is kept for the adjoint."""
    if action.storage is StorageType.NONE:
        return False, False
    return bool(action.write_ics) and step == action.n0, bool(action.write_adj_deps)


@dataclass
class _Places:
    """The states by the storages and steps of the schedule. The same state may have several places, as nothing is copied."""

    entries: dict[tuple[StorageType, int], _Entry] = field(default_factory=dict)

    def move(self, action: Copy | Move, following: CheckpointAction | None) -> _Entry | None:
        """Does `action` on the places. Returns the state that the forward goes on from, or None if `following` is no forward."""
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
        """Returns the state that the adjoint of `step` needs."""
        return self.entries[StorageType.WORK, step]

    def used_up(self, action: Reverse) -> None:
        if action.clear_adj_deps:
            for step in action:
                self.entries.pop((StorageType.WORK, step), None)


class Storage:
    """An iterator over the actions of `schedule`, which keeps the states that they want in `engine`.

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

    A state is an array or a tree of arrays and numbers, as for `Kept`. `load` and `restart` write into the arrays that they are given.
    Without arrays (`state = storage.load(step)`) they return new ones of NumPy, for states that cannot be changed in place.

    The engine must keep versions that were restored (`after_restore="keep"`), as the schedule restores some more than once. States that
    the schedule needs no more are discarded. Versions get reserved numbers (`Engine.reserve`), so that several storages can use one engine,
    one after the other or at the same time. If the schedule does not know the number of steps, call its `finalize` at the end of the
    forward, as without an engine.
    """

    def __init__(self, engine: Engine, schedule: CheckpointSchedule) -> None:
        check_keeps(engine)
        self._engine = engine
        self._schedule = schedule
        self._places = _Places()
        self._ahead: deque[CheckpointAction] = deque()
        self._action: CheckpointAction | None = None
        self._restart: _Entry | None = None
        # `_numbers`: the numbers of the versions that the actions ahead will keep. `_hinted`: the versions of the hints so far.
        self._numbers: Iterator[int] = iter(())
        self._hinted: list[int] = []
        # The reads ahead, in gaps: each ends with the last read of a state that the forward had kept. `_left`: reads left in the first gap.
        self._gaps: deque[list[int]] = deque()
        self._left = 0
        # The numbers of the states that are saved after the forward.
        self._late = range(0)
        # `_in_place`: true for a loop that advances one state in place. `_there`: steps whose state is already in place when their adjoint begins.
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
        """Returns the steps of `action`: up to the action's end, or up to the run's end if that is known and comes first."""
        most = self._schedule.max_n
        return range(action.n0, action.n1 if most is None else min(action.n1, most))

    def save(self, step: int, state: Any) -> bool:
        """Keeps `state`, the state at the start of `step`, if the schedule wants that. Returns true if it was kept. Call it in a `Forward`."""
        if not isinstance(self._action, Forward):
            raise RuntimeError(f"{self._action!r} saves nothing: call save in a Forward")
        restart, adjoint = _wanted(self._action, step)
        if not (restart or adjoint):
            return False
        kept = Kept(self._engine, state, version=next(self._numbers, None))
        self._places.entries[self._action.storage, step] = _Entry(kept.version, restart, adjoint, kept)
        return True

    def restart(self, into: Any = None) -> Any:
        """Restores the state that the forward goes on from, in a `Copy` or `Move`. Returns `None` if no forward follows the action. With
        `into`, a state of the same form, the arrays there are filled in place.
        """
        return None if self._restart is None else self._read(self._restart, into)

    def load(self, step: int, into: Any = None) -> Any:
        """Restores the state at the start of `step`. With `into`, a state of the same form, the arrays there are filled in place. Call it in a
        `Reverse`."""
        if not isinstance(self._action, Reverse):
            raise RuntimeError(f"{self._action!r} loads nothing: call load in a Reverse")
        if step in self._there:
            self._there.remove(step)
            return into
        return self._read(self._places.used(step), into)

    def clear(self) -> None:
        """Discards the states that the schedule has left, and withdraws the hints."""
        self._restart = None
        self._places.entries.clear()
        with suppress(ClosedError):
            self._engine.forget_hints(self._hinted)

    def _next(self) -> CheckpointAction | None:
        if not self._ahead:
            self._look_ahead()
        return self._ahead.popleft() if self._ahead else None

    def _look_ahead(self) -> None:
        """Takes the actions up to the end of the next adjoint, and hints the versions that they will read. While the number of steps is not
        known, takes one action."""
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
        # Hinted states that are saved after the forward would keep room for themselves, though they never exist at the same time.
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
        """Hints the reads of the next gap before all others, if states are saved in it. The earlier hints of the gap's first state follow, and
        vanish when that state is discarded."""
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
        """Leaves out the forward of a step whose adjoint follows: the state at its start is in place, and nobody needs the state after it."""
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
        """Returns the versions that the actions ahead restore, in their order."""
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
    """Runs `schedule`: forward to the end, and back. Keeps the states that the schedule wants in `engine`.

    `state` is an array or a tree of arrays that hold the state at the start of a step. `forward(step)` advances `state` in place to the
    start of the next step. `reverse(step)` computes the adjoint of a step; `state` is then the state at the start of that step.
    `end_forward()` is called between both, when `state` is the last one. `steps` is the number of steps, for schedules that do not know it.

    Returns the storage. If the schedule keeps its data for further adjoints, call its `clear` after the last one. After an exception,
    nothing is kept.
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
