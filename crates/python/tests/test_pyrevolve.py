"""Tests of pyrevolve's snapshots in an engine: every restored state is the right one, and hints name the loads."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tierflow

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pyrevolve = pytest.importorskip("pyrevolve")

STEPS = 41


@pytest.fixture
def engine() -> Iterator[tierflow.Engine]:
    with tierflow.Engine(device="host", device_cache="8KiB", host_cache="4MiB") as engine:
        yield engine


class State(pyrevolve.Checkpoint):  # type: ignore[misc]
    """A state of two arrays, one of which is not contiguous."""

    def __init__(self) -> None:
        self.whole = np.zeros(300, np.float32)
        self.columns = np.zeros((20, 30), np.float32)[:, :15]

    dtype = np.float32
    size = 300 + 20 * 15

    def get_data(self, timestep: int) -> list[Any]:
        return [self.whole, self.columns]

    def get_data_location(self, timestep: int) -> list[Any]:
        return self.get_data(timestep)


class Forward(pyrevolve.Operator):  # type: ignore[misc]
    """The state of step n is n everywhere."""

    def __init__(self, state: State) -> None:
        self.state = state

    def apply(self, t_start: int, t_end: int) -> None:
        assert (self.state.whole == t_start).all()
        assert (self.state.columns == -t_start).all()
        self.state.whole[:], self.state.columns[:] = t_end, -t_end


class Reverse(pyrevolve.Operator):  # type: ignore[misc]
    def __init__(self) -> None:
        self.steps: list[int] = []

    def apply(self, t_start: int, t_end: int) -> None:
        self.steps += reversed(range(t_start, t_end))


@pytest.mark.parametrize("snapshots", [1, 3, 20, None])
def test_a_revolver_goes_back_through_all_steps(engine: tierflow.Engine, snapshots: int | None) -> None:
    state, reverse, first = State(), Reverse(), 0
    # Several shots in one engine.
    for _ in range(2):
        state.whole[:], state.columns[:] = 0, 0
        reverse.steps.clear()
        plan = (state, Forward(state), reverse, snapshots, STEPS)
        revolver = tierflow.pyrevolve.Revolver(engine, *plan, first=first)
        revolver.apply_forward()
        revolver.apply_reverse()
        assert reverse.steps == list(reversed(range(STEPS)))
        revolver.storage.clear()
        assert engine.versions() == []
        first = revolver.storage.next_version


def test_the_hints_are_the_loads() -> None:
    hinted: list[int] = []
    loaded: list[int] = []

    class Watched(tierflow.Engine):
        def hint(self, versions: Any) -> None:
            hinted.extend(versions)
            super().hint(hinted)

        def restore(self, version: Any, *arrays: Any, **options: Any) -> None:
            loaded.append(version)
            super().restore(version, *arrays, **options)

    with Watched(device="host", host_cache="4MiB") as engine:
        state = State()
        revolver = tierflow.pyrevolve.Revolver(engine, state, Forward(state), Reverse(), 4, STEPS)
        revolver.apply_forward()
        revolver.apply_reverse()
    assert hinted == loaded
    assert len(loaded) >= STEPS - 4


def test_an_engine_that_discards_what_was_restored_is_refused() -> None:
    with tierflow.Engine(device="host", host_cache="4MiB", after_restore="discard") as engine:
        with pytest.raises(tierflow.ArgumentError, match='after_restore="keep"'):
            tierflow.pyrevolve.Storage(engine, 10, 3, np.float32)


def test_a_snapshot_stays_until_the_one_in_its_place_is_there(engine: tierflow.Engine) -> None:
    storage = tierflow.pyrevolve.Storage(engine, 300, 3, np.float32)
    storage.save(0, [np.full(300, 1, np.float32)])
    with pytest.raises(tierflow.TierflowError):
        storage.save(0, [np.zeros(64 << 20, np.uint8)])
    found = np.zeros(300, np.float32)
    storage.load(0, [found])
    assert (found == 1).all()
    storage.save(0, [np.full(300, 2, np.float32)])
    storage.load(0, [found])
    assert (found == 2).all()
    assert len(engine.versions()) == 1


def test_the_old_snapshot_gives_way_where_there_is_no_room_for_two() -> None:
    with tierflow.Engine(device="host", host_cache="4MiB") as engine:
        storage = tierflow.pyrevolve.Storage(engine, 3 << 20, 1, np.uint8)
        for value in range(3):
            storage.save(0, [np.full(3 << 20, value, np.uint8)])
        found = np.zeros(3 << 20, np.uint8)
        storage.load(0, [found])
        assert (found == 2).all()


def test_several_levels(engine: tierflow.Engine) -> None:
    """A schedule of pyrevolve uses two storages, one of which is the engine."""
    state, reverse = State(), Reverse()
    profiler = pyrevolve.pyrevolve.Profiler()
    levels = [
        pyrevolve.NumpyStorage(state.size, 2, state.dtype, profiler=profiler, wd=0, rd=0),
        tierflow.pyrevolve.Storage(engine, state.size, 10, state.dtype, wd=2, rd=2),
    ]
    revolver = pyrevolve.MultiLevelRevolver(state, Forward(state), reverse, STEPS, storage_list=levels)
    revolver.apply_forward()
    revolver.apply_reverse()
    assert reverse.steps == list(reversed(range(STEPS)))
    assert levels[1].next_version > 0
