"""A module of Equinox and the state of its optimiser."""

import sys

import equinox as eqx
import jax

import tierflow

model = eqx.nn.MLP(4, 2, width_size=8, depth=2, key=jax.random.key(0))
checkpointed = eqx.filter(model, eqx.is_array)
with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1], retention=2) as engine:
    checkpointer = tierflow.jax.AsyncCheckpointer(engine, every=10)
    first, checkpointed = checkpointer.resume(checkpointed)
    model = eqx.combine(checkpointed, model)
    for step in range(first, 100):
        model = jax.tree.map(lambda x: 0.9 * x if eqx.is_array(x) else x, model)
        checkpointer.step(step, eqx.filter(model, eqx.is_array))
    print(engine)
