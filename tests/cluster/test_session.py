"""Sessions of Ray: what listens, who waits for machines, whose the token and the private folder are."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
import ray
from ray._private import ray_constants
from ray._raylet import GCS_AUTOSCALER_CLUSTER_CONFIG_KEY, GCS_AUTOSCALER_STATE_NAMESPACE
from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig
from ray.util.placement_group import placement_group, remove_placement_group

from paraembed.cluster import session
from paraembed.cluster.local_ray import RAY_FOLDER, keep_logs, private_folder
from paraembed.cluster.session import run_tasks, wait_for_workers
from tests.another_user import another_user_does
from tests.jobs import job_command


def listening():
    """Addresses at which this process and those that it started listen."""
    connections = [
        connection
        for process in (psutil.Process(), *psutil.Process().children(recursive=True))
        for connection in process.net_connections("inet")
    ]
    return {connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN}


def test_the_cluster_asks_for_its_token_and_listens_on_loopback_only_and_on_no_fixed_port(ray_cluster):
    assert os.environ["RAY_AUTH_MODE"] == "token"
    token = Path.home() / ".ray" / "auth_token"
    if "RAY_AUTH_TOKEN" not in os.environ and "RAY_AUTH_TOKEN_PATH" not in os.environ:
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
    addresses = {place.ip for place in listening()}
    assert addresses, "Ray's servers are not among this process's children"
    assert all(address.startswith("127.") or address in {"::1", "::ffff:127.0.0.1"} for address in addresses), addresses
    fixed = {ray_constants.DEFAULT_DASHBOARD_AGENT_LISTEN_PORT, ray_constants.DEFAULT_PORT, 8265, 10001}
    assert not fixed & {place.port for place in listening()}


def test_the_runtime_environment_names_the_program_and_nothing_of_the_environment(ray_cluster):
    values = dict(ray.get_runtime_context().runtime_env)
    assert {*values} == {"py_executable", "worker_process_setup_hook", "env_vars"}
    assert {*values["env_vars"]} == {ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can try what another user may do")
def test_another_user_reaches_nothing_of_a_session(ray_cluster):
    folder = Path(ray.get_runtime_context().get_temp_dir())
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    paths = [folder.parent, folder, *folder.rglob("*")]
    assert {"sockets", "logs", "runtime_resources"} <= {path.name for path in paths}
    assert another_user_does(paths) == []


def test_the_address_of_a_cluster_may_be_of_ipv6():
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        address = f"[::1]:{server.getsockname()[1]}"
        session._probe(address)
    with pytest.raises(ConnectionError, match=r"RAY_ADDRESS=\[::1\]"):
        session._probe(address)


@pytest.fixture
def as_on_a_cluster(ray_cluster, monkeypatch):
    """Jobs take the Ray of this machine for a cluster that they have joined."""
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)


@pytest.mark.slow
def test_a_cluster_without_room_is_waited_for_with_a_line_at_a_time(as_on_a_cluster, monkeypatch, capsys):
    monkeypatch.setattr(session, "_WAITING_SECONDS", 1)
    cpus = int(ray.cluster_resources()["CPU"])
    taken = placement_group([{"CPU": 1}] * cpus)
    assert taken.wait(60)
    free = threading.Timer(3.5, remove_placement_group, [taken])
    free.start()
    wait_for_workers(2, {"CPU": 1.0, "memory": 1e6})
    free.join()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("waiting for machines: ")]
    assert 2 <= len(lines) <= 8
    assert "2 workers, each with a CPU, 0.0 GB of memory; the cluster has free: 0 CPU" in lines[0]
    wait_for_workers(cpus, {"CPU": 1.0})  # it ends, so nothing of its own is left


def test_tasks_wait_for_machines_with_a_line_at_a_time(as_on_a_cluster, monkeypatch):
    lines = []

    def note(line):
        if not lines:
            remove_placement_group(taken)
        lines.append(line)

    monkeypatch.setattr(session, "_WAITING_SECONDS", 1)
    monkeypatch.setattr(session, "say", note)
    taken = placement_group([{"CPU": 1}] * int(ray.cluster_resources()["CPU"]))
    assert taken.wait(60)
    assert list(run_tasks(lambda number: number**2, [3], 2)) == [9]
    assert lines[0] == "waiting for machines: 1 worker with a CPU; the cluster has free: 0 CPU"


NO_CPU = """
import os, ray
from paraembed.cluster import session
session._WAITING_SECONDS = session._GROWTH_SECONDS = 0.5
ray.init(num_cpus=0, include_dashboard=False, log_to_driver=False)
os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
try:
    list(session.run_tasks(abs, [-1], 8))
finally:
    ray.shutdown()
"""


@pytest.mark.slow
def test_a_cluster_without_a_cpu_for_tasks_needs_a_machine():
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", NO_CPU], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert "ValueError: no machine of the Ray cluster has a CPU for tasks; add a worker machine" in done.stderr


def test_a_cluster_that_reports_no_machine_types_is_not_waited_for_without_limit(as_on_a_cluster, monkeypatch):
    monkeypatch.setattr(session, "_WAITING_SECONDS", 1)
    monkeypatch.setattr(session, "_GROWTH_SECONDS", 1.5)
    cpus = int(ray.cluster_resources()["CPU"])
    with pytest.raises(ValueError, match=f"Ray cluster has {cpus} in all"):
        wait_for_workers(cpus + 1, {"CPU": 1.0})
    wait_for_workers(cpus, {"CPU": 1.0})  # the placement group is gone


def test_resources_are_compared_with_what_the_autoscaler_may_start(as_on_a_cluster):
    types = [
        NodeGroupConfig(name="gpu", resources={"CPU": 8, "GPU": 2, "memory": 10**10}, min_count=0, max_count=2),
        NodeGroupConfig(name="cpu", resources={"CPU": 8, "memory": 2 * 10**10}, min_count=0, max_count=1),
    ]
    place = GCS_AUTOSCALER_CLUSTER_CONFIG_KEY.encode(), GCS_AUTOSCALER_STATE_NAMESPACE.encode()
    client = ray._private.worker.global_worker.gcs_client
    client.internal_kv_put(place[0], ClusterConfig(node_group_configs=types).SerializeToString(), True, place[1])
    try:
        assert session.capacity("GPU") == 4
        for count, each, message in (
            (5, {"GPU": 1.0}, r"`workers` is 5, each with a GPU, but the Ray cluster has 4 in all; use fewer workers"),
            (1, {"GPU": 3.0}, r"each with 3 GPU, but the Ray cluster has at most 2 on a machine; use a larger"),
            (1, {"GPU": 1.0, "memory": 1e13}, r"each with 10,000.0 GB of memory, .* use a larger machine"),
        ):
            with pytest.raises(ValueError, match=message):
                wait_for_workers(count, each)
    finally:
        client.internal_kv_del(place[0], False, place[1])


@pytest.mark.parametrize("kind", ["missing", "full", "empty"])
def test_a_token_without_a_home_folder_is_private_to_the_session(tmp_path, monkeypatch, kind, disk):
    """As in a container whose user is nobody; Ray keeps the first token that a process reads."""
    home = tmp_path / "home"
    if kind == "full":
        home = disk("size=4k")
        home.joinpath("ballast").write_bytes(bytes(4096))
    elif kind == "empty":
        (home / ".ray").mkdir(parents=True)
        (home / ".ray" / "auth_token").touch()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    tokens = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        chosen = session._provide_token(tmp_path / name)
        assert chosen == {"RAY_AUTH_TOKEN_PATH": str(tmp_path / name / "token")}
        path = tmp_path / name / "token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        tokens.append(path.read_text())
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 64
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "of the user")
    assert session._provide_token(tmp_path) == {}


def test_the_token_of_a_home_folder_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    for _ in range(2):
        assert session._provide_token(tmp_path) == {}
    assert stat.S_IMODE((tmp_path / ".ray" / "auth_token").stat().st_mode) == 0o600
    assert not (tmp_path / "token").exists()


@pytest.mark.slow
def test_a_job_runs_without_a_home_folder(tmp_path, tiny_encoder_folder):
    (tmp_path / "t.txt").write_text("the cat\n")
    job = job_command("embed", "--encoder", tiny_encoder_folder, "--input", "t.txt", "--out", "out", "--engine", "ray")
    home = {"HOME": str(tmp_path / "t.txt" / "none"), "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/m.db"}
    done = subprocess.run(job, cwd=tmp_path, env=os.environ | home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "_SUCCESS").exists()  # below a file, root cannot create a home folder either


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
