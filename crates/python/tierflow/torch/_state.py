"""A state as DCP reads it: the tensors, and other tensors that stand for them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass

__all__ = ["ATOMS", "State", "plain"]

# `_SIMPLE`: types of tensors that do not consist of other tensors. `ATOMS`: types of values of a known size.
_SIMPLE = frozenset((torch.Tensor, torch.nn.Parameter))
ATOMS = frozenset((NoneType, bool, int, float, complex))


class State:
    """A copy of a state's branches, and the list of the tensors in its leaves.

    Branches are the containers in which DCP looks for tensors. A value that DCP pickles as a whole, such as a tuple, is copied with the values of
    its tensors.
    """

    def __init__(self, state: dict[str, Any]) -> None:
        self.tensors: list[torch.Tensor] = []
        self.others: list[Any] = []
        self._leaves: list[tuple[Any, Any, Any]] = []
        self._copy = self._copied(state)

    def _copied(self, value: Any) -> Any:
        kind = type(value)
        if kind is list:
            copied: Any = [None] * len(value)
            parts: Iterable[tuple[Any, Any]] = enumerate(value)
        elif kind is dict or isinstance(value, Mapping):
            copied = {}
            parts = value.items()
        else:
            self.others.append(value)
            return value if kind in ATOMS else copy.deepcopy(value)
        for key, part in parts:
            # Nearly all leaves have these types. The tests that follow take longer.
            if type(part) in _SIMPLE:
                self.tensors.append(part)
            elif isinstance(part, torch.Tensor):
                self.tensors += plain(part)
            else:
                copied[key] = self._copied(part)
                continue
            # The entry keeps the leaf's place in the order of keys.
            copied[key] = None
            self._leaves.append((copied, key, part))
        return copied

    def named(self, names: list[torch.Tensor]) -> dict[str, Any]:
        """Returns the copy of the state, with `names` in place of the tensors."""
        left = iter(names)
        for branch, key, leaf in self._leaves:
            branch[key] = next(left) if type(leaf) in _SIMPLE else _named(leaf, left)
        result: dict[str, Any] = self._copy
        return result


def plain(leaf: Any) -> Iterable[torch.Tensor]:
    """Returns the tensors with memory that a leaf consists of. A distributed tensor, for example, has a local tensor and a mesh."""
    if type(leaf) in _SIMPLE or not is_traceable_wrapper_subclass(leaf):
        return (leaf,) if isinstance(leaf, torch.Tensor) else ()
    names, _ = leaf.__tensor_flatten__()
    return (tensor for name in names for tensor in plain(getattr(leaf, name)))


def _named(leaf: Any, names: Iterator[torch.Tensor]) -> Any:
    if type(leaf) in _SIMPLE or not is_traceable_wrapper_subclass(leaf):
        return next(names) if isinstance(leaf, torch.Tensor) else leaf
    return transform_subclass(leaf, lambda _, inner: _named(inner, names))
