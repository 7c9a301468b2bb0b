"""Checkpoints of a training on a GPU, by `torch.distributed.checkpoint`: what they block, and what they slow down.

python checkpoints.py --directory /dev/shm        # 13 GB of state, saved each tenth step of 100
python checkpoints.py --seconds 240               # all rows within so many seconds

Every step ends with `torch.cuda.synchronize()`, and its time is that from the end of the step before to its own, so that nothing that a save does
hides between two measurements. "plain" is the median of steps without saves, measured before each row and after it.
"""

import argparse
import contextlib
import gc
import shutil
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from timeit import timeit
from typing import Any

import torch
from offload import Model
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager

import tierflow

STEPS = 100

warnings.filterwarnings("ignore", message="torch.distributed is")


class Training:
    def __init__(self, width: int, depth: int, length: int) -> None:
        torch.manual_seed(0)
        self.model = Model(width, depth, 32000).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        self.tokens = torch.randint(32000, (1, length), device="cuda")

    def step(self) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.model(self.tokens)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict[str, Any]:
        # DCP's own stager cannot copy the dictionary's subclass that a model returns.
        return {"model": dict(self.model.state_dict()), "optimizer": self.optimizer.state_dict()}


def timed(call: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun)


def steps_of(training: Training, count: int, save: Callable[[int], None], end: float) -> list[float]:
    """Milliseconds from the end of each step to that of the next, for so many steps or until `end`."""
    torch.cuda.synchronize()
    times, before = [], time.perf_counter()
    for step in range(count):
        save(step)
        training.step()
        torch.cuda.synchronize()
        now = time.perf_counter()
        times.append(1e3 * (now - before))
        before = now
        if now > end:
            break
    return times


def report(
    name: str,
    training: Training,
    save: Callable[[], Any],
    wait: Callable[[Any], None],
    every: int,
    end: float,
    warm: int,
) -> None:
    """Prints a row of the table. `save` returns what `wait` waits for; `warm` saves come first, as memory becomes fast in the background,
    once it is used."""
    last: Any = None
    blocked: list[float] = []

    def each(step: int) -> None:
        nonlocal last
        if step % every == 0:
            begun = time.perf_counter()
            if last is not None:
                wait(last)
            last = save()
            blocked.append(1e3 * (time.perf_counter() - begun))

    for _ in range(warm):
        wait(save())
        time.sleep(3)
    # A row takes a third of its time for steps without saves at most.
    before = steps_of(training, 20, lambda _: None, end)
    times = steps_of(training, STEPS, each, end)
    if last is not None:
        wait(last)
    plain = statistics.median(before + steps_of(training, 20, lambda _: None, time.perf_counter() + 10))
    wall = 100 * (sum(times) / (len(times) * plain) - 1)
    print(
        f"{name:<36} {plain:>8.1f} {len(times):>6} {len(blocked):>6} {statistics.median(blocked):>9.1f} {wall:>+8.1f} {max(times) / plain:>7.2f}",
        flush=True,
    )
    slowest = sorted(range(len(times)), key=times.__getitem__)[-5:]
    told = (f"{step}: {times[step]:.0f} ms{' (a save)' if step % every == 0 else ''}" for step in sorted(slowest))
    print(f"    slowest steps {', '.join(told)}", flush=True)


def copied(training: Training, tensors: list[torch.Tensor], graphs: bool) -> None:
    """What a copy of the state within the GPU takes, and what one beside it adds to a step: the least that any way can reach that has
    the copy done by the time of the next update. With `graphs`, of copies that one launch begins, by kernels and by the driver's copies."""
    tensors = [tensor.detach() for tensor in tensors]
    copies = [torch.empty_like(tensor) for tensor in tensors]

    def by_kernels() -> None:
        torch._foreach_copy_(copies, tensors)

    def by_the_driver() -> None:
        for copy, tensor in zip(copies, tensors, strict=True):
            copy.copy_(tensor, non_blocking=True)

    beside(training, "a copy within the GPU", by_kernels)
    for name, copy in (("kernels", by_kernels), ("the driver's copies", by_the_driver)) if graphs else ():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            copy()
        beside(training, f"one by a graph of {name}", graph.replay)


def beside(training: Training, name: str, launch: Callable[[], None]) -> None:
    plain = statistics.median(timed(training.step) for _ in range(6))
    stream = torch.cuda.Stream()

    def copy() -> None:
        with torch.cuda.stream(stream), torch.no_grad():
            launch()

    def both() -> None:
        copy()
        training.model.zero_grad()
        training.step()

    copy()
    alone = statistics.median(timed(copy) for _ in range(6))
    together = statistics.median(timed(both) for _ in range(6))
    print(f"{name} takes {alone:.1f} ms; a step {plain:.1f} ms, with one beside it {together:.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=Path("/tmp"))
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--every", type=int, default=10, help="steps between two saves")
    parser.add_argument("--graphs", action="store_true", help="time copies that a CUDA graph makes, too")
    parser.add_argument("--seconds", type=float, default=900, help="what all rows take at most")
    parser.add_argument("--only", nargs="*", default=["tierflow", "kept", "torch.save", "dcp.save", "async", "pinned"])
    options = parser.parse_args()
    training = Training(options.width, options.depth, options.length)
    for _ in range(3):
        training.step()
    # A full collection of the interpreter's garbage takes 130 to 170 ms, and a save allocates enough to begin one. So trainings
    # freeze what they hold once they are set up; all rows have that alike.
    gc.collect()
    gc.freeze()
    tensors = [
        tensor for tensor in torch.utils._pytree.tree_leaves(training.state()) if isinstance(tensor, torch.Tensor)
    ]
    size = sum(tensor.nbytes for tensor in tensors)
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {size / 1e9:.1f} GB of state in {len(tensors)} tensors"
    )
    print(f"its dictionary takes {1e3 * timeit(training.state, number=10) / 10:.1f} ms")
    copied(training, tensors, options.graphs)
    here = options.directory / "checkpoints-of-a-bench"

    @contextlib.contextmanager
    def directory() -> Any:
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        try:
            yield here
        finally:
            shutil.rmtree(here, ignore_errors=True)
            gc.collect()

    rows = len(options.only) + 2 * ("tierflow" in options.only)
    began, begun_rows = time.perf_counter(), 0

    def end() -> float:
        """When the row that begins now has to end: rows that come later have their share of what is left."""
        nonlocal begun_rows
        begun_rows += 1
        now = time.perf_counter()
        return now + max(0.0, began + options.seconds - now) / (rows - begun_rows + 1)

    print(f"{'':<36} {'plain ms':>8} {'steps':>6} {'saves':>6} {'blocks ms':>9} {'wall %':>8} {'worst x':>7}")
    room = size + (64 << 20)
    # Bytes that the bus does not carry in a step.
    buffer = size * 3 // 8
    for how, only, tiers, staging_buffer in (
        ("tierflow, on the GPU first", "tierflow", {"device_cache": room, "host_cache": 2 * room}, 0),
        (f"tierflow, in host memory, buffer {buffer / 1e9:.1f} GB", "tierflow", {"host_cache": 2 * room}, buffer),
        ("tierflow, in host memory", "tierflow", {"host_cache": 2 * room}, 0),
        ("tierflow, on the GPU first, kept", "kept", {"device_cache": room, "host_cache": 2 * room}, 0),
    ):
        if only not in options.only:
            continue
        kept = only == "kept"
        with directory() as path:
            lasting = {"external": path, "retention": 1} if kept else {"after_restore": "discard"}
            with tierflow.Engine(device="cuda", **tiers, **lasting) as engine:
                writer = tierflow.torch.StorageWriter(engine, staging_buffer=staging_buffer)

                def save(writer: Any = writer) -> Any:
                    return dcp.async_save(training.state(), storage_writer=writer)

                # In memory alone the last one stays until the next one is whole.
                older: list[int] = []

                def wait(
                    response: Any, engine: Any = engine, writer: Any = writer, kept: bool = kept, older: Any = older
                ) -> None:
                    response.upload_completion.result()
                    if not kept:
                        for version in older:
                            engine.discard(version)
                        older[:] = [writer.version]

                report(how, training, save, wait, options.every, end(), warm=3)
                if kept:
                    expected = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
                    wait(save())
                    training.step()
                    state = training.state()
                    begun = time.perf_counter()
                    dcp.load(state, storage_reader=tierflow.torch.StorageReader(engine))
                    torch.cuda.synchronize()
                    print(f"    loaded in {time.perf_counter() - begun:.2f} s", flush=True)
                    assert all(torch.equal(state["model"][name], tensor) for name, tensor in expected.items())
                    del state, expected
                writer.close()
    stager = DefaultStager() if "pinned" in options.only else None
    for name, only, call in (
        ("torch.save", "torch.save", lambda path: torch.save(training.state(), path / "state")),
        ("dcp.save", "dcp.save", lambda path: dcp.save(training.state(), checkpoint_id=path / "state")),
        ("dcp.async_save", "async", lambda path: dcp.async_save(training.state(), checkpoint_id=path / "state")),
        (
            "dcp.async_save, DefaultStager",
            "pinned",
            lambda path: dcp.async_save(training.state(), checkpoint_id=path / "state", async_stager=stager),
        ),
    ):
        if only in options.only:
            with directory() as path:

                def save(path: Path = path, call: Any = call) -> Any:
                    return call(path)

                def wait(response: Any) -> None:
                    ended = getattr(response, "upload_completion", response)
                    if hasattr(ended, "result"):
                        ended.result()

                try:
                    report(name, training, save, wait, options.every, end(), warm=int(only == "pinned"))
                # The stager of some versions of PyTorch fails at the second save; the other rows stand. DCP's errors are BaseExceptions.
                except (Exception, dcp.api.CheckpointException) as error:
                    print(f"{name:<36} fails: {type(error).__name__}: {str(error)[:200]}", flush=True)
    if stager is not None:
        stager.close()


if __name__ == "__main__":
    main()
