"""JAX's pytrees in an engine, with the shardings of their arrays, and a checkpointer for trainings."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_flatten_with_path, tree_unflatten

from ._attempts import PeriodicAttempts
from ._engine import Engine, Repository
from ._errors import ArgumentError
from ._tree import dtype_of

__all__ = ["AsyncCheckpointer", "load", "save"]


def save(engine: Engine, version: int, tree: Any, *, timeout: float | None = None) -> None:
    """Saves a pytree `tree` of any registered kind in `engine` as `version`: Equinox's modules, Flax's and Optax's states, and plain containers.

    The leaves are those of `Engine.save`, and keys of random generators. Each leaf is a region named after its path, such as
    "['layers'][0].weight". An array with parts on several devices of this process is saved whole. Raises `TimedOutError` if there is no room
    for `timeout` seconds.
    """
    engine.save(version, _named(tree), timeout=timeout)


def load(source: Engine | Repository, version: int, like: Any) -> Any:
    """Returns the pytree of a `version` of `source` with the structure of `like`, whose arrays may be `jax.ShapeDtypeStruct`s.

    Each array gets the sharding of its counterpart in `like`, for example of another mesh. Without a sharding there, it is on the default
    device.
    """
    return _like(version, source.load(version, plain=True), like)


class AsyncCheckpointer(PeriodicAttempts):
    """Saves the state of a training to `engine` every `every` steps, and resumes from the newest state.

        checkpointer = tierflow.jax.AsyncCheckpointer(engine, every=100)
        first, state = checkpointer.resume(state)
        for step in range(first, steps):
            state = update(state)
            checkpointer.step(step, state)

    A save that fails, or that waits for room for longer than `timeout` seconds, does not end the training: it is logged, `failures` counts it, and
    `failure` is its error. With `raises` it is raised.
    """

    def resume(self, like: Any) -> tuple[int, Any]:
        """Returns the next step, and the newest state that can be loaded, with the shardings of `like`; 0 and `like` if there is no state yet."""
        found = self._engine.load_latest(plain=True)
        if found is None:
            return 0, like
        state, step = _like(*found, (like, 0))
        return step + 1, state

    def step(self, step: int, state: Any) -> bool:
        """Saves `state` if `step` is one to save: call this at the end of each step. Returns true if it saved the state."""
        return (step + 1) % self._every == 0 and self._save(step, lambda: _named((state, step)))


def _named(tree: Any) -> dict[str, Any]:
    """Returns the leaves of a pytree by their paths."""
    leaves, _ = tree_flatten_with_path(tree)
    named: dict[str, Any] = {}
    for path, x in leaves:
        if (name := keystr(path)) in named:
            raise ArgumentError(f"two leaves have the path {name}: give the keys different texts (repr)")
        named[name] = _key(x) if _is_key(x) else x
    return named


def _like(version: int, saved: Any, like: Any) -> Any:
    leaves, structure = tree_flatten_with_path(like)
    names = [keystr(path) for path, _ in leaves]
    if not isinstance(saved, dict) or set(saved) != set(names):
        differ = sorted(set(saved) ^ set(names)) if isinstance(saved, dict) else ["all"]
        raise ArgumentError(f"version {version} and like= differ in leaves: {', '.join(differ[:8])}")
    laid_out = [_laid_out(name, saved[name], x) for name, (_, x) in zip(names, leaves, strict=True)]
    return tree_unflatten(structure, laid_out)


def _key(leaf: Any) -> dict[str, Any]:
    return {"random key": jax.random.key_data(leaf), "kind": str(jax.random.key_impl(leaf))}


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _laid_out(name: str, saved: Any, like: Any) -> Any:
    is_key = isinstance(saved, dict)
    if is_key is not _is_key(like):
        kinds = "something else", "a key of a random generator"
        raise ArgumentError(f"{name} is {kinds[is_key]}, and in like= {kinds[not is_key]}")
    if is_key:
        return jax.random.wrap_key_data(jnp.asarray(saved["random key"]), impl=saved["kind"])
    if not hasattr(like, "shape") or not hasattr(saved, "shape"):
        if np.shape(saved) != np.shape(like):
            raise ArgumentError(f"{name} is of shape {np.shape(saved)}, and in like= of shape {np.shape(like)}")
        return saved
    if (dtype_of(saved), saved.shape) != (dtype_of(like), like.shape):
        raise ArgumentError(
            f"{name} is {dtype_of(saved)} of shape {saved.shape}, and in like= {dtype_of(like)} of shape {like.shape}"
        )
    if isinstance(like, np.ndarray | np.generic):
        return saved
    sharding = getattr(like, "sharding", None)
    made = jnp.asarray(saved) if sharding is None else jax.device_put(saved, sharding)
    if made.dtype != saved.dtype:
        raise ArgumentError(f"{name} is {dtype_of(saved)}, and JAX makes it {made.dtype}: set jax_enable_x64")
    return made
