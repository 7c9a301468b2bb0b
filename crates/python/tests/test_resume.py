"""Trainings by each framework are saved, killed, and continue to the same bits. Trainings also continue after a save that fails."""

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tierflow

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def begun(name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / f"resume_{name}.py"), *arguments]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    # A killed process does not write its buffers.
    environment["PYTHONUNBUFFERED"] = "1"
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(one: subprocess.Popen[str], status: int = 0) -> list[str]:
    out, error = one.communicate(timeout=110)
    assert one.returncode == status, error
    return [line for line in out.splitlines() if line.startswith(("begins", "weights"))]


@pytest.mark.parametrize("name", ["torch", "lightning", "transformers", "jax"])
def test_a_killed_training_goes_on_to_the_same_bits(name: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip(name)
    killed = begun(name, "--directory", str(tmp_path / "killed"), "--kill-at", "17")
    whole = begun(name, "--directory", str(tmp_path / "whole"))
    (started,) = told(killed, -signal.SIGKILL)
    goes_on, weights = told(begun(name, "--directory", str(tmp_path / "killed")))
    assert goes_on != started
    assert [started, weights] == told(whole)


def flip(directory: pathlib.Path, version: int) -> None:
    (file,) = directory.rglob(f"v{version:020}.tfc")
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)


def saved(directory: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="32MiB", external=directory) as engine:
        for version in range(3):
            engine.save(version, {"x": np.full(300_000, version)})


def test_of_damaged_versions_the_next_older_one_is_loaded(tmp_path: pathlib.Path) -> None:
    saved(tmp_path)
    flip(tmp_path, 2)
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        found = engine.load_latest()
        assert found is not None
        assert (found[0], found[1]["x"][0]) == (1, 1)
        before = engine.load_latest(before=1)
        assert before is not None
        assert before[0] == 0
        assert engine.load_latest(before=0) is None
        assert engine.next_version == 3
    found = tierflow.Repository(tmp_path).load_latest(select="x")
    assert found is not None
    assert (found[0], found[1][0]) == (1, 1)


def test_a_training_with_damaged_versions_alone_does_not_begin_anew(tmp_path: pathlib.Path) -> None:
    saved(tmp_path)
    for version in range(3):
        flip(tmp_path, version)
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        with pytest.raises(tierflow.DamagedError):
            engine.load_latest()


def test_a_save_that_fails_does_not_end_the_training(caplog: pytest.LogCaptureFixture) -> None:
    torch = pytest.importorskip("torch")
    large = torch.nn.Linear(512, 512)
    with tierflow.Engine(device="host", host_cache="3MiB") as engine:
        checkpointer = tierflow.torch.AsyncCheckpointer(engine, every=2, model=large)
        assert [checkpointer.step(step) for step in range(8)] == [False, True, False, True, False, False, False, False]
        assert checkpointer.failures == 2
        assert isinstance(checkpointer.failure, tierflow.NoRoomError)
        assert "step 5 is not saved" in caplog.text
        # The saved versions stay, and the newest of them is loaded.
        with torch.no_grad():
            large.weight += 1
        drawn = torch.rand(3)
        assert checkpointer.resume() == 4
        assert torch.equal(torch.rand(3), drawn)
        strict = tierflow.torch.AsyncCheckpointer(engine, every=1, raises=True, model=large)
        with pytest.raises(tierflow.NoRoomError):
            strict.step(8)
    with pytest.raises(ValueError, match="every=0"):
        tierflow.torch.AsyncCheckpointer(engine, every=0)


def test_a_checkpoint_removed_by_lightning_stays_until_a_newer_one_is_durable(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("lightning")
    paths = [tmp_path / "checkpoints" / f"step={i}.ckpt" for i in range(3)]
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        io = tierflow.lightning.TierflowIO(engine)
        assert io.newest() is None
        for i, path in enumerate(paths):
            io.save_checkpoint({"state_dict": {"w": np.full(3, i)}, "epoch": i}, path)
            if i:
                io.remove_checkpoint(paths[i - 1])
                assert not paths[i - 1].exists()
                assert i in engine
        io.teardown()
        assert engine.versions() == [2]
        assert io.newest() == str(paths[2])
        assert io.load_checkpoint(paths[2])["epoch"] == 2
        with pytest.raises(FileNotFoundError, match="no checkpoint was saved to"):
            io.load_checkpoint(paths[0])
        with pytest.raises(tierflow.ArgumentError, match="map_location"):
            io.load_checkpoint(paths[2], map_location="cuda")
    reader = tierflow.lightning.TierflowIO(tmp_path)
    assert reader.load_checkpoint(paths[2])["state_dict"]["w"][0] == 2
    with pytest.raises(tierflow.ArgumentError, match="for loading"):
        reader.save_checkpoint({}, paths[0])


def test_lightning_gets_an_older_checkpoint_in_place_of_a_damaged_one(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("lightning")
    paths = [tmp_path / f"step={i}.ckpt" for i in range(2)]
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        io = tierflow.lightning.TierflowIO(engine)
        for i, path in enumerate(paths):
            io.save_checkpoint({"w": np.full(300_000, i)}, path)
    flip(tmp_path, 1)
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        io = tierflow.lightning.TierflowIO(engine)
        assert io.load_checkpoint(paths[1])["w"][0] == 0
    assert "version 0" in caplog.text


def test_every_spelling_of_a_path_is_the_same_checkpoint(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightning")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path / "kept") as engine:
        io = tierflow.lightning.TierflowIO(engine)
        for i in range(3):
            io.save_checkpoint({"epoch": i}, f"step={i}.ckpt")
        engine.wait()
        (tmp_path / "last.ckpt").symlink_to("step=1.ckpt")
        for one in (io, tierflow.lightning.TierflowIO(tmp_path / "kept")):
            for spelling in ("step=1.ckpt", "./step=1.ckpt", "link/step=1.ckpt", "last.ckpt", tmp_path / "step=1.ckpt"):
                assert one.load_checkpoint(spelling)["epoch"] == 1
        assert io.newest() == str(tmp_path / "step=2.ckpt")
        # A file that was moved names its version, until that number is another checkpoint's.
        (tmp_path / "step=2.ckpt").rename("moved.ckpt")
        assert io.load_checkpoint("moved.ckpt")["epoch"] == 2
        note = (tmp_path / "moved.ckpt").read_text()
        (tmp_path / "lost.ckpt").write_text(note.replace("step=2", "lost"))
        assert io.load_checkpoint("lost.ckpt")["epoch"] == 1
        (tmp_path / "foreign.ckpt").write_bytes(bytes(range(256)))
        for missing in ("step=3.ckpt", "foreign.ckpt", "kept/step=1.ckpt"):
            with pytest.raises(FileNotFoundError, match="no checkpoint was saved to"):
                io.load_checkpoint(missing)
        # The link is a path of its own, and its target stays.
        io.remove_checkpoint("last.ckpt")
        assert io.load_checkpoint("step=1.ckpt")["epoch"] == 1
        io.remove_checkpoint("link/step=1.ckpt")
        with pytest.raises(FileNotFoundError):
            io.load_checkpoint("step=1.ckpt")
        assert engine.versions() == [0, 2]


def test_an_overwritten_checkpoint_goes_once_the_newer_one_is_durable(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("lightning")
    path = tmp_path / "last.ckpt"
    for run in range(2):
        with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path / "kept") as engine:
            engine.checkpoint(engine.next_version, b"no tree")
            io = tierflow.lightning.TierflowIO(engine)
            for epoch in range(3):
                io.save_checkpoint({"epoch": (run, epoch)}, path)
                assert io.load_checkpoint(path)["epoch"] == (run, epoch)
            io.teardown()
            assert len(engine.versions()) == run + 2
            # The newest version stays until there is a newer one, but it is no checkpoint any more.
            io.remove_checkpoint(path)
            with pytest.raises(FileNotFoundError):
                io.load_checkpoint(path)
            assert io.newest() is None


def test_a_rank_that_comes_before_the_engine_finds_no_checkpoint(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("lightning")
    directory = tmp_path / "kept"
    reader = tierflow.lightning.TierflowIO(directory)
    assert reader.newest() is None
    with tierflow.Engine(device="host", host_cache="8MiB", external=directory) as engine:
        tierflow.lightning.TierflowIO(engine).save_checkpoint({"step": 1}, tmp_path / "one.ckpt")
        engine.wait()
    assert tierflow.lightning.TierflowIO(directory).newest() == str(tmp_path / "one.ckpt")


def test_lightnings_checkpoints_are_unpickled_only_when_asked(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("lightning")
    with tierflow.Engine(device="host", host_cache="16MiB") as engine:
        io = tierflow.lightning.TierflowIO(engine)
        with pytest.raises(tierflow.ArgumentError, match="pass pickle=True"):
            io.save_checkpoint({"hyper_parameters": {"path": tmp_path}}, tmp_path / "a")
        io = tierflow.lightning.TierflowIO(engine, pickle=True)
        io.save_checkpoint({"hyper_parameters": {"path": tmp_path}}, tmp_path / "a")
        assert io.load_checkpoint(tmp_path / "a")["hyper_parameters"] == {"path": tmp_path}
        with pytest.raises(tierflow.ArgumentError, match="was pickled"):
            io.load_checkpoint(tmp_path / "a", weights_only=True)


MESHES = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax, jax.numpy as jnp, numpy as np, tierflow
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    devices = np.array(jax.devices())
    rows = NamedSharding(Mesh(devices, "x"), P("x"))
    blocks = NamedSharding(Mesh(devices.reshape(2, 2), ("x", "y")), P("y", "x"))
    w = jnp.arange(32.0).reshape(8, 4)
    state = {"w": jax.device_put(w, rows), "count": jnp.int32(3), "key": jax.random.key(5), "step": 7, "none": None}
    with tierflow.Engine(device="host", host_cache="16MiB") as engine:
        tierflow.jax.save(engine, 0, state)
        like = {**state, "w": jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=blocks)}
        like["key"] = jax.ShapeDtypeStruct((), state["key"].dtype)
        back = tierflow.jax.load(engine, 0, like)
        assert back["w"].sharding == blocks and (back["w"] == w).all()
        assert tierflow.jax.load(engine, 0, state)["w"].sharding == rows
        assert back["count"] == 3 and back["step"] == 7 and back["none"] is None
        assert jax.random.bits(back["key"]) == jax.random.bits(state["key"])
        for wrong, text in (({"w": w}, "['count']"), ({**state, "w": w.T}, "float32 of shape (8, 4)")):
            try:
                tierflow.jax.load(engine, 0, wrong)
            except tierflow.ArgumentError as error:
                assert text in str(error), error
            else:
                raise AssertionError(text)
"""


def test_wide_arrays_are_refused_where_jax_has_none(engine: tierflow.Engine) -> None:
    """`like=` asks for wide arrays: JAX would make narrow ones with other values."""
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        tierflow.jax.save(engine, 0, {"a": jax.numpy.array([2**40 + 1, 3])})
    with pytest.raises(tierflow.ArgumentError, match="jax_enable_x64"):
        tierflow.jax.load(engine, 0, {"a": jax.ShapeDtypeStruct((2,), np.int64)})


def test_a_part_that_was_not_saved_is_named_before_any_is_loaded(engine: tierflow.Engine) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 2)
    tierflow.torch.AsyncCheckpointer(engine, every=1, model=model).save(3)
    other = torch.nn.Linear(2, 2)
    before = other.weight.clone()
    checkpointer = tierflow.torch.AsyncCheckpointer(engine, every=1, model=other, sampler=torch.nn.Linear(1, 1))
    with pytest.raises(tierflow.ArgumentError, match="version 0 has no state of sampler"):
        checkpointer.resume()
    assert torch.equal(other.weight, before)


def test_leaves_of_jax_are_told_apart(engine: tierflow.Engine) -> None:
    jax = pytest.importorskip("jax")

    @dataclass(frozen=True, order=True)
    class Layer:
        number: int = field(repr=False)

    with pytest.raises(tierflow.ArgumentError, match="Layer"):
        tierflow.jax.save(engine, 0, {Layer(0): np.zeros(2), Layer(1): np.ones(2)})
    key = jax.random.key(3)
    tierflow.jax.save(engine, 1, {"key": key, "rate": 0.5, "weight": np.ones(3)})
    like = {"key": key, "rate": 0.0, "weight": np.zeros(3)}
    assert tierflow.jax.load(engine, 1, {**like, "rate": np.zeros(())})["rate"] == 0.5
    for name, other in (("key", np.zeros(3)), ("key", 7), ("weight", key), ("weight", 1.0), ("rate", np.zeros(3))):
        with pytest.raises(tierflow.ArgumentError, match=f"{name}.* in like="):
            tierflow.jax.load(engine, 1, {**like, name: other})


def test_a_tree_of_jax_comes_back_on_another_mesh(python: Callable[[str], str]) -> None:
    pytest.importorskip("jax")
    python(MESHES)


def test_a_transformers_callback_says_what_it_cannot() -> None:
    pytest.importorskip("transformers")
    with tierflow.Engine(device="host", host_cache="1MiB") as engine:
        with pytest.raises(ValueError, match="every=0"):
            tierflow.transformers.TierflowCallback(engine, every=0)
        callback: Any = tierflow.transformers.TierflowCallback(engine, every=1)
        assert callback.checkpoint() is None
