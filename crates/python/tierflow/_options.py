"""Values of `Engine`'s keywords that stand for several options."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ._tierflow import words_of_redundancy

__all__ = ["Redundancy", "Retention"]


@dataclass(frozen=True, repr=False)
class Retention:
    """Which versions stay, of those that outlive the engine: the `newest` so many, `every` so many-th, and those that are `younger_than` so many
    seconds.
    """

    newest: int = 1
    _: KW_ONLY
    every: int | None = None
    younger_than: float | None = None

    def options(self) -> dict[str, Any]:
        """The options of an engine that it stands for."""
        return {"keep_newest": self.newest, "keep_every": self.every, "keep_younger_than": self.younger_than}

    def __repr__(self) -> str:
        return f"tierflow.Retention({self.newest}, every={self.every}, younger_than={self.younger_than})"


@dataclass(frozen=True, repr=False)
class Redundancy:
    """What other ranks of the group keep of `node_local`, so that it outlives nodes: `scheme` is "partner", "xor:8" or "rs:8+2".

    `failure_domain` is what this rank fails together with, such as its rack: the host, unless it is given. `exchange` is a directory
    that all nodes see, by which the ranks send each other bytes if not by the `group` of the engine.
    """

    scheme: str
    _: KW_ONLY
    failure_domain: str | None = None
    exchange: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        words_of_redundancy(self.scheme)
        if self.exchange is not None:
            object.__setattr__(self, "exchange", Path(self.exchange))

    def options(self) -> dict[str, Any]:
        """The options of an engine that it stands for."""
        return {"redundancy": self.scheme, "failure_domain": self.failure_domain, "exchange": self.exchange}

    def __repr__(self) -> str:
        return f"<tierflow.Redundancy, {words_of_redundancy(self.scheme)}>"


for _class in (Retention, Redundancy):
    _class.__module__ = "tierflow"
del _class
