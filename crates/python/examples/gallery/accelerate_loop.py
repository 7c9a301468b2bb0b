"""A loop of Accelerate that continues where it ended."""

import sys

import torch
from accelerate import Accelerator

import tierflow
from tierflow.torch import AsyncCheckpointer

accelerator = Accelerator(cpu=True)
plain = torch.nn.Linear(8, 8)
model, optimizer = accelerator.prepare(plain, torch.optim.Adam(plain.parameters()))
with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1], retention=2) as engine:
    checkpointer = AsyncCheckpointer(engine, every=10, model=accelerator.unwrap_model(model), optimizer=optimizer)
    for step in range(checkpointer.resume(), 100):
        optimizer.zero_grad()
        accelerator.backward(model(torch.randn(4, 8)).square().mean())
        optimizer.step()
        checkpointer.step(step)
    print(engine)
