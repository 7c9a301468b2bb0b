"""The gradients of a wave, of heat and of Lorenz's equations, by their adjoints, with some of the states in an engine.

    python adjoints.py

`examples/adjoints.rs` of tierflow-schedule and `adjoints.cpp` of the C library are the same in Rust and C++.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import tierflow.adjoint


def laplace(u: np.ndarray) -> np.ndarray:
    return np.roll(u, -1) - 2 * u + np.roll(u, 1)


def wave(state: np.ndarray) -> np.ndarray:
    """The equation `u_tt = u_xx - u³`. The state is u and its velocity."""
    u, v = state.reshape(2, -1)
    v = v + 0.1 * (laplace(u) - u**3)
    return np.concatenate([u + 0.1 * v, v])


def wave_back(state: np.ndarray, adjoint: np.ndarray) -> np.ndarray:
    u, (of_u, of_v) = state.reshape(2, -1)[0], adjoint.reshape(2, -1)
    v = of_v + 0.1 * of_u
    return np.concatenate([of_u + 0.1 * (laplace(v) - 3 * u**2 * v), v])


def heat(u: np.ndarray) -> np.ndarray:
    """A rod with a source of heat that depends on the temperature."""
    return u + 0.2 * laplace(u) + 0.05 * u * (1 - u)


def heat_back(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return v + 0.2 * laplace(v) + 0.05 * (1 - 2 * u) * v


def lorenz(state: np.ndarray) -> np.ndarray:
    """Lorenz's equations from many starting points of three numbers each."""
    x, y, z = state.reshape(3, -1)
    return state + 0.002 * np.concatenate([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])


def lorenz_back(state: np.ndarray, adjoint: np.ndarray) -> np.ndarray:
    (x, y, z), (a, b, c) = state.reshape(3, -1), adjoint.reshape(3, -1)
    return adjoint + 0.002 * np.concatenate([-10 * a + (28 - z) * b + y * c, 10 * a - b + x * c, -x * b - 8 / 3 * c])


@dataclass
class Problem:
    """A recurrence: the step from one state to the next, and its adjoint at a state."""

    name: str
    steps: int
    first: np.ndarray
    step: Callable[[np.ndarray], np.ndarray]
    back: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def states(self, size: float) -> list[np.ndarray]:
        """Returns all states of a run whose first state is moved by `size` along a direction."""
        states = [self.first + size * np.cos(0.3 * np.arange(self.first.size))]
        for _ in range(self.steps):
            states.append(self.step(states[-1]))
        return states

    def objective(self, size: float) -> float:
        return 0.5 * float(np.sum(self.states(size)[-1] ** 2))

    def stored_gradient(self) -> np.ndarray:
        states = self.states(0)
        adjoint = states.pop()
        for state in reversed(states):
            adjoint = self.back(state, adjoint)
        return adjoint

    def gradient(self, engine: tierflow.Engine) -> tuple[np.ndarray, int]:
        state = self.first.copy()
        adjoint = np.empty_like(state)

        def forward(_: int) -> None:
            state[:] = self.step(state)

        def end_forward() -> None:
            adjoint[:] = state

        def reverse(_: int) -> None:
            adjoint[:] = self.back(state, adjoint)

        # Eight states fit on the device. A state takes five steps over the link to a tier with room for all.
        bytes_of, link = state.nbytes, state.nbytes / 5e-3
        tiers = [(self.steps * bytes_of, link, link)]
        machine = tierflow.Machine(forward=1e-3, backward=1e-3, state=bytes_of, device=8 * bytes_of, tiers=tiers)
        schedule = tierflow.adjoint.Tiered(self.steps, machine=machine)
        tierflow.adjoint.run(engine, schedule, state=state, forward=forward, end_forward=end_forward, reverse=reverse)
        return adjoint, schedule.stored

    def order(self, gradient: np.ndarray) -> float:
        """Returns the order in which the error of the gradient's prediction of the objective shrinks with the distance: 2 if the gradient is right."""
        slope = float(gradient @ np.cos(0.3 * np.arange(gradient.size)))
        rest = [abs(self.objective(size) - self.objective(0) - size * slope) for size in (1e-4, 5e-5)]
        return float(np.log2(rest[0] / rest[1]))


def main() -> None:
    sines = np.sin(0.05 * np.arange(1000))
    problems = [
        Problem("wave", 200, sines, wave, wave_back),
        Problem("heat", 200, 0.5 + 0.4 * sines, heat, heat_back),
        Problem("Lorenz", 300, 5 + sines[:300], lorenz, lorenz_back),
    ]
    with tierflow.Engine(device="host", device_cache="64KiB", host_cache="4MiB") as engine:
        for problem in problems:
            gradient, stored = problem.gradient(engine)
            order = problem.order(gradient)
            print(f"{problem.name}: {problem.steps} steps, {stored} states stored, Taylor {order:.4f}")
            if (gradient != problem.stored_gradient()).any() or order < 1.99 or engine.versions():
                raise SystemExit(f"the gradient of {problem.name} is wrong")


if __name__ == "__main__":
    main()
