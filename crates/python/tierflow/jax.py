"""A loop of JAX whose states are in an engine between its forward and its backward pass.

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
    """`jax.lax.scan(step, init, xs, length)`, with the states of its forward pass in `tape`'s engine."""
    init, xs = tree_map(jnp.asarray, (init, xs))
    if not all(_is_real(leaf) for leaf in tree_flatten(init)[0]):
        raise TypeError(
            "a state of integers has no gradient: count in xs, as in xs=jnp.arange(length), or in floating-point numbers"
        )
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

    xs_leaves, xs_structure = tree_flatten(xs)

    def back(carried: Any, these: Any) -> Any:
        run, state_bar, held_bar = carried
        x, y_bar = these

        def forward(state: Any, x_real: list[Any], held: Any) -> Any:
            state, y = step(state, tree_unflatten(xs_structure, _merged(x, x_real)), *held)
            return state, _real(y)

        run, *state = _call("tierflow_load", tape, [_RUN, *leaves], run)
        _, pull = jax.vjp(forward, tree_unflatten(structure, state), _real(x), held)
        state_bar, x_bar, more = pull((state_bar, y_bar))
        return (run, state_bar, tree_map(jnp.add, held_bar, more)), x_bar

    zeros = tree_map(jnp.zeros_like, held)
    carried, real_bar = lax.scan(back, (run, end, zeros), (xs_leaves, _real(ys)), length, reverse=True)
    xs_bar = [None if _is_real(x) else np.zeros(jnp.shape(x), jax.dtypes.float0) for x in xs_leaves]
    return carried[1], tree_unflatten(xs_structure, _merged(xs_bar, real_bar)), carried[2]


def _is_real(leaf: Any) -> bool:
    """Whether there is a gradient with respect to it."""
    return leaf is None or bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _real(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(tree)[0] if _is_real(leaf)]


def _merged(leaves: list[Any], real: list[Any]) -> list[Any]:
    """`leaves`, of which those with a gradient are taken from `real`."""
    given = iter(real)
    return [next(given) if _is_real(leaf) else leaf for leaf in leaves]


_scan.defvjp(_forward, _back)
