"""Tests of the engine's calls, their errors, and the versions that outlive the engine."""

import inspect
import json
import os
import pathlib
import re
import signal

import numpy as np
import pytest

import tierflow


def test_a_history_comes_back_in_reverse(tmp_path: pathlib.Path) -> None:
    steps, field = 64, np.zeros(16_384)
    with tierflow.Engine(
        device="host",
        device_cache="512KiB",
        host_cache="1MiB",
        scratch=tmp_path,
        after_restore="discard",
        timeline=1000,
        statistics=tmp_path / "rank-%r.json",
    ) as engine:
        engine.hint(range(steps - 1, -1, -1))
        for step in range(steps):
            field[:] = step
            engine.checkpoint(step, field)
        assert engine.versions() == list(range(steps))
        engine.prefetch_start()
        for step in reversed(range(steps)):
            engine.restore(step, field)
            assert (field == step).all()
        assert engine.versions() == []
        metrics = engine.metrics()
        assert metrics["checkpoint"]["count"] == metrics["restore"]["count"] == steps
        assert [tier["name"] for tier in metrics["tiers"]] == ["device", "host", "file"]
        assert sum(tier["restores"] for tier in metrics["tiers"]) == steps
        named = sum(times["total"] for times in metrics["causes"].values())
        calls = ("checkpoint", "restore", "produce", "consume", "wait")
        assert named == pytest.approx(sum(metrics[call]["blocked"] for call in calls))
        assert engine.explain()[0].startswith("Calls blocked the application for ")
        assert f'tierflow_calls_total{{call="restore"}} {steps}\n' in engine.open_metrics()
        statistics = json.loads(engine.statistics())
        assert {"call": "restore", "value": steps} in statistics["metrics"]["calls"]
        assert (statistics["rank"], statistics["ranks"], statistics["damage"]) == (0, 1, [])
        engine.write_timeline(tmp_path / "timeline.json")
    left = json.loads((tmp_path / "rank-0.json").read_text())
    assert {"call": "restore", "value": steps} in left["metrics"]["calls"]
    entries = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    assert any(entry["name"] == "restore" for entry in entries)


def test_several_directories_are_one_tier(tmp_path: pathlib.Path) -> None:
    field = np.zeros(100_000)
    with tierflow.Engine(device="host", host_cache="1MiB", scratch=[tmp_path, str(tmp_path)]) as engine:
        for step in range(20):
            field[:] = step
            engine.checkpoint(step, field)
        for step in reversed(range(20)):
            engine.restore(step, field)
            assert (field == step).all()
    with pytest.raises(tierflow.ArgumentError, match="no store has room"):
        tierflow.Engine(device="host", scratch=[])
    with pytest.raises(TypeError):
        tierflow.Engine(device="host", scratch=7)


def test_hints_are_any_integers(engine: tierflow.Engine) -> None:
    engine.hint(range(3))
    engine.hint(version for version in [3, 4])
    engine.hint(np.arange(5, 7))
    engine.hint([])
    with pytest.raises(TypeError):
        engine.hint(["one"])
    with pytest.raises(TypeError):
        engine.hint(5)


def test_versions_are_kept_or_discarded(engine: tierflow.Engine) -> None:
    field = np.ones(10)
    for version in (3, 1, 7):
        engine.checkpoint(version, field)
    assert engine.latest() == 7
    assert engine.latest(before=7) == 3
    assert engine.latest(before=1) is None
    engine.restore(3, field)
    engine.restore(3, field)
    engine.discard(3)
    assert engine.versions() == [1, 7]
    for call in (lambda: engine.restore(3, field), lambda: engine.discard(3), lambda: engine.consume(3)):
        with pytest.raises(tierflow.UnknownVersionError, match="version 3") as caught:
            call()
        assert isinstance(caught.value, KeyError)
        assert not str(caught.value).startswith("'")


def test_calls_to_be_mended(engine: tierflow.Engine) -> None:
    field = np.ones(10)
    engine.checkpoint(0, field)
    with pytest.raises(tierflow.ArgumentError, match="used before"):
        engine.checkpoint(0, field)
    with pytest.raises(tierflow.ArgumentError, match="80 bytes"):
        engine.restore(0, np.ones(9))
    with pytest.raises(tierflow.ArgumentError, match="no bytes"):
        engine.checkpoint(1)
    with pytest.raises(tierflow.ArgumentError, match="fits no tier"):
        engine.checkpoint(1, np.zeros(4 << 20))
    with pytest.raises(TypeError):
        engine.checkpoint("0", field)
    for version in (-1, (1 << 64) - 1, 1 << 64):
        with pytest.raises(ValueError, match=f"^{version} is no version: .* from 0 to 2") as caught:
            engine.checkpoint(version, field)
        assert isinstance(caught.value, tierflow.ArgumentError)
    for call in (
        engine.restore,
        engine.discard,
        engine.wait_version,
        engine.restore_size,
        engine.consume,
        engine.latest,
    ):
        with pytest.raises(tierflow.ArgumentError, match="is no version"):
            call(-1)
    with pytest.raises(tierflow.ArgumentError, match="is no version"):
        engine.hint([3, -1])
    with pytest.raises(tierflow.ArgumentError, match="is no version"):
        engine.hint([(1 << 64) - 1])
    engine.checkpoint((1 << 64) - 3, field)
    assert engine.next_version == (1 << 64) - 2


def test_a_full_cache_says_so() -> None:
    with tierflow.Engine(device="host", host_cache="64KiB") as engine:
        engine.checkpoint(0, bytes(60_000))
        with pytest.raises(tierflow.NoRoomError, match="discard some, or restore") as caught:
            engine.checkpoint(1, bytes(60_000))
        assert isinstance(caught.value, MemoryError)
        engine.discard(0)
        engine.checkpoint(1, bytes(60_000))


@pytest.mark.parametrize(
    ("size", "held"), [("64KiB", 65536), ("0.25 MiB", 262144), ("100_000", 98304), (131072, 131072), ("128kb", 126976)]
)
def test_sizes(size: str | int, held: int) -> None:
    with tierflow.Engine(device="host", host_cache=size) as engine:
        capacity = engine.metrics()["tiers"][0]["capacity"]
        assert 0 <= capacity - held < 8192


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"host_cache": "4 GiBi"}, "^host_cache: .*512 MiB"),
        ({"host_cache": "-4GiB"}, "512 MiB"),
        ({"host_cache": -1}, "512 MiB"),
        ({"host_cache": "nan GiB"}, "512 MiB"),
        ({"device": "gpu"}, "cuda:1"),
        ({"device": "cuda:x"}, "cuda:1"),
        ({"after_restore": "drop"}, "keep or discard"),
        ({"flush": "late"}, "eager or needed"),
        ({}, "no tier"),
        ({"host_cache": "10TiB"}, "memory and swap that this process may use"),
        ({"host_cache": 4096, "timeline": -1}, "^timeline: "),
        ({"host_cache": 4096, "closing_patience": float("nan")}, "seconds"),
    ],
)
def test_options_that_make_no_engine(keywords: dict[str, object], says: str) -> None:
    with pytest.raises(tierflow.ArgumentError, match=says):
        tierflow.Engine(**{"device": "host", **keywords})


@pytest.mark.parametrize(
    ("option", "value"), [("rank", "x"), ("scratch", 3), ("host_cache", 1.5), ("scratch", ["/tmp", 3])]
)
def test_an_option_of_another_type_is_named(option: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"^{option}: "):
        tierflow.Engine(**{"device": "host", "host_cache": "1MiB", option: value})


def test_signals_that_there_are_not() -> None:
    for number in (-1, 0, 9, 19, 65, 128, 999, 2**31 - 1):
        with pytest.raises(tierflow.TierflowError, match=f"signal {number} cannot be received"):
            tierflow.Notice([number])


def test_options_are_those_of_all_languages() -> None:
    """All keywords except two are in the book's table."""
    book = pathlib.Path(__file__).parents[3] / "docs/src/options.md"
    table = set(re.findall(r"^\| `(\w+)` \|", book.read_text(), re.MULTILINE))
    keywords = set(inspect.signature(tierflow.Engine).parameters)
    assert keywords == table | {"group", "retention"}
    with tierflow.Engine(
        device="host", host_cache="1MiB", policy="lru", keep_newest=None, host_lead="64KiB", device_growth="direct"
    ) as engine:
        engine.checkpoint(1, b"1")
    with pytest.raises(TypeError, match="host_cash"):
        tierflow.Engine(device="host", host_cash="1MiB")


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        tierflow.Engine("host")
    with pytest.raises(TypeError):
        tierflow.Engine(device="host", host_cache=1.5)


def test_an_engine_names_no_size_of_a_directory_without_a_limit(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path) as engine:
        assert "host 0 B of 1 MiB (0%), external 0 B>" in repr(engine)


def test_a_closed_engine_says_so() -> None:
    engine = tierflow.Engine(device="host", host_cache="1MiB")
    assert not engine.closed
    engine.close()
    engine.close()
    assert engine.closed
    assert "closed" in repr(engine)
    for call in (
        lambda: engine.checkpoint(0, b"0"),
        lambda: engine.restore(0, bytearray(1)),
        lambda: engine.produce(0, 1, "u1"),
        lambda: engine.consume(0),
        lambda: engine.hint([0]),
        engine.wait,
        engine.versions,
        engine.latest,
        engine.metrics,
    ):
        with pytest.raises(tierflow.ClosedError, match="closed"):
            call()


def test_the_next_engine_goes_on(tmp_path: pathlib.Path) -> None:
    state = np.zeros(1000)
    for life in range(3):
        with tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path, retention=2) as engine:
            newest = engine.latest()
            if newest is None:
                first = 0
            else:
                engine.restore(newest, state)
                assert (state == newest).all()
                first = newest + 1
            assert first == 5 * life
            for version in range(first, first + 5):
                state[:] = version
                engine.checkpoint(version, state)
            # The end of the block waits until they are there to stay.
    with tierflow.Engine(device="host", external=tmp_path) as engine:
        assert engine.versions()[-2:] == [13, 14]
        assert engine.damage() == []


def test_retention_by_rules(tmp_path: pathlib.Path) -> None:
    rules = tierflow.Retention(2, every=10)
    assert repr(rules) == "tierflow.Retention(2, every=10, younger_than=None)"
    with tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path, retention=rules) as engine:
        for version in range(25):
            engine.checkpoint(version, bytes(100))
            engine.wait()
    with tierflow.Engine(device="host", external=tmp_path) as engine:
        assert engine.versions() == [0, 10, 20, 23, 24]


def test_a_damaged_version_is_named(tmp_path: pathlib.Path) -> None:
    field = np.arange(100_000.0)
    with tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path) as engine:
        for version, state in enumerate([field, -field]):
            engine.checkpoint(version, state)
            engine.wait()
    marked = (-field).tobytes()[4096:8192]
    hit = 0
    for path in tmp_path.rglob("*"):
        if path.is_file() and (at := path.read_bytes().find(marked)) >= 0:
            data = bytearray(path.read_bytes())
            data[at + 100] ^= 1
            path.write_bytes(data)
            hit += 1
    assert hit == 1
    with tierflow.Engine(device="host", external=tmp_path) as engine:
        with pytest.raises(tierflow.DamagedError, match="version 0 is the newest older") as caught:
            engine.restore(1, np.zeros_like(field))
        assert isinstance(caught.value, OSError)
        back = np.zeros_like(field)
        engine.restore(0, back)
        assert (back == field).all()


def test_a_directory_that_cannot_be(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(tierflow.StorageError) as caught:
        tierflow.Engine(device="host", host_cache="1MiB", scratch=tmp_path / "file")
    assert isinstance(caught.value, OSError)
    with tierflow.Engine(device="host", external=tmp_path / "shared") as engine:
        with pytest.raises(tierflow.StorageError, match="in use"):
            tierflow.Engine(device="host", external=tmp_path / "shared")
        engine.checkpoint(0, b"0")
    with pytest.raises(tierflow.StorageError):
        engine = tierflow.Engine(device="host", host_cache="1MiB")
        engine.write_timeline(tmp_path / "no" / "such" / "directory")


def test_a_wait_has_an_end(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="1MiB", scratch=tmp_path) as engine:
        engine.checkpoint(0, bytes(1000))
        engine.wait()
        engine.wait(timeout=10)
        engine.wait(timeout=float("inf"))
        with pytest.raises(tierflow.ArgumentError):
            engine.wait(timeout=float("nan"))


def test_a_call_whose_time_is_over_is_named(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="64KiB", scratch=tmp_path) as engine:
        slot = engine.produce(0, 50_000, "u1", timeout=10)
        with pytest.raises(
            tierflow.TimedOutError, match=r"^the change of the size of the host cache was not over within 50ms"
        ):
            engine.resize_host_cache(0, timeout=0.05)
        slot.give_up()
        assert engine.resize_host_cache(0) == 0


def test_one_version_is_waited_for(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path, flush="eager") as engine:
        engine.checkpoint(0, bytes(1000))
        engine.wait_version(0, timeout=60)
        assert engine.is_durable(0)
        assert not engine.is_durable(1)
        with pytest.raises(tierflow.UnknownVersionError):
            engine.wait_version(1)


def test_a_job_that_has_to_go(tmp_path: pathlib.Path) -> None:
    notice = tierflow.Notice([signal.SIGUSR2], grace=60)
    assert notice.left is None
    with tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path) as engine:
        assert engine.suspend(60).version is None
        assert not engine.suspend(60).wait()
        for step in range(10):
            engine.checkpoint(step, bytes([step]) * 100_000)
        engine.wait_version(0, timeout=60)
        os.kill(os.getpid(), signal.SIGUSR2)
        while (left := notice.left) is None:
            pass
        assert 0 < left <= 60
        suspension = engine.suspend(left)
        assert (suspension.version, suspension.newest) == (9, 9)
        assert suspension.expected is not None
        assert suspension.wait()
        assert engine.is_durable(9)
        assert engine.time_to_durable(9) == 0
        assert engine.suspend(60, version=9).wait()
        with pytest.raises(tierflow.UnknownVersionError):
            engine.suspend(60, version=10)
    with tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path) as engine:
        back = bytearray(100_000)
        engine.restore(9, back)
        assert back == bytes([9]) * 100_000
    with tierflow.Engine(device="host", host_cache="4MiB") as engine, pytest.raises(tierflow.ArgumentError):
        engine.suspend(60)
    by_hand = tierflow.Notice()
    by_hand.give(5)
    assert by_hand.left is not None
    assert by_hand.left <= 5
    with pytest.raises(tierflow.ArgumentError):
        tierflow.Notice([signal.SIGKILL], grace=1)


def test_closing_keeps_what_is_to_outlive_it(tmp_path: pathlib.Path) -> None:
    field = np.ones(1 << 20)
    engine = tierflow.Engine(device="host", host_cache="64MiB", external=tmp_path)
    for version in range(4):
        engine.checkpoint(version, field)
    engine.close()
    with tierflow.Engine(device="host", external=tmp_path) as engine:
        assert engine.versions() == [0, 1, 2, 3]
    engine = tierflow.Engine(device="host", host_cache="64MiB", external=tmp_path, closing_patience=0)
    for version in range(4, 12):
        engine.checkpoint(version, field)
    with pytest.raises(tierflow.TimedOutError):
        engine.close()
    # The engine is still open, and a call can wait for it.
    assert not engine.closed
    engine.wait()
    engine.close()
    assert engine.closed
    engine.close()


def test_versions_hinted_next_come_up_first(engine: tierflow.Engine) -> None:
    for version in range(100):
        engine.checkpoint(version, bytes(1 << 16))
    engine.hint(range(100))
    engine.hint_next([50, 60])
    assert engine.reserve(1)[0] == 100
    assert [engine.restore(version, bytearray(1 << 16)) for version in (50, 60, 0)] == [None] * 3
    with pytest.raises(TypeError):
        engine.hint_next(7)


def test_hints_are_withdrawn(engine: tierflow.Engine) -> None:
    engine.hint([3, 2])
    engine.forget_hints()
    engine.hint([1])
    engine.checkpoint(1, b"1")
    engine.restore(1, bytearray(1))


def test_differences_give_the_whole_bytes() -> None:
    field = np.zeros(100_000, "u1")
    with tierflow.Engine(device="host", device_cache="256KiB", host_cache="4MiB", dedup=128) as engine:
        for version in range(20):
            field[version * 100] = version
            engine.checkpoint(version, field)
        for version in reversed(range(20)):
            back = np.zeros_like(field)
            engine.restore(version, back)
            assert back.nonzero()[0].max(initial=0) == version * 100
        assert engine.metrics()["hops"]


def test_compressed_versions_come_back_as_they_were_or_within_a_bound(tmp_path: pathlib.Path) -> None:
    field = np.sin(np.arange(100_000, dtype="f4") / 300)
    kinds = {"device": "host", "device_cache": "1MiB", "host_cache": "32MiB", "flush": "eager"}
    with tierflow.Engine(**kinds, compress="f32, always") as engine:
        for version in range(20):
            engine.checkpoint(version, field * version)
        engine.wait()
        for version in reversed(range(20)):
            back = np.zeros_like(field)
            engine.restore(version, back)
            assert np.array_equal(back, field * version)
        figures = engine.metrics()["compression"]
        assert figures["stored"] < figures["compressed"]
    with tierflow.Engine(**kinds, compress="f32, wave = 1e-3, always") as engine:
        for version in range(20):
            engine.checkpoint(version, field, names=["wave"])
        engine.wait()
        for version in range(20):
            back = np.zeros_like(field)
            engine.restore(version, back)
            assert np.abs(back - field).max() <= 1e-3 * np.abs(field).max()
        figures = engine.metrics()["compression"]
        assert figures["stored"] < figures["compressed"] / 5
    errors = [None, 1e-2, 1e-5]
    with tierflow.Engine(**kinds, compress="f32, wave = absolute 1e-3, always") as engine:
        for version in range(20):
            engine.checkpoint(version, field, names=["wave"], within_error=errors[version % 3])
        engine.wait()
        for version in range(12):
            back = np.zeros_like(field)
            engine.restore(version, back)
            error = errors[version % 3] or 1e-3
            assert error / 4 < np.abs(back - field).max() <= error
        with pytest.raises(tierflow.ArgumentError, match="above 0"):
            engine.checkpoint(20, field, names=["wave"], within_error=0.0)
    with tierflow.Engine(**kinds, scratch=tmp_path, compress="f32, storage, always") as engine:
        for version in range(20):
            engine.checkpoint(version, field * version)
            engine.wait()
        tiers = {tier["name"]: tier["used"] for tier in engine.metrics()["tiers"]}
        assert tiers["file"] < tiers["host"]
        for version in reversed(range(20)):
            back = np.zeros_like(field)
            engine.restore(version, back)
            assert np.array_equal(back, field * version)
    with pytest.raises(tierflow.ArgumentError, match="tier below"):
        tierflow.Engine(**kinds, compress="f32, storage")
    with pytest.raises(tierflow.ArgumentError, match="f99"):
        tierflow.Engine(**kinds, compress="f99")
    with pytest.raises(tierflow.ArgumentError, match="nvcomp-lz4 or nvcomp-zstd"):
        tierflow.Engine(**kinds, compress="f32, nvcomp-bitcomp")
    with pytest.raises(tierflow.ArgumentError, match="leave out nvCOMP"):
        tierflow.Engine(device="host", host_cache="1MiB", scratch=tmp_path, compress="f32, nvcomp-lz4")
    with pytest.raises(tierflow.ArgumentError, match="CUDA device"):
        tierflow.Engine(**kinds, compress="f32, nvcomp-lz4")


def test_differences_are_compressed_where_both_are_chosen(tmp_path: pathlib.Path) -> None:
    field = np.arange(100_000, dtype="i4") % 7
    kinds = {"device": "host", "device_cache": "1MiB", "host_cache": "32MiB", "node_local": tmp_path}
    with tierflow.Engine(**kinds, dedup=128, compress="i32, always") as engine:
        for version in range(20):
            field[version * 2000 : version * 2000 + 4000] += 1
            engine.checkpoint(version, field)
        engine.wait()
        figures = engine.metrics()["compression"]
        # Of differences, which are far less than the checkpoints.
        assert 0 < figures["stored"] < figures["compressed"] < 10 * field.nbytes
    with tierflow.Engine(**kinds, dedup=64) as engine:
        for version in reversed(range(20)):
            back = np.zeros_like(field)
            engine.restore(version, back)
            assert np.array_equal(back, field)
            field[version * 2000 : version * 2000 + 4000] -= 1
    with pytest.raises(tierflow.ArgumentError, match="bounds"):
        tierflow.Engine(**kinds, dedup=128, compress="i32, wave = 1e-3")


def test_without_an_agent_the_process_does_its_work(tmp_path: pathlib.Path) -> None:
    places = {"external": tmp_path / "far", "agent": tmp_path / "agent"}
    with pytest.raises(tierflow.ArgumentError, match="`node_local` and `external`"):
        tierflow.Engine(device="host", host_cache="1MiB", **places)
    with tierflow.Engine(device="host", host_cache="1MiB", node_local=tmp_path / "near", **places) as engine:
        engine.checkpoint(1, b"bytes")
        engine.wait()
        assert engine.losses() == []
    assert tierflow.Repository(tmp_path / "far").versions() == [1]


def test_engines_share_a_pool(tmp_path: pathlib.Path) -> None:
    pool = tierflow.HostPool("32MiB", slab="2MiB")
    assert pool.bytes == 32 << 20
    engines = [tierflow.Engine(device="host", host_pool=pool, scratch=tmp_path) for _ in range(2)]
    for number, engine in enumerate(engines):
        engine.checkpoint(0, bytes([number]) * 100_000)
    for number, engine in enumerate(engines):
        back = bytearray(100_000)
        engine.restore(0, back)
        assert back == bytes([number]) * 100_000
        engine.close()


def test_a_cache_gives_memory_back(engine: tierflow.Engine) -> None:
    engine.checkpoint(0, bytes(1 << 20))
    assert engine.resize_device_cache(0) == 0
    assert engine.metrics()["tiers"][0]["limit"] == 0
    # The cache does not grow beyond the size with which the engine was built, and the answer says so.
    assert engine.resize_device_cache("1TiB", timeout=10) == 4 << 20
    assert engine.resize_host_cache("8MiB") == 8 << 20
    back = bytearray(b"1" * (1 << 20))
    engine.restore(0, back)
    assert back == bytes(1 << 20)


def test_metrics_are_a_table_in_a_notebook(engine: tierflow.Engine) -> None:
    engine.checkpoint(0, bytes(4096))
    metrics = engine.metrics()
    assert isinstance(metrics, dict)
    assert isinstance(metrics, tierflow.Metrics)
    assert metrics["checkpoint"]["bytes"] == 4096
    html = metrics._repr_html_()
    assert "<td>checkpoint</td><td>1</td><td>4 KiB</td>" in html


def test_a_tier_without_limit_has_no_size_in_a_notebook(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path) as engine:
        html = engine.metrics()._repr_html_()
    assert "<td>no limit</td>" in html
    assert "1 EiB" not in html
    assert "1024 PiB" not in html


def test_an_engine_of_ones_own() -> None:
    class Mine(tierflow.Engine):
        def twice(self, version: int, field: np.ndarray) -> None:
            self.checkpoint(version, field, field)

    with Mine(device="host", host_cache="1MiB") as engine:
        engine.twice(0, np.ones(4))
        assert engine.restore_size(0) == 64


def test_errors_are_the_builtin_that_fits() -> None:
    for name, builtin in {
        "ArgumentError": ValueError,
        "ArrayError": ValueError,
        "ClosedError": ValueError,
        "DamagedError": OSError,
        "DeviceError": RuntimeError,
        "ForkedError": RuntimeError,
        "NoRoomError": MemoryError,
        "StalledError": OSError,
        "StorageError": OSError,
        "TimedOutError": TimeoutError,
        "UnknownVersionError": KeyError,
    }.items():
        error = getattr(tierflow, name)
        assert issubclass(error, tierflow.TierflowError)
        assert issubclass(error, builtin)
        assert error.__module__ == "tierflow"
