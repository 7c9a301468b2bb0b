"""Measures the gradient of a loop of JAX with states in an engine, by `io_callback` in host memory, and in the GPU's memory.

python jax_scan.py                  # 100 states of 64 MiB
"""

import argparse
import os
import time
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import tierflow


def misfit(loop: Any, start: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        # A step passes 40 times over the state.
        state = jax.lax.fori_loop(0, 40, lambda _, s: s + 1e-3 * jnp.sin(s) * x, state)
        return state, None

    end, _ = loop(step, start)
    return jnp.square(end).mean()


def by_callback(kept: list[Any], steps: int) -> Any:
    def make(step: Any, start: Any) -> Any:
        @jax.custom_vjp
        def run(start: Any) -> Any:
            return jax.lax.scan(step, start, jnp.ones(steps))[0]

        def forward(start: Any) -> Any:
            def saved(state: Any, x: Any) -> Any:
                io_callback(lambda s: kept.append(np.array(s)), None, state, ordered=True)
                return step(state, x)

            return jax.lax.scan(saved, start, jnp.ones(steps))[0], None

        def back(_: Any, bar: Any) -> Any:
            def loaded(bar: Any, x: Any) -> Any:
                state = io_callback(kept.pop, jax.ShapeDtypeStruct(start.shape, start.dtype), ordered=True)
                return jax.vjp(lambda s: step(s, x)[0], state)[1](bar)[0], None

            return (jax.lax.scan(loaded, bar, jnp.ones(steps), reverse=True)[0],)

        run.defvjp(forward, back)
        return run(start), None

    return make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--device-cache", default="1GiB")
    parser.add_argument("--host-cache", default="10GiB")
    options = parser.parse_args()
    start = jax.random.normal(jax.random.key(0), (options.mib << 18,))
    engine = tierflow.Engine(device=options.device, device_cache=options.device_cache, host_cache=options.host_cache)
    tape = tierflow.Tape(engine)
    ways = {
        "in the device's memory": lambda step, start: jax.lax.scan(
            jax.checkpoint(step), start, jnp.ones(options.steps)
        ),
        "tierflow": lambda step, start: tierflow.jax.scan(tape, step, start, jnp.ones(options.steps)),
        "io_callback": by_callback([], options.steps),
    }
    first = None
    for name, loop in ways.items():
        program = jax.jit(jax.grad(lambda start, loop=loop: misfit(loop, start)))
        times = []
        for _ in range(4):
            begun = time.perf_counter()
            gradient = jax.block_until_ready(program(start))
            times.append(time.perf_counter() - begun)
        first = gradient if first is None else first
        same = "the same bits" if jnp.array_equal(first, gradient) else f"off by {jnp.abs(first - gradient).max():.1e}"
        print(
            f"{name:>24}: {1e3 * min(times):8.1f} ms  ({', '.join(f'{1e3 * one:.0f}' for one in times)}), {same}",
            flush=True,
        )
    del program
    jax.clear_caches()


if __name__ == "__main__":
    main()
