"""Ranks are processes with a directory as node each: the versions of lost nodes are rebuilt."""

import gc
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tierflow

RANKS = 4

PROGRAM = """
import sys
import numpy as np
import tierflow

how, home, scheme, run, first, lost = sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7])
if how == "directory":
    rank, more = int(sys.argv[7]), {"rank": int(sys.argv[7]), "ranks": 4, "run": run}
else:
    import mpi4py
    mpi4py.rc.thread_level = "multiple" if how == "threads" else "single"
    from mpi4py import MPI
    rank, more = MPI.COMM_WORLD.Get_rank(), {"group": tierflow.mpi.Group(MPI.COMM_WORLD, patience=60)}
exchange = f"{home}/shared" if how == "directory" else None
node = f"node{rank}"
kept = tierflow.Redundancy(scheme, failure_domain=node, exchange=exchange)
if how == "directory":
    # The ranks meet in the directory through which their bytes pass, not on the nodes.
    assert kept.exchange is not None

def state(version):
    return np.random.default_rng(version * 4 + rank).random(20_000 + rank)

with tierflow.Engine(device="host", host_cache="8MiB", node_local=f"{home}/{node}", redundancy=kept,
                     durable_in_order=True, **more) as engine:
    assert engine.group == (rank, 4)
    if lost:
        assert engine.latest() is None
        try:
            engine.restore_size(first - 1)
        except tierflow.DamagedError as error:
            assert "node0" in str(error) and "node1" in str(error), error
            assert any(str(error) in what for what in engine.damage())
        else:
            raise AssertionError("nothing was told")
        first = 0
    assert engine.latest() == (first - 1 if first else None), (engine.latest(), engine.damage())
    for version in range(first):
        array = np.zeros(20_000 + rank)
        engine.restore(version, array)
        assert (array == state(version)).all()
    for version in range(first, first + 3):
        engine.checkpoint(version, state(version))
    engine.wait(60)
    assert all(engine.is_durable(version) for version in range(first + 3))
    engine.protect()
print("passed")
"""


def run(how: str, home: Path, program: Path, *arguments: object) -> None:
    words = [sys.executable, str(program), how, str(home), *map(str, arguments)]
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment |= {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
    if how == "directory":
        ranks = [
            subprocess.Popen([*words, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
            for rank in range(RANKS)
        ]
        told = [rank.communicate(timeout=100)[0].decode() for rank in ranks]
    else:
        mpiexec = ["mpiexec", "-n", str(RANKS), *words]
        done = subprocess.run(
            mpiexec, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=100, check=False
        )
        told = [done.stdout.decode()]
    assert sum(text.count("passed") for text in told) == RANKS, "\n".join(told)


@pytest.mark.parametrize("how", ["directory", "threads", "calls"])
def test_versions_of_lost_nodes_are_rebuilt(how: str, tmp_path: Path) -> None:
    if how != "directory" and (importlib.util.find_spec("mpi4py") is None or shutil.which("mpiexec") is None):
        pytest.skip("there is no mpi4py, or no mpiexec")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    home = tmp_path / "home"
    home.mkdir()
    run(how, home, program, "xor:4", 1, 0, 0)
    shutil.rmtree(home / "node2")
    run(how, home, program, "xor:4", 2, 3, 0)
    # More nodes are lost than the scheme tolerates.
    shutil.rmtree(home / "node0")
    shutil.rmtree(home / "node1")
    run(how, home, program, "xor:4", 3, 6, 1)


class Request:
    """A request that ends when the other rank comes."""

    def __init__(self, ranks: "Ranks", buffer: list[Any] | None) -> None:
        self.ranks, self.buffer = ranks, buffer

    def Test(self) -> bool:
        return self.ranks.are_there


class Ranks:
    """A communicator of two ranks. The other rank may be late."""

    def __init__(self) -> None:
        self.are_there = True
        self.requests: list[weakref.ref[Request]] = []
        self.messages: list[bytes] = []
        self.looked: Callable[[], None] = lambda: None

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 2

    def begin(self, buffer: list[Any] | None = None) -> Request:
        request = Request(self, buffer)
        self.requests.append(weakref.ref(request))
        return request

    def Idup(self) -> tuple["Ranks", Request]:
        return self, self.begin()

    def Isend(self, message: list[Any], dest: int, tag: int) -> Request:
        return self.begin(message)

    def Iallgather(self, mine: list[Any], everything: list[Any]) -> Request:
        everything[0][:] = 2 * bytes(mine[0])
        return self.begin(everything)

    def Improbe(self, source: int, tag: int, status: "Message") -> "Message | None":
        if not self.messages:
            return None
        status.content = self.messages.pop(0)
        return Message(status.content, self.looked)


class Message:
    """A message that was found, or its status. `looked` is called before it is received."""

    def __init__(self, content: bytes = b"", looked: Callable[[], None] = lambda: None) -> None:
        self.content, self.looked = content, looked

    def Get_count(self, _kind: str) -> int:
        return len(self.content)

    def Recv(self, buffer: list[Any]) -> None:
        self.looked()
        buffer[0][:] = self.content


@pytest.fixture
def communicator(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    mpi = SimpleNamespace(
        BYTE="byte", THREAD_MULTIPLE=3, Is_finalized=lambda: False, Query_thread=lambda: 3, Status=Message
    )
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi))
    return Ranks()


def test_buffers_of_pending_receives_stay_until_the_late_rank_comes(communicator: Ranks) -> None:
    group = tierflow.mpi.Group(communicator)
    assert group.all_gather(b"mine", 1.0) == [b"mine", b"mine"]
    communicator.are_there = False
    with pytest.raises(TimeoutError):
        group.all_gather(b"mine", 0.0)
    gc.collect()
    late = communicator.requests[-1]
    assert late() is not None
    communicator.are_there = True
    group.all_gather(b"mine", 1.0)
    gc.collect()
    assert late() is None


def test_buffers_of_pending_sends_stay_without_their_group(communicator: Ranks) -> None:
    group = tierflow.mpi.Group(communicator)
    communicator.are_there = False
    assert group.send(1, b"message", 1.0)
    assert not group.flush(0.0)
    del group
    gc.collect()
    sent = communicator.requests[-1]
    assert sent() is not None
    # The next group has nothing under way, and lets go of what arrived.
    communicator.are_there = True
    group = tierflow.mpi.Group(communicator)
    assert group.flush(0.0)
    gc.collect()
    assert sent() is None


@pytest.mark.parametrize("fails", [False, True])
def test_a_message_of_another_group_disturbs_none(
    communicator: Ranks, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    class Other:
        def Test(self) -> bool:
            if fails:
                raise RuntimeError("the other communicator failed")
            return False

    other = (tierflow.mpi._TAGS + 1, 1, Other(), b"message")
    monkeypatch.setattr(tierflow.mpi, "_under_way", [other])
    group = tierflow.mpi.Group(communicator)
    assert group.send(1, b"message", 1.0)
    assert group.flush(1.0)
    assert tierflow.mpi._under_way == [other]


def test_two_threads_never_wait_for_one_message(communicator: Ranks) -> None:
    group = tierflow.mpi.Group(communicator)
    seen: list[bytes | None] = []
    # Another thread looks for a message that this thread has found and not received yet.
    communicator.looked = lambda: seen.append(group.receive(1, 0.0))
    communicator.messages = [b"only"]
    assert group.receive(1, 1.0) == b"only"
    assert seen == [None]
    assert group.receive(1, 0.0) is None


def test_buffers_of_pending_sends_outlive_the_interpreter(python: Callable[[str], str]) -> None:
    told = python(
        """
        import sys
        from types import SimpleNamespace
        sys.modules["mpi4py"] = SimpleNamespace(MPI=None)
        import tierflow.mpi

        class Freed:
            def __init__(self, which): self.which = which
            def __del__(self, tell=print): tell(self.which)

        tierflow.mpi._under_way.append((1, 1, None, Freed("message")))
        tierflow.mpi.other = Freed("other")
        """
    )
    assert told == "other\n"


def test_a_group_waits_for_a_rank_no_longer_than_its_patience(communicator: Ranks) -> None:
    communicator.are_there = False
    with pytest.raises(TimeoutError, match="did not come"):
        tierflow.mpi.Group(communicator, patience=0.1)


class Interrupted:
    """A group whose first `meetings` meetings succeed. In the next one the program ends."""

    rank, ranks, threads, patience = 0, 1, True, 1.0

    def __init__(self, meetings: int, end: BaseException) -> None:
        self.meetings, self.end = meetings, end

    def all_gather(self, mine: bytes, seconds: float) -> list[bytes]:
        self.meetings -= 1
        if self.meetings < 0:
            raise self.end
        return [mine]


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_in_a_meeting_ends_the_program(end: BaseException, tmp_path: Path) -> None:
    options: dict[str, Any] = {"device": "host", "host_cache": "1MiB", "external": tmp_path}
    group = Interrupted(1000, end)
    tierflow.Engine(group=group, **options).close()
    assert group.meetings < 1000
    for meetings in range(1000 - group.meetings):
        with pytest.raises(type(end)):
            tierflow.Engine(group=Interrupted(meetings, end), **options).close()
    with pytest.raises(tierflow.StorageError, match="no network"):
        tierflow.Engine(device="host", host_cache="1MiB", group=Interrupted(0, RuntimeError("no network")))


def test_regions_come_back_alone_and_of_other_ranks(tmp_path: Path) -> None:
    heads = [np.full(100, rank, np.float32) for rank in range(2)]
    tails = [np.arange(30_000.0) + rank for rank in range(2)]
    both = threading.Barrier(2)

    def life(rank: int) -> None:
        kept = {"external": tmp_path / "kept", "rank": rank, "ranks": 2, "run": 1}
        with tierflow.Engine(device="host", host_cache="4MiB", **kept) as engine:
            engine.checkpoint(3, heads[rank], tails[rank], names=["head", "tail"])
            assert engine.regions(3) == [("head", 400), ("tail", 240_000)]
            with pytest.raises(tierflow.ArgumentError, match="names for"):
                engine.checkpoint(4, heads[rank], names=["head", "tail"])
            tail = np.zeros(30_000)
            engine.restore_regions(3, {"tail": tail})
            assert (tail == tails[rank]).all()
            engine.wait(60)
            both.wait()
            other = np.zeros(100, np.float32)
            engine.restore_rank(3, 1 - rank, {"head": other})
            assert (other == heads[1 - rank]).all()
            both.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(life, range(2)))
    # A group of another size, or a program without a group, cannot read them.
    found = tierflow.Repository(tmp_path / "kept")
    assert found.ranks(3) == 2
    assert found.regions(3, 1) == [("head", 400), ("tail", 240_000)]
    last = np.zeros(2)
    found.read(3, 1, [400 + 8 * 29_998], last)
    assert (last == tails[1][-2:]).all()


def test_errors_name_the_needs_of_redundancy(tmp_path: Path) -> None:
    for wrong in ("xor:1", "raid5"):
        with pytest.raises(tierflow.ArgumentError):
            tierflow.Redundancy(wrong)
    with pytest.raises(tierflow.ArgumentError, match="give group="):
        tierflow.Engine(device="host", node_local=tmp_path / "node", ranks=2, run=1, redundancy="partner")
    kept = tierflow.Redundancy("rs:2+1", failure_domain="rack7", exchange=tmp_path)
    assert (kept.failure_domain, kept.exchange) == ("rack7", tmp_path)
    assert "Reed-Solomon 2 + 1" in repr(kept)
    with pytest.raises(tierflow.ArgumentError, match="give run,"):
        tierflow.Engine(device="host", node_local=tmp_path / "node", ranks=2, redundancy=kept)
    with pytest.raises(tierflow.ArgumentError, match="node_local"):
        tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path / "e", run=1, redundancy=kept)
