"""Saves fail, ranks die and clocks differ: the training continues, and the last good version stays."""

import contextlib
import logging
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tierflow

SERVER = pathlib.Path(__file__).parents[3] / "testing/campaigns/children/s3.py"


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Limits the files of this process to 64 KiB, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Part:
    """A part of a training's state: a field of 2 MB filled with one number."""

    def __init__(self) -> None:
        self.value = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"field": np.full(250_000, self.value)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["field"][0]


class Door:
    """A way to save the state of a step, and to find the newest one."""

    def __init__(self, name: str, engine: tierflow.Engine, folder: pathlib.Path, **options: Any) -> None:
        pytest.importorskip("torch")
        self.part, self.engine, self.name, self.folder = Part(), engine, name, folder
        if name == "torch":
            self.saver: Any = tierflow.torch.AsyncCheckpointer(engine, every=1, part=self.part, **options)
        elif name == "lightning":
            pytest.importorskip("lightning")
            self.saver = tierflow.lightning.TierflowIO(engine, **options)
        elif name == "transformers":
            pytest.importorskip("transformers")
            self.saver = tierflow.transformers.TierflowCallback(engine, every=1, **options)
        else:
            pytest.importorskip("jax")
            self.saver = tierflow.jax.AsyncCheckpointer(engine, every=1, **options)

    def step(self, step: int) -> None:
        self.part.value = float(step)
        if self.name == "torch":
            self.saver.step(step)
        elif self.name == "lightning":
            self.saver.save_checkpoint({"part": self.part.state_dict()}, self.folder / f"{step}.ckpt")
            if step:
                self.saver.remove_checkpoint(self.folder / f"{step - 1}.ckpt")
        elif self.name == "transformers":
            from transformers import TrainerControl, TrainerState, TrainingArguments

            arguments = TrainingArguments(str(self.folder), use_cpu=True, report_to=[])
            given = {name: self.part for name in ("model", "optimizer", "lr_scheduler")}
            self.saver.on_step_end(arguments, TrainerState(global_step=step), TrainerControl(), **given)
        else:
            self.saver.step(step, self.part.state_dict())


DOORS = ["torch", "lightning", "transformers", "jax"]


def newest_value(engine: tierflow.Engine) -> float:
    found = engine.load_latest(plain=True)
    assert found is not None
    text = [leaf for leaf in leaves(found[1]) if isinstance(leaf, np.ndarray) and leaf.shape == (250_000,)]
    return float(text[0][0])


def leaves(tree: Any) -> Iterator[Any]:
    for one in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ():
        yield from leaves(one)
    yield tree


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_full_disk_raises_in_no_step_and_the_last_good_version_stays(
    name: str, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = tmp_path / "kept"
    with tierflow.Engine(device="host", host_cache="16MiB", external=kept) as engine:
        door = Door(name, engine, tmp_path)
        for step in range(2):
            door.step(step)
        engine.wait()
        with full_disk():
            for step in range(2, 12):
                door.step(step)
            assert 0 < door.saver.failures < 10
            assert isinstance(door.saver.failure, tierflow.NoRoomError)
            assert "is not saved: no room for checkpoint" in caplog.text
            assert sum(hop["failed"] for hop in engine.metrics()["hops"]) > 0
            # A kill would leave these versions now.
            durable = [version for version in engine.versions() if engine.is_durable(version)]
            assert 1 in durable
            assert tierflow.Repository(kept).latest() == durable[-1]
        # With room again, nothing that was taken in is lost, and saves go on.
        engine.wait(timeout=60)
        assert "a copy between tiers failed" in caplog.text
        failures = door.saver.failures
        door.step(12)
        engine.wait(timeout=60)
        assert door.saver.failures == failures
        assert newest_value(engine) == 12
    with tierflow.Engine(device="host", host_cache="16MiB", external=kept) as engine:
        assert newest_value(engine) == 12


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_failure_is_raised_where_that_is_asked_for(name: str, tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="8MiB", external=tmp_path / "kept", closing_patience=0) as engine:
        door = Door(name, engine, tmp_path, raises=True)
        with full_disk(), pytest.raises(tierflow.NoRoomError):
            for step in range(12):
                door.step(step)
        assert door.saver.failures == 1


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_lost_object_store_raises_in_no_step_and_holds_none_up(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-S", str(SERVER)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "0", str(tmp_path / "s3")], **pipes) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for key, value in {"ALLOW_HTTP": "true", "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "word"}.items():
            monkeypatch.setenv(f"AWS_{key}", value)
        engine = tierflow.Engine(device="host", host_cache="16MiB", external="s3://runs/a", closing_patience=0)
        door = Door(name, engine, tmp_path, timeout=0.05)
        for step in range(2):
            door.step(step)
        engine.wait()
        server.kill()
        server.communicate()
        for step in range(2, 12):
            door.step(step)
        assert 0 < door.saver.failures < 10
        assert isinstance(door.saver.failure, tierflow.TimedOutError | tierflow.NoRoomError)
        assert "is not saved" in caplog.text
        assert newest_value(engine) >= 1
    # The server comes back with the objects that it acknowledged.
    with subprocess.Popen([*command, port, str(tmp_path / "s3")], **pipes) as server:
        assert server.stdout is not None
        server.stdout.readline()
        assert 1 in tierflow.Repository("s3://runs/a").versions()
        engine.wait(timeout=60)
        door.step(12)
        engine.wait(timeout=60)
        assert newest_value(engine) == 12
        engine.close()
        server.kill()
        server.communicate()


def lack_of_python() -> Any:
    raise MemoryError


def lack_of_host() -> Any:
    import torch

    return torch.empty(1 << 55, dtype=torch.uint8)


def lack_of_gpu() -> Any:
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("lack", [lack_of_python, lack_of_host, lack_of_gpu])
@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_a_lack_of_memory_raises_in_no_step(
    name: str, lack: Callable[[], Any], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tierflow.Engine(device="host", host_cache="16MiB") as engine:
        door = Door(name, engine, tmp_path)
        door.step(1)
        door.part.state_dict = lack  # type: ignore[method-assign]
        door.step(2)
        assert door.saver.failures == 1
        assert "step 2 is not saved" in caplog.text
        assert newest_value(engine) == 1


def test_a_mistake_of_the_program_is_raised(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="16MiB") as engine:
        door = Door("torch", engine, tmp_path)
        door.part.state_dict = lambda: {"what": tmp_path}  # type: ignore[method-assign]
        with pytest.raises(tierflow.ArgumentError, match="pickle"):
            door.step(0)


def test_jax_goes_back_to_an_older_state_where_the_newest_is_damaged(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    jnp = pytest.importorskip("jax.numpy")
    state = {"x": jnp.zeros(300_000, "float32")}
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        checkpointer = tierflow.jax.AsyncCheckpointer(engine, every=2)
        assert checkpointer.resume(state)[0] == 0
        assert [checkpointer.step(step, {"x": state["x"] + step}) for step in range(4)] == [False, True, False, True]
    flip(tmp_path, 1)
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        first, back = tierflow.jax.AsyncCheckpointer(engine, every=2).resume(state)
        assert (first, float(back["x"][0])) == (2, 1.0)
    assert "version 1 cannot be loaded" in caplog.text


def flip(directory: pathlib.Path, version: int) -> None:
    """Flips a bit of a version that has a file of its own, as versions beyond a megabyte have."""
    (file,) = directory.rglob(f"v{version:020}.tfc")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGED = """
    import sys, warnings
    warnings.filterwarnings("ignore")
    import torch, torch.distributed as dist, tierflow
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    rank, ranks, directory, run = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    meeting = f"file://{directory}-{run}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))

    def state(value):
        return {"x": distribute_tensor(torch.full((4, 400_000), float(value)), mesh, [Shard(0)]), "step": value}

    with tierflow.Engine(device="host", host_cache="64MiB", external=directory, rank=rank, ranks=ranks, run=run) as engine:
        if run == 1:
            assert tierflow.torch.load_latest(engine, state(0)) is None
            for value in range(3):
                dcp.save(state(value), storage_writer=tierflow.torch.StorageWriter(engine))
        elif run == 2:
            back = state(9)
            assert tierflow.torch.load_latest(engine, back) == 1
            assert back["step"] == 1 and (back["x"].to_local() == 1).all()
        else:
            try:
                tierflow.torch.load_latest(engine, state(9))
            except tierflow.DamagedError:
                pass
            else:
                raise AssertionError("all are damaged")
        dist.barrier()
    dist.destroy_process_group()
"""


def test_ranks_go_back_together_where_one_ranks_piece_is_damaged(
    ranks: Callable[..., None], tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("torch")
    kept = tmp_path / "kept"
    kept.mkdir()
    ranks(DAMAGED, 2, kept, 1)
    flip(kept / "rank-1", 2)
    ranks(DAMAGED, 2, kept, 2)
    for version in range(2):
        flip(kept / "rank-1", version)
    ranks(DAMAGED, 2, kept, 3)


GROUP = """
    import os, signal, sys
    import numpy as np, tierflow

    rank, ranks, directory, run = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    expected, dies = int(sys.argv[5]), len(sys.argv) > 6
    group = {"rank": rank, "ranks": ranks, "run": run, "retention": 1, "closing_patience": 1}
    with tierflow.Engine(device="host", host_cache="16MiB", external=directory, **group) as engine:
        if expected >= 0:
            assert engine.latest() == expected, (engine.latest(), engine.versions())
            assert (engine.load(expected)["x"] == rank + expected).all()
        for version in range(expected + 1, expected + 5):
            engine.save(version, {"x": np.full(50_000, rank + version)})
        engine.wait()
        if dies:
            if rank == 1:
                engine.save(8, {"x": np.full(500_000, rank + 8)})
                os.kill(os.getpid(), signal.SIGKILL)
            # The others go on without it, as far as it goes.
            for version in range(8, 16):
                engine.save(version, {"x": np.full(50_000, rank + version)})
                engine.load(version)
"""


def test_a_rank_that_dies_leaves_the_others_able_to_go_on_and_all_to_restart(tmp_path: pathlib.Path) -> None:
    kept = tmp_path / "kept"

    def start(run: int, expected: int, *dies: str) -> list[int]:
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(GROUP)]
        running = [
            subprocess.Popen([*command, str(rank), "3", str(kept), str(run), str(expected), *dies]) for rank in range(3)
        ]
        return [one.wait(timeout=100) for one in running]

    assert start(1, -1) == [0, 0, 0]
    assert start(2, 3, "dies") == [0, -9, 0]
    # The other ranks have newer pieces, and keep one version. The newest version on all ranks is the one before, or the one at the kill.
    newest = tierflow.Repository(kept).latest()
    assert newest in (7, 8)
    assert start(3, newest) == [0, 0, 0]


CLOCK = """
    #define _GNU_SOURCE
    #include <stdlib.h>
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <time.h>
    #include <unistd.h>

    static long offset(void) { const char *text = getenv("CLOCK_OFFSET"); return text ? atol(text) : 0; }
    int clock_gettime(clockid_t clock, struct timespec *now) {
        int failed = (int)syscall(SYS_clock_gettime, clock, now);
        if (!failed && clock == CLOCK_REALTIME) now->tv_sec += offset();
        return failed;
    }
    int gettimeofday(struct timeval *restrict now, void *restrict zone) {
        struct timespec at;
        (void)zone;
        clock_gettime(CLOCK_REALTIME, &at);
        now->tv_sec = at.tv_sec; now->tv_usec = at.tv_nsec / 1000;
        return 0;
    }
    time_t time(time_t *at) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        if (at) *at = now.tv_sec;
        return now.tv_sec;
    }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no cc for a clock that is wrong")
def test_ranks_whose_clocks_differ_save_and_restart(tmp_path: pathlib.Path) -> None:
    (tmp_path / "clock.c").write_text(textwrap.dedent(CLOCK))
    clock = str(tmp_path / "clock.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", clock, str(tmp_path / "clock.c")], check=True)
    kept = tmp_path / "kept"
    # The clocks differ by two days in both directions, and by other times at the next start.
    for run, offsets in ((1, (0, -172_800, 172_800)), (2, (172_800, 0, -172_800)), (3, (-172_800, -172_800, 0))):
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(GROUP)]
        running = []
        for rank, offset in enumerate(offsets):
            environment = {**os.environ, "LD_PRELOAD": clock, "CLOCK_OFFSET": str(offset)}
            running.append(
                subprocess.Popen([*command, str(rank), "3", str(kept), str(run), str(4 * run - 5)], env=environment)
            )
        assert [one.wait(timeout=100) for one in running] == [0, 0, 0], run
        assert tierflow.Repository(kept).latest() == 4 * run - 1
    probe = [sys.executable, "-c", "import time; print(int(time.time()))"]
    environment = {**os.environ, "LD_PRELOAD": clock, "CLOCK_OFFSET": "172800"}
    told = [int(subprocess.run(probe, env=env, capture_output=True, check=True).stdout) for env in (environment, None)]
    assert told[0] - told[1] > 172_000, "the clock is not set by this"


def test_the_first_failure_of_a_copy_is_logged(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "tierflow")
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        with full_disk():
            engine.save(0, {"x": np.zeros(250_000)})
            with pytest.raises(tierflow.StalledError):
                engine.wait(timeout=60)
        engine.wait(timeout=60)
    assert caplog.text.count("a copy between tiers failed") == 1
    assert tierflow.Repository(tmp_path).versions() == [0]
