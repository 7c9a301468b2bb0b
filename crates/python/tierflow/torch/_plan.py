"""The plan of the saved tensors that leave and of their way back, computed from the measurements of one iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Bus", "Plan", "Saved", "plan"]

# Bytes on their way at a time at most, in each direction. Bytes on their way out still take memory, and bytes on their way back already do.
WINDOW = 256 << 20

# The part of a measured bandwidth that a plan counts on, as there are gaps between copies.
SHARE = 0.95

# The part of the bytes that could leave that is enough, if fewer tensors leave then: each copy takes time of the program's thread.
ENOUGH = 0.95


@dataclass(frozen=True)
class Saved:
    """A storage of an iteration. Times are in seconds of work, without the waits for transfers."""

    bytes: int
    saved_at: float
    # None if the storage was not used, or if others hold it anyway, so that its memory would not become free.
    used_at: float | None


@dataclass(frozen=True)
class Bus:
    """Bytes per second, to the engine and back."""

    out: float
    back: float


@dataclass(frozen=True)
class Plan:
    """The plan for the storages of an iteration, which are named by their places in the order of saving."""

    sizes: tuple[int, ...]
    leaves: frozenset[int]
    # The storages that leave, in the order of their uses, each with the use at which its prefetch begins.
    back: tuple[tuple[int, int], ...]
    # All used storages, in the order of their first uses.
    uses: tuple[int, ...]
    # Bytes of the leaving storages whose transfers are hidden behind the work.
    hidden: int

    @property
    def saved(self) -> int:
        """Bytes of all saved storages."""
        return sum(self.sizes)

    @property
    def leaving(self) -> int:
        """Bytes of the storages that leave."""
        return sum(self.sizes[index] for index in self.leaves)

    @property
    def held(self) -> int:
        """Bytes of storages that the program holds anyway, or that no backward uses."""
        return self.saved - sum(self.sizes[index] for index in self.uses)

    @property
    def staying(self) -> int:
        """Bytes of storages that stay, only for the backward."""
        return self.saved - self.leaving - self.held


@dataclass
class _Schedule:
    saved: Sequence[Saved]
    bus: Bus
    window: int
    chosen: set[int] = field(default_factory=set)

    @property
    def leaving(self) -> int:
        return sum(self.saved[index].bytes for index in self.chosen)

    def leave(self, enough: int, room: int, smallest: int) -> None:
        """Chooses storages in the order of saving, if the bus copies them away as fast as they are saved: until `enough` bytes are chosen, at
        most `room` bytes, and none smaller than `smallest`."""
        free_at, taken = 0.0, 0
        for index, one in enumerate(self.saved):
            if taken >= enough:
                return
            if one.used_at is None or one.bytes < smallest or taken + one.bytes > room:
                continue
            queued = max(0.0, free_at - one.saved_at) * self.bus.out
            if queued > 0 and queued + one.bytes > self.window:
                continue
            free_at = max(free_at, one.saved_at) + one.bytes / self.bus.out
            # The storage is away for some time at least.
            if free_at + one.bytes / self.bus.back < one.used_at:
                self.chosen.add(index)
                taken += one.bytes

    def come_back(self, uses: Sequence[int], *, late: bool) -> list[tuple[int, int]]:
        """Returns each chosen storage with the use at which its way back has to start, as late as possible. Without `late`, storages that would
        not be back in time are taken out of the choice."""
        times = [self.saved[index].used_at or 0.0 for index in uses]
        started = [(index, at) for index, at in zip(uses, times, strict=True) if index in self.chosen]
        starts, next_start = [], float("inf")
        for index, used_at in reversed(started):
            size = self.saved[index].bytes
            start = min(used_at, next_start) - size / self.bus.back
            if not late and (used_at - start) * self.bus.back > self.window + size:
                self.chosen.discard(index)
                continue
            next_start = start
            starts.append((index, start))
        starts.reverse()
        return [(index, _last_before(times, start)) for index, start in starts]


def _hiding(saved: Sequence[Saved], bus: Bus, window: int, uses: Sequence[int], enough: int, room: int) -> _Schedule:
    """Chooses storages whose transfers are hidden behind the work: only the largest ones, if hardly more bytes could leave with smaller ones."""
    sizes = [saved[index].bytes for index in uses]
    schedules = []
    for smallest in sorted({1 << max(0, size.bit_length() - 1) for size in sizes}):
        schedule = _Schedule(saved, bus, window)
        schedule.leave(enough, room, smallest)
        schedule.come_back(uses, late=False)
        schedules.append(schedule)
    most = max((schedule.leaving for schedule in schedules), default=0)
    schedules.reverse()
    found = (schedule for schedule in schedules if schedule.leaving >= ENOUGH * most)
    return next(found, _Schedule(saved, bus, window))


def _last_before(times: Sequence[float], moment: float) -> int:
    """Returns the last use before a moment, or the first use."""
    from bisect import bisect_left

    return max(0, bisect_left(times, moment) - 1)


def plan(saved: Sequence[Saved], bus: Bus, *, budget: int | None, room: int, window: int = WINDOW) -> Plan:
    """Plans an iteration like the measured one.

    Without a budget, storages leave if their transfers are hidden behind the work. With a budget, as many leave as necessary, so that at
    most `budget` bytes stay: first those whose transfers are hidden, then those that were saved first, which are away for the longest time. At
    most `room` bytes leave because their transfers are hidden.
    """
    bus = Bus(bus.out * SHARE, bus.back * SHARE)
    used = [index for index, one in enumerate(saved) if one.used_at is not None]
    uses = sorted(used, key=lambda index: (saved[index].used_at, -index))
    total = sum(saved[index].bytes for index in used)
    needed = room if budget is None else max(0, total - budget)
    schedule = _hiding(saved, bus, window, uses, needed, room)
    hidden = schedule.leaving
    if budget is not None:
        left = needed - hidden
        for index in used:
            if left <= 0:
                break
            if index not in schedule.chosen:
                schedule.chosen.add(index)
                left -= saved[index].bytes
    back = schedule.come_back(uses, late=True)
    sizes = tuple(one.bytes for one in saved)
    return Plan(sizes, frozenset(schedule.chosen), tuple(back), tuple(uses), hidden)
