"""An adjoint for diffrax that keeps the steps of a solve in an engine until the gradient.

    adjoint = tierflow.diffrax.TierflowAdjoint(tierflow.Tape(engine))
    solution = diffrax.diffeqsolve(terms, solver, t0, t1, dt0, y0, args, adjoint=adjoint, ...)

`TierflowAdjoint` does the work of a `diffrax.RecursiveCheckpointAdjoint` that keeps every step, and computes each step once more for the
step's own gradient. The device holds one step, whatever the number of steps, which may be unbounded (`max_steps=None`). The device also
holds the values that `saveat` asks for, as with diffrax's own adjoints.

The gradients have no forward mode, no second derivatives, and no `jax.vmap` over the solve: see `tierflow.jax.while_loop`.
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
        """Runs the solve. diffrax calls this method."""
        del throw, passed_solver_state, passed_controller_state
        return self._loop(
            terms=terms,
            saveat=saveat,
            init_state=init_state,
            max_steps=max_steps,
            # Loops within a step save nothing in the engine: they are a part of the step.
            inner_while_loop=partial(_while_loop, kind="checkpointed"),
            outer_while_loop=partial(_outer, self.tape),
            **kwargs,
        )


def _rewrite() -> Any:
    """Returns a private function of equinox 0.13."""
    try:
        from equinox.internal._loop.common import common_rewrite
    except ImportError as missing:
        raise ImportError(
            "tierflow.diffrax rewrites loops as equinox 0.13 does, which this one does not: pip install 'equinox==0.13.*'"
        ) from missing
    return common_rewrite


_common_rewrite = _rewrite()


def _outer(tape: Tape, cond: Any, body: Any, init: Any, *, max_steps: int | None, buffers: Any) -> Any:
    """Runs the loop over the steps, rewritten as equinox rewrites its own loops, so that the buffers of `saveat` are filled in place."""
    cond, body, init, buffers = _common_rewrite(cond, body, init, max_steps, buffers, makes_false_steps=False)
    end = while_loop(tape, cond, body, init, buffers=buffers(None))
    return end[-1]
