"""The full history of a Devito operator, in an engine.

A `TimeFunction` with `save=nt` holds every time step in memory. One with `save=Buffer(n)` holds the last `n`, and a `History` the
others:

    u = TimeFunction(name="u", grid=grid, time_order=2, space_order=8, save=Buffer(34))
    history = tierflow.devito.History(engine, u)
    history.forward(forward_operator, time_M=nt - 2, dt=dt)      # instead of forward_operator.apply(...)
    history.reverse(gradient_operator, time_M=nt - 2, dt=dt)     # instead of gradient_operator.apply(...)

The operators run in blocks of time steps. While one block is computed, the one before is taken in, or the next one is
brought back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np
    from devito import Operator as _Operator
    from devito import TimeFunction as _TimeFunction

    from ._tierflow import Engine

__all__ = ["History"]


class History:
    """Every time step of `functions`, which have buffers of the same length, as a version each: time `t` is version `first + t`.

    `reach` is how far from a time step the operator that goes back looks, as for `u.dt2`. The engine may discard what was restored:
    every time step is brought back once.
    """

    def __init__(self, engine: Engine, *functions: _TimeFunction, first: int = 0, reach: int = 1) -> None:
        lengths = {function.shape[0] for function in functions}
        if len(lengths) != 1 or any(not function.save for function in functions):
            raise ArgumentError(
                "a history is of functions with buffers of one length: TimeFunction(..., save=Buffer(34))"
            )
        self._engine = engine
        self._functions = functions
        self._first = first
        self._reach = reach
        self._length: int = lengths.pop()
        self._order: int = max(function.time_order for function in functions)
        self._block = (self._length - max(self._order, 2 * reach)) // 2
        if self._block < 1:
            least = max(self._order, 2 * reach) + 2
            raise ArgumentError(
                f"a buffer of {self._length} time steps is too short: save=Buffer({least}), or better ten times that"
            )
        # Which time lies in which place of the buffers.
        self._there: dict[int, int] = {}
        self._times = range(0)

    def forward(self, operator: _Operator, *, time_m: int | None = None, time_M: int, **arguments: Any) -> None:
        """Applies an operator that goes forward, from `time_m`, which is the first step that it can, to `time_M`, and keeps all."""
        start = self._order - 1 if time_m is None else time_m
        self._times = range(start - self._order + 1, time_M + 2)
        self._engine.hint(self._first + time for time in reversed(self._times))
        with _one_at_a_time() as beside:
            # What the program began with.
            beside(self._store, range(self._times.start, start + 1))
            for block in _blocks(start, time_M, self._block):
                operator.apply(time_m=block.start, time_M=block.stop - 1, **arguments)
                beside(self._store, range(block.start + 1, block.stop + 1))
        last = self._times.stop
        self._there = {time % self._length: time for time in self._times[-self._length :]}
        assert last - 1 in self._there.values()

    def reverse(
        self, operator: _Operator, *, time_m: int | None = None, time_M: int | None = None, **arguments: Any
    ) -> None:
        """Applies an operator that goes back, from `time_M` to `time_m`, and uses the history. Without them, as far as `forward`
        went."""
        start = self._times.start + self._order - 1 if time_m is None else time_m
        end = self._times.stop - 2 if time_M is None else time_M
        blocks = list(_blocks(start, end, self._block))[::-1]
        with _one_at_a_time() as beside:
            for block, following in zip(blocks, [*blocks[1:], None], strict=True):
                # The first of them, or what was begun while the block before was computed.
                beside(self._load, self._around(block)).result()
                if following is not None:
                    beside(self._load, self._around(following))
                operator.apply(time_m=block.start, time_M=block.stop - 1, **arguments)

    def _around(self, block: range) -> range:
        start = max(self._times.start, block.start - self._reach)
        return range(start, min(self._times.stop, block.stop + self._reach))

    def _arrays(self, time: int) -> list[np.ndarray[Any, Any]]:
        """With halo and padding: their bytes lie in one run."""
        return [function._data_allocated[time % self._length] for function in self._functions]

    def _store(self, times: Iterable[int]) -> None:
        for time in times:
            self._engine.checkpoint(self._first + time, *self._arrays(time))

    def _load(self, times: range) -> None:
        for time in reversed(times):
            place = time % self._length
            if self._there.get(place) != time:
                self._engine.restore(self._first + time, *self._arrays(time))
                self._there[place] = time


def _blocks(first: int, last: int, length: int) -> Iterator[range]:
    for start in range(first, last + 1, length):
        yield range(start, min(start + length, last + 1))


@contextmanager
def _one_at_a_time() -> Iterator[Any]:
    """Runs one call after the other beside the program, which waits for the one before; and for the last one, and its error."""
    with ThreadPoolExecutor(1, thread_name_prefix="tierflow-history") as pool:
        running: list[Future[None]] = []

        def beside(call: Any, *arguments: Any) -> Future[None]:
            while running:
                running.pop().result()
            running.append(pool.submit(call, *arguments))
            return running[-1]

        yield beside
        while running:
            running.pop().result()
