"""Runs the tutorials: each block of code becomes the file that its first line names, and each command is run."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

TUTORIALS = pathlib.Path(__file__).parents[3] / "docs" / "src" / "tutorials"
# The library's own test runs the page about C.
PAGES = sorted(page for page in TUTORIALS.glob("*.md") if "```python\n" in page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_runs(page: pathlib.Path, tmp_path: pathlib.Path) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    commands = 0
    for language, text in blocks:
        if language == "python":
            (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
            continue
        assert language == "sh"
        command = ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        commands += 1
    assert commands
