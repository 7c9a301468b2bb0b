"""Loops of JAX that keep their states in an engine between the forward and the backward pass; functions that save and load pytrees.

    tape = tierflow.Tape(engine)

    @jax.jit
    def misfit(parameters, start):
        end, _ = tierflow.jax.scan(tape, step, start, length=10_000)
        ...

    jax.grad(misfit)(parameters, start)

`scan` is `jax.lax.scan`, and `while_loop` is `jax.lax.while_loop`. When a loop is differentiated, the state of each step goes to the
engine, and comes back for the gradient of the step, for which the step is computed once more. So memory holds one step, whatever the
length. Copies run in the device's own order, through handlers of XLA's foreign function interface, without a host callback.

The loops have first derivatives in reverse mode. Each of the following is an error while the program is traced: forward mode (`jax.jvp`,
`jax.jacfwd`), second derivatives (`jax.hessian`), `jax.vmap` of a gradient (map inside of the step), and a gradient inside of
`jax.checkpoint`, which is for programs without effects. Without a gradient, all of them work except forward mode.

Differentiate within one program: `jax.jit` of the function that takes the gradient. Programs of one device run one after the other. On a
CPU, programs may run at the same time: give each of these a tape of its own. The states of a failed program are discarded: at once if a
save failed, and when the next forward pass begins if a load failed. Until then, a backward pass whose first load failed can run again. If
a program fails between its passes by an error of other code, its states stay: `Tape.clear` and the end of
`with tierflow.Tape(engine) as tape:` discard them.

`save` and `load` take pytrees of any registered kind, and keep the shardings of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.tree_util import tree_flatten, tree_map, tree_structure, tree_unflatten

from ._jax_trees import AsyncCheckpointer, load, save
from ._tierflow import Tape

__all__ = ["AsyncCheckpointer", "load", "save", "scan", "while_loop"]

_RUN = jax.ShapeDtypeStruct((1,), jnp.uint32)


@cache
def _register() -> None:
    for platform, on_gpu in (("cpu", False), ("CUDA", True)):
        for name, handler in Tape.handlers(on_gpu).items():
            jax.ffi.register_ffi_target(name, handler, platform=platform)


def _call(name: str, tape: Tape, results: list[Any], *arguments: Any, passes_run: bool = True) -> list[Any]:
    _register()
    # The run's number passes from call to call, so that XLA keeps the order of the calls.
    aliases = {0: 0} if passes_run else {}
    call = jax.ffi.ffi_call(name, results, has_side_effect=True, input_output_aliases=aliases)
    returned: list[Any] = list(call(*arguments, tape=np.uint64(tape.id)))
    return returned


@custom_vmap
def _not_mapped(leaves: Any) -> Any:
    return leaves


@_not_mapped.def_vmap
def _mapped(*_: Any) -> Any:
    raise NotImplementedError("tierflow.jax: the gradient of a loop has no vmap; map inside of its step instead")


@jax.custom_jvp
def _not_differentiated(leaves: Any) -> Any:
    """Returns the leaves that a pass begins with, and refuses `jax.vmap` and derivatives of the pass, which is a gradient itself."""
    return _not_mapped(leaves)


@_not_differentiated.defjvp
def _differentiated(*_: Any) -> Any:
    raise TypeError("tierflow.jax: a loop has first derivatives only; use jax.lax.scan for second ones")


def scan(
    tape: Tape,
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Does `jax.lax.scan(step, init, xs, length, reverse, unroll)`, with the states of the forward pass in `tape`'s engine.

    `unroll` applies to both passes. Unrolling helps only if steps are small, and then states are small, too: put several steps into one
    instead.
    """
    init, xs = tree_map(jnp.asarray, (init, xs))
    if not all(_is_real(leaf) for leaf in tree_flatten(init)[0]):
        raise TypeError(
            "a state of integers has no gradient: count in xs, as in xs=jnp.arange(length), or in floating-point numbers"
        )
    example = tree_map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x)[1:], jnp.result_type(x)), xs)
    closed, held = jax.closure_convert(step, init, example)
    how = (("length", length), ("reverse", bool(reverse)), ("unroll", unroll))
    result: tuple[Any, Any] = _scan(tape, closed, how, init, xs, held)
    return result


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _scan(tape: Tape, step: Any, how: Any, init: Any, xs: Any, held: Any) -> Any:
    return lax.scan(lambda state, x: step(state, x, *held), init, xs, **dict(how))


def _begin(tape: Tape, leaves: list[Any]) -> tuple[Any, list[Any]]:
    """Begins a forward pass, once the state that it begins with is computed. Returns the run's number and the leaves of the state."""
    leaves = _not_differentiated(leaves)
    first = jnp.zeros((1,), jnp.uint32)
    (run,) = _call("tierflow_begin", tape, [_RUN], first, passes_run=False)
    return run, leaves


def _forward(tape: Tape, step: Any, how: Any, init: Any, xs: Any, held: Any) -> Any:
    leaves, structure = tree_flatten(init)
    run, leaves = _begin(tape, leaves)

    def forward(carried: Any, x: Any) -> Any:
        run, state = carried
        (run,) = _call("tierflow_save", tape, [_RUN], run, *tree_flatten(state)[0])
        state, y = step(state, x, *held)
        return (run, state), y

    (run, end), ys = lax.scan(forward, (run, tree_unflatten(structure, leaves)), xs, **dict(how))
    return (end, ys), (run, xs, held)


def _back(tape: Tape, step: Any, how: Any, residual: Any, given: Any) -> Any:
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
    back_how = {**dict(how), "reverse": not dict(how)["reverse"]}
    carried, real_bar = lax.scan(back, (run, end, zeros), (xs_leaves, _real(ys)), **back_how)
    xs_bar = [None if _is_real(x) else np.zeros(jnp.shape(x), jax.dtypes.float0) for x in xs_leaves]
    return carried[1], tree_unflatten(xs_structure, _merged(xs_bar, real_bar)), carried[2]


_scan.defvjp(_forward, _back)


def while_loop(
    tape: Tape,
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    *,
    max_steps: int | None = None,
    buffers: Callable[[Any], Any] | None = None,
) -> Any:
    """Does `jax.lax.while_loop(cond, body, init)` with a gradient, and the states of the forward pass in `tape`'s engine.

    `cond` and `body` are those of JAX. The number of steps need not be known or bounded; `max_steps` ends the loop in any case. States may
    have leaves of any type; leaves of integers have no gradient. `buffers` picks leaves of a state that `body` fills, each element once. `body`
    may read an element of them only after it has written it. Such leaves are not saved: the backward pass has them as they were at the end.
    """
    leaves, structure = tree_flatten(tree_map(jnp.asarray, init))
    places = tree_unflatten(structure, range(len(leaves)))
    form = _Form(
        tuple((leaf.shape, leaf.dtype) for leaf in leaves),
        frozenset(tree_flatten(buffers(places))[0] if buffers is not None else ()),
    )

    def goes_on(count: Any, leaves: list[Any]) -> Any:
        more = cond(tree_unflatten(structure, leaves))
        return more if max_steps is None else more & (count < max_steps)

    def flat(leaves: list[Any]) -> list[Any]:
        found: Any
        after, found = tree_flatten(tree_map(jnp.asarray, body(tree_unflatten(structure, leaves))))
        if found != structure:
            raise TypeError(f"the body makes {found} of a state that is {structure}")
        return after

    count = jnp.zeros((), jnp.int32)
    closed_cond, held_cond = _hoisted(goes_on, count, leaves)
    closed_body, held = _hoisted(flat, leaves)
    end: list[Any] = _while(tape, closed_cond, closed_body, form, leaves, held, held_cond)
    return tree_unflatten(structure, end)


def _hoisted(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Returns the function with the values of its closure as more arguments, and these values. `jax.closure_convert` would leave integers
    in the closure."""
    closed, made = jax.make_jaxpr(function, return_shape=True)(*arguments)
    structure = tree_structure(made)
    count = len(tree_flatten(arguments)[0])

    def call(*given: Any) -> Any:
        leaves = tree_flatten(given)[0]
        program = ClosedJaxpr(closed.jaxpr, leaves[count:])
        return tree_unflatten(structure, jaxpr_as_fun(program)(*leaves[:count]))

    return call, [jnp.asarray(one) for one in closed.consts]


@dataclass(frozen=True)
class _Form:
    """The leaves of a loop's state: shapes and types, and the places of the leaves that are not saved (`filled`)."""

    leaves: tuple[tuple[tuple[int, ...], Any], ...]
    filled: frozenset[int]

    def saved(self, leaves: list[Any]) -> list[Any]:
        return [leaf for place, leaf in enumerate(leaves) if place not in self.filled]

    def filled_of(self, leaves: list[Any]) -> dict[int, Any]:
        return {place: leaves[place] for place in sorted(self.filled)}


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _while(
    tape: Tape, cond: Any, body: Any, form: _Form, leaves: list[Any], held: list[Any], held_cond: list[Any]
) -> Any:
    def step(carried: Any) -> Any:
        count, leaves = carried
        return count + 1, body(leaves, *held)

    return lax.while_loop(lambda at: cond(*at, *held_cond), step, (jnp.zeros((), jnp.int32), leaves))[1]


def _while_forward(tape: Tape, cond: Any, body: Any, form: _Form, leaves: Any, held: Any, held_cond: Any) -> Any:
    reached = [leaf.perturbed and _is_real(leaf.value) for leaf in leaves]
    used = [leaf.perturbed and _is_real(leaf.value) for leaf in held]
    leaves, held, held_cond = ([leaf.value for leaf in some] for some in (leaves, held, held_cond))
    run, leaves = _begin(tape, leaves)

    def step(carried: Any) -> Any:
        run, count, leaves = carried
        (run,) = _call("tierflow_save", tape, [_RUN], run, *form.saved(leaves))
        return run, count + 1, body(leaves, *held)

    start = (run, jnp.zeros((), jnp.int32), leaves)
    run, count, end = lax.while_loop(lambda at: cond(*at[1:], *held_cond), step, start)
    reached = _reached(body, end, held, reached, used)
    # A residual can have only arrays and structure, so flags are marks in the structure.
    return end, (run, count, form.filled_of(end), held, _marks(reached), _marks(used))


def _marks(true: list[bool]) -> list[Any]:
    return [() if one else None for one in true]


def _reached(body: Any, leaves: list[Any], held: list[Any], reached: list[bool], used: list[bool]) -> list[bool]:
    """Returns the flags of the leaves that have a gradient: those that depend, after any number of steps, on differentiable leaves of
    `reached` and `used`."""
    while (now := _reached_once(body, leaves, held, reached, used)) != reached:
        reached = now
    return reached


def _reached_once(body: Any, leaves: list[Any], held: list[Any], reached: list[bool], used: list[bool]) -> list[bool]:
    found: list[bool] = []

    @jax.custom_jvp
    def look(after: list[Any]) -> list[Any]:
        return after

    def looked(primals: Any, tangents: Any) -> Any:
        found[:] = [not isinstance(tangent, SymbolicZero) for tangent in tangents[0]]
        return primals[0], tangents[0]

    def after(some: list[Any], more: list[Any]) -> list[Any]:
        seen: list[Any] = look(_real(body(_put(leaves, reached, some), *_put(held, used, more))))
        return seen

    look.defjvp(looked, symbolic_zeros=True)
    # `jax.jvp` would refuse functions that have gradients only in reverse mode.
    jax.eval_shape(lambda: jax.linearize(after, _picked(leaves, reached), _picked(held, used))[0])
    real = iter(found or [False] * len(leaves))
    return [_is_real(leaf) and (next(real) or was) for leaf, was in zip(leaves, reached, strict=True)]


def _picked(leaves: list[Any], which: list[bool]) -> list[Any]:
    return [leaf for leaf, one in zip(leaves, which, strict=True) if one]


def _put(leaves: list[Any], which: list[bool], some: list[Any]) -> list[Any]:
    given = iter(some)
    return [next(given) if one else leaf for leaf, one in zip(leaves, which, strict=True)]


def _while_back(tape: Tape, cond: Any, body: Any, form: _Form, residual: Any, bars: list[Any]) -> Any:
    run, count, full, held, reached, used = residual
    reached, used = ([mark is not None for mark in marks] for marks in (reached, used))
    saved = form.saved([jax.ShapeDtypeStruct(*one) for one in form.leaves])
    (run,) = _call("tierflow_rewind", tape, [_RUN], run)

    def back(carried: Any) -> Any:
        run, count, some_bar, held_bar = carried
        run, *loaded = _call("tierflow_load", tape, [_RUN, *saved], run)
        given = iter(loaded)
        leaves = [full[place] if place in full else next(given) for place in range(len(bars))]

        def forward(some: list[Any], more: list[Any]) -> list[Any]:
            return _picked(body(_put(leaves, reached, some), *_put(held, used, more)), reached)

        _, pull = jax.vjp(forward, _picked(leaves, reached), _picked(held, used))
        some_bar, more = pull(some_bar)
        return run, count - 1, some_bar, tree_map(jnp.add, held_bar, more)

    some_bar = [jnp.zeros(b.shape, b.dtype) if isinstance(b, SymbolicZero) else b for b in _picked(bars, reached)]
    start = (run, count, some_bar, [jnp.zeros_like(one) for one in _picked(held, used)])
    _, _, some_bar, held_bar = lax.while_loop(lambda at: at[1] > 0, back, start)
    nothing = [None] * len(bars), [None] * len(held)
    return _put(nothing[0], reached, some_bar), _put(nothing[1], used, held_bar), None


_while.defvjp(_while_forward, _while_back, symbolic_zeros=True)


def _is_real(leaf: Any) -> bool:
    """Returns true if a leaf can have a gradient."""
    return leaf is None or bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _real(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(tree)[0] if _is_real(leaf)]


def _merged(leaves: list[Any], real: list[Any]) -> list[Any]:
    """Returns `leaves`, with the leaves that can have a gradient replaced by those of `real`."""
    given = iter(real)
    return [next(given) if _is_real(leaf) else leaf for leaf in leaves]
