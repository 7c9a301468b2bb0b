"""Tests of exceptions: they name their subject, and have the system's error."""

import errno
import inspect
import os
import pathlib
from collections.abc import Callable

import numpy as np
import pytest

import tierflow


def test_a_directory_that_cannot_be_used_is_named(tmp_path: pathlib.Path) -> None:
    missing = tmp_path / "missing" / "run"
    with pytest.raises(tierflow.StorageError) as caught:
        tierflow.Engine(device="host", host_cache="4MiB", scratch=missing)
    assert caught.value.errno == errno.ENOENT
    assert caught.value.strerror == os.strerror(errno.ENOENT)
    assert caught.value.filename == str(missing)
    assert str(missing) in str(caught.value)


def test_a_directory_in_use_is_named(tmp_path: pathlib.Path) -> None:
    with tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path):
        with pytest.raises(tierflow.StorageError) as caught:
            tierflow.Engine(device="host", host_cache="4MiB", external=tmp_path)
    assert caught.value.errno == errno.EBUSY
    assert caught.value.filename.startswith(str(tmp_path))


def test_a_timeline_that_cannot_be_written_names_its_file(engine: tierflow.Engine, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "none" / "timeline.json"
    with pytest.raises(tierflow.StorageError) as caught:
        engine.write_timeline(path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(path))
    assert str(path) in str(caught.value)


def test_every_keyword_of_an_engine_is_described() -> None:
    text = tierflow.Engine.__doc__ or ""
    signature = inspect.signature(tierflow.Engine)
    described = {name for line in text.splitlines() for name in line.partition(":")[0].split(", ")}
    assert set(signature.parameters) <= described


def test_texts_name_nothing_of_another_door(engine: tierflow.Engine) -> None:
    engine.checkpoint(1, np.zeros(3))
    with pytest.raises(tierflow.ArgumentError) as caught:
        engine.restore(1, np.zeros(4))
    assert "Engine::" not in str(caught.value)
    with pytest.raises(tierflow.ArgumentError) as caught:
        engine.suspend(1.0)
    assert "external_vault" not in str(caught.value)
    for option in ("external", "node_local", "scratch", "exchange", "host_pool_directory"):
        with pytest.raises(tierflow.ArgumentError, match=rf"^{option} = .*a place has no name"):
            tierflow.Engine(**{"device": "host", "host_cache": "4MiB", option: ""})
    with pytest.raises(tierflow.ArgumentError, match=r"^scratch = .*a place has no name"):
        tierflow.Engine(device="host", host_cache="4MiB", scratch=["/tmp", ""])


def test_a_version_that_is_gone_may_have_been_given_up_by_a_retention(tmp_path: pathlib.Path) -> None:
    options = {"device": "host", "host_cache": "4MiB", "external": tmp_path, "retention": 1}
    with tierflow.Engine(**options) as engine:
        for version in range(3):
            engine.checkpoint(version, np.zeros(3))
            engine.wait()
        engine.discard(2)
        with pytest.raises(tierflow.UnknownVersionError, match="given up by the retention"):
            engine.restore(2)
    with tierflow.Engine(**options) as engine:
        with pytest.raises(tierflow.UnknownVersionError, match="a retention gave it up"):
            engine.restore(2)


def test_a_package_that_is_missing_is_an_attribute_that_is_missing(python: Callable[[str], str]) -> None:
    program = """
        import sys
        for name in ("torch", "checkpoint_schedules", "mpi4py", "jax", "devito", "pyrevolve"):
            sys.modules[name] = None
        import pydoc, tierflow
        print(hasattr(tierflow, "torch"), hasattr(tierflow, "adjoint"))
        print("Engine" in pydoc.plain(pydoc.render_doc(tierflow)))
        try:
            tierflow.torch
        except AttributeError as error:
            print(error)
        try:
            import tierflow.torch
        except ModuleNotFoundError as error:
            print(error.name)
    """
    said = python(program).splitlines()
    assert said[:2] == ["False False", "True"]
    assert "'torch', which is not installed" in said[2]
    assert said[3] == "torch"


def test_variables_stand_in_paths(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_HERE", str(tmp_path))
    monkeypatch.setenv("RUN_NAME", "b")
    with tierflow.Engine(device="host", host_cache="4MiB", external="$RUN_HERE/a-${RUN_NAME}$$") as engine:
        engine.checkpoint(1, np.zeros(8))
    assert tierflow.Repository("$RUN_HERE/a-${RUN_NAME}$$").versions() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["a-b$"]
    with pytest.raises(tierflow.ArgumentError, match="the variable NOT_SET_HERE is not set"):
        tierflow.Engine(device="host", host_cache="4MiB", external="/tmp/$NOT_SET_HERE")


def test_a_machine_chooses_for_all_programs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tierflow.conf"
    monkeypatch.setenv("TIERFLOW_CONFIG", str(file))
    with pytest.raises(tierflow.StorageError) as caught:
        tierflow.Engine(device="host")
    assert caught.value.filename == str(file)
    file.write_text(f"# of the machine\ndevice = host\nhost_cache = 4MiB\nexternal = {tmp_path}/site\n")
    with tierflow.Engine() as engine:
        engine.checkpoint(1, np.zeros(8))
    with tierflow.Engine(external=tmp_path / "own") as engine:
        assert engine.latest() is None
    file.write_text("host_cash = 4MiB\n")
    with pytest.raises(tierflow.ArgumentError, match="no option is called host_cash"):
        tierflow.Engine(device="host", host_cache="4MiB")
