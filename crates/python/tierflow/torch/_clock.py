"""The times at which an iteration saved and used its tensors, on the clock of the stream that does the work."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ._plan import Bus

if TYPE_CHECKING:
    from ._ways import Ways

__all__ = ["Clock", "Times"]


@dataclass(frozen=True)
class Times:
    """The times at which storages were saved and used, in seconds of work, by their places in the order of saving. `bus` is None unless the bus
    carried bytes both ways."""

    saved: dict[int, float]
    used: dict[int, float]
    bus: Bus | None


class Clock:
    """Time marks in the stream of the work, and in those of the copies."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        self._begun = ways.mark()
        self._saved: dict[int, Any] = {}
        self._used: dict[int, Any] = {}
        # Begin and end of each wait of the work.
        self.waits: list[tuple[Any, Any]] = []
        # Bytes, begin and end of each copy: `out` to the engine, `back` from it.
        self.out: list[tuple[int, Any, Any]] = []
        self.back: list[tuple[int, Any, Any]] = []

    def saved(self, index: int) -> None:
        self._saved[index] = self._ways.mark()

    def used(self, index: int) -> None:
        """Marks the first use of a storage. Later uses do not count."""
        if index not in self._used:
            self._used[index] = self._ways.mark()

    def read(self) -> Times:
        """Waits for the work, and returns the times."""
        self._ways.finish()
        seconds = self._ways.seconds
        waits = sorted((seconds(self._begun, begin), seconds(begin, end)) for begin, end in self.waits)
        begins = [begin for begin, _ in waits]
        waited = [0.0, *accumulate(length for _, length in waits)]

        def worked(mark: Any) -> float:
            moment = seconds(self._begun, mark)
            return moment - waited[bisect_right(begins, moment)]

        rates = [
            sum(size for size, _, _ in copies) / max(1e-9, sum(seconds(begin, end) for _, begin, end in copies))
            for copies in (self.out, self.back)
            if copies
        ]
        return Times(
            saved={index: worked(mark) for index, mark in self._saved.items()},
            used={index: worked(mark) for index, mark in self._used.items()},
            bus=Bus(*rates) if len(rates) == 2 else None,
        )
