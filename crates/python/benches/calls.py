"""Measures the cost of calls with small arrays and with 1 MiB: medians in µs, to compare with `cargo run --release --example calls`.

python calls.py                  # NumPy, plain memory
python calls.py --device cuda    # PyTorch
python calls.py --pairs          # each version is restored right after its checkpoint, and discarded: `calls -- pairs` in Rust
"""

import argparse
import gc
import statistics
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any

import tierflow


def median(call: Callable[[int], object], count: int) -> float:
    """Returns the median in µs, without the time of reading the clock."""
    times = []
    for version in range(count):
        begun = now()
        call(version)
        times.append(now() - begun)
    looks = []
    for _ in range(count):
        begun = now()
        looks.append(now() - begun)
    return (statistics.median(times) - statistics.median(looks)) / 1e3


def pairs(device: str, field: Any, count: int) -> None:
    """Measures pairs of a checkpoint and a restore, which use the same memory all the time."""
    written, read, looks = [], [], []
    with tierflow.Engine(device=device, device_cache="64MiB", after_restore="discard") as engine:
        gc.disable()
        for version in range(count):
            begun = now()
            engine.checkpoint(version, field)
            between = now()
            engine.restore(version, field)
            end = now()
            written.append(between - begun)
            read.append(end - between)
            looks.append(-(end - now()))
        gc.enable()
    medians = [(statistics.median(times) - statistics.median(looks)) / 1e3 for times in (written, read)]
    print(
        f"{field.nbytes:>8} bytes, {count} pairs: checkpoint {medians[0]:.2f} µs, restore {medians[1]:.2f} µs",
        flush=True,
    )


def report(device: str, field: Any, count: int) -> None:
    cache = count * max(field.nbytes, 4096) + (64 << 20)
    with tierflow.Engine(device=device, device_cache=cache) as engine:
        gc.disable()
        written = median(lambda version: engine.checkpoint(version, field), count)
        read = median(lambda version: engine.restore(version, field), count)
        gc.enable()
    print(f"{field.nbytes:>8} bytes, {count} calls: checkpoint {written:.2f} µs, restore {read:.2f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="host")
    parser.add_argument("--pairs", action="store_true")
    options = parser.parse_args()
    measure = pairs if options.pairs else report
    for size, count in ((8, 100_000), (4096, 100_000), (1 << 20, 100_000 if options.pairs else 2000)):
        if options.device == "host":
            import numpy

            measure(options.device, numpy.ones(size, "u1"), count)
        else:
            import torch

            field = torch.ones(size, dtype=torch.uint8, device=options.device)
            torch.cuda.synchronize()
            measure(options.device, field, count)


if __name__ == "__main__":
    main()
