"""The checkpoints of pyadjoint's tapes, in an engine.

    store = tierflow.pyadjoint.keep_in(engine, {Field: lambda field: ([field.values], Field)})
    tape.enable_checkpointing(store.schedule(Revolve(steps, 20)))

Every schedule of `checkpoint_schedules` can be used. The variables that it keeps, in memory or on disk, become versions of the engine,
which has its own tiers. The order in which the schedule restores them becomes the hints. A version is discarded when the tape drops its
variable.
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

# A function that takes a variable apart: returns the arrays, and a function that makes an equal variable from such arrays.
_Split = Callable[[Any], tuple[Sequence[Any], Callable[..., Any]]]

# The store of the tape that is keeping a step's variables at this moment.
_keeping: Store | None = None


def keep_in(engine: Engine, types: Mapping[type, _Split], tape: _Tape | None = None) -> Store:
    """Makes `tape`, or the working tape, keep variables of `types` in `engine`, once the tape checkpoints by a `Store.schedule`.

    For each type of pyadjoint's variables, `types` has a function that takes a variable. The function returns the variable's arrays, and a
    function `make`. `make(*arrays)`, with new arrays of NumPy, returns an equal variable; `make` must not hold the old one. Variables of
    other types stay in memory, such as numbers (`AdjFloat`). The engine must keep versions that were restored (`after_restore="keep"`, the
    default).
    """
    check_keeps(engine)
    tape = get_working_tape() if tape is None else tape
    store = Store(engine, types, tape)
    for kind in types:
        _divert(kind)
    tape._package_data["tierflow"] = store
    return store


def _nothing() -> None:
    """Stands for a weak reference to no object."""


class Stored(OverloadedType):  # type: ignore[misc]
    """The value that a tape has in place of a variable that is in an engine. A `store` makes it of the `kept` arrays and the function `make`,
    which makes a variable of them.
    """

    def __init__(self, store: Store, kept: Kept, make: Callable[..., Any]) -> None:
        super().__init__()
        self._store = store
        self._kept = kept
        self._make = make
        # A weak reference to the variable that was restored last.
        self._there: Callable[[], Any] = _nothing

    @property
    def version(self) -> int:
        """The number of the variable's version in the engine."""
        return self._kept.version

    def restore(self) -> Any:
        """Returns the variable as it was stored: the one that was restored last, if that still exists."""
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
    """The package data `tierflow` of a tape: the tape calls it when it keeps variables and restores them. `keep_in` makes it of its arguments
    `engine`, `types` and `tape`.
    """

    def __init__(self, engine: Engine, types: Mapping[type, _Split], tape: _Tape) -> None:
        self._engine = engine
        self._types = dict(types)
        self._tape = tape
        # The stored values of variables that still exist, by the `id` of the variable.
        self._shared: dict[int, tuple[Callable[[], Any], Callable[[], Stored | None]]] = {}
        # The variables of the step that was restored last, and of the step before: neighbours in time share variables.
        self._restored: tuple[list[Any], list[Any]] = ([], [])
        self._hinted: set[int] = set()
        # True if a variable was kept, or the evaluation began anew, since the last hints.
        self._is_new = False

    def schedule(self, schedule: CheckpointSchedule) -> CheckpointSchedule:
        """Returns an equal schedule for `tape.enable_checkpointing`, whose states go to the engine."""
        if isinstance(schedule, SingleMemoryStorageSchedule):
            raise ArgumentError(
                "SingleMemoryStorageSchedule keeps all in the tape's own variables: "
                "take SingleDiskStorageSchedule(), which keeps as much in the engine"
            )
        return _Schedule(self, schedule)

    def clear(self) -> None:
        """Forgets the stored variables: the tape was cleared, so its variables are gone, and their versions with them."""
        self.reset()

    def reset(self) -> None:
        """Withdraws the hints, as the forward is evaluated anew. Stored variables stay until the tape replaces them."""
        self.pause_checkpointing()
        self._engine.forget_hints(sorted(self._hinted))
        self._hinted = set()
        self._restored = ([], [])
        self._is_new = True

    def checkpoint(self) -> None:
        """Returns None: a checkpoint of the tape has the stored variables themselves, which keep their versions."""

    def restore_from_checkpoint(self, state: object) -> None:
        """Notes that the tape went back to the checkpoint with this `state` and has other stored variables now, which are hinted when the tape
        restores the first one."""
        self._is_new = True

    def copy(self) -> Store:
        """Returns this store: a copied tape has the same stored variables."""
        return self

    def continue_checkpointing(self) -> None:
        """Makes this store take the variables from now on."""
        global _keeping
        _keeping = self

    def pause_checkpointing(self) -> None:
        """Leaves variables in memory from now on."""
        global _keeping
        _keeping = None

    def keep(self, variable: Any) -> Stored | None:
        """Stores `variable` in the engine if its type is in `types`; else returns None. A variable that is stored already is not stored again."""
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
            # The exception ends the tape's step, so nothing else would pause.
            self.pause_checkpointing()
            raise
        # The program may change its own variables in place. A variable without a block variable is the tape's, which does not change it
        # and keeps it twice: for the step that makes it, and for the step that begins with it.
        if variable._block_variable() is None:
            self._shared[id(variable)] = (ref(variable), ref(stored))
            finalize(variable, self._shared.pop, id(variable), None).atexit = False
        return stored

    def restored(self, variable: Any) -> None:
        """Notes that `variable`, of the current step, was restored."""
        self._restored[0].append(variable)

    def is_there(self, version: int) -> None:
        """Withdraws the hint of `version`: its variable still exists, so it is not restored."""
        if version in self._hinted:
            self._hinted.discard(version)
            self._engine.forget_hints([version])

    def goes_on(self) -> None:
        """Prepares for the restore of another step."""
        self._restored = ([], self._restored[0])

    def goes_back(self, ahead: Iterator[CheckpointAction]) -> None:
        """Prepares for the restore of the first action of `ahead`: hints the versions to restore, if they changed."""
        self.goes_on()
        if not self._is_new:
            return
        self._engine.forget_hints(sorted(self._hinted))
        hints = list(self._reads(ahead))
        self._hinted = set(hints)
        self._engine.hint(hints)
        self._is_new = False

    def _reads(self, ahead: Iterator[CheckpointAction]) -> Iterator[int]:
        """Returns the versions that `ahead` restores, without those that do not exist yet or will be replaced before."""
        steps = self._tape.timesteps
        replaced: set[int] = set()
        # Versions of the step that is restored before: variables that the next step shares with it still exist.
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
    """Wraps a type's `_ad_create_checkpoint`, so that its variables go to the store that is keeping variables, if there is one."""
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
    """A schedule with one storage, whose actions that restore tell a store the actions that follow.

    pyadjoint takes actions one by one, and keeps those of the adjoint for later evaluations. So an action that restores must itself know the
    actions that follow.

    Data for the adjoint of a step goes through the storage even if the schedule would leave it in working memory. pyadjoint (2026.10) clears a
    step's inputs in working memory before the step's adjoint, which would then use the inputs that were taped.
    """

    def __init__(self, store: Store, schedule: CheckpointSchedule) -> None:
        super().__init__(schedule.max_n)
        self._store = store
        self._inner = schedule
        self._ahead: deque[CheckpointAction] = deque()
        # `_working`: steps whose data for the adjoint the schedule keeps in working memory. `_restarts`: steps from which the forward may go on.
        self._working: set[int] = set()
        self._restarts: set[int] = set()

    def _iterator(self) -> Iterator[CheckpointAction]:
        while self._ahead or self._look_ahead():
            yield self._ahead.popleft()

    def _look_ahead(self) -> bool:
        """Takes the actions up to the end of the next adjoint, or one action while the number of steps is not known. Returns false if there is
        none."""
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
        """True if no further adjoint can be done."""
        return not self._ahead and bool(self._inner.is_exhausted)

    def finalize(self, n: int) -> None:
        """Tells the schedule that the forward has ended after `n` steps."""
        self._inner.finalize(n)

    def uses_storage_type(self, storage_type: StorageType) -> bool:
        """Returns true for the disk, so that the tape calls its package data."""
        return storage_type is StorageType.DISK


class _Restore(CheckpointAction):  # type: ignore[misc]
    """An action that restores a step. Reading `from_storage` calls `told`."""

    def __init__(self, step: int, told: Callable[[], None]) -> None:
        CheckpointAction.__init__(self, step, StorageType.DISK, StorageType.WORK)
        self._told = told

    @property
    def from_storage(self) -> StorageType:
        """The storage to restore from. The tape reads this when it restores, and not before."""
        self._told()
        return StorageType.DISK


class _Copy(_Restore, Copy):  # type: ignore[misc]
    pass


class _Move(_Restore, Move):  # type: ignore[misc]
    pass
