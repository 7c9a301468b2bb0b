"""Differential equations of diffrax whose steps are in an engine between the solve and its gradient.

    adjoint = tierflow.diffrax.TierflowAdjoint(tierflow.Tape(engine))
    solution = diffrax.diffeqsolve(terms, solver, t0, t1, dt0, y0, args, adjoint=adjoint, ...)

It is a `diffrax.RecursiveCheckpointAdjoint` that keeps every step, and computes each of them once more for its own gradient. The
device holds one step, whatever their number, which need not be bounded (`max_steps=None`); what `saveat` asks for is held as ever.

See `tierflow.jax.while_loop` for what its gradients do not have: forward mode, second derivatives, `jax.vmap` over the solve.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import diffrax
import equinox
from equinox.internal import while_loop as _while_loop

from ._tierflow import Tape
from .jax import while_loop

__all__ = ["TierflowAdjoint"]


class TierflowAdjoint(diffrax.AbstractAdjoint):
    """Differentiates the numerical solution ("discretise-then-optimise"), with the states of its steps in the engine of `tape`."""

    tape: Tape = equinox.field(static=True)

    def loop(
        self,
        *,
        terms: Any,
        saveat: Any,
        init_state: Any,
        max_steps: int | None,
        throw: bool,
        passed_solver_state: bool,
        passed_controller_state: bool,
        **kwargs: Any,
    ) -> Any:
        """Runs the solve: diffrax calls it."""
        del throw, passed_solver_state, passed_controller_state
        return self._loop(
            terms=terms,
            saveat=saveat,
            init_state=init_state,
            max_steps=max_steps,
            # What is saved within a step is a part of the step.
            inner_while_loop=partial(_while_loop, kind="checkpointed"),
            outer_while_loop=partial(_outer, self.tape),
            **kwargs,
        )


def _rewrite() -> Any:
    """A private function of equinox 0.13's."""
    try:
        from equinox.internal._loop.common import common_rewrite
    except ImportError as missing:
        raise ImportError(
            "tierflow.diffrax rewrites loops as equinox 0.13 does, which this one does not: pip install 'equinox==0.13.*'"
        ) from missing
    return common_rewrite


_common_rewrite = _rewrite()


def _outer(tape: Tape, cond: Any, body: Any, init: Any, *, max_steps: int | None, buffers: Any) -> Any:
    """The loop over the steps, rewritten as equinox rewrites its own, so that what `saveat` fills is filled in place."""
    cond, body, init, buffers = _common_rewrite(cond, body, init, max_steps, buffers, makes_false_steps=False)
    end = while_loop(tape, cond, body, init, buffers=buffers(None))
    return end[-1]
