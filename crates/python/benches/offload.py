"""Measures time and peak memory of a transformer's training step on a GPU, beside `save_on_cpu` and `torch.utils.checkpoint`.

python offload.py                       # 1.1 B parameters, sequences of 2 k, 8 k and 32 k
python offload.py --lengths 8192 --disk /tmp
python offload.py --few --lengths 2048 8192 --seconds 300    # as many rows as there is time for
"""

import argparse
import contextlib
import gc
import statistics
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import tierflow

GIB = 1 << 30


class Block(nn.Module):
    """A block like Llama's: 32 heads of queries, 8 of keys and values, and a gated feed-forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = width // 64, width // 256, 64
        self.before, self.between = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.mixes = nn.Linear(width, (self.heads + 2 * self.groups) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.cheap = False

    def forward(self, x: Any, turns: Any) -> Any:
        batch, length, width = x.shape
        mixed = self.mixes(functional.rms_norm(x, (width,), self.before))
        mixed = mixed.view(batch, length, -1, self.size).transpose(1, 2)
        q, k, v = mixed.split([self.heads, self.groups, self.groups], dim=1)
        attention = functional.scaled_dot_product_attention(
            turned(q, turns), turned(k, turns), v, is_causal=True, enable_gqa=True
        )
        x = x + self.out(attention.transpose(1, 2).reshape(batch, length, width))
        between = functional.rms_norm(x, (width,), self.between)
        gate, up = self.gate(between), self.up(between)
        # Values that are cheap to compute again need not be saved.
        gated = checkpoint(gated_, gate, up, use_reentrant=False) if self.cheap else gated_(gate, up)
        return x + self.down(gated)


def gated_(gate: Any, up: Any) -> Any:
    return functional.silu(gate) * up


def turned(x: Any, turns: Any) -> Any:
    left, right = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat((-right, left), dim=-1) * turns[1]


class Model(nn.Module):
    def __init__(self, width: int, depth: int, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.last = nn.Parameter(torch.ones(width))
        self.guess = nn.Linear(width, words, bias=False)
        self.recomputed = 0

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        positions = torch.arange(tokens.shape[1], device=x.device)[:, None]
        angles = positions * torch.exp(torch.arange(0, 64, 2, device=x.device) * -0.2878)[None]
        turns = [part.repeat(1, 2).to(x.dtype) for part in (angles.cos(), angles.sin())]
        for index, block in enumerate(self.blocks):
            if index < self.recomputed:
                x = checkpoint(block, x, turns, use_reentrant=False)
            else:
                x = block(x, turns)
        logits = self.guess(functional.rms_norm(x, (x.shape[-1],), self.last))
        return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())


def measured(model: Any, tokens: Any, saving: Any, count: int) -> tuple[float, float]:
    """Returns the milliseconds of a step (median of the last `count`), and the peak memory in GiB."""
    times = []
    # An offload plans by the first steps.
    warm = 18 if isinstance(saving, tierflow.torch.offload) else 3
    for step in range(count + warm):
        if step == warm:
            torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        with saving:
            loss = model(tokens)
        loss.backward()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
        for parameter in model.parameters():
            parameter.grad = None
        del loss
    return 1e3 * statistics.median(times[warm:]), torch.cuda.max_memory_allocated() / GIB


def equal(steps: int) -> None:
    """Runs two trainings side by side, one of which offloads. Compares every gradient of every step, bit for bit."""
    torch.use_deterministic_algorithms(True)
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Model(1024, 4, 8000).to("cuda", torch.bfloat16))
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True) for model in models]
    with tierflow.Engine(device="cuda", host_cache="8GiB") as engine:
        ways = [contextlib.nullcontext(), tierflow.torch.offload(engine, 0)]
        for step in range(steps):
            tokens = torch.randint(8000, (2, 2048), device="cuda")
            for model, optimizer, way in zip(models, optimizers, ways, strict=True):
                optimizer.zero_grad()
                with way:
                    loss = model(tokens)
                loss.backward()
                optimizer.step()
            for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
                assert torch.equal(one.grad, other.grad), step
        print(
            f"{steps} steps of {ways[1]!r}: every gradient is the same to the bit, the last loss is {loss.item():.3f}"
        )
    torch.use_deterministic_algorithms(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="*", default=[2048, 8192, 32768])
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--host-cache", default="48GiB")
    parser.add_argument("--pinned", type=int, default=0, metavar="GIB", help="give the engine time to pin so much")
    parser.add_argument("--slow", action="store_true", help="with save_on_cpu, which takes its time")
    parser.add_argument("--few", action="store_true", help="the rows that matter most")
    parser.add_argument("--disk", help="a directory for what a host cache of a quarter does not hold")
    parser.add_argument("--equal", type=int, default=0, metavar="STEPS", help="compare gradients for so many steps")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no row begins after so many")
    options = parser.parse_args()
    begun = time.perf_counter()

    if options.equal:
        equal(options.equal)
    torch.manual_seed(0)
    model = Model(options.width, options.depth, 32000).to("cuda", torch.bfloat16)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {parameters / 1e9:.2f} B parameters")
    engine = tierflow.Engine(device="cuda", host_cache=options.host_cache)
    if options.pinned:
        # Host memory becomes fast in the background once it is used. Here this happens before the first measurement.
        engine.produce(0, options.pinned << 30, "uint8").give_up()
        time.sleep(options.pinned / 2)
    first = 0
    # For each length, the row without offload.
    plain: dict[int, tuple[float, float]] = {}

    def row(
        name: str, saving: Any = None, recomputed: int = 0, count: int = options.steps, cheap: bool = False
    ) -> tuple[float, float]:
        nonlocal first
        if time.perf_counter() - begun > options.seconds:
            return 0.0, 0.0
        model.recomputed = recomputed
        for block in model.blocks:
            block.cheap = cheap
        try:
            time_, peak = measured(model, tokens, contextlib.nullcontext() if saving is None else saving, count)
        except torch.OutOfMemoryError:
            time_, peak = float("nan"), float("nan")
        if isinstance(saving, tierflow.torch.offload):
            # The engine of an earlier row may still have used this memory.
            first = max(first, saving.next_version)
            name += f"  {saving!r}, bus {saving.bus.out / 1e9:.1f} and {saving.bus.back / 1e9:.1f} GB/s"
        gc.collect()
        torch.cuda.empty_cache()
        plain.setdefault(length, (time_, peak))
        slower, smaller = (100 * (one / of - 1) for one, of in zip((time_, peak), plain[length], strict=True))
        print(f"{length:>6} {time_:>7.1f} ms {slower:>+6.1f}% {peak:>6.2f} GiB {smaller:>+6.1f}%  {name}", flush=True)
        return time_, peak

    def offload(budget: Any = None) -> Any:
        return tierflow.torch.offload(engine, budget, first=first)

    for length in options.lengths:
        tokens = torch.randint(32000, (max(1, 8192 // length), length), device="cuda")
        _, peak = row("nothing")
        row("all recomputed", recomputed=options.depth)
        row("offload", saving := offload())
        saved = saving.plan.saved if saving.plan else 0
        if not options.few:
            row("offload, 30% less at the peak", offload(int(saved - 0.3 * peak * GIB)))
        if not options.few:
            row("half recomputed", recomputed=options.depth // 2)
        row("gates recomputed", cheap=True)
        row("gates recomputed, offload", offload(), cheap=True)
        row("nothing, again")
        if not options.few:
            row("all recomputed, offload of all that is left", offload(0), recomputed=options.depth)
        if options.slow:
            row("save_on_cpu", torch.autograd.graph.save_on_cpu(pin_memory=True), count=1)
        if options.disk and saving.plan:
            leaving = saving.plan.leaving
            with tierflow.Engine(device="cuda", host_cache=leaving // 4, scratch=options.disk) as small:
                row("a quarter in memory, the rest on disk", tierflow.torch.offload(small, saved - leaving), count=3)
                for hop in small.metrics()["hops"]:
                    print("       ", {key: hop[key] for key in ("from", "to", "bytes", "busy")}, flush=True)
        del saving
    engine.close()


if __name__ == "__main__":
    main()
