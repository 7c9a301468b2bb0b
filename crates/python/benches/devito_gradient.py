"""Measures the gradient of `examples/devito_gradient.py` in all ways, several times in turn: medians, beside the way in memory.

OMP_NUM_THREADS=1 python devito_gradient.py --scratch /scratch --json plain.json
OMP_NUM_THREADS=1 python devito_gradient.py --scratch /scratch --tilted --json tilted.json

Each way runs one shot in a round. In the first round, engines and files find no memory ready, so its times are printed separately. Every
gradient is compared with that of the way in memory, bit for bit. Without `--json` the program only prints the table.
"""

import argparse
import contextlib
import json
import mmap
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tierflow
from tierflow._tierflow import number_of_bytes

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from devito import Buffer
from devito_gradient import Files, Gradient, Shot, Unhinted, in_history, in_memory, recomputed

# Rounds that are told apart.
WARM = 1


class OnTheDisk(Files):
    """Files with a page cache of limited size: the oldest files beyond the limit are made durable, and leave the cache."""

    def __init__(self, directory: Path, cache: int) -> None:
        super().__init__(directory)
        self.cache, self.cached = cache, deque[tuple[int, int]]()

    def checkpoint(self, version: int, array: Any) -> None:
        super().checkpoint(version, array)
        self.cached.append((version, array.nbytes))
        while sum(size for _, size in self.cached) > self.cache:
            self._leave(self.cached.popleft()[0])

    def restore(self, version: int, array: Any) -> None:
        super().restore(version, array)
        self._leave(version)
        self.cached = deque(one for one in self.cached if one[0] != version)

    def _leave(self, version: int) -> None:
        file = os.open(self.directory / f"{version}.npy", os.O_RDWR)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def disk(directory: Path, total: int = 1 << 30, block: int = 4 << 20) -> tuple[float, float]:
    """Returns the bytes per second that are written and read past the page cache, one block after the other."""
    memory = mmap.mmap(-1, block)
    memory.write(os.urandom(block))
    with tempfile.NamedTemporaryFile(dir=directory) as named:
        file = os.open(named.name, os.O_RDWR | os.O_DIRECT)
        rates = []
        for move in (os.pwritev, os.preadv):
            begun = time.perf_counter()
            for at in range(0, total, block):
                move(file, [memory], at)
            rates.append(total / (time.perf_counter() - begun))
        os.close(file)
    return rates[0], rates[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=72)
    parser.add_argument("--steps", type=int, default=386)
    parser.add_argument("--tilted", action="store_true", help="an operator that takes several times as long")
    parser.add_argument("--buffer", type=int, default=34)
    parser.add_argument("--device-cache", default="50MiB", help="a 20th of the history")
    parser.add_argument("--host-cache", default="450MiB", help="with the device cache, half of it")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--snapshots", type=int, default=20, help="of pyrevolve")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ways", nargs="*", help="some of them alone; the one in memory is always there")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    shot = Shot(options.cells, options.steps, tilted=options.tilted)
    device, host = (number_of_bytes(text) for text in (options.device_cache, options.host_cache))
    both = {"device_cache": device, "host_cache": host, "scratch": options.scratch}
    ways: dict[str, tuple[Gradient, Callable[[Gradient, int], None]]] = {}
    with contextlib.ExitStack() as ends:

        def engine(kind: type[tierflow.Engine] = tierflow.Engine, **tiers: Any) -> tierflow.Engine:
            return ends.enter_context(kind(device="host", **tiers))

        def directory() -> Path:
            return Path(ends.enter_context(tempfile.TemporaryDirectory(dir=options.scratch)))

        def wanted(name: str) -> bool:
            return not options.ways or name in options.ways

        memory = Gradient(shot, options.steps)
        size = memory.u._data_allocated[0].nbytes
        history = size * (options.steps + 1)
        blocks, last = Gradient(shot, Buffer(options.buffer)), Gradient(shot)
        ways["memory"] = (memory, lambda of, first: in_memory(of))
        for name, make in {
            "tierflow": lambda: engine(**both, after_restore="discard"),
            "tierflow, no hints": lambda: engine(Unhinted, **both, after_restore="discard"),
            "tierflow, one cache": lambda: engine(
                host_cache=device + host, scratch=options.scratch, after_restore="discard"
            ),
            "tierflow, all in memory": lambda: engine(host_cache=history + (64 << 20), after_restore="discard"),
            "npy": lambda: OnTheDisk(directory(), device + host),
            "npy, all in the page cache": lambda: Files(directory()),
        }.items():
            if wanted(name):
                # Each round overwrites the files.
                fresh = 0 if name.startswith("npy") else 1
                into = make()
                ways[name] = (blocks, lambda of, first, into=into, fresh=fresh: in_history(of, into, first * fresh))
        if wanted("pyrevolve"):
            ways["pyrevolve"] = (last, lambda of, first: recomputed(of, options.snapshots))
        if wanted("pyrevolve in tierflow"):
            keeps = engine(**both)
            ways["pyrevolve in tierflow"] = (last, lambda of, first: recomputed(of, options.snapshots, keeps, first))
        rates = disk(options.scratch)
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        expected = None
        for number in range(WARM + options.rounds):
            for name, (of, way) in ways.items():
                first = 1_000_000 * number
                gradient, took = of.computed(lambda of, way=way, first=first: way(of, first))
                expected = gradient if expected is None else expected
                assert np.array_equal(gradient, expected), f"{name}: not the same bits"
                seconds[name].append(took)
    plain = statistics.median(seconds["memory"][WARM:])
    print(
        f"{history / 1e9:.2f} GB of history, {history / plain / 1e9:.2f} GB a second of computing, the same bits in all ways;"
    )
    print(f"the disk takes {rates[0] / 1e9:.2f} GB/s and gives {rates[1] / 1e9:.2f}")
    print("| way | first | median | least to most | beside memory |\n|---|---|---|---|---|")
    found = {}
    for name, times in seconds.items():
        first, *rest = times
        median = statistics.median(rest)
        ratio = statistics.median(time / one for time, one in zip(rest, seconds["memory"][WARM:], strict=True))
        found[name] = {"first": first, "seconds": rest, "median": median, "beside memory": ratio}
        print(f"| {name} | {first:.2f} s | {median:.2f} s | {min(rest):.2f} to {max(rest):.2f} | {ratio:.2f} |")
    if options.json:
        machine = {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": os.environ.get("OMP_NUM_THREADS"),
        }
        said = {name: str(value) for name, value in vars(options).items()}
        rate = {"write": rates[0], "read": rates[1]}
        text = {"options": said, "machine": machine, "history": history, "disk": rate, "ways": found}
        options.json.write_text(json.dumps(text, indent=1))


if __name__ == "__main__":
    main()
