"""A field of all versions as one array of Zarr with a chunk for each version."""

import sys

import numpy as np
import zarr

import tierflow

with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1]) as engine:
    for step in range(4):
        engine.save(engine.next_version, {"u": np.full((100, 50), float(step))})

history = tierflow.Repository(sys.argv[1])
one = history.array(max(history), "u")
group = zarr.create_group(f"{sys.argv[1]}/fields.zarr", overwrite=True)
field = group.create_array("u", shape=(len(history), *one.shape), chunks=(1, *one.shape), dtype=one.dtype)
for row, version in enumerate(history):
    field[row] = history.array(version, "u")[...]
print(field[-1, 0, 0])
