"""The examples run, as a user starts them."""

import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent
EXAMPLES = PACKAGE / "examples"


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


@pytest.mark.parametrize("path", ["README.md", "../../README.md"])
def test_the_readme_runs(path: str) -> None:
    if not (PACKAGE / path).is_file():
        pytest.skip("the package is not in its repository")
    blocks = (PACKAGE / path).read_text().split("```python\n")[1:]
    assert blocks
    for block in blocks:
        program = block.split("```")[0]
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
