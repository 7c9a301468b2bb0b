"""The exceptions, one for each next step of a caller. Each is a `TierflowError`, and also the built-in exception that fits."""

__all__ = [
    "ArgumentError",
    "ArrayError",
    "ClosedError",
    "DamagedError",
    "DeviceError",
    "ForkedError",
    "NoRoomError",
    "StalledError",
    "StorageError",
    "TierflowError",
    "TimedOutError",
    "UnknownVersionError",
]


class TierflowError(Exception):
    """The base class of all exceptions of the package."""

    def __str__(self) -> str:
        # `KeyError.__str__` shows the text in quotes.
        return Exception.__str__(self)


class ArgumentError(TierflowError, ValueError):
    """The call is wrong: correct it as the text says."""


class ArrayError(ArgumentError):
    """The engine cannot use the array: pass the array that the text names instead."""


class ClosedError(TierflowError, ValueError):
    """The engine is closed, or the slot was given back: build or take another one."""


class UnknownVersionError(TierflowError, KeyError):
    """The engine does not hold the version, or not any more: see `Engine.versions()`."""


class NoRoomError(TierflowError, MemoryError):
    """Memory, or every tier, is full: restore or discard versions, or ask for less, and call again."""


class TimedOutError(TierflowError, TimeoutError):
    """The call took longer than its timeout. The engine's work goes on: wait again."""


class StorageError(TierflowError, OSError):
    """The engine cannot use a disk, a directory or an object store: correct the cause, and call again."""


class StalledError(StorageError):
    """The engine cannot copy some versions to the lowest tier, and still holds them: correct the cause, and wait again."""


class DamagedError(StorageError):
    """The stored bytes are not those that were written: restore an older version, such as `Engine.latest(before=version)`."""


class DeviceError(TierflowError, RuntimeError):
    """The GPU is missing or failed, or the system refused memory for a cache, or a thread: choose another device or smaller caches, or start
    the process again.
    """


class ForkedError(TierflowError, RuntimeError):
    """The engine belongs to another process, of which this one is a fork: build a new engine here."""


for _error in __all__:
    globals()[_error].__module__ = "tierflow"
del _error
