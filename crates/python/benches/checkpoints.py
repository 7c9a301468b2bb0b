"""Checkpoints of a training on a GPU, by `torch.distributed.checkpoint`: what they block, and what they slow down.

python checkpoints.py --directory /dev/shm        # 13 GB of state
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


def report(
    name: str, training: Training, save: Callable[[], Any], wait: Callable[[Any], None], every: list[int]
) -> None:
    """`save` returns what `wait` waits for."""
    plain = statistics.median(timed(training.step) for _ in range(6))
    begun = time.perf_counter()
    first = save()
    blocked = [1e3 * (time.perf_counter() - begun)]
    wait(first)
    whole = 1e3 * (time.perf_counter() - begun)
    print(f"{name}: step {plain:.1f} ms; the first save blocks {blocked[0]:.0f} ms of {whole:.0f}", flush=True)
    if every:
        # Memory becomes fast in the background, once it is used: that of this one, and that of the next.
        for _ in range(3):
            wait(save())
            time.sleep(8)
    for interval in every:
        before, blocked, after, last = None, [], [], None
        begun = time.perf_counter()
        steps = 4 * interval
        for step in range(steps):
            if step % interval == 0:
                if last is not None:
                    wait(last)
                torch.cuda.synchronize()
                before = time.perf_counter()
                last = save()
                blocked.append(1e3 * (time.perf_counter() - before))
                after.append(timed(training.step))
            else:
                timed(training.step)
        whole = 1e3 * (time.perf_counter() - begun)
        wait(last)
        print(
            f"    every {interval}: blocks {statistics.median(blocked):.1f} ms, the steps after take {', '.join(f'{one:.1f}' for one in after)} ms, "
            f"{steps} steps take {100 * (whole / (steps * plain) - 1):+.1f}%",
            flush=True,
        )


def copied(training: Training, tensors: list[torch.Tensor]) -> None:
    """What a copy of the state within the GPU takes, and what one beside it adds to a step: the least that any way can reach that has
    the copy done by the time of the next update."""
    plain = statistics.median(timed(training.step) for _ in range(6))
    tensors = [tensor.detach() for tensor in tensors]
    copies = [torch.empty_like(tensor) for tensor in tensors]
    stream = torch.cuda.Stream()

    def copy() -> None:
        with torch.cuda.stream(stream), torch.no_grad():
            torch._foreach_copy_(copies, tensors)

    def both() -> None:
        copy()
        training.model.zero_grad()
        training.step()

    copy()
    alone = statistics.median(timed(copy) for _ in range(6))
    beside = statistics.median(timed(both) for _ in range(6))
    print(f"a copy within the GPU takes {alone:.1f} ms; a step {plain:.1f} ms, with one beside it {beside:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, default=Path("/tmp"))
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--only", nargs="*", default=["tierflow", "torch.save", "async", "pinned"])
    options = parser.parse_args()
    training = Training(options.width, options.depth, options.length)
    for _ in range(3):
        training.step()
    tensors = [
        tensor for tensor in torch.utils._pytree.tree_leaves(training.state()) if isinstance(tensor, torch.Tensor)
    ]
    size = sum(tensor.nbytes for tensor in tensors)
    print(
        f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {size / 1e9:.1f} GB of state in {len(tensors)} tensors"
    )
    print(f"its dictionary takes {1e3 * timeit(training.state, number=10) / 10:.1f} ms")
    copied(training, tensors)
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

    if "tierflow" in options.only:
        room = size + (64 << 20)
        for how, tiers, kept in (
            ("in host memory", {"host_cache": 2 * room}, False),
            ("on the GPU first", {"device_cache": room, "host_cache": 2 * room}, False),
            ("on the GPU first, eager", {"device_cache": room, "host_cache": 2 * room, "flush": "eager"}, False),
            ("kept", {"device_cache": room, "host_cache": 2 * room}, True),
        ):
            with directory() as path:
                lasting = {"external": path, "retention": 1} if kept else {"after_restore": "discard"}
                with tierflow.Engine(device="cuda", **tiers, **lasting) as engine:
                    writer = tierflow.torch.StorageWriter(engine)

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

                    report(f"tierflow, {how}", training, save, wait, [1, 10] if how == "in host memory" else [10])
                    if kept:
                        print(f"    on the disk after {timed(engine.wait):.0f} ms more", flush=True)
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
    if "torch.save" in options.only:
        with directory() as path:
            print(f"torch.save: {timed(lambda: torch.save(training.state(), path / 'state')):.0f} ms", flush=True)
    for name, stager in (("async", None), ("pinned", DefaultStager)):
        if name in options.only:
            with directory() as path:
                stages = stager() if stager else None

                def save(path: Path = path, stages: Any = stages) -> Any:
                    return dcp.async_save(training.state(), checkpoint_id=path / "state", async_stager=stages)

                def wait(response: Any) -> None:
                    getattr(response, "upload_completion", response).result()

                report(f"dcp.async_save, {name}", training, save, wait, [10] if stages else [])
                if stages:
                    stages.close()


if __name__ == "__main__":
    main()
