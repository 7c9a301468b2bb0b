"""The gradient of full waveform inversion, with the whole wavefield in memory, in Tierflow, in one `.npy` a time step, or recomputed.

python devito_gradient.py                                    # Tierflow
python devito_gradient.py --ways memory tierflow npy pyrevolve --image image.pgm

The image is a slice of the gradient, of which the reflector is what reverse time migration shows. All ways give the same bits.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from devito import Buffer, Eq, Function, Grid, Operator, SparseTimeFunction, TimeFunction, configuration, solve

import tierflow

configuration["log-level"] = "WARNING"


class Shot:
    """A source at the top, receivers beside it, and a reflector below that the model does not know of."""

    def __init__(self, cells: int, steps: int, spacing: float = 10.0) -> None:
        self.steps = steps
        self.grid = Grid(shape=(cells,) * 3, extent=((cells - 1) * spacing,) * 3, dtype=np.float32)
        self.dt = np.float32(0.4 * spacing / 2500)
        speed = np.full(self.grid.shape, 1500, np.float32)
        self.smooth = self._squared("smooth", speed)
        speed[:, :, cells // 2 :] = 2500
        self.true = self._squared("true", speed)
        self.damping = Function(name="damping", grid=self.grid)
        self.damping.data[:] = self._border(cells)
        middle = (cells - 1) * spacing / 2
        self.source = SparseTimeFunction(name="source", grid=self.grid, npoint=1, nt=steps)
        self.source.coordinates.data[:] = [middle, middle, 6 * spacing]
        phase = (np.pi * 12 * (np.arange(steps) * self.dt - 1 / 12)) ** 2
        self.source.data[:, 0] = 1000 * (1 - 2 * phase) * np.exp(-phase)
        self.where = np.full((cells, 3), middle, np.float32)
        self.where[:, 0] = np.linspace(spacing, (cells - 2) * spacing, cells)
        self.where[:, 2] = 6 * spacing
        self.seen = self.receivers("seen")
        field = TimeFunction(name="w", grid=self.grid, time_order=2, space_order=8)
        self.forward(field, self.seen, self.true).apply(time_M=steps - 2, dt=self.dt)
        self.back = TimeFunction(name="v", grid=self.grid, time_order=2, space_order=8)
        self.gradient = Function(name="gradient", grid=self.grid)

    def _squared(self, name: str, speed: Any) -> Any:
        slowness = Function(name=name, grid=self.grid, space_order=8)
        slowness.data[:] = 1 / (speed / 1000) ** 2 / 1e6
        return slowness

    @staticmethod
    def _border(cells: int) -> Any:
        depth = np.minimum(np.arange(cells), np.arange(cells)[::-1])
        layer = np.clip((10 - depth) / 10, 0, 1)
        return np.maximum.reduce(np.meshgrid(layer, layer, layer, indexing="ij")).astype(np.float32) * 2e-5

    def receivers(self, name: str) -> Any:
        receivers = SparseTimeFunction(name=name, grid=self.grid, npoint=len(self.where), nt=self.steps)
        receivers.coordinates.data[:] = self.where
        return receivers

    def forward(self, u: Any, receivers: Any, slowness: Any) -> Any:
        equation = slowness * u.dt2 - u.laplace + self.damping * u.dt
        terms = [Eq(u.forward, solve(equation, u.forward))]
        terms += self.source.inject(field=u.forward, expr=self.source * self.dt**2 / slowness)
        terms += receivers.interpolate(expr=u)
        return Operator(terms, name="forward")

    def reverse(self, u: Any, residual: Any) -> Any:
        v = self.back
        equation = self.smooth * v.dt2 - v.laplace - self.damping * v.dt
        terms = [Eq(v.backward, solve(equation, v.backward))]
        terms += residual.inject(field=v.backward, expr=residual * self.dt**2 / self.smooth)
        terms += [Eq(self.gradient, self.gradient - u.dt2 * v)]
        return Operator(terms, name="reverse")

    def computed(self, way: Callable[..., None], **field: Any) -> tuple[Any, float]:
        """The gradient, and how long it took."""
        u = TimeFunction(name="u", grid=self.grid, time_order=2, space_order=8, **field)
        receivers = self.receivers("receivers")
        residual = self.receivers("residual")
        forward, reverse = self.forward(u, receivers, self.smooth), self.reverse(u, residual)
        # What is compiled is compiled now.
        forward.cfunction, reverse.cfunction  # noqa: B018
        u.data[:], self.back.data[:], self.gradient.data[:] = 0, 0, 0

        def misfit() -> None:
            residual.data[:] = receivers.data - self.seen.data

        begun = time.perf_counter()
        way(u, forward, misfit, reverse)
        return np.array(self.gradient.data), time.perf_counter() - begun


def in_memory(shot: Shot) -> Any:
    def way(u: Any, forward: Any, misfit: Any, reverse: Any) -> None:
        forward.apply(time_M=shot.steps - 2, dt=shot.dt)
        misfit()
        reverse.apply(time_m=1, time_M=shot.steps - 2, dt=shot.dt)

    return shot.computed(way, save=shot.steps)


def in_tierflow(shot: Shot, buffer: int, **tiers: Any) -> Any:
    def way(u: Any, forward: Any, misfit: Any, reverse: Any) -> None:
        with tierflow.Engine(device="host", after_restore="discard", **tiers) as engine:
            history = tierflow.devito.History(engine, u)
            history.forward(forward, time_M=shot.steps - 2, dt=shot.dt)
            misfit()
            history.reverse(reverse, dt=shot.dt)

    return shot.computed(way, save=Buffer(buffer))


def in_files(shot: Shot, buffer: int, directory: Path) -> Any:
    class Files:
        """What `History` asks of an engine, by `np.save` and `np.load`."""

        def hint(self, versions: Any) -> None:
            pass

        def checkpoint(self, version: int, array: Any) -> None:
            np.save(directory / f"{version}.npy", array)

        def restore(self, version: int, array: Any) -> None:
            array[...] = np.load(directory / f"{version}.npy")

    def way(u: Any, forward: Any, misfit: Any, reverse: Any) -> None:
        history = tierflow.devito.History(Files(), u)
        history.forward(forward, time_M=shot.steps - 2, dt=shot.dt)
        misfit()
        history.reverse(reverse, dt=shot.dt)

    return shot.computed(way, save=Buffer(buffer))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=72)
    parser.add_argument("--steps", type=int, default=386)
    parser.add_argument("--buffer", type=int, default=34, help="time steps that the wavefield itself holds")
    parser.add_argument("--device-cache", default="64MiB")
    parser.add_argument("--host-cache", default="512MiB")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--ways", nargs="*", choices=["memory", "tierflow", "npy", "pyrevolve"], default=["tierflow"])
    parser.add_argument("--snapshots", type=int, default=20, help="of pyrevolve")
    parser.add_argument("--image", type=Path)
    options = parser.parse_args()
    shot = Shot(options.cells, options.steps)
    first = None
    for way in options.ways:
        if way == "memory":
            gradient, seconds = in_memory(shot)
        elif way == "tierflow":
            tiers = {"device_cache": options.device_cache, "host_cache": options.host_cache, "scratch": options.scratch}
            gradient, seconds = in_tierflow(shot, options.buffer, **tiers)
        elif way == "npy":
            with tempfile.TemporaryDirectory(dir=options.scratch) as directory:
                gradient, seconds = in_files(shot, options.buffer, Path(directory))
        else:
            gradient, seconds = recomputed(shot, options.snapshots)
        first = gradient if first is None else first
        same = "the same bits" if np.array_equal(gradient, first) else f"off by {np.abs(gradient - first).max():.1e}"
        print(f"{way:>9}: {seconds:6.2f} s, the gradient's largest is {np.abs(gradient).max():.6e}, {same}", flush=True)
    if options.image and first is not None:
        image = first[:, options.cells // 2, :].T
        scaled = np.clip(128 + 127 * image / np.percentile(np.abs(image), 98), 0, 255).astype(np.uint8)
        options.image.write_bytes(b"P5 %d %d 255\n" % scaled.shape[::-1] + scaled.tobytes())


def recomputed(shot: Shot, snapshots: int) -> Any:
    from devito import CheckpointOperator, DevitoCheckpoint, Revolver

    def way(u: Any, forward: Any, misfit: Any, reverse: Any) -> None:
        class Reverse(CheckpointOperator):
            """Its data are those of the residual, which is known once the forward is over."""

            begun = False

            def apply(self, t_start: int, t_end: int) -> None:
                if not self.begun:
                    self.begun = True
                    misfit()
                super().apply(t_start, t_end)

        checkpoint = DevitoCheckpoint([u])
        ahead = CheckpointOperator(forward, dt=shot.dt)
        back = Reverse(reverse, dt=shot.dt)
        revolver = Revolver(checkpoint, ahead, back, snapshots, shot.steps - 2)
        revolver.apply_forward()
        revolver.apply_reverse()

    return shot.computed(way)


if __name__ == "__main__":
    main()
