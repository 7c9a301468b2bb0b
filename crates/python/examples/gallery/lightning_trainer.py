"""Lightning's checkpoints in an engine."""

import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel

import tierflow
from tierflow.lightning import TierflowIO

torch.manual_seed(0)
with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1]) as engine:
    io = TierflowIO(engine)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=2, limit_train_batches=4, limit_val_batches=0, logger=False,
        plugins=[io], callbacks=[ModelCheckpoint(sys.argv[1])], enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(BoringModel(), ckpt_path=io.newest())
    print(io.newest())
