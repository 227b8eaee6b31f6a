"""infra/Dockerfile: what a linter would look at, and its steps, run in a new virtual environment."""

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from infra import warm
from tests.jobs import ran

ROOT = Path(__file__).parents[2]
INDEX = "https://download.pytorch.org/whl/${DEVICE}"
WARM = "python /app/warm.py"
CUDA_OF_TORCH = {"2.13": {"cu126", "cu130"}}  # pytorch/FBGEMM pull request 5976: none for cu128


def instructions():
    """Name and argument of each, continued lines joined, comments left out."""
    lines = [line for line in (ROOT / "infra" / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [(name, argument.strip()) for name, _, argument in (one.partition(" ") for one in text.splitlines() if one)]


def of(name):
    return [argument for one, argument in instructions() if one == name]


def test_the_base_is_pinned_by_a_digest():
    (digest,) = (one for one in of("ARG") if one.startswith("BASE_DIGEST="))
    assert re.fullmatch(r"BASE_DIGEST=sha256:[0-9a-f]{64}", digest)
    assert instructions()[0] == ("ARG", digest)
    for base in of("FROM"):
        assert re.fullmatch(r"python:3\.11-slim-bookworm@\$\{BASE_DIGEST\}( AS wheel)?", base)


def test_the_cuda_version_is_one_that_torch_is_built_for():
    (pinned,) = re.findall(r"^torch==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    places = ("infra/Dockerfile", "infra/README.md", "infra/kuberay-overlays/gpu/kustomization.yaml")
    for place in places:
        named = {*re.findall(r"\bcu\d{3}\b", (ROOT / place).read_text())}
        assert "cu130" in named, place
        assert named <= CUDA_OF_TORCH[pinned], place


def test_it_runs_as_a_user_and_says_whether_it_is_well():
    assert of("USER") == ["1000"]
    order = [name for name, _ in instructions()]
    assert "COPY" not in order[order.index("USER") :]
    assert [argument for name, argument in instructions()[order.index("USER") :] if name == "RUN"] == [WARM]
    assert f"infra/{Path(warm.__file__).name} {WARM.split()[1]}" in of("COPY")
    (check,) = of("HEALTHCHECK")
    assert "CMD" in check
    assert not of("ADD")
    assert not re.search(r"(PASSWORD|TOKEN|SECRET|KEY)=", "\n".join(of("ENV") + of("ARG")))


def environment_of():
    """What the image sets."""
    return dict(word.split("=", 1) for one in of("ENV") for word in shlex.split(one))


def sources():
    """What is copied from the checkout."""
    return [name for one in of("COPY") if not one.startswith("--from") for name in one.split()[:-1]]


def test_only_what_is_needed_is_sent_and_copied():
    listed = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in listed if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert allowed == set(sources())
    assert all((ROOT / name).exists() for name in allowed)
    never = ("tests", ".git", ".env", "mlruns", ".venv", "demo", "infra")
    assert not any(fnmatch.fnmatch(name, one) for name in never for one in allowed)


FOLDERS = ("wheels", "src", "tmp", "app", "data", "home")


def placed(text, root):
    """A command or path with the folders of the image below ``root``, and torch from the usual index."""
    text = text.replace(f'--index-url "{INDEX}"', "")
    return re.sub(rf"(?<![\w.*/])/({'|'.join(FOLDERS)})\b", rf"{root}/\1", text)


def copy(argument, root):
    """One COPY line."""
    *names, target = argument.replace("--from=wheel ", "").split()
    for name in names:
        source = Path(placed(name, root)) if name.startswith("/") else ROOT / name
        to = (root / "src" / placed(target, root)) / (name if target == "./" else "")
        if source.is_dir():
            shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy(source, to)


def whose():
    """The image's user where we may become it, else ourselves; and a Python of this version that it may run."""
    who = {"user": 1000, "group": 1000} if os.getuid() == 0 else {}
    version = "import ensurepip, sys; print(sys.version_info[:2])"
    for python in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        with suppress(OSError):
            asked = subprocess.run([python, "-c", version], capture_output=True, text=True, check=False, **who)
            if asked.stdout.strip() == str(sys.version_info[:2]):
                return who, python
    return pytest.skip("no Python of this version here that another user may run")


@pytest.fixture
def root():
    """The image's folders, below one that every user may enter."""
    root = Path(tempfile.mkdtemp(prefix="img"))  # short: the path of a socket
    root.chmod(0o755)
    for folder in FOLDERS:
        (root / folder).mkdir()
    (root / "tmp").chmod(0o1777)
    yield root
    shutil.rmtree(root, ignore_errors=True)


def compiled(folder):
    return {path.name for path in folder.rglob("*.nbc")}


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_its_steps_make_an_environment_in_which_its_user_runs_the_jobs(root):
    """The COPY, pip and Python lines in a new virtual environment; then jobs, which compile nothing more."""
    who, python = whose()
    (root / "home" / "paraembed").mkdir()
    for folder in ("data", "home/paraembed"):
        os.chown(root / folder, who.get("user", -1), who.get("group", -1))
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment = {key: value for key, value in environment.items() if not key.startswith(("RAY_", "MLFLOW_"))}
    environment |= {name: placed(value, root) for name, value in environment_of().items()}
    environment |= {"PATH": f"{root}/venv/bin:{os.environ['PATH']}", "RAY_TMPDIR": f"{root}/tmp"}

    def run(*command, **more):
        return ran(*command, env=environment, timeout=2000, **more).stdout

    run(python, "-m", "venv", root / "venv")
    for name, argument in instructions():
        if name == "COPY":
            copy(argument, root)
        elif name == "RUN" and argument.startswith("pip"):
            run("bash", "-c", placed(argument, root), cwd=root / "src")
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", run("pip", "freeze", "--all"), re.MULTILINE):
        if name != "pip":
            assert version.partition("+")[0] == pins.get(name.lower().replace("_", "-")), f"{name} is not pinned"

    environment["HOME"] = f"{root}/home/paraembed"
    as_user = {**who, "extra_groups": [], "cwd": root / "data"} if who else {"cwd": root / "data"}
    assert run("python", "-c", "import paraembed; print(paraembed.__file__)", **as_user).startswith(str(root / "venv"))
    run("bash", "-c", placed(WARM, root), **as_user)
    before = compiled(root / "home")
    assert before
    for job in sorted((root / "app" / "jobs").glob("*.py")):
        assert "usage" in run("python", job, "--help", **as_user)
    run("python", "-m", "paraembed", "sample", "--out", "sample", "--lines", "3000", "--sentences", "1000", **as_user)
    pairs = ["--pairs", "pairs", "--words", "sample/vectors.txt.gz", "--tokenizer", "space", "--epochs", "1"]
    embed = ["--encoder", "encoder", "--input", "sample/sentences.txt", "--out", "embeddings"]
    for job, *flags in (
        ["shard", "--input", "sample/ppdb-2.0-format.gz", "--out", "pairs"],
        ["train", *pairs, "--out", "encoder", "--evaluate-pairs", "sample/test-pairs.tsv"],
        ["train", *pairs, "--out", "of-two", "--workers", "2"],
        ["embed", *embed],
        ["verify", "embeddings"],
    ):
        run("python", root / "app" / "jobs" / f"{job}.py", *flags, **as_user)
    assert compiled(root / "home") == before, "compiled by a job"
