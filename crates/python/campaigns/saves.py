"""Saves a state many times by each door: resident memory, descriptors and threads do not grow, and host memory has a cap that holds.

`python saves.py` runs each door in a process of its own. `TIERFLOW_SAVES` is the number of saves of each (1 000), `TIERFLOW_DOORS` names doors of numpy,
torch, dcp, lightning, transformers and jax; all that there are.

The state has 16 MB, the host cache 512 MiB, and the directory keeps 96 versions, so that the cache is full. A save follows the one before at once, and each
tenth is waited for. Then resident memory, descriptors and threads are looked at; a slope is that of the least-squares line through the last two
thirds, times all saves. The peak is the most memory that the process had beyond the state and what it had before the engine
was built (`VmHWM`, which the kernel counts), and the cap is that of `host_cache` and 5%, into which the buffers of writes fit: 4 MiB for each core, up to 16.
"""

import gc
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tierflow

FRAMEWORKS = {"numpy": "numpy", "torch": "torch", "dcp": "torch", "lightning": "lightning"}
FRAMEWORKS |= {"transformers": "transformers", "jax": "jax"}
CAP = 512 << 20
ELEMENTS = 2_000_000
STATE = 8 * ELEMENTS
EVERY = 10
# The largest slope over all saves that passes.
GROWTH = 1 << 20


def status(word: str) -> int:
    """Bytes of this process, as the kernel counts them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(word):
            return int(line.split()[1]) << 10
    raise KeyError(word)


def saver(door: str, engine: tierflow.Engine, folder: Path) -> Callable[[int], Any]:
    """Returns a function that saves the state after a step."""
    if door == "numpy":
        field = np.ones(ELEMENTS)

        def save(step: int) -> None:
            field[:] = step
            engine.save(engine.next_version, {"field": field, "step": step})

        return save
    if door == "jax":
        import jax.numpy as jnp

        checkpointer = tierflow.jax.AsyncCheckpointer(engine, every=1, raises=True)
        state = {"field": jnp.zeros(2 * ELEMENTS, "float32")}
        return lambda step: checkpointer.step(step, state)
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(1000, 4000, bias=False)
    if door == "torch":
        of_torch = tierflow.torch.AsyncCheckpointer(engine, every=1, raises=True, model=model)
        return of_torch.step
    if door == "dcp":
        import torch.distributed.checkpoint as dcp

        writer = tierflow.torch.StorageWriter(engine)
        return lambda step: dcp.save({"model": model.state_dict(), "step": step}, storage_writer=writer)
    if door == "lightning":
        io = tierflow.lightning.TierflowIO(engine, raises=True)

        def to_path(step: int) -> None:
            io.save_checkpoint({"model": model.state_dict(), "step": step}, folder / f"{step}.ckpt")
            if step:
                io.remove_checkpoint(folder / f"{step - 1}.ckpt")

        return to_path
    from transformers import TrainerControl, TrainerState, TrainingArguments

    callback = tierflow.transformers.TierflowCallback(engine, every=1, raises=True)
    arguments = TrainingArguments(str(folder), use_cpu=True, report_to=[])
    optimizer = torch.optim.SGD(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    given = {"model": model, "optimizer": optimizer, "lr_scheduler": scheduler}
    return lambda step: callback.on_step_end(arguments, TrainerState(global_step=step + 1), TrainerControl(), **given)


def run(door: str, saves: int) -> list[str]:
    """Returns what grew."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    samples = []
    with tempfile.TemporaryDirectory(prefix="tierflow-") as name:
        folder = Path(name)
        # A first save takes memory for the framework's own modules.
        with tierflow.Engine(device="host", host_cache="32MiB", external=folder / "first") as engine:
            save = saver(door, engine, folder / "first-files")
            save(0)
            engine.wait()
        del save, engine
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        with tierflow.Engine(device="host", host_cache=CAP, external=folder / "kept", retention=96) as engine:
            save = saver(door, engine, folder)
            for step in range(saves):
                save(step)
                if step % EVERY == EVERY - 1:
                    engine.wait()
                    descriptors, threads = (len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task"))
                    samples.append((status("VmRSS"), descriptors, threads))
            # The state is the training's, and is made anew for this engine.
            peak = status("VmHWM") - before - STATE
            used = engine.metrics()["tiers"][0]["peak"]
    part = samples[len(samples) // 3 :]
    at = np.arange(len(part))
    slopes = [float(np.polyfit(at, [sample[what] for sample in part], 1)[0]) * len(samples) for what in range(3)]
    files, tasks = ([sample[what] for sample in part] for what in (1, 2))
    print(
        f"{door}: {saves} saves of 16 MB, resident {samples[0][0] >> 10} to {samples[-1][0] >> 10} KiB, slope {slopes[0] / 2**20:+.3f} MiB, "
        f"descriptors {min(files)} to {max(files)}, slope {slopes[1]:+.2f}, threads {min(tasks)} to {max(tasks)}, slope {slopes[2]:+.2f}, "
        f"peak {peak / 2**20:.1f} MiB beyond the start, cache {used / 2**20:.1f} of {CAP >> 20} MiB"
    )
    found = []
    if saves >= 300 and abs(slopes[0]) > GROWTH:
        found.append(f"{door}: memory grows by {slopes[0] / 2**20:.2f} MiB")
    # Threads and files that are there for a moment do not count, what stays does.
    if min(files[-10:]) > min(files) + 1 or min(tasks[-10:]) > min(tasks) + 1:
        found.append(f"{door}: descriptors or threads grow")
    if used > CAP or peak > CAP * 1.05:
        found.append(
            f"{door}: {peak / 2**20:.1f} MiB beyond the start, {used / 2**20:.1f} in the cache, of {CAP >> 20} MiB"
        )
    return found


def main() -> int:
    saves = int(os.environ.get("TIERFLOW_SAVES", 1_000))
    asked = os.environ.get("TIERFLOW_DOORS")
    doors = [door for door in FRAMEWORKS if importlib.util.find_spec(FRAMEWORKS[door])]
    failed = False
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    for door in asked.split(",") if asked else doors:
        command = [sys.executable, "-W", "ignore", __file__, door, str(saves)]
        failed |= subprocess.run(command, env=environment, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        grown = run(sys.argv[1], int(sys.argv[2]))
        for text in grown:
            print("GROWN", text)
        sys.exit(1 if grown else 0)
    sys.exit(main())
