"""A training loop of PyTorch that is saved every few steps, and continues after a kill with the same results.

python resume_torch.py --directory /tmp/training --kill-at 17
python resume_torch.py --directory /tmp/training
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path

import torch
from torch import nn

import tierflow

parser = argparse.ArgumentParser()
parser.add_argument("--directory", type=Path, required=True)
parser.add_argument("--kill-at", type=int)
options = parser.parse_args()
options.directory.mkdir(exist_ok=True)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.1), nn.Tanh(), nn.Linear(64, 16))
optimizer = torch.optim.AdamW(model.parameters())
with tierflow.Engine(device="host", host_cache="64MiB", external=options.directory, retention=3) as engine:
    checkpointer = tierflow.torch.AsyncCheckpointer(engine, every=5, model=model, optimizer=optimizer)
    first = checkpointer.resume()
    print(f"begins with step {first}")
    for step in range(first, 30):
        batch = torch.randn(32, 16)
        loss = (model(batch) - batch.sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        checkpointer.step(step)
        if step == options.kill_at:
            engine.wait()
            os.kill(os.getpid(), signal.SIGKILL)
bits = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
print("weights", hashlib.sha256(bits).hexdigest())
