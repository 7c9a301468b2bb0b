"""Trees are taken apart and put together again, without an engine."""

import json
import math
import pathlib
import random
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import tierflow
from tierflow._tree import flatten, subtree, unflatten


class Moments(NamedTuple):
    mean: Any
    square: Any


@dataclass(frozen=True)
class Settings:
    rate: float
    weights: Any
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        raise AssertionError("no code of the program runs when a tree is put together")


def settings(rate: float, weights: Any) -> Settings:
    made = object.__new__(Settings)
    for name, value in (("rate", rate), ("weights", weights), ("steps", 3)):
        object.__setattr__(made, name, value)
    return made


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Settings):
        return all(same(getattr(one, name), getattr(other, name)) for name in ("rate", "weights", "steps"))
    return bool(one == other or (one != one and other != other))


def drawn(draw: random.Random, depth: int) -> Any:
    """Draws a tree."""
    kind = draw.randrange(13 if depth else 8)
    if kind < 8:
        leaves: list[Any] = [None, True, draw.randrange(-(2**70), 2**70), draw.choice([0.1, math.inf, math.nan, -0.0])]
        leaves += ["ü/~\n", 1 - 2.5j, draw.randbytes(5), np.arange(draw.randrange(4))]
        return leaves[kind]
    parts = [drawn(draw, depth - 1) for _ in range(draw.randrange(4))]
    keys: list[Any] = draw.sample(["a", "a/b", "~0", "", 0, "0", -1, None, True, 2.5], len(parts))
    pair = [drawn(draw, depth - 1) for _ in range(2)]
    return [parts, tuple(parts), dict(zip(keys, parts, strict=True)), Moments(*pair), settings(0.5, pair)][kind - 8]


def test_any_tree_comes_back_as_it_was() -> None:
    for seed in range(500):
        tree = drawn(random.Random(seed), 4)
        arrays, structure = flatten(tree)
        assert all(0 < len(name.encode()) <= 1024 for name in arrays)
        # The text is strict JSON.
        text = json.dumps(structure, allow_nan=False)
        assert same(unflatten(json.loads(text), arrays), tree), seed
        assert same(unflatten(json.loads(text), arrays, into=tree), tree), seed


def test_any_text_and_number_comes_back() -> None:
    texts = [
        "",
        '"',
        "\\",
        "\n\t\x00\x1f\x7f",
        "é",
        "\u2028",
        "\U0001f600",
        "\ud800 half a character",
        "</script>",
        "a" * 10_000,
    ]
    numbers = [
        0,
        -1,
        2**63,
        -(10**40),
        0.1,
        -0.0,
        1e16,
        1e-320,
        5e-324,
        1.7976931348623157e308,
        float("inf"),
        float("-inf"),
    ]
    plain = [None, True, False, *texts, *numbers, complex(-0.0, float("inf"))]
    keys = {key: index for index, key in enumerate([*texts[:7], *numbers[:10], None])}
    for tree in (plain, keys, {"list": plain, "keys": [keys]}):
        arrays, structure = flatten(tree)
        assert arrays == {}
        assert repr(unflatten(structure, arrays)) == repr(tree)


def test_levels_have_an_end() -> None:
    """Trees are limited in depth, as the thread's stack is."""
    tree: Any = np.zeros(1)
    for _ in range(150):
        tree = [{"a": tree}]
    with pytest.raises(tierflow.ArgumentError, match="too many levels"):
        flatten(tree)
    for _ in range(70):
        tree = tree[0]["a"]
    arrays, structure = flatten(tree)
    assert len(arrays) == 1
    assert same(unflatten(structure, arrays), tree)


def test_names_are_ways() -> None:
    a = np.zeros(1)
    arrays, structure = flatten({"model": {"layers.0.weight": a, "x/y": (a, a)}, "moments": Moments(a, [a])})
    assert list(arrays) == ["model/layers.0.weight", "model/x~1y/0", "model/x~1y/1", "moments/mean", "moments/square/0"]
    assert subtree(structure, "model/x~1y/1") == {"array": "model/x~1y/1", "of": "numpy"}
    assert unflatten(subtree(structure, "moments"), arrays).mean is a
    assert subtree(structure, "") == structure
    with pytest.raises(
        tierflow.ArgumentError, match=r"no 'model/layers': 'model' of the tree has 'model/layers.0.weight'"
    ):
        subtree(structure, "model/layers")
    # The keys 0 and "0" have one name each.
    assert list(flatten({0: a, "0": a})[0]) == ["0", "0~2"]
    assert list(flatten(a)[0]) == ["~2"]


def test_other_than_plain_values_are_pickled_only_when_asked() -> None:
    tree = {"path": pathlib.PurePosixPath("a")}
    with pytest.raises(tierflow.ArgumentError, match=r"'path' of the tree is a pathlib.*pass pickle=True"):
        flatten(tree)
    arrays, structure = flatten(tree, pickle=True)
    with pytest.raises(tierflow.ArgumentError, match="'path' of the tree was pickled"):
        unflatten(structure, arrays)
    assert unflatten(structure, arrays, pickle=True) == tree


def test_trees_to_be_mended() -> None:
    loop: list[Any] = []
    loop.append({"self": loop})
    with pytest.raises(tierflow.ArgumentError, match="'0/self' of the tree contains itself"):
        flatten(loop)
    with pytest.raises(tierflow.ArgumentError, match=r"the key \(1, 2\)"):
        flatten({(1, 2): 3})
    arrays, structure = flatten({"a": [1, np.zeros(2)], "b": 2})
    for into in (
        {"a": [1, np.zeros(2)]},
        {"a": [1], "b": 2},
        {"a": [1, 2], "b": 2},
        {"a": (1, np.zeros(2)), "b": 2},
        7,
    ):
        with pytest.raises(tierflow.ArgumentError, match="into= has"):
            unflatten(structure, arrays, into=into)
    with pytest.raises(tierflow.StorageError, match="kind that this version does not know"):
        unflatten({"set": []}, {})


def test_classes_are_found_and_not_imported() -> None:
    _, structure = flatten(Moments(1, 2))
    for other in ("nowhere:Moments", "os:system", f"{__name__}:Settings", "antigravity:x"):
        with pytest.raises(tierflow.ArgumentError, match="the program has no such class"):
            unflatten({**structure, "named tuple": other}, {})
        assert unflatten({**structure, "named tuple": other}, {}, plain=True) == {"mean": 1, "square": 2}
        back = unflatten({**structure, "named tuple": other}, {}, into=Moments(0, 0))
        assert isinstance(back, Moments)
    for other in ("os:getcwd", "builtins:tuple", "builtins:dict"):
        with pytest.raises(tierflow.ArgumentError, match="the program has no such class"):
            unflatten({"dataclass": other, "fields": []}, {})


def test_subclasses_count_as_what_they_are_of() -> None:
    arrays, structure = flatten(OrderedDict(a=np.float32(1.5), b=[np.zeros(())]))
    assert list(arrays) == ["a", "b/0"]
    assert structure["dict"][0] == ["a", {"array": "a", "of": "scalar"}]
