"""Short samples of the campaigns: kills of trainings, flipped bits, and many saves."""

import os
import pathlib
import subprocess
import sys

import pytest

CAMPAIGNS = pathlib.Path(__file__).parent.parent / "campaigns"


def run(name: str, **variables: str) -> str:
    command = [sys.executable, "-W", "ignore", str(CAMPAIGNS / f"{name}.py")]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=390, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


# The imports take minutes on a busy machine.
@pytest.mark.timeout(400)
# A sample of two doors on each storage. The campaign itself runs all doors on both.
@pytest.mark.parametrize(
    ("door", "storage"), [("dcp", "s3"), ("lightning", "directory"), ("transformers", "directory"), ("jax", "s3")]
)
def test_killed_trainings_go_on_from_the_newest_version_to_the_same_bits(door: str, storage: str) -> None:
    pytest.importorskip("torch" if door == "dcp" else door)
    told = run("kills", TIERFLOW_DOORS=door, TIERFLOW_STORAGES=storage, TIERFLOW_KILLS="2", TIERFLOW_JOBS="1")
    assert "0 findings" in told


@pytest.mark.timeout(400)
def test_flipped_bits_are_refused() -> None:
    assert "60 bits" in run("flips", TIERFLOW_FLIPS="60")


@pytest.mark.timeout(400)
def test_saves_leave_no_descriptors_and_threads_behind() -> None:
    assert "numpy: 30 saves" in run("saves", TIERFLOW_DOORS="numpy", TIERFLOW_SAVES="30")
