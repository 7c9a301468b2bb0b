"""Tests of object stores: an S3 server on this machine, and URLs without a server."""

import pathlib
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import tierflow

SECRET = "geheimnis-in-the-environment"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Returns the address of a server with a bucket `runs`, which keeps its objects in memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        while True:
            assert server.poll() is None, "the server ended"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                continue
        url = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{url}/runs", method="PUT"), timeout=30).close()
        yield url
        server.kill()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the environment variables with which programs find the server."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }.items():
        monkeypatch.setenv(name, value)


def engine(external: str) -> tierflow.Engine:
    return tierflow.Engine(device="host", host_cache="64MiB", external=external)


@pytest.mark.usefixtures("s3")
def test_versions_outlive_their_engine_in_a_bucket() -> None:
    sizes = [0, 1000, 40_000_000]  # the last one goes in parts
    with engine("s3://runs/a") as first:
        for version, size in enumerate(sizes):
            first.checkpoint(version, np.full(size + 1, version + 1, "u1"))
        first.wait()
    with engine("s3://runs/a") as second:
        assert second.latest() == 2
        for version, size in enumerate(sizes):
            field = np.zeros(size + 1, "u1")
            second.restore(version, field)
            assert (field == version + 1).all()
    repository = tierflow.Repository("s3://runs/a")
    assert repository.versions() == [0, 1, 2]
    assert tierflow.Repository("s3://runs/b").versions() == []
    part = np.zeros(10, "u1")
    repository.read(2, 0, [39_999_000], part)
    assert (part == 3).all()


@pytest.mark.usefixtures("s3")
def test_a_bucket_is_named_by_its_url_and_gives_rows_and_other_ranks_pieces(tmp_path: pathlib.Path) -> None:
    with engine("s3://runs/d") as one:
        assert one.directory == "s3://runs/d"
        one.save(0, {"x": np.arange(400_000).reshape(1000, 400)})
        one.wait()
        assert one.load(0, select={"x": np.s_[10:12]})["x"].tolist() == np.arange(4000, 4800).reshape(2, 400).tolist()
        assert tierflow.Repository(one.directory).versions() == [0]
    with engine(tmp_path.as_uri()) as one:
        assert one.directory == tmp_path


@pytest.mark.usefixtures("s3")
def test_errors_name_no_secret() -> None:
    for url, expected in {
        "s3://missing/a": "there is no missing",
        "s3://key:word@runs/a": "environment variables",
        "s4://runs/a": "write s3://bucket/prefix",
    }.items():
        with pytest.raises(tierflow.TierflowError) as error:
            engine(url)
        assert expected in str(error.value)
        assert SECRET not in str(error.value)
        assert "word@" not in str(error.value)


def test_a_server_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with pytest.raises(tierflow.TierflowError, match="AWS_ALLOW_HTTP"):
        engine("s3://runs/a")


@pytest.mark.usefixtures("s3")
def test_a_fork_opens_a_bucket_anew(python: Callable[[str], str]) -> None:
    python(
        """
        import os, signal, warnings, tierflow
        warnings.simplefilter("ignore", DeprecationWarning)
        with tierflow.Engine(device="host", host_cache="64MiB", external="s3://runs/f") as one:
            one.save(0, {"x": 7})
        repository = tierflow.Repository("s3://runs/f")
        assert repository.load(0) == {"x": 7}
        child = os.fork()
        if child == 0:
            signal.alarm(50)
            try:
                repository.load(0)
            except tierflow.ArgumentError as error:
                assert "fork: open it again here" in str(error), error
                assert tierflow.Repository("s3://runs/f").load(0) == {"x": 7}
                del repository
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        assert repository.load(0) == {"x": 7}
        """
    )
