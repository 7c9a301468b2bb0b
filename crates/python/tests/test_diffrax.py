"""Solves of diffrax with steps in an engine, on the processor, have the gradients of diffrax's own adjoints."""

from collections.abc import Iterator
from typing import Any

import pytest

import tierflow

jax = pytest.importorskip("jax")
diffrax = pytest.importorskip("diffrax")
jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("on_processor", "doubles")


@pytest.fixture
def doubles() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def lorenz(t: Any, y: Any, args: Any) -> Any:
    sigma, rho, beta = args
    return jnp.stack([sigma * (y[1] - y[0]), y[0] * (rho - y[2]) - y[1], y[0] * y[1] - beta * y[2]])


def noisy(args: Any) -> Any:
    path = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-3, shape=(), key=jax.random.key(1))
    noise = diffrax.ControlTerm(lambda t, y, args: 0.1 * args[0] * y, path)
    return diffrax.MultiTerm(diffrax.ODETerm(lorenz), noise)


def adaptive(**more: Any) -> dict[str, Any]:
    return {"stepsize_controller": diffrax.PIDController(rtol=1e-5, atol=1e-5), **more}


CASES = {
    "adaptive": lambda args: (diffrax.ODETerm(lorenz), diffrax.Tsit5(), adaptive()),
    "at times": lambda args: (
        diffrax.ODETerm(lorenz),
        diffrax.Tsit5(),
        adaptive(saveat=diffrax.SaveAt(ts=jnp.linspace(0, 1, 7))),
    ),
    "each step": lambda args: (diffrax.ODETerm(lorenz), diffrax.Heun(), {"saveat": diffrax.SaveAt(steps=True)}),
    "implicit": lambda args: (diffrax.ODETerm(lorenz), diffrax.Kvaerno3(), adaptive()),
    "noise": lambda args: (noisy(args), diffrax.EulerHeun(), {}),
    "event": lambda args: (
        diffrax.ODETerm(lorenz),
        diffrax.Tsit5(),
        adaptive(event=diffrax.Event(lambda t, y, args, **_: y[0] - 8.0)),
    ),
}


def gradient(adjoint: Any, case: str, max_steps: int | None = 500) -> Any:
    def loss(y0: Any, args: Any) -> Any:
        terms, solver, more = CASES[case](args)
        how = {"adjoint": adjoint, "max_steps": max_steps, **more}
        solution = diffrax.diffeqsolve(terms, solver, 0.0, 1.0, 0.01, y0, args, **how)
        there = jnp.where(jnp.isfinite(solution.ys), solution.ys, 0)
        return (there**2).sum(), solution.stats["num_steps"]

    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))


def given() -> tuple[Any, Any]:
    return jnp.array([1.0, 1.0, 1.0]), (jnp.array(10.0), jnp.array(28.0), jnp.array(8 / 3))


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_diffrax(case: str, engine: tierflow.Engine) -> None:
    expected = gradient(diffrax.RecursiveCheckpointAdjoint(checkpoints=500), case)(*given())
    tape = tierflow.Tape(engine)
    program = gradient(tierflow.diffrax.TierflowAdjoint(tape), case)
    for _ in range(2):
        got = program(*given())
        for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
            assert jnp.allclose(one, other, rtol=1e-12, atol=1e-12)
    steps = int(expected[0][1])
    assert engine.metrics()["produce"]["count"] == 2 * steps
    assert len(tape) == 0
    assert engine.versions() == []


def test_steps_without_a_bound(engine: tierflow.Engine) -> None:
    expected = gradient(diffrax.RecursiveCheckpointAdjoint(checkpoints=500), "adaptive")(*given())
    got = gradient(tierflow.diffrax.TierflowAdjoint(tierflow.Tape(engine)), "adaptive", max_steps=None)(*given())
    assert all(jnp.allclose(*two, rtol=1e-12) for two in zip(*map(jax.tree.leaves, (expected, got)), strict=True))


def test_memory_does_not_grow_with_the_number_of_steps(engine: tierflow.Engine) -> None:
    adjoint = tierflow.diffrax.TierflowAdjoint(tierflow.Tape(engine))
    bytes_of = [
        gradient(adjoint, "adaptive", steps).lower(*given()).compile().memory_analysis().temp_size_in_bytes
        for steps in (100, 10_000)
    ]
    assert bytes_of[0] == bytes_of[1] < 100_000


def test_many_solves_at_once_are_refused(engine: tierflow.Engine) -> None:
    program = gradient(tierflow.diffrax.TierflowAdjoint(tierflow.Tape(engine)), "adaptive")
    y0, args = given()
    with pytest.raises(NotImplementedError, match="no vmap"):
        jax.vmap(program, in_axes=(0, None))(jnp.stack([y0, 2 * y0]), args)
