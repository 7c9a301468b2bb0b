"""What a call costs, of small arrays and of 1 MiB: medians in µs, to compare with `cargo run --release --example calls`.

python calls.py                  # NumPy, plain memory
python calls.py --device cuda    # PyTorch
"""

import argparse
import gc
import statistics
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any

import tierflow


def median(call: Callable[[int], object], count: int) -> float:
    """In µs, without what looking at the clock takes."""
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
    options = parser.parse_args()
    for size, count in ((8, 100_000), (4096, 100_000), (1 << 20, 2000)):
        if options.device == "host":
            import numpy

            report(options.device, numpy.ones(size, "u1"), count)
        else:
            import torch

            field = torch.ones(size, dtype=torch.uint8, device=options.device)
            torch.cuda.synchronize()
            report(options.device, field, count)


if __name__ == "__main__":
    main()
