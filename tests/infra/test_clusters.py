"""infra/ray-cluster against Ray's own schema, infra/slurm, and what listens where."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
CLUSTERS = sorted((ROOT / "infra" / "ray-cluster").glob("*.yaml"))
SBATCH = ROOT / "infra" / "slurm" / "job.sbatch"


def cluster(path):
    """A configuration as ``ray up`` completes it."""
    return dict(prepare_config(yaml.safe_load(path.read_text())))


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_ray_up_takes_it(path):
    validate_config(cluster(path))
    wrong = {**cluster(path), "max_worker": 3}
    with pytest.raises(Exception, match="max_worker"):
        validate_config(wrong)


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_clusters_are_closed_and_their_heads_run_no_task(path):
    config = cluster(path)
    (head,) = (one for one in config["head_start_ray_commands"] if "--head" in one)
    (worker,) = (one for one in config["worker_start_ray_commands"] if "--address" in one)
    for command in (head, worker):
        assert "RAY_AUTH_MODE=token ray start" in command
        assert "--metrics-export-port=8080" in command
        assert "umask 077; mkdir -p ~/private; " in command
        assert "--temp-dir=$HOME/private/ray " in command
    assert "--dashboard-host=127.0.0.1" in head
    assert "--num-cpus=0" in head
    assert config["file_mounts"] == {"/home/paraembed/.ray/auth_token": "~/.ray/auth_token"}
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert config["docker"]["image"].endswith(f"/paraembed:{version}-cpu")
    assert "--volume=/data:/data" in config["docker"]["run_options"]
    if config["provider"]["type"] != "local":
        assert config["available_node_types"][config["head_node_type"]]["resources"]["CPU"] == 0


@pytest.mark.parametrize("page", [ROOT / "docs" / "cluster.md", SBATCH, *CLUSTERS], ids=lambda path: path.name)
def test_every_ray_starts_below_a_private_folder(page):
    text = page.read_text()
    commands = re.findall(r"ray start --.*", re.sub(r"\\\n|\n +(?=--)", " ", text))
    private = re.compile(r'--temp-dir[ =]("\$\(mktemp -d\)/ray"|"\$folder/ray"|\$HOME/private/ray)( |$)')
    assert commands
    assert [command for command in commands if not private.search(command)] == []
    assert text.index("umask 077") < text.index("ray start --")


STANDINS = {
    "scontrol": 'if [ "$1" = show ]; then printf "one\\ntwo\\n"; else echo "$*" >> "$LOG"; fi',
    "srun": 'case "$*" in *hostname*) echo 127.0.0.2 ;; *) exec sleep 60 ;; esac',
    "ray": "exit 0",
    "python": 'if [ "$1" = -c ]; then echo token; exit; fi\necho "$RAY_ADDRESS" "$*" >> "$LOG"\n'
    '[ -z "$WAITS" ] || exec sleep 60',
}


@pytest.mark.parametrize(
    ("job", "gpus", "ends_with"),
    [
        ("embed", None, "--workers 15"),
        ("embed", "2", "--workers 15 --gpus 4"),
        ("shard", None, "--workers 15"),
        ("train", "4", "--workers 8 --gpus"),
        ("train", None, "--workers 2"),
        ("tune", "2", "--gpus"),
    ],
)
def test_the_slurm_script_gives_a_job_what_the_allocation_has(tmp_path, job, gpus, ends_with):
    """With stand-ins for Slurm's commands, Ray and Python, which say how they were called."""
    assert submitted(tmp_path, job, gpus).wait(60) == 0
    assert (tmp_path / "log").read_text() == f"127.0.0.2:20007 {tmp_path}/jobs/{job}.py --out out {ends_with}\n"
    assert not list((tmp_path / ".ray").iterdir())


def test_a_slurm_job_is_requeued_at_its_time_limit(tmp_path):
    process = submitted(tmp_path, "train", None, WAITS="yes")
    while not (tmp_path / "log").exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)  # until its trap is set
    process.send_signal(signal.SIGUSR1)
    assert process.wait(30) == 0
    assert (tmp_path / "log").read_text().splitlines()[1:] == ["requeue 7"]


def submitted(folder, job, gpus, **more):
    binaries = folder / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name, text in STANDINS.items():
        (binaries / name).write_text(f"#!/bin/sh\n{text}\n")
        (binaries / name).chmod(0o755)
    values = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_JOB_NODELIST": "n[1-2]",
    }
    values |= {"SLURM_SUBMIT_DIR": str(folder), "HOME": str(folder), "LOG": str(folder / "log"), "WAITS": "", **more}
    values |= {"SLURM_GPUS_ON_NODE": gpus} if gpus else {}
    environment = {"PATH": os.environ["PATH"], **values}
    return subprocess.Popen(["bash", SBATCH, job, "--out", "out"], env=environment)


def test_the_slurm_script_is_shell_and_says_what_it_needs():
    subprocess.run(["bash", "-n", SBATCH], check=True)
    text = SBATCH.read_text()
    options = re.findall(r"^#SBATCH --([a-z-]+)", text, re.MULTILINE)
    wanted = {"nodes", "ntasks-per-node", "cpus-per-task", "mem", "time", "exclusive", "requeue", "signal"}
    assert wanted <= set(options)
    assert "set -euo pipefail" in text
    assert "RAY_AUTH_MODE=token" in text
    assert "umask 077" in text
    assert text.index("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK") < text.index("$(srun")
    assert text.count("--dashboard-host=127.0.0.1") == text.count("--head ")
