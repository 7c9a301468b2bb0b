"""A training by JAX that is saved every few steps, and continues after a kill with the same results.

python resume_jax.py --directory /tmp/training --kill-at 17
python resume_jax.py --directory /tmp/training
"""

import argparse
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tierflow

parser = argparse.ArgumentParser()
parser.add_argument("--directory", type=Path, required=True)
parser.add_argument("--kill-at", type=int)
options = parser.parse_args()
options.directory.mkdir(exist_ok=True)


@jax.jit
def update(state: dict[str, Any]) -> dict[str, Any]:
    key, drawn = jax.random.split(state["key"])
    x = jax.random.normal(drawn, (32, 16))

    def misfit(weights: Any) -> jax.Array:
        return jnp.square(jnp.tanh(x @ weights[0]) @ weights[1] - jnp.sin(x)).mean()

    gradient = jax.grad(misfit)(state["weights"])
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], gradient)
    weights = jax.tree.map(lambda w, m: w - 0.1 * m, state["weights"], momentum)
    return {"weights": weights, "momentum": momentum, "key": key}


weights = [0.1 * jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(16, 64), (64, 16)])]
state: dict[str, Any] = {
    "weights": weights,
    "momentum": jax.tree.map(jnp.zeros_like, weights),
    "key": jax.random.key(7),
}
with tierflow.Engine(device="host", host_cache="64MiB", external=options.directory, retention=3) as engine:
    first, newest = 0, engine.latest()
    if newest is not None:
        state, first = tierflow.jax.load(engine, newest, (state, 0))
    print(f"begins with step {first}")
    for step in range(first, 30):
        state = update(state)
        if step % 5 == 4:
            tierflow.jax.save(engine, engine.next_version, (state, step + 1))
        if step == options.kill_at:
            engine.wait()
            os.kill(os.getpid(), signal.SIGKILL)
print("weights", hashlib.sha256(b"".join(np.asarray(w).tobytes() for w in state["weights"])).hexdigest())
