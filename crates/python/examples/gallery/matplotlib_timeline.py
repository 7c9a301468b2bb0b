"""A picture of the caches' work, and a progress bar while the last versions go to the disk."""

import sys
from pathlib import Path

import matplotlib
import numpy as np
from tqdm import tqdm

import tierflow

matplotlib.use("Agg")
state = np.zeros(1_000_000)
with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1], retention=4, timeline=10_000) as engine:
    for _ in range(20):
        state += 1
        engine.save(engine.next_version, {"state": state})
    for version in tqdm(engine.flushes(), desc="to disk"):
        print(version)
    engine.plot().figure.savefig(Path(sys.argv[1]) / "timeline.png")
