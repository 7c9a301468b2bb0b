"""The gradient of full waveform inversion, with the wavefield in memory, in Tierflow, in a `.npy` file for each time step, or recomputed.

python devito_gradient.py                                    # Tierflow
python devito_gradient.py --ways memory tierflow npy pyrevolve snapshots --image image.pgm

The image is a slice of the gradient. The reflector in it is the result of reverse time migration. All ways give the same bits.
"""

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from devito import (
    Buffer,
    Eq,
    Function,
    Grid,
    Operator,
    SparseTimeFunction,
    TimeFunction,
    configuration,
    solve,
)

import tierflow

configuration["log-level"] = "WARNING"


class Shot:
    """A source at the top, receivers beside it, and a reflector below, which the model does not have.

    With `tilted`, waves run faster along layers that dip to all sides. The nested derivatives take several times as long.
    """

    def __init__(self, cells: int, steps: int, spacing: float = 10.0, *, tilted: bool = False) -> None:
        self.steps = steps
        self.grid = Grid(shape=(cells,) * 3, extent=((cells - 1) * spacing,) * 3, dtype=np.float32)
        self.dt = np.float32(0.4 * spacing / 2500)
        speed = np.full(self.grid.shape, 1500, np.float32)
        self.smooth = self._squared("smooth", speed)
        speed[:, :, cells // 2 :] = 2500
        self.true = self._squared("true", speed)
        self.damping = Function(name="damping", grid=self.grid)
        self.damping.data[:] = self._border(cells)
        self.axis: list[Any] = []
        if tilted:
            dip = np.linspace(0, np.pi / 4, cells, dtype=np.float32)
            azimuth = np.linspace(0, np.pi, cells, dtype=np.float32)[:, None, None]
            # Functions of their own, as an operator would compute values that a step does not change anew in each block.
            for name, data in (
                ("along_x", np.sin(dip) * np.cos(azimuth)),
                ("along_y", np.sin(dip) * np.sin(azimuth)),
                ("along_z", np.cos(dip)),
            ):
                self.axis.append(Function(name=name, grid=self.grid, space_order=8))
                self.axis[-1].data[:] = data
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

    def _spread(self, u: Any) -> Any:
        if not self.axis:
            return u.laplace
        x, y, z = self.axis
        along = x * u.dx + y * u.dy + z * u.dz
        return 1.2 * u.laplace - 0.2 * ((x * along).dx + (y * along).dy + (z * along).dz)

    def forward(self, u: Any, receivers: Any, slowness: Any) -> Any:
        equation = slowness * u.dt2 - self._spread(u) + self.damping * u.dt
        terms = [Eq(u.forward, solve(equation, u.forward))]
        terms += self.source.inject(field=u.forward, expr=self.source * self.dt**2 / slowness)
        terms += receivers.interpolate(expr=u)
        return Operator(terms, name="forward")

    def reverse(self, u: Any, v: Any, residual: Any, gradient: Any) -> Any:
        equation = self.smooth * v.dt2 - self._spread(v) - self.damping * v.dt
        terms = [Eq(v.backward, solve(equation, v.backward))]
        terms += residual.inject(field=v.backward, expr=residual * self.dt**2 / self.smooth)
        terms += [Eq(gradient, gradient - u.dt2 * v)]
        return Operator(terms, name="reverse")


class Gradient:
    """Fields and compiled operators of a shot's gradient. `save` says how the wavefield is stored."""

    def __init__(self, shot: Shot, save: Any = None) -> None:
        self.shot = shot
        fields = {"grid": shot.grid, "time_order": 2, "space_order": 8}
        self.u = TimeFunction(name="u", save=save, **fields)
        self.back = TimeFunction(name="v", **fields)
        self.gradient = Function(name="gradient", grid=shot.grid)
        self.receivers, self.residual = shot.receivers("receivers"), shot.receivers("residual")
        self.forward = shot.forward(self.u, self.receivers, shot.smooth)
        self.reverse = shot.reverse(self.u, self.back, self.residual, self.gradient)
        self.forward.cfunction, self.reverse.cfunction  # noqa: B018
        self.last = shot.steps - 2

    def misfit(self) -> None:
        self.residual.data[:] = self.receivers.data - self.shot.seen.data

    def computed(self, way: Callable[["Gradient"], None]) -> tuple[Any, float]:
        """Returns the gradient and its time in seconds."""
        self.u.data[:], self.back.data[:], self.gradient.data[:] = 0, 0, 0
        begun = time.perf_counter()
        way(self)
        return np.array(self.gradient.data), time.perf_counter() - begun


def in_memory(of: Gradient) -> None:
    of.forward.apply(time_M=of.last, dt=of.shot.dt)
    of.misfit()
    of.reverse.apply(time_m=1, time_M=of.last, dt=of.shot.dt)


def in_history(of: Gradient, engine: Any, first: int = 0) -> None:
    history = tierflow.devito.History(engine, of.u, first=first)
    history.forward(of.forward, time_M=of.last, dt=of.shot.dt)
    of.misfit()
    history.reverse(of.reverse, dt=of.shot.dt)


class Unhinted(tierflow.Engine):
    """A history without hints."""

    def hint(self, versions: Any) -> None:
        pass


class Files:
    """The methods of an engine that `History` uses, by `np.save` and `np.load`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def hint(self, versions: Any) -> None:
        pass

    def checkpoint(self, version: int, array: Any) -> None:
        np.save(self.directory / f"{version}.npy", array)

    def restore(self, version: int, array: Any) -> None:
        array[...] = np.load(self.directory / f"{version}.npy")


def recomputed(of: Gradient, snapshots: int, engine: tierflow.Engine | None = None, first: int = 0) -> None:
    """Computes the gradient by pyrevolve, which keeps its snapshots in its own memory or in an engine."""
    from devito import CheckpointOperator, DevitoCheckpoint
    from pyrevolve import SingleLevelRevolver

    class Reverse(CheckpointOperator):
        """The reverse operator. The data are the residual, which is known once the forward pass is over."""

        begun = False

        def apply(self, t_start: int, t_end: int) -> None:
            if not self.begun:
                self.begun = True
                of.misfit()
            super().apply(t_start, t_end)

    ahead, back = CheckpointOperator(of.forward, dt=of.shot.dt), Reverse(of.reverse, dt=of.shot.dt)
    plan = (DevitoCheckpoint([of.u]), ahead, back, snapshots, of.last)
    if engine is None:
        revolver = SingleLevelRevolver(*plan)
    else:
        revolver = tierflow.pyrevolve.Revolver(engine, *plan, first=first)
    revolver.apply_forward()
    revolver.apply_reverse()
    if engine is not None:
        revolver.storage.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=72)
    parser.add_argument("--steps", type=int, default=386)
    parser.add_argument("--tilted", action="store_true", help="an operator that takes several times as long")
    parser.add_argument("--buffer", type=int, default=34, help="time steps that the wavefield itself holds")
    parser.add_argument("--device-cache", default="64MiB")
    parser.add_argument("--host-cache", default="512MiB")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    ways = ["memory", "tierflow", "unhinted", "npy", "pyrevolve", "snapshots"]
    parser.add_argument(
        "--ways", nargs="*", choices=ways, default=["tierflow"], help="snapshots: pyrevolve's in Tierflow"
    )
    parser.add_argument("--snapshots", type=int, default=20, help="of pyrevolve")
    parser.add_argument("--image", type=Path)
    options = parser.parse_args()
    shot = Shot(options.cells, options.steps, tilted=options.tilted)
    tiers: Any = {"device_cache": options.device_cache, "host_cache": options.host_cache, "scratch": options.scratch}
    first = None
    for way in options.ways:
        with contextlib.ExitStack() as ends:
            run: Callable[[Gradient], None]
            if way == "memory":
                save, run = shot.steps, in_memory
            elif way in ("tierflow", "unhinted"):
                kind = Unhinted if way == "unhinted" else tierflow.Engine
                engine = ends.enter_context(kind(device="host", after_restore="discard", **tiers))
                save, run = Buffer(options.buffer), lambda of, engine=engine: in_history(of, engine)
            elif way == "npy":
                files = Files(Path(ends.enter_context(tempfile.TemporaryDirectory(dir=options.scratch))))
                save, run = Buffer(options.buffer), lambda of, files=files: in_history(of, files)
            else:
                engine = ends.enter_context(tierflow.Engine(device="host", **tiers)) if way == "snapshots" else None
                save, run = None, lambda of, engine=engine: recomputed(of, options.snapshots, engine)
            gradient, seconds = Gradient(shot, save).computed(run)
        first = gradient if first is None else first
        same = "the same bits" if np.array_equal(gradient, first) else f"off by {np.abs(gradient - first).max():.1e}"
        print(f"{way:>9}: {seconds:6.2f} s, the gradient's largest is {np.abs(gradient).max():.6e}, {same}", flush=True)
    if options.image and first is not None:
        image = first[:, options.cells // 2, :].T
        scaled = np.clip(128 + 127 * image / np.percentile(np.abs(image), 98), 0, 255).astype(np.uint8)
        options.image.write_bytes(b"P5 %d %d 255\n" % scaled.shape[::-1] + scaled.tobytes())


if __name__ == "__main__":
    main()
