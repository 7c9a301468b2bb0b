"""Measures the gradient of a nonlinear heat equation on a tape of pyadjoint, in pyadjoint's own ways and in an engine.

OMP_NUM_THREADS=1 python pyadjoint_heat.py --steps 200 --points 200000

Each way tapes once, and then evaluates the functional and its gradient several times with other starts. The program prints the medians of
these times, the medians of the processor time of all threads and their ratio to that of the tape in memory, the growth of the process's
memory, and whether the gradients are the same to the bit. `--work` is the number of parts of a step. Only the last part is stored, so the
option sets the work for each byte. With large MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_, NumPy does not return temporary arrays to
the system and ask for them again. A tape with many arrays prevents this by chance.
"""

import argparse
import gc
import multiprocessing
import statistics
import tempfile
import time
import warnings
from typing import Any

import numpy as np
import pyadjoint
from checkpoint_schedules import Revolve, SingleDiskStorageSchedule, SingleMemoryStorageSchedule

import tierflow


class Field(pyadjoint.OverloadedType):
    """Values at points."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.values = values

    def _ad_create_checkpoint(self) -> "Field":
        return Field(self.values.copy())

    def _ad_restore_at_checkpoint(self, checkpoint: "Field") -> "Field":
        return checkpoint

    def _ad_convert_riesz(self, value: np.ndarray, riesz_map: Any = None) -> "Field":
        return Field(value)


def flows(u: np.ndarray) -> np.ndarray:
    """Computes a part of a step of the heat equation with conductivity 1 + u² on a ring."""
    flux = (1 + u * u) * (np.roll(u, -1) - u)
    return u + 0.05 * (flux - np.roll(flux, 1))


def flows_back(u: np.ndarray, after: np.ndarray) -> np.ndarray:
    flux_bar = 0.05 * (after - np.roll(after, -1))
    conducted = (1 + u * u) * flux_bar
    return after + flux_bar * 2 * u * (np.roll(u, -1) - u) + np.roll(conducted, 1) - conducted


class Step(pyadjoint.Block):
    def __init__(self, u: Field, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.add_dependency(u)

    def forward(self, u: np.ndarray) -> list[np.ndarray]:
        states = [u]
        for _ in range(self.parts):
            states.append(flows(states[-1]))
        return states

    def recompute_component(self, inputs: Any, block_variable: Any, idx: int, prepared: Any) -> Field:
        return Field(self.forward(inputs[0].values)[-1])

    def evaluate_adj_component(
        self, inputs: Any, adj_inputs: Any, block_variable: Any, idx: int, prepared: Any = None
    ) -> np.ndarray:
        bar = adj_inputs[0]
        for u in reversed(self.forward(inputs[0].values)[:-1]):
            bar = flows_back(u, bar)
        return bar


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


def resident() -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def measured(way: str, options: argparse.Namespace, told: Any) -> None:
    """Tapes and evaluates in one way, in its own process."""
    warnings.simplefilter("ignore")
    bytes_in_all = 2 * options.steps * options.points * 8
    before = resident()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        engine: Any = None
        if way == "engine, host memory":
            engine = tierflow.Engine(device="host", host_cache=bytes_in_all + (64 << 20))
        elif way != "memory" and not way.startswith("pyadjoint"):
            engine = tierflow.Engine(device="host", device_cache="64MiB", host_cache="128MiB", scratch=scratch)
        schedule: Any = {
            "memory": SingleMemoryStorageSchedule,
            "engine, host memory": SingleDiskStorageSchedule,
            "engine, 192 MiB and files": SingleDiskStorageSchedule,
        }.get(way, lambda: Revolve(options.steps, options.snapshots))()
        pyadjoint.continue_annotation()
        tape = pyadjoint.Tape()
        pyadjoint.set_working_tape(tape)
        if engine is not None:
            schedule = tierflow.pyadjoint.keep_in(engine, {Field: lambda field: ([field.values], Field)}).schedule(
                schedule
            )
        tape.enable_checkpointing(schedule)
        start = u = Field(np.random.default_rng(1).random(options.points))
        for _ in tape.timestepper(iter(range(options.steps))):
            block = Step(u, options.work)
            u = annotated(block, Field(block.forward(u.values)[-1]))
        energy = annotated(Energy(u), pyadjoint.AdjFloat(u.values @ u.values))
        reduced = pyadjoint.ReducedFunctional(energy, pyadjoint.Control(start))
        pyadjoint.pause_annotation()
        reduced.derivative()
        times, busy = [], []
        for index in range(options.evaluations):
            begun, worked = time.perf_counter(), time.process_time()
            reduced(Field(start.values * (1 + 0.01 * index)))
            slope = reduced.derivative()
            times.append(time.perf_counter() - begun)
            busy.append(time.process_time() - worked)
        told.send((times, busy, resident() - before, slope.values))
        tape.clear_tape()
        del reduced
        gc.collect()
        if engine is not None:
            engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--points", type=int, default=200_000)
    parser.add_argument("--work", type=int, default=4)
    parser.add_argument("--snapshots", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=5)
    parser.add_argument("--scratch", default=None)
    options = parser.parse_args()
    ways = [
        "memory",
        "engine, host memory",
        "engine, 192 MiB and files",
        "pyadjoint, revolve",
        "engine, revolve",
    ]
    gib = options.steps * options.points * 8 / (1 << 30)
    print(f"{options.steps} states of {options.points * 8 >> 10} KiB, {gib:.2f} GiB\n")
    print(
        "| way | value and gradient | processor time | beside memory | memory | gradient |\n|---|---|---|---|---|---|"
    )
    first = expected = None
    context = multiprocessing.get_context("spawn")
    for way in ways:
        here, there = context.Pipe()
        process = context.Process(target=measured, args=(way, options, there))
        process.start()
        there.close()
        times, busy, grown, slope = here.recv()
        process.join()
        work = statistics.median(busy)
        first, expected = first or work, slope if expected is None else expected
        off = float(np.abs(slope - expected).max() / np.abs(expected).max())
        same = "the same bits" if off == 0 else f"off by {off:.1e}"
        took = f"{statistics.median(times):.2f} s | {work:.2f} s | {work / first:.2f}"
        print(f"| {way} | {took} | {grown / 2**30:.2f} GiB | {same} |", flush=True)


if __name__ == "__main__":
    main()
