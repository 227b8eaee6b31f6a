"""infra/mlflow: the compose file, and its server for real, on a PostgreSQL of this machine."""

import configparser
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import yaml

from tests.jobs import ran

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "mlflow"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVER = COMPOSE["services"]["mlflow"]


def test_the_server_is_reached_from_this_machine_alone_and_asks_for_a_password():
    for service in COMPOSE["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert re.search(r":[\w.-]*\d", service["image"]), "an image without version"
        assert "healthcheck" in service
    assert "--app-name basic-auth" in SERVER["command"]
    assert SERVER["ports"] == ["127.0.0.1:5000:5000"]
    assert SERVER["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_secrets_come_from_a_file_that_is_not_kept():
    text = (FOLDER / "compose.yaml").read_text()
    asked = set(re.findall(r"\$\{(\w+)", text))
    assert len(re.findall(r"\$\{\w+:\?", text)) == text.count("${"), "one may be left out"
    empty = dict(line.split("=") for line in (FOLDER / "env.example").read_text().splitlines() if line[0] != "#")
    assert empty == dict.fromkeys(asked, "")
    ran("git", "check-ignore", FOLDER / ".env", cwd=ROOT)
    assert "password" not in dict(users()["mlflow"])


def test_what_is_mounted_is_there():
    for service in COMPOSE["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (FOLDER / source).is_file() if source.startswith("./") else source in COMPOSE["volumes"]
        assert all(name in COMPOSE["networks"] for name in service["networks"])


def users():
    config = configparser.ConfigParser()
    config.read(FOLDER / "basic_auth.ini")
    return config


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def running(command, log, **more):
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file, **more) as process:
        yield process
        if process.poll() is not None:
            return
        family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        process.send_signal(signal.SIGINT)
        for one in psutil.wait_procs(family, timeout=10)[1]:
            one.kill()


@dataclass(frozen=True)
class Database:
    """The address of a PostgreSQL of its own: user, password and database as in the compose file; and its process."""

    address: str
    process: "subprocess.Popen[bytes]"


@pytest.fixture
def database():
    binaries = [Path(path).parent for path in (shutil.which("initdb"), *Path("/").glob(LIB)) if path]
    if not binaries:
        pytest.skip("no PostgreSQL server here (initdb, postgres); Debian: apt-get install postgresql")
    who = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}  # it does not run as root
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    password, port = secrets.token_hex(24), free_port()
    (folder / "password").write_text(password)
    if who:
        for path in (folder, folder / "password"):
            shutil.chown(path, **who)
    initdb = [binaries[-1] / "initdb", "--pgdata", folder / "data", "--username", "mlflow", "--auth", "scram-sha-256"]
    subprocess.run([*initdb, "--pwfile", folder / "password"], check=True, capture_output=True, cwd=folder, **who)
    command = [binaries[-1] / "postgres", "-D", folder / "data", "-k", folder, "-h", "127.0.0.1", "-p", port]
    environment = {**os.environ, "PGPASSWORD": password}
    client = ["--host", "127.0.0.1", "--port", str(port), "--username", "mlflow"]
    with running(list(map(str, command)), folder / "log", cwd=folder, **who) as process:
        for _ in range(100):
            if not subprocess.run([binaries[-1] / "pg_isready", *client], capture_output=True, check=False).returncode:
                break
            time.sleep(0.1)
        subprocess.run([binaries[-1] / "createdb", *client, "mlflow"], env=environment, check=True)
        yield Database(f"postgresql://mlflow:{password}@127.0.0.1:{port}/mlflow", process)
    shutil.rmtree(folder, ignore_errors=True)


LIB = "usr/lib/postgresql/*/bin/initdb"


@dataclass(frozen=True)
class Server:
    """An MLflow server, and its administrator's password."""

    address: str
    password: str

    def ask(self, path, user, password, values=None):
        """Call the REST interface; with values it is a POST."""
        request = urllib.request.Request(f"{self.address}/api/2.0/mlflow/{path}")
        if values:
            request.data = json.dumps(values).encode()
            request.add_header("Content-Type", "application/json")
        if user is not None:
            request.add_header("Authorization", f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=20) as answer:
            return dict(json.load(answer))


@pytest.fixture
def server(database, tmp_path):
    """The command of the compose file, with its environment; places and ports are of this test."""
    for module in ("psycopg", "flask_wtf"):
        if find_spec(module) is None:
            pytest.skip(f'no {module} here; pip install "paraembed[server]"')
    port, password = free_port(), secrets.token_hex(24)
    config = users()
    config["mlflow"]["database_uri"] = f"sqlite:///{tmp_path}/basic_auth.db"
    with (tmp_path / "basic_auth.ini").open("w") as file:
        config.write(file)
    values = {
        "MLFLOW_BACKEND_STORE_URI": database.address,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(24),
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_AUTH_CONFIG_PATH": str(tmp_path / "basic_auth.ini"),
    }
    assert values.keys() == SERVER["environment"].keys()
    command = SERVER["command"].replace("0.0.0.0", "127.0.0.1").replace("5000", str(port))
    mlflow, *arguments = shlex.split(command.replace("/data/artifacts", str(tmp_path / "artifacts")))
    program = [str(Path(sys.executable).with_name(mlflow)), *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")} | values
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    one = Server(f"http://127.0.0.1:{port}", password)
    with running(program, tmp_path / "server.log", env=environment, cwd=tmp_path) as process:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{one.address}/health", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "server.log").read_text()
                time.sleep(0.2)
        yield one


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_logs_to_the_server_and_nobody_else_reads_it(server, database, tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"one {number}\tuno {number}\n" for number in range(50)) + "alone\n")

    by_name, password = "experiments/get-by-name?experiment_name=paraembed", secrets.token_hex(24)
    server.ask("users/create", "admin", server.password, {"username": "jobs", "password": password})

    def shard(out, given):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": server.address}
        environment |= {"MLFLOW_TRACKING_USERNAME": "jobs", "MLFLOW_TRACKING_PASSWORD": given}
        command = [sys.executable, ROOT / "jobs" / "shard.py", "--input", "pairs.tsv", "--out", out]
        done = ran(*command, cwd=tmp_path, env=environment)
        assert given not in done.stdout + done.stderr
        return done.stderr

    messages = shard("pairs", password)
    number = server.ask(by_name, "jobs", password)["experiment"]["experiment_id"]
    assert "MLflow at" not in messages
    assert f"runs in MLflow: {server.address}/#/experiments/{number}/runs" in messages.splitlines()
    (run,) = server.ask("runs/search", "jobs", password, {"experiment_ids": [number]})["runs"]
    assert run["info"]["status"] == "FINISHED"
    assert {one["key"]: one["value"] for one in run["data"]["metrics"]}["kept"] == 50
    assert [path.name for path in (tmp_path / "artifacts").rglob("manifest.json")] == ["manifest.json"]
    for user, wrong in ((None, ""), ("admin", "password1234"), ("jobs", "")):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            server.ask(by_name, user, wrong)
    for out, given in (("refused", "wrong"), ("alone", password)):
        said = shard(out, given)  # a store that refuses, or has lost its database, costs a warning, not the job
        assert "does not have all records of this job, which are kept in" in said
        assert (tmp_path / out / "_SUCCESS").is_file()
        database.process.send_signal(signal.SIGQUIT)  # PostgreSQL's immediate shutdown, as a crash
        database.process.wait(30)
