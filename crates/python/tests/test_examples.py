"""The examples run, as a user starts them."""

import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def started(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_heat_adjoint(tmp_path: pathlib.Path) -> None:
    told = started(
        "heat_adjoint.py",
        "--cells",
        "20000",
        "--device-cache",
        "2MiB",
        "--host-cache",
        "4MiB",
        "--scratch",
        str(tmp_path),
    )
    assert "finite differences are off by" in told
    assert "file" in told
