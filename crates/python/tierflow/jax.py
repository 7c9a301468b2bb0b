"""For JAX: a loop whose states are in an engine between its forward and its backward pass, and trees that are saved and loaded.

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

`save` and `load` are for pytrees of any registered kind, with the shardings of their arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import keystr, tree_flatten, tree_flatten_with_path, tree_map, tree_unflatten

from ._engine import Engine, Repository
from ._errors import ArgumentError
from ._tierflow import Tape
from ._tree import dtype_of

__all__ = ["load", "save", "scan"]

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


def save(engine: Engine, version: int, tree: Any) -> None:
    """Saves a pytree of any registered kind as `version`: Equinox's modules, Flax's and Optax's states, and plain containers.

    Its leaves are those of `Engine.save`, and keys of random generators; each is a region named after its path, such as "['layers'][0].weight". An array
    with parts on several devices of this process is saved whole.
    """
    leaves, _ = tree_flatten_with_path(tree)
    engine.save(version, {keystr(path): jax.random.key_data(x) if _is_key(x) else x for path, x in leaves})


def load(source: Engine | Repository, version: int, like: Any) -> Any:
    """Returns the pytree of a version with the structure of `like`, whose arrays may be `jax.ShapeDtypeStruct`s.

    An array is laid out as the one of `like` is: on another mesh, say, or where `like` says nothing, on the default device.
    """
    leaves, structure = tree_flatten_with_path(like)
    names = [keystr(path) for path, _ in leaves]
    saved = source.load(version, plain=True)
    if not isinstance(saved, dict) or set(saved) != set(names):
        differ = sorted(set(saved) ^ set(names)) if isinstance(saved, dict) else ["all"]
        raise ArgumentError(
            f"version {version} has not the leaves of like=: {', '.join(differ[:8])} are in one of them alone"
        )
    return tree_unflatten(
        structure, [_laid_out(name, saved[name], x) for name, (_, x) in zip(names, leaves, strict=True)]
    )


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _laid_out(name: str, saved: Any, like: Any) -> Any:
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(like))
    if not hasattr(like, "shape") or not hasattr(saved, "shape"):
        return saved
    if (dtype_of(saved), saved.shape) != (dtype_of(like), like.shape):
        raise ArgumentError(
            f"{name} is {dtype_of(saved)} of shape {saved.shape}, and in like= {dtype_of(like)} of shape {like.shape}"
        )
    sharding = getattr(like, "sharding", None)
    if isinstance(like, np.ndarray | np.generic):
        return saved
    return jnp.asarray(saved) if sharding is None else jax.device_put(saved, sharding)
