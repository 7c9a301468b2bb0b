"""Measures the gradient of a reaction and diffusion equation on a ring with diffrax, with its own adjoints and with states in an engine.

python diffrax_adjoint.py --steps 1000 --points 20000
JAX_PLATFORMS=cuda python diffrax_adjoint.py --steps 1000 --points 200000    # on a GPU

The program prints the time of a value with its gradient, its ratio to that of DirectAdjoint, and the temporary memory of the compiled
program, which includes the states that an adjoint keeps in the device's own memory.
"""

import argparse
import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from typing import Any

import diffrax
import jax
import jax.numpy as jnp

import tierflow


def reacts(t: Any, y: Any, rate: Any) -> Any:
    return rate * (jnp.roll(y, 1) + jnp.roll(y, -1) - 2 * y) + jnp.sin(y) * (1 - y * y)


def program(adjoint: Any, steps: int, start: Any, adaptive: bool) -> Any:
    controller = (
        diffrax.PIDController(rtol=1e-4, atol=1e-4, dtmax=1 / steps) if adaptive else diffrax.ConstantStepSize()
    )

    def loss(rate: Any, start: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(reacts),
            diffrax.Tsit5(),
            0.0,
            1.0,
            1 / steps,
            start,
            rate,
            stepsize_controller=controller,
            adjoint=adjoint,
            max_steps=steps + steps // 8,
        )
        return (solution.ys**2).sum()

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1))).lower(jnp.float32(0.3), start).compile()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--constant", action="store_true", help="constant steps in place of adaptive ones")
    options = parser.parse_args()
    start = jax.random.normal(jax.random.key(0), (options.points,))
    print("| steps | adjoint | value and gradient | temporary memory | gradient |\n|---|---|---|---|---|")
    for steps in options.steps:
        states = steps * options.points * 4
        device = "host" if jax.default_backend() == "cpu" else "cuda"
        engine = tierflow.Engine(device=device, device_cache="16MiB", host_cache=states * 2 + (64 << 20))
        ways = {
            "DirectAdjoint": diffrax.DirectAdjoint(),
            "RecursiveCheckpointAdjoint": diffrax.RecursiveCheckpointAdjoint(),
            "RecursiveCheckpointAdjoint, all steps": diffrax.RecursiveCheckpointAdjoint(steps + steps // 8),
            "TierflowAdjoint": tierflow.diffrax.TierflowAdjoint(tierflow.Tape(engine)),
        }
        expected = None
        for name, adjoint in ways.items():
            compiled = program(adjoint, steps, start, not options.constant)
            times = []
            for _ in range(options.runs):
                begun = time.perf_counter()
                _, slopes = jax.block_until_ready(compiled(jnp.float32(0.3), start))
                times.append(time.perf_counter() - begun)
            expected = slopes[1] if expected is None else expected
            off = float(jnp.abs(expected - slopes[1]).max() / jnp.abs(expected).max())
            memory = compiled.memory_analysis().temp_size_in_bytes / 2**20
            print(f"| {steps} | {name} | {min(times):.3f} s | {memory:.1f} MiB | off by {off:.0e} |", flush=True)


if __name__ == "__main__":
    main()
