"""A handler of Orbax: Orbax's manager chooses the steps and their directories, and the arrays lie in an engine.

    with ocp.CheckpointManager(directory, item_handlers=Handler(engine)) as manager:
        manager.save(step, args=State(state))
        state = manager.restore(manager.latest_step(), args=State(like))

`save` returns when the engine has copied the arrays, and Orbax's thread commits the step once the version is durable. The directory of a
step has one small file, which names the version. So `retention=` of the engine must keep at least one version more than the manager's
`max_to_keep`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orbax.checkpoint import AsyncCheckpointHandler, args

from . import jax as _jax
from ._engine import Engine

__all__ = ["Handler", "State"]

# The file that names the version of a step.
_FILE = "tierflow-version"


class _Durable:
    """A future for Orbax: `result` waits until a version is durable, and writes its number to the directory of the step."""

    def __init__(self, engine: Engine, version: int, directory: Any) -> None:
        self._engine, self._version, self._directory = engine, version, directory

    def result(self, timeout: float | None = None) -> None:
        self._engine.wait_version(self._version, timeout)
        (self._directory / _FILE).write_text(str(self._version))


class Handler(AsyncCheckpointHandler):  # type: ignore[misc]
    """Saves pytrees in an engine whose versions outlive the process (`external=` or `node_local=`)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def async_save(self, directory: Any, args: State) -> list[Any]:
        return [self._saved(directory, args)]

    def save(self, directory: Any, args: State) -> None:
        self._saved(directory, args).result()

    def _saved(self, directory: Any, args: State) -> _Durable:
        version = self._engine.reserve(1).start
        _jax.save(self._engine, version, args.item)
        return _Durable(self._engine, version, directory)

    def restore(self, directory: Any, args: State) -> Any:
        """Returns the pytree of the step in `directory`, with the shardings of the pytree of `args`."""
        return _jax.load(self._engine, int((directory / _FILE).read_text()), args.item)


@args.register_with_handler(Handler, for_save=True, for_restore=True)
@dataclass
class State(args.CheckpointArgs):  # type: ignore[misc]
    """The pytree `item` to save; for a restore, a pytree like the saved one, whose arrays may be `jax.ShapeDtypeStruct`s."""

    item: Any
