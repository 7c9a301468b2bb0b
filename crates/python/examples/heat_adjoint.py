"""The gradient of a heat equation, by its adjoint, with the whole history in an engine.

    python heat_adjoint.py
    python heat_adjoint.py --cells 1000000 --steps 400 --host-cache 512MiB --scratch /tmp

A rod with a source of heat that depends on the temperature is computed forward for many steps. How much does each cell of
the initial temperature matter for the final one? The adjoint answers that in one pass back through all steps, newest
first, and needs the temperature at each of them. The history is larger than the caches; the engine has each state back before
the adjoint asks for it. The gradient is compared with finite differences.
"""

import argparse
import time

import numpy as np

import tierflow

DIFFUSION, SOURCE = 0.2, 0.05


def forward(u: np.ndarray) -> np.ndarray:
    """One step: diffusion along the rod, whose ends are insulated, and a source."""
    padded = np.pad(u, 1, mode="edge")
    return u + DIFFUSION * (padded[:-2] - 2 * u + padded[2:]) + SOURCE * u * (1 - u)


def adjoint(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The transpose of the step's derivative at `u`, applied to `v`. The diffusion is symmetric."""
    padded = np.pad(v, 1, mode="edge")
    return v + DIFFUSION * (padded[:-2] - 2 * v + padded[2:]) + SOURCE * (1 - 2 * u) * v


def objective(u: np.ndarray, steps: int) -> float:
    for _ in range(steps):
        u = forward(u)
    return 0.5 * float(u @ u)


def gradient(engine: tierflow.Engine, u: np.ndarray, steps: int) -> np.ndarray:
    """The derivative of `objective` by the initial temperature."""
    engine.hint(reversed(range(steps)))
    for step in range(steps):
        engine.checkpoint(step, u)
        u = forward(u)
    v = u
    state = np.empty_like(u)
    for step in reversed(range(steps)):
        engine.restore(step, state)
        v = adjoint(state, v)
    return v


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="host")
    parser.add_argument("--device-cache", default="16MiB")
    parser.add_argument("--host-cache", default="32MiB")
    parser.add_argument("--scratch", default=".")
    options = parser.parse_args()

    x = np.linspace(0, 1, options.cells)
    initial = 0.5 + 0.4 * np.sin(7 * x)
    begun = time.perf_counter()
    with tierflow.Engine(
        device=options.device,
        device_cache=options.device_cache,
        host_cache=options.host_cache,
        scratch=options.scratch,
        after_restore="discard",
    ) as engine:
        slope = gradient(engine, initial.copy(), options.steps)
        metrics = engine.metrics()
    took = time.perf_counter() - begun
    blocked = metrics["checkpoint"]["blocked"] + metrics["restore"]["blocked"]
    history = initial.nbytes * options.steps / 2**20
    print(f"{options.steps} states, {history:.0f} MiB in all; {took:.2f} s, of which the engine took {blocked:.2f} s")
    for tier in metrics["tiers"]:
        print(f"  {tier['name']:<6} {tier['restores']:>4} restores, at most {tier['peak'] / 2**20:.0f} MiB")

    direction = np.cos(11 * x)
    exact = float(slope @ direction)
    errors = []
    for size in (1e-4, 5e-5):
        ahead = objective(initial + size * direction, options.steps)
        behind = objective(initial - size * direction, options.steps)
        errors.append(abs((ahead - behind) / (2 * size) - exact) / abs(exact))
    print(f"slope along a direction: {exact:.9g}; finite differences are off by {errors[0]:.1e} and {errors[1]:.1e}")
    if not (errors[1] < 1e-6 and errors[1] < errors[0] / 3):
        raise SystemExit("the gradient is wrong")


if __name__ == "__main__":
    main()
