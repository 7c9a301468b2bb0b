"""The recipes are short, have types, and run."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parent.parent
GALLERY = sorted((PACKAGE / "examples" / "gallery").glob("*.py"))


@pytest.mark.parametrize("recipe", GALLERY, ids=lambda recipe: recipe.stem)
def test_a_recipe_runs_twice_and_is_short(recipe: pathlib.Path, tmp_path: pathlib.Path) -> None:
    framework = recipe.stem.partition("_")[0]
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    assert len(recipe.read_text().splitlines()) <= 25
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    # The second run finds the versions of the first. Recipes with heavy imports are resumed by their examples, or by others of the same door.
    times = 2 if framework in ("torch", "jax", "orbax", "zarr") else 1
    for _ in range(times):
        command = [sys.executable, "-W", "ignore", str(recipe), str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
        assert done.returncode == 0, done.stderr


# The types of PyTorch take minutes on a busy machine.
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "checker",
    [
        ("mypy", "--strict", "--config-file", str(PACKAGE / "pyproject.toml")),
        ("pyright", "--pythonpath", sys.executable),
    ],
    ids=lambda checker: checker[0],
)
def test_recipes_are_typed(checker: tuple[str, ...]) -> None:
    if any(
        importlib.util.find_spec(name.stem.partition("_")[0]) is None for name in [*GALLERY, pathlib.Path(checker[0])]
    ):
        pytest.skip("packages of the recipes are not installed")
    command = [sys.executable, "-m", *checker, *map(str, GALLERY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=390, check=False)
    assert done.returncode == 0, done.stdout
