"""Comparisons of two histories."""

import math
import pathlib

import numpy as np
import pytest

import tierflow


def saved(directory: pathlib.Path, planted: dict[int, float], **options: object) -> pathlib.Path:
    """Checkpoints four versions of a grid. A value of the versions in `planted` differs from other histories."""
    with tierflow.Engine(device="host", host_cache="32MiB", external=directory, **options) as engine:  # type: ignore[arg-type]
        for version in range(4):
            grid = np.full((20, 30), float(version), np.float32)
            grid[7, 11] += planted.get(version, 0)
            engine.checkpoint(version, grid, np.array([version]), names=["grid", "step"])
    return directory


def test_the_places_where_two_histories_part_are_found(tmp_path: pathlib.Path) -> None:
    left, right = saved(tmp_path / "left", {}), saved(tmp_path / "right", {2: 0.5, 3: math.nan})
    found = tierflow.compare(left, right)
    assert [(one.version, one.rank, one.region, one.differing, one.elements) for one in found] == [
        (2, 0, "grid", 1, 600),
        (3, 0, "grid", 1, 600),
    ]
    assert [(one.first, one.largest, one.largest_at) for one in found] == [
        ((7, 11), 0.5, (7, 11)),
        ((7, 11), math.inf, (7, 11)),
    ]
    assert [one.version for one in tierflow.compare(left, tierflow.Repository(right), within=0.5)] == [3]
    assert len(tierflow.compare(left, right, first=True)) == 1
    assert tierflow.compare(left, right, region="step") == []
    assert tierflow.compare(left, left) == []


def test_histories_that_cannot_be_compared_are_refused(tmp_path: pathlib.Path) -> None:
    left = saved(tmp_path / "left", {})
    with tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path / "other") as engine:
        engine.checkpoint(1, np.zeros((30, 20), np.float32), names=["grid"])
        engine.checkpoint(7, np.zeros(1))
    assert [(one.region, one.differing, one.first) for one in tierflow.compare(left, tmp_path / "other")] == [
        ("grid", 0, ()),
        ("step", 0, ()),
    ]
    with pytest.raises(tierflow.ArgumentError, match="has a region"):
        tierflow.compare(left, left, region="none")
    with pytest.raises(tierflow.ArgumentError, match="tolerance"):
        tierflow.compare(left, left, within=-1)
    with tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path / "late") as engine:
        engine.checkpoint(9, np.zeros(1))
    with pytest.raises(tierflow.ArgumentError, match="no version in common"):
        tierflow.compare(left, tmp_path / "late")
    with pytest.raises(tierflow.ArgumentError, match="compressed"):
        tierflow.compare(left, saved(tmp_path / "encoded", {}, dedup=64))
