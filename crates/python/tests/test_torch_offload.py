"""Tests of `tierflow.torch.offload` without a GPU: tensors leave and come back, and gradients are the same to the bit."""

import gc
import itertools
import pathlib
import unittest.mock
from collections.abc import Iterator
from typing import Any

import pytest

import tierflow

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tierflow.torch._plan import Bus  # noqa: E402
from tierflow.torch._ways import Ways  # noqa: E402

# The machine may have other work.
torch.set_num_threads(1)


class Block(nn.Module):
    """A block of a transformer, with residuals, views and dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixes = nn.Linear(width, 3 * width)
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        heads = self.mixes(self.before(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + functional.dropout(self.down(functional.gelu(self.up(self.between(x)))), 0.1)


class Model(nn.Module):
    def __init__(self, *, recompute: str = "") -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(64) for _ in range(3))
        self.recompute = recompute

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.recompute == "reentrant") if self.recompute else block(x)
        return x.square().mean()


def steps(model: Any, saving: Any, count: int = 4, *, autocast: bool = False, length: int = 96) -> Iterator[Any]:
    """Returns the gradients of `count` steps of a training, with `saving` or without."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        x = torch.randn(4, length, 64, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            if saving is None:
                loss = model(x)
            else:
                with saving:
                    loss = model(x)
        loss.backward()
        yield [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()


def same(engine: tierflow.Engine, budget: Any, *, recompute: str = "", **how: Any) -> Any:
    """Trains twice, compares the gradients, and returns the offload of the second training."""
    torch.manual_seed(0)
    model = Model(recompute=recompute)
    begin = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = list(steps(model, None, **how))
    model.load_state_dict(begin)
    saving = tierflow.torch.offload(engine, budget, smallest=1024)
    for wanted, got in zip(expected, steps(model, saving, **how), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))
    return saving


def left(engine: tierflow.Engine) -> list[int]:
    """Returns the versions that the engine still holds after the last graph is gone."""
    gc.collect()
    return engine.versions()


@pytest.mark.parametrize("budget", [0, "700KiB", "1GiB", None])
def test_gradients_are_the_same_to_the_bit(engine: tierflow.Engine, budget: Any) -> None:
    saving = same(engine, budget)
    stored = engine.metrics()["produce"]["bytes"]
    if budget in (0, "700KiB"):
        assert stored > 0
        assert saving.plan.staying <= saving.budget
        assert stored >= 3 * saving.plan.leaving
    else:
        # A processor that copies does not compute, so no copy is hidden.
        assert stored == 0
        assert saving.plan.leaving == 0
    assert str(saving.plan.leaving >> 20) in repr(saving)


@pytest.mark.parametrize("after", ["keep", "discard"])
def test_nothing_is_left_in_the_engine(after: Any) -> None:
    with tierflow.Engine(device="host", host_cache="16MiB", after_restore=after) as engine:
        same(engine, 0)
        assert left(engine) == []


def test_autocast(engine: tierflow.Engine) -> None:
    assert same(engine, 0, autocast=True).plan.leaving > 0


@pytest.mark.parametrize("recompute", ["reentrant", "not reentrant"])
def test_recomputed_blocks_save_their_inputs(engine: tierflow.Engine, recompute: str) -> None:
    """Only the input of each block is saved."""
    saving = same(engine, 0, recompute=recompute)
    inputs = 3 * 4 * 96 * 64 * 4
    assert saving.plan.saved <= 2 * inputs
    assert left(engine) == []


def test_a_disk_below(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="1MiB", scratch=tmp_path) as engine:
        saving = same(engine, 0)
        assert saving.plan.leaving > 4 << 20
        assert engine.metrics()["tiers"][-1]["peak"] > 0
        assert left(engine) == []


def test_tensors_stay_without_room() -> None:
    with tierflow.Engine(device="host", host_cache="1MiB") as engine:
        with pytest.warns(UserWarning, match="host_cache"):
            same(engine, 0)


def test_other_shapes_in_between(engine: tierflow.Engine) -> None:
    model = Model()
    saving = tierflow.torch.offload(engine, 0, smallest=1024)
    seen = []
    for length in (32, 32, 64, 64, 32, 48):
        for gradients in steps(model, saving, 1, length=length):
            expected = next(steps(model, None, 1, length=length))
            del gradients, expected
        seen.append(engine.metrics()["produce"]["bytes"])
    assert all(more > less for less, more in itertools.pairwise(seen))
    assert left(engine) == []


def test_a_storage_is_stored_once_and_parameters_not_at_all(engine: tierflow.Engine) -> None:
    weight = nn.Parameter(torch.randn(256, 256))
    saving = tierflow.torch.offload(engine, 0, smallest=1024)
    with saving:
        x = torch.randn(256, 256, requires_grad=True).exp()
        # The storage is saved by exp, three times as itself, and as two views. The weight is saved as it is and transposed.
        y = (x * x @ weight).sum() + (x[:128] @ weight.T).sin().sum() + x.T.cos().sum()
    saved = [one for one in engine.versions()]
    sizes = [engine.restore_size(version) for version in saved]
    assert sizes.count(256 * 256 * 4) <= 3
    # x, x * x and the argument of sin are stored, and no weight.
    assert sum(sizes) <= 2 * 256 * 256 * 4 + 128 * 256 * 4
    y.backward()
    assert weight.grad is not None
    assert left(engine) == []


def test_several_backward_passes_and_second_derivatives(engine: tierflow.Engine) -> None:
    def twice(saving: Any) -> list[Any]:
        x = torch.linspace(-1, 1, 4096, requires_grad=True)
        with saving:
            y = (x.sin() * x.exp()).sum()
            first = torch.autograd.grad(y, x, retain_graph=True)[0]
            again = torch.autograd.grad(y, x, retain_graph=True, create_graph=True)[0]
            second = torch.autograd.grad(again.square().sum(), x)[0]
        return [first, again.detach(), second]

    import contextlib

    expected = twice(contextlib.nullcontext())
    got = twice(tierflow.torch.offload(engine, 0, smallest=1024))
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    del got
    assert left(engine) == []


@pytest.mark.parametrize("budget", [0, None])
def test_tensors_changed_in_place(engine: tierflow.Engine, budget: Any) -> None:
    """A tensor that left comes back as it was. For a tensor that stayed, PyTorch raises its error."""
    saving = tierflow.torch.offload(engine, budget, smallest=1024)
    x = torch.linspace(0, 1, 4096, requires_grad=True)
    with saving:
        e = x * 2
        y = e.sin()
        e.add_(1)
    if budget is None:
        with pytest.raises(RuntimeError, match="inplace"):
            y.sum().backward()
    else:
        y.sum().backward()
        assert torch.equal(x.grad, 2 * (x.detach() * 2).cos())


def test_a_graph_that_is_dropped(engine: tierflow.Engine) -> None:
    saving = tierflow.torch.offload(engine, 0, smallest=1024)
    with saving:
        loss = torch.randn(4096, requires_grad=True).exp().sin()
    assert engine.versions() == [0]
    del loss
    with saving:
        pass
    assert left(engine) == []


def test_a_copy_that_fails_leaves_the_version_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def clone(self) -> Any:
            raise torch.OutOfMemoryError("no memory left")

    with tierflow.Engine(device="host", device_cache="1MiB", after_restore="discard") as engine:
        ways = Ways(engine)
        ways.store(0, torch.arange(1000), None)
        with monkeypatch.context() as patched:
            patched.setattr("tierflow.torch._ways.from_dlpack", lambda slot: Full())
            with pytest.raises(torch.OutOfMemoryError):
                ways.load(0, 8000, None)
        back, _ = ways.load(0, 8000, None)
        assert torch.equal(back.view(torch.int64), torch.arange(1000))
        assert engine.versions() == []


def test_a_tensor_that_failed_to_load_is_asked_for_again(
    engine: tierflow.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = tierflow.torch.offload(engine, 0, smallest=1024)
    x = torch.linspace(-1, 1, 4096, requires_grad=True)
    with saving:
        loss = x.sin().exp().sum()
    load, calls = saving.ways.load, []

    def fails_once(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise tierflow.StorageError("not now")
        return load(*args)

    monkeypatch.setattr(saving.ways, "load", fails_once)
    with pytest.raises(tierflow.StorageError):
        torch.autograd.grad(loss, x, retain_graph=True)
    (got,) = torch.autograd.grad(loss, x)
    assert torch.equal(got, x.detach().cos() * x.detach().sin().exp())
    del loss
    assert left(engine) == []


def test_tensors_held_by_others_stay(engine: tierflow.Engine) -> None:
    """Tensors that the program keeps stay, as a copy would free no memory."""
    saving = tierflow.torch.offload(engine, "1KiB", smallest=1024)
    kept = torch.randn(4096, requires_grad=True).exp().detach().requires_grad_(False)
    for _ in range(3):
        with saving:
            loss = (kept * torch.ones(4096, requires_grad=True).exp()).sum()
        loss.backward()
    assert saving.plan.leaving == 4096 * 4
    assert saving.plan.saved > 4096 * 4


def test_forward_before_backward_of_the_one_before(engine: tierflow.Engine) -> None:
    saving = tierflow.torch.offload(engine, 0, smallest=1024)
    x = torch.linspace(0, 1, 4096, requires_grad=True)
    for _ in range(3):
        losses = []
        for factor in (1, 2):
            with saving:
                losses.append((factor * x).exp().sin().sum())
        sum(losses).backward()
    y = x.detach().requires_grad_()
    sum((factor * y).exp().sin().sum() for factor in (1, 2)).backward()
    assert torch.allclose(x.grad, 3 * y.grad)
    assert left(engine) == []


def test_calls_to_be_mended(engine: tierflow.Engine) -> None:
    saving = tierflow.torch.offload(engine)
    with saving, pytest.raises(RuntimeError, match="entered"), saving:
        pass
    with pytest.raises(tierflow.ArgumentError):
        tierflow.torch.offload(engine, "much")


class Device(Ways):
    """A device with its own clock. Copies on it end later."""

    def __init__(self, engine: tierflow.Engine) -> None:
        super().__init__(engine)
        self.now, self.waits = 0.0, True
        # Copies for which nobody has waited yet, each with the memory that it reads.
        self.copies: dict[object, StorageWeakRef] = {}
        self.reused = 0

    def mark(self) -> Any:
        self.now += 1e-3
        return self.now

    def probe(self, version: int) -> Bus:
        return Bus(1e9, 1e9)

    def store(self, version: int, source: Any, clock: Any) -> Any:
        super().store(version, source, None)
        self.look()
        end = unittest.mock.Mock(query=lambda: False)
        self.copies[end] = StorageWeakRef(source.untyped_storage())
        return end

    def load(self, version: int, size: int, clock: Any) -> Any:
        return super().load(version, size, None)

    def work_waits(self, end: Any, clock: Any) -> None:
        self.look()
        if self.waits:
            self.copies.pop(end, None)

    def look(self) -> None:
        self.reused += sum(source.expired() for source in self.copies.values())


def test_memory_is_not_used_again_before_its_copy_has_ended(
    engine: tierflow.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tierflow.torch._offload.WINDOW", 1 << 18)
    model = Model()
    for is_waited_for in (True, False):
        saving = tierflow.torch.offload(engine, 0, smallest=1024, first=10_000 * is_waited_for)
        saving.ways = device = Device(engine)
        # Without the wait, the test must see the defect.
        device.waits = is_waited_for
        for _ in steps(model, saving):
            pass
        device.look()
        assert (device.reused == 0) == is_waited_for
