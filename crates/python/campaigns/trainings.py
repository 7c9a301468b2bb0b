"""The trainings that `kills.py` kills: one for each door, each the same bits whenever it runs without an interruption.

A training reports lines through a pipe: `offered V`, the newest version that the engine offers at the start; `loaded STEPS`, the number of steps
that the state it loaded had seen; `step N HASH`, after N steps; `saved V N`, the version that has the state after N steps; `durable V`;
`warned TEXT` and `left TEXT`, what was logged, and what kept the training from going on.
"""

import contextlib
import hashlib
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tierflow

STEPS = 60
# Steps between two saves.
EVERY = 2
FRAMEWORKS = {"dcp": "torch", "lightning": "lightning", "transformers": "transformers", "jax": "jax"}
# Which numbers of ranks a door is run with; of JAX, of devices in one process.
RANKS = {"dcp": (1, 2, 3, 4), "lightning": (1, 2), "transformers": (1,), "jax": (1, 2, 4)}


@dataclass
class Start:
    """One start of a training, of one rank."""

    home: Path
    external: str
    number: int
    rank: int
    ranks: int
    pipe: int
    waits: int
    told: set[int] = field(default_factory=set)
    saved: int = -1

    def report(self, *words: object) -> None:
        os.write(self.pipe, (" ".join(map(str, words)).replace("\n", " ") + "\n").encode())

    def engine(self, **options: Any) -> tierflow.Engine:
        engine = tierflow.Engine(device="host", host_cache="64MiB", external=self.external, retention=3, **options)
        newest = engine.latest()
        self.saved = -1 if newest is None else newest
        self.report("offered", self.saved)
        return engine

    def step(self, number: int, state: Iterable[Any]) -> None:
        """Reports the state after so many steps."""
        digest = hashlib.sha256()
        for array in state:
            digest.update(memoryview(array).cast("B"))
        self.report("step", number, digest.hexdigest()[:16])

    def look(self, engine: tierflow.Engine, number: int) -> None:
        """Reports what was saved after so many steps, and what is durable by now."""
        newest = engine.latest()
        if newest is not None and newest > self.saved:
            self.saved = newest
            self.report("saved", newest, number)
            if self.waits and newest % self.waits == 0:
                # The store may be killed while this waits.
                with contextlib.suppress(tierflow.StorageError):
                    engine.wait_version(newest)
        for version in engine.versions():
            if version not in self.told and engine.is_durable(version):
                self.told.add(version)
                self.report("durable", version)


class _Reports(logging.Handler):
    def __init__(self, start: Start) -> None:
        super().__init__(logging.WARNING)
        self.start = start

    def emit(self, record: logging.LogRecord) -> None:
        self.start.report("warned", record.getMessage())


def bytes_of(tensors: Iterable[Any]) -> Iterable[Any]:
    return (tensor.detach().contiguous().numpy().reshape(-1) for tensor in tensors)


def by_dcp(start: Start) -> None:
    """Data-parallel ranks of gloo, and a table of which each has rows. Every other start saves beside the steps."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    meeting = f"file://{start.home}/meeting-{start.number}"
    dist.init_process_group(
        "gloo", init_method=meeting, rank=start.rank, world_size=start.ranks, timeout=timedelta(hours=1)
    )
    savers = dist.new_group(backend="gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    table = distribute_tensor(torch.randn(50, 40), init_device_mesh("cpu", (start.ranks,)), [Shard(0)])
    group = {"rank": start.rank, "ranks": start.ranks, "run": start.number} if start.ranks > 1 else {}
    with start.engine(**group) as engine:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "table": table, "steps": 0}
        if tierflow.torch.load_latest(engine, state) is not None:
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        first = state["steps"]
        start.report("loaded", first)
        writer, response = tierflow.torch.StorageWriter(engine), None
        for step in range(first, STEPS):
            batch = torch.randn(16, 64, generator=torch.Generator().manual_seed(step * start.ranks + start.rank))
            optimizer.zero_grad()
            (model(batch) - batch.sin()).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            table.to_local().mul_(0.9).add_(model[0].weight.detach().mean())
            start.step(step + 1, bytes_of([*model.parameters(), table.to_local()]))
            if (step + 1) % EVERY == 0:
                weights, moments = get_state_dict(model, optimizer)
                state = {"model": weights, "optimizer": moments, "table": table, "steps": step + 1}
                if start.number % 2:
                    dcp.save(state, storage_writer=writer)
                else:
                    response = dcp.async_save(state, storage_writer=writer, process_group=savers)
                    response.staging_completion.result()
                    response.upload_completion.result()
            start.look(engine, step + 1)
        writer.close()
        dist.barrier()
    dist.destroy_process_group()


def by_lightning(start: Start) -> None:
    """One or two ranks, of which the first saves at the end of each epoch, and removes the checkpoint before."""
    import lightning
    import torch
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint
    from lightning.pytorch.strategies import DDPStrategy

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return (self.layers(batch) - batch.sin()).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    class Reporting(Callback):
        def on_train_start(self, trainer: Any, _: Any) -> None:
            start.report("loaded", trainer.global_step)

        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            if engine is not None:
                start.look(engine, trainer.global_step)

        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            start.step(trainer.global_step, bytes_of(module.parameters()))

    if start.ranks > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port(start)), "NODE_RANK": "0"}
        os.environ |= {"LOCAL_RANK": str(start.rank), "WORLD_SIZE": str(start.ranks), "RANK": str(start.rank)}
    lightning.seed_everything(0, verbose=False)
    data = torch.utils.data.DataLoader(torch.randn(32 * EVERY, 64), batch_size=32 // start.ranks)
    engine = start.engine() if start.rank == 0 else None
    io = tierflow.lightning.TierflowIO(start.external if engine is None else engine)
    newest = io.newest()
    # All ranks have seen the newest checkpoint before the first saves another.
    if start.ranks > 1:
        (start.home / f"seen-{start.number}-{start.rank}").touch()
        while len(list(start.home.glob(f"seen-{start.number}-*"))) < start.ranks:
            time.sleep(0.01)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=start.ranks, max_epochs=STEPS // EVERY, logger=False, enable_progress_bar=False,
        strategy=DDPStrategy(process_group_backend="gloo") if start.ranks > 1 else "auto", enable_model_summary=False,
        plugins=[io], callbacks=[ModelCheckpoint(start.home / "checkpoints", every_n_epochs=1), Reporting()],
    )  # fmt: skip
    trainer.fit(Net(), data, ckpt_path=newest)
    if engine is not None:
        engine.close()


def port(start: Start) -> int:
    """A free port, which rank 0 finds and the others read."""
    import socket

    file = start.home / f"port-{start.number}"
    if start.rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            part = file.with_suffix(".part")
            part.write_text(str(free.getsockname()[1]))
        part.rename(file)
    while not file.exists():
        time.sleep(0.01)
    return int(file.read_text())


def by_transformers(start: Start) -> None:
    """The Trainer, with dropout and shuffled data."""
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(64, 256), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(256, 64)
            )

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (self.layers(x) - x.sin()).square().mean()}

    class Reporting(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            start.report("loaded", state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            start.step(state.global_step, bytes_of(given["model"].parameters()))
            start.look(engine, state.global_step)

    torch.manual_seed(0)
    data = [{"x": torch.randn(64)} for _ in range(160)]
    with start.engine() as engine:
        callback = tierflow.transformers.TierflowCallback(engine, every=EVERY)
        arguments = TrainingArguments(
            str(start.home / "trainer"), max_steps=STEPS, per_device_train_batch_size=16, use_cpu=True,
            save_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(Net(), arguments, train_dataset=data, callbacks=[callback, Reporting()])
        trainer.train(resume_from_checkpoint=callback.checkpoint())


def by_jax(start: Start) -> None:
    """Weights with rows on several devices of the process."""
    # Programs that run for so few steps are compiled fast.
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={start.ranks}"
    import jax
    import jax.numpy as jnp
    import numpy as np

    rows = jax.NamedSharding(jax.make_mesh((start.ranks,), ("x",)), jax.P("x"))

    @jax.jit
    def update(state: dict[str, Any]) -> dict[str, Any]:
        key, drawn = jax.random.split(state["key"])
        x = jax.random.normal(drawn, (16, 64))
        gradient = jax.grad(lambda w: jnp.square(jnp.tanh(x @ w[0]) @ w[1] - jnp.sin(x)).mean())(state["weights"])
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradient)
        weights = jax.tree.map(lambda w, m: w - 0.1 * m, state["weights"], momentum)
        return {"weights": weights, "momentum": momentum, "key": key}

    draw = np.random.default_rng(0)
    weights, momentum = (
        [jax.device_put(scale * draw.standard_normal(shape, "f4"), rows) for shape in ((64, 256), (256, 64))]
        for scale in (np.float32(0.1), np.float32(0))
    )
    state = {"weights": weights, "momentum": momentum, "key": jax.random.key(7)}
    with start.engine() as engine:
        checkpointer = tierflow.jax.AsyncCheckpointer(engine, every=EVERY)
        first, state = checkpointer.resume(state)
        start.report("loaded", first)
        for step in range(first, STEPS):
            state = update(state)
            start.step(step + 1, [np.asarray(w) for w in state["weights"]])
            checkpointer.step(step, state)
            start.look(engine, step + 1)


DOORS: dict[str, Callable[[Start], None]] = {
    "dcp": by_dcp,
    "lightning": by_lightning,
    "transformers": by_transformers,
    "jax": by_jax,
}


def imports(door: str) -> None:
    """Imports what the door's training does, so that a fork needs no time for it."""
    warnings.filterwarnings("ignore")
    if door == "jax":
        import jax  # noqa: F401

        tierflow.jax  # noqa: B018
        return
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.tensor

    tierflow.torch  # noqa: B018
    # The first optimizer imports torch._dynamo, which takes longer than all else that a start does.
    torch.optim.AdamW(torch.nn.Linear(1, 1).parameters())
    if door == "lightning":
        from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: F401

        tierflow.lightning  # noqa: B018
    elif door == "transformers":
        from transformers import Trainer  # noqa: F401

        tierflow.transformers  # noqa: B018


def run(door: str, start: Start) -> None:
    """Runs the training to its end. A rank that cannot go on, as another died, says so and waits until it is killed."""
    logging.getLogger("tierflow").addHandler(_Reports(start))
    if door != "jax":
        import torch

        torch.set_num_threads(1)
    try:
        DOORS[door](start)
    # DCP's CheckpointException is a BaseException alone.
    except BaseException as error:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        start.report("left", f"{type(error).__name__}: {error}"[:300])
        time.sleep(1000)
    start.report("ended")
