"""The schedule of `tierflow-schedule`, as a class of `checkpoint_schedules`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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

from ._tierflow import Schedule

if TYPE_CHECKING:
    from ._tierflow import Engine, Machine

__all__ = ["Tiered"]


class Tiered(CheckpointSchedule):  # type: ignore[misc]
    """The schedule that takes the least time on `machine`: it chooses the states to store and the states to compute again.

        machine = tierflow.Machine.measured(engine, forward=2e-3, backward=2.5e-3, state=u)
        schedule = tierflow.adjoint.Tiered(steps, machine=machine)
        print(schedule.expected, schedule.bound, schedule.stored)

    Without `steps`, the length of the forward is unknown until `finalize` tells it; `engine` tells the schedule which links are idle. The
    schedule is exhausted once its states are used up.
    """

    def __init__(self, steps: int | None, *, machine: Machine, engine: Engine | None = None) -> None:
        super().__init__(steps)
        self._schedule = Schedule(machine, steps, engine)
        self._stored = self._schedule.stored
        self._is_exhausted = False

    @property
    def expected(self) -> float | None:
        """Seconds that forward and adjoint are expected to take; None until the number of steps is known."""
        return self._schedule.expected

    @property
    def bound(self) -> float | None:
        """Lower bound of the seconds that any schedule takes; None until the number of steps is known."""
        return self._schedule.bound

    @property
    def stored(self) -> int:
        """Number of states that the forward stores, as far as the schedule has chosen them."""
        return self._stored

    @property
    def is_exhausted(self) -> bool:
        """True if no further adjoint can be done."""
        return self._is_exhausted

    def uses_storage_type(self, storage_type: StorageType) -> bool:
        """Returns true if states may lie in a storage: only on disk, which stands for the engine."""
        return storage_type is StorageType.DISK

    def _chosen(self) -> Iterator[tuple[str, int, int]]:
        is_known = self._max_n is not None
        for action in self._schedule:
            self._stored += action[0] == "save" and not is_known
            yield action
            if not is_known and self._max_n is not None and action[2] == self._max_n:
                is_known = True
                self._schedule.end()

    def _iterator(self) -> Iterator[CheckpointAction]:
        disk, work = StorageType.DISK, StorageType.WORK
        chosen = self._chosen()
        # `saved`: the step whose state is stored when the forward goes on from it. `there`: the step whose state was restored.
        saved: int | None = None
        there: int | None = None
        action = next(chosen, None)
        while action is not None:
            kind, step, to = action
            following = next(chosen, None) if kind == "restart" else None
            if saved is not None and kind != "forget":
                # A pass that begins at a stored state, and its adjoint, need the same state as the step there.
                self._n = saved + 1
                yield Forward(saved, saved + 1, True, True, disk)
                step = step + 1 if kind == "forward" else step
                saved = None
            if kind == "save":
                saved = step
            elif kind == "forward":
                there = None
                if step < to:
                    self._n = to
                    yield Forward(step, to, False, False, StorageType.NONE)
            elif kind == "restart":
                there = step
                if following is not None and following[0] == "forget" and following[1] == step:
                    following = None
                    yield Move(step, disk, work)
                else:
                    yield Copy(step, disk, work)
            elif kind == "reverse":
                if there != step:
                    yield Forward(step, step + 1, False, True, work)
                self._r += 1
                yield Reverse(step + 1, step, True)
            elif kind == "forget":
                yield Move(step, disk, StorageType.NONE)
            else:
                yield EndForward()
            action = next(chosen, None) if following is None else following
        self._is_exhausted = True
        yield EndReverse()
