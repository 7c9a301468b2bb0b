"""Tests on a GPU: `pytest -m cuda`. The tests need PyTorch, and use CuPy, JAX and Numba if these are installed."""

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tierflow

pytestmark = pytest.mark.cuda


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    assert torch.cuda.is_available(), "these tests are for a machine with a GPU"
    return torch


@pytest.fixture
def gpu(torch: Any) -> Iterator[tierflow.Engine]:
    # The context is PyTorch's, too.
    torch.cuda.init()
    with tierflow.Engine(device="cuda", device_cache="256MiB", host_cache="512MiB") as engine:
        assert engine.device == "cuda:0"
        yield engine


def busy(torch: Any, stream: Any = None, milliseconds: int = 50) -> None:
    """Keeps the stream busy, so that the work behind it is late."""
    with torch.cuda.stream(stream or torch.cuda.current_stream()):
        torch.cuda._sleep(int(milliseconds * 1_500_000))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "complex64", "bool"])
def test_tensors_come_back(gpu: tierflow.Engine, torch: Any, dtype: str) -> None:
    field = torch.arange(6000, device="cuda").reshape(20, 300).to(getattr(torch, dtype))
    gpu.checkpoint(0, field, field[3], field.cpu())
    back, part, host = torch.zeros_like(field), torch.zeros_like(field[3]), torch.zeros(field.shape, dtype=field.dtype)
    gpu.restore(0, back, part, host)
    assert torch.equal(back, field)
    assert torch.equal(part, field[3])
    assert torch.equal(host, field.cpu())


def test_numpy_goes_into_a_gpu_engine(gpu: tierflow.Engine) -> None:
    field = np.random.default_rng(0).random((100, 100))
    gpu.checkpoint(0, field)
    back = np.zeros_like(field)
    gpu.restore(0, back)
    assert (back == field).all()


class Interface:
    """A tensor that has only `__cuda_array_interface__`."""

    def __init__(self, tensor: Any, stream: int | None) -> None:
        self.tensor = tensor
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "version": 3, "stream": stream}


class OnlyDLPack:
    """A tensor that has only `__dlpack__`."""

    def __init__(self, tensor: Any, *, versioned: bool) -> None:
        self.tensor, self.versioned, self.streams = tensor, versioned, []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: Any = None, **keywords: Any) -> Any:
        self.streams.append(stream)
        if not self.versioned:
            if keywords:
                raise TypeError("unexpected keyword")
            return self.tensor.__dlpack__(stream=stream)
        return self.tensor.__dlpack__(stream=stream, **keywords)


@pytest.mark.parametrize("protocol", ["exchange", "versioned", "legacy", "interface", "named"])
@pytest.mark.parametrize("side", [False, True], ids=["default stream", "side stream"])
def test_a_copy_comes_after_the_work_of_the_stream(gpu: tierflow.Engine, torch: Any, protocol: str, side: bool) -> None:
    """The value is written behind 50 ms of other work: a copy that does not wait would have the old value."""
    stream = torch.cuda.Stream() if side else torch.cuda.default_stream()
    handle = stream.cuda_stream or 1
    with torch.cuda.stream(stream):
        for version in range(4):
            field = torch.zeros(1 << 20, device="cuda")
            stream.synchronize()
            shown = {
                "exchange": lambda field=field: field,
                "versioned": lambda field=field: OnlyDLPack(field, versioned=True),
                "legacy": lambda field=field: OnlyDLPack(field, versioned=False),
                "interface": lambda field=field: Interface(field, handle),
                "named": lambda field=field: Interface(field, None),
            }[protocol]()
            named = stream if protocol == "named" else None
            busy(torch)
            field += version + 1
            gpu.checkpoint(version, shown, stream=named)
            # A restore comes after the work that still reads or writes its target.
            busy(torch)
            field.fill_(-1)
            gpu.restore(version, shown, stream=named)
            assert (field == version + 1).all()


@pytest.mark.parametrize("versioned", [False, True])
def test_a_copy_that_the_stream_of_no_framework_orders_is_over(
    gpu: tierflow.Engine, torch: Any, versioned: bool
) -> None:
    """`__dlpack__` names no stream of the framework's, so nothing makes its next work wait for the copy."""
    field = torch.full((1 << 20,), 1.0, device="cuda")
    shown = OnlyDLPack(field, versioned=versioned)
    with gpu.produce(0, 2 * field.nbytes, "u1") as slot:
        for copy in (
            lambda: slot.write(shown, 0),
            lambda: tierflow._tierflow.gather(gpu, slot, (shown,), [field.nbytes]),
        ):
            busy(torch)
            field.add_(1)
            copy()
            assert torch.cuda.current_stream().query()
    with gpu.consume(0) as slot:
        busy(torch)
        slot.read(shown, field.nbytes)
        assert torch.cuda.current_stream().query()
    assert (field == 3).all()
    both = torch.zeros(2 << 20, device="cuda")
    gpu.restore(0, both)
    assert (both[: 1 << 20] == 2).all()
    assert (both[1 << 20 :] == 3).all()


def test_streams_by_every_name(gpu: tierflow.Engine, torch: Any) -> None:
    stream = torch.cuda.Stream()

    class Named:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, stream.cuda_stream)

    field = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    for version, name in enumerate([stream, stream.cuda_stream, Named()]):
        busy(torch, stream)
        with torch.cuda.stream(stream):
            field.fill_(version + 1)
        gpu.checkpoint(version, Interface(field, None), stream=name)
        back = torch.zeros_like(field)
        gpu.restore(version, back)
        assert (back == version + 1).all()


def test_a_graph_that_is_captured_is_left_alone(gpu: tierflow.Engine, torch: Any) -> None:
    field, graph = torch.zeros(1000, device="cuda"), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    # Other threads, such as the engine's, may do what they want meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        field += 1
        with pytest.raises(tierflow.ArgumentError, match="graph"):
            gpu.checkpoint(0, field)
    graph.replay()
    gpu.checkpoint(0, field)
    assert gpu.versions() == [0]


def test_arguments_that_are_refused(gpu: tierflow.Engine, torch: Any) -> None:
    weight = torch.zeros(40, 60, device="cuda", requires_grad=True)
    with pytest.raises(tierflow.ArrayError, match=r"t\.detach\(\)"):
        gpu.checkpoint(0, weight)
    with pytest.raises(tierflow.ArrayError, match=r"t\.contiguous\(\)"):
        gpu.checkpoint(0, weight.detach().T)
    with pytest.raises(tierflow.ArrayError, match="resolve_conj"):
        gpu.checkpoint(0, torch.zeros(4, dtype=torch.complex64, device="cuda").conj())
    with tierflow.Engine(device="host", host_cache="1MiB") as plain:
        with pytest.raises(tierflow.ArrayError, match='device="cuda:0"'):
            plain.checkpoint(0, weight.detach())
    interface = dict(weight.detach().__cuda_array_interface__)
    interface["data"] = (interface["data"][0], True)

    class ReadOnly:
        __cuda_array_interface__ = interface

    gpu.checkpoint(0, ReadOnly())
    with pytest.raises(tierflow.ArrayError, match="read-only"):
        gpu.restore(0, ReadOnly())


def test_another_gpu(gpu: tierflow.Engine, torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with pytest.raises(tierflow.ArrayError, match="cuda:1"):
        gpu.checkpoint(0, torch.zeros(4, device="cuda:1"))
    with tierflow.Engine(device="cuda:1", device_cache="16MiB") as other:
        other.checkpoint(0, torch.zeros(4, device="cuda:1"))


def test_slots_are_tensors(gpu: tierflow.Engine, torch: Any) -> None:
    expected = torch.arange(6000, dtype=torch.float32, device="cuda").reshape(20, 300)
    slot = gpu.produce(0, (20, 300), torch.float32)
    assert slot.__dlpack_device__() == (2, 0)
    with pytest.raises(BufferError, match="GPU memory"):
        memoryview(slot)
    tensor = torch.from_dlpack(slot)
    assert tensor.data_ptr() == slot.__cuda_array_interface__["data"][0]
    tensor.copy_(expected)
    with pytest.raises(BufferError, match="1 of them"):
        slot.commit()
    del tensor
    # A slot is an array for the engine, too.
    gpu.checkpoint(1, slot)
    slot.commit()
    assert gpu.versions() == [0, 1]
    with gpu.consume(0, (20, 300), torch.float32) as slot:
        seen = torch.from_dlpack(slot)
    assert torch.equal(seen, expected)
    back = torch.zeros_like(expected)
    gpu.restore(0, back)
    assert torch.equal(back, expected)


@pytest.mark.parametrize("named", [False, True])
def test_a_commit_comes_after_the_kernels(gpu: tierflow.Engine, torch: Any, named: bool) -> None:
    """The slot is written behind 50 ms of other work, on a stream that is not waited for."""
    stream = torch.cuda.Stream()
    for version in range(4):
        slot = gpu.produce(version, 1 << 20, "float32")
        with torch.cuda.stream(stream):
            tensor = torch.from_dlpack(slot)
            busy(torch)
            tensor.fill_(version + 1)
        del tensor
        slot.commit(stream if named else None)
        back = torch.zeros(1 << 20, device="cuda")
        gpu.restore(version, back)
        assert (back == version + 1).all()


@pytest.mark.parametrize("how", ["the last reference", "finish", "finish behind a stream"])
def test_a_version_that_is_read_is_not_overwritten(torch: Any, how: str) -> None:
    """The cache holds one version. The next version takes its place after the kernel that still reads it."""
    size = 8 << 20
    stream = torch.cuda.Stream()
    with tierflow.Engine(device="cuda", device_cache=size, after_restore="discard") as engine:
        for version in range(4):
            engine.checkpoint(version, torch.full((size,), version, dtype=torch.uint8, device="cuda"))
            seen = torch.zeros(size, dtype=torch.uint8, device="cuda")
            torch.cuda.synchronize()
            slot = engine.consume(version)
            with torch.cuda.stream(stream):
                tensor = torch.from_dlpack(slot)
                busy(torch)
                seen.copy_(tensor)
            del tensor
            # The slot's memory is given back before the copy runs.
            if how == "finish":
                slot.finish()
            elif how == "finish behind a stream":
                with pytest.raises(TypeError, match="__cuda_stream__"):
                    slot.finish("mine")
                slot.finish(stream)
            del slot
            engine.checkpoint(100 + version, torch.full((size,), 77, dtype=torch.uint8, device="cuda"))
            stream.synchronize()
            assert (seen == version).all()
            engine.discard(100 + version)


def test_a_slot_that_is_given_up_while_kernels_write_it(torch: Any) -> None:
    size = 8 << 20
    stream = torch.cuda.Stream()
    with tierflow.Engine(device="cuda", device_cache=size) as engine:
        slot = engine.produce(0, size, "uint8")
        with torch.cuda.stream(stream):
            tensor = torch.from_dlpack(slot)
            busy(torch)
            tensor.fill_(99)
        del tensor, slot
        engine.checkpoint(0, torch.full((size,), 7, dtype=torch.uint8, device="cuda"))
        stream.synchronize()
        back = torch.zeros(size, dtype=torch.uint8, device="cuda")
        engine.restore(0, back)
        assert (back == 7).all()


def test_an_array_in_main_memory_is_copied_when_the_call_returns(gpu: tierflow.Engine, torch: Any) -> None:
    stream, field = torch.cuda.Stream(), torch.ones(1 << 20).pin_memory()
    back = torch.zeros(1 << 20).pin_memory()
    torch.cuda.synchronize()
    for version in range(2):
        slot = gpu.produce(version, 1 << 20, "float32")
        busy(torch, stream)
        if version == 0:
            slot.write(field, stream=stream)
        else:
            tierflow._tierflow.gather(gpu, slot, (field,), [0], stream=stream)
        field.zero_()
        slot.commit(stream)
        field.fill_(1)
        with gpu.consume(version, 1 << 20, "float32") as slot:
            busy(torch, stream)
            back.zero_()
            slot.read(back, stream=stream)
            assert (back == 1).all()


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("reads", [False, True])
def test_a_slot_dropped_while_a_graph_is_captured_keeps_its_room(torch: Any, reads: bool, mode: int) -> None:
    """During a capture the driver orders nothing behind all work of the device, and the program still uses the bytes."""
    size = 8 << 20
    stream, captured, graph = torch.cuda.Stream(), torch.cuda.Stream(), ctypes.c_void_p()
    driver = ctypes.CDLL("libcuda.so.1")
    seen = torch.zeros(size, dtype=torch.uint8, device="cuda")
    ones = torch.ones(size, dtype=torch.uint8, device="cuda")
    with tierflow.Engine(device="cuda", device_cache=size, after_restore="discard") as engine:
        if reads:
            engine.checkpoint(0, torch.full_like(ones, 7))
        slot = engine.consume(0) if reads else engine.produce(0, size, "uint8")
        tensor = torch.from_dlpack(slot)
        # A first run brings the memory and the kernels that the work needs, as a capture allows neither.
        busy(torch, stream, 1)
        torch.cuda.synchronize()
        assert driver.cuStreamBeginCapture_v2(ctypes.c_void_p(captured.cuda_stream), mode) == 0
        with torch.cuda.stream(stream):
            busy(torch, milliseconds=200)
            seen.copy_(tensor) if reads else tensor.fill_(99)
        del tensor, slot
        # The drop spoiled the graph, or the driver orders behind all work nevertheless.
        driver.cuStreamEndCapture(ctypes.c_void_p(captured.cuda_stream), ctypes.byref(graph))
        # The room comes back once the end of the slot is ordered.
        while 1 not in engine.versions():
            with contextlib.suppress(tierflow.NoRoomError):
                engine.checkpoint(1, ones)
        stream.synchronize()
        back = torch.zeros_like(ones)
        engine.restore(1, back)
        assert (back == 1).all()
        assert not reads or ((seen == 7).all() and engine.versions() == [])


def test_cupy(gpu: tierflow.Engine, torch: Any) -> None:
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        field = cupy.arange(5000, dtype="f4").reshape(50, 100)
        gpu.checkpoint(0, field)
        gpu.checkpoint(1, field, stream=stream)
        back = cupy.zeros_like(field)
        gpu.restore(0, back)
        assert (back == field).all()
        with pytest.raises(tierflow.ArrayError, match=r"cp\.ascontiguousarray"):
            gpu.checkpoint(2, field[:, ::2])
        slot = gpu.produce(2, (50, 100), cupy.float32)
        cupy.from_dlpack(slot)[...] = field + 1
        cupy.asarray(slot)[...] += 1
        slot.commit(stream)
        assert (cupy.from_dlpack(gpu.consume(2, (50, 100), "f4")) == field + 2).all()


def test_jax(gpu: tierflow.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    # Most of the GPU is not JAX's.
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
    field = jax.numpy.arange(5000, dtype="float32").reshape(50, 100)
    gpu.checkpoint(0, field)
    with pytest.raises(tierflow.ArrayError, match="never change"):
        gpu.restore(0, field)
    seen = jax.dlpack.from_dlpack(gpu.consume(0, (50, 100), "float32"))
    assert (seen == field).all()


def test_a_history_through_all_tiers(torch: Any, tmp_path: object) -> None:
    steps, size = 64, 4 << 20
    with tierflow.Engine(
        device="cuda", device_cache="32MiB", host_cache="64MiB", scratch=str(tmp_path), after_restore="discard"
    ) as engine:
        engine.hint(reversed(range(steps)))
        field = torch.zeros(size, dtype=torch.uint8, device="cuda")
        for step in range(steps):
            field.fill_(step)
            engine.checkpoint(step, field)
        for step in reversed(range(steps)):
            engine.restore(step, field)
            assert (field == step).all(), step
