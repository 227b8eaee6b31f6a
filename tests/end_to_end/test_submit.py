"""``ray job submit`` against a head on this machine, as the README says, token authentication on."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from ray._private.ray_constants import DEFAULT_DASHBOARD_AGENT_LISTEN_PORT

from paraembed.pairs.sample import write_sample
from tests.another_user import another_user_does
from tests.cluster import nodes
from tests.cluster.nodes import RAY, family, free_port

pytestmark = nodes.MARKS

ROOT = Path(__file__).parents[2]


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture(scope="module")
def client(ray_cluster):
    """A head with a token of its own; gives the environment of a client that has the token.

    It is started as the README says, with free ports where another head on this machine may have them, while the
    tests' own session runs another Ray.
    """
    agent = DEFAULT_DASHBOARD_AGENT_LISTEN_PORT
    agent = agent if is_free(agent) else free_port("127.0.0.1")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "MLFLOW_"))}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "PATH": f"{RAY.parent}:{os.environ['PATH']}"}
    dashboard = free_port("127.0.0.1")
    where = ["--node-ip-address", "127.0.0.1", "--dashboard-host", "127.0.0.1"]
    where += ["--port", free_port("127.0.0.1"), "--ray-client-server-port", free_port("127.0.0.1")]
    sizes = ["--dashboard-port", dashboard, "--num-cpus", 4, "--object-store-memory", 300_000_000]
    files = tempfile.mkdtemp(prefix="ray")  # short: the path of a socket has at most 107 bytes
    more = ["--dashboard-agent-listen-port", agent, "--temp-dir", f"{files}/ray"]
    command = [RAY, "start", "--head", "--block", "--disable-usage-stats", *where, *sizes, *more]
    head = psutil.Popen(
        list(map(str, command)), env=environment, umask=0o077, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for _ in range(300):
        if not is_free(dashboard):
            break
        assert head.poll() is None, "ray start ended"
        time.sleep(0.2)
    yield {**environment, "RAY_ADDRESS": f"http://127.0.0.1:{dashboard}", "HEAD": str(head.pid), "FILES": files}
    alive = family(head)
    head.send_signal(signal.SIGTERM)
    for process in psutil.wait_procs(alive, timeout=3)[1]:
        process.kill()
    shutil.rmtree(files, ignore_errors=True)


def submit(client, *command):
    line = [RAY, "job", "submit", "--working-dir", ".", "--", "python", *command]
    return subprocess.run(
        list(map(str, line)), env=client, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.fixture(scope="module")
def submitted(client, tmp_path_factory):
    """What a job said that wrote to ``pairs`` of the folder that comes with it."""
    folder = tmp_path_factory.mktemp("submitted")
    write_sample(folder / "sample", lines=300, dimension=2, sentences=1, test_pairs=1, ppdb_version="2.0")
    given = "--input", folder / "sample" / "ppdb-2.0-format.gz", "--out", folder / "pairs", "--workers", 1
    done = submit(client, "jobs/shard.py", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr, folder


def test_a_job_runs_by_submission(client, submitted):
    said, folder = submitted
    assert (folder / "pairs" / "_SUCCESS").is_file()
    # The default MLflow store is next to the outputs, not in the job's temporary copy of the folder.
    assert (folder / "mlruns" / "mlflow.db").is_file()
    assert client["RAY_AUTH_TOKEN"] not in said


@pytest.mark.skipif(os.getuid() != 0, reason="only root can try what another user may do")
def test_another_user_reaches_nothing_of_a_head(client, submitted):
    paths = [Path(client["FILES"]), *Path(client["FILES"]).rglob("*")]
    assert any(path.match("jobs/shard.py") for path in paths), "no copy of the code"
    assert another_user_does(paths) == []


def test_without_the_token_nothing_runs(client):
    for change in ({"RAY_AUTH_TOKEN": secrets.token_hex(32)}, {"RAY_AUTH_MODE": "disabled"}):
        done = submit({**client, **change}, "-c", "print('inside')")
        assert done.returncode != 0
        assert "inside" not in done.stdout


def test_the_head_listens_on_loopback_only(client):
    head = psutil.Process(int(client["HEAD"]))
    listening = {
        connection.laddr.ip
        for process in head.children(recursive=True)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
