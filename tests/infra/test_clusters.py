"""infra/ray-cluster against Ray's own schema, infra/slurm, and what listens where."""

import re
import subprocess
from pathlib import Path

import pytest
import ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
CLUSTERS = sorted((ROOT / "infra" / "ray-cluster").glob("*.yaml"))
SBATCH = ROOT / "infra" / "slurm" / "embed.sbatch"


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


def test_machines_of_aws_have_room_for_rays_own_image():
    defaults = yaml.safe_load((Path(ray.__file__).parent / "autoscaler" / "aws" / "defaults.yaml").read_text())
    least = min(disks(defaults))
    assert least > 0
    sizes = disks(yaml.safe_load((ROOT / "infra" / "ray-cluster" / "aws.yaml").read_text()))
    assert len(sizes) == 2
    assert min(sizes) >= least


def disks(config):
    """GB of the disks of every kind of machine."""
    nodes = (kind["node_config"] for kind in config["available_node_types"].values())
    return [disk["Ebs"]["VolumeSize"] for node in nodes for disk in node.get("BlockDeviceMappings", ())]


def test_the_slurm_script_is_shell_and_says_what_it_needs():
    subprocess.run(["bash", "-n", SBATCH], check=True)
    text = SBATCH.read_text()
    options = re.findall(r"^#SBATCH --([a-z-]+)", text, re.MULTILINE)
    assert {"nodes", "ntasks-per-node", "cpus-per-task", "mem", "time", "requeue"} <= set(options)
    assert "set -euo pipefail" in text
    assert "RAY_AUTH_MODE=token" in text
    assert "umask 077" in text
    assert text.index("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK") < text.index("$(srun")
    assert text.count("--dashboard-host=127.0.0.1") == text.count("--head ")


@pytest.mark.parametrize("page", [ROOT / "docs" / "cluster.md", SBATCH, *CLUSTERS], ids=lambda path: path.name)
def test_every_ray_starts_below_a_private_folder(page):
    text = page.read_text()
    commands = re.findall(r"ray start --.*", re.sub(r"\\\n|\n +(?=--)", " ", text))
    private = re.compile(r'--temp-dir[ =]("\$\(mktemp -d\)/ray"|"\$folder/ray"|\$HOME/private/ray)( |$)')
    assert commands
    assert [command for command in commands if not private.search(command)] == []
    assert text.index("umask 077") < text.index("ray start --")
