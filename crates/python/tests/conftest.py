"""What the tests share."""

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

import tierflow


@pytest.fixture
def engine() -> Iterator[tierflow.Engine]:
    """Plain memory, two tiers of it."""
    with tierflow.Engine(device="host", device_cache="4MiB", host_cache="16MiB") as engine:
        yield engine


@pytest.fixture
def python() -> Callable[[str], str]:
    """Runs a program in an interpreter of its own and returns what it printed. It fails with the program, or after a minute."""

    def run(program: str) -> str:
        command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
