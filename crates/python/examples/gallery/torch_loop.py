"""A loop of PyTorch that continues where it ended."""

import sys

import torch

import tierflow
from tierflow.torch import AsyncCheckpointer

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.Adam(model.parameters())
with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1], retention=2) as engine:
    checkpointer = AsyncCheckpointer(engine, every=10, model=model, optimizer=optimizer)
    for step in range(checkpointer.resume(), 100):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        checkpointer.step(step)
    print(engine)
