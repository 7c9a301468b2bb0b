"""The door Python of the campaigns: see README.md."""

import os
import signal
import sys
import time

import tierflow

FIRST = 70_001
BLOCK = 2048
TAIL = bytes(at * 31 % 251 for at in range(16, BLOCK))
PASSED = ("node_local", "external", "redundancy")
NUMBERS = {"node_local_limit": "node_local_limit", "host_cache": "host_cache", "dedup": "dedup", "rank": "rank"}
NUMBERS |= {"ranks": "ranks", "group": "run", "keep_newest": "retention"}


def content(run: int, version: int, size: int) -> bytes:
    head = (run << 32 | version).to_bytes(8, "little")
    blocks = (head + block.to_bytes(8, "little") + TAIL for block in range(-(-size // BLOCK)))
    return b"".join(blocks)[:size]


def report(line: str) -> None:
    os.write(1, (line + "\n").encode())


def opened(given: dict[str, str]) -> tierflow.Engine:
    options = {key: given[key] for key in PASSED if key in given}
    options |= {to: int(given[key]) for key, to in NUMBERS.items() if key in given}
    options.setdefault("host_cache", 32 << 20)
    if "closing_patience" in given:
        options["closing_patience"] = float(given["closing_patience"])
    if "redundancy" in given:
        domain = given.get("failure_domain", "node")
        options["redundancy"] = tierflow.Redundancy(
            given["redundancy"], failure_domain=domain, exchange=given["exchange"]
        )
    return tierflow.Engine(device="host", **options)


class Run:
    def __init__(self, engine: tierflow.Engine, run: int) -> None:
        self.engine, self.run = engine, run
        latest = engine.latest()
        for damage in engine.damage():
            report("damage " + damage.replace("\n", " "))
        if latest is not None:
            report(f"latest {latest}")
        self.next = FIRST if latest is None else latest + 1

    def checkpoint(self, size: int) -> None:
        version = self.next
        report(f"begins {version}")
        self.engine.checkpoint(version, content(self.run, version, size))
        report(f"took {version} {size}")
        self.next += 1

    def wait(self) -> None:
        self.engine.wait()
        report("all")

    def wait_version(self) -> None:
        self.engine.wait_version(self.next - 1)
        report(f"durable {self.next - 1}")

    def suspend(self, seconds: float) -> None:
        suspension = self.engine.suspend(seconds)
        version = suspension.version
        if suspension.wait():
            report(f"durable {version}")

    def restore(self, version: int) -> None:
        try:
            back = bytearray(self.engine.restore_size(version))
            self.engine.restore(version, back)
        except tierflow.TierflowError as error:
            report(f"missing {version} {error}".replace("\n", " "))
            return
        head = int.from_bytes(back[:8], "little")
        run, size = head >> 32, len(back)
        is_whole = head & 0xFFFFFFFF == version and back == content(run, version, size)
        report(f"{'whole' if is_whole else 'torn'} {version} {run} {size}")

    def go_on(self, seed: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seed = (seed * 6364136223846793005 + 1) % 2**64
            drawn = seed >> 33
            self.told(self.checkpoint, 8 * (1 + drawn % 1500) * (1 if drawn % 11 else 100))
            if drawn % 4 == 1:
                self.told(self.wait)
            elif drawn % 4 != 2:
                self.told(self.wait_version)
        self.told(self.wait)

    def fork(self, calls: bool) -> None:
        child = os.fork()
        if child == 0:
            if not calls:
                os._exit(0)
            try:
                self.engine.checkpoint(self.next, b"of the child")
            except tierflow.ForkedError:
                sys.exit(0)
            sys.exit(9)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != 0:
            report(f"forked {status}")

    def told(self, call, *arguments) -> None:
        try:
            call(*arguments)
        except tierflow.TierflowError as error:
            print(f"{call.__name__} {self.next - 1}: {error}", file=sys.stderr, flush=True)

    def act(self, name: str, value: str) -> None:
        if name == "c":
            self.told(self.checkpoint, int(value))
        elif name == "w":
            self.told(self.wait_version)
        elif name == "W":
            self.told(self.wait)
        elif name == "q":
            if self.engine.is_durable(self.next - 1):
                report(f"durable {self.next - 1}")
        elif name == "s":
            self.told(self.suspend, float(value))
        elif name == "p":
            time.sleep(float(value) / 1e3)
        elif name == "r":
            self.restore(int(value))
        elif name in "fF":
            self.fork(name == "F")
        elif name == "loop":
            self.go_on(int(value), float("inf"))
        elif name == "soak":
            self.go_on(self.run, float(value))
        elif name == "notice":
            self.notice = tierflow.Notice([signal.SIGTERM], float(value))
            os.kill(os.getpid(), signal.SIGTERM)
            self.told(self.suspend, float(value))
        elif name == "close":
            self.engine.close()
            report("closed")
        elif name == "fail":
            raise RuntimeError("the application failed")
        elif name == "exit":
            sys.exit(3)
        elif name == "quit":
            os._exit(0)
        elif name in ("term", "int", "kill"):
            os.kill(os.getpid(), getattr(signal, "SIG" + name.upper()))
            time.sleep(1)
        elif name == "exec":
            os.execvp("true", ["true"])
        elif name != "return":
            raise ValueError(f"{name}: no such action")


middle = sys.argv.index("--")
given = dict(option.split("=", 1) for option in sys.argv[1:middle])
actions = [action.partition(":")[::2] for action in sys.argv[middle + 1 :]]
engine = opened(given)
run = Run(engine, int(given["run"]))
if given.get("with") == "1":
    with engine:
        for name, value in actions:
            run.act(name, value)
    report("closed")
else:
    for name, value in actions:
        run.act(name, value)
