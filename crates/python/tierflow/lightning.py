"""Checkpoints of Lightning's Trainer as versions of an engine.

io = tierflow.lightning.TierflowIO(engine)
trainer = Trainer(plugins=[io], callbacks=[ModelCheckpoint(dirpath, every_n_train_steps=100, save_top_k=2)])
trainer.fit(module, data, ckpt_path=io.newest())
"""

from __future__ import annotations

import os
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
        # The paths of versions, so that storage is read once for each version.
        self._paths: dict[int, str] = {}
        # Versions that Lightning removed, each with the newest version at that time.
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
        version = engine.reserve(1).start
        tree = {"path": os.fspath(path), "checkpoint": checkpoint}
        engine.save(version, tree, pickle=self._pickle, timeout=self._timeout)
        # A removed version that is its own newest was removed after a failed save. The new version is newer.
        self._removed = {old: version if old == newer else newer for old, newer in self._removed.items()}
        self._newest = version
        self._paths[version] = os.fspath(path)
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        written = file.with_name(f".{file.name}.{os.getpid()}")
        written.write_text(f"version {version} of the Tierflow engine in {engine.directory}\n")
        written.replace(file)
        self._discard()

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Returns the checkpoint that was saved last to `path`. If it is damaged, or the process was killed before it was durable, loads the
        newest older checkpoint, and logs a warning."""
        if map_location not in (None, "cpu"):
            raise ArgumentError(f"map_location={map_location!r}: move tensors from main memory, where they are")
        named = self._version_of(path)
        if named is None and not os.path.lexists(path):
            raise FileNotFoundError(f"no checkpoint was saved to {path}: {self.newest()!r} is the newest")
        before = None if named is None else named + 1
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
        newest = self._versions.latest()
        return None if newest is None else self._path_of(newest)

    def _path_of(self, version: int) -> str:
        if version not in self._paths:
            self._paths[version] = str(self._versions.load(version, select="path"))
        return self._paths[version]

    def _version_of(self, path: str | os.PathLike[str]) -> int | None:
        """Returns the newest version that was saved to a path; None if there is none."""
        for version in reversed(self._versions.versions()):
            with suppress(ArgumentError, DamagedError):
                if self._path_of(version) == os.fspath(path):
                    return version
        return None

    def _discard(self) -> None:
        for version, newer in list(self._removed.items()):
            # A version without a newer durable one stays, so that a killed process leaves a checkpoint.
            if self._engine is not None and version != newer and self._engine.is_durable(newer):
                del self._removed[version]
                self._paths.pop(version, None)
                with suppress(UnknownVersionError):
                    self._engine.discard(version)
