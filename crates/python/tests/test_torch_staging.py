"""States change in any way between staged checkpoints: each checkpoint has the state of its call, to the bit."""

import contextlib
import dataclasses
import io
import random
import threading
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tierflow

torch = pytest.importorskip("torch")

from torch.distributed import checkpoint as dcp  # noqa: E402

from tierflow import _tierflow  # noqa: E402
from tierflow.torch import _staging  # noqa: E402
from tierflow.torch._layout import SMALL, Layout  # noqa: E402
from tierflow.torch._program import Guard, updates_of  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.distributed is"),
    # Of PyTorch's own making.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
]

# The machine may have other work.
torch.set_num_threads(1)

DTYPES = ["float32", "float64", "bfloat16", "float16", "int64", "int8", "uint8", "bool", "complex64", "complex128"]


def write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Writes into the tensor's memory, unless elements share it."""
    if all(size == 1 or stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        with torch.no_grad():
            tensor.copy_(values.to(tensor.dtype))


class Program:
    """The state of a training, and many ways to change it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        self.state: dict[str, Any] = {
            "model": OrderedDict((f"weight.{n}", torch.nn.Parameter(torch.randn(3, n + 1))) for n in range(4)),
            "optimizer": {
                "state": {n: {"moment": torch.randn(3, n + 1), "step": torch.tensor(0.0)} for n in range(4)},
                "param_groups": [{"lr": 0.1, "params": [0, 1, 2, 3]}],
            },
            "loop": {"step": 0, "text": "", "losses": [], "generator": np.random.default_rng(seed).random(3)},
            "parts": [torch.randn(5), [torch.zeros(2, 0), torch.tensor(1 + 2j)]],
        }
        self.changes = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("change_")]

    def places(self, node: Any = None) -> list[tuple[Any, Any]]:
        """Returns the branch and the key of each tensor."""
        node = self.state if node is None else node
        found = []
        for key in node if isinstance(node, dict) else range(len(node)):
            if isinstance(node[key], torch.Tensor):
                found.append((node, key))
            elif isinstance(node[key], dict | list):
                found += self.places(node[key])
        return found

    def one(self) -> tuple[Any, Any, torch.Tensor]:
        branch, key = self.random.choice(self.places())
        return branch, key, branch[key]

    def change(self) -> None:
        with torch.no_grad():
            self.random.choice(self.changes)()

    def change_values(self) -> None:
        _, _, tensor = self.one()
        # The values of tensors that share its memory change, too.
        write(tensor, torch.randn(tensor.shape))

    def change_steps(self) -> None:
        for branch, key in self.places():
            if key == "step" and branch[key].dtype.is_floating_point:
                write(branch[key], branch[key] + 1)
        self.state["loop"]["step"] += 1
        self.state["optimizer"]["param_groups"][0]["lr"] *= 0.9

    def change_plain_values(self) -> None:
        loop = self.state["loop"]
        loop["text"] += "more"
        loop["losses"].append(self.random.random())
        loop["generator"] += 1

    def change_to_an_equal_one(self) -> None:
        branch, key, tensor = self.one()
        branch[key] = tensor.clone() if self.random.random() < 0.5 else torch.zeros_like(tensor)

    def change_to_another(self) -> None:
        branch, key, _ = self.one()
        shape = [self.random.randrange(4) for _ in range(self.random.randrange(4))]
        branch[key] = torch.randn(shape).to(getattr(torch, self.random.choice(DTYPES)))

    def change_type(self) -> None:
        branch, key, tensor = self.one()
        # The same bytes get another type.
        name = {1: "int8", 2: "float16", 4: "int32", 8: "float64"}.get(tensor.element_size(), "float32")
        is_seen = name != "float32" and not tensor.is_conj() and not tensor.is_neg()
        branch[key] = tensor.view(getattr(torch, name)) if is_seen else torch.randn(tensor.shape)

    def change_strides(self) -> None:
        branch, key, tensor = self.one()
        branch[key] = tensor.movedim(0, -1) if tensor.ndim else tensor.expand(3)

    def change_to_a_part(self) -> None:
        branch, key, tensor = self.one()
        branch[key] = tensor[..., 1:] if tensor.ndim else tensor[None]

    def change_to_a_conjugate(self) -> None:
        branch, key, tensor = self.one()
        conjugate = (
            torch.randn(tensor.shape, dtype=torch.complex64).conj() if not tensor.is_complex() else tensor.conj()
        )
        branch[key] = conjugate.imag if self.random.random() < 0.5 else conjugate

    def change_to_a_tied_one(self) -> None:
        branch, key, _ = self.one()
        _, _, other = self.one()
        branch[key] = other

    def change_memory(self) -> None:
        _, _, tensor = self.one()
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        storage.resize_(0)
        storage.resize_(size + self.random.choice([0, 64]))
        # All tensors in this storage get new values.
        for branch, key in self.places():
            if branch[key].untyped_storage()._cdata == storage._cdata:
                write(branch[key], torch.ones(branch[key].shape))

    def change_data(self) -> None:
        _, _, tensor = self.one()
        if not tensor.is_conj() and not tensor.is_neg():
            tensor.data = torch.randn(7).to(tensor.dtype)

    def change_structure(self) -> None:
        model = self.state["model"]
        if self.random.random() < 0.5 or len(model) < 2:
            model[f"weight.{self.random.randrange(100)}"] = torch.randn(2, 2)
        else:
            del model[self.random.choice(list(model))]


def flat(state: Any, name: str = "") -> dict[str, Any]:
    if isinstance(state, dict | list):
        keys = state if isinstance(state, dict) else range(len(state))
        return {key: one for part in keys for key, one in flat(state[part], f"{name}.{part}").items()}
    return {name: state}


def kept(state: Any) -> Any:
    """Returns the bytes that torch.save makes of each leaf. torch.save refuses a whole state with tensors of several types over the same memory."""
    if isinstance(state, dict):
        return {key: kept(part) for key, part in state.items()}
    if isinstance(state, list):
        return [kept(part) for part in state]
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def cleared(state: Any) -> Any:
    """Returns a state of the same form with other values."""
    if isinstance(state, dict):
        return {key: cleared(part) for key, part in state.items()}
    if isinstance(state, list) and any(isinstance(part, torch.Tensor | dict | list) for part in state):
        return [cleared(part) for part in state]
    return torch.zeros(state.shape, dtype=state.dtype) if isinstance(state, torch.Tensor) else None


def bits(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        return value.dtype, value.shape, plain.view(torch.uint8).numpy().tobytes()
    return value.tobytes() if isinstance(value, np.ndarray) else value


def assert_loaded(engine: tierflow.Engine, expected: Any) -> None:
    back = cleared(expected)
    dcp.load(back, storage_reader=tierflow.torch.StorageReader(engine))
    one, other = flat(expected), flat(back)
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert bits(value) == bits(other[name]), name


@pytest.mark.parametrize("seed", range(6))
def test_each_checkpoint_has_the_state_of_its_call(seed: int) -> None:
    program = Program(seed)
    # Later versions use the memory of earlier ones.
    with tierflow.Engine(device="host", host_cache="4MiB", after_restore="keep") as engine:
        writer = tierflow.torch.StorageWriter(engine)
        for _ in range(40):
            for _ in range(program.random.randrange(3)):
                program.change()
            expected = kept(program.state)
            response = dcp.async_save(program.state, storage_writer=writer)
            response.staging_completion.result(60)
            program.change()
            program.change_steps()
            program.change_plain_values()
            response.upload_completion.result(60)
            assert_loaded(engine, expected)
            assert writer.version is not None
            engine.discard(writer.version)
        writer.close()


def test_an_unchanged_state_is_laid_out_once(engine: tierflow.Engine) -> None:
    """The layout is that of tensors with the same memory, shapes and types, whatever their values and whoever made the tensors."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    writer = tierflow.torch.StorageWriter(engine)
    layouts = []
    for value in range(3):
        with torch.no_grad():
            model[0].weight.fill_(value)
            model[1].num_batches_tracked.fill_(value)
        state = {"model": model.state_dict(), "step": value}
        dcp.async_save(state, storage_writer=writer).upload_completion.result(60)
        layouts.append(writer._staging._layout)
        assert_loaded(engine, kept(state))
    assert layouts[0] is layouts[1] is layouts[2]
    model[0].weight = torch.nn.Parameter(model[0].weight.detach().clone())
    dcp.async_save({"model": model.state_dict()}, storage_writer=writer).upload_completion.result(60)
    assert writer._staging._layout is not layouts[0]
    writer.close()


def test_the_last_tensors_go_through_a_buffer() -> None:
    sizes = [SMALL + 4 * n for n in (1, 500, 3, 900)]
    tensors = [torch.randint(256, (size,), dtype=torch.uint8) for size in (8, *sizes[:2], 12, *sizes[2:])]
    tensors[2] = tensors[2].view(torch.float32)
    layout = Layout(tensors)
    runs = set()
    for room in range(0, layout.end + 8192, 1024):
        where = layout.buffered(torch.zeros(room, dtype=torch.uint8), tensors)
        found = []
        for of_slot in (range(where.start), where):
            for copies in layout.copies(of_slot):
                assert not copies.others
                found += [(index, of_slot.start + at) for index, at in zip(copies.indices, copies.offsets, strict=True)]
        assert sorted(found) == [(index, layout.offsets[index]) for index in (1, 2, 4, 5)]
        assert sum(at in where for _, at in found) == sum(at in where for at in set(layout.offsets))
        runs.add(len(where))
        # The small tensors are behind it.
        assert where.stop == min(layout.offsets[0], layout.offsets[3])
        assert not any(where.stop - room <= at < where.start for at in layout.offsets)
    assert len(runs) == 1 + len(sizes)


@dataclasses.dataclass
class Moments:
    first: torch.Tensor


Pair = namedtuple("Pair", "a b")


def test_tensors_in_what_dcp_pickles(engine: tierflow.Engine) -> None:
    """Tensors in objects that DCP pickles are pickled with their values, as `dcp.save` does."""
    state = {
        "last": deque([torch.arange(3.0)]),
        "moments": Moments(torch.arange(5)),
        "pair": Pair(torch.arange(4.0), 7),
        "tuple": (torch.arange(2.0), "text"),
    }
    writer = tierflow.torch.StorageWriter(engine)
    response = dcp.async_save(state, storage_writer=writer)
    state["last"][0].zero_()
    state["moments"].first.zero_()
    response.upload_completion.result(60)
    back: dict[str, Any] = dict.fromkeys(state)
    dcp.load(back, storage_reader=tierflow.torch.StorageReader(engine))
    assert torch.equal(back["last"][0], torch.arange(3.0))
    assert torch.equal(back["moments"].first, torch.arange(5))
    assert torch.equal(back["pair"][0], torch.arange(4.0))
    assert back["pair"][1] == 7
    assert torch.equal(back["tuple"][0], torch.arange(2.0))
    writer.close()


def test_a_planner_that_pickles_tensors_is_refused(engine: tierflow.Engine) -> None:
    """Such a planner gets placeholders for tensors, which have no bytes."""
    planner = dcp.DefaultSavePlanner(flatten_state_dict=False)
    writer = tierflow.torch.StorageWriter(engine)
    response = dcp.async_save({"model": {"weight": torch.ones(3)}}, storage_writer=writer, planner=planner)
    with pytest.raises(dcp.api.CheckpointException, match="without staging"):
        response.upload_completion.result(60)
    assert engine.versions() == []
    writer.close()


def test_small_tensors_lie_side_by_side() -> None:
    steps = [torch.tensor(float(n)) for n in range(5)]
    large = torch.zeros(SMALL + 1, dtype=torch.uint8)
    conjugate = torch.tensor([1 + 2j, 3 + 4j]).conj()
    tensors = [steps[0], large, *steps[1:], conjugate, steps[2]]
    layout = Layout(tensors)
    assert layout.offsets[1] == 0
    for _ in range(2):
        first, bytes = layout.gathered(tensors)
        assert first == 64 * 65
        assert first + bytes.nbytes == layout.end
        for tensor, at in zip(tensors, layout.offsets, strict=True):
            if tensor is not large:
                found = bytes[at - first : at - first + tensor.nbytes]
                assert bits(found)[2] == bits(tensor)[2]
        for step in steps:
            step.add_(1)
    assert layout.offsets[-1] == layout.offsets[3]


class Noting:
    """A tensor that counts the streams which its allocator is told of."""

    def __init__(self, notes: list[Any]) -> None:
        self.tensor, self.notes = torch.zeros(8), notes

    def untyped_storage(self) -> Any:
        return self.tensor.untyped_storage()

    def record_stream(self, stream: Any) -> None:
        self.notes.append(stream)


def test_memory_is_noted_once() -> None:
    notes: list[Any] = []
    tensors = [Noting(notes) for _ in range(3)]
    stream: Any = object()
    guard = Guard()
    assert guard.hold(tensors, stream)()
    assert len(notes) == 3
    assert guard.hold(tensors, stream)()
    assert len(notes) == 3
    # Another tensor, and one of the same storage that got other memory.
    tensors[0] = Noting(notes)
    assert guard.hold(tensors, stream)()
    assert len(notes) == 6
    tensors[1].tensor.untyped_storage().resize_(1 << 20)
    done = guard.hold(tensors, stream)
    assert len(notes) == 9
    # The allocator waits for the stream with memory that was noted.
    tensors[1].tensor.untyped_storage().resize_(0)
    assert done()
    tensors[1].tensor.untyped_storage().resize_(64)
    assert guard.hold(tensors, stream)()
    assert guard.hold(tensors, stream)()
    noted = len(notes)
    # Memory that was not noted for this copy is given up beside it: the copy does not count, and those that follow note all.
    done = guard.hold(tensors, stream)
    tensors[1].tensor.untyped_storage().resize_(1 << 20)
    assert not done()
    for more in (3, 6):
        assert guard.hold(tensors, stream)()
        assert len(notes) == noted + more


def test_a_tensor_that_dies_is_held_until_its_copy_ends() -> None:
    import weakref

    tensors = [Noting([])]
    storage = weakref.ref(tensors[0].untyped_storage())
    done = Guard().hold(tensors, object())  # type: ignore[arg-type]
    tensors.clear()
    assert storage() is not None
    assert done()
    del done
    assert storage() is None


class Event:
    def __init__(self) -> None:
        self.waits, self.is_over = 0, False

    def synchronize(self) -> None:
        self.waits += 1

    def query(self) -> bool:
        return self.is_over


class Stream:
    """The part of a stream that staging needs, on a machine without a GPU."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.behind: list[Any] = []

    def wait_stream(self, other: Any) -> None:
        self.behind.append(other)

    def record_event(self) -> Event:
        self.events.append(Event())
        return self.events[-1]

    def wait_event(self, event: Event) -> None:
        self.behind.append(event)


class Streams:
    """A program's stream and that of a writer's copies, and whether the program's is being captured."""

    def __init__(self, writer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.program, self.copies, self.is_capturing = Stream(), Stream(), False
        monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: self.program)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.is_capturing)
        monkeypatch.setattr(_staging, "gather", self.gather)
        writer._staging._stream = self.copies
        # The addresses of the tensors that were copied, in their order.
        self.copied: list[int] = []

    def gather(self, engine: Any, into: Any, tensors: Any, offsets: list[int], *, stream: Any) -> None:
        assert stream is self.copies
        self.copied.extend(tensor.data_ptr() for tensor in tensors)
        _tierflow.gather(engine, into, tensors, offsets)


def test_an_update_comes_after_the_copies(engine: tierflow.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = tierflow.torch.StorageWriter(engine)
    streams = Streams(writer, monkeypatch)
    program = Program(0)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight])
    program.state["weight"] = weight
    for _ in range(3):
        program.change()
        expected = kept(program.state)
        response = dcp.async_save(program.state, storage_writer=writer)
        response.staging_completion.result(60)
        end = streams.copies.events[-1]
        assert end.waits == 1
        # Updates wait until the copies are over, as another optimizer may have its own stream.
        waited = streams.program.behind.count(end)
        for count in (1, 2, 2):
            end.is_over = count == 2
            optimizer.step()
            assert streams.program.behind.count(end) == waited + count
        response.upload_completion.result(60)
        assert_loaded(engine, expected)
    writer.close()


def test_tensors_of_no_optimizer_are_copied_before_the_program_continues(
    engine: tierflow.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forward pass changes the statistics of a normalization without an update, so these are copied first. The same holds for all tensors of
    optimizers that staging has not seen yet, and of optimizers whose steps a CUDA graph replays."""
    writer = tierflow.torch.StorageWriter(engine)
    streams = Streams(writer, monkeypatch)
    model = torch.nn.Sequential(torch.nn.Linear(40, 40), torch.nn.BatchNorm1d(2000))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    def saved() -> tuple[set[int], set[int]]:
        """Returns the tensors that were copied before the program's stream continued, and those after that."""
        copied = streams.copied
        copied.clear()
        before: list[int] = []
        monkeypatch.setattr(streams.program, "wait_event", lambda _: before.extend(copied[len(before) :]))
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        dcp.async_save(state, storage_writer=writer).upload_completion.result(60)
        assert_loaded(engine, kept(state))
        return set(before), set(copied) - set(before)

    def tensors(*names: str) -> set[int]:
        state = model.state_dict()
        return {tensor.data_ptr() for name, tensor in state.items() if name in names}

    weights = tensors("0.weight", "1.weight", "1.bias")
    statistics = tensors("1.running_mean", "1.running_var")
    before, behind = saved()
    assert weights | statistics <= before
    assert behind == set()
    step()
    for _ in range(3):
        before, behind = saved()
        # A writer for each save knows what those before it have seen.
        writer.close()
        writer = tierflow.torch.StorageWriter(engine)
        writer._staging._stream = streams.copies
        assert weights <= behind
        moments = {
            moment.data_ptr() for of in optimizer.state.values() for moment in of.values() if moment.nbytes > SMALL
        }
        assert moments <= behind
        assert statistics <= before
    streams.is_capturing = True
    step()
    streams.is_capturing = False
    for _ in range(2):
        before, behind = saved()
        assert weights | statistics <= before
        assert behind == set()
        step()
    writer.close()


def test_copies_that_no_update_waits_for_are_forgotten(
    engine: tierflow.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that replays its steps as a CUDA graph calls no hook."""
    writer = tierflow.torch.StorageWriter(engine)
    streams = Streams(writer, monkeypatch)
    for _ in range(5):
        dcp.async_save({"weight": torch.ones(3)}, storage_writer=writer).upload_completion.result(60)
        streams.copies.events[-1].is_over = True
    assert updates_of(engine)._copied == streams.copies.events[-1:]
    writer.close()


def test_a_fork_steps_without_the_gpu(python: Callable[[str], str]) -> None:
    """A process that inherits the hook cannot use the GPU of its parent."""
    program = """
        import os
        import torch
        from tierflow.torch._program import Updates

        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = torch.ones(3)
        optimizer = torch.optim.SGD([weight], lr=1.0)
        asked = []
        torch.cuda.is_current_stream_capturing = lambda: bool(asked.append(1))
        updates = Updates("cuda:0")
        optimizer.step()
        assert asked == [1]
        child = os.fork()
        optimizer.step()
        if child == 0:
            os._exit(len(asked))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), len(asked))
    """
    assert python(program).split() == ["1", "2"]


def test_a_save_in_a_capture_is_refused(engine: tierflow.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The capture would record the copies in the graph, and the version would have no bytes."""
    writer = tierflow.torch.StorageWriter(engine)
    streams = Streams(writer, monkeypatch)
    streams.is_capturing = True
    response = dcp.async_save({"weight": torch.ones(3)}, storage_writer=writer)
    with pytest.raises(dcp.api.CheckpointException, match="CUDA graph"):
        response.upload_completion.result(60)
    assert streams.copies.behind == []
    assert engine.versions() == []
    writer.close()


def in_a_thread(call: Any) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result(60)


def test_saves_that_overlap_are_of_their_own(engine: tierflow.Engine) -> None:
    writer = tierflow.torch.StorageWriter(engine)
    state = {"weight": torch.zeros(2000), "step": 0}
    staged, expected = [], []
    for step in range(3):
        state["weight"].fill_(step)
        state["step"] = step
        expected.append(kept(state))
        staged.append(writer.stage(state))
    # A save that was not staged comes between.
    state["weight"].fill_(3)
    state["step"] = 3
    dcp.save(state, storage_writer=writer)
    for one in staged:
        in_a_thread(lambda one=one: dcp.save(one.result(), storage_writer=writer))
    back = {"weight": torch.ones(2000), "step": -1}
    for version, values in enumerate([*expected, state]):
        dcp.load(back, storage_reader=tierflow.torch.StorageReader(engine, version))
        assert bits(back["weight"]) == bits(values["weight"])
        assert back["step"] == values["step"]
    writer.close()


def test_a_save_within_another_one(engine: tierflow.Engine) -> None:
    writer = tierflow.torch.StorageWriter(engine)

    class Planner(dcp.DefaultSavePlanner):
        def resolve_data(self, item: Any) -> Any:
            if engine.versions() == []:
                in_a_thread(lambda: dcp.save({"weight": torch.zeros(3)}, storage_writer=writer))
            return super().resolve_data(item)

    dcp.save({"weight": torch.ones(3)}, storage_writer=writer, planner=Planner())
    values = []
    for version in engine.versions():
        back = {"weight": torch.full((3,), 7.0)}
        dcp.load(back, storage_reader=tierflow.torch.StorageReader(engine, version))
        values.append(back["weight"].tolist())
    assert sorted(values) == [[0.0] * 3, [1.0] * 3]


@pytest.mark.parametrize("lost", [torch.ones(3, device="meta"), torch.eye(3).to_sparse()])
def test_an_exception_of_staging_is_the_saves_error(engine: tierflow.Engine, lost: torch.Tensor) -> None:
    """The save raises the error, and not the step: other ranks would wait for a rank whose step raises."""
    writer = tierflow.torch.StorageWriter(engine)
    response = dcp.async_save({"weight": torch.ones(3), "lost": lost}, storage_writer=writer)
    with pytest.raises(dcp.api.CheckpointException):
        response.upload_completion.result(60)
    assert engine.versions() == []
    dcp.async_save({"weight": torch.ones(3)}, storage_writer=writer).upload_completion.result(60)
    assert len(engine.versions()) == 1
    writer.close()


@pytest.mark.parametrize("fails_in", ["staging", "writing"])
def test_a_save_that_fails_gives_its_room_back(fails_in: str) -> None:
    """The room comes back though the caller keeps the error, with all objects on its stack."""
    with tierflow.Engine(device="host", host_cache="10MiB") as engine:
        writer = tierflow.torch.StorageWriter(engine)
        state: dict[str, Any] = {"model": {"weight": torch.ones(1_500_000)}}
        lost = {"lost": torch.ones(3, device="meta")} if fails_in == "staging" else {}
        planner = dcp.DefaultSavePlanner(flatten_state_dict=fails_in == "staging")
        failed = dcp.async_save({**state, **lost}, storage_writer=writer, planner=planner)
        with pytest.raises(dcp.api.CheckpointException) as raised:
            failed.upload_completion.result(60)
        dcp.async_save(state, storage_writer=writer).upload_completion.result(60)
        assert raised.value.failures
        assert len(engine.versions()) == 1
        writer.close()


def test_memory_that_was_given_up_is_the_saves_error(engine: tierflow.Engine) -> None:
    """All ranks get the error, as they do for other failures of a save."""
    writer = tierflow.torch.StorageWriter(engine)
    state = writer.stage({"weight": torch.ones(3)}).result()
    writer._staging.now.failure = tierflow.ArgumentError("given up by resize_")
    with pytest.raises(dcp.api.CheckpointException, match="given up by resize_"):
        dcp.save(state, storage_writer=writer)
    dcp.async_save({"weight": torch.ones(3)}, storage_writer=writer).upload_completion.result(60)
    assert len(engine.versions()) == 1
    writer.close()


def test_a_save_that_fails_leaves_the_next_one_alone(engine: tierflow.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next save empties the buffer of the one before, which may fail at that moment in the thread that saves it."""
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(_staging, "_PIECE", 1000)
    fails: list[threading.Thread] = []

    class Copies(Stream):
        def synchronize(self) -> None:
            if not fails:
                fails.append(threading.Thread(target=staged.give_up))
                fails[0].start()
                fails[0].join(0.2)

    class OnHost:
        """The slot, without the order of a stream, which a host engine does not have."""

        def __init__(self, slot: object) -> None:
            self.slot = slot

        def write(self, bytes: torch.Tensor, at: int, stream: object) -> None:
            self.slot.write(bytes, at)

        def __getattr__(self, name: str) -> object:
            return getattr(self.slot, name)

    layout = Layout([torch.ones(4000)])
    staged = _staging.Staged(engine, 0, layout, 4096, Copies())
    monkeypatch.setattr(staged, "_slot", OnHost(staged._slot))
    staged._buffer, staged._buffered = torch.ones(layout.end, dtype=torch.uint8), range(layout.end)
    staged.keep_buffered()
    fails[0].join()
    engine.produce(0, 10, "u1").commit()
    assert engine.versions() == [0]
