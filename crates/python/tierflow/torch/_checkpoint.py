"""Checkpoints of `torch.distributed.checkpoint` as versions of an engine.

A rank's piece of a version has the items that DCP gives it to write: tensors, each at a multiple of 64 bytes, then pickled values. On the
coordinator, DCP's metadata follows. A footer ends the piece and says where the metadata is.
"""

from __future__ import annotations

import io
import pickle
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import storage
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
)
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future
from torch.utils.dlpack import from_dlpack

from .._errors import ArgumentError, StorageError
from .._tierflow import Engine, Repository
from ._layout import ALIGNMENT, bytes_of
from ._staging import FOOTER, MAGIC, Staged, Staging, footer, of_bytes

if TYPE_CHECKING:
    import concurrent.futures
    from os import PathLike

__all__ = ["StorageReader", "StorageWriter"]

# Bytes that are read to main memory by one call at most.
_BATCH = 256 << 20


class Stored(NamedTuple):
    """The place of an item of DCP, which is pickled as a part of the metadata."""

    rank: int
    offset: int
    bytes: int
    # Type and size of a tensor; None and () for a pickled value.
    dtype: torch.dtype | None
    size: tuple[int, ...]


def _number(checkpoint_id: str | PathLike[str] | int) -> int:
    try:
        number = int(str(checkpoint_id))
    except ValueError:
        number = -1
    if number < 0:
        raise ArgumentError(f"a checkpoint_id is a version, as in checkpoint_id=7, and not {checkpoint_id!r}")
    return number


class _Piece:
    """A rank's piece that was not staged: arrays of bytes, one after the other."""

    def __init__(self, engine: Engine, version: int) -> None:
        self._engine, self._version = engine, version
        self._on_host = engine.device == "host"
        self._arrays: list[torch.Tensor] = []
        self._end = 0

    def add(self, bytes: torch.Tensor) -> int:
        gap = -self._end % ALIGNMENT
        if gap:
            self._arrays.append(torch.zeros(gap, dtype=torch.uint8))
        at = self._end + gap
        self._arrays.append(bytes.cpu() if self._on_host else bytes)
        self._end = at + bytes.nbytes
        return at

    def commit(self, metadata: bytes) -> None:
        last = footer(self.add(of_bytes(metadata)), metadata)
        self._engine.checkpoint(self._version, *(array for array in self._arrays if array.nbytes), last)

    def give_up(self) -> None:
        self._arrays.clear()


class _Now(threading.local):
    """The piece that this thread is writing. Other threads may write other pieces."""

    piece: _Piece | Staged | None = None


class StorageWriter(storage.StorageWriter, AsyncStager):
    """For `dcp.save` and `dcp.async_save`: a checkpoint becomes a version of `engine`.

    `version` is the number of the version, for one save; `checkpoint_id=` of `dcp.save` is another way to give it. Without both, the
    writer takes the next free number. The writer's attribute `version` tells the number. A save is over when the engine has the bytes;
    `engine.wait()` waits until they are durable, and raises the error that prevents it.

    The writer is the stager of `dcp.async_save`, too: it copies tensors to the engine beside the work that follows. If an optimizer was seen to
    step before, its next step comes after the copies of its tensors. All other work comes after the copies of all other tensors, such as the
    statistics of a normalization, which a forward pass changes. A program that changes an optimizer's tensors in another way, or frees memory by
    `resize_`, must first wait for the `staging_completion` that `async_save` returns.

    Saves may overlap. If a save fails, `async_save` raises nothing; the object that it returns raises the error, on all ranks.

    A step that is shorter than the copies waits for them at its end. DCP plans and writes in a thread beside the step, once an optimizer
    updates or a quarter of a second is over: earlier, the thread would delay the launches of the step's kernels.

    The engine has the same `rank` and `ranks` as the process group. `spare` is the bytes of room for values that are known only after staging.
    The default is more than enough, unless an error says otherwise.

    A state that goes to host memory leaves by the bus, and the next update waits for that. `staging_buffer` bytes of the GPU's memory shorten
    the wait: the last tensors of the state, as many as fit, are copied to the buffer within the GPU, and leave after the update. The writer has
    the buffer from its first checkpoint on until `close`.
    """

    def __init__(
        self,
        engine: Engine,
        version: int | None = None,
        *,
        spare: int | None = None,
        staging_buffer: int = 0,
    ) -> None:
        super().__init__()
        self.version = version
        self._engine = engine
        self._named = version
        self._finishes = True
        self._now = _Now()
        self._staging = Staging(engine, spare, staging_buffer)

    # Staging.

    def stage(self, state_dict: dict[str, Any]) -> concurrent.futures.Future[dict[str, Any]]:
        """Copies the tensors of `state_dict` to the engine. Raises nothing: the save raises the error, on all ranks."""
        return self._staging.begin(lambda: self._next() if self._named is None else self._named, state_dict)

    def close(self) -> None:
        """Frees the staging buffer on the GPU. Call this after the last checkpoint is saved."""
        self._staging.close()

    # Saving.

    def reset(self, checkpoint_id: str | PathLike[str] | int | None = None) -> None:
        if checkpoint_id is not None:
            self._named = _number(checkpoint_id)
        self._now.piece = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        rank, ranks = self._engine.group
        own = (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)
        if (rank, ranks) != own and ranks != 1:
            raise ArgumentError(
                f"the engine is rank {rank} of {ranks}, and the process {own[0]} of {own[1]}: build it with those"
            )
        if ranks == 1 and own[1] > 1 and kwargs.get("use_collectives", True):
            raise ArgumentError(
                f"the engine is of one process, and there are {own[1]}: build it with rank={own[0]}, ranks={own[1]} and external="
            )
        # The rank that has the metadata writes last.
        self._finishes = is_coordinator or not kwargs.get("use_collectives", True)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        staged = self._staging.staged_as()
        if staged is None:
            return replace(plan, storage_data=self._next() if self._named is None else self._named)
        if self._named not in (None, staged):
            text = f"it was staged as version {staged}: make StorageWriter(engine, version={self._named}) for that"
            raise ArgumentError(text)
        return replace(plan, storage_data=staged)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        versions = {plan.storage_data for plan in plans}
        if len(versions) > 1 and (self._named is not None or self._staging.staged_as() is not None):
            raise ArgumentError(f"ranks save versions {sorted(versions)}: give all of them the same version=")
        return [replace(plan, storage_data=max(versions)) for plan in plans]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self.version = plan.storage_data
        staged = self._staging.take()
        self._now.piece = piece = _Piece(self._engine, plan.storage_data) if staged is None else staged
        rank, _ = self._engine.group
        results = []
        try:
            for item in plan.items:
                data = planner.resolve_data(item)
                if isinstance(data, io.BytesIO):
                    bytes = of_bytes(data.getvalue())
                    stored = Stored(rank, piece.add(bytes), bytes.nbytes, None, ())
                else:
                    at = None if staged is None else staged.place(data)
                    at = piece.add(bytes_of(data)) if at is None else at
                    stored = Stored(rank, at, data.nbytes, data.dtype, tuple(data.size()))
                results.append(WriteResult(item.index, stored.bytes, stored))
        except BaseException:
            piece.give_up()
            raise
        if not self._finishes:
            self._commit(b"")
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.storage_data = {one.index: one.storage_data for of_rank in results for one in of_rank}
        metadata.storage_meta = self.storage_meta()
        self._commit(pickle.dumps(metadata))

    def _commit(self, metadata: bytes) -> None:
        piece, self._now.piece = self._now.piece, None
        if piece is None:
            raise RuntimeError("finish comes after write_data")
        try:
            piece.commit(metadata)
        except BaseException:
            piece.give_up()
            raise

    def _next(self) -> int:
        return self._engine.reserve(1).start

    def storage_meta(self) -> StorageMeta:
        # DCP calls this before it reads the state.
        self._staging.settle()
        return StorageMeta(checkpoint_id=None if self.version is None else str(self.version))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | PathLike[str]) -> bool:
        return str(checkpoint_id).isdecimal()


class StorageReader(storage.StorageReader):
    """For `dcp.load`: reads a version of an engine, or of the directory of a group of any size. DCP reshards it.

    `source` is the engine, or the directory that was its `external=` or `node_local=`. `version` is the number of the version;
    `checkpoint_id=` is another way to give it; without both, the newest version is read. A piece that the engine itself holds is read from
    its tiers. Pieces of other ranks are read from durable storage; the reader waits for them for `timeout` seconds at most.
    """

    def __init__(
        self, source: Engine | str | PathLike[str], version: int | None = None, *, timeout: float = 60.0
    ) -> None:
        super().__init__()
        self.version = version
        self._engine = source if isinstance(source, Engine) else None
        self._directory = source.directory if isinstance(source, Engine) else source
        self._named = version
        self._timeout = timeout
        self._metadata: Metadata | None = None

    def reset(self, checkpoint_id: str | PathLike[str] | int | None = None) -> None:
        if checkpoint_id is not None:
            self._named = _number(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self.version = self._choose()
        self._list()
        rank = kwargs.get("rank") or 0
        with self._source(rank) as source:
            size = source.size()
            magic, at, length = b"", 0, 0
            if size >= FOOTER.size:
                (last,) = source.read([(size - FOOTER.size, FOOTER.size)])
                magic, at, length = FOOTER.unpack(bytes(last.tolist()))
            if magic != MAGIC or not 0 < length <= size - at:
                raise StorageError(
                    f"version {self.version} of rank {rank} has no metadata of torch.distributed.checkpoint"
                )
            (pickled,) = source.read([(at, length)])
        # DCP's own reader does the same: every process that can write to the directory is trusted.
        metadata: Metadata = pickle.loads(pickled.cpu().numpy().tobytes())
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._metadata = metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        if self._metadata is None:
            raise RuntimeError("read_data comes after set_up_storage_reader")
        stored: dict[MetadataIndex, Stored] = self._metadata.storage_data

        def rank(item: Any) -> int:
            return stored[item.storage_index].rank

        for of_rank, items in groupby(sorted(plan.items, key=rank), key=rank):
            with self._source(of_rank) as source:
                for batch in _batches(items, stored):
                    ranges = [(one.offset, one.bytes) for one, _ in batch]
                    for (one, requests), bytes in zip(batch, source.read(ranges), strict=True):
                        for request, within in requests:
                            _load(planner, request, one, bytes, within)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _choose(self) -> int:
        if self._named is not None:
            return self._named
        newest = None if self._engine is None else self._engine.latest()
        if newest is None and self._directory is not None:
            newest = Repository(self._directory).latest()
        if newest is None:
            raise StorageError("there is no checkpoint yet")
        return newest

    def _source(self, rank: int) -> _Slot | _File:
        version, engine = self.version, self._engine
        assert version is not None
        if engine is not None and engine.group[0] == rank and version in engine.versions():
            held = engine.restore_size(version)
            if self._directory is None or engine.metrics()["tiers"][0]["capacity"] >= held:
                return _Slot(engine, version)
        if self._directory is None:
            raise ArgumentError(
                f"the engine does not hold version {version}, nor does it have a directory: see versions()"
            )
        return _File(self._whole(version), version, rank)

    def _list(self) -> None:
        """Waits on rank 0 until the engine's version is durable, as the other ranks read this rank's piece from the directory."""
        engine, version = self._engine, self.version
        if engine is None or self._directory is None or engine.group[1] == 1 or engine.group[0] != 0:
            return
        if version in engine.versions():
            engine.wait_version(version, timeout=self._timeout)

    def _whole(self, version: int) -> Repository:
        """Waits until all ranks' pieces of a version are in the directory, and returns the repository."""
        assert self._directory is not None
        begun = time.monotonic()
        if self._engine is not None and version in self._engine.versions():
            self._engine.wait_version(version, timeout=self._timeout)
        while True:
            try:
                repository = Repository(self._directory)
                if version in (there := repository.versions()):
                    return repository
                failed = StorageError(f"version {version} is not whole in {self._directory}: there are {there}")
            except StorageError as error:
                # An object store that does not answer now may answer soon.
                failed = error
            if self._engine is None or time.monotonic() - begun > self._timeout:
                raise failed
            # Other ranks are still writing.
            time.sleep(0.05)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | PathLike[str]) -> bool:
        return str(checkpoint_id).isdecimal()


class _Slot:
    """The piece of this process, in the engine."""

    def __init__(self, engine: Engine, version: int) -> None:
        self._slot = engine.consume(version)
        try:
            self._bytes: torch.Tensor | None = from_dlpack(self._slot)
        except BaseException:
            # A slot that is dropped counts the version as consumed, and nothing was read.
            self._slot.give_back()
            raise

    def __enter__(self) -> _Slot:
        return self

    def __exit__(self, *_: object) -> None:
        # A read does not consume the version.
        self._bytes = None
        self._slot.give_back()

    def size(self) -> int:
        return self._slot.nbytes

    def read(self, ranges: Iterable[tuple[int, int]]) -> Iterator[torch.Tensor]:
        assert self._bytes is not None
        # Copies, as CUDA refuses to copy from memory that an engine pinned in parts.
        return (self._bytes[at : at + length].clone() for at, length in ranges)


class _File:
    """Any rank's piece, in durable storage."""

    def __init__(self, repository: Repository, version: int, rank: int) -> None:
        self._repository, self._version, self._rank = repository, version, rank

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def size(self) -> int:
        return self._repository.size(self._version, self._rank)

    def read(self, ranges: Iterable[tuple[int, int]]) -> Iterator[torch.Tensor]:
        ranges = list(ranges)
        read = [torch.empty(length, dtype=torch.uint8) for _, length in ranges]
        self._repository.read(self._version, self._rank, [at for at, _ in ranges], *read)
        return iter(read)


# An item to read, and its requests, each with the offsets in the item's tensor, or in the rows of it, at which the request begins.
_Wanted = tuple[Stored, list[tuple[Any, tuple[int, ...]]]]


def _batches(items: Iterable[Any], stored: dict[MetadataIndex, Stored]) -> Iterator[list[_Wanted]]:
    """Yields batches of items to read. Each item is read once. If an item has a single request, only the rows of the request are read."""
    requests: dict[Stored, list[Any]] = {}
    for item in items:
        requests.setdefault(stored[item.storage_index], []).append(item)
    batch: list[_Wanted] = []
    size = 0
    for one, wanted in requests.items():
        if len(wanted) == 1 and one.dtype is not None and one.size:
            one, offsets = _rows(one, wanted[0])
            found = [(wanted[0], offsets)]
        else:
            found = [(item, tuple(item.storage_offsets)) for item in wanted]
        if batch and size + one.bytes > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append((one, found))
        size += one.bytes
    if batch:
        yield batch


def _rows(one: Stored, item: Any) -> tuple[Stored, tuple[int, ...]]:
    """Returns the rows of a tensor that a request needs, and the offsets in these rows at which the request begins."""
    row = one.bytes // max(1, one.size[0])
    first, count = item.storage_offsets[0], item.lengths[0]
    rows = one._replace(offset=one.offset + first * row, bytes=count * row, size=(count, *one.size[1:]))
    return rows, (0, *item.storage_offsets[1:])


def _load(planner: LoadPlanner, item: Any, one: Stored, bytes: torch.Tensor, offsets: tuple[int, ...]) -> None:
    if item.type == LoadItemType.BYTE_IO:
        planner.load_bytes(item, io.BytesIO(bytes.cpu().numpy().tobytes()))
        return
    assert one.dtype is not None
    assert prod(one.size) * one.dtype.itemsize == one.bytes
    tensor = bytes.view(one.dtype).view(one.size)
    for dimension, (start, length) in enumerate(zip(offsets, item.lengths, strict=True)):
        tensor = tensor.narrow(dimension, start, length)
    target = planner.resolve_tensor(item).detach()
    target.copy_(tensor)
    planner.commit_tensor(item, target)
