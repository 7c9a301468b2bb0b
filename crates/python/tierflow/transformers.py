"""Checkpoints of Hugging Face's Trainer as versions of an engine.

callback = tierflow.transformers.TierflowCallback(engine, every=100)
trainer = Trainer(model, TrainingArguments(..., save_strategy="no"), train_dataset=data, callbacks=[callback])
trainer.train(resume_from_checkpoint=callback.checkpoint())
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ModuleNotFoundError as _missing:
    _text = "tierflow.transformers needs Transformers: pip install transformers accelerate"
    raise ModuleNotFoundError(_text, name="transformers") from _missing

from ._attempts import PeriodicAttempts
from ._engine import Engine
from .torch._training import random_state

__all__ = ["TierflowCallback"]

# The Trainer's names for the files of a checkpoint.
_FILES = {
    "model": "pytorch_model.bin",
    "optimizer": "optimizer.pt",
    "scheduler": "scheduler.pt",
    "random": "rng_state.pth",
}


class TierflowCallback(PeriodicAttempts, TrainerCallback):
    """Saves the state of a Trainer of one process to `engine` each `every` steps: weights, optimizer, scheduler, random generators and the
    Trainer's own state.

    A save returns when the engine has copied the state. One that fails does not end the training: it is logged, `failures` counts it,
    `failure` is its error, and the states that were saved before stay. With `raises` it is raised. So ends a save that waits for room for
    `timeout` seconds.
    """

    def __init__(self, engine: Engine, *, every: int, raises: bool = False, timeout: float | None = 60.0) -> None:
        super().__init__(engine, every, timeout, raises)
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        if state.global_step % self._every:
            return
        if args.world_size > 1:
            raise ValueError(
                "TierflowCallback is for one process: save several by torch.distributed.checkpoint with StorageWriter"
            )

        def save() -> None:
            tree = {
                "model": given["model"].state_dict(),
                "optimizer": given["optimizer"].state_dict(),
                "scheduler": given["lr_scheduler"].state_dict(),
                "random": random_state(),
                "trainer": _text_of(state),
            }
            self._engine.save(self._engine.reserve(1).start, tree, timeout=self._timeout)

        self._attempt(f"step {state.global_step} is not saved", save)

    def checkpoint(self) -> str | None:
        """A folder for `resume_from_checkpoint=`, with the newest state that can be loaded; None if there is none yet. It goes with the
        callback."""
        found = self._engine.load_latest()
        if found is None:
            return None
        _, tree = found
        tree["random"] = {**tree["random"], "cuda": _one(tree["random"].get("cuda"))}
        self._folder = tempfile.TemporaryDirectory(prefix="tierflow-")
        folder = Path(self._folder.name) / f"checkpoint-{json.loads(tree['trainer'])['global_step']}"
        folder.mkdir()
        for name, file in _FILES.items():
            torch.save(tree[name], folder / file)
        (folder / "trainer_state.json").write_text(tree["trainer"])
        return str(folder)


def _one(states: list[torch.Tensor] | None) -> Any:
    """The state of the generator of the Trainer's only GPU."""
    return states[0] if states else None


def _text_of(state: TrainerState) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trainer_state.json"
        state.save_to_json(str(file))
        return file.read_text()
