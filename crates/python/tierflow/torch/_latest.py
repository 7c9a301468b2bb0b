"""The newest version of `torch.distributed.checkpoint` that all ranks can load."""

from __future__ import annotations

import logging
from os import PathLike
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.futures import Future

from .._errors import DamagedError
from .._tierflow import Engine, Repository
from ._checkpoint import StorageReader

__all__ = ["load_latest"]

_log = logging.getLogger("tierflow")


def load_latest(
    source: Engine | str | PathLike[str], state: dict[str, Any], *, process_group: dist.ProcessGroup | None = None
) -> int | None:
    """Loads the newest version into `state`, as `dcp.load` does, and returns its number; `None` if there is none yet. All ranks call it.

    The ranks agree on the version. One that is damaged on any rank is logged and the next older one tried on all; if all are, `DamagedError`
    is raised. `source` is what `StorageReader` takes.
    """
    versions = source if isinstance(source, Engine) else Repository(source)
    first: str | None = None
    before: int | None = None
    while True:
        offered = _of_all(versions.latest(before), process_group)
        if None in offered:
            break
        version = before = min(offered)
        reader = _Reader(source, version)
        try:
            load(state, storage_reader=reader, process_group=process_group)
        except CheckpointException:
            damage = [text for text in _of_all(reader.damage, process_group) if text is not None]
            if not damage:
                raise
            first = first or damage[0]
            _log.warning("version %d is damaged, an older one is tried: %s", version, damage[0])
        else:
            return int(version)
    if first is not None:
        raise DamagedError(first)
    return None


class _Reader(StorageReader):
    """Remembers damage, of which DCP hands on no more than the text."""

    damage: str | None = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        try:
            return super().read_metadata(*args, **kwargs)
        except DamagedError as damaged:
            self.damage = str(damaged)
            raise

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        try:
            return super().read_data(plan, planner)
        except DamagedError as damaged:
            self.damage = str(damaged)
            raise


def _of_all(one: Any, process_group: dist.ProcessGroup | None) -> list[Any]:
    """What all ranks have."""
    if not dist.is_initialized():
        return [one]
    gathered: list[Any] = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(gathered, one, group=process_group)
    return gathered
