"""The comparison of two histories of versions."""

import math
import os
from typing import NamedTuple

from ._engine import Repository
from ._errors import ArgumentError

__all__ = ["Difference", "compare"]


class Difference(NamedTuple):
    """A region of a rank's piece of a version whose values differ between two histories."""

    version: int
    rank: int
    region: str
    elements: int
    """The number of elements of the region; 0 if one history lacks it, or has it with another type or shape."""
    differing: int
    """The number of elements that differ."""
    first: tuple[int, ...]
    """The index of the first element that differs; empty for a region that the two do not have alike."""
    largest: float
    """The largest distance of two elements; infinite if one of two is no number, and for a region that the two do not have alike."""
    largest_at: tuple[int, ...]
    """The index of the first element with that distance."""


def _index(flat: int, shape: list[int]) -> tuple[int, ...]:
    index = []
    for extent in reversed(shape):
        flat, at = divmod(flat, max(extent, 1))
        index.append(at)
    return tuple(reversed(index)) or (flat,)


def compare(
    left: Repository | str | os.PathLike[str],
    right: Repository | str | os.PathLike[str],
    *,
    within: float | None = None,
    region: str | None = None,
    first: bool = False,
) -> list[Difference]:
    """Compares the versions that the histories `left` and `right` have in common. Returns the regions that differ, in the order of versions,
    ranks and regions.

    Values differ if their bits do; with `within`, if their distance is larger than that, and then any two NaN are equal. With `region`, only
    that region is compared. With `first`, the comparison ends after the first version that differs. Parts whose checksums agree are not
    read. Versions that are stored as differences or compressed raise `ArgumentError`: the command `tierflow compare` decodes them.
    """
    left, right = (one if isinstance(one, Repository) else Repository(one) for one in (left, right))
    both = sorted(set(left.versions()) & set(right.versions()))
    if not both:
        raise ArgumentError("the two histories have no version in common")
    found: list[Difference] = []
    for version in both:
        ranks = left.ranks(version)
        if right.ranks(version) != ranks:
            raise ArgumentError(
                f"version {version} is of {ranks} rank(s) in one history, of {right.ranks(version)} in the other"
            )
        for rank in range(ranks):
            rows, unlike = left.differences(version, rank, right, version, region, within)
            for name, shape, elements, at, count, largest, largest_at in rows:
                places = _index(at, shape), _index(largest_at, shape)
                found.append(Difference(version, rank, name, elements, count, places[0], largest, places[1]))
            found += [Difference(version, rank, name, 0, 0, (), math.inf, ()) for name in unlike]
        if first and found:
            break
    return found
