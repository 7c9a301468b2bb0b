"""Checkpoints of Lightning's Trainer as versions of an engine.

io = tierflow.lightning.TierflowIO(engine)
trainer = Trainer(plugins=[io], callbacks=[ModelCheckpoint(dirpath, every_n_train_steps=100, save_top_k=2)])
trainer.fit(module, data, ckpt_path=io.newest())
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    from lightning.fabric.plugins.io import CheckpointIO
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        "tierflow.lightning needs Lightning: pip install lightning", name="lightning"
    ) from _missing

from ._attempts import Attempts, log
from ._engine import Engine, Repository
from ._errors import ArgumentError, DamagedError, UnknownVersionError

__all__ = ["TierflowIO"]

# The text of the file at a checkpoint's path: the version, and the path that the version was saved to.
_NOTE = re.compile(r"version (\d+) of the Tierflow engine in .*, saved to (.*)\n", re.DOTALL)
# Most of the bytes of such a file that are read: other checkpoints are larger.
_LONGEST_NOTE = 1 << 14


def _resolved(path: str | os.PathLike[str]) -> str:
    """Returns the one spelling of a path that versions keep. A link at the path itself is a path of its own."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def _noted(path: str | os.PathLike[str]) -> tuple[int, str] | None:
    """Returns the version that the file at `path` names, and the path that it was saved to; None if there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            found = _NOTE.fullmatch(file.read(_LONGEST_NOTE))
    except OSError:
        return None
    return None if found is None else (int(found[1]), found[2])


def _repository(source: str | os.PathLike[str]) -> Repository:
    """Returns the repository in a directory, and makes the directory: the rank with the engine may not have made it yet."""
    # The repository itself resolves URLs and variables, and reports a wrong path.
    if "://" not in os.fspath(source) and "$" not in os.fspath(source):
        with suppress(OSError):
            Path(source).mkdir(mode=0o700)
    return Repository(source)


class TierflowIO(Attempts, CheckpointIO):
    """A `CheckpointIO` for Lightning's strategies that save on rank 0.

    `source` is an engine or, for a process that only loads, the directory of one. A checkpoint becomes a version of the engine, and the
    file that Lightning expects at its path names the version. A save returns when the engine has copied the checkpoint. A checkpoint that
    Lightning removes stays until a checkpoint that was saved later is durable, so that a kill at any time leaves one.

    A save that fails, or that waits for room for longer than `timeout` seconds, does not end the training: it is logged, `failures` counts
    it, and `failure` is its error. With `raises` it is raised. No file is at the checkpoint's path then. A checkpoint is a tree. `pickle` lets
    the tree have any other object, such as hyper-parameters that are no plain values.
    """

    def __init__(
        self,
        source: Engine | str | os.PathLike[str],
        *,
        raises: bool = False,
        timeout: float | None = 60.0,
        pickle: bool = False,
    ) -> None:
        super().__init__(raises)
        self._timeout = timeout
        self._engine = source if isinstance(source, Engine) else None
        self._versions: Engine | Repository = source if isinstance(source, Engine) else _repository(source)
        self._pickle = pickle
        self._newest: int | None = None
        # The paths of versions, so that storage is read once for each version. A version that has none is no checkpoint of Lightning's.
        self._paths: dict[int, str | None] = {}
        # Versions that Lightning removed or overwrote, each with the newest version at that time.
        self._removed: dict[int, int] = {}

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        engine = self._engine
        if engine is None:
            raise ArgumentError("a directory is for loading: make TierflowIO(engine) to save")
        if storage_options is not None:
            raise TypeError("storage_options are options of Engine, such as external=: leave them out here")
        self._attempt(f"{path} is not saved", lambda: self._save(engine, checkpoint, path))

    def _save(self, engine: Engine, checkpoint: dict[str, Any], path: str | os.PathLike[str]) -> None:
        version, saved_to = engine.reserve(1).start, _resolved(path)
        tree = {"path": saved_to, "checkpoint": checkpoint}
        engine.save(version, tree, pickle=self._pickle, timeout=self._timeout)
        self._paths[version] = saved_to
        # A removed version that is its own newest was removed after a failed save. The new version is newer.
        self._removed = {old: version if old == newer else newer for old, newer in self._removed.items()}
        self._removed |= {old: version for old, own in list(self._checkpoints()) if own == saved_to and old != version}
        self._newest = version
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_name(f".{file.name}.{os.getpid()}")
        note = f"version {version} of the Tierflow engine in {engine.directory}, saved to {saved_to}\n"
        written.write_text(note, encoding="utf-8", errors="surrogateescape")
        written.replace(file)
        self._discard()

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Returns the checkpoint that was saved last to `path`, in any spelling. If it is damaged, or the process was killed before it was
        durable, loads the newest older checkpoint, and logs a warning. A file that was moved, or a link to it, stands for its checkpoint."""
        if map_location not in (None, "cpu"):
            raise ArgumentError(f"map_location={map_location!r}: move tensors from main memory, where they are")
        named = self._version_of(path)
        before = None if named is None else named + 1
        if named is None and (noted := _noted(path)) is not None:
            # The number of a version that was lost may be that of another checkpoint by now.
            version, saved_to = noted
            named, before = (version, version + 1) if (version, saved_to) in self._checkpoints() else (None, version)
        if before is None:
            raise FileNotFoundError(f"no checkpoint was saved to {path}: {self.newest()!r} is the newest")
        newest = self._versions.load_latest(before=before, pickle=self._pickle and not weights_only)
        if newest is None:
            raise FileNotFoundError(f"no checkpoint can be loaded in place of {path}")
        version, tree = newest
        if version != named:
            log.warning("%s is not there to load: version %d, of %s, takes its place", path, version, tree["path"])
        found: dict[str, Any] = tree["checkpoint"]
        return found

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        self._attempt(f"{path} is not removed", lambda: self._remove(path))

    def _remove(self, path: str | os.PathLike[str]) -> None:
        version = self._version_of(path)
        if version is not None and self._newest is not None:
            self._removed[version] = self._newest
        with suppress(FileNotFoundError):
            os.remove(path)
        self._discard()

    def teardown(self) -> None:
        engine = self._engine
        if engine is not None and self._removed:
            newest = max(self._removed.values())
            if self._attempt("older checkpoints stay", lambda: engine.wait_version(newest)):
                self._discard()

    def newest(self) -> str | None:
        """Returns the path of the newest checkpoint, for `ckpt_path=`; None if there is none."""
        return next((path for _, path in self._checkpoints()), None)

    def _checkpoints(self) -> Iterator[tuple[int, str]]:
        """Returns the versions that Lightning has not removed, newest first, each with its path."""
        for version in reversed(self._versions.versions()):
            if version not in self._removed and (path := self._path_of(version)) is not None:
                yield version, path

    def _path_of(self, version: int) -> str | None:
        if version not in self._paths:
            path = None
            try:
                path = _resolved(self._versions.load(version, select="path"))
            except DamagedError as damaged:
                log.warning("version %d is damaged: %s", version, damaged)
            except (ArgumentError, TypeError, UnknownVersionError):
                # The version is no checkpoint of Lightning's, or the retention has removed it.
                pass
            self._paths[version] = path
        return self._paths[version]

    def _version_of(self, path: str | os.PathLike[str]) -> int | None:
        """Returns the newest version that was saved to a path; None if there is none."""
        saved_to = _resolved(path)
        return next((version for version, own in self._checkpoints() if own == saved_to), None)

    def _discard(self) -> None:
        for version, newer in list(self._removed.items()):
            # A version without a newer durable one stays, so that a killed process leaves a checkpoint.
            if self._engine is not None and version != newer and self._engine.is_durable(newer):
                del self._removed[version]
                self._paths.pop(version, None)
                with suppress(UnknownVersionError):
                    self._engine.discard(version)
