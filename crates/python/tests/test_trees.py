"""Trees are saved in an engine and in a repository, loaded, and read in part."""

import pathlib
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

import tierflow


class Moments(NamedTuple):
    mean: Any
    square: Any


@pytest.fixture
def kept(tmp_path: pathlib.Path) -> Iterator[tierflow.Engine]:
    with tierflow.Engine(device="host", host_cache="64MiB", external=tmp_path) as engine:
        yield engine


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    elif hasattr(one, "dtype"):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert (one == other).all()
    else:
        assert one == other


def of_numpy() -> dict[Any, Any]:
    return {
        "weight": np.arange(12.0).reshape(3, 4),
        "turned": np.arange(6, dtype="i2").reshape(2, 3).T,
        "swapped": np.arange(3, dtype=">f4"),
        "half": [np.float16(0.5), np.array(7, "u8"), np.zeros((0, 3), "c8")],
        "moments": Moments(np.ones(2, bool), (None, "text", 2.5)),
        0: b"bytes",
    }


def native(tree: dict[Any, Any]) -> dict[Any, Any]:
    return {**tree, "swapped": tree["swapped"].astype("f4")}


def test_a_tree_comes_back(kept: tierflow.Engine, tmp_path: pathlib.Path) -> None:
    tree = of_numpy()
    kept.save(3, tree)
    # The arrays may change once it is saved.
    tree["weight"] += 1
    expected = native({**tree, "weight": tree["weight"] - 1})
    assert_same(kept.load(3), expected)
    kept.wait()
    assert_same(tierflow.Repository(tmp_path).load(3), expected)
    assert [name for name, _ in kept.regions(3)] == [
        "~tree",
        *("weight", "turned", "swapped", "half/0", "half/1", "half/2", "moments/mean"),
    ]
    assert kept.layout(3)[1] == ("weight", "float64", [3, 4], 96)
    # A load does not discard a version.
    assert kept.versions() == [3]


def test_into_is_filled_in_place(engine: tierflow.Engine) -> None:
    engine.save(1, native(of_numpy()))
    frame = np.zeros((3, 8))
    into = native(of_numpy())
    into["weight"] = strided = frame[:, ::2]
    into["turned"][:] = 0
    into["moments"] = Moments(np.zeros(2, bool), (1, "", 0.0))
    back = engine.load(1, into)
    assert_same(back, native(of_numpy()))
    assert back["weight"] is strided
    assert back["turned"] is into["turned"]
    assert not frame[:, 1::2].any()


def test_an_array_of_another_kind_is_refused_before_any_is_filled(engine: tierflow.Engine) -> None:
    engine.save(1, {"a": np.ones(3), "b": np.ones((2, 3))})
    for other in (np.zeros((3, 2)), np.zeros((1, 2, 3)), np.zeros((2, 3), "f4"), np.zeros(3)):
        into = {"a": np.zeros(3), "b": other}
        with pytest.raises(tierflow.ArgumentError, match=r"float64 of shape \(2, 3\), and that of into= is"):
            engine.load(1, into)
        assert not into["a"].any()


def test_a_version_that_never_was_is_unknown(kept: tierflow.Engine, tmp_path: pathlib.Path) -> None:
    kept.checkpoint(1, np.ones(3), names=["a"])
    kept.wait()
    repository = tierflow.Repository(tmp_path)
    for call in (
        kept.load,
        repository.load,
        repository.ranks,
        lambda version: repository.size(version, 0),
        lambda version: kept.restore_rank(version, 0, {"a": np.ones(3)}),
    ):
        with pytest.raises(tierflow.UnknownVersionError, match="404"):
            call(404)


def test_a_read_only_array_is_refused_before_any_is_filled(engine: tierflow.Engine) -> None:
    engine.save(1, {"a": np.ones(3), "b": np.ones(3)})
    into = {"a": np.zeros(3), "b": np.zeros(3)}
    into["b"].flags.writeable = False
    with pytest.raises(tierflow.ArrayError, match="read-only"):
        engine.load(1, into)
    assert not into["a"].any()


def test_tied_weights_are_filled_once(kept: tierflow.Engine, tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    weight, bias = torch.arange(6.0).reshape(2, 3), np.arange(4)
    kept.save(1, {"in": weight, "out": weight.view(2, 3), "bias": [bias, bias[:]]})
    kept.save(2, {"in": weight, "out": weight + 1, "bias": [bias, bias + 1]})
    kept.wait()
    for versions in (kept, tierflow.Repository(tmp_path)):
        for version in (1, 2):
            tied, own = torch.zeros(2, 3), np.zeros(4, bias.dtype)
            back = versions.load(version, {"in": tied, "out": tied.view(2, 3), "bias": [own, own[:]]})
            # If the saved arrays differ, the last one counts.
            assert torch.equal(tied, weight + version - 1)
            assert (own == bias + version - 1).all()
            assert back["in"] is tied
        # Arrays that overlap, and are not one, are refused.
        both = torch.zeros(3, 3)
        with pytest.raises(tierflow.ArrayError, match="share memory"):
            versions.load(1, {"in": both[:2], "out": both[1:], "bias": [bias.copy(), bias.copy()]})


def test_an_index_may_go_backwards(kept: tierflow.Engine) -> None:
    torch = pytest.importorskip("torch")
    for version, of in enumerate((np.asarray, torch.from_numpy)):
        field = np.arange(60.0).reshape(5, 4, 3)
        kept.save(version, {"field": of(field)})
        kept.wait()
        array = kept.array(version, "field")
        for index in (
            np.s_[::-1],
            np.s_[3:0:-2],
            np.s_[2, ::-2],
            np.s_[::-2, 1, ::-1],
            np.s_[0:3:-1],
            np.s_[..., -1:0:-1],
        ):
            assert (np.asarray(array[index]) == field[index]).all()
            assert array[index].shape == field[index].shape


def test_parts_are_read_alone(kept: tierflow.Engine, tmp_path: pathlib.Path) -> None:
    """The rest of the file is damaged. The read does not notice, as it reads only the part."""
    tree = {"first": {"a": np.arange(60_000.0).reshape(100, 600), "b": 1}, "last": np.ones(3_000_000)}
    kept.save(0, tree)
    kept.wait()
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 10_000_000]
    content = bytearray(file.read_bytes())
    content[-1000] ^= 1
    file.write_bytes(content)
    repository = tierflow.Repository(tmp_path)
    assert_same(repository.load(0, select="first"), tree["first"])
    assert_same(repository.load(0, select="first/a"), tree["first"]["a"])  # type: ignore[index]
    assert repository.load(0, select=["first/b"]) == {"first/b": 1}
    assert repository.load(0, select={"last": np.s_[10:20]})["last"].sum() == 10
    with pytest.raises(tierflow.DamagedError):
        repository.load(0, select={"last": np.s_[-10:]})
    with pytest.raises(tierflow.DamagedError):
        tierflow.Repository(tmp_path).load(0)


def drawn_index(draw: random.Random, shape: tuple[int, ...]) -> Any:
    def bound(extent: int) -> int | None:
        return draw.choice([None, draw.randrange(-extent - 1, extent + 2)])

    def step(extent: int) -> Any:
        some = slice(bound(extent), bound(extent), draw.choice([None, 1, 2, -1, -3]))
        return draw.choice([some, draw.randrange(-extent, extent)])

    steps = [step(extent) for extent in shape[: draw.randrange(len(shape) + 1)]]
    match draw.randrange(4):
        case 0 if len(steps) == 1:
            return steps[0]
        case 1 if len(steps) < len(shape):
            return (*steps, Ellipsis, slice(None, None, 2))
    return tuple(steps)


def test_any_index_selects_what_numpy_does(kept: tierflow.Engine, tmp_path: pathlib.Path) -> None:
    field = np.arange(7 * 5 * 3, dtype="i4").reshape(7, 5, 3)
    kept.save(0, {"field": field})
    kept.wait()
    for source in (kept, tierflow.Repository(tmp_path)):
        for seed in range(150):
            index = drawn_index(random.Random(seed), field.shape)
            assert_same(np.asarray(source.load(0, select={"field": index})["field"]), np.asarray(field[index]))
    with pytest.raises(tierflow.ArgumentError, match="is no index of 'field'"):
        kept.load(0, select={"field": np.s_[0, 0, 0, 0]})
    with pytest.raises(IndexError):
        kept.load(0, select={"field": 7})
    with pytest.raises(tierflow.ArgumentError, match="there is no 'filed'"):
        kept.load(0, select="filed")


def test_parts_of_differences_and_of_compressed_versions(tmp_path: pathlib.Path) -> None:
    field = np.linspace(0, 1, 100_000)
    kinds: list[dict[str, Any]] = [{"dedup": 128}, {"compress": "f32"}]
    for options in kinds:
        directory = tmp_path / "".join(options)
        directory.mkdir()
        with tierflow.Engine(device="host", host_cache="32MiB", external=directory, **options) as engine:
            for version in range(2):
                engine.save(version, {"field": field + version, "step": version})
            engine.wait()
            for version in range(2):
                part = engine.load(version, select={"field": np.s_[5:7]})["field"]
                assert_same(part, field[5:7] + version)
                assert engine.load(version)["step"] == version


class Loud:
    def __init__(self) -> None:
        self.told: list[str] = []

    def __reduce__(self) -> Any:
        return (_shout, ())


shouted: list[int] = []


def _shout() -> int:
    shouted.append(1)
    return 17


def test_nothing_is_pickled_nor_unpickled_unasked(engine: tierflow.Engine) -> None:
    with pytest.raises(tierflow.ArgumentError, match=r"'a/0' of the tree is a .*Loud.*pass pickle=True"):
        engine.save(0, {"a": [Loud()]})
    assert 0 not in engine
    engine.save(0, {"a": [Loud()], "b": np.ones(3)}, pickle=True)
    with pytest.raises(tierflow.ArgumentError, match="'a/0' of the tree was pickled: pass pickle=True if you trust"):
        engine.load(0)
    assert engine.load(0, select="b").sum() == 3
    assert not shouted
    assert engine.load(0, pickle=True)["a"] == [17]
    with pytest.raises(tierflow.ArgumentError, match=r"an array of datetime64\[D\] with 1 dimensions"):
        engine.save(1, np.zeros(3, "M8[D]"))
    with pytest.raises(tierflow.ArgumentError, match=r"an array of object"):
        engine.save(1, [np.array([Loud()])])


def test_a_masked_array_is_refused(kept: tierflow.Engine) -> None:
    """A masked array is refused, as its mask would be lost."""
    with pytest.raises(tierflow.ArgumentError, match="getmaskarray"):
        kept.save(0, {"a": np.ma.masked_equal(np.arange(3), 1)})
    assert kept.versions() == []


def test_arrays_that_are_copied_first_beside_others(kept: tierflow.Engine) -> None:
    """A tree without such arrays is taken in without a copy. Each tree comes back, whichever kind was saved before."""
    plain = {"a": np.arange(3.0), "b": np.arange(4, dtype="i2")}
    others: list[Any] = [
        {},
        {"a": np.arange(3, dtype=">f8")},
        {"a": np.float32(2)},
        {"a": np.arange(6.0).reshape(2, 3).T},
        {"a": np.zeros((1,) * 8), "b": 1},
        {"a": [1, None, True, "text", 2**70], "b": [[1], [np.zeros(2)]]},
        {0: plain, "0": plain},
    ]
    for version, other in enumerate([*others, *others]):
        kept.save(version, {"plain": plain, "other": other})
        expected = {"a": other["a"].astype("f8")} if version % len(others) == 1 else other
        assert_same(kept.load(version), {"plain": plain, "other": expected})
        kept.discard(version)
    for lost in ({"a": np.zeros((1,) * 9)}, {"a": np.zeros(2, "M8[s]")}, {np.str_("a"): np.ones(1)}):
        with pytest.raises(tierflow.ArgumentError):
            kept.save(100, {"plain": plain, "other": lost})
    assert kept.versions() == []


def test_versions_of_checkpoint_are_dicts_of_regions(engine: tierflow.Engine) -> None:
    engine.checkpoint(1, np.ones(3), bytearray(b"ab"), names=["a/b", "c"])
    back = engine.load(1)
    assert_same(back, {"a/b": np.ones(3), "c": np.frombuffer(b"ab", "u1")})


def test_names_have_up_to_1024_bytes(engine: tierflow.Engine) -> None:
    engine.save(0, {"n" * 1000: {"m" * 23: np.ones(1)}})
    assert engine.load(0)["n" * 1000]["m" * 23] == 1
    with pytest.raises(tierflow.ArgumentError, match="1024"):
        engine.save(1, {"n" * 1000: {"m" * 24: np.ones(1)}})


def test_an_engine_is_a_collection_of_versions(kept: tierflow.Engine, tmp_path: pathlib.Path) -> None:
    assert (len(kept), list(kept), 0 in kept, bool(kept)) == (0, [], False, True)
    assert kept.next_version == 0
    for _ in range(2):
        kept.save(kept.next_version, np.arange(5))
    kept.checkpoint(7, np.zeros(1))
    assert (len(kept), list(kept), 1 in kept, 5 in kept, "1" in kept) == (3, [0, 1, 7], True, False, False)
    assert (kept.next_version, kept.next_version) == (8, 8)
    kept.discard(7)
    assert kept.next_version == 8
    kept.wait()
    repository = tierflow.Repository(tmp_path)
    assert isinstance(repository, Mapping)
    assert (list(repository), len(repository), 1 in repository) == ([0, 1], 2, True)
    assert_same(repository[1], np.arange(5))
    assert_same(dict(repository)[0], np.arange(5))
    assert repository.get(9) is None
    assert repository == repository
    assert repository != tierflow.Repository(tmp_path)


def test_an_engine_shows_how_full_it_is() -> None:
    engine = tierflow.Engine(device="host", device_cache="4MiB", host_cache="16MiB")
    engine.checkpoint(0, np.zeros(1 << 17))
    engine.wait()
    shown = repr(engine)
    assert shown.startswith(
        "<tierflow.Engine on host, 1 version: device 1 MiB of 4 MiB (25%), host 1 MiB of 16 MiB (6%)"
    )
    engine.close()
    assert repr(engine) == "<tierflow.Engine, closed>"


def test_trees_of_pytorch(engine: tierflow.Engine) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 3)
    tree = {
        "model": model.state_dict(),
        "parameter": model.weight,
        "turned": torch.arange(6).view(2, 3).T,
        "short": [torch.ones(3, dtype=torch.bfloat16), torch.tensor(2.5), torch.zeros(0)],
        "conjugate": torch.tensor([1 + 2j]).conj(),
    }
    engine.save(0, tree)
    back = engine.load(0)
    assert {type(leaf) for leaf in (back["parameter"], back["turned"], *back["short"])} == {torch.Tensor}
    assert all(torch.equal(back[name], tree[name]) for name in ("parameter", "turned", "conjugate"))
    assert torch.equal(back["short"][0], tree["short"][0])
    other = torch.nn.Linear(4, 3)
    other.load_state_dict(back["model"])
    assert torch.equal(other.bias, model.bias)
    # A parameter is filled, and stays one.
    into = {"model": other.state_dict(), "parameter": torch.nn.Parameter(torch.zeros(4, 3).T)}
    filled = engine.load(0, into, select=["model", "parameter"])
    assert filled["parameter"] is into["parameter"]
    assert torch.equal(filled["parameter"], model.weight)
    part = engine.load(0, select={"model/weight": np.s_[1:, :2]})["model/weight"]
    assert torch.equal(part, model.weight.detach()[1:, :2])


@pytest.mark.usefixtures("on_processor")
def test_wide_arrays_of_jax_come_back_wide_or_not_at_all(kept: tierflow.Engine) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        tree = {"a": jax.numpy.array([2**40 + 1, 3])}
        kept.save(0, tree)
        assert_same(kept.load(0), tree)
    with pytest.raises(tierflow.ArgumentError, match="jax_enable_x64"):
        kept.load(0)
    assert kept.load(0, plain=True)["a"].tolist() == [2**40 + 1, 3]


@pytest.mark.usefixtures("on_processor")
def test_trees_of_jax(engine: tierflow.Engine) -> None:
    jax = pytest.importorskip("jax")
    tree = {"w": jax.numpy.arange(6.0).reshape(2, 3), "short": (jax.numpy.ones(3, "bfloat16"), np.ones(2))}
    engine.save(0, tree)
    for back in (engine.load(0), engine.load(0, jax.tree_util.tree_map(lambda x: x * 0, tree))):
        assert isinstance(back["w"], jax.Array)
        assert back["short"][0].dtype == "bfloat16"
        assert_same(jax.tree_util.tree_map(np.asarray, back), jax.tree_util.tree_map(np.asarray, tree))
    plain = engine.load(0, plain=True)
    assert type(plain["short"][0]) is np.ndarray


RANK = """
    import sys, numpy, tierflow
    rank, ranks, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    with tierflow.Engine(device="host", host_cache="16MiB", external=directory, rank=rank, ranks=ranks, run=1) as engine:
        engine.save(0, {"rank": rank, "x": numpy.full(3, rank)})
"""


def test_a_ranks_tree(ranks: Callable[..., None], tmp_path: pathlib.Path) -> None:
    ranks(RANK, 2, tmp_path)
    repository = tierflow.Repository(tmp_path)
    assert [repository.load(0, rank=rank)["rank"] for rank in (0, 1)] == [0, 1]
    assert repository.load(0, rank=1, select={"x": 0})["x"] == 1


def test_an_array_of_a_version_is_read_by_parts(tmp_path: pathlib.Path) -> None:
    field = np.arange(24.0).reshape(4, 3, 2)
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        engine.save(0, {"wave": {"u": field}, "scale": np.float32(3), "note": "a run", "none": np.zeros((0, 3))})
        engine.wait()
        for source in (engine, tierflow.Repository(tmp_path)):
            stored = source.array(0, "wave/u")
            assert isinstance(stored, tierflow.StoredArray)
            assert (stored.shape, stored.ndim, stored.dtype, len(stored)) == (field.shape, 3, field.dtype, 4)
            for index in (np.s_[1:3], np.s_[..., 0], np.s_[-1], np.s_[::-2, 1]):
                assert (stored[index] == field[index]).all()
            for index in (True, [0, 1], np.array([0, 1]), (np.array([0, 1]), ...), None):
                with pytest.raises(tierflow.ArgumentError, match="is no index of 'wave/u'"):
                    stored[index]
            assert (np.asarray(stored, dtype="float32") == field).all()
            assert np.asarray(source.array(0, "scale")) == 3
            assert source.array(0, "none")[...].shape == (0, 3)
            with pytest.raises(tierflow.ArgumentError, match="is no array"):
                source.array(0, "note")
            with pytest.raises(tierflow.ArgumentError, match="there is no 'wave/v'"):
                source.array(0, "wave/v")


def test_flushes_are_the_versions_that_are_not_durable_yet(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="16MiB", external=tmp_path) as engine:
        for version in range(4):
            engine.save(version, np.zeros(100_000))
        flushes = engine.flushes(timeout=60)
        seen = []
        for version in flushes:
            assert engine.is_durable(version)
            seen.append(version)
        assert len(flushes) == len(seen)
        assert seen == sorted(seen)
        assert list(engine.flushes()) == []


def test_flushes_end_with_versions_that_are_given_up(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="64MiB", external=tmp_path) as engine:
        for version in range(8):
            engine.save(version, {"x": np.full(500_000, float(version))})
        flushes = engine.flushes(timeout=60)
        for version in range(8):
            engine.discard(version)
        assert len(list(flushes)) == len(flushes)
