"""Kills trainings of each door at random instants, has them go on, and compares every step with an uninterrupted run.

`python kills.py` needs the module, the frameworks of the doors that are to run, and no network. A history is one training on a directory or
an S3 server of this machine: it is killed ten times by `kill -9`, all ranks at once or one before the others, and the server too at times.
After each kill, the newest version that the engine offers must load on all ranks, at the step with which it was saved, and none that was
reported durable may be newer; each step that follows must have the bits that the same step of an uninterrupted run has.

| variable | is |
|---|---|
| `TIERFLOW_KILLS` | kills of each door and storage; 10 |
| `TIERFLOW_SECONDS` | no history begins after so many seconds |
| `TIERFLOW_SEED` | the seed of the first history; 1 |
| `TIERFLOW_DOORS` | doors that must be there, such as `dcp,jax`; all that there are |
| `TIERFLOW_STORAGES` | `directory`, `s3`, or both with a comma; both |
| `TIERFLOW_JOBS` | histories at a time; as many as there are cores |
"""

import ctypes
import importlib.util
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import trainings
from trainings import FRAMEWORKS, RANKS, STEPS, Start

KILLS = 10
STORAGES = ("directory", "s3")
# A start hangs that takes longer, in seconds in which no task of the machine waits for a core: on a busy one, a start may take minutes.
PATIENCE = 150.0
SERVER = Path(__file__).resolve().parents[3] / "testing/campaigns/children/s3.py"
# As in prctl(2).
_PR_SET_PDEATHSIG = 1


def stalled() -> float:
    """Seconds in which a task of the machine waited for a core, as far as the kernel counts them."""
    try:
        return int(Path("/proc/pressure/cpu").read_text().split("total=")[1].split()[0]) / 1e6
    except (OSError, IndexError):
        return 0.0


class Server:
    """An S3 server whose objects outlive its kill."""

    def __init__(self, root: Path) -> None:
        self.root, self._port = root, 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-S", str(SERVER), str(self._port), str(self.root)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }


@dataclass
class Rank:
    """A process of a start, and what it reported."""

    pid: int
    pipe: int
    text: bytes = b""
    lines: list[list[str]] = field(default_factory=list)
    status: int | None = None

    def all(self, word: str) -> list[list[str]]:
        return [line[1:] for line in self.lines if line[0] == word]

    def read(self) -> None:
        """Takes what is there."""
        while select.select([self.pipe], [], [], 0)[0]:
            more = os.read(self.pipe, 1 << 16)
            if not more:
                break
            self.text += more
        *lines, self.text = self.text.split(b"\n")
        self.lines += [line.decode().split(" ") for line in lines]
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None

    def kill(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        self.kill()
        self.read()
        os.close(self.pipe)


class History:
    """A training that is killed and goes on."""

    def __init__(self, door: str, storage: str, seed: int, home: Path) -> None:
        self.door, self.storage, self.home = door, storage, home
        self.draw = random.Random(f"{door} {storage} {seed}")
        self.ranks = RANKS[door][seed % len(RANKS[door])]
        # Of JAX, several devices in one process.
        self.processes = 1 if door == "jax" else self.ranks
        self.server = Server(home / "s3") if storage == "s3" else None
        self.starts = 0
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        # The steps of versions that may be there, and the most steps of one that was durable.
        self.saved: dict[int, int] = {}
        self.durable = 0

    def found(self, text: str) -> None:
        self.findings.append(f"start {self.starts}, {self.ranks} ranks: {text}")

    def start(self) -> list[Rank]:
        self.starts += 1
        external = str(self.home / "kept") if self.server is None else f"s3://runs/{self.home.name}"
        waits = self.draw.choice((0, 1, 3))
        return [self._fork(external, rank, waits) for rank in range(self.processes)]

    def _fork(self, external: str, rank: int, waits: int) -> Rank:
        read, write = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            os.close(write)
            return Rank(pid, read)
        # No child outlives this process.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.close(read)
        errors = os.open(self.home / f"errors-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        os.environ |= self.server.environment() if self.server else {}
        # The files that a killed training leaves behind go with its history.
        tempfile.tempdir = str(self.home)
        start = Start(self.home, external, self.starts, rank, self.ranks, write, waits)
        try:
            trainings.run(self.door, start)
        finally:
            sys.stderr.flush()
            os._exit(0)

    def wait(self, running: list[Rank], steps: int) -> bool:
        """Waits for so many steps of rank 0, or until all have ended. Returns false if the start hangs."""
        begun = time.monotonic() - stalled()
        while time.monotonic() - stalled() - begun < PATIENCE:
            for rank in running:
                rank.read()
            ended = all(rank.status is not None for rank in running)
            if len(running[0].all("step")) >= steps or ended or any(rank.all("left") for rank in running):
                return True
            select.select([rank.pipe for rank in running if rank.status is None], [], [], 0.01)
        return False

    def kill(self) -> bool:
        """Starts the training and kills it. Returns false if there was nothing left to kill."""
        running = self.start()
        if self.draw.random() < 0.1:
            time.sleep(self.draw.uniform(0, 0.5))
        else:
            is_well = self.wait(running, self.draw.randint(1, 9))
            if not is_well:
                self.found(f"hangs, {self.errors()}")
            time.sleep(self.draw.uniform(0, 0.02))
        server = self.draw.randrange(3)
        if self.server is not None and server:
            self.server.kill()
            time.sleep(self.draw.uniform(0, 0.1))
            if server == 2:
                self.server.start()
                self.wait(running, len(running[0].all("step")) + self.draw.randint(0, 4))
        for rank in running:
            rank.read()
        # Without the store, nothing can be loaded; once it is loaded, a lost store ends no training.
        is_loading = not any(rank.all("step") for rank in running)
        if not (self.server is not None and server and is_loading):
            self.crashes(running)
        killed = any(rank.status is None for rank in running)
        if len(running) > 1 and self.draw.random() < 0.5:
            running[self.draw.randrange(len(running))].kill()
            time.sleep(self.draw.uniform(0, 0.3))
        for rank in running:
            rank.kill()
        for rank in running:
            rank.end()
        if self.server is not None and server == 1:
            self.server.start()
        self.counts["kills"] += killed
        self.check(running)
        return killed

    def finish(self) -> None:
        """Runs the training to its end."""
        running = self.start()
        if not self.wait(running, STEPS + 1):
            self.found(f"hangs, {self.errors()}")
        for rank in running:
            rank.end()
        self.crashes(running)
        self.check(running)
        if all(rank.all("ended") for rank in running):
            self.counts["ended"] += 1
        else:
            self.found(f"did not end: {[rank.status for rank in running]}, {self.errors()}")

    def crashes(self, running: list[Rank]) -> None:
        for rank in running:
            for text in rank.all("left"):
                self.found(f"left {' '.join(text)}")
            if rank.status is not None and rank.status not in (0, -signal.SIGKILL):
                self.found(f"ended by {rank.status}, {self.errors()}")

    def errors(self) -> str:
        return " | ".join(file.read_text(errors="replace")[-600:] for file in sorted(self.home.glob("errors-*")))

    def check(self, running: list[Rank]) -> None:
        """Compares the reports of a start with those of the starts before, and with the uninterrupted run."""
        self.counts["starts"] += 1
        for text in (text for rank in running for text in rank.all("warned")):
            if "damaged" in text or "place" in text:
                self.found(" ".join(text))
        first = running[0]
        if not first.all("offered"):
            return
        offered = int(first.all("offered")[0][0])
        self.saved = {version: steps for version, steps in self.saved.items() if version <= offered}
        if first.all("loaded"):
            loaded = {int(rank.all("loaded")[0][0]) for rank in running if rank.all("loaded")}
            steps = loaded.pop()
            if loaded:
                self.found(f"ranks loaded {steps} and {loaded} steps")
            if steps < self.durable:
                self.found(f"LOST: version {offered} of {steps} steps is offered, {self.durable} were durable")
            if self.saved.get(offered, steps) != steps:
                self.found(f"version {offered} was saved at {self.saved[offered]} steps and loads as {steps}")
            self.counts["resumes"] += offered >= 0
        expected = reference(self.door, self.ranks)
        for number, rank in enumerate(running):
            for steps, bits in rank.all("step"):
                self.counts["steps"] += 1
                if expected[number][steps] != bits:
                    self.found(f"other bits at rank {number}, step {steps}")
                    break
        self.saved |= {int(version): int(steps) for version, steps in first.all("saved")}
        saving = running if self.door != "lightning" else running[:1]
        durable = set.intersection(*({int(line[0]) for line in rank.all("durable")} for rank in saving))
        self.counts["durable"] += len(durable)
        self.durable = max([self.durable, *(self.saved[version] for version in durable if version in self.saved)])


_references: dict[tuple[str, int], list[dict[str, str]]] = {}


def reference(door: str, ranks: int) -> list[dict[str, str]]:
    """The bits of each rank after each step of an uninterrupted run."""
    if (door, ranks) not in _references:
        with tempfile.TemporaryDirectory() as home:
            history = History(door, "directory", RANKS[door].index(ranks), Path(home))
            running = history.start()
            history.wait(running, STEPS + 1)
            for rank in running:
                rank.end()
            if not all(rank.all("ended") for rank in running):
                raise RuntimeError(f"{door} does not run: {history.errors()}")
            _references[door, ranks] = [dict(rank.all("step")) for rank in running]
    return _references[door, ranks]


def work(door: str, histories: list[tuple[str, int]], kills: int, seconds: float) -> None:
    """Runs histories, and prints one line of JSON for each."""
    trainings.imports(door)
    end = time.monotonic() + seconds
    for storage, seed in histories:
        if time.monotonic() > end:
            return
        home = Path(tempfile.mkdtemp(prefix="tierflow-"))
        history = History(door, storage, seed, home)
        try:
            while history.counts["kills"] < kills and history.kill():
                pass
            history.finish()
        finally:
            if history.server is not None:
                history.server.kill()
        place = f"{door}, {storage}"
        told = {"place": place, "seed": seed, "counts": history.counts, "findings": history.findings}
        print(json.dumps(told), flush=True)
        if not history.findings:
            shutil.rmtree(home)


def main() -> int:
    kills = int(os.environ.get("TIERFLOW_KILLS", KILLS))
    seconds = float(os.environ.get("TIERFLOW_SECONDS", "inf"))
    first = int(os.environ.get("TIERFLOW_SEED", 1))
    jobs = int(os.environ.get("TIERFLOW_JOBS", os.cpu_count() or 1))
    asked = os.environ.get("TIERFLOW_DOORS")
    doors = []
    for door in asked.split(",") if asked else FRAMEWORKS:
        if importlib.util.find_spec(FRAMEWORKS[door]) is not None:
            doors.append(door)
        elif asked:
            sys.exit(f"the door {door} is asked for, and {FRAMEWORKS[door]} is not installed")
        else:
            print(f"NOT RUN: {door}; {FRAMEWORKS[door]} is not installed")
    each = min(kills, KILLS)
    storages = os.environ.get("TIERFLOW_STORAGES", ",".join(STORAGES)).split(",")
    if unknown := set(storages) - set(STORAGES):
        sys.exit(f"there is no storage {', '.join(unknown)}: name {' or '.join(STORAGES)}")
    histories = [(storage, first + number) for number in range(-(-kills // KILLS)) for storage in storages]
    # A worker imports its framework once. The histories of a door go to as many workers as have room.
    of_door = max(1, jobs // max(1, len(doors)))
    batches = [(door, histories[at::of_door]) for at in range(of_door) for door in doors if histories[at::of_door]]
    begun = time.monotonic()

    def worked(batch: tuple[str, list[tuple[str, int]]]) -> list[dict]:
        left = seconds - (time.monotonic() - begun)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        environment |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        given = json.dumps([*batch, each, left])
        command = [sys.executable, "-W", "ignore", __file__, given.replace("Infinity", "1e9")]
        told = []
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as done:
            assert done.stdout is not None
            for line in done.stdout:
                if line.startswith("{"):
                    told.append(json.loads(line))
                    print(line, end="", flush=True)
        if done.returncode:
            place = f"{batch[0]}, worker"
            told.append({"place": place, "seed": 0, "counts": {}, "findings": [f"ended by {done.returncode}"]})
        return told

    with ThreadPoolExecutor(jobs) as pool:
        told = [history for histories in pool.map(worked, batches) for history in histories]
    sums: dict[str, Counter[str]] = {}
    for history in told:
        sums.setdefault(history["place"], Counter()).update(history["counts"])
        for text in history["findings"]:
            print(f"{history['place']}, seed {history['seed']}: {text}")
    for place, counts in sorted(sums.items()):
        print(f"{place}: {dict(counts)}")
    total: Counter[str] = sum(sums.values(), Counter())
    findings = sum(len(history["findings"]) for history in told)
    print(
        f"campaign kills of trainings: {len(told)} histories, {total['kills']} kills, {total['resumes']} resumes, "
        f"{total['steps']} steps with the bits of an uninterrupted run, {total['durable']} versions reported durable, "
        f"{findings} findings"
    )
    return 1 if findings or not total["kills"] else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(*json.loads(sys.argv[1]))
    else:
        sys.exit(main())
