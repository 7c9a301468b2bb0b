"""Loads the newest version of `torch.distributed.checkpoint` that all ranks can load."""

from __future__ import annotations

from os import PathLike
from typing import Any, SupportsIndex

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load

from .._engine import Versions
from .._errors import DamagedError, UnknownVersionError
from .._tierflow import Engine, Repository
from ._checkpoint import StorageReader

__all__ = ["load_latest"]


def load_latest(
    source: Engine | str | PathLike[str], state: dict[str, Any], *, process_group: dist.ProcessGroup | None = None
) -> int | None:
    """Loads the newest version into `state`, as `dcp.load` does, and returns its number; `None` if there is no version yet. All ranks call it.

    The ranks agree on the version. If a version is damaged on any rank, that is logged, and all ranks try the next older one. If all versions are
    damaged, `load_latest` raises `DamagedError`. `source` is that of `StorageReader`. `process_group` has the ranks; without it, all ranks of the
    default group.
    """
    found = _OfAllRanks(source, process_group).load_latest(state)
    return None if found is None else found[0]


class _OfAllRanks(Versions):
    """The versions that all ranks have. The ranks load a version together."""

    def __init__(self, source: Engine | str | PathLike[str], process_group: dist.ProcessGroup | None) -> None:
        self._source, self._process_group = source, process_group
        self._versions = source if isinstance(source, Engine) else Repository(source)

    def latest(self, before: SupportsIndex | None = None) -> int | None:
        while True:
            offered = self._of_all(self._versions.latest(before))
            if None in offered or min(offered) == max(offered):
                return None if None in offered else offered[0]
            # Some rank has no version from here on, so all ranks look for the oldest of these and older ones.
            before = min(offered) + 1

    def load(self, version: int, state: dict[str, Any]) -> None:
        try:
            load(state, storage_reader=StorageReader(self._source, version), process_group=self._process_group)
        except CheckpointException as failed:
            # On every rank, the exception has the errors of all ranks.
            errors = [error for error, _ in failed.failures.values()]
            gone = [error for error in errors if isinstance(error, DamagedError | UnknownVersionError)]
            if not gone:
                raise
            raise gone[0] from None

    def _of_all(self, one: Any) -> list[Any]:
        """Returns the values `one` of all ranks."""
        if not dist.is_initialized():
            return [one]
        gathered: list[Any] = [None] * dist.get_world_size(self._process_group)
        dist.all_gather_object(gathered, one, group=self._process_group)
        return gathered
