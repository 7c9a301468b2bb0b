"""Programs end in every way: each version that was taken in is durable then, or named as lost."""

import logging
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import tierflow

HEAD = """
import os, signal, sys
import numpy as np
import tierflow

engine = tierflow.Engine(device="host", host_cache="64MiB", external={place!r}, **{options!r})
def take_in(versions=range(1, 4)):
    for version in versions:
        engine.checkpoint(version, np.full(4 << 20, version, "u1"))
"""


def ends(place: pathlib.Path, program: str, *flags: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a program that has an engine over this directory."""
    text = HEAD.format(place=str(place), options=options) + textwrap.dedent(program)
    command = [sys.executable, "-X", "faulthandler", *flags, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def durable(place: pathlib.Path) -> list[int]:
    """Returns the versions that a later program finds, each with its bytes."""
    with tierflow.Engine(device="host", host_cache="64MiB", external=place) as engine:
        versions = engine.versions()
        for version in versions:
            back = np.zeros(4 << 20, "u1")
            engine.restore(version, back)
            assert (back == version).all()
    return versions


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("take_in()", 0),
        ("take_in()\nsys.exit(3)", 3),
        ("take_in()\nraise ValueError('mine')", 1),
        ("take_in()\nkept_by_a_cycle = [engine]; kept_by_a_cycle.append(kept_by_a_cycle)", 0),
        ("take_in()\ndel engine", 0),
        ("with engine:\n    take_in()\n    sys.exit(3)", 3),
        ("with engine:\n    take_in()\n    raise ValueError('mine')", 1),
        ("with engine:\n    take_in()\n    raise KeyboardInterrupt", -2),
    ],
)
def test_a_program_ends_and_nothing_is_lost(tmp_path: pathlib.Path, program: str, code: int) -> None:
    ended = ends(tmp_path, program, "-W", "error")
    assert ended.returncode == code, ended.stderr
    assert durable(tmp_path) == [1, 2, 3], ended.stderr
    assert "ResourceWarning" not in ended.stderr


# Writes beyond 1 MiB of a file fail, as on a full disk.
FULL = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, most))
"""


@pytest.mark.parametrize(
    ("flags", "end"),
    [
        (("-W", "error"), ""),
        (("-W", "default"), "del engine"),
        (("-W", "always"), "with engine:\n    sys.exit()"),
        (("-W", "default"), "with engine:\n    raise SystemExit"),
    ],
)
def test_lost_versions_are_named(tmp_path: pathlib.Path, flags: tuple[str, ...], end: str) -> None:
    ended = ends(tmp_path, f"take_in()\nengine.wait()\n{FULL}\ntake_in([4, 6, 7, 8])\n{end}", *flags)
    assert ended.returncode == 0, ended.stderr
    assert "ResourceWarning" in ended.stderr
    assert "they stay" not in ended.stderr
    assert named(ended.stderr) == {4, 6, 7, 8}
    assert durable(tmp_path) == [1, 2, 3]


def named(text: str) -> set[int]:
    """Returns the versions that a text names as lost: "version 7 is lost", "versions 1, 3 to 7 are lost"."""
    found = re.search(r"versions? ([0-9, to]+) (?:is|are) lost", text)
    assert found, text
    ends = [[int(end) for end in run.split(" to ")] for run in found[1].split(", ")]
    return {version for run in ends for version in range(run[0], run[-1] + 1)}


def test_a_fork_does_not_end_its_parents_engines(tmp_path: pathlib.Path) -> None:
    program = """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    take_in()
    child = os.fork()
    if child != 0:
        os.waitpid(child, 0)
        take_in([4])
    """
    ended = ends(tmp_path, textwrap.dedent(program), "-W", "error::ResourceWarning")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert durable(tmp_path) == [1, 2, 3, 4]


def test_versions_given_up_are_not_waited_for(tmp_path: pathlib.Path) -> None:
    """A suspension wants one of twelve versions. The end does not wait for the others."""
    field = np.ones(8 << 20, "u1")
    for with_block in (False, True):
        place = tmp_path / str(with_block)
        engine = tierflow.Engine(device="host", host_cache="256MiB", external=place)
        for version in range(12):
            engine.checkpoint(version, field)
        suspension = engine.suspend(60, version=11)
        assert suspension.wait()
        before = [version for version in range(12) if engine.is_durable(version)]
        if with_block:
            with engine:
                pass
        else:
            engine.close()
        with tierflow.Engine(device="host", external=place) as engine:
            assert engine.versions() == before
    assert len(before) < 12


@pytest.mark.parametrize("end", ["", "engine.close()", "with engine:\n    pass", "with engine:\n    sys.exit()"])
def test_versions_that_a_suspension_gave_up_are_named(tmp_path: pathlib.Path, end: str) -> None:
    program = f"take_in(range(1, 13))\nassert engine.suspend(60, version=12).wait()\n{end}"
    ended = ends(tmp_path, program, "-W", "error")
    assert ended.returncode == 0, ended.stderr
    kept = set(durable(tmp_path))
    assert 12 in kept
    lost = set(range(1, 13)) - kept
    assert (named(ended.stderr) if lost else set()) == lost
    assert ended.stderr.count("lost") == bool(lost), ended.stderr


def test_ctrl_c_in_a_handler_of_the_log_ends_the_call(caplog: pytest.LogCaptureFixture) -> None:
    class Ends(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise KeyboardInterrupt

    handler, logger = Ends(), logging.getLogger("tierflow")
    with caplog.at_level(logging.INFO, "tierflow"):
        logger.addHandler(handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                tierflow.Engine(device="host", host_cache="1MiB")
        finally:
            logger.removeHandler(handler)
        tierflow.Engine(device="host", host_cache="1MiB").close()


def test_the_log_is_pythons_at_the_level_asked_for(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"device": "host", "host_cache": "1MiB", "external": tmp_path}
    with caplog.at_level("WARNING", logger="tierflow"), tierflow.Engine(**options) as engine:
        engine.checkpoint(7, b"0")
    assert caplog.records == []
    with caplog.at_level("INFO", logger="tierflow"), tierflow.Engine(**options):
        pass
    lines = [(record.levelname, record.name, record.getMessage()) for record in caplog.records]
    assert lines == [("INFO", "tierflow", "opened; versions held: 1, the newest 7")]


def test_the_version_of_a_suspension_is_waited_for(tmp_path: pathlib.Path) -> None:
    field = np.ones(8 << 20, "u1")
    engine = tierflow.Engine(device="host", host_cache="256MiB", external=tmp_path)
    for version in range(12):
        engine.checkpoint(version, field)
    engine.suspend(60, version=11)
    engine.close()
    with tierflow.Engine(device="host", external=tmp_path) as engine:
        assert engine.latest() == 11


@pytest.mark.parametrize("end", ["with engine:\n        take_in([7])", "take_in([7])\n    engine.close()"])
def test_a_full_disk_leaves_the_engine_open(tmp_path: pathlib.Path, end: str) -> None:
    """The versions stay in the engine, and a second `close` makes them durable once there is room."""
    program = f"""
{FULL}
try:
    {end}
except tierflow.StalledError:
    pass
else:
    sys.exit("the disk was not full")
assert not engine.closed
engine.restore(7, np.zeros(4 << 20, "u1"))
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
engine.close()
assert engine.closed
"""
    ended = ends(tmp_path, program, "-W", "error")
    assert ended.returncode == 0, ended.stderr
    assert durable(tmp_path) == [7]


def test_nobody_is_warned_of_a_closed_engine(tmp_path: pathlib.Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = tierflow.Engine(device="host", host_cache="1MiB", external=tmp_path)
        engine.checkpoint(0, b"0")
        engine.close()
        del engine
        engine = tierflow.Engine(device="host", host_cache="1MiB")
        engine.checkpoint(0, b"0")
        del engine
    assert os.listdir(tmp_path)
