"""Measures how much checkpoints by `torch.distributed.checkpoint` block and slow down a training on a GPU.

python checkpoints.py                                   # 13 GB of state, saved each tenth step of 100; all rows take six minutes at most
python checkpoints.py --directory /dev/shm --graphs     # the directory of the other ways; also copies by a CUDA graph
python checkpoints.py --device host --width 256 --depth 2 --length 64   # a trial without a GPU

Every step ends with `torch.cuda.synchronize()`. The time of a step is that from the end of the step before to its own end, so that no work of a save hides
between two measurements. Steps without saves come between any two rows, and each row is compared with the steps on both sides of it: its wall time
and its slowest step with their median, and its slowest step with their slowest. The last line says how steps without saves differ among themselves.
"a copy within the GPU" is the lower limit of all ways whose copy ends before the next update.
"""

import argparse
import contextlib
import gc
import shutil
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from timeit import timeit
from typing import Any

import torch
from offload import Model
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

import tierflow

# Steps of a row, of a row whose saves take many seconds each, and of the steps without saves before and after a row.
STEPS, FEW_STEPS, PLAIN_STEPS = 100, 20, 20

KINDS = ["copy", "tierflow", "kept", "torch.save", "dcp.save", "async", "pinned"]

warnings.filterwarnings("ignore", message="torch.distributed is")


class Training:
    def __init__(self, device: str, width: int, depth: int, length: int) -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = Model(width, depth, 32000).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        self.tokens = torch.randint(32000, (1, length), device=device)

    def step(self, before_update: Callable[[], None]) -> None:
        with torch.autocast(self.device, torch.bfloat16):
            loss = self.model(self.tokens)
        loss.backward()
        before_update()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.synchronize()

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def state(self) -> dict[str, Any]:
        # DCP's own stager cannot copy the dictionary's subclass that a model returns.
        return {"model": dict(self.model.state_dict()), "optimizer": self.optimizer.state_dict()}

    def tensors(self) -> list[torch.Tensor]:
        leaves = torch.utils._pytree.tree_leaves(self.state())
        return [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]


@dataclass
class Way:
    """A way to save a state. The others wait for the result of `save`: for its copies before an update, and for its end before the next save."""

    save: Callable[[], Any]
    ended: Callable[[Any], Any] = lambda _: None
    before_update: Callable[[Any], Any] = lambda _: None


@dataclass
class Rows:
    """The table. Each later row gets its share of the remaining time."""

    training: Training
    every: int
    seconds: float
    count: int
    began: float = field(default_factory=time.perf_counter)
    # The times of the steps without saves, in milliseconds, by the blocks of them.
    plain: list[list[float]] = field(default_factory=list)

    def begin(self) -> None:
        print(
            f"{'':<44} {'plain ms':>8} {'steps':>5} {'saves':>5} {'GB':>5} {'blocks ms':>9} {'wall %':>7} {'worst/median':>12} {'worst/worst':>11}"
        )
        self.plain.append(self.steps(PLAIN_STEPS, None, [], 0.0))

    def steps(self, count: int, way: Way | None, blocked: list[float], end: float) -> list[float]:
        """Returns the milliseconds from the end of each step to that of the next. After `end` the last ones belong to a save, as all others do."""
        training, last, times = self.training, None, []

        def before_update() -> None:
            if way is not None and step % self.every == 0:
                way.before_update(last)

        training.synchronize()
        before = time.perf_counter()
        for step in range(count):
            if way is not None and step % self.every == 0:
                if step and before > end:
                    break
                begun = time.perf_counter()
                if last is not None:
                    way.ended(last)
                last = way.save()
                blocked.append(1e3 * (time.perf_counter() - begun))
            training.step(before_update)
            now = time.perf_counter()
            times.append(1e3 * (now - before))
            before = now
        if way is not None and last is not None:
            way.ended(last)
        return times

    def row(self, name: str, way: Way, bytes: Callable[[], int], *, count: int = STEPS) -> None:
        """Prints a row. `bytes` returns the bytes of a save, after the last save."""
        now = time.perf_counter()
        end = now + max(0.0, self.began + self.seconds - now) / max(1, self.count)
        self.count -= 1
        blocked: list[float] = []
        times = self.steps(count, way, blocked, end)
        size = bytes()
        self.plain.append(self.steps(PLAIN_STEPS, None, [], 0.0))
        plain = self.plain[-2] + self.plain[-1]
        median = statistics.median(plain)
        wall = 100 * (statistics.mean(times) / median - 1)
        print(
            f"{name:<44} {median:>8.1f} {len(times):>5} {len(blocked):>5} {size / 1e9:>5.1f} {statistics.median(blocked):>9.1f} {wall:>+7.2f} "
            f"{max(times) / median:>12.3f} {max(times) / max(plain):>11.3f}"
        )
        slowest = sorted(sorted(range(len(times)), key=times.__getitem__)[-5:])
        told = (f"{step}: {times[step]:.0f} ms{' (a save)' if step % self.every == 0 else ''}" for step in slowest)
        print(f"    slowest steps {', '.join(told)}", flush=True)

    def end(self) -> None:
        """Prints the same measures for blocks of steps without saves. A row that differs by less than these shows nothing."""
        every = [one for block in self.plain for one in block]
        median = statistics.median(every)
        walls = sorted(100 * (statistics.mean(block) / median - 1) for block in self.plain)
        worst = sorted(max(block) / median for block in self.plain)
        print(
            f"{len(walls)} blocks of {PLAIN_STEPS} steps without saves, median {median:.1f} ms: wall {walls[0]:+.2f} to {walls[-1]:+.2f}%, "
            f"worst/median {worst[0]:.3f} to {worst[-1]:.3f}; {time.perf_counter() - self.began:.0f} s in all"
        )


def bytes_beside(training: Training) -> float:
    """Returns the bytes that the bus carries to pinned memory before an update begins."""
    begun, at = time.perf_counter(), 0.0

    def before_update() -> None:
        nonlocal at
        training.synchronize()
        at = time.perf_counter() - begun

    training.step(before_update)
    there = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    here = torch.empty_like(there, device="cpu", pin_memory=True)
    here.copy_(there)
    seconds = timeit(lambda: here.copy_(there), number=3) / 3
    return here.nbytes * at / seconds


def copies_within_the_gpu(rows: Rows, graphs: bool) -> None:
    """A stream of its own copies all tensors, and the next update comes after that. With `graphs`, of copies that one launch begins, by kernels
    and by the driver's copies."""
    tensors = rows.training.tensors()
    copies = [torch.empty_like(tensor) for tensor in tensors]
    stream = torch.cuda.Stream()

    def by_kernels() -> None:
        torch._foreach_copy_(copies, tensors)

    def by_the_driver() -> None:
        for copy, tensor in zip(copies, tensors, strict=True):
            copy.copy_(tensor, non_blocking=True)

    def row(name: str, launch: Callable[[], None]) -> None:
        def save() -> torch.cuda.Event:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream), torch.no_grad():
                launch()
            return stream.record_event()

        save().synchronize()
        begun = time.perf_counter()
        save().synchronize()
        alone = 1e3 * (time.perf_counter() - begun)
        way = Way(save, before_update=lambda copied: torch.cuda.current_stream().wait_event(copied))
        rows.row(f"{name}, {alone:.1f} ms alone", way, lambda: sum(copy.nbytes for copy in copies))
        save().synchronize()
        assert all(map(torch.equal, copies, tensors))

    row("a copy within the GPU", by_kernels)
    for name, launch in (("kernels", by_kernels), ("the driver's copies", by_the_driver)) if graphs else ():
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            launch()
        row(f"one by a graph of {name}", graph.replay)


def tierflow_rows(rows: Rows, names: list[str], buffers: list[int], kept: Path | None, **tiers: int) -> None:
    """Prints a row for each name, with a staging buffer of this size."""
    training = rows.training
    lasting: dict[str, Any] = {"external": kept, "retention": 1} if kept else {"after_restore": "discard"}
    with tierflow.Engine(device="host" if training.device == "cpu" else "cuda", **tiers, **lasting) as engine:
        for index, (name, buffer) in enumerate(zip(names, buffers, strict=True)):
            writer = tierflow.torch.StorageWriter(engine, staging_buffer=buffer)
            # In memory alone, the last version stays until the next one is whole.
            older: list[int] = []

            def save(writer: Any = writer) -> Any:
                return dcp.async_save(training.state(), storage_writer=writer)

            def ended(response: Any, writer: Any = writer, older: list[int] = older) -> None:
                response.upload_completion.result()
                if not kept:
                    for version in older:
                        engine.discard(version)
                    older[:] = [writer.version]

            for _ in range(3):
                training.step(lambda: None)
                ended(save())
                # Memory becomes fast in the background once it is used. Later the version leaves the GPU.
                time.sleep(1 if index else 3)

            def bytes(writer: Any = writer) -> int:
                return engine.restore_size(writer.version)

            rows.row(name, Way(save, ended), bytes)
            if kept:
                loads_the_same(training, engine, writer)
            writer.close()
            for version in older:
                engine.discard(version)


def loads_the_same(training: Training, engine: tierflow.Engine, writer: Any) -> None:
    expected = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    dcp.async_save(training.state(), storage_writer=writer).upload_completion.result()
    training.step(lambda: None)
    state = training.state()
    begun = time.perf_counter()
    dcp.load(state, storage_reader=tierflow.torch.StorageReader(engine))
    training.synchronize()
    print(f"    loaded in {time.perf_counter() - begun:.2f} s", flush=True)
    assert all(torch.equal(state["model"][name], tensor) for name, tensor in expected.items())


def others(rows: Rows, kind: str, directory: Callable[[], Any], has_shared_memory: bool) -> None:
    """Prints rows of PyTorch's own ways, with few saves, as each takes many seconds."""
    training = rows.training
    stager = DefaultStager(StagingOptions(use_shared_memory=has_shared_memory)) if kind == "pinned" else None
    saves = 0
    with directory() as path:

        def save() -> Any:
            nonlocal saves
            where = path / f"{saves}"
            where.mkdir()
            saves += 1
            match kind:
                case "torch.save":
                    return torch.save(training.state(), where / "state")
                case "dcp.save":
                    return dcp.save(training.state(), checkpoint_id=where)
            return dcp.async_save(training.state(), checkpoint_id=where, async_stager=stager)

        def ended(response: Any) -> None:
            ended = getattr(response, "upload_completion", response)
            if hasattr(ended, "result"):
                ended.result()

        def before_update(response: Any) -> None:
            # PyTorch copies in a thread, and does not keep an optimizer from changing the tensors meanwhile.
            if hasattr(response, "staging_completion"):
                response.staging_completion.result()

        def bytes() -> int:
            return sum(file.stat().st_size for file in (path / f"{saves - 1}").rglob("*") if file.is_file())

        text = "" if has_shared_memory else ", no shared memory"
        name = {"async": "dcp.async_save", "pinned": f"dcp.async_save, DefaultStager{text}"}.get(kind, kind)
        try:
            if stager is not None:
                # The stager pins memory at the first save.
                ended(save())
                shutil.rmtree(path / "0")
            rows.row(name, Way(save, ended, before_update), bytes, count=FEW_STEPS)
        # The stager of some versions of PyTorch fails at the second save; the other rows stand. DCP's errors are BaseExceptions.
        except (Exception, dcp.api.CheckpointException) as error:
            print(f"{name:<44} fails: {type(error).__name__}: {str(error)[:200]}", flush=True)
    if stager is not None:
        stager.close()


def roomiest() -> Path:
    """Returns a directory in main memory if that has room for two saves of 13.3 GB and a stager's shared memory, or else on the disk."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 45e9 else Path("/tmp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=roomiest(), help="where all but the engine write")
    parser.add_argument("--device", choices=["cuda", "host"], default="cuda")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--every", type=int, default=10, help="steps between two saves")
    parser.add_argument("--graphs", action="store_true", help="time copies that a CUDA graph makes, too")
    parser.add_argument("--seconds", type=float, default=300, help="what all rows take at most, a save more or less")
    parser.add_argument("--only", nargs="*", choices=KINDS, default=[kind for kind in KINDS if kind != "kept"])
    options = parser.parse_args()
    kinds = set(options.only) - ({"copy", "pinned"} if options.device == "host" else set())
    training = Training("cpu" if options.device == "host" else "cuda", options.width, options.depth, options.length)
    for _ in range(3):
        training.step(lambda: None)
    # A full collection of the interpreter's garbage takes 130 to 170 ms, and a save allocates enough to begin one. So trainings
    # freeze what they hold once they are set up; all rows have that alike.
    gc.collect()
    gc.freeze()
    tensors = training.tensors()
    size = sum(tensor.nbytes for tensor in tensors)
    device = "the processor" if options.device == "host" else torch.cuda.get_device_name()
    print(f"{device}, PyTorch {torch.__version__}, {size / 1e9:.1f} GB of state in {len(tensors)} tensors")
    print(
        f"its dictionary takes {1e3 * timeit(training.state, number=10) / 10:.1f} ms; other ways write to {options.directory}"
    )
    del tensors
    here = options.directory / "checkpoints-of-a-bench"

    @contextlib.contextmanager
    def directory() -> Iterator[Path]:
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        try:
            yield here
        finally:
            shutil.rmtree(here, ignore_errors=True)
            gc.collect()

    others_kinds = [kind for kind in ("torch.save", "dcp.save", "async", "pinned") if kind in kinds]
    count = (
        len(others_kinds) + ("copy" in kinds) * (1 + 2 * options.graphs) + 6 * ("tierflow" in kinds) + ("kept" in kinds)
    )
    rows = Rows(training, options.every, options.seconds, count)
    rows.begin()
    if "copy" in kinds:
        copies_within_the_gpu(rows, options.graphs)
        # The engine takes its memory from the driver.
        torch.cuda.empty_cache()
    # Of two versions, and what is staged besides.
    room = size + (64 << 20)
    # Bytes that the bus does not carry between a save and the update, and a fifth of what it does carry besides: it is not idle from end to end.
    buffer = 0 if options.device == "host" else max(0, size - round(0.8 * bytes_beside(training)))
    gpu = {} if options.device == "host" else {"device_cache": room}
    first, host = "tierflow, on the GPU first", "tierflow, in host memory"
    if "tierflow" in kinds:
        tierflow_rows(rows, [first] * 3, [0] * 3, None, **gpu, host_cache=2 * room)
        names = [f"{host}, buffer {buffer / 1e9:.1f} GB"] * 2 + [host]
        tierflow_rows(rows, names, [buffer, buffer, 0], None, host_cache=2 * room)
    if "kept" in kinds:
        with directory() as path:
            tierflow_rows(rows, [f"{first}, kept"], [0], path, **gpu, host_cache=2 * room)
    for kind in others_kinds:
        shared = Path("/dev/shm")
        others(rows, kind, directory, shared.is_dir() and shutil.disk_usage(shared).free > 1.2 * size)
    rows.end()


if __name__ == "__main__":
    main()
