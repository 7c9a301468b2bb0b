"""A history as a data set of xarray, with the times of its versions. Values are read when they are used."""

import sys

import dask.array as da
import numpy as np
import xarray as xr

import tierflow

with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1]) as engine:
    for step in range(engine.next_version, engine.next_version + 4):
        engine.save(step, {"u": np.full((100, 50), float(step)), "time": 0.1 * step})

history = tierflow.Repository(sys.argv[1])
fields = da.stack([da.from_array(history.array(version, "u")) for version in history])
times = [history.load(version, select="time") for version in history]
data = xr.Dataset({"u": (("time", "y", "x"), fields)}, {"time": times})
print(data["u"].sel(time=0.2, method="nearest").isel(y=slice(10)).mean().values)
