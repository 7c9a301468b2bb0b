"""A module of Flax whose training continues where it ended."""

import sys

import jax.numpy as jnp
from flax import nnx

import tierflow

model = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1], retention=2) as engine:
    checkpointer = tierflow.jax.AsyncCheckpointer(engine, every=10)
    first, state = checkpointer.resume(nnx.to_pure_dict(nnx.state(model)))
    nnx.update(model, state)
    for step in range(first, 100):
        model(jnp.full((1, 2), float(step)))
        checkpointer.step(step, nnx.to_pure_dict(nnx.state(model)))
    print(engine, model.mean[...])
