"""Fixtures and helpers of the tests."""

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

import tierflow


@pytest.fixture
def engine() -> Iterator[tierflow.Engine]:
    """Returns an engine with two tiers of plain memory."""
    with tierflow.Engine(device="host", device_cache="4MiB", host_cache="16MiB") as engine:
        yield engine


@pytest.fixture
def on_processor() -> Iterator[None]:
    """Lets JAX make arrays in plain memory, also on a machine with a GPU."""
    jax = pytest.importorskip("jax")
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.fixture
def python() -> Callable[[str], str]:
    """Runs a program in its own interpreter, and returns its output. Fails if the program fails, or after a minute."""

    def run(program: str) -> str:
        command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def ranks() -> Callable[..., None]:
    """Runs a program in several interpreters side by side. Each gets its rank, the number of ranks, and further arguments.

    An interpreter leaves behind the last line and is not finalised: a thread of gloo that drops a tensor meanwhile would abort
    it (https://github.com/pytorch/pytorch/issues/190489).
    """

    def run(program: str, count: int, *arguments: object) -> None:
        program = textwrap.dedent(program) + "import os\nos._exit(0)\n"
        running = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-X",
                    "faulthandler",
                    "-c",
                    program,
                    str(rank),
                    str(count),
                    *map(str, arguments),
                ],
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]
        try:
            told = [one.communicate(timeout=100)[1] for one in running]
        finally:
            for one in running:
                one.kill()
        assert all(one.returncode == 0 for one in running), "\n".join(told)

    return run
