"""Saves that do not end a training when they fail."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError, TierflowError

if TYPE_CHECKING:
    from ._engine import Engine

__all__ = ["Attempts", "PeriodicAttempts", "log"]

log = logging.getLogger("tierflow")


class Attempts:
    """Attempts to save. A failed attempt is logged and counted in `failures`; `failure` is the last error.

    Failures are errors of the engine or of files, and a lack of memory. With `raises` they are raised as well. A mistake of the program, such
    as a state that is no tree (`ArgumentError`), is always raised.
    """

    failures = 0
    failure: Exception | None = None

    def __init__(self, raises: bool) -> None:
        self._raises = raises

    def _attempt(self, what: str, save: Callable[[], None]) -> bool:
        """Calls `save`. Returns false if it failed; `what` is the beginning of the line in the log then."""
        try:
            save()
        except ArgumentError:
            raise
        except Exception as error:
            if not _is_to_be_borne(error):
                raise
            self.failures += 1
            self.failure = error
            if self._raises:
                raise
            log.warning("%s: %s", what, error)
            return False
        return True


class PeriodicAttempts(Attempts):
    """Attempts to save to `engine` every `every` steps. An attempt waits for room for `timeout` seconds at most."""

    def __init__(self, engine: Engine, *, every: int, raises: bool = False, timeout: float | None = 60.0) -> None:
        if every < 1:
            raise ValueError(f"every={every} is no number of steps: pass 1 or more")
        super().__init__(raises)
        self._engine, self._every, self._timeout = engine, every, timeout

    def _save(self, step: int, tree: Callable[[], Any], *, pickle: bool = False) -> bool:
        """Saves the tree that `tree` returns as the next version. Returns false if that failed."""

        def save() -> None:
            self._engine.save(self._engine.reserve(1).start, tree(), pickle=pickle, timeout=self._timeout)

        return self._attempt(f"step {step} is not saved", save)


def _is_to_be_borne(error: Exception) -> bool:
    # PyTorch raises a plain `RuntimeError` if main memory is exhausted.
    return (
        isinstance(error, TierflowError | OSError | MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "allocate memory" in str(error))
    )
