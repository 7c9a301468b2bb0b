"""The copies between tensors and an engine: on separate streams for a GPU, and plain copies for the processor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

from .._errors import UnknownVersionError
from ._plan import Bus

if TYPE_CHECKING:
    from .._tierflow import ConsumeSlot, Engine
    from ._clock import Clock

__all__ = ["Ways", "ways"]

# Bytes of the copies that measure the bus.
_PROBE = 64 << 20


def ways(engine: Engine) -> Ways:
    """Returns the copies for the engine's device."""
    return Ways(engine) if engine.device == "host" else _OnGpu(engine)


@contextmanager
def _unread_at_error(slot: ConsumeSlot) -> Iterator[None]:
    """Leaves the version of `slot` unconsumed if the copy from the slot fails: a slot that is dropped counts the version as consumed, and an
    engine with `after_restore="discard"` then has lost its bytes."""
    try:
        yield
    except BaseException:
        slot.give_back()
        raise


class Ways:
    """Copies by the processor."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._device = torch.device("cpu" if engine.device == "host" else engine.device)

    def takes(self, tensor: torch.Tensor) -> bool:
        """Returns true if a tensor may leave."""
        base = tensor if tensor._base is None else tensor._base
        return (
            type(tensor) is torch.Tensor
            and tensor.device == self._device
            and tensor.layout is torch.strided
            and not (base.is_leaf and base.requires_grad)
            and not tensor.is_conj()
            and not tensor.is_neg()
            and not tensor.is_quantized
            and not tensor.is_inference()
        )

    def _bytes(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns all bytes of a tensor's storage."""
        storage = tensor.untyped_storage()
        empty = torch.empty(0, dtype=torch.uint8, device=self._device)
        return empty.set_(storage, 0, (storage.nbytes(),), (1,))

    def store(self, version: int, source: torch.Tensor, clock: Clock | None) -> Any:
        """Copies a tensor's storage to the engine. Returns the end of the copy, or `None` if the copy is over.

        Raises `NoRoomError` if the engine has no room.
        """
        begin = self.mark()
        bytes = self._bytes(source)
        slot = self._engine.produce(version, bytes.nbytes, "uint8")
        slot.write(bytes)
        slot.commit()
        if clock:
            clock.waits.append((begin, self.mark()))

    def load(self, version: int, size: int, clock: Clock | None) -> tuple[torch.Tensor, Any]:
        """Brings the bytes of a version back, and discards it. Returns the bytes, and the end of the copy, or `None` if the copy is over."""
        begin = self.mark()
        slot = self._engine.consume(version)
        with _unread_at_error(slot):
            tensor = from_dlpack(slot).clone()
        slot.finish()
        self.discard(version)
        if clock:
            clock.waits.append((begin, self.mark()))
        return tensor, None

    def discard(self, version: int) -> None:
        # An engine with `after_restore="discard"` has discarded the version already.
        with suppress(UnknownVersionError):
            self._engine.discard(version)

    def work_waits(self, end: Any, clock: Clock | None) -> None:
        """Orders work that is given from now on behind a copy's end."""

    def probe(self, version: int) -> Bus:
        """Measures the bus. On the host, no copy is hidden, as the thread that copies does not compute meanwhile: all rates are the same."""
        return Bus(1.0, 1.0)

    def mark(self) -> Any:
        """Returns a time stamp in the order of the work, for `seconds`."""
        return time.perf_counter()

    def seconds(self, begin: Any, end: Any) -> float:
        elapsed: float = end - begin
        return elapsed

    def finish(self) -> None:
        """Waits for the work."""


class _OnGpu(Ways):
    """Copies of a GPU, which run beside its work."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._out = torch.cuda.Stream(self._device)
        self._back = torch.cuda.Stream(self._device)

    def takes(self, tensor: torch.Tensor) -> bool:
        return super().takes(tensor) and not torch.cuda.is_current_stream_capturing()

    def store(self, version: int, source: torch.Tensor, clock: Clock | None) -> Any:
        bytes = self._bytes(source)
        slot = self._engine.produce(version, bytes.nbytes, "uint8")
        self._out.wait_stream(torch.cuda.current_stream(self._device))
        end = self._run(self._out, slot.write, bytes, clock.out if clock else None)
        slot.commit(self._out)
        return end

    def load(self, version: int, size: int, clock: Clock | None) -> tuple[torch.Tensor, Any]:
        slot = self._engine.consume(version)
        with _unread_at_error(slot):
            # The memory belongs to the stream of the work, which reuses it when the tensor is not used any more.
            tensor = torch.empty(size, dtype=torch.uint8, device=self._device)
            self._back.wait_stream(torch.cuda.current_stream(self._device))
            end = self._run(self._back, slot.read, tensor, clock.back if clock else None)
        slot.finish(self._back)
        self.discard(version)
        return tensor, end

    def _run(
        self,
        stream: torch.cuda.Stream,
        copy: Callable[..., None],
        tensor: torch.Tensor,
        copies: list[tuple[int, Any, Any]] | None,
    ) -> Any:
        """Gives a copy to a stream, and returns the copy's end."""
        begin = self.mark(stream) if copies is not None else None
        copy(tensor, stream=stream)
        if copies is None:
            return stream.record_event()
        end = self.mark(stream)
        copies.append((tensor.nbytes, begin, end))
        return end

    def work_waits(self, end: Any, clock: Clock | None) -> None:
        begin = self.mark() if clock else None
        torch.cuda.current_stream(self._device).wait_event(end)
        if clock:
            clock.waits.append((begin, self.mark()))

    def probe(self, version: int) -> Bus:
        size = min(_PROBE, self._engine.metrics()["tiers"][0]["capacity"])
        tensor = torch.empty(size, dtype=torch.uint8, device=self._device)
        torch.cuda.synchronize(self._device)
        slot = self._engine.produce(version, size, "uint8")
        out = self._rate(self._out, slot.write, tensor)
        slot.commit(self._out)
        held = self._engine.consume(version)
        back = self._rate(self._back, held.read, tensor)
        held.finish(self._back)
        self.discard(version)
        return Bus(out, back)

    def _rate(self, stream: torch.cuda.Stream, copy: Callable[..., None], tensor: torch.Tensor) -> float:
        copies: list[tuple[int, Any, Any]] = []
        for _ in range(4):
            self._run(stream, copy, tensor, copies)
        stream.synchronize()
        return max(size / max(1e-9, self.seconds(begin, end)) for size, begin, end in copies)

    def mark(self, stream: torch.cuda.Stream | None = None) -> Any:
        mark = torch.cuda.Event(enable_timing=True)
        mark.record(stream or torch.cuda.current_stream(self._device))
        return mark

    def seconds(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end)) / 1e3

    def finish(self) -> None:
        torch.cuda.synchronize(self._device)
