"""Checkpoints of Hugging Face's Trainer as versions of an engine.

callback = tierflow.transformers.TierflowCallback(engine, every=100)
trainer = Trainer(model, TrainingArguments(..., save_strategy="no"), train_dataset=data, callbacks=[callback])
trainer.train(resume_from_checkpoint=callback.checkpoint())
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ModuleNotFoundError as _missing:
    _text = "tierflow.transformers needs Transformers: pip install transformers accelerate"
    raise ModuleNotFoundError(_text, name="transformers") from _missing

from ._attempts import PeriodicAttempts
from .torch._training import random_state, states_of

__all__ = ["TierflowCallback"]

# The Trainer's names for the files of a checkpoint.
_FILES = dict(model="pytorch_model.bin", optimizer="optimizer.pt", scheduler="scheduler.pt", random="rng_state.pth")


class TierflowCallback(PeriodicAttempts, TrainerCallback):
    """Saves the state of a Trainer of one process to `engine` every `every` steps: weights, optimizer, scheduler, random generators and the
    Trainer's own state.

    A save returns when the engine has copied the state. A save that fails, or that waits for room for longer than `timeout` seconds, does not
    end the training: it is logged, `failures` counts it, and `failure` is its error. With `raises` it is raised.
    """

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        step = state.global_step
        if step % self._every:
            return
        if args.world_size > 1:
            raise ValueError("TierflowCallback is for one process: save several by dcp.save with StorageWriter")
        parts = {"model": given["model"], "optimizer": given["optimizer"], "scheduler": given["lr_scheduler"]}
        self._save(step, lambda: states_of(parts) | {"random": random_state(), "trainer": json.dumps(asdict(state))})

    def checkpoint(self) -> str | None:
        """Returns a folder for `resume_from_checkpoint=`, with the newest state that can be loaded; None if there is no state yet. The folder is
        deleted with the callback."""
        found = self._engine.load_latest()
        if found is None:
            return None
        _, tree = found
        # The Trainer expects a single state: that of the generator of its only GPU.
        tree["random"]["cuda"] = next(iter(tree["random"].get("cuda", ())), None)
        self._folder = tempfile.TemporaryDirectory(prefix="tierflow-")
        folder = Path(self._folder.name) / f"checkpoint-{json.loads(tree['trainer'])['global_step']}"
        folder.mkdir()
        for name, file in _FILES.items():
            torch.save(tree[name], folder / file)
        (folder / "trainer_state.json").write_text(tree["trainer"])
        return str(folder)
