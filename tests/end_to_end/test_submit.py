"""``ray job submit`` against a head on this machine, as the README says, token authentication on."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from ray._private.ray_constants import DEFAULT_DASHBOARD_AGENT_LISTEN_PORT

from paraembed.pairs.sample import write_sample
from tests.another_user import another_user_does
from tests.cluster.nodes import RAY, family, free_port

pytestmark = pytest.mark.skipif(
    " " in sys.executable, reason="'ray start' of Ray 2.60 does not work from a path with a space"
)

ROOT = Path(__file__).parents[2]
IN_ONE_PYTHON = """
import json, runpy, sys
for job, *flags in json.loads(sys.argv[1]):
    sys.argv = [job, *flags]
    try:
        runpy.run_path(job, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
"""


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


@pytest.mark.slow
@pytest.mark.timeout(900)  # a Ray driver, and a worker for each job: 30 s to 3 min
def test_all_jobs_run_by_submission(client, tmp_path):
    sample = tmp_path / "sample"
    write_sample(sample, lines=3000, dimension=20, sentences=500, test_pairs=200, ppdb_version="2.0")
    vectors, encoder = sample / "vectors.txt.gz", tmp_path / "encoder"
    pairs, out, one = tmp_path / "pairs", tmp_path / "embeddings", ["--workers", "1"]
    settings = ["--epochs", "1", "--tokenizer", "space"]
    flow = [
        ["jobs/shard.py", "--input", sample / "ppdb-2.0-format.gz", "--out", pairs, *one],
        ["jobs/train.py", "--pairs", pairs, "--words", vectors, "--out", encoder, *settings],
        ["jobs/evaluate.py", "--encoder", encoder, "--pairs", sample / "test-pairs.tsv"],
        ["jobs/embed.py", "--encoder", encoder, "--input", sample / "sentences.txt", "--out", out, *one],
        ["jobs/verify.py", out],
    ]
    done = submit(client, "-c", IN_ONE_PYTHON, json.dumps(flow, default=str))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test-pairs" in done.stdout
    assert json.loads((out / "_manifest.json").read_text())["rows"] == 500
    assert client["RAY_AUTH_TOKEN"] not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_sweep_runs_by_submission(client):
    done = submit(client, "jobs/tune.py", "smoke")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "best: trial " in done.stdout


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
