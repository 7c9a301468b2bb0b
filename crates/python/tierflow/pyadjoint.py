"""The checkpoints of pyadjoint's tapes, in an engine.

    store = tierflow.pyadjoint.keep_in(engine, {Field: lambda field: ([field.values], Field)})
    tape.enable_checkpointing(store.schedule(Revolve(steps, 20)))

Every schedule of `checkpoint_schedules` does. Wherever it keeps a step's variables, in memory or on disk, they become versions of
the engine, which has its own tiers; the order in which the schedule comes back for them becomes the hints. A variable that the
tape lets go of is discarded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import finalize, ref

from checkpoint_schedules import (
    CheckpointAction,
    CheckpointSchedule,
    Copy,
    EndReverse,
    Forward,
    Move,
    Reverse,
    SingleMemoryStorageSchedule,
    StorageType,
)
from pyadjoint import OverloadedType, get_working_tape
from pyadjoint.tape import TapePackageData

from ._errors import ArgumentError
from ._refusals import check_keeps
from .adjoint import Kept

if TYPE_CHECKING:
    from pyadjoint import Tape as _Tape

    from ._tierflow import Engine

__all__ = ["Store", "Stored", "keep_in"]

# Takes a variable apart: its arrays, and a function that makes the like of it from such arrays.
_Split = Callable[[Any], tuple[Sequence[Any], Callable[..., Any]]]

# The store of the tape that keeps a step's variables at this moment.
_keeping: Store | None = None


def keep_in(engine: Engine, types: Mapping[type, _Split], tape: _Tape | None = None) -> Store:
    """Has `tape`, or the working tape, keep variables of `types` in `engine`, once it checkpoints by a `Store.schedule`.

    For each type of pyadjoint's variables, `types` has a function that takes a variable and returns its arrays and a function that
    makes a variable from such arrays, which is called as `make(*arrays)`, with new arrays of NumPy. It must not hold the variable.
    Variables of other types stay in memory, as numbers (`AdjFloat`) well may. The engine keeps what was restored
    (`after_restore="keep"`, which is the default).
    """
    check_keeps(engine)
    tape = get_working_tape() if tape is None else tape
    store = Store(engine, types, tape)
    for kind in types:
        _divert(kind)
    tape._package_data["tierflow"] = store
    return store


def _nothing() -> None:
    """What a reference to nothing returns."""


class Stored(OverloadedType):  # type: ignore[misc]
    """What a tape has in place of a variable that is in an engine. A `store` makes it, of the `kept` arrays and of what can `make` a variable of
    them.
    """

    def __init__(self, store: Store, kept: Kept, make: Callable[..., Any]) -> None:
        super().__init__()
        self._store = store
        self._kept = kept
        self._make = make
        # The variable as it was restored last, while somebody has it.
        self._there: Callable[[], Any] = _nothing

    @property
    def version(self) -> int:
        """The version of the engine that it is."""
        return self._kept.version

    def restore(self) -> Any:
        """The variable as it was."""
        variable = self._there()
        if variable is None:
            variable = self._make(*self._kept.restore())
            self._there = ref(variable)
        else:
            self._store.is_there(self.version)
        self._store.restored(variable)
        return variable

    def _ad_create_checkpoint(self) -> Stored:
        return self

    def _ad_restore_at_checkpoint(self, checkpoint: Stored) -> Any:
        return checkpoint.restore()


class Store(TapePackageData):  # type: ignore[misc]
    """The package data `tierflow` of a tape: what the tape asks when it keeps variables, and goes back for them. `keep_in` makes it, of its own
    `engine`, `types` and `tape`.
    """

    def __init__(self, engine: Engine, types: Mapping[type, _Split], tape: _Tape) -> None:
        self._engine = engine
        self._types = dict(types)
        self._tape = tape
        # What variables that are there still were stored as, by `id`.
        self._shared: dict[int, tuple[Callable[[], Any], Callable[[], Stored | None]]] = {}
        # The variables of the step that was restored last, and of the one before: neighbours in time have some in common.
        self._restored: tuple[list[Any], list[Any]] = ([], [])
        self._hinted: set[int] = set()
        # Whether a variable was kept, or the evaluation began anew, since the hints were told.
        self._is_new = False

    def schedule(self, schedule: CheckpointSchedule) -> CheckpointSchedule:
        """The same schedule, for `tape.enable_checkpointing`: what it keeps anywhere goes to the engine."""
        if isinstance(schedule, SingleMemoryStorageSchedule):
            raise ArgumentError(
                "SingleMemoryStorageSchedule keeps all in the tape's own variables: "
                "take SingleDiskStorageSchedule(), which keeps as much in the engine"
            )
        return _Schedule(self, schedule)

    def clear(self) -> None:
        """The tape was cleared: its variables are gone, and what they had in the engine with them."""
        self.reset()

    def reset(self) -> None:
        """The forward is evaluated anew: what it kept before stays until the tape replaces it; the hints do not stay."""
        self.pause_checkpointing()
        self._engine.forget_hints(sorted(self._hinted))
        self._hinted = set()
        self._restored = ([], [])
        self._is_new = True

    def checkpoint(self) -> None:
        """Nothing: a checkpoint of the tape has the stored variables themselves, and a version stays while one of them does."""

    def restore_from_checkpoint(self, state: object) -> None:
        """The tape has other stored variables now: they are hinted when it goes back for the first one."""
        self._is_new = True

    def copy(self) -> Store:
        """A copied tape has the same stored variables."""
        return self

    def continue_checkpointing(self) -> None:
        """Variables go to the engine from here on."""
        global _keeping
        _keeping = self

    def pause_checkpointing(self) -> None:
        """Variables stay in memory from here on."""
        global _keeping
        _keeping = None

    def keep(self, variable: Any) -> Stored | None:
        """`variable` in the engine, if its type is one of those that are to be there."""
        split = next((self._types[kind] for kind in type(variable).__mro__ if kind in self._types), None)
        if split is None:
            return None
        there, shared = self._shared.get(id(variable), (_nothing, _nothing))
        if there() is variable and (stored := shared()) is not None:
            return stored
        self._is_new = True
        try:
            arrays, make = split(variable)
            stored = Stored(self, Kept(self._engine, list(arrays)), make)
        except BaseException:
            # The tape will not come to the end of what it was keeping.
            self.pause_checkpointing()
            raise
        # A variable of the program's may be changed in place. One without a block variable is the tape's, which keeps it as it is:
        # it is kept for the step that makes it, and for the step that begins with it.
        if variable._block_variable() is None:
            self._shared[id(variable)] = (ref(variable), ref(stored))
            finalize(variable, self._shared.pop, id(variable), None).atexit = False
        return stored

    def restored(self, variable: Any) -> None:
        """A variable of the step at hand was restored."""
        self._restored[0].append(variable)

    def is_there(self, version: int) -> None:
        """A variable was not restored, as it was there: nobody waits for its version."""
        if version in self._hinted:
            self._hinted.discard(version)
            self._engine.forget_hints([version])

    def goes_on(self) -> None:
        """The tape is about to restore another step."""
        self._restored = ([], self._restored[0])

    def goes_back(self, ahead: Iterator[CheckpointAction]) -> None:
        """The tape is about to restore what the first action of `ahead` names: tells the hints, if they changed."""
        self.goes_on()
        if not self._is_new:
            return
        self._engine.forget_hints(sorted(self._hinted))
        hints = list(self._reads(ahead))
        self._hinted = set(hints)
        self._engine.hint(hints)
        self._is_new = False

    def _reads(self, ahead: Iterator[CheckpointAction]) -> Iterator[int]:
        """The versions that `ahead` restores, as far as they are there now and will not be kept anew before."""
        steps = self._tape.timesteps
        replaced: set[int] = set()
        # What the step that is restored before has in common with the next one is there still.
        before: set[int] = set()
        for action in ahead:
            if isinstance(action, Forward) and action.storage is StorageType.DISK:
                last = min(action.n1, len(steps)) if action.write_adj_deps else action.n0 + action.write_ics
                replaced.update(range(action.n0, last))
            elif isinstance(action, Copy | Move):
                there = {} if action.n in replaced else steps[action.n]._checkpoint
                versions = [one.version for one in there.values() if isinstance(one, Stored)]
                yield from (version for version in versions if version not in before)
                before = set(versions)
                if isinstance(action, Move):
                    replaced.add(action.n)


def _divert(kind: type) -> None:
    """Has variables of a type go to the store that keeps at the moment, if one does."""
    create: Any = kind._ad_create_checkpoint  # type: ignore[attr-defined]
    if hasattr(create, "_diverted"):
        return

    @wraps(create)
    def diverted(variable: Any) -> Any:
        stored = None if _keeping is None else _keeping.keep(variable)
        return create(variable) if stored is None else stored

    diverted._diverted = True  # type: ignore[attr-defined]
    kind._ad_create_checkpoint = diverted  # type: ignore[attr-defined]


class _Schedule(CheckpointSchedule):  # type: ignore[misc]
    """A schedule that names one storage, and whose restores tell a store what follows them.

    pyadjoint takes actions as they come, and keeps those of the adjoint for later evaluations. So an action that restores must know
    itself which ones follow it.

    What the adjoint of a step needs goes through the storage, too, where the schedule would leave it in working memory. pyadjoint
    (2026.10) clears a step's inputs there before the adjoint of the step, which then is that of the inputs that were taped.
    """

    def __init__(self, store: Store, schedule: CheckpointSchedule) -> None:
        super().__init__(schedule.max_n)
        self._store = store
        self._inner = schedule
        self._ahead: deque[CheckpointAction] = deque()
        # Steps whose data for the adjoint were to be in working memory, and steps from which the forward may go on.
        self._working: set[int] = set()
        self._restarts: set[int] = set()

    def _iterator(self) -> Iterator[CheckpointAction]:
        while self._ahead or self._look_ahead():
            yield self._ahead.popleft()

    def _look_ahead(self) -> bool:
        """Takes the actions up to the end of the next adjoint; one only while the number of steps is not known."""
        if self._inner.is_exhausted:
            return False
        actions: list[CheckpointAction] = []
        while (action := next(self._inner, None)) is not None:
            self._add(action, actions)
            if self._inner.max_n is None or isinstance(action, EndReverse):
                break
        self._ahead.extend(actions)
        return bool(actions)

    def _add(self, action: CheckpointAction, actions: list[CheckpointAction]) -> None:
        if isinstance(action, Forward) and (action.write_ics or action.write_adj_deps):
            if action.storage is StorageType.WORK:
                self._working.update(action)
            if action.write_ics:
                self._restarts.add(action.n0)
            action = Forward(*action.args[:-1], StorageType.DISK)
        elif isinstance(action, Copy | Move):
            if isinstance(action, Move):
                self._restarts.discard(action.n)
            restore = _Copy if isinstance(action, Copy) else _Move
            action = restore(action.n, partial(self._goes_back, actions, len(actions)))
        elif isinstance(action, Reverse):
            for step in self._working.intersection(action):
                again = _Copy if step in self._restarts else _Move
                actions.append(again(step, self._store.goes_on))
            self._working.difference_update(action)
        actions.append(action)

    def _goes_back(self, actions: list[CheckpointAction], index: int) -> None:
        self._store.goes_back(islice(actions, index, None))

    @property
    def max_n(self) -> int | None:
        """The number of steps, if it is known."""
        known: int | None = self._inner.max_n
        return known

    @property
    def is_exhausted(self) -> bool:
        """Whether no further adjoint can be done."""
        return not self._ahead and bool(self._inner.is_exhausted)

    def finalize(self, n: int) -> None:
        """The forward has ended after `n` steps."""
        self._inner.finalize(n)

    def uses_storage_type(self, storage_type: StorageType) -> bool:
        """Whether the tape is to ask its package data: it is."""
        return storage_type is StorageType.DISK


class _Restore(CheckpointAction):  # type: ignore[misc]
    """An action that restores a step, and tells so when it is asked from where."""

    def __init__(self, step: int, told: Callable[[], None]) -> None:
        CheckpointAction.__init__(self, step, StorageType.DISK, StorageType.WORK)
        self._told = told

    @property
    def from_storage(self) -> StorageType:
        """The tape asks for it when it restores, and not before."""
        self._told()
        return StorageType.DISK


class _Copy(_Restore, Copy):  # type: ignore[misc]
    pass


class _Move(_Restore, Move):  # type: ignore[misc]
    pass
