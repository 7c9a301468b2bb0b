"""The classes `Engine` and `Repository`: save trees of arrays as versions, and load them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from itertools import accumulate
from operator import index as int_of
from typing import Any, SupportsIndex

from . import _tierflow
from ._attempts import log
from ._errors import ArgumentError, ArrayError, DamagedError, TierflowError, UnknownVersionError
from ._leaf import Leaf, Stored, stored
from ._metrics import shown_bytes
from ._tree import ANEW, framework, subtree, unflatten

__all__ = ["Engine", "Repository", "StoredArray", "Versions"]

# The name of the region with the tree's structure. No array has this name, as a tilde in an array's name precedes a digit.
_STRUCTURE = "~tree"

# An index as NumPy takes it, of one axis or of several.
_Index = Any
_Select = str | Iterable[str] | Mapping[str, _Index]


class Versions:
    """The common base of engines and repositories, which are collections of versions."""

    __slots__ = ()

    # The subclasses define these.
    versions: Callable[[], list[int]]
    latest: Callable[..., int | None]
    load: Callable[..., Any]

    def load_latest(
        self, into: Any = None, *, before: SupportsIndex | None = None, **options: Any
    ) -> tuple[int, Any] | None:
        """Returns the newest version that can be loaded, and the tree that `load` returns for it with these `options`; `None` if there is no
        version.

        With `before`, only versions of smaller numbers count. `into` is filled as by `load`. If a version is damaged, `load_latest` logs that and
        tries the next older one. If all versions are damaged, it raises the error of the newest.
        """
        first: TierflowError | None = None
        version = self.latest(before)
        while version is not None:
            try:
                return version, self.load(version, into, **options)
            # A version that is unknown was removed meanwhile.
            except (DamagedError, UnknownVersionError) as error:
                first = first or error
                log.warning("version %d cannot be loaded, an older one is tried: %s", version, error)
            version = self.latest(version)
        if first is not None:
            raise first
        return None

    def __contains__(self, version: object) -> bool:
        return version in self.versions()

    def __len__(self) -> int:
        return len(self.versions())

    def __iter__(self) -> Iterator[int]:
        return iter(self.versions())


class Engine(Versions, _tierflow.Engine):
    __slots__ = ()
    __doc__ = _tierflow.Engine.__doc__

    def save(
        self,
        version: SupportsIndex,
        tree: Any,
        *,
        pickle: bool = False,
        stream: Any = None,
        timeout: float | None = None,
    ) -> None:
        """Takes in a tree as `version`, as `checkpoint` takes in arrays. When `save` returns, the program may change the arrays.

        A tree is any nesting of dicts, lists, tuples, dataclasses and named tuples. The leaves are arrays of NumPy, CuPy, PyTorch and JAX,
        and None, bools, numbers, texts and bytes. Each array becomes a region, named after its place, such as "model/layers.0.weight"; all
        other leaves are JSON in one more region.

        With `pickle`, any other value is pickled. Without it, such a value raises `ArgumentError`, and nothing is saved. `stream` and
        `timeout` are those of `checkpoint`.
        """
        found, structure, is_plain = _tierflow.flatten(tree, pickle)
        text = f'{{"tree":1,"root":{structure}}}'.encode()
        names, arrays = [_STRUCTURE, *found], list(found.values())
        if is_plain:
            # Nearly all arrays can be stored as they are, and a look at each array takes longer than the rest of the call.
            with suppress(ArrayError, BufferError):
                return self.checkpoint(version, text, *arrays, names=names, stream=stream, timeout=timeout)
        on_host = self.device == "host"
        arrays = [stored(array, framework(array) or "", on_host) for array in arrays]
        return self.checkpoint(version, text, *arrays, names=names, stream=stream, timeout=timeout)

    def load(
        self,
        version: SupportsIndex,
        into: Any = None,
        *,
        select: _Select | None = None,
        plain: bool = False,
        pickle: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Returns the tree of `version`, which stays as it is: held, and not consumed.

        The arrays are new ones of the framework that they were saved from, in main memory, or on JAX's default device. If `into` is given,
        it is a tree like the saved one, and its arrays are filled in place; an array that lies in several places gets the bytes of the last
        of them. The tree that `load` returns has those arrays; its JAX arrays
        and plain values are new, and JAX arrays have the shardings of `into`.

        `select` reads a part of the tree. With a way, such as "model/layers.0.weight" or "model", `load` returns the part that lies there.
        With a list of ways, it returns a dict of these parts. With a dict of ways and indices, such as `{"field": np.s_[10:20, ::2]}`, it
        returns a dict of parts of arrays.

        Dataclasses and named tuples have the classes of `into`, or of loaded modules; no `__init__` runs. With `plain`, they become dicts,
        and all arrays are NumPy's. Pickled values are unpickled only with `pickle`: pass it if you trust the writer of the version.
        Versions of `checkpoint` are dicts of their regions. Raises `TimedOutError` if the call takes longer than `timeout` seconds.
        """
        return _OfEngine(self, int(version), timeout).load(into, select, plain, pickle)

    def array(
        self, version: SupportsIndex, way: str, *, plain: bool = False, timeout: float | None = None
    ) -> StoredArray:
        """Returns the array that lies at `way` in the tree of `version`, without reading it. Indexing reads a part: an array of the
        framework that it was saved from, or of NumPy with `plain`. Reading a part waits for `timeout` seconds at most.
        """
        return StoredArray(_OfEngine(self, int(version), timeout), way, plain)

    def flushes(self, timeout: float | None = None) -> Flushes:
        """Returns the versions that are not durable yet. Iterating over them, smallest number first, waits until each version is durable or
        discarded, for `timeout` seconds at most each:

        for version in tqdm(engine.flushes()): ...
        """
        return Flushes(self, timeout)

    def plot(self, axes: Any = None) -> Any:
        """Draws the time line that `timeline=` asked for: a row for each calling thread, each worker and each tier's evictions.

        Returns the axes: `axes`, or new ones of matplotlib if that is None.
        """
        from ._plot import plot_timeline

        return plot_timeline(self, axes)

    @property
    def next_version(self) -> int:
        """A number above all that versions have or had, that hints name, and that were reserved. Reading it reserves nothing."""
        return self.reserve(0).start

    def __bool__(self) -> bool:
        # An engine without versions is true, too.
        return True

    def __repr__(self) -> str:
        if self.closed:
            return "<tierflow.Engine, closed>"
        tiers = [f"{tier['name']} {_fill(tier)}" for tier in self.metrics()["tiers"]]
        versions = "1 version" if len(self) == 1 else f"{len(self)} versions"
        return f"<tierflow.Engine on {self.device}, {versions}: {', '.join(tiers)}>"


def _fill(tier: dict[str, Any]) -> str:
    used, holds = shown_bytes(tier["used"]), tier["capacity"]
    # So large a capacity means that the tier has no limit.
    return used if holds >= 1 << 60 else f"{used} of {shown_bytes(holds)} ({tier['used'] / max(holds, 1):.0%})"


class Repository(Versions, _tierflow.Repository, Mapping[int, Any]):
    __doc__ = (
        f"{_tierflow.Repository.__doc__}\n\n"
        "It is a mapping of versions to the trees of rank 0, each read when it is asked for, as `load` does."
    )

    def load(
        self,
        version: SupportsIndex,
        into: Any = None,
        *,
        rank: SupportsIndex = 0,
        select: _Select | None = None,
        plain: bool = False,
        pickle: bool = False,
    ) -> Any:
        """Returns the tree of `rank`'s piece of `version`. `into`, `select`, `plain` and `pickle` are those of `Engine.load`. With `select`,
        only the selected part is read.
        """
        return _OfRepository(self, int(version), int(rank)).load(into, select, plain, pickle)

    def array(self, version: SupportsIndex, way: str, *, rank: SupportsIndex = 0, plain: bool = False) -> StoredArray:
        """Returns the array that lies at `way` in the tree of `rank`'s piece of `version`, without reading it. Indexing reads a part: an array
        of the framework that it was saved from, or of NumPy with `plain`.
        """
        return StoredArray(_OfRepository(self, int(version), int(rank)), way, plain)

    def __getitem__(self, version: int) -> Any:
        if version not in self:
            raise KeyError(version)
        return self.load(version)

    # `Mapping` would compare the trees, and read all of them.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Flushes:
    """Versions on their way to durable storage, as they were when this object was made."""

    def __init__(self, engine: Engine, timeout: float | None) -> None:
        self._engine, self._timeout = engine, timeout
        self._versions = [version for version in engine.versions() if not engine.is_durable(version)]

    def __len__(self) -> int:
        return len(self._versions)

    def __iter__(self) -> Iterator[int]:
        for version in self._versions:
            # The retention, or a call of `discard`, may remove a version meanwhile.
            with suppress(UnknownVersionError):
                self._engine.wait_version(version, self._timeout)
            yield version


class StoredArray:
    """An array of a version that is read by parts. An index of ints and slices reads the rows that it needs. `dask.array.from_array`,
    `numpy.asarray`, and assignments to arrays of Zarr take the object. `Engine.array` and `Repository.array` make it, of the `piece` that they
    read, and with their arguments `way` and `plain`.
    """

    def __init__(self, piece: _Piece, way: str, plain: bool) -> None:
        node = subtree(piece.structure, way)
        if not isinstance(node, dict) or "array" not in node:
            raise ArgumentError(f"{way!r} is no array, of which a part could be read")
        self._piece, self._way, self._name = piece, way, node["array"]
        self._of = "numpy" if plain else node["of"]
        self._stored = piece.regions[self._name]
        self.shape = self._stored.shape

    @cached_property
    def dtype(self) -> Any:
        # An index without rows reads nothing.
        return (self[:0] if self.shape else self[()]).dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: _Index) -> Any:
        shape = self.shape
        steps = list(index) if isinstance(index, tuple) else [index]
        at = next((at for at, step in enumerate(steps) if step is Ellipsis), None)
        if at is not None:
            steps[at : at + 1] = [slice(None)] * (len(shape) - len(steps) + 1)
        if len(steps) > len(shape) or not all(isinstance(step, slice) or _is_int(step) for step in steps):
            raise ArgumentError(f"{index!r} is no index of {self._way!r}, of shape {shape}: pass ints and slices")
        if steps:
            first, last, at = _rows(steps[0], shape[0])
            leaf = Leaf(self._stored._replace(shape=(last - first, *shape[1:])), self._of, None)
            skipped = leaf.buffer.nbytes // max(1, last - first) * first
            if not leaf.buffer.nbytes or self._piece.read_rows(self._name, skipped, leaf.buffer):
                return self._indexed(leaf.value(), [at, *steps[1:]])
        leaf = Leaf(self._stored, self._of, None)
        self._piece.read({self._name: leaf.buffer})
        return self._indexed(leaf.value(), steps)

    def _indexed(self, array: Any, steps: list[Any]) -> Any:
        if self._of == "torch":
            # PyTorch has no slices with a negative step: the elements are those of a flipped array.
            for axis, step in enumerate(steps):
                if isinstance(step, slice) and (step.step or 1) < 0:
                    rows, last = range(array.shape[axis])[step], array.shape[axis] - 1
                    array = array.flip(axis)
                    steps[axis] = slice(last - rows[0], last - rows[-1] + 1, -rows.step) if rows else slice(0, 0)
        return array[tuple(steps)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return import_module("numpy").asarray(self[...], dtype=dtype)


class _Piece(ABC):
    """A rank's part of a version. Subclasses read it from an engine or a repository."""

    def __init__(self, layout: list[tuple[str, str | None, list[int], int]]) -> None:
        self.regions = {name: Stored(dtype, tuple(shape)) for name, dtype, shape, _ in layout}
        self.sizes = {name: bytes for name, *_, bytes in layout}

    @abstractmethod
    def read(self, arrays: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def read_rows(self, name: str, offset: int, array: Any) -> bool:
        """Reads a region's bytes from `offset` on. Returns false if the region can only be read as a whole."""

    @cached_property
    def structure(self) -> Any:
        if _STRUCTURE not in self.sizes:
            return {"dict": [[name, {"array": name, "of": "numpy"}] for name in self.sizes]}
        text = bytearray(self.sizes[_STRUCTURE])
        self.read({_STRUCTURE: text})
        told = json.loads(text)
        if told.get("tree") != 1:
            raise ArgumentError("a newer Tierflow saved the tree: install that")
        return told["root"]

    def load(self, into: Any, select: _Select | None, plain: bool, pickle: bool) -> Any:
        structure = self.structure
        if isinstance(select, Mapping):
            if into is not None:
                raise ArgumentError("parts of arrays are new: leave out into=, or name whole ones in select=[...]")
            return {way: StoredArray(self, way, plain)[index] for way, index in select.items()}
        if isinstance(select, str):
            structure = subtree(structure, select)
        elif select is not None:
            structure = {"dict": [[way, subtree(structure, way)] for way in select]}
        leaves: dict[str, Leaf] = {}

        def found(name: str, of: str, target: Any) -> Any:
            kind = "numpy" if plain and of != "scalar" else of
            leaves[name] = Leaf(self.regions[name], kind if target is None else framework(target) or of, target)

        target = ANEW if into is None else into
        # The first call finds the arrays to read, and the second one makes the tree of the arrays that were read.
        unflatten(structure, found, into=target, plain=plain, pickle=pickle)
        # Of leaves that are one array, such as tied weights, the last is read.
        names = {leaf.memory: name for name, leaf in leaves.items()}.values()
        if leaves:
            self.read({name: leaves[name].buffer for name in names})
        values = {name: leaf.value() for name, leaf in leaves.items()}
        return unflatten(structure, values, into=target, plain=plain, pickle=pickle)


class _OfEngine(_Piece):
    def __init__(self, engine: Engine, version: int, timeout: float | None) -> None:
        super().__init__(engine.layout(version))
        self._engine, self._version, self._timeout = engine, version, timeout

    def read(self, arrays: Mapping[str, Any]) -> None:
        self._engine.restore_regions(self._version, arrays, timeout=self._timeout)

    def read_rows(self, name: str, offset: int, array: Any) -> bool:
        """Reads from the directory, which can read parts. A version that lies there as a difference or compressed has no such parts."""
        engine, directory = self._engine, self._engine.directory
        if directory is None or not engine.is_durable(self._version):
            return False
        try:
            return _OfRepository(Repository(directory), self._version, engine.group[0]).read_rows(name, offset, array)
        except TierflowError:
            # The engine may have other copies. If it has none, its own read raises the error.
            return False


class _OfRepository(_Piece):
    def __init__(self, repository: Repository, version: int, rank: int) -> None:
        layout = repository.layout(version, rank)
        super().__init__(layout)
        self._repository, self._version, self._rank = repository, version, rank
        ends = accumulate((bytes for *_, bytes in layout), initial=0)
        self._begins = {name: begin for (name, *_), begin in zip(layout, ends, strict=False)}

    def read(self, arrays: Mapping[str, Any]) -> None:
        begins = [self._begins[name] for name in arrays]
        self._repository.read(self._version, self._rank, begins, *arrays.values())

    def read_rows(self, name: str, offset: int, array: Any) -> bool:
        self._repository.read(self._version, self._rank, [self._begins[name] + offset], array)
        return True


def _is_int(step: Any) -> bool:
    try:
        int_of(step)
    except TypeError:
        return False
    # NumPy takes a bool as a new axis, and not as a row.
    return not isinstance(step, bool)


def _rows(step: Any, extent: int) -> tuple[int, int, Any]:
    """Returns the first row that an index needs, the row after the last one, and the index of the same elements among these rows."""
    if not isinstance(step, slice):
        row = range(extent)[step]
        return row, row + 1, 0
    rows = range(extent)[step]
    if not rows:
        return 0, 0, slice(None)
    return min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1, slice(None, None, rows.step)


for _class in (Engine, Repository, StoredArray):
    _class.__module__ = "tierflow"
del _class
