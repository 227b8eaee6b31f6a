"""The private folder of a Ray that a job starts; no Ray runs here."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from paraembed.cluster.local_ray import RAY_FOLDER, keep_logs, private_folder

HOLD = """
import sys
from paraembed.cluster.local_ray import private_folder
with private_folder() as folder:
    (folder / "r").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def base(monkeypatch):
    """An empty folder for temporary files, with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="b", dir="/tmp"))
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def test_the_folder_is_private_and_removed(base):
    with private_folder() as folder:
        assert folder.parent == base
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / RAY_FOLDER).mkdir()
        with private_folder() as other:
            assert other != folder
    with pytest.raises(KeyboardInterrupt), private_folder():
        raise KeyboardInterrupt
    assert list(base.iterdir()) == []


def test_the_next_start_removes_folders_of_killed_processes_only(base):
    command, pipes = [sys.executable, "-c", HOLD], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as killed, subprocess.Popen(command, **pipes) as alive:
        folders = [Path(holder.stdout.readline().strip()) for holder in (killed, alive)]
        killed.kill()
        killed.wait()
        foreign = [base / name for name in ("paraembed-ray-12345678", "paraembed-ray-mine", "paraembed-ray-link0000")]
        foreign[0].mkdir(mode=0o700)
        (foreign[0] / "thesis.tex").touch()
        foreign[1].mkdir(mode=0o700)
        foreign[2].symlink_to(foreign[1])
        with private_folder() as folder:
            assert set(base.iterdir()) == {folder, folders[1], *foreign}
        alive.communicate(timeout=60)
    assert set(base.iterdir()) == set(foreign)


def test_logs_of_a_ray_that_failed_are_kept_for_a_day(base):
    with private_folder() as failed:
        keep_logs(failed)
    with private_folder():
        assert failed.exists()
    os.utime(failed, (time.time() - 25 * 3600,) * 2)
    with private_folder():
        assert not failed.exists()


@pytest.mark.parametrize("kind", ["too long for a socket", "open to others", "missing"])
def test_a_folder_that_does_not_serve_is_not_taken(base, kind, monkeypatch):
    wanted = base / ("d" * 60 if kind.startswith("too") else "d")
    if kind != "missing":
        wanted.mkdir()
        wanted.chmod(0o777 if kind == "open to others" else 0o700)
    monkeypatch.setenv("RAY_TMPDIR", str(wanted))
    with private_folder() as folder:
        assert folder.parent == Path("/tmp")
