"""Saves the state of a training in an engine at regular steps, and loads it when the training begins again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .._attempts import PeriodicAttempts, log
from .._engine import Engine
from .._errors import ArgumentError

__all__ = ["AsyncCheckpointer", "random_state", "set_random_state"]


def random_state() -> dict[str, Any]:
    """Returns the states of the random generators of Python, NumPy and PyTorch, as a tree."""
    state = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: Mapping[str, Any]) -> None:
    """Sets the random generators to a state that `random_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def states_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part.state_dict() for name, part in parts.items()}


class AsyncCheckpointer(PeriodicAttempts):
    """Saves the state of a training to `engine` every `every` steps, and resumes from the newest state.

        checkpointer = AsyncCheckpointer(engine, every=100, model=model, optimizer=optimizer, sampler=sampler)
        for step in range(checkpointer.resume(), steps):
            ...
            checkpointer.step(step)

    Each of `parts`, which are named by their keywords, has `state_dict` and `load_state_dict`. The states of the random generators of Python,
    NumPy and PyTorch are saved, too. `step` returns when the engine has copied the state. The state becomes durable beside the next steps, and
    `engine.wait()`, or the end of the engine, waits for that.

    A save that fails, or that waits for room for longer than `timeout` seconds, does not end the training: it is logged, `failures` counts
    it, and `failure` is its error. With `raises` it is raised. An error that keeps the engine from making a state durable is logged, and
    `engine.wait()` raises it. `pickle` is for states that are no trees: see `Engine.save`.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        every: int,
        raises: bool = False,
        timeout: float | None = 60.0,
        pickle: bool = False,
        **parts: Any,
    ) -> None:
        super().__init__(engine, every=every, raises=raises, timeout=timeout)
        self._pickle, self._parts = pickle, parts

    def resume(self) -> int:
        """Loads the newest state that can be loaded. Returns the next step: 0 if there is no state yet."""
        found = self._engine.load_latest(pickle=self._pickle)
        if found is None:
            return 0
        version, tree = found
        if missing := self._parts.keys() - tree["parts"].keys():
            raise ArgumentError(
                f"version {version} has no state of {', '.join(sorted(missing))}: resume by a checkpointer without it, and save by one with it"
            )
        for name, part in self._parts.items():
            part.load_state_dict(tree["parts"][name])
        set_random_state(tree["random"])
        log.info("goes on behind step %d, from version %d", tree["step"], version)
        return int(tree["step"]) + 1

    def step(self, step: int) -> bool:
        """Saves the state if `step` is one to save: call this at the end of each step. Returns true if it saved the state."""
        return (step + 1) % self._every == 0 and self.save(step)

    def save(self, step: int) -> bool:
        """Saves the state at the end of `step`. Returns false if that failed."""
        return self._save(
            step,
            lambda: {"step": step, "parts": states_of(self._parts), "random": random_state()},
            pickle=self._pickle,
        )
