"""Tests of `tierflow.devito.History`: the states are right, and the engine is asked for the right versions. test_examples tests the gradient."""

import shutil
from typing import Any

import numpy as np
import pytest

import tierflow

devito = pytest.importorskip("devito")
pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="Devito needs gcc"),
    pytest.mark.filterwarnings("default"),
]

STEPS = 40


class Program:
    """A field whose value is the number of the step, and an operator that goes back and adds the values with weights."""

    def __init__(self, length: int) -> None:
        devito.configuration["log-level"] = "ERROR"
        grid = devito.Grid(shape=(5, 6))
        time = grid.time_dim
        self.u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=2, save=devito.Buffer(length))
        self.sum = devito.Function(name="total", grid=grid, dtype=np.float64)
        v = devito.TimeFunction(name="v", grid=grid, time_order=2)
        self.forward = devito.Operator([devito.Eq(self.u.forward, self.u + 1)], name="ahead")
        steps = [devito.Eq(v.backward, v), devito.Eq(self.sum, self.sum + time * (self.u.backward + self.u.forward))]
        self.back = devito.Operator(steps, name="back")

    def ahead(self, history: tierflow.devito.History) -> None:
        self.u.data[:] = 0
        self.u.data[1] = 1
        history.forward(self.forward, time_M=STEPS)

    def total(self, history: tierflow.devito.History) -> float:
        self.sum.data[:] = 0
        history.reverse(self.back)
        assert (self.sum.data == self.sum.data[0, 0]).all()
        return float(self.sum.data[0, 0])


def expected() -> float:
    return float(sum(time * 2 * time for time in range(1, STEPS + 1)))


@pytest.mark.parametrize("length", [4, 7, 16, 100])
def test_shot_after_shot(length: int) -> None:
    program, first = Program(length), 0
    with tierflow.Engine(device="host", host_cache="1MiB", after_restore="discard") as engine:
        for _ in range(3):
            history = tierflow.devito.History(engine, program.u, first=first)
            program.ahead(history)
            # Steps in the buffer are in no version.
            assert len(engine.versions()) == max(0, STEPS + 2 - length)
            assert program.total(history) == expected()
            assert engine.versions() == []
            first = history.next_version


def test_back_again() -> None:
    program = Program(9)
    with tierflow.Engine(device="host", host_cache="1MiB") as engine:
        history = tierflow.devito.History(engine, program.u, again=True)
        program.ahead(history)
        assert [program.total(history) for _ in range(3)] == [expected()] * 3


def test_hints_are_the_restores() -> None:
    hinted: list[int] = []
    restored: list[int] = []

    class Watched(tierflow.Engine):
        def hint(self, versions: Any) -> None:
            hinted.extend(versions)
            super().hint(hinted)

        def restore(self, version: Any, *arrays: Any, **options: Any) -> None:
            restored.append(version)
            super().restore(version, *arrays, **options)

    program = Program(9)
    with Watched(device="host", host_cache="1MiB", after_restore="discard") as engine:
        history = tierflow.devito.History(engine, program.u)
        program.ahead(history)
        program.total(history)
    assert hinted == restored == list(reversed(range(STEPS + 2 - 9)))


def test_an_operator_that_fails_is_an_error() -> None:
    program = Program(9)

    class Failing:
        name, parameters = "failing", program.forward.parameters

        def arguments(self, **given: Any) -> Any:
            return program.forward.arguments(**given)

        def cfunction(self, *_: Any) -> int:
            return 200

    with tierflow.Engine(device="host", host_cache="1MiB") as engine:
        history = tierflow.devito.History(engine, program.u)
        with pytest.raises(devito.exceptions.ExecutionError, match=r"steps 1 to 3.*code 200"):
            history.forward(Failing(), time_M=STEPS)


def test_a_buffer_too_short() -> None:
    with (
        tierflow.Engine(device="host", host_cache="1MiB") as engine,
        pytest.raises(tierflow.ArgumentError, match="Buffer"),
    ):
        tierflow.devito.History(engine, Program(3).u)
