"""The exceptions, one for each thing that a caller does next. All are a `TierflowError`, and the built-in that fits."""

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
    """What every exception of the package is."""

    def __str__(self) -> str:
        # KeyError would show the text in quotes.
        return Exception.__str__(self)


class ArgumentError(TierflowError, ValueError):
    """The call cannot be done as it is written: mend it as the text says."""


class ArrayError(ArgumentError):
    """The array will not do: pass what the text says instead."""


class ClosedError(TierflowError, ValueError):
    """The engine is closed, or the slot was given back: build or take another one."""


class UnknownVersionError(TierflowError, KeyError):
    """There is no such version, or not any more: look at `Engine.versions()`."""


class NoRoomError(TierflowError, MemoryError):
    """Memory, or every tier, is full: restore or discard versions, or ask for less, and call again."""


class TimedOutError(TierflowError, TimeoutError):
    """The time was over first, and what was asked for goes on: wait again."""


class StorageError(TierflowError, OSError):
    """A disk or a directory cannot be used as it should: see to it, and call again."""


class StalledError(StorageError):
    """Some versions cannot get to the lowest tier. They are still held: see to the storage, and wait again."""


class DamagedError(StorageError):
    """What lies on the disk is not what was written: restore an older version, as of `Engine.latest(before=version)`."""


class DeviceError(TierflowError, RuntimeError):
    """The GPU cannot be had, or it failed, or the system refuses a cache memory or a thread: choose another device, smaller caches, or start the
    process anew.
    """


class ForkedError(TierflowError, RuntimeError):
    """The engine belongs to another process, of which this one is a fork: build one here."""


for _error in __all__:
    globals()[_error].__module__ = "tierflow"
del _error
