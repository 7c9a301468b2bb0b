"""Where the tensors of a state lie in a slot, and the copies to there."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Callable, Container
from functools import cached_property
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch

from .. import _tierflow
from .._errors import ArgumentError

__all__ = ["ALIGNMENT", "Layout", "bytes_of"]

ALIGNMENT = 64

# Tensors in main memory of at most so many bytes, such as an optimizer's steps, go to a slot by one copy.
SMALL = 4096

# Slots whose addresses a layout remembers.
_SLOTS = 4

# A tensor's key, by which its bytes are told from those of others.
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
    """All bytes of a tensor, in C order."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


class Layout:
    """Tensors of equal keys, such as weights that are tied, have one place. First lie those that the program may change at once, then those at the
    addresses that are `awaited`, which stay as they are until their copies are over, and then small ones in main memory.

    A layout follows from the keys and from what is awaited. Later checkpoints use it again, as making one takes longer than all else for which a
    checkpoint keeps the program waiting.
    """

    def __init__(self, tensors: list[torch.Tensor], awaited: Container[int] = ()) -> None:
        self._keys = [list(map(get, tensors)) for get in _KEY]
        self._descriptors = _tierflow.descriptors(tensors)
        self._complex = [index for index, tensor in enumerate(tensors) if tensor.is_complex()]
        self.offsets = [0] * len(tensors)
        self.end = 0
        # The indices of tensors with places of their own.
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
        self._in_slots: dict[int, tuple[Places, Places]] = {}
        self._in_buffer: tuple[torch.Tensor, range, tuple[Places, Places]] | None = None

    def is_of(self, tensors: list[torch.Tensor]) -> bool:
        """Whether the tensors have the keys that it was made of."""
        descriptors = _tierflow.descriptors(tensors)
        if descriptors is None:
            return all(list(map(get, tensors)) == known for get, known in zip(_KEY, self._keys, strict=True))
        # PyTorch's C interface tells most of the keys in a tenth of the time.
        *_, are_conjugates, are_negative, _, _ = self._keys
        return (
            descriptors == self._descriptors
            and list(map(torch.Tensor.is_neg, tensors)) == are_negative
            and all(tensors[index].is_conj() is are_conjugates[index] for index in self._complex)
        )

    @cached_property
    def names(self) -> list[torch.Tensor]:
        """Tensors without memory that stand for those of the state."""
        _, sizes, _, _, _, dtypes, _ = self._keys
        names = [torch.empty(size, dtype=dtype, device="meta") for size, dtype in zip(sizes, dtypes, strict=True)]
        for name in names:
            name.__reduce_ex__ = _refuse  # type: ignore[method-assign]
        return names

    @cached_property
    def by_name(self) -> dict[int, int]:
        """The offsets by the names' storages, which the names hold."""
        return {name.untyped_storage()._cdata: at for name, at in zip(self.names, self.offsets, strict=True)}

    def in_slot(self, whole: torch.Tensor, tensors: list[torch.Tensor]) -> tuple[Places, Places]:
        """The places in a slot that has the bytes `whole`: of tensors that the program may change at once, and of those that are awaited."""
        address = whole.data_ptr()
        if address not in self._in_slots:
            if len(self._in_slots) == _SLOTS:
                self._in_slots.clear()
            memory = _without_owner(address, max(1, self._end_of_large), whole.device)
            self._in_slots[address] = self._places(0, tensors, memory)
        return self._in_slots[address]

    def in_buffer(self, buffer: torch.Tensor, tensors: list[torch.Tensor]) -> tuple[range, tuple[Places, Places]]:
        """The last tensors on the buffer's GPU, as many as it has room for: which bytes of a slot they are, and their places in the buffer."""
        if self._in_buffer is None or self._in_buffer[0] is not buffer:
            first = end = self._end_of_large
            for index in reversed(self._changing + self._awaited):
                if tensors[index].device != buffer.device or end - self.offsets[index] > buffer.nbytes:
                    break
                first = self.offsets[index]
            self._in_buffer = buffer, range(first, end), self._places(first, tensors, buffer)
        return self._in_buffer[1:]

    def _places(self, first: int, tensors: list[torch.Tensor], memory: torch.Tensor) -> tuple[Places, Places]:
        """Over memory for what lies from `first` on."""
        of_all = {
            index: memory[at - first : at - first + tensors[index].nbytes]
            for index in self._changing + self._awaited
            if (at := self.offsets[index]) >= first
        }
        changing, awaited = ([index for index in kind if index in of_all] for kind in (self._changing, self._awaited))
        return Places(changing, tensors, of_all), Places(awaited, tensors, of_all)

    def gathered(self, tensors: list[torch.Tensor]) -> tuple[int, torch.Tensor]:
        """Where the small tensors begin, and their bytes, which are good until the next call."""
        bytes, views = self._gathered
        _copy(views, [tensors[index] for index in self._small])
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


class Places:
    """The memory to which tensors are copied, where it is on their device, and the indices of tensors that are `elsewhere`.

    It is not owned. The places are used with a slot that lies there, and stay when it is gone.
    """

    def __init__(self, indices: list[int], tensors: list[torch.Tensor], memory: dict[int, torch.Tensor]) -> None:
        self.elsewhere: list[int] = []
        # One call copies tensors of one type and in C order, and one each of all others.
        self._groups: dict[torch.dtype | None, tuple[list[int], list[torch.Tensor]]] = defaultdict(lambda: ([], []))
        for index in indices:
            tensor, bytes = tensors[index], memory[index]
            if tensor.device != bytes.device:
                self.elsewhere.append(index)
                continue
            is_plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
            numbers = bytes.view(tensor.dtype)
            of_group, views = self._groups[tensor.dtype if is_plain else None]
            of_group.append(index)
            # Strides have to agree, also those of dimensions of length 1.
            views.append(
                numbers.as_strided(tensor.size(), tensor.stride()) if is_plain else numbers.view(tensor.size())
            )

    def copy(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copies the tensors that are not elsewhere, and returns them."""
        read = []
        for indices, views in self._groups.values():
            sources = [tensors[index] for index in indices]
            _copy(views, sources)
            read += sources
        return read


def _copy(to: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    if to:
        with torch.no_grad():
            torch._foreach_copy_(to, tensors)


def _without_owner(address: int, size: int, device: torch.device) -> torch.Tensor:
    """The bytes at an address. The tensor does not keep them there."""
    if device.type == "cuda":
        interface = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
        return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface), device=device)
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


def _refuse(*_: Any) -> Any:
    raise ArgumentError(
        "a planner pickles a tensor, and not its bytes alone, as with flatten_state_dict=False: save without staging"
    )
