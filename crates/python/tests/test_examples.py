"""Runs the examples as a user does."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent
EXAMPLES = PACKAGE / "examples"


def started(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    # JAX runs on the processor, also on a machine with a GPU.
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
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


def test_adjoints() -> None:
    pytest.importorskip("checkpoint_schedules")
    assert started("adjoints.py").count("Taylor") == 3


def test_train_offload() -> None:
    pytest.importorskip("torch")
    told = started("train_offload.py", "--steps", "4", "--layers", "2")
    assert "left and came back" in told
    assert "MiB leave" in told


def test_save_and_resume(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch")
    begun = started("save_and_resume.py", "--directory", str(tmp_path), "--steps", "20")
    resumed = started("save_and_resume.py", "--directory", str(tmp_path), "--steps", "20")
    whole = started("save_and_resume.py", "--directory", str(tmp_path / "whole"), "--steps", "40")
    assert "goes on at step 20, from version 1" in resumed
    assert begun.split(";")[0] != resumed.splitlines()[-1].split(";")[0] == whole.split(";")[0]


def test_jax_adjoint() -> None:
    pytest.importorskip("jax")
    told = started("jax_adjoint.py", "--steps", "50", "--cells", "2000")
    values = [float(line.split(":")[1].split(",")[0]) for line in told.splitlines()[:2]]
    assert values[0] == pytest.approx(values[1], rel=1e-4)


def test_devito_gradient(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("devito")
    if shutil.which("gcc") is None:
        pytest.skip("Devito needs gcc")
    pytest.importorskip("pyrevolve")
    told = started(
        "devito_gradient.py",
        *("--cells", "24", "--steps", "60", "--buffer", "9", "--snapshots", "20"),
        *("--ways", "memory", "tierflow", "unhinted", "npy", "pyrevolve", "snapshots"),
        *("--device-cache", "500KiB", "--host-cache", "2MiB", "--scratch", str(tmp_path)),
        *("--image", str(tmp_path / "image.pgm")),
    )
    assert told.count("the same bits") == 6
    assert "nan" not in told
    assert (tmp_path / "image.pgm").read_bytes().startswith(b"P5 24 24 255")


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
