"""Pictures of an engine's time line, and of the differences of two histories."""

from __future__ import annotations

import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError

if TYPE_CHECKING:
    from ._compare import Difference
    from ._tierflow import Engine

__all__ = ["plot_differences", "plot_timeline"]


def _axes(axes: Any) -> Any:
    """Returns `axes`, or new axes of matplotlib if that is None."""
    if axes is not None:
        return axes
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as missing:
        raise ArgumentError("pictures need matplotlib: pip install matplotlib") from missing
    return pyplot.subplots(figsize=(10, 4), layout="constrained")[1]


def plot_timeline(engine: Engine, axes: Any) -> Any:
    axes = _axes(axes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        engine.write_timeline(path)
        entries = json.loads(path.read_text())["traceEvents"]
    rows = {entry["tid"]: entry["args"]["name"] for entry in entries if entry["name"] == "thread_name"}
    spans: dict[str, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    moments: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for entry in entries:
        # Microseconds, shown as seconds.
        match entry["ph"]:
            case "X":
                spans[entry["name"]][entry["tid"]].append((entry["ts"] / 1e6, entry["dur"] / 1e6))
            case "i":
                moments[entry["name"]].append((entry["ts"] / 1e6, entry["tid"]))
    if not spans and not moments:
        raise ArgumentError(
            "there is no time line: build the engine with timeline=10_000, for that many entries, and use it"
        )
    for number, (name, of_rows) in enumerate(spans.items()):
        for row, bars in of_rows.items():
            label = name if row == next(iter(of_rows)) else None
            axes.broken_barh(bars, (row - 0.4, 0.8), facecolors=f"C{number % 10}", label=label)
    for name, points in moments.items():
        axes.plot(*zip(*points, strict=True), "|", label=name)
    axes.set_yticks(list(rows), list(rows.values()))
    axes.invert_yaxis()
    axes.set_xlabel("seconds since the engine was built")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return axes


def plot_differences(differences: Iterable[Difference], axes: Any = None) -> Any:
    """Draws the growth of differences: for each region, the largest distance in each version, on a logarithmic scale.

    `differences` is the list that `compare` returned. Infinite distances are triangles on the upper edge. Returns the axes: `axes`, or new
    ones of matplotlib if that is None.
    """
    largest: dict[str, dict[int, float]] = defaultdict(dict)
    for one in differences:
        of_region = largest[one.region]
        of_region[one.version] = max(one.largest, of_region.get(one.version, 0.0))
    axes = _axes(axes)
    for number, (region, distances) in enumerate(largest.items()):
        drawn = {version: distance for version, distance in distances.items() if math.isfinite(distance)}
        axes.plot(list(drawn), list(drawn.values()), f"C{number % 10}o-", label=region)
        beyond = [version for version in distances if version not in drawn]
        axes.plot(beyond, [1.0] * len(beyond), f"C{number % 10}^", transform=axes.get_xaxis_transform(), clip_on=False)
    axes.set_yscale("log")
    axes.set_xlabel("version")
    axes.set_ylabel("largest distance")
    if largest:
        axes.legend()
    return axes
