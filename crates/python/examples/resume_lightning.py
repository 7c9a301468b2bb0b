"""A training by Lightning whose checkpoints are versions of an engine. The training continues after a kill with the same results.

python resume_lightning.py --directory /tmp/training --kill-at 17
python resume_lightning.py --directory /tmp/training
"""

import argparse
import hashlib
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader

import tierflow

warnings.filterwarnings("ignore")


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 16))

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return (self.layers(batch) - batch.sin()).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


class Kill(Callback):
    def __init__(self, engine: tierflow.Engine, step: int | None) -> None:
        self.engine = engine
        self.step = step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            self.engine.wait()
            os.kill(os.getpid(), signal.SIGKILL)


parser = argparse.ArgumentParser()
parser.add_argument("--directory", type=Path, required=True)
parser.add_argument("--kill-at", type=int)
options = parser.parse_args()
options.directory.mkdir(exist_ok=True)

lightning.seed_everything(0, verbose=False)
# An epoch has 10 batches. Lightning restarts an interrupted epoch, so checkpoints are taken at the ends of epochs.
data = DataLoader(torch.randn(320, 16), batch_size=32)
with tierflow.Engine(device="host", host_cache="64MiB", external=options.directory) as engine:
    io = tierflow.lightning.TierflowIO(engine)
    saving = ModelCheckpoint(options.directory / "checkpoints", every_n_epochs=1, save_top_k=-1)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=3, logger=False, enable_progress_bar=False, enable_model_summary=False,
        plugins=[io], callbacks=[saving, Kill(engine, options.kill_at)],
    )  # fmt: skip
    net = Net()
    print(f"begins from {io.newest()}")
    trainer.fit(net, data, ckpt_path=io.newest())
bits = b"".join(value.numpy().tobytes() for value in net.state_dict().values())
print("weights", hashlib.sha256(bits).hexdigest())
