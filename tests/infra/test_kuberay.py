"""The manifests of infra/kuberay and its overlays against KubeRay's types, the jobs' own flags, and each other."""

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from paraembed.commands.flags import NO_GROUPS, parse_flags
from paraembed.papers import find_recipe
from paraembed.training.initial import estimate

ROOT = Path(__file__).parents[2]
KUBERAY = ROOT / "infra" / "kuberay"
OVERLAYS = sorted((ROOT / "infra" / "kuberay-overlays").iterdir())
PARAGRAM, XXL_PAIRS = (1_703_756, 300), 9_100_000  # rows and columns of paragram_300_sl999
JOBS = ("shard", "train", "tune", "embed")
SCHEMA = json.loads((Path(__file__).parent / "rayjob.schema.json").read_text())
Manifests = dict[tuple[str, str], dict[str, Any]]


def by_name(documents):
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


def base():
    """What ``kubectl kustomize`` makes of the base, as far as it uses kustomize; see the test that compares them."""
    own = yaml.safe_load((KUBERAY / "kustomization.yaml").read_text())
    listed = own["resources"]
    assert sorted(listed) == sorted(path.name for path in KUBERAY.glob("*.yaml") if path.stem != "kustomization")
    documents = [yaml.safe_load((KUBERAY / name).read_text()) for name in listed]
    common = yaml.safe_load((KUBERAY / "cluster" / "kustomization.yaml").read_text())
    for patch in (*common["patches"], *own["patches"]):
        for document in documents:
            if document["kind"] == patch["target"]["kind"]:
                apply(yaml.safe_load(patch["patch"]), document)
    ((name, tag),) = [(image["name"], image["newTag"]) for image in own["images"]]
    return by_name(json.loads(json.dumps(documents).replace(f'"image": "{name}"', f'"image": "{name}:{tag}"')))


def apply(patch, document):
    """Apply the operations add and replace of a JSON patch (RFC 6902)."""
    for step in patch:
        *folders, last = step["path"].strip("/").split("/")
        place = document
        for folder in folders:
            place = place[int(folder) if isinstance(place, list) else folder]
        assert step["op"] == "add" or (step["op"] == "replace" and last in place)
        place[last] = step["value"]


def rendered(folder):
    """What ``kubectl apply -k`` sends."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here to render an overlay")
    return by_name(list(yaml.safe_load_all(kustomized(folder))))


@cache
def kustomized(folder):
    return subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True).stdout


EVERY = {"base": base}
EVERY |= {folder.name: lambda folder=folder: rendered(folder) for folder in OVERLAYS}


@pytest.fixture(params=EVERY)
def manifests(request):
    return EVERY[request.param]()


def pods(job):
    cluster = job["spec"]["rayClusterSpec"]
    return [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def rayjobs(manifests):
    found = {name.removeprefix("paraembed-"): one for (kind, name), one in manifests.items() if kind == "RayJob"}
    assert tuple(sorted(found)) == tuple(sorted(JOBS))
    return found


def test_kustomize_makes_the_same_of_the_base():
    assert rendered(KUBERAY) == base()


def test_every_field_is_kuberays(manifests):
    for job in rayjobs(manifests).values():
        jsonschema.Draft202012Validator(SCHEMA).validate(job)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.backofflimit", 1),
        ("spec.backoffLimit", "2"),
        ("spec.rayClusterSpec.authOptions.mode", "Token"),
        ("spec.rayClusterSpec.headGroupSpec.rayStartParams.num-cpus", 0),
    ],
)
def test_a_field_that_is_not_is_found(path, value):
    job = base()["RayJob", "paraembed-embed"]
    *folders, last = path.split(".")
    place = job
    for folder in folders:
        place = place[folder]
    place[last] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(job)


def test_jobs_agree_with_each_other_and_with_what_is_pinned(manifests):
    (ray,) = re.findall(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    claims = {name for kind, name in manifests if kind == "PersistentVolumeClaim"}
    images = set()
    for name, job in rayjobs(manifests).items():
        spec, cluster = job["spec"], job["spec"]["rayClusterSpec"]
        assert job["metadata"]["labels"]["app.kubernetes.io/component"] == name
        assert cluster["rayVersion"] == ray
        assert cluster["authOptions"] == {"mode": "token"}
        assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
        assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
        assert spec["shutdownAfterJobFinishes"]
        assert spec["ttlSecondsAfterFinished"] > 0
        assert spec["activeDeadlineSeconds"] > 0
        assert spec["backoffLimit"] > 0
        for group in cluster["workerGroupSpecs"]:
            assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
            assert "autoscalerOptions" in cluster or group["minReplicas"] == group["maxReplicas"]
        for pod in pods(job):
            (container,) = pod["containers"]
            images.add(container["image"])
            resources = container["resources"]
            assert resources["requests"]["memory"] == resources["limits"]["memory"]
            assert resources["requests"].get("nvidia.com/gpu") == resources["limits"].get("nvidia.com/gpu")
            assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
            assert container["workingDir"] == "/data"
            assert resources["requests"]["ephemeral-storage"] == resources["limits"]["ephemeral-storage"]
            assert pod["imagePullSecrets"] == [{"name": "paraembed-registry"}]
            assert "/data/logs/" in container["lifecycle"]["preStop"]["exec"]["command"][-1]
            (volume,) = pod["volumes"]
            assert (volume["name"], volume["persistentVolumeClaim"]["claimName"] in claims) == ("data", True)
        (head,) = pods(job)[0]["containers"]
        ports = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "metrics": 8080}
        assert {port["name"]: port["containerPort"] for port in head["ports"]} == ports
    (image,) = images
    assert re.fullmatch(rf"paraembed:{re.escape(version)}(-cpu|-cu\d+)?", image)


def test_every_pod_fits_pod_security_restricted(manifests):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/, profile restricted."""
    for job in rayjobs(manifests).values():
        for pod in (*pods(job), job["spec"]["submitterPodTemplate"]["spec"]):
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["securityContext"]["runAsUser"] > 0
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in pod["containers"]:
                assert_restricted(container["securityContext"])
            assert all("persistentVolumeClaim" in volume for volume in pod.get("volumes", ()))
        cluster = job["spec"]["rayClusterSpec"]
        if cluster.get("enableInTreeAutoscaling"):
            assert_restricted(cluster["autoscalerOptions"]["securityContext"])


def assert_restricted(context):
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_network_policy_is_of_all_pods(manifests):
    policy = manifests["NetworkPolicy", "paraembed"]["spec"]
    name = {"app.kubernetes.io/name": "paraembed"}
    assert policy["podSelector"]["matchLabels"] == name
    assert policy["policyTypes"] == ["Ingress"]
    inside, *others = policy["ingress"]
    assert inside == {"from": [{"podSelector": {"matchLabels": name}}]}
    assert [[port["port"] for port in rule["ports"]] for rule in others] == [[8265], [8080]]
    for job in rayjobs(manifests).values():
        cluster = job["spec"]["rayClusterSpec"]
        groups = (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
        templates = [job["spec"]["submitterPodTemplate"], *(group["template"] for group in groups)]
        assert [template["metadata"]["labels"] for template in templates] == [name] * len(templates)


def test_workers_are_cpus_that_are_there(manifests):
    for name, job in rayjobs(manifests).items():
        (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        given = shlex.split(job["spec"]["entrypoint"])
        workers = int(given[given.index("--workers") + 1]) if "--workers" in given else 1
        gpus = group["maxReplicas"] * int(limits.get("nvidia.com/gpu", 0))
        if "--gpus" in given:
            assert workers == gpus, name
        else:
            assert gpus == 0, f"{name} pays for GPUs that it does not use"
        assert workers <= group["maxReplicas"] * int(limits["cpu"]), name


def free_bytes(pod):
    (container,) = pod["containers"]
    (number,) = re.fullmatch(r"(\d+)Gi", container["resources"]["limits"]["memory"]).groups()
    return (int(number) - 2) << 30


def test_pods_have_the_memory_that_their_recipes_need(manifests):
    """For PPDB XXL, phrases of 4 tokens, and the paragram vectors; 2 GiB of a pod are for Ray."""
    job = rayjobs(manifests)["train"]
    given = shlex.split(job["spec"]["entrypoint"])
    recipe, workers = find_recipe(given[given.index("--recipe") + 1]), int(given[given.index("--workers") + 1])
    memory = estimate(PARAGRAM, recipe, 8 * XXL_PAIRS, XXL_PAIRS, workers, keeps_best="--evaluate" in given)
    head, worker = pods(job)
    on_a_pod = workers // job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["maxReplicas"]
    assert 4e9 < memory.of_workers(on_a_pod, workers).needed < free_bytes(worker)
    of_driver = replace(memory, copies=0, pairs=0, best=0, workers=1)
    assert 4e9 < of_driver.needed < free_bytes(head)
    job = rayjobs(manifests)["tune"]
    of_trial = estimate(PARAGRAM, find_recipe("acl2017/avg"), 8 * XXL_PAIRS, XXL_PAIRS, 1, keeps_best=True)
    assert of_trial.needed < free_bytes(pods(job)[1])


@cache
def flags_of(job):
    """The job's own parser of its command line."""
    module = import_module(f"paraembed.commands.{job}")
    default = getattr(module, "defaults", None)

    def parse(arguments):
        return parse_flags(getattr(module, job.title()), arguments, NO_GROUPS, default and default(arguments))

    return parse


@pytest.mark.parametrize("job", JOBS)
def test_the_jobs_know_their_flags(job, manifests):
    entrypoint = rayjobs(manifests)[job]["spec"]["entrypoint"]
    python, script, *arguments = shlex.split(entrypoint)
    assert (python, script) == ("python", f"/app/jobs/{job}.py")
    flags_of(job)(arguments)  # ends the process where a flag is unknown
    for text in arguments:
        assert not text.startswith("/") or text.startswith("/data/"), f"{text} is in no volume"


def test_heads_are_not_on_spot_machines(manifests):
    for job in rayjobs(manifests).values():
        (term,) = pods(job)[0]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        refused = {rule["key"]: rule["values"] for rule in term["matchExpressions"] if rule["operator"] == "NotIn"}
        wanted = {
            rule["key"]: rule["values"]
            for choice in pods(manifests["RayJob", "paraembed-embed"])[1]["affinity"]["nodeAffinity"][
                "preferredDuringSchedulingIgnoredDuringExecution"
            ]
            for rule in choice["preference"]["matchExpressions"]
        }
        assert refused == wanted


def test_the_runtime_environment_holds_no_secret(manifests):
    for job in rayjobs(manifests).values():
        environment = yaml.safe_load(job["spec"]["runtimeEnvYAML"])
        assert environment == {"env_vars": {"OMP_NUM_THREADS": "1"}}
        for pod in pods(job):
            assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "paraembed", "optional": True}}]
