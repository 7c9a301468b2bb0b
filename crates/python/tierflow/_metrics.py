"""The measurements of an engine, and their tables in a notebook."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

__all__ = ["Metrics", "shown_bytes"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNLIMITED = 1 << 60  # the capacity of a tier that only its file system, or its owner, limits


def shown_bytes(number: float) -> str:
    """Returns a number of bytes as a text, in the unit that fits."""
    for unit in _UNITS[:-1]:
        if number < 1024:
            return f"{number:.4g} {unit}"
        number /= 1024
    return f"{number:.4g} {_UNITS[-1]}"


def _seconds(number: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if number * factor >= 1:
            return f"{number * factor:.3g} {unit}"
    return f"{number * 1e9:.3g} ns" if number else "0"


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    def row(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + row(head, "th") + "".join(row(cells, "td") for cells in rows) + "</table>"


def _calls(name: str, calls: Mapping[str, Any]) -> list[str]:
    rate = shown_bytes(calls["bytes"] / calls["blocked"]) + "/s" if calls["blocked"] else ""
    return [name, str(calls["count"]), shown_bytes(calls["bytes"]), _seconds(calls["blocked"]), rate]


class Metrics(dict[str, Any]):
    """The measurements of an engine, as a dictionary. Sizes are in bytes, times in seconds.

    `checkpoint`, `restore`, `produce`, `consume`, `wait`: `count` and `bytes` of the calls that succeeded, the number that `failed`, and
    the time that all of them `blocked`. `running`: the time since the engine was built. `causes`: the blocked time by its cause, with
    percentiles. `waits`: the transfers that ended waits; `Engine.explain` tells them in sentences. `prefetch_distance`: how many versions
    ahead of the restores prefetching was. `pruned`: versions that the retention did not keep. `tiers`: the tiers, fastest first. `hops`:
    the transfers between two tiers.
    """

    def _repr_html_(self) -> str:
        calls = [_calls(name, self[name]) for name in ("checkpoint", "restore", "produce", "consume", "wait")]
        causes = [
            (name, times["count"], *(_seconds(times[key]) for key in ("total", "p50", "p99", "p999", "worst")))
            for name, times in self["causes"].items()
            if times["count"]
        ]
        tiers = [
            (
                tier["name"],
                shown_bytes(tier["capacity"]) if tier["capacity"] < _UNLIMITED else "no limit",
                shown_bytes(tier["used"]),
                shown_bytes(tier["peak"]),
                tier["checkpoints"],
                tier["restores"],
                tier["evictions"],
            )
            for tier in self["tiers"]
        ]
        hops = [
            (
                f"{hop['from']} → {hop['to']}",
                hop["transfers"],
                shown_bytes(hop["bytes"]),
                _seconds(hop["busy"]),
                hop["failed"],
            )
            for hop in self["hops"]
        ]
        return (
            _table(("calls", "count", "bytes", "blocked", "rate"), calls)
            + _table(("blocked by", "calls", "time", "50%", "99%", "99.9%", "longest"), causes)
            + _table(("tier", "holds", "used", "peak", "checkpoints", "restores", "evictions"), tiers)
            + _table(("hop", "transfers", "bytes", "busy", "failed"), hops)
        )


Metrics.__module__ = "tierflow"
