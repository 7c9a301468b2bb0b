"""Flips one bit at a time in the files of saved versions. Each must be refused, and an older version or another copy loaded in its place.

`python flips.py` needs the module and NumPy. `TIERFLOW_FLIPS` is the number of flipped bits that a version depends on (1 000), `TIERFLOW_SEED` the
seed (1).

Versions of all sizes are saved: alone in a file and several in one, compressed, as differences, in a directory, in two of them as copies, and in an
S3 server. Then one bit of one file is flipped, a new engine loads all versions, and the bit is flipped back:

- `refused`: the version fails to load as `DamagedError`, or is listed no more, and the newest older one has the right bytes;
- `copied`: there are two copies, and every version has the right bytes;
- `unused`: there is one copy, and every version has the right bytes, as the bit lies in a file of several where no version depends on it: between
  two records, or in an index, which readers make anew of the records. It does not count.

Any other outcome is a finding: wrong bytes, another error, or an older version than the newest that is whole.
"""

import logging
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from kills import Server

import tierflow

VERSIONS = 4
# Elements of versions: several in a segment, one alone in a file.
SIZES = (3, 2_000, 30_000, 200_000)
# These files carry no bytes of a version: locks, marks of runs, and notes of what was given up.
EMPTY = ("lock", ".run", ".cut", "notice")
COUNTED = ("refused", "copied", "finding")
PLACES = ("directory", "copies", "compressed", "differences", "s3")


def tree(version: int, size: int) -> dict[str, Any]:
    return {"step": version, "field": np.arange(size) * 7 + version, "nested": {"text": f"version {version}"}}


def is_right(found: Any, version: int, size: int) -> bool:
    expected = tree(version, size)
    return (found["step"], found["nested"]) == (version, expected["nested"]) and bool(
        (found["field"] == expected["field"]).all()
    )


class History:
    def __init__(self, place: str, size: int, home: Path, server: Server | None) -> None:
        self.place, self.size, self.home = place, size, home
        self.files = [home / "kept"]
        self.options: dict[str, Any] = {"external": home / "kept"}
        if place == "copies":
            self.options["node_local"] = home / "node"
            self.files.append(home / "node")
        elif place == "compressed":
            self.options["compress"] = "i64"
        elif place == "differences":
            self.options["dedup"] = 4096
        elif server is not None:
            self.options["external"] = f"s3://{home.name}/a"
            self.files = [server.root / home.name]
        with self.engine() as engine:
            for version in range(VERSIONS):
                engine.save(version, tree(version, size))

    def engine(self) -> tierflow.Engine:
        return tierflow.Engine(device="host", host_cache="16MiB", **self.options)

    def carriers(self) -> Iterator[Path]:
        for folder in self.files:
            for file in folder.rglob("*"):
                if file.is_file() and file.stat().st_size and not file.name.endswith(EMPTY):
                    yield file

    def look(self) -> tuple[str, str]:
        """The outcome of loading each version, and the newest that can be loaded."""
        right, refused = [], []
        with self.engine() as engine:
            listed = engine.versions()
            for version in listed:
                try:
                    found = engine.load(version)
                except tierflow.DamagedError:
                    refused.append(version)
                    continue
                if not is_right(found, version, self.size):
                    return "finding", f"WRONG BYTES in version {version}"
                right.append(version)
            refused += [version for version in range(VERSIONS) if version not in listed]
            newest = engine.load_latest() if right else None
        if right and (newest is None or newest[0] != max(right)):
            return "finding", f"{newest and newest[0]} is loaded where {max(right)} is the newest"
        if self.place == "copies":
            return ("finding" if refused else "copied"), f"{refused} refused though there is another copy"
        return ("refused" if refused else "unused"), f"{refused} refused, {right} right"


@contextmanager
def flipped(file: Path, bit: int) -> Iterator[None]:
    """Flips a bit of a file for a while."""
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        (byte,) = opened.read(1)
        opened.seek(bit // 8)
        opened.write(bytes([byte ^ 1 << bit % 8]))
    try:
        yield
    finally:
        with file.open("r+b") as opened:
            opened.seek(bit // 8)
            opened.write(bytes([byte]))


def main() -> int:
    logging.getLogger("tierflow").setLevel(logging.CRITICAL)
    flips = int(os.environ.get("TIERFLOW_FLIPS", 1_000))
    draw = random.Random(int(os.environ.get("TIERFLOW_SEED", 1)))
    counts: dict[str, Counter[str]] = {}
    findings = []
    with tempfile.TemporaryDirectory(prefix="tierflow-") as folder:
        server = Server(Path(folder) / "s3")
        os.environ |= server.environment()
        cases = [(place, size) for place in PLACES for size in SIZES]
        histories = []
        for number, (place, size) in enumerate(cases):
            home = Path(folder) / f"history-{number}"
            home.mkdir()
            histories.append(History(place, size, home, server if place == "s3" else None))
        number = 0
        while (done := sum(found[outcome] for found in counts.values() for outcome in COUNTED)) < flips:
            if len(findings) >= 40:
                break
            history = histories[number % len(histories)]
            number += 1
            if number % 500 == 0:
                print(f"{done} of {flips} bits, {len(findings)} findings", file=sys.stderr, flush=True)
            file = draw.choice(sorted(history.carriers()))
            bit = draw.randrange(8 * file.stat().st_size)
            with flipped(file, bit):
                try:
                    outcome, text = history.look()
                except (tierflow.TierflowError, ValueError, KeyError) as error:
                    outcome, text = "finding", f"{type(error).__name__}: {error}"
            if outcome == "unused" and file.suffix != ".tfs":
                outcome = "finding"
            counts.setdefault(history.place, Counter())[outcome] += 1
            if outcome == "finding":
                findings.append(f"{history.place}, {history.size} elements, bit {bit} of {file.name}: {text}")
        server.kill()
    for text in findings:
        print(text)
    for place, found in counts.items():
        print(f"{place}: {dict(found)}")
    total: Counter[str] = sum(counts.values(), Counter())
    print(
        f"campaign flips: {total['refused'] + total['copied']} bits, {total['refused']} refused and an older version loaded, "
        f"{total['copied']} loaded from another copy, {len(findings)} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
