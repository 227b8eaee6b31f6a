import os
import stat
from pathlib import Path

import psutil
import pytest

from paraembed.cluster.session import absolute, in_submitted_job, ray_session


@pytest.mark.ray
def test_the_cluster_asks_for_its_token_and_listens_on_loopback_only(ray_cluster: None) -> None:
    assert os.environ["RAY_AUTH_MODE"] == "token"
    token = Path.home() / ".ray" / "auth_token"
    if "RAY_AUTH_TOKEN" not in os.environ and "RAY_AUTH_TOKEN_PATH" not in os.environ:
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening, "Ray's servers are not among this process's children"
    assert all(address.startswith("127.") or address in {"::1", "::ffff:127.0.0.1"} for address in listening), listening


def test_workers_must_be_positive() -> None:
    with pytest.raises(ValueError, match="--workers is 0; it must be at least 1"), ray_session(0):
        pass


def test_relative_outputs_are_refused_in_a_submitted_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(Path("out"), "--out") == tmp_path / "out"
    job = tmp_path / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    job.mkdir(parents=True)
    monkeypatch.chdir(job)
    assert in_submitted_job()
    assert absolute(tmp_path / "out", "--out") == tmp_path / "out"
    with pytest.raises(ValueError, match="runs in a temporary copy of the folder: give an absolute path"):
        absolute(Path("out"), "--out")
