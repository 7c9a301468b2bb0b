"""A heat equation in JAX with 2 000 states in an engine. The gradient is compared with that of `jax.lax.scan`.

python jax_adjoint.py
"""

import argparse

import jax
import jax.numpy as jnp

import tierflow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--cells", type=int, default=20_000)
    parser.add_argument("--device", default="cuda" if jax.default_backend() == "gpu" else "host")
    parser.add_argument("--host-cache", default="256MiB")
    options = parser.parse_args()

    def misfit(loop, rate, start):  # type: ignore[no-untyped-def]
        def step(field, _):  # type: ignore[no-untyped-def]
            spread = jnp.roll(field, 1) - 2 * field + jnp.roll(field, -1)
            return field + rate * spread * jnp.cos(field), None

        end, _ = loop(step, start)
        return jnp.square(end).sum()

    start = jnp.sin(jnp.arange(options.cells) / 100)
    with tierflow.Engine(device=options.device, host_cache=options.host_cache) as engine:
        tape = tierflow.Tape(engine)
        ways = {
            "jax.lax.scan": lambda step, start: jax.lax.scan(step, start, length=options.steps),
            "tierflow.jax.scan": lambda step, start: tierflow.jax.scan(tape, step, start, length=options.steps),
        }
        for name, loop in ways.items():
            gradient = jax.jit(jax.grad(lambda rate, start, loop=loop: misfit(loop, rate, start)))
            compiled = gradient.lower(0.1, start).compile()
            memory = compiled.memory_analysis()
            temporary = "" if memory is None else f", {memory.temp_size_in_bytes >> 20} MiB of temporary memory"
            print(f"{name:>18}: {float(compiled(0.1, start)):.6f}{temporary}")
        print(f"{engine.metrics()['produce']['bytes'] >> 20} MiB were in the engine")


if __name__ == "__main__":
    main()
