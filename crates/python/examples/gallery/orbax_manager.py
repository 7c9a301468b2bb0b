"""Orbax's manager with the arrays of its steps in an engine."""

import sys

import jax
import jax.numpy as jnp
from orbax.checkpoint import CheckpointManager, CheckpointManagerOptions

import tierflow
from tierflow.orbax import Handler, State

state = {"weights": jnp.ones((8, 8)), "key": jax.random.key(0)}
with tierflow.Engine(device="host", host_cache="64MiB", external=f"{sys.argv[1]}/arrays", retention=3) as engine:
    options = CheckpointManagerOptions(max_to_keep=2)
    with CheckpointManager(f"{sys.argv[1]}/steps", options=options, item_handlers=Handler(engine)) as manager:
        newest = manager.latest_step()
        if newest is not None:
            state = manager.restore(newest, args=State(state))
        for step in range(newest or 0, (newest or 0) + 3):
            state["weights"] = 0.5 * state["weights"]
            manager.save(step + 1, args=State(state))
    print(state["weights"][0, 0])
