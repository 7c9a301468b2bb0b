"""The mean over all versions of a field by dask, which reads each version when it is used."""

import sys

import dask.array as da
import numpy as np

import tierflow

with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1]) as engine:
    for step in range(4):
        engine.save(engine.next_version, {"wave": {"u": np.full((100, 50), float(step))}, "time": 0.1 * step})

history = tierflow.Repository(sys.argv[1])
fields = [da.from_array(history.array(version, "wave/u")) for version in history]
print(da.stack(fields).mean(axis=0).compute().mean())
