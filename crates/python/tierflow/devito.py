"""The full history of a Devito operator, in an engine.

A `TimeFunction` with `save=nt` holds every time step in memory. A `TimeFunction` with `save=Buffer(n)` holds the last `n` steps, and a
`History` holds the others:

    u = TimeFunction(name="u", grid=grid, time_order=2, space_order=8, save=Buffer(34))
    history = tierflow.devito.History(engine, u)
    history.forward(forward_operator, time_M=nt - 2, dt=dt)      # instead of forward_operator.apply(...)
    history.reverse(gradient_operator, time_M=nt - 2, dt=dt)     # instead of gradient_operator.apply(...)

The operators run in blocks of time steps. While one block is computed, the engine takes in the block before, or restores the next one. Steps
that the buffer itself still holds at the end of the forward sweep are not saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
    """The time steps of `functions`, which have buffers of the same length, in `engine`. Each step is a version: time `t` is version
    `first + t`.

    `reach` is the number of neighbouring time steps that the operator that goes back reads on each side, such as 1 for `u.dt2`. The engine may
    discard versions that were restored (`after_restore="discard"`), as every time step is restored once. With `again`, the last steps are taken
    in, too, so that `reverse` may be called more than once, with an engine that keeps versions that were restored. The history of the next shot
    may begin at `next_version` in the same engine, whose memory is then ready.
    """

    def __init__(
        self, engine: Engine, *functions: _TimeFunction, first: int = 0, reach: int = 1, again: bool = False
    ) -> None:
        lengths = {function.shape[0] for function in functions}
        if len(lengths) != 1 or any(not function.save for function in functions):
            raise ArgumentError(
                "a history is of functions with buffers of one length: TimeFunction(..., save=Buffer(34))"
            )
        self._engine = engine
        self._functions = functions
        self._first = first
        self._reach = reach
        self._again = again
        self._length: int = lengths.pop()
        self._order: int = max(function.time_order for function in functions)
        self._block = (self._length - max(self._order, 2 * reach)) // 2
        if self._block < 1:
            least = max(self._order, 2 * reach) + 2
            raise ArgumentError(
                f"a buffer of {self._length} time steps is too short: save=Buffer({least}), or better ten times that"
            )
        # The time step in each place of the buffers.
        self._there: dict[int, int] = {}
        self._times = range(0)
        self.next_version = first

    def forward(self, operator: _Operator, *, time_m: int | None = None, time_M: int, **arguments: Any) -> None:
        """Applies `operator`, which goes forward, from `time_m` to `time_M`, and keeps all time steps. Without `time_m`, it begins at the first
        step that the operator can compute. `arguments` are those of the operator.
        """
        start = self._order - 1 if time_m is None else time_m
        self._times = range(start - self._order + 1, time_M + 2)
        self.next_version = self._first + self._times.stop
        # Time steps that are in the buffers at the end need not be restored.
        left, last = self._times[: -self._length], self._times[-self._length :]
        stored = self._times if self._again else left
        self._engine.hint(self._first + time for time in reversed(left))
        apply = _applied(operator, start, time_M, arguments, self._functions)
        with _one_at_a_time() as beside:
            # The time steps that the program began with.
            beside(self._store, _both(stored, range(self._times.start, start + 1)))
            for block in _blocks(start, time_M, self._block):
                apply(block)
                beside(self._store, _both(stored, range(block.start + 1, block.stop + 1)))
        self._there = {time % self._length: time for time in last}

    def reverse(
        self, operator: _Operator, *, time_m: int | None = None, time_M: int | None = None, **arguments: Any
    ) -> None:
        """Applies `operator`, which goes back and reads the history, from `time_M` to `time_m`. Without these, it covers the steps of `forward`.
        `arguments` are those of the operator.
        """
        start = self._times.start + self._order - 1 if time_m is None else time_m
        end = self._times.stop - 2 if time_M is None else time_M
        blocks = list(_blocks(start, end, self._block))[::-1]
        apply = _applied(operator, start, end, arguments, self._functions)
        with _one_at_a_time() as beside:
            for block, following in zip(blocks, [*blocks[1:], None], strict=True):
                # Loads the first block; for later blocks, waits for the load that began while the block before was computed.
                beside(self._load, self._around(block)).result()
                if following is not None:
                    beside(self._load, self._around(following))
                apply(block)

    def _around(self, block: range) -> range:
        start = max(self._times.start, block.start - self._reach)
        return range(start, min(self._times.stop, block.stop + self._reach))

    def _arrays(self, time: int) -> list[np.ndarray[Any, Any]]:
        """Returns the arrays of a time step with halo and padding, so that the bytes of each lie in one run."""
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


def _applied(
    operator: _Operator, first: int, last: int, arguments: dict[str, Any], functions: Iterable[_TimeFunction]
) -> Callable[[range], None]:
    """Returns a function that applies `operator` to a block of the steps from `first` to `last`.

    The operator's arguments are made and checked once, for all steps: for a block that takes milliseconds, making them takes as long as the
    block. Under MPI, each `apply` brings sparse data to its ranks and back, so each block is an `apply` of its own.
    """
    if any(function.grid.distributor.nprocs > 1 for function in functions):
        return lambda block: operator.apply(time_m=block.start, time_M=block.stop - 1, **arguments)
    from devito.exceptions import ExecutionError

    known = operator.arguments(time_m=first, time_M=last, **arguments)
    names = [parameter.name for parameter in operator.parameters]

    def apply(block: range) -> None:
        ends = {"time_m": block.start, "time_M": block.stop - 1}
        failed = operator.cfunction(*(ends.get(name, known[name]) for name in names))
        if failed:
            steps = f"steps {block.start} to {block.stop - 1}"
            raise ExecutionError(
                f"{operator.name} failed in {steps}, with Devito's code {failed}: apply it to them alone to see why"
            )

    return apply


def _both(times: range, some: range) -> range:
    return range(max(times.start, some.start), min(times.stop, some.stop))


def _blocks(first: int, last: int, length: int) -> Iterator[range]:
    for start in range(first, last + 1, length):
        yield range(start, min(start + length, last + 1))


@contextmanager
def _one_at_a_time() -> Iterator[Any]:
    """Runs calls in a thread beside the program, one at a time. A new call waits for the call before, and the end of the block for the last
    one; both raise the error of that call."""
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
