"""A training by Hugging Face's Trainer that is saved to an engine, and continues after a kill with the same results.

python resume_transformers.py --directory /tmp/training --kill-at 17
python resume_transformers.py --directory /tmp/training
"""

import argparse
import hashlib
import os
import signal
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

import tierflow

warnings.filterwarnings("ignore")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.1), nn.Tanh(), nn.Linear(64, 16))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": (self.layers(x) - x.sin()).square().mean()}


class Kill(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == options.kill_at:
            engine.wait()
            os.kill(os.getpid(), signal.SIGKILL)


parser = argparse.ArgumentParser()
parser.add_argument("--directory", type=Path, required=True)
parser.add_argument("--kill-at", type=int)
options = parser.parse_args()
options.directory.mkdir(exist_ok=True)

torch.manual_seed(0)
data = [{"x": torch.randn(16)} for _ in range(320)]
with (
    tempfile.TemporaryDirectory() as scratch,
    tierflow.Engine(device="host", host_cache="64MiB", external=options.directory, retention=3) as engine,
):
    callback = tierflow.transformers.TierflowCallback(engine, every=5)
    arguments = TrainingArguments(
        scratch,
        max_steps=30,
        per_device_train_batch_size=32,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    net = Net()
    trainer = Trainer(net, arguments, train_dataset=data, callbacks=[callback, Kill()])
    begun = callback.checkpoint()
    print(f"begins from {begun}")
    trainer.train(resume_from_checkpoint=begun)
bits = b"".join(value.numpy().tobytes() for value in net.state_dict().values())
print("weights", hashlib.sha256(bits).hexdigest())
