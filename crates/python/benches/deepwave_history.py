"""Measures the gradient of a 3-D propagation of Deepwave, with its history on the device, in host memory, on a disk, and in an engine.

python deepwave_history.py                          # on a GPU: 256³ cells, 1 200 steps, a gradient each 8th step, 11.6 GiB
python deepwave_history.py --cells 32 --steps 80    # to try it on a processor

Every way runs the same shots. Each shot's gradient must have the same bits as that of the first way, except for shots that share a
model on a processor, and for Deepwave's own ways.
"""

import argparse
import contextlib
import gc
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import deepwave
import torch

import tierflow
import tierflow.deepwave

GIB = 1 << 30


class Shot:
    """A gradient of a model, for a batch of shots."""

    def __init__(self, of: argparse.Namespace, device: torch.device) -> None:
        cells, shots = of.cells, of.shots
        generator = torch.Generator().manual_seed(1)
        noise = torch.rand((cells,) * 3, generator=generator).to(device)
        scale = 1 + 0.1 * noise
        if of.propagator == "elastic":
            self.models = [5e9 * scale, 2e9 * scale, 1 / (2200 * scale)]
        else:
            self.models = [1500 * scale]
        for model in self.models:
            model.requires_grad_()
        wavelet = deepwave.wavelets.ricker(15, of.steps, 0.001, 0.1).to(device)
        places = torch.randint(2, cells - 2, (shots, 64, 3), generator=generator, device="cpu").to(device)
        suffix = "_y" if of.propagator == "elastic" else ""
        self.arguments: dict[str, Any] = {
            f"source_amplitudes{suffix}": wavelet.repeat(shots, 1, 1),
            f"source_locations{suffix}": places[:, :1],
            f"receiver_locations{suffix}": places,
            "grid_spacing": 10.0,
            "dt": 0.001,
            "pml_freq": 15.0,
            "pml_width": of.pml,
            "model_gradient_sampling_interval": of.every,
            "accuracy": 4,
        }
        self.call = getattr(deepwave, of.propagator)
        self.device = device

    def gradients(self, **options: Any) -> tuple[list[torch.Tensor], float]:
        """Returns the gradients, and their times in seconds."""
        for model in self.models:
            model.grad = None
        self.wait()
        begun = time.perf_counter()
        out = self.call(*self.models, **self.arguments, **options)
        out[-1].square().sum().backward()
        self.wait()
        took = time.perf_counter() - begun
        return [model.grad.clone() for model in self.models if model.grad is not None], took

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--propagator", default="scalar", choices=["scalar", "elastic"])
    parser.add_argument("--cells", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--shots", type=int, default=1)
    parser.add_argument("--pml", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--device-cache", default="1GiB")
    parser.add_argument("--host-cache", default="16GiB")
    parser.add_argument("--chunk", default="256MiB")
    parser.add_argument(
        "--disk", default=None, help="a directory: below a host cache of a quarter, and for Deepwave's own way"
    )
    parser.add_argument("--ways", nargs="*", default=None)
    given = parser.parse_args()
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    shot = Shot(given, device)
    directory = tempfile.TemporaryDirectory(dir=given.disk)
    quarter = tierflow._tierflow.number_of_bytes(given.host_cache) // 4
    name = f"cuda:{device.index}" if device.type == "cuda" else "host"

    @contextlib.contextmanager
    def history(beside: bool, **caches: Any) -> Iterator[None]:
        with (
            tierflow.Engine(device=name, after_restore="discard", **caches) as engine,
            tierflow.deepwave.history(engine, chunk=given.chunk, beside=beside),
        ):
            yield

    both = {"device_cache": given.device_cache, "host_cache": given.host_cache}
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "Deepwave, device": (contextlib.nullcontext, {}),
        "Deepwave, cpu": (contextlib.nullcontext, {"storage_mode": "cpu"}),
        "Deepwave, disk": (contextlib.nullcontext, {"storage_mode": "disk", "storage_path": directory.name}),
        "recomputed in 5 segments": (contextlib.nullcontext, {"checkpoint_segments": 5}),
        "Tierflow, in place": (lambda: history(False, **both), {}),
        "Tierflow, beside": (lambda: history(True, host_cache=given.host_cache), {}),
        "Tierflow, beside, disk": (lambda: history(True, host_cache=quarter, scratch=directory.name), {}),
    }
    print(f"{given}\n{'way':28} {'first s':>8} {'median s':>9} {'least':>7} {'most':>7} {'GiB':>6} equal")
    wanted: list[torch.Tensor] | None = None
    for way, (context, options) in ways.items():
        if given.ways and not any(part in way for part in given.ways):
            continue
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        free = torch.cuda.mem_get_info()[0] if device.type == "cuda" else 0
        peak, times, equal = 0.0, [], True
        with context():
            for _ in range(given.repeats):
                gradients, took = shot.gradients(**options)
                times.append(took)
                if wanted is None:
                    wanted = gradients
                equal &= all(torch.equal(one, other) for one, other in zip(gradients, wanted, strict=True))
                if device.type == "cuda":
                    peak = max(peak, (free - torch.cuda.mem_get_info()[0]) / GIB)
        rest = times[1:] or times
        print(
            f"{way:28} {times[0]:8.3f} {statistics.median(rest):9.3f} {min(rest):7.3f} {max(rest):7.3f} {peak:6.2f} {equal}",
            flush=True,
        )


if __name__ == "__main__":
    main()
