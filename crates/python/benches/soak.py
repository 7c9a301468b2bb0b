"""Threads that call an engine at random: every byte is checked, and memory is watched.

python soak.py --minutes 60
"""

import argparse
import gc
import random
import sys
import tempfile
import threading
import time

import numpy as np

import tierflow


def resident() -> int:
    """Returns the MiB of this process in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 >> 20


def content(version: int, size: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    return (np.arange(size, dtype=np.uint32) * 2654435761 + version >> 7).astype(np.uint8)


def calls(engine: tierflow.Engine, thread: int, threads: int, end: float, counts: list[int]) -> None:
    """Calls the engine with versions of this thread alone, so that it knows their bytes."""
    draw = random.Random(thread)
    held: dict[int, int] = {}
    version = thread
    while time.monotonic() < end:
        counts[thread] += 1
        what = draw.random()
        try:
            if what < 0.3 or not held:
                size = draw.choice((1, 1000, 4096, 50_000, 1 << 18, 1 << 20))
                if draw.random() < 0.5:
                    engine.checkpoint(version, content(version, size), timeout=draw.choice((None, 0.01, 10.0)))
                else:
                    slot = engine.produce(version, size, "uint8", timeout=0.05)
                    slot.write(content(version, size))
                    slot.commit()
                held[version] = size
                version += threads
            elif what < 0.75:
                one = draw.choice(list(held))
                if draw.random() < 0.5:
                    back = np.zeros(held[one], "u1")
                    engine.restore(one, back, timeout=draw.choice((None, 0.01, 10.0)))
                else:
                    slot = engine.consume(one, timeout=10.0)
                    back = np.array(slot)
                    slot.give_back() if draw.random() < 0.5 else slot.finish()
                assert (back == content(one, held[one])).all(), one
            elif what < 0.85:
                one = draw.choice(list(held))
                engine.discard(one)
                del held[one]
            elif what < 0.95:
                engine.hint(draw.sample(list(held), min(len(held), 5)))
            else:
                draw.choice((engine.metrics, engine.versions, engine.forget_hints, engine.prefetch_start))()
        except (tierflow.TimedOutError, tierflow.NoRoomError):
            # The number of a checkpoint that timed out becomes free later.
            version += threads
        while len(held) > 40:
            engine.discard(held.popitem()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=8)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    counts = [0] * options.threads
    failed: list[BaseException] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        tierflow.Engine(device="host", device_cache="8MiB", host_cache="32MiB", scratch=scratch) as engine,
    ):

        def guarded(thread: int) -> None:
            try:
                calls(engine, thread, options.threads, end, counts)
            except BaseException as error:
                failed.append(error)
                raise

        running = [threading.Thread(target=guarded, args=(thread,)) for thread in range(options.threads)]
        for one in running:
            one.start()
        lines = 0
        while any(one.is_alive() for one in running):
            for one in running:
                one.join(timeout=max(0.1, options.minutes * 60 / 10 / options.threads))
            gc.collect()
            lines += 1
            print(f"{sum(counts):>10} calls, {resident()} MiB resident", flush=True)
    assert not failed, failed
    free = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", without the interpreter's lock"
    print(f"{sum(counts)} calls of {options.threads} threads{free}: every byte was right")


if __name__ == "__main__":
    main()
