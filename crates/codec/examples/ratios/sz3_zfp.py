"""SZ3 and ZFP on the fields that `ratios --write DIR` writes, with the bounds that `ratios` gives ours, on one thread.

pip install numpy zfpy pysz && python sz3_zfp.py DIR

One line for each field, bound and library: how many times smaller, GB/s of the input to encode and to decode (medians of three),
and the largest error over the bound.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import zfpy
from pysz import sz, szConfig, szErrorBoundMode


def timed(call: Callable[[], Any], size: int) -> tuple[Any, float]:
    """The result of the call, and the median of its rates in GB/s."""
    rates = []
    for _ in range(3):
        begun = time.perf_counter()
        result = call()
        rates.append(size / (time.perf_counter() - begun) / 1e9)
    return result, statistics.median(rates)


def config(field: np.ndarray, bound: float) -> szConfig:
    """SZ3's own algorithm with an absolute bound."""
    chosen = szConfig(field.shape)
    chosen.errorBoundMode = szErrorBoundMode.ABS
    chosen.absErrorBound = bound
    return chosen


def main() -> None:
    """Measures each cube of `f32` values."""
    for path in sorted(Path(sys.argv[1]).glob("*.f32")):
        values = np.fromfile(path, dtype="<f4")
        side = round(values.size ** (1 / 3))
        if side**3 != values.size:
            continue
        field = values.reshape(side, side, side)
        for relative in (1e-3, 1e-4):
            bound = relative * float(np.abs(field).max())
            zfp, zfp_down = timed(lambda: zfpy.compress_numpy(field, tolerance=bound), field.nbytes)
            (sz3, _), sz3_down = timed(lambda: sz.compress(field, config(field, bound)), field.nbytes)
            zfp_back, zfp_up = timed(lambda: zfpy.decompress_numpy(zfp), field.nbytes)
            (sz3_back, *_), sz3_up = timed(lambda: sz.decompress(sz3, np.float32, field.shape), field.nbytes)
            for name, size, down, up, back in (
                ("zfp", len(zfp), zfp_down, zfp_up, zfp_back),
                ("sz3", sz3.nbytes, sz3_down, sz3_up, np.asarray(sz3_back).reshape(field.shape)),
            ):
                error = float(np.abs(back.astype("f8") - field).max()) / bound
                print(f"{path.name} {relative:g} {name}: {field.nbytes / size:.2f} {down:.2f} {up:.2f} {error:.4f}")


main()
