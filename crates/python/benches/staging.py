"""Measures the time that a checkpoint of `torch.distributed.checkpoint` spends in Python before its copies begin, and after that.

python staging.py                   # three tensors for each of 366 parameters, and an optimizer's step

The tensors are small and in main memory, so that copies take nearly no time. Times are medians in milliseconds.
"""

import argparse
import gc
import statistics
import time
import warnings
from typing import Any

import torch
from torch.distributed import checkpoint as dcp

import tierflow

warnings.filterwarnings("ignore")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=int, default=366)
    parser.add_argument("--saves", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=False) for _ in range(options.parameters))
    optimizer = torch.optim.AdamW(model.parameters())
    begun = 0.0
    launch: Any = torch._foreach_copy_

    def launched(*lists: Any) -> Any:
        nonlocal begun
        times["before the copies"][-1] = times["before the copies"][-1] or 1e3 * (time.perf_counter() - begun)
        return launch(*lists)

    torch._foreach_copy_ = launched
    times: dict[str, list[float]] = {"state": [], "before the copies": [], "staging": [], "call": []}
    collected = 0

    def collect(phase: str, _: Any) -> None:
        nonlocal collected
        collected += phase == "start"

    with tierflow.Engine(device="host", host_cache="64MiB", after_restore="discard") as engine:
        writer = tierflow.torch.StorageWriter(engine)
        stage = writer.stage

        def staged(state: Any) -> Any:
            nonlocal begun
            times["before the copies"].append(0.0)
            begun = time.perf_counter()
            result = stage(state)
            times["staging"].append(1e3 * (time.perf_counter() - begun))
            return result

        writer.stage = staged  # type: ignore[method-assign]
        for step in range(options.saves + 1):
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
            before = time.perf_counter()
            state = {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict()}
            between = time.perf_counter()
            gc.callbacks.append(collect)
            response = dcp.async_save(state, storage_writer=writer)
            gc.callbacks.remove(collect)
            times["call"].append(1e3 * (time.perf_counter() - between))
            times["state"].append(1e3 * (between - before))
            response.upload_completion.result()
            engine.discard(step)
        writer.close()
    count = len([leaf for leaf in torch.utils._pytree.tree_leaves(state) if isinstance(leaf, torch.Tensor)])
    print(f"{count} tensors, {options.saves} saves, {collected} collections of garbage in all calls")
    for name, all_times in times.items():
        print(f"{name:<20} first {all_times[0]:6.2f}, later {statistics.median(all_times[1:]):6.2f}")


if __name__ == "__main__":
    main()
