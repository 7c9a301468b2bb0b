"""A few rows of one array, without reading the other files and arrays."""

import sys

import numpy as np

import tierflow

directory = sys.argv[1]
with tierflow.Engine(device="host", host_cache="64MiB", external=directory) as engine:
    for step in range(3):
        engine.save(step, {"wave": {"u": np.full((100, 50, 50), float(step)), "time": 0.1 * step}, "note": "a run"})

repository = tierflow.Repository(directory)
for version in repository:
    rows = repository.load(version, select={"wave/u": np.s_[10:12, :, ::5]})["wave/u"]
    print(version, repository.load(version, select="wave/time"), rows.shape, rows.mean())
