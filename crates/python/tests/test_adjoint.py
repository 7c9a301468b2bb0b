"""Every schedule of `checkpoint_schedules` gives the right states and the right gradient."""

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import tierflow

schedules = pytest.importorskip("checkpoint_schedules")

STEPS = 23


def quiet(make: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        # A missing Numba is a warning.
        warnings.simplefilter("ignore", RuntimeWarning)
        return make()


# A machine with a link that takes three steps for a state, and one without a link.
MACHINE = tierflow.Machine(forward=1, backward=1, state=1, device=3, tiers=[(STEPS, 1 / 3, 1 / 3)])
SMALL = tierflow.Machine(forward=1, backward=1, state=1, device=2)
DISK, RAM = schedules.StorageType.DISK, schedules.StorageType.RAM
MAKE = {
    "memory": lambda: schedules.SingleMemoryStorageSchedule(),
    "disk": lambda: schedules.SingleDiskStorageSchedule(),
    "disk, moved": lambda: schedules.SingleDiskStorageSchedule(move_data=True),
    "two levels": lambda: schedules.TwoLevelCheckpointSchedule(5, binomial_snapshots=2),
    "two levels in memory": lambda: schedules.TwoLevelCheckpointSchedule(4, binomial_snapshots=1, binomial_storage=RAM),
    "multistage": lambda: schedules.MultistageCheckpointSchedule(STEPS, 2, 3),
    "multistage, trajectory": lambda: schedules.MultistageCheckpointSchedule(STEPS, 0, 4, trajectory="revolve"),
    "mixed": lambda: schedules.MixedCheckpointSchedule(STEPS, 4, storage=DISK),
    "mixed in memory": lambda: schedules.MixedCheckpointSchedule(STEPS, 6, storage=RAM),
    "revolve": lambda: schedules.Revolve(STEPS, 4),
    "disk revolve": lambda: schedules.DiskRevolve(STEPS, 2),
    "periodic": lambda: schedules.PeriodicDiskRevolve(STEPS, 2),
    "h-revolve": lambda: schedules.HRevolve(STEPS, 2, 2),
    "tiered, length unknown": lambda: tierflow.adjoint.Tiered(None, machine=MACHINE),
    "tiered": lambda: tierflow.adjoint.Tiered(STEPS, machine=MACHINE),
    "tiered, few slots": lambda: tierflow.adjoint.Tiered(STEPS, machine=SMALL),
}


@pytest.fixture
def engine() -> Iterator[tierflow.Engine]:
    with tierflow.Engine(device="host", device_cache="16KiB", host_cache="4MiB") as engine:
        yield engine


def advanced(u: np.ndarray) -> np.ndarray:
    return u + 0.1 * np.sin(u) * np.roll(u, 1)


class Model:
    """A recurrence that is not linear, and its adjoint. The model checks every state that it is given."""

    def __init__(self, u: np.ndarray) -> None:
        self.u = u.copy()
        self.expected = [u.copy()]
        self.reversed: list[int] = []
        for _ in range(STEPS):
            self.expected.append(advanced(self.expected[-1]))
        self.v = np.zeros_like(u)

    def forward(self, step: int) -> None:
        assert (self.u == self.expected[step]).all()
        self.u[:] = advanced(self.u)

    def end_forward(self) -> None:
        assert (self.u == self.expected[-1]).all()
        self.v[:] = self.u

    def reverse(self, step: int) -> None:
        assert (self.u == self.expected[step]).all()
        self.reversed.append(step)
        scaled = 0.1 * self.v
        by_u = self.v + scaled * np.cos(self.u) * np.roll(self.u, 1)
        self.v = by_u + np.roll(scaled * np.sin(self.u), -1)


def gradient(engine: tierflow.Engine, schedule: Any, u: np.ndarray) -> tuple[np.ndarray, Any]:
    from tierflow import adjoint

    model = Model(u)
    steps = None if schedule.max_n else STEPS
    calls = {"forward": model.forward, "reverse": model.reverse, "end_forward": model.end_forward}
    left = quiet(lambda: adjoint.run(engine, schedule, state=[model.u], steps=steps, **calls))
    assert model.reversed == list(reversed(range(STEPS)))
    return model.v, left


@pytest.mark.parametrize("name", MAKE)
def test_every_schedule(engine: tierflow.Engine, name: str) -> None:
    u = np.random.default_rng(1).random(100)
    slope, left = gradient(engine, quiet(MAKE[name]), u)
    left.clear()
    assert engine.versions() == []

    def value(u: np.ndarray) -> float:
        for _ in range(STEPS):
            u = advanced(u)
        return 0.5 * float(u @ u)

    # Taylor's theorem: the remainder behind the slope falls with the square of the step.
    direction = np.random.default_rng(2).standard_normal(100)
    sizes = 1e-3 * 0.5 ** np.arange(4)
    rest = [abs(value(u + size * direction) - value(u) - size * float(slope @ direction)) for size in sizes]
    orders = np.log2(np.array(rest[:-1]) / rest[1:])
    assert orders.min() > 1.95, orders


@pytest.mark.parametrize("name", MAKE)
def test_the_hints_are_the_restores(name: str) -> None:
    order: list[int] = []
    restored: list[int] = []
    at_first: list[int] = []

    class Watched(tierflow.Engine):
        def hint(self, versions: Any) -> None:
            order.extend(versions)
            at_first.append(len(set(order)))
            super().hint(order)

        def hint_next(self, versions: Any) -> None:
            order[:0] = versions
            super().hint_next(versions)

        def discard(self, version: Any) -> None:
            order[:] = [one for one in order if one != version]
            super().discard(version)

        def restore(self, version: Any, *arrays: Any, stream: Any = None, timeout: Any = None) -> Any:
            assert order.pop(0) == version
            restored.append(version)
            return super().restore(version, *arrays, stream=stream)

    with Watched(device="host", host_cache="4MiB") as engine:
        gradient(engine, quiet(MAKE[name]), np.random.default_rng(1).random(100))
    # States that are there when their adjoint begins are not restored.
    assert len(restored) >= STEPS // 2
    # States that are stored on the way back are hinted when they are near.
    assert max(at_first) <= len(set(restored))
    assert name not in ("revolve", "tiered, few slots") or max(at_first) < len(set(restored))


def test_several_runs_in_one_engine(engine: tierflow.Engine) -> None:
    """Several runs in one engine, each with the states that earlier runs left, beside a version with a number of the caller."""
    from tierflow import adjoint

    engine.checkpoint(3, np.ones(10))
    left = []
    for _ in range(3):
        model = Model(np.ones(10))
        calls = {"forward": model.forward, "reverse": model.reverse, "end_forward": model.end_forward}
        left.append(adjoint.run(engine, quiet(MAKE["disk"]), state=[model.u], steps=STEPS, **calls))
    assert len(engine.versions()) == 3 * STEPS + 1
    for storage in left:
        storage.clear()
    assert engine.versions() == [3]


def test_an_exception_leaves_nothing(engine: tierflow.Engine) -> None:
    from tierflow import adjoint

    for where in ("forward", "reverse"):
        model = Model(np.ones(10))
        calls: dict[str, Any] = {"forward": model.forward, "reverse": model.reverse}
        calls[where] = lambda step: 1 / (step - 11)
        with pytest.raises((ZeroDivisionError, AssertionError)):
            adjoint.run(engine, quiet(MAKE["multistage"]), state=[model.u], end_forward=model.end_forward, **calls)
        assert engine.versions() == []


class Pair(NamedTuple):
    u: Any
    flags: Any


def test_states_are_trees(engine: tierflow.Engine) -> None:
    from tierflow.adjoint import Kept

    def state(start: int) -> Any:
        pair = Pair(np.arange(start, start + 5.0), np.array([start == 1, True]))
        return {"pair": pair, "more": [np.full((2, 3), start, "i4"), None, (start, start / 2, start == 1)]}

    kept = Kept(engine, state(1))
    for back in (kept.restore(), kept.restore(state(7))):
        assert isinstance(back["pair"], Pair)
        assert (back["pair"].u == np.arange(1, 6)).all()
        assert back["pair"].flags.all()
        assert back["more"][0].dtype == np.int32
        assert (back["more"][0] == 1).all()
        assert back["more"][1:] == [None, (1, 0.5, True)]
        assert [type(number) for number in back["more"][2]] == [int, float, bool]
    into = state(7)
    assert kept.restore(into)["pair"].u is into["pair"].u
    with pytest.raises(tierflow.ArgumentError, match="into="):
        kept.restore(np.zeros(5))
    with pytest.raises(tierflow.ArgumentError, match="without arrays"):
        Kept(engine, {"nothing": []})
    one = Kept(engine, np.arange(3))
    assert (one.restore() == np.arange(3)).all()
    assert one.version != kept.version
    one.discard()
    one.discard()
    del kept
    assert engine.versions() == []


def test_states_that_cannot_be_written_into(engine: tierflow.Engine) -> None:
    """A loop of the caller makes a new state in each step, and restores return new ones."""
    from tierflow import adjoint

    storage = adjoint.Storage(engine, quiet(MAKE["h-revolve"]))
    expected = [{"u": np.ones(10), "time": 0.0}]
    for _ in range(STEPS):
        expected.append({"u": advanced(expected[-1]["u"]), "time": expected[-1]["time"] + 0.5})
    state, reversed_steps = expected[0], []
    for action in storage:
        if isinstance(action, schedules.Forward):
            for step in storage.steps(action):
                assert (state["u"] == expected[step]["u"]).all()
                storage.save(step, state)
                state = {"u": advanced(state["u"]), "time": state["time"] + 0.5}
        elif isinstance(action, schedules.Reverse):
            for step in action:
                there = storage.load(step)
                assert (there["u"] == expected[step]["u"]).all()
                assert there["time"] == expected[step]["time"]
                reversed_steps.append(step)
        elif isinstance(action, schedules.EndReverse):
            break
        elif (there := storage.restart()) is not None:
            state = there
    assert reversed_steps == list(reversed(range(STEPS)))
    storage.clear()
    assert engine.versions() == []


@pytest.mark.parametrize("arrays", [1, 2, 64, 65, 100])
def test_a_state_has_as_many_arrays_as_it_had(engine: tierflow.Engine, arrays: int) -> None:
    state = {"time": 0.5, "fields": [np.full((2, 1 + index % 3), index, np.float32) for index in range(arrays)]}
    kept = tierflow.adjoint.Kept(engine, state)
    into = {"time": 0.0, "fields": [np.zeros_like(field) for field in state["fields"]]}
    for back in (kept.restore(), kept.restore(into)):
        assert (back["time"], len(back["fields"])) == (0.5, arrays)
        for was, now in zip(state["fields"], back["fields"], strict=True):
            assert now.dtype == was.dtype
            assert np.array_equal(now, was)


def test_a_second_adjoint_of_the_same_data(engine: tierflow.Engine) -> None:
    from tierflow import adjoint

    schedule = quiet(MAKE["disk"])
    storage = adjoint.Storage(engine, schedule)
    state, seen, ends = np.zeros(4), [], 0
    for action in storage:
        if isinstance(action, schedules.Forward):
            for step in storage.steps(action):
                state[:] = step
                storage.save(step, state)
            if action.n1 == STEPS:
                schedule.finalize(STEPS)
        elif isinstance(action, schedules.Reverse):
            for step in action:
                storage.load(step, state)
                assert (state == step).all()
                seen.append(step)
        elif isinstance(action, schedules.EndReverse):
            ends += 1
            if ends == 2:
                break
    assert seen == 2 * list(reversed(range(STEPS)))


def test_an_engine_that_discards_what_was_restored_is_refused_before_the_first_step() -> None:
    from tierflow import adjoint

    with tierflow.Engine(device="host", host_cache="4MiB", after_restore="discard") as engine:
        assert engine.after_restore == "discard"
        model = Model(np.ones(10))
        calls = {"forward": model.forward, "reverse": model.reverse}
        with pytest.raises(tierflow.ArgumentError, match='after_restore="keep"'):
            adjoint.run(engine, quiet(MAKE["revolve"]), state=[model.u], **calls)
        assert (model.u == 1).all()
        with pytest.raises(tierflow.ArgumentError, match='after_restore="keep"'):
            adjoint.Storage(engine, quiet(MAKE["disk"]))


def test_calls_that_do_not_fit(engine: tierflow.Engine) -> None:
    from tierflow import adjoint

    storage = adjoint.Storage(engine, quiet(MAKE["revolve"]))
    for _ in storage:
        with pytest.raises(RuntimeError, match="in a Reverse"):
            storage.load(0, np.zeros(3))
        break
    with pytest.raises(tierflow.ArgumentError, match="in place"):
        adjoint.run(engine, quiet(MAKE["revolve"]), state=[1.0], forward=print, reverse=print)
    with pytest.raises(ValueError, match="leave steps out"):
        adjoint.run(engine, quiet(MAKE["revolve"]), state=[], forward=print, reverse=print, steps=7)
    with pytest.raises(ValueError, match="pass steps="):
        adjoint.run(engine, schedules.NoneCheckpointSchedule(), state=[], forward=lambda step: 1 / 0, reverse=print)


def test_a_schedule_that_its_engine_holds_goes_with_it() -> None:
    class Holder(tierflow.Engine):
        pass

    engine = Holder(device="host", host_cache="1MiB")
    engine.schedule = tierflow._tierflow.Schedule(SMALL, None, engine)  # type: ignore[attr-defined]
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None
