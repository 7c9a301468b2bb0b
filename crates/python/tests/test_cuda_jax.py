"""Loops of JAX over an engine on a GPU: `pytest -m cuda`."""

import os
from typing import Any

import pytest

import tierflow

# Most of the GPU is not JAX's.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("default")]
jax = pytest.importorskip("jax")
jnp = jax.numpy


def misfit(loop: Any, rate: Any, start: Any, xs: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        u, v = state
        u, v = (u + 0.1 * jnp.sin(v) * x) * rate, v * 0.99 + jnp.roll(u, 1)
        return (u, v), (u * v).mean()

    (u, v), ys = loop(step, (start, 2 * start), xs)
    return (u * v).mean() + ys.sum()


@pytest.mark.parametrize(
    "tiers", [{"device_cache": "64MiB", "host_cache": "1GiB"}, {"host_cache": "1GiB"}], ids=["device", "host"]
)
def test_gradients_are_those_of_jax(tiers: dict[str, Any]) -> None:
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
    start, xs = jax.random.normal(jax.random.key(0), (1 << 20,)), jax.random.normal(jax.random.key(1), (60,))
    given = (jnp.float32(0.999), start, xs)

    def plain(body: Any, init: Any, xs: Any) -> Any:
        return jax.lax.scan(jax.checkpoint(body), init, xs)

    with tierflow.Engine(device="cuda", **tiers) as engine:
        tape = tierflow.Tape(engine)

        def taped(body: Any, init: Any, xs: Any) -> Any:
            return tierflow.jax.scan(tape, body, init, xs)

        def gradient(loop: Any) -> Any:
            return jax.jit(jax.value_and_grad(lambda *given: misfit(loop, *given), argnums=(0, 1, 2)))

        expected = gradient(plain)(*given)
        compiled = gradient(taped)
        assert "callback" not in compiled.lower(*given).compile().as_text()
        for _ in range(4):
            got = jax.block_until_ready(compiled(*given))
            for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
                assert jnp.array_equal(one, other)
        assert len(tape) == 0
        assert engine.versions() == []
        # Backward passes in another order, each by its number.
        starts = (start, start + 1)
        pulls = [jax.vjp(lambda at: misfit(taped, given[0], at, xs), at)[1] for at in starts]
        for at, pull in zip(starts, pulls, strict=True):
            expected = jax.grad(lambda at: misfit(plain, given[0], at, xs))(at)
            assert jnp.allclose(pull(jnp.float32(1))[0], expected, rtol=1e-4, atol=1e-6)
        del got, compiled
    jax.clear_caches()
