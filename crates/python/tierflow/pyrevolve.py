"""The snapshots of pyrevolve's revolvers, in an engine.

    checkpoint = DevitoCheckpoint([u])
    revolver = tierflow.pyrevolve.Revolver(engine, checkpoint, forward, reverse, 20, steps)
    revolver.apply_forward()
    revolver.apply_reverse()

A revolver keeps some states and computes the others anew. The order in which it will restore them is known ahead, and becomes the hints.
If the engine can hold the whole history, no state needs to be computed twice: see `tierflow.devito.History` and `tierflow.adjoint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pyrevolve.pyrevolve import SingleLevelRevolver
from pyrevolve.schedulers import Action
from pyrevolve.storage import Storage as _Storage

from ._errors import NoRoomError
from ._refusals import check_keeps

if TYPE_CHECKING:
    from ._tierflow import Engine

__all__ = ["Revolver", "Storage"]


class Storage(_Storage):  # type: ignore[misc]
    """A storage of pyrevolve with `n_ckp` snapshots, each of `size_ckp` numbers of `dtype`. A `MultiLevelRevolver` can have it in its list, too.

    The engine must keep versions that were restored (`after_restore="keep"`), as a revolver restores some more than once. A snapshot that
    another one replaces is discarded. Versions take the next numbers from `first` on; another storage in the same engine may begin at
    `next_version`. `wd` and `rd` are the costs of a write and a read, for schedules that use them; `name` is the storage's name in pyrevolve's
    reports.
    """

    def __init__(
        self,
        engine: Engine,
        size_ckp: int,
        n_ckp: int,
        dtype: Any,
        *,
        first: int = 0,
        wd: float = 0,
        rd: float = 0,
        name: str = "Tierflow",
    ) -> None:
        check_keeps(engine)
        super().__init__(size_ckp, n_ckp, dtype, None, wd=wd, rd=rd, name=name)
        self._engine = engine
        self._versions: dict[int, int] = {}
        self.next_version = first

    def hint(self, actions: Iterable[Any]) -> None:
        """Hints the versions that a schedule's `actions` will load, if the actions name snapshots by their number."""
        versions, following, loads = dict(self._versions), self.next_version, []
        for action in actions:
            if action.type == Action.TAKESHOT:
                versions[action.ckp] = following
                following += 1
            elif action.type == Action.RESTORE:
                loads.append(versions[action.ckp])
        self._engine.hint(loads)

    def save(self, key: int, data_pointers: Sequence[Any]) -> None:
        arrays = [np.ascontiguousarray(data) for data in data_pointers]
        try:
            self._engine.checkpoint(self.next_version, *arrays)
        except NoRoomError:
            if key not in self._versions:
                raise
            # The new snapshot takes the room of the old one.
            self._engine.discard(self._versions.pop(key))
            self._engine.checkpoint(self.next_version, *arrays)
        earlier, self._versions[key] = self._versions.get(key), self.next_version
        self.next_version += 1
        if earlier is not None:
            self._engine.discard(earlier)

    def load(self, key: int, locations: Sequence[Any]) -> None:
        # An array that is not contiguous is restored to a new array, and copied.
        there = [data if data.flags.c_contiguous else np.empty(data.shape, data.dtype) for data in locations]
        self._engine.restore(self._versions[key], *there)
        for data, copy in zip(locations, there, strict=True):
            if copy is not data:
                data[...] = copy

    def clear(self) -> None:
        """Discards the snapshots that are left."""
        for version in self._versions.values():
            self._engine.discard(version)
        self._versions.clear()


class Revolver(SingleLevelRevolver):  # type: ignore[misc]
    """pyrevolve's revolver of one level, whose snapshots are versions of `engine`. The versions that it will load become hints.

    Versions are numbered from `first` on. `checkpoint`, `fwd_operator`, `rev_operator`, `n_checkpoints`, `n_timesteps` and `options` are those
    of pyrevolve's own `SingleLevelRevolver`.
    """

    def __init__(
        self,
        engine: Engine,
        checkpoint: Any,
        fwd_operator: Any,
        rev_operator: Any,
        n_checkpoints: int | None,
        n_timesteps: int,
        *,
        first: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(checkpoint, fwd_operator, rev_operator, n_checkpoints, n_timesteps, **options)
        self.storage = Storage(engine, checkpoint.size, self.n_checkpoints, checkpoint.dtype, first=first)
        self.storage.hint(self.scheduler.oplist)
        self.resetStorageList()
        self.addStorage(self.storage)
