"""Tests of `torch.distributed.checkpoint` over an engine: saves, saves beside the work, and loads by the same or another number of ranks."""

import pathlib
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import tierflow

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed import checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict  # noqa: E402

from tierflow.torch._latest import _OfAllRanks  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is"),
    # Of PyTorch's own making.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

# The machine may have other work.
torch.set_num_threads(1)


class Training:
    """A model and its optimizer, with some history. A weight is tied, another is not contiguous, and another has no elements."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Linear(30, 50), nn.Linear(50, 30, bias=False), nn.BatchNorm1d(30), nn.Linear(50, 30)
        )
        self.model[3].weight = self.model[1].weight
        self.model.register_buffer("turned", torch.randn(7, 5).T)
        self.model.register_buffer("nothing", torch.zeros(0, 3))
        self.model.register_buffer("short", torch.randn(3).to(torch.bfloat16))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        x = torch.randn(8, 30)
        x = self.model[0](x)
        (self.model[2](self.model[1](x)) + self.model[3](x)).square().sum().backward()
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": 17, "text": "so far", "list": [1, {"two": 2.5}]}


def flat(state: Any, name: str = "") -> dict[str, Any]:
    if isinstance(state, dict):
        return {key: one for part in state for key, one in flat(state[part], f"{name}.{part}").items()}
    return {name: state.clone() if isinstance(state, torch.Tensor) else state}


def assert_same(one: Any, other: Any) -> None:
    one, other = flat(one), flat(other)
    assert one.keys() == other.keys()
    for name, value in one.items():
        same = torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
        assert same, name


def loaded(source: Any, **which: Any) -> dict[str, Any]:
    training = Training(99)
    state = training.state()
    state["step"], state["text"], state["list"] = 0, "", [0, {"two": 0.0}]
    dcp.load(state, storage_reader=tierflow.torch.StorageReader(source), **which)
    set_state_dict(
        training.model, training.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    return {**training.state(), **{key: state[key] for key in ("step", "text", "list")}}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_training_comes_back(engine: tierflow.Engine, asynchronous: bool) -> None:
    training, expected = Training(0), []
    writer = tierflow.torch.StorageWriter(engine)
    for version in range(3):
        expected.append(flat(training.state()))
        if asynchronous:
            response = dcp.async_save(training.state(), storage_writer=writer)
            response.staging_completion.result(60)
            # The version must have the state at the call, so the training changes it now.
            training.step()
            response.upload_completion.result(60)
        else:
            dcp.save(training.state(), storage_writer=writer)
            training.step()
        assert writer.version == version
    writer.close()
    assert engine.versions() == [0, 1, 2]
    for version in (1, 0, 2):
        assert_same(flat(loaded(engine, checkpoint_id=version)), expected[version])
    assert_same(flat(loaded(engine)), expected[2])
    # A load does not discard a version.
    assert engine.versions() == [0, 1, 2]


def test_the_next_engine_goes_on(tmp_path: pathlib.Path) -> None:
    training = Training(0)
    expected = flat(training.state())
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path, retention=2) as engine:
        for version in (3, 7):
            dcp.save(training.state(), storage_writer=tierflow.torch.StorageWriter(engine, version))
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        assert_same(flat(loaded(engine)), expected)
        dcp.save(training.state(), storage_writer=(writer := tierflow.torch.StorageWriter(engine)))
        assert writer.version == 8
    # Without an engine, too.
    assert_same(flat(loaded(tmp_path, checkpoint_id="7")), expected)
    assert tierflow.Repository(tmp_path).versions() == [3, 7, 8]


def test_a_state_larger_than_the_cache_is_read_from_the_disk(tmp_path: pathlib.Path) -> None:
    state = {"large": torch.randn(1000, 1000)}
    with tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path) as engine:
        dcp.save(state, storage_writer=tierflow.torch.StorageWriter(engine))
        engine.wait()
        back = {"large": torch.zeros(1000, 1000)}
        dcp.load(back, storage_reader=tierflow.torch.StorageReader(engine))
    assert torch.equal(back["large"], state["large"])


def test_a_full_cache_is_the_saves_error_and_not_the_steps() -> None:
    with tierflow.Engine(device="host", host_cache="5MiB") as engine:
        writer = tierflow.torch.StorageWriter(engine)
        state = {"weight": torch.ones(600_000)}
        dcp.async_save(state, storage_writer=writer).upload_completion.result(60)
        lost = dcp.async_save(state, storage_writer=writer)
        with pytest.raises(dcp.api.CheckpointException) as raised:
            lost.upload_completion.result(60)
        assert any(isinstance(error, tierflow.NoRoomError) for error, _ in raised.value.failures.values())
        assert engine.versions() == [0]
        engine.discard(0)
        dcp.async_save(state, storage_writer=writer).upload_completion.result(60)
        assert len(engine.versions()) == 1
        writer.close()


class Branch(MutableMapping[str, Any]):
    """A mapping whose copy shares its dict."""

    def __init__(self, **parts: Any) -> None:
        self.parts = parts

    def __getitem__(self, key: str) -> Any:
        return self.parts[key]

    def __setitem__(self, key: str, part: Any) -> None:
        self.parts[key] = part

    def __delitem__(self, key: str) -> None:
        del self.parts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


def test_a_state_of_any_mappings_is_left_as_it_is(engine: tierflow.Engine) -> None:
    state = {"any": Branch(weight=torch.ones(3)), "fixed": MappingProxyType({"bias": torch.ones(2)})}
    writer = tierflow.torch.StorageWriter(engine)
    dcp.async_save(state, storage_writer=writer).upload_completion.result(60)
    assert torch.equal(state["any"]["weight"], torch.ones(3))
    back = {"any": {"weight": torch.zeros(3)}, "fixed": {"bias": torch.zeros(2)}}
    dcp.load(back, storage_reader=tierflow.torch.StorageReader(engine))
    assert_same(back, {"any": {"weight": torch.ones(3)}, "fixed": {"bias": torch.ones(2)}})
    writer.close()


@pytest.mark.parametrize(
    ("held", "newest"),
    [
        (({5, 3}, {4}), None),
        (({5, 3}, {4, 3}), 3),
        (({5, 4}, {5, 1}), 5),
        (({7, 6, 2}, {5, 4, 2}), 2),
        (({1}, set()), None),
    ],
)
def test_the_newest_version_is_one_that_all_ranks_hold(
    held: tuple[set[int], set[int]], newest: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, told = Barrier(2), {}

    def of_all(ranks: Any, one: Any) -> list[Any]:
        told[ranks._versions] = one
        both.wait()
        of_both = list(told.values())
        both.wait()
        return of_both

    def latest(versions: set[int]) -> int | None:
        with tierflow.Engine(device="host", host_cache="1MiB") as engine:
            for version in versions:
                engine.checkpoint(version, np.ones(10))
            return _OfAllRanks(engine, None).latest()

    monkeypatch.setattr(_OfAllRanks, "_of_all", of_all)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(latest, held)) == [newest, newest]


def test_the_next_number_is_above_those_of_discarded_versions(engine: tierflow.Engine) -> None:
    for version in range(3):
        engine.checkpoint(version, np.zeros(10))
        engine.discard(version)
    writer = tierflow.torch.StorageWriter(engine)
    dcp.save({"weight": torch.ones(3)}, storage_writer=writer)
    assert writer.version == 3


def test_a_disk_that_fails_is_the_waits_error(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "kept"
    lost = pytest.warns(ResourceWarning, match="version 9 is lost")
    with lost, pytest.raises(tierflow.StorageError):
        with tierflow.Engine(device="host", host_cache="16MiB", external=directory, closing_patience=0) as engine:
            dcp.save({"weight": torch.ones(1000)}, storage_writer=tierflow.torch.StorageWriter(engine))
            engine.wait()
            for path in sorted(directory.rglob("*"), reverse=True):
                path.unlink() if path.is_file() or path.is_symlink() else path.rmdir()
            directory.rmdir()
            response = dcp.async_save(
                {"weight": torch.ones(1 << 20)}, storage_writer=(writer := tierflow.torch.StorageWriter(engine, 9))
            )
            response.upload_completion.result(60)
            writer.close()
            engine.wait(timeout=60)


def test_a_tensor_and_its_conjugate_are_two(engine: tierflow.Engine) -> None:
    tensor = torch.complex(torch.arange(4.0), torch.ones(4))
    writer = tierflow.torch.StorageWriter(engine)
    dcp.async_save({"a": tensor, "b": tensor.conj()}, storage_writer=writer).upload_completion.result()
    loaded = {"a": torch.zeros_like(tensor), "b": torch.zeros_like(tensor)}
    dcp.load(loaded, storage_reader=tierflow.torch.StorageReader(engine))
    assert torch.equal(loaded["a"], tensor)
    assert torch.equal(loaded["b"], tensor.conj().resolve_conj())
    writer.close()


def test_calls_to_be_mended(engine: tierflow.Engine, tmp_path: pathlib.Path) -> None:
    with pytest.raises(dcp.api.CheckpointException, match="no checkpoint yet"):
        dcp.load({}, storage_reader=tierflow.torch.StorageReader(engine))
    with pytest.raises(tierflow.ArgumentError, match="checkpoint_id=7"):
        dcp.save({}, checkpoint_id="last", storage_writer=tierflow.torch.StorageWriter(engine))
    engine.checkpoint(0, np.zeros(1000))
    with pytest.raises(dcp.api.CheckpointException, match="no metadata"):
        dcp.load({}, storage_reader=tierflow.torch.StorageReader(engine))
    writer = tierflow.torch.StorageWriter(engine, 0)
    with pytest.raises(dcp.api.CheckpointException, match="0"):
        dcp.save({"weight": torch.ones(3)}, storage_writer=writer)
    small = tierflow.torch.StorageWriter(engine, spare=16)
    with pytest.raises(dcp.api.CheckpointException, match="spare="):
        dcp.async_save({"weight": torch.ones(3)}, storage_writer=small).upload_completion.result(60)
    small.close()


@pytest.mark.parametrize("held", [True, False])
def test_a_version_of_a_few_bytes_is_none_of_dcp(held: bool, tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path) as engine:
        engine.checkpoint(0, np.zeros(2))
        engine.wait(60)
        reader = tierflow.torch.StorageReader(engine if held else tmp_path)
        with pytest.raises(tierflow.StorageError, match="no metadata"):
            reader.read_metadata()


RANK = """
    import os, sys
    import torch, torch.distributed as dist, tierflow, warnings
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

    rank, ranks, directory, what = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    dist.init_process_group("gloo", init_method=f"file://{directory}/{what}-{ranks}", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    whole = {
        "rows": torch.arange(4 * 7 * 5.0).view(28, 5),
        "columns": torch.arange(6 * 9).view(6, 9).to(torch.bfloat16),
        "everywhere": torch.arange(10),
        "odd": torch.arange(15.0).view(5, 3),
    }
    places = {"rows": Shard(0), "columns": Shard(1), "everywhere": Replicate(), "odd": Shard(0)}
    kept = f"{directory}/kept"
    if rank == 0:
        os.makedirs(kept, exist_ok=True)
    dist.barrier()
    if what == "load":
        # A group of another size goes on in a directory of its own.
        source, kept = kept, f"{kept}-{ranks}"
        os.makedirs(kept, exist_ok=True)
    group = {"rank": rank, "ranks": ranks, "run": 1}
    with tierflow.Engine(device="host", host_cache="16MiB", external=kept, **group) as engine:
        if what == "load":
            state = {name: distribute_tensor(torch.zeros_like(one), mesh, [places[name]]) for name, one in whole.items()}
            state["note"] = None
            dcp.load(state, storage_reader=tierflow.torch.StorageReader(source, 1))
            for name, one in whole.items():
                assert torch.equal(state[name].full_tensor(), one + 1), name
            assert state["note"] == "from two", state["note"]
            dcp.save(state, storage_writer=tierflow.torch.StorageWriter(engine))
            dist.barrier()
        else:
            writer = tierflow.torch.StorageWriter(engine)
            for version in range(2):
                state = {name: distribute_tensor(one + version, mesh, [places[name]]) for name, one in whole.items()}
                state["note"] = "from two"
                if version:
                    dcp.async_save(state, storage_writer=writer).upload_completion.result(60)
                else:
                    dcp.save(state, storage_writer=writer)
            # The same group: pieces of others come from where they are there to stay.
            back = {name: distribute_tensor(torch.zeros_like(one), mesh, [places[name]]) for name, one in whole.items()}
            dcp.load(back, storage_reader=tierflow.torch.StorageReader(engine, 0))
            for name, one in whole.items():
                assert torch.equal(back[name].full_tensor(), one), name
            writer.close()
            dist.barrier()
    dist.destroy_process_group()
"""


def test_ranks_save_together_and_others_load(ranks: Callable[..., None], tmp_path: pathlib.Path) -> None:
    ranks(RANK, 2, tmp_path, "save")
    for count in (1, 3):
        ranks(RANK, count, tmp_path, "load")
        kept = tierflow.Repository(tmp_path / f"kept-{count}")
        assert (kept.versions(), kept.ranks(0)) == ([0], count)
