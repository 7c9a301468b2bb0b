"""Saves that do not end a training when they fail."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._errors import ArgumentError, TierflowError

if TYPE_CHECKING:
    from ._engine import Engine

__all__ = ["Attempts", "PeriodicAttempts"]

_log = logging.getLogger("tierflow")


class Attempts:
    """Attempts to save, of which those that fail are logged and counted in `failures`; `failure` is the last error.

    Failures are those of the engine, of files, and a lack of memory. With `raises` they are raised as well. A mistake of the program, such as a
    state that is no tree (`ArgumentError`), always is.
    """

    def __init__(self, raises: bool) -> None:
        self._raises = raises
        self.failures = 0
        self.failure: Exception | None = None

    def _attempt(self, what: str, save: Callable[[], None]) -> bool:
        """Calls `save`. Returns false if it failed."""
        try:
            save()
        except ArgumentError:
            raise
        except (TierflowError, OSError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not _is_lack_of_memory(error):
                raise
            self.failures += 1
            self.failure = error
            if self._raises:
                raise
            _log.warning("%s: %s", what, error)
            return False
        return True


class PeriodicAttempts(Attempts):
    """Attempts to save to `engine` each `every` steps, which wait for room for `timeout` seconds at most."""

    def __init__(self, engine: Engine, every: int, timeout: float | None, raises: bool) -> None:
        if every < 1:
            raise ValueError(f"every={every} is no number of steps: pass 1 or more")
        super().__init__(raises)
        self._engine = engine
        self._every = every
        self._timeout = timeout


def _is_lack_of_memory(error: RuntimeError) -> bool:
    """PyTorch's `OutOfMemoryError`, and what it raises for main memory, which has no type of its own."""
    return (
        isinstance(error, TierflowError)
        or type(error).__name__ == "OutOfMemoryError"
        or "allocate memory" in str(error)
    )
