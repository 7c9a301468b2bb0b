"""Tests of element types and shapes: versions keep them, restores compare them, and new arrays have them."""

import array
import ctypes
import pathlib
from collections import OrderedDict
from functools import partial
from types import MappingProxyType

import numpy as np
import pytest

import tierflow

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def arrays() -> dict[str, np.ndarray]:
    made = {f"a {dtype}": np.arange(6).reshape(2, 3).astype(dtype) for dtype in DTYPES}
    return {**made, "scalar": np.array(7.5), "none": np.zeros((0, 4), "f4"), "l": np.arange(3, dtype=np.longlong)}


def same(one: object, other: np.ndarray) -> bool:
    assert isinstance(one, np.ndarray)
    return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())


def test_a_restore_without_arrays_returns_new_ones(tmp_path: pathlib.Path) -> None:
    state = arrays()
    with tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path) as engine:
        engine.checkpoint(1, *state.values(), names=list(state))
        engine.checkpoint(2, state["a f8"])
        engine.checkpoint(3, state["a i4"], state["a f4"])
        engine.checkpoint(4, b"plain")
        engine.wait()
    for _ in range(2):
        with tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path) as engine:
            back = engine.restore(1)
            assert isinstance(back, dict)
            assert list(back) == list(state)
            assert all(same(back[name], state[name]) for name in state)
            assert same(engine.restore(2), state["a f8"])
            several = engine.restore(3)
            assert isinstance(several, list)
            assert same(several[0], state["a i4"])
            assert same(several[1], state["a f4"])
            assert bytes(engine.restore(4)) == b"plain"
            with pytest.raises(tierflow.UnknownVersionError):
                engine.restore(5)


def test_a_bound_of_differences_needs_differences() -> None:
    options = {"device": "host", "device_cache": "4MiB", "host_cache": "4MiB"}
    with pytest.raises(tierflow.ArgumentError, match="set `dedup`"):
        tierflow.Engine(**options, dedup_reads=3)
    with pytest.raises(tierflow.ArgumentError, match="1 or more"):
        tierflow.Engine(**options, dedup=256, dedup_reads=0)
    with tierflow.Engine(**options, dedup=256, dedup_reads=1) as engine:
        for version in range(4):
            engine.checkpoint(version, np.full(1000, version))
        engine.wait()
        assert bytes(engine.restore(2)) == np.full(1000, 2).tobytes()


@pytest.mark.parametrize("dedup", [None, 256])
def test_another_type_or_shape_is_refused(tmp_path: pathlib.Path, dedup: int | None) -> None:
    state = np.arange(12.0).reshape(3, 4)
    options = {"device": "host", "host_cache": "4MiB", "external": tmp_path, "dedup": dedup}
    with tierflow.Engine(**options) as engine:
        engine.checkpoint(1, state, names=["w"])
        engine.wait()
    with tierflow.Engine(**options) as engine:
        for wrong, words in [
            (np.zeros((3, 4), "i8"), "int64 of shape \\(3, 4\\)"),
            (np.zeros((4, 3)), "float64 of shape \\(4, 3\\)"),
            (np.zeros(12), "float64 of shape \\(12,\\)"),
            (np.zeros((3, 4), "c16")[:, :2].copy(), "complex128"),
        ]:
            with pytest.raises(tierflow.ArgumentError, match=f'region "w" of version 1 was .* float64 .*{words}'):
                engine.restore_regions(1, {"w": wrong})
            assert not wrong.any()
        unknown = "was .* float64 .* is of a type that files do not have"
        for kind in (">f8", "M8[s]", [("a", "f4"), ("b", "i4")], "V8"):
            odd = np.zeros((3, 4), kind)
            for call in (engine.restore_regions, partial(engine.restore_rank, rank=0)):
                with pytest.raises(tierflow.ArgumentError, match=unknown):
                    call(1, regions={"w": odd})
            assert odd.tobytes() == bytes(96)
        for raw in (bytearray(96), ctypes.create_string_buffer(96)):
            engine.restore_regions(1, {"w": raw})
            assert bytes(raw) == state.tobytes()
        back = np.zeros_like(state)
        engine.restore_regions(1, {"w": back})
        assert (back == state).all()


def test_arrays_without_a_name_for_their_type_are_bytes() -> None:
    odd = [
        np.arange(3, dtype=">f8"),
        np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
        np.zeros((1,) * 9),
        np.zeros(2, np.longdouble),
    ]
    with tierflow.Engine(device="host", host_cache="4MiB") as engine:
        for version, one in enumerate(odd):
            engine.checkpoint(version, one, names=["odd"])
            back = engine.restore(version)
            assert isinstance(back, dict)
            assert same(back["odd"], np.frombuffer(one.tobytes(), "u1"))
            engine.restore_regions(version, {"odd": one})
        engine.checkpoint(9, array.array("d", [1, 2]), names=["a"])
        back = engine.restore(9)
        assert isinstance(back, dict)
        assert same(back["a"], np.array([1.0, 2.0]))


def test_an_object_is_told_from_a_field_whose_name_has_an_o(engine: tierflow.Engine) -> None:
    field = np.zeros(3, [("Omega", "f4"), ("O", "i4", 2), ("x", [("TO", "f8")])])
    engine.checkpoint(1, field)
    engine.restore(1, field)
    for kind in ("O", [("a", "O")], [("a", "f4"), ("x", [("b", "O")])]):
        with pytest.raises(tierflow.ArrayError, match="Python objects"):
            engine.checkpoint(2, np.zeros(3, kind))


def test_names_have_up_to_1024_bytes(tmp_path: pathlib.Path) -> None:
    names = ["model.encoder.layers.11.self_attention.output.dense.weight", "n" * 1024]
    with tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path) as engine:
        engine.checkpoint(1, np.ones(3), np.zeros(2), names=names)
        engine.wait()
        with pytest.raises(tierflow.ArgumentError, match="1024"):
            engine.checkpoint(2, np.ones(3), names=["n" * 1025])
    with tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path) as engine:
        assert [name for name, _ in engine.regions(1)] == names


def test_the_stubs_take_any_mapping_of_arrays(tmp_path: pathlib.Path) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text(
        """
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import tierflow


def restore(
    engine: tierflow.Engine,
    some: dict[str, npt.NDArray[Any]],
    doubles: dict[str, npt.NDArray[np.float64]],
    mapping: Mapping[str, npt.NDArray[np.float32]],
    ordered: OrderedDict[str, np.ndarray],
) -> None:
    engine.checkpoint(1, *some.values(), names=list(some))
    engine.checkpoint(2, *mapping.values(), names=tuple(mapping))
    engine.restore_regions(1, some)
    engine.restore_regions(1, doubles)
    engine.restore_regions(2, mapping)
    engine.restore_regions(2, ordered)
    engine.restore_rank(1, 0, doubles)
    engine.restore_rank(2, 0, mapping)
"""
    )
    told, _, code = api.run(["--cache-dir", str(tmp_path / "cache"), "--follow-imports", "silent", str(program)])
    assert code == 0, told


def test_names_of_arrays_without_names_are_refused() -> None:
    with tierflow.Engine(device="host", host_cache="1MiB") as engine:
        for names in (["checkpoint"], ["region-0"], ["region-0", "region-1"]):
            with pytest.raises(tierflow.ArgumentError, match="choose others"):
                engine.checkpoint(0, *[np.ones(3)] * len(names), names=names)
        for version, names in enumerate((["region-1"], ["checkpoint", "region-1"], ["region-1", "region-0"])):
            engine.checkpoint(version, *[np.ones(3)] * len(names), names=names)
            assert list(engine.restore(version)) == names


def test_any_mapping_names_regions() -> None:
    with tierflow.Engine(device="host", host_cache="4MiB") as engine:
        engine.checkpoint(1, np.ones(3), names=("a",))
        for mapping in (MappingProxyType, OrderedDict):
            back = np.zeros(3)
            engine.restore_regions(1, mapping({"a": back}))
            assert back.all()
        with pytest.raises(TypeError, match="pass a dict of names and arrays"):
            engine.restore_regions(1, [("a", back)])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="names='a' is no list of texts"):
            engine.checkpoint(2, np.ones(3), names="a")
