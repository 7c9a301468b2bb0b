"""Tests of pictures of an engine's work, and of the differences of two histories."""

import math
import pathlib

import numpy as np
import pytest

import tierflow
from tierflow import Difference


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with tierflow.Engine(device="host", host_cache="1MiB") as engine:
        with pytest.raises(tierflow.ArgumentError, match="pip install matplotlib"):
            engine.plot()


def test_a_time_line_has_a_row_for_each_thread_and_worker(tmp_path: pathlib.Path) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().subplots()
    with tierflow.Engine(device="host", host_cache="1MiB", scratch=tmp_path, timeline=1000) as engine:
        for version in range(4):
            engine.checkpoint(version, np.zeros(40_000))
        for version in range(4):
            engine.restore(version)
        assert engine.plot(axes) is axes
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert any("file, worker 1" in row for row in rows), rows
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"checkpoint", "restore", "flush"} <= set(names)
    with tierflow.Engine(device="host", host_cache="1MiB") as engine:
        with pytest.raises(tierflow.ArgumentError, match="timeline="):
            engine.plot(axes)


def test_differences_are_a_line_for_each_region() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().subplots()
    found = [Difference(version, 0, "u", 10, 1, (0,), 10.0**version, (0,)) for version in range(3)]
    found += [Difference(1, 1, "u", 10, 1, (0,), 50.0, (0,)), Difference(2, 0, "v", 0, 0, (), math.inf, ())]
    assert tierflow.plot_differences(found, axes) is axes
    assert list(axes.lines[0].get_ydata()) == [1.0, 50.0, 100.0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["u", "v"]
    assert list(axes.lines[3].get_xdata()) == [2]
