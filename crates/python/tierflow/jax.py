"""A loop of JAX whose states are in an engine between its way forward and its way back.

    tape = tierflow.Tape(engine)

    @jax.jit
    def misfit(parameters, start):
        end, _ = tierflow.jax.scan(tape, step, start, length=10_000)
        ...

    jax.grad(misfit)(parameters, start)

`scan` is `jax.lax.scan`. When it is differentiated, each step's state goes to the engine, and comes back for the step's own gradient,
for which the step is computed once more: memory holds one step, whatever the length. Copies run in the device's own order, through
handlers of XLA's foreign function interface, and no host callback.

What is differentiated is one program: `jax.jit` of the function that takes the gradient. Programs of one device run one after
the other; on a CPU, too, give each that may run at the same time a tape of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import tree_flatten, tree_map, tree_unflatten

from ._tierflow import Tape

__all__ = ["scan"]

_RUN = jax.ShapeDtypeStruct((1,), jnp.uint32)


@cache
def _register() -> None:
    for platform, on_gpu in (("cpu", False), ("CUDA", True)):
        for name, handler in Tape.handlers(on_gpu).items():
            jax.ffi.register_ffi_target(name, handler, platform=platform)


def _call(name: str, tape: Tape, results: list[Any], *arguments: Any, passes_run: bool = True) -> list[Any]:
    _register()
    # The run's number is passed from call to call, and puts them in their order.
    aliases = {0: 0} if passes_run else {}
    call = jax.ffi.ffi_call(name, results, has_side_effect=True, input_output_aliases=aliases)
    returned: list[Any] = list(call(*arguments, tape=np.uint64(tape.id)))
    return returned


def scan(
    tape: Tape, step: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, length: int | None = None
) -> tuple[Any, Any]:
    """`jax.lax.scan(step, init, xs, length)`, with the states of its way forward in `tape`'s engine."""
    init = tree_map(jnp.asarray, init)
    example = tree_map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)), xs)
    closed, held = jax.closure_convert(step, init, example)
    result: tuple[Any, Any] = _scan(tape, closed, length, init, xs, held)
    return result


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _scan(tape: Tape, step: Any, length: int | None, init: Any, xs: Any, held: Any) -> Any:
    return lax.scan(lambda state, x: step(state, x, *held), init, xs, length)


def _forward(tape: Tape, step: Any, length: int | None, init: Any, xs: Any, held: Any) -> Any:
    # It begins once what it begins with is there.
    first = jnp.zeros((1,), jnp.uint32)
    (run,) = _call("tierflow_begin", tape, [_RUN], first, passes_run=False)

    def forward(carried: Any, x: Any) -> Any:
        run, state = carried
        (run,) = _call("tierflow_save", tape, [_RUN], run, *tree_flatten(state)[0])
        state, y = step(state, x, *held)
        return (run, state), y

    (run, end), ys = lax.scan(forward, (run, init), xs, length)
    return (end, ys), (run, xs, held)


def _back(tape: Tape, step: Any, length: int | None, residual: Any, given: Any) -> Any:
    run, xs, held = residual
    end, ys = given
    leaves, structure = tree_flatten(tree_map(lambda bar: jax.ShapeDtypeStruct(bar.shape, bar.dtype), end))
    (run,) = _call("tierflow_rewind", tape, [_RUN], run)

    def back(carried: Any, these: Any) -> Any:
        run, state_bar, held_bar = carried
        x, y_bar = these
        run, *state = _call("tierflow_load", tape, [_RUN, *leaves], run)
        _, pull = jax.vjp(lambda state, x, held: step(state, x, *held), tree_unflatten(structure, state), x, held)
        state_bar, x_bar, more = pull((state_bar, y_bar))
        held_bar = tree_map(lambda bar, more: bar + more, held_bar, more)
        return (run, state_bar, held_bar), x_bar

    zeros = tree_map(jnp.zeros_like, held)
    (_, init_bar, held_bar), xs_bar = lax.scan(back, (run, end, zeros), (xs, ys), length, reverse=True)
    return init_bar, xs_bar, held_bar


_scan.defvjp(_forward, _back)
