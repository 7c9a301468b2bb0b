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
    """The rule that keeps versions that outlive the engine: the `newest` versions by their number, each version whose number is a multiple of
    `every`, and each that is `younger_than` this many seconds.
    """

    newest: int = 1
    _: KW_ONLY
    every: int | None = None
    younger_than: float | None = None

    def options(self) -> dict[str, Any]:
        """Returns the engine's options that this value stands for."""
        return {"keep_newest": self.newest, "keep_every": self.every, "keep_younger_than": self.younger_than}

    def __repr__(self) -> str:
        return f"tierflow.Retention({self.newest}, every={self.every}, younger_than={self.younger_than})"


@dataclass(frozen=True, repr=False)
class Redundancy:
    """The redundancy that other ranks of the group keep for `node_local`, so that its versions outlive nodes. `scheme` is "partner", "xor:8"
    or "rs:8+2".

    `failure_domain` names the parts that fail together with this rank, such as its rack; without it, the host. `exchange` is a directory that
    all nodes see, by which the ranks send each other bytes if the `group` of the engine does not.
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
        """Returns the engine's options that this value stands for."""
        return {"redundancy": self.scheme, "failure_domain": self.failure_domain, "exchange": self.exchange}

    def __repr__(self) -> str:
        return f"<tierflow.Redundancy, {words_of_redundancy(self.scheme)}>"


for _class in (Retention, Redundancy):
    _class.__module__ = "tierflow"
del _class
