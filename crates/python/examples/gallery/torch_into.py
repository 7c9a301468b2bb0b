"""Loads the weights of a checkpoint, and no other part of it, into the tensors of a model."""

import sys

import torch

import tierflow

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8))
with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1]) as engine:
    engine.save(engine.next_version, {"model": model.state_dict(), "epoch": 3, "moments": [torch.zeros(1_000_000)]})
    other = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 8))
    engine.load(max(engine), other.state_dict(), select="model")
    assert all(map(torch.equal, other.parameters(), model.parameters()))
