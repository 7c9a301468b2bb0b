"""The places of a state's tensors in a slot, and the copies to these places."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import torch

from .. import _tierflow
from .._errors import ArgumentError

__all__ = ["ALIGNMENT", "Layout", "bytes_of"]

ALIGNMENT = 64

# Bytes of a small tensor at most. Small tensors in main memory, such as an optimizer's step counts, go to a slot by one copy.
SMALL = 4096

# The parts of a tensor's key. The key distinguishes the tensor's bytes from those of other tensors.
_KEY: tuple[Callable[[torch.Tensor], Any], ...] = (
    torch.Tensor.data_ptr,
    torch.Tensor.size,
    torch.Tensor.stride,
    torch.Tensor.is_conj,
    torch.Tensor.is_neg,
    attrgetter("dtype"),
    attrgetter("device"),
)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all bytes of a tensor, in C order."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


class Copies(NamedTuple):
    """Tensors of a state, by their indices: `indices` are copied by one call to `offsets`, in bytes, and `others` one by one."""

    indices: list[int]
    offsets: list[int]
    others: list[int]


class Layout:
    """The places of tensors in a slot. Tensors with equal keys, such as tied weights, share a place. The order is: tensors that the program may
    change at once; tensors at the addresses `awaited`, which do not change until their copies are over; small tensors in main memory.

    A layout depends only on the keys, `awaited` and `on_gpu`. Later checkpoints use it again: making a layout takes longer than all other work for
    which a checkpoint blocks the program.
    """

    def __init__(self, tensors: list[torch.Tensor], awaited: Container[int] = (), on_gpu: bool = False) -> None:
        self._keys = [list(map(get, tensors)) for get in _KEY]
        self._descriptors = _tierflow.descriptors(tensors)
        self._complex = [index for index, tensor in enumerate(tensors) if tensor.is_complex()]
        self.offsets = [0] * len(tensors)
        self.end = 0
        # The indices of tensors, one for each place.
        self._changing, self._awaited, self._small = kinds = [], [], []  # type: tuple[list[int], list[int], list[int]]
        is_small = [tensor.device.type == "cpu" and tensor.nbytes <= SMALL for tensor in tensors]
        kind = [2 if small else address in awaited for small, address in zip(is_small, self._keys[0], strict=True)]
        places: dict[tuple[Any, ...], int] = {}
        for index in sorted(range(len(tensors)), key=kind.__getitem__):
            key = tuple(of_all[index] for of_all in self._keys)
            if key not in places:
                places[key] = self.end
                self.end += tensors[index].nbytes + -tensors[index].nbytes % ALIGNMENT
                if tensors[index].nbytes:
                    kinds[kind[index]].append(index)
            self.offsets[index] = places[key]
        self._end_of_large = self.offsets[self._small[0]] if self._small else self.end
        # True for tensors that one call may copy: those on the engine's device with their bytes in C order. Without PyTorch's C interface,
        # that call refuses tensors that require a gradient.
        self._is_plain = [
            tensor.is_cuda == on_gpu
            and tensor.is_contiguous()
            and not (tensor.is_conj() or tensor.is_neg() or (self._descriptors is None and tensor.requires_grad))
            for tensor in tensors
        ]
        self._copies: dict[range, tuple[Copies, Copies]] = {}

    def is_of(self, tensors: list[torch.Tensor]) -> bool:
        """Returns true if the tensors have the keys that the layout was made of."""
        descriptors = _tierflow.descriptors(tensors)
        if descriptors is None:
            return all(list(map(get, tensors)) == known for get, known in zip(_KEY, self._keys, strict=True))
        # PyTorch's C interface gives most parts of the keys in a tenth of the time.
        *_, are_conjugates, are_negative, _, _ = self._keys
        return (
            descriptors == self._descriptors
            and list(map(torch.Tensor.is_neg, tensors)) == are_negative
            and all(tensors[index].is_conj() is are_conjugates[index] for index in self._complex)
        )

    @cached_property
    def names(self) -> list[torch.Tensor]:
        """Tensors without memory that stand for the tensors of the state."""
        _, sizes, _, _, _, dtypes, _ = self._keys
        names = [torch.empty(size, dtype=dtype, device="meta") for size, dtype in zip(sizes, dtypes, strict=True)]
        for name in names:
            name.__reduce_ex__ = _refuse  # type: ignore[method-assign]
        return names

    @cached_property
    def by_name(self) -> dict[int, int]:
        """The offsets by the storages of `names`, which keep the storages alive."""
        return {name.untyped_storage()._cdata: at for name, at in zip(self.names, self.offsets, strict=True)}

    def buffered(self, buffer: torch.Tensor, tensors: list[torch.Tensor]) -> range:
        """Returns the bytes of a slot that go through `buffer`: the last large tensors on its GPU, as many as it has room for."""
        first = end = self._end_of_large
        for index in reversed(self._changing + self._awaited):
            if tensors[index].device != buffer.device or end - self.offsets[index] > buffer.nbytes:
                break
            first = self.offsets[index]
        return range(first, end)

    def copies(self, of_slot: range) -> tuple[Copies, Copies]:
        """Returns the copies to the bytes `of_slot` of a slot: of tensors that the program may change at once, and of awaited tensors."""
        if of_slot not in self._copies:
            self._copies[of_slot] = self._copies_of(self._changing, of_slot), self._copies_of(self._awaited, of_slot)
        return self._copies[of_slot]

    def _copies_of(self, indices: list[int], of_slot: range) -> Copies:
        indices = [index for index in indices if self.offsets[index] in of_slot]
        plain = [index for index in indices if self._is_plain[index]]
        offsets = [self.offsets[index] - of_slot.start for index in plain]
        return Copies(plain, offsets, [index for index in indices if not self._is_plain[index]])

    def gathered(self, tensors: list[torch.Tensor]) -> tuple[int, torch.Tensor]:
        """Returns the offset of the small tensors, and their bytes, which are valid until the next call."""
        bytes, views = self._gathered
        if views:
            with torch.no_grad():
                torch._foreach_copy_(views, [tensors[index] for index in self._small])
        return self._end_of_large, bytes

    @cached_property
    def _gathered(self) -> tuple[torch.Tensor, list[torch.Tensor]]:
        bytes = torch.zeros(self.end - self._end_of_large, dtype=torch.uint8)
        _, sizes, _, _, _, dtypes, _ = self._keys
        views = []
        for index in self._small:
            at = self.offsets[index] - self._end_of_large
            count = sizes[index].numel() * dtypes[index].itemsize
            views.append(bytes[at : at + count].view(dtypes[index]).view(sizes[index]))
        return bytes, views


def _refuse(*_: Any) -> Any:
    raise ArgumentError(
        "a planner pickles a tensor, and not its bytes alone, as with flatten_state_dict=False: save without staging"
    )
