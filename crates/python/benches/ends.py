"""Ends programs at random, and counts the versions that are neither there afterwards nor named: `python ends.py [SEED [COUNT]]`."""

import random
import re
import subprocess
import sys
import tempfile

import tierflow

PROGRAM = """
import os, signal, sys, threading
import numpy as np
import tierflow

place, count, size, end, options = eval(sys.argv[1])


def main():
    engine = tierflow.Engine(device="host", host_cache="64MiB", external=place, **options)

    def take_in():
        for version in range(1, count + 1):
            engine.checkpoint(version, np.full(size, version, "u1"))
            print(version, flush=True)

    if not end.startswith("with"):
        take_in()
    else:
        with engine:
            take_in()
            if end == "with exit":
                sys.exit(3)
            if end == "with raise":
                raise ValueError
            if end == "with Ctrl-C":
                signal.raise_signal(signal.SIGINT)
    if end == "close":
        engine.close()
    elif end == "suspend":
        suspension = engine.suspend(60)
        suspension.wait()
        print("suspended", suspension.version, flush=True)
    elif end == "raise":
        raise ValueError
    elif end == "exit":
        sys.exit(3)
    elif end == "fork":
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
    elif end == "global":
        globals()["kept"] = engine
    elif end == "cycle":
        cycle = [engine]
        cycle.append(cycle)
    elif end == "thread":
        threading.Thread(target=lambda: engine.restore(1, np.zeros(size, "u1"))).start()
    elif end == "daemon":
        globals()["kept"] = engine
        threading.Thread(target=engine.wait, daemon=True).start()


main()
"""

ENDS = [
    *("with", "with exit", "with raise", "with Ctrl-C"),
    *("close", "suspend", "raise", "exit", "fork", "global", "cycle", "thread", "daemon", "none"),
]


def named(text: str) -> set[int]:
    """Returns the versions that warnings name as lost: "version 7 is lost", "versions 1, 3 to 7 are lost"."""
    runs = [run for found in re.findall(r"versions? ([0-9, to]+) (?:is|are) lost", text) for run in found.split(", ")]
    ends = [[int(end) for end in run.split(" to ")] for run in runs]
    return {version for run in ends for version in range(run[0], run[-1] + 1)}


def is_silent(draw: random.Random) -> bool:
    """Ends a program. Returns true if the program lost a version silently."""
    options: dict[str, object] = {}
    if draw.random() < 0.3:
        options["closing_patience"] = draw.choice([0, 0.01, 0.05])
    if draw.random() < 0.3:
        options["dedup"] = 4096
    if draw.random() < 0.3:
        options["flush"] = "needed"
    with tempfile.TemporaryDirectory() as place:
        call = (place, draw.randint(1, 12), draw.choice([1000, 1 << 20, 5 << 20]), draw.choice(ENDS), options)
        flags = ["-W", draw.choice(["default", "error::ResourceWarning"]), "-W", "ignore::DeprecationWarning"]
        command = [sys.executable, *flags, "-c", PROGRAM, repr(call)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        lines = ended.stdout.splitlines()
        if not lines:
            sys.exit(f"the program did not begin: {ended.stderr}")
        is_suspended = lines[-1].startswith("suspended")
        owed = {int(lines[-1].split()[1])} if is_suspended else set(map(int, lines))
        with tierflow.Engine(device="host", host_cache="64MiB", external=place, dedup=options.get("dedup")) as engine:
            there = set(engine.versions())
    lost = owed - there - named(ended.stderr)
    if lost:
        print("silent:", call[1:], sorted(lost), ended.returncode, ended.stderr[-500:])
    return bool(lost)


if __name__ == "__main__":
    seed, count = (int(number) for number in [*sys.argv[1:], *["1", "1000"][len(sys.argv) - 1 :]])
    draw = random.Random(seed)
    print("programs", count, "silent losses", sum(is_silent(draw) for _ in range(count)))
