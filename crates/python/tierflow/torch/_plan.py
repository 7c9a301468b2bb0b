"""Which saved tensors leave, and when they come back: a function of what one iteration was seen to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Bus", "Plan", "Saved", "plan"]

# Bytes that may be on their way at a time, in either direction: they take up memory that they are to free, or that they need
# before its time.
WINDOW = 256 << 20

# Of what a bus was seen to do, what is counted on: copies begin a little after one another.
SHARE = 0.95

# Of what could leave, what is enough, if it does so in fewer pieces: each keeps the program's thread from its work.
ENOUGH = 0.95


@dataclass(frozen=True)
class Saved:
    """One storage of an iteration. Times are in seconds of work, without what the work waited for transfers."""

    bytes: int
    saved_at: float
    # None: it was not, or it is held by others anyway, so that nothing is gained.
    used_at: float | None


@dataclass(frozen=True)
class Bus:
    """Bytes a second, to the engine and back."""

    out: float
    back: float


@dataclass(frozen=True)
class Plan:
    """What is to be done with the storages of an iteration, by their places in the order of saving."""

    sizes: tuple[int, ...]
    leaves: frozenset[int]
    # Those that leave, in the order in which they are wanted back, each with the use at which its prefetch begins.
    back: tuple[tuple[int, int], ...]
    # All storages that are used, in the order of their first uses.
    uses: tuple[int, ...]
    # Of those that leave, the bytes whose transfers hide behind the work.
    hidden: int

    @property
    def saved(self) -> int:
        """Bytes saved in all."""
        return sum(self.sizes)

    @property
    def leaving(self) -> int:
        """Bytes that leave."""
        return sum(self.sizes[index] for index in self.leaves)

    @property
    def held(self) -> int:
        """Bytes that are not saved alone: the program has them anyway, or no backward uses them."""
        return self.saved - sum(self.sizes[index] for index in self.uses)

    @property
    def staying(self) -> int:
        """Bytes that stay for the backward alone."""
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
        """Chooses, in the order of saving, what the bus takes away as fast as it is saved, until that is enough, and no more than has room."""
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
            # It is away for a while at least.
            if free_at + one.bytes / self.bus.back < one.used_at:
                self.chosen.add(index)
                taken += one.bytes

    def come_back(self, uses: Sequence[int], *, late: bool) -> list[tuple[int, int]]:
        """When each has to start for its use, as late as can be. Those that cannot be in time stay, unless they may be late."""
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
    """Chooses what hides behind the work: the largest ones alone, where little more could leave with the others."""
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
    """The last use before a moment, or the first one."""
    from bisect import bisect_left

    return max(0, bisect_left(times, moment) - 1)


def plan(saved: Sequence[Saved], bus: Bus, *, budget: int | None, room: int, window: int = WINDOW) -> Plan:
    """Plans an iteration like the one that was seen.

    Without a budget as much leaves as hides behind the work. With one, as much as has to, so that no more than `budget` bytes
    stay: what hides first, then what was saved first, which is away for longest. No more than `room` bytes leave because they
    hide.
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
