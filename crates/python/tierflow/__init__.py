"""A checkpoint cache over GPU memory, host memory, disk and external storage.

    import numpy as np
    import tierflow

    with tierflow.Engine(host_cache="256MiB", scratch="/tmp", after_restore="discard") as engine:
        field = np.zeros(1_000_000)
        engine.hint(reversed(range(50)))
        for step in range(50):
            ...  # compute `field`
            engine.checkpoint(step, field)
        for step in reversed(range(50)):
            engine.restore(step, field)
            ...  # use it

Each framework has its own module, which is imported at its first use: `tierflow.torch`, `tierflow.jax`, `tierflow.lightning`,
`tierflow.transformers`, `tierflow.orbax`, `tierflow.deepwave`, `tierflow.devito`, `tierflow.diffrax`, `tierflow.pyadjoint`,
`tierflow.pyrevolve`, `tierflow.mpi`, and `tierflow.adjoint` for `checkpoint_schedules`.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ._compare import Difference, compare
from ._engine import Engine, Repository, StoredArray
from ._errors import (
    ArgumentError,
    ArrayError,
    ClosedError,
    DamagedError,
    DeviceError,
    ForkedError,
    NoRoomError,
    StalledError,
    StorageError,
    TierflowError,
    TimedOutError,
    UnknownVersionError,
)
from ._metrics import Metrics
from ._options import Redundancy, Retention
from ._plot import plot_differences
from ._tierflow import (
    ConsumeSlot,
    HostPool,
    Machine,
    Notice,
    ProduceSlot,
    Suspension,
    Tape,
    __version__,
)

__all__ = [
    "ArgumentError",
    "ArrayError",
    "ClosedError",
    "ConsumeSlot",
    "DamagedError",
    "DeviceError",
    "Difference",
    "Engine",
    "ForkedError",
    "HostPool",
    "Machine",
    "Metrics",
    "NoRoomError",
    "Notice",
    "ProduceSlot",
    "Redundancy",
    "Repository",
    "Retention",
    "StalledError",
    "StorageError",
    "StoredArray",
    "Suspension",
    "Tape",
    "TierflowError",
    "TimedOutError",
    "UnknownVersionError",
    "__version__",
    "compare",
    "plot_differences",
]

if _TYPE_CHECKING:
    from . import adjoint as adjoint
    from . import deepwave as deepwave
    from . import devito as devito
    from . import diffrax as diffrax
    from . import jax as jax
    from . import lightning as lightning
    from . import mpi as mpi
    from . import orbax as orbax
    from . import pyadjoint as pyadjoint
    from . import pyrevolve as pyrevolve
    from . import torch as torch
    from . import transformers as transformers

_MODULES = frozenset(
    "adjoint deepwave devito diffrax jax lightning mpi orbax pyadjoint pyrevolve torch transformers".split()
)


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return _import_module(f"{__name__}.{name}")
    except ImportError as missing:
        # `hasattr`, `help` and completion ask for every module, and expect an `AttributeError` for one that is not installed.
        text = str(missing)
        if isinstance(missing, ModuleNotFoundError):
            text = f"{__name__}.{name} needs the package {missing.name!r}, which is not installed"
        raise AttributeError(text, name=name) from missing


def __dir__() -> list[str]:
    return sorted(set(globals()) | _MODULES)
