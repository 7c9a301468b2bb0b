"""A training state of JAX that gets another layout when it is loaded."""

import sys

import jax
import jax.numpy as jnp

import tierflow

state = {"weights": [jnp.ones((8, 8)), jnp.zeros(8)], "key": jax.random.key(0)}
with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1]) as engine:
    tierflow.jax.save(engine, engine.next_version, (state, 17))
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    back, step = tierflow.jax.load(engine, max(engine), (shapes, 0))
print(step, back["weights"][0].sum())
