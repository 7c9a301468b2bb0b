"""Tapes of pyadjoint with checkpoints in an engine: a nonlinear heat equation with a type and a block of this test."""

import gc
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tierflow

pyadjoint = pytest.importorskip("pyadjoint")
schedules = pytest.importorskip("checkpoint_schedules")

STEPS = 23
SIZE = 400


class Field(pyadjoint.OverloadedType):
    """Values at points, as a type for pyadjoint."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.values = np.asarray(values)

    def _ad_create_checkpoint(self) -> "Field":
        return Field(self.values.copy())

    def _ad_restore_at_checkpoint(self, checkpoint: "Field") -> "Field":
        return checkpoint

    def _ad_init_zero(self, dual: bool = False) -> "Field":
        return Field(np.zeros_like(self.values))

    def _ad_convert_riesz(self, value: np.ndarray, riesz_map: Any = None) -> "Field":
        return Field(value)

    def _ad_mul(self, other: float) -> "Field":
        return Field(self.values * other)

    def _ad_add(self, other: "Field") -> "Field":
        return Field(self.values + other.values)

    def _ad_dot(self, other: "Field") -> float:
        return float(self.values @ other.values)

    def _ad_copy(self) -> "Field":
        return Field(self.values.copy())


def diffused(u: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Computes a step of the heat equation with conductivity k (1 + u²) on a ring."""
    flux = k * (1 + u * u) * (np.roll(u, -1) - u)
    return u + 0.05 * (flux - np.roll(flux, 1))


class Step(pyadjoint.Block):
    def __init__(self, u: Field, k: Field) -> None:
        super().__init__()
        self.add_dependency(u)
        self.add_dependency(k)

    def recompute_component(self, inputs: Any, block_variable: Any, idx: int, prepared: Any) -> Field:
        return Field(diffused(inputs[0].values, inputs[1].values))

    def evaluate_adj_component(
        self, inputs: Any, adj_inputs: Any, block_variable: Any, idx: int, prepared: Any = None
    ) -> np.ndarray:
        u, k, after = inputs[0].values, inputs[1].values, adj_inputs[0]
        flux_bar = 0.05 * (after - np.roll(after, -1))
        slope = np.roll(u, -1) - u
        if idx == 1:
            return flux_bar * (1 + u * u) * slope
        conducted = k * (1 + u * u) * flux_bar
        return after + flux_bar * k * 2 * u * slope + np.roll(conducted, 1) - conducted


class Energy(pyadjoint.Block):
    def __init__(self, u: Field) -> None:
        super().__init__()
        self.add_dependency(u)

    def recompute_component(self, inputs: Any, block_variable: Any, idx: int, prepared: Any) -> Any:
        return pyadjoint.AdjFloat(inputs[0].values @ inputs[0].values)

    def evaluate_adj_component(
        self, inputs: Any, adj_inputs: Any, block_variable: Any, idx: int, prepared: Any = None
    ) -> np.ndarray:
        return 2 * adj_inputs[0] * inputs[0].values


def annotated(block: Any, output: Any) -> Any:
    pyadjoint.get_working_tape().add_block(block)
    block.add_output(output.create_block_variable())
    return output


def split(field: Field) -> tuple[list[np.ndarray], Callable[..., Field]]:
    return [field.values], Field


def functional(tape: Any, size: int = SIZE, steps: int = STEPS) -> tuple[Any, Field, Field]:
    """Tapes the energy at the end as a function of the start and of the conductivity, which is the same in all steps."""
    random = np.random.default_rng(1)
    start, k = Field(random.random(size)), Field(0.5 + random.random(size))
    u = start
    for _ in tape.timestepper(iter(range(steps))):
        u = annotated(Step(u, k), Field(diffused(u.values, k.values)))
    energy = annotated(Energy(u), pyadjoint.AdjFloat(u.values @ u.values))
    controls = [pyadjoint.Control(start), pyadjoint.Control(k)]
    return pyadjoint.ReducedFunctional(energy, controls, tape=tape), start, k


def evaluations(schedule: Any, keep: Callable[[Any], Any] | None = None, count: int = 3) -> list[Any]:
    """Returns values and gradients of several evaluations. The first one is that of the taping."""
    pyadjoint.continue_annotation()
    told = []
    with pyadjoint.set_working_tape() as tape:
        if keep is not None:
            schedule = keep(tape).schedule(schedule)
        tape.enable_checkpointing(schedule)
        reduced, start, k = functional(tape)
        for index in range(count):
            value = reduced([Field(start.values * (1 + 0.1 * index)), k]) if index else reduced.functional
            told.append([float(value), *(one.values for one in reduced.derivative())])
        pyadjoint.pause_annotation()
        tape.clear_tape()
        del reduced
    return told


# A machine with a link that takes three steps for a state, and one without a link.
MACHINE = tierflow.Machine(forward=1, backward=1, state=1, device=3, tiers=[(STEPS, 1 / 3, 1 / 3)])
SMALL = tierflow.Machine(forward=1, backward=1, state=1, device=2)
DISK, RAM = schedules.StorageType.DISK, schedules.StorageType.RAM
MAKE = {
    "disk": lambda: schedules.SingleDiskStorageSchedule(),
    "disk, moved": lambda: schedules.SingleDiskStorageSchedule(move_data=True),
    "two levels": lambda: schedules.TwoLevelCheckpointSchedule(5, binomial_snapshots=2),
    "two levels in memory": lambda: schedules.TwoLevelCheckpointSchedule(4, binomial_snapshots=1, binomial_storage=RAM),
    "multistage": lambda: schedules.MultistageCheckpointSchedule(STEPS, 2, 3),
    "mixed": lambda: schedules.MixedCheckpointSchedule(STEPS, 4, storage=DISK),
    "mixed in memory": lambda: schedules.MixedCheckpointSchedule(STEPS, 6, storage=RAM),
    "revolve": lambda: schedules.Revolve(STEPS, 4),
    "disk revolve": lambda: schedules.DiskRevolve(STEPS, 2),
    "periodic": lambda: schedules.PeriodicDiskRevolve(STEPS, 2),
    "h-revolve": lambda: schedules.HRevolve(STEPS, 2, 2),
    "tiered": lambda: tierflow.adjoint.Tiered(STEPS, machine=MACHINE),
    "tiered, few slots": lambda: tierflow.adjoint.Tiered(STEPS, machine=SMALL),
}


def quiet(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        # A missing Numba is a warning.
        warnings.simplefilter("ignore", RuntimeWarning)
        return call()


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    return evaluations(schedules.SingleMemoryStorageSchedule())


@pytest.mark.parametrize("name", MAKE)
def test_gradients_are_those_in_memory_to_the_bit(name: str, engine: tierflow.Engine, expected: list[Any]) -> None:
    keep = lambda tape: tierflow.pyadjoint.keep_in(engine, {Field: split}, tape)  # noqa: E731
    got = quiet(lambda: evaluations(MAKE[name](), keep))
    for one, other in zip(got, expected, strict=True):
        assert one[0] == other[0]
        assert all((a == b).all() for a, b in zip(one[1:], other[1:], strict=True))
    assert engine.metrics()["checkpoint"]["count"] > 0
    gc.collect()
    assert engine.versions() == []


@pytest.mark.parametrize("name", MAKE)
def test_hints_come_before_the_restores_in_their_order(name: str) -> None:
    ahead: list[int] = []
    hits, misses = [], []

    class Watched(tierflow.Engine):
        def hint(self, versions: Any) -> None:
            ahead.extend(versions)
            super().hint(versions)

        def forget_hints(self, versions: Any = None) -> None:
            ahead[:] = [version for version in ahead if version not in set(versions)]
            super().forget_hints(versions)

        def restore(self, version: Any, *arrays: Any, stream: Any = None, timeout: Any = None) -> Any:
            if version in ahead:
                hits.append(ahead.index(version))
                ahead.remove(version)
            else:
                misses.append(version)
            return super().restore(version, *arrays)

    with Watched(device="host", host_cache="16MiB") as engine:
        keep = lambda tape: tierflow.pyadjoint.keep_in(engine, {Field: split}, tape)  # noqa: E731
        quiet(lambda: evaluations(MAKE[name](), keep))
    assert not any(hits), hits
    assert ahead == []
    # Two kinds of states are not hinted: the start, with which an evaluation begins, and states that were stored just before.
    assert len(hits) >= STEPS // 2, (hits, misses)
    if name in ("disk", "disk, moved"):
        assert len(hits) >= 3 * STEPS
        assert len(misses) <= 6


def test_taylor(engine: tierflow.Engine) -> None:
    pyadjoint.continue_annotation()
    with pyadjoint.set_working_tape() as tape:
        store = tierflow.pyadjoint.keep_in(engine, {Field: split})
        tape.enable_checkpointing(store.schedule(schedules.Revolve(STEPS, 4)))
        reduced, start, k = functional(tape)
        pyadjoint.pause_annotation()
        random = np.random.default_rng(2)
        along = [Field(0.1 * random.standard_normal(SIZE)) for _ in range(2)]
        assert pyadjoint.taylor_test(reduced, [start, k], along) > 1.99


def test_memory_is_flat_over_100_evaluations() -> None:
    """The states of one forward pass have 2 MB and are stored twice. The engine's tiers are full from the second evaluation on."""

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    with tierflow.Engine(device="host", device_cache="1MiB", host_cache="16MiB") as engine:
        pyadjoint.continue_annotation()
        with pyadjoint.set_working_tape() as tape:
            store = tierflow.pyadjoint.keep_in(engine, {Field: split})
            tape.enable_checkpointing(store.schedule(schedules.SingleDiskStorageSchedule()))
            reduced, start, k = functional(tape, size=10_000, steps=12)
            pyadjoint.pause_annotation()
            seen, counts = [], set()
            for _ in range(100):
                reduced([start, k])
                reduced.derivative()
                seen.append(resident())
                counts.add(len(engine.versions()))
            # After the first adjoint the tape knows what adjoints need.
            assert len(counts) <= 2, counts
            # Other tests leave memory in this process that comes and goes, so medians count.
            assert statistics.median(seen[70:]) < statistics.median(seen[10:40]) + (2 << 20), seen
            tape.clear_tape()
            del reduced
        assert engine.versions() == []


def test_a_schedule_of_the_tape_s_own_memory_is_refused(engine: tierflow.Engine) -> None:
    with pyadjoint.set_working_tape():
        store = tierflow.pyadjoint.keep_in(engine, {Field: split})
        with pytest.raises(tierflow.ArgumentError, match="SingleDiskStorageSchedule"):
            store.schedule(schedules.SingleMemoryStorageSchedule())


def test_an_engine_that_discards_what_was_restored_is_refused() -> None:
    with tierflow.Engine(device="host", host_cache="4MiB", after_restore="discard") as engine:
        with pyadjoint.set_working_tape(), pytest.raises(tierflow.ArgumentError, match='after_restore="keep"'):
            tierflow.pyadjoint.keep_in(engine, {Field: split})


def test_without_a_store_nothing_changes(engine: tierflow.Engine, expected: list[Any]) -> None:
    """The type was diverted, and a tape with another type's store, or none, has its checkpoints in memory."""
    keep = lambda tape: tierflow.pyadjoint.keep_in(engine, {}, tape)  # noqa: E731
    in_memory = evaluations(schedules.SingleMemoryStorageSchedule())
    of_another = evaluations(schedules.Revolve(STEPS, 4), keep, count=1)
    for got in (in_memory, of_another):
        for one, other in zip(got, expected, strict=False):
            assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert engine.metrics()["checkpoint"]["count"] == 0


def test_an_engine_without_room_says_so_and_nothing_is_diverted_after_it() -> None:
    with tierflow.Engine(device="host", host_cache="64KiB") as engine:
        keep = lambda tape: tierflow.pyadjoint.keep_in(engine, {Field: split}, tape)  # noqa: E731
        with pytest.raises(tierflow.TierflowError):
            evaluations(schedules.SingleDiskStorageSchedule(), keep)
        pyadjoint.pause_annotation()
        assert isinstance(Field(np.zeros(3))._ad_create_checkpoint(), Field)
