"""infra/Dockerfile: what a linter would look at, and its steps, run in a new virtual environment."""

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
INDEX = "https://download.pytorch.org/whl/${DEVICE}"


def instructions() -> list[tuple[str, str]]:
    """Name and argument of each, continued lines joined, comments left out."""
    lines = [line for line in (ROOT / "infra" / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [(name, argument.strip()) for name, _, argument in (one.partition(" ") for one in text.splitlines() if one)]


def of(name: str) -> list[str]:
    return [argument for one, argument in instructions() if one == name]


def test_the_base_is_pinned_by_a_digest() -> None:
    (digest,) = (one for one in of("ARG") if one.startswith("BASE_DIGEST="))
    assert re.fullmatch(r"BASE_DIGEST=sha256:[0-9a-f]{64}", digest)
    assert instructions()[0] == ("ARG", digest)
    for base in of("FROM"):
        assert re.fullmatch(r"python:3\.11-slim-bookworm@\$\{BASE_DIGEST\}( AS wheel)?", base)


def test_one_argument_chooses_cpu_or_cuda() -> None:
    assert "DEVICE=cpu" in of("ARG")
    (install,) = (one for one in of("RUN") if "torch==" in one)
    assert f'--index-url "{INDEX}"' in install
    assert "constraints.txt" in install  # the version is the pinned one


def test_what_is_installed_is_pinned() -> None:
    for line in of("RUN"):
        for command in line.split("&&"):
            words = shlex.split(command)
            if words[:2] == ["apt-get", "install"]:
                names = [word for word in words[2:] if not word.startswith("-")]
                assert names
                assert all(re.fullmatch(r"[a-z0-9-]+=[\d.]+\*", name) for name in names), names
            if words[:2] == ["pip", "install"]:
                assert "--no-cache-dir" in words
                assert "--constraint" in words or re.search(r"torch==\$\(sed ", command)
    assert any("rm -rf /var/lib/apt/lists" in line for line in of("RUN"))


def test_it_runs_as_a_user_and_says_whether_it_is_well() -> None:
    assert of("USER") == ["1000"]
    order = [name for name, _ in instructions()]
    assert "RUN" not in order[order.index("USER") :]
    assert "COPY" not in order[order.index("USER") :]
    (check,) = of("HEALTHCHECK")
    assert "CMD" in check
    assert not of("ADD")
    assert not re.search(r"(PASSWORD|TOKEN|SECRET|KEY)=", "\n".join(of("ENV") + of("ARG")))


def sources() -> list[str]:
    """What is copied from the checkout."""
    return [name for one in of("COPY") if not one.startswith("--from") for name in one.split()[:-1]]


def test_only_what_is_needed_is_sent_and_copied() -> None:
    listed = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in listed if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert allowed == set(sources())
    assert all((ROOT / name).exists() for name in allowed)
    never = ("tests", ".git", ".env", "mlruns", ".venv", "demo", "infra")
    assert not any(fnmatch.fnmatch(name, one) for name in never for one in allowed)


FOLDERS = ("wheels", "src", "tmp", "app", "data")


def placed(text: str, root: Path) -> str:
    """A command or path with the folders of the image below ``root``, and torch from the usual index."""
    text = text.replace(f'--index-url "{INDEX}"', "")
    return re.sub(rf"(?<![\w.*/])/({'|'.join(FOLDERS)})\b", rf"{root}/\1", text)


def copy(argument: str, root: Path) -> None:
    """One COPY line."""
    *names, target = argument.replace("--from=wheel ", "").split()
    for name in names:
        source = Path(placed(name, root)) if name.startswith("/") else ROOT / name
        to = (root / "src" / placed(target, root)) / (name if target == "./" else "")
        if source.is_dir():
            shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy(source, to)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_its_steps_make_an_environment_in_which_the_jobs_run(tmp_path: Path) -> None:
    """The COPY and pip lines in a new virtual environment, then every job's help."""
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment["PATH"] = f"{tmp_path}/venv/bin:{os.environ['PATH']}"

    def run(*command: str | Path, **more: Any) -> str:
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, **more)
        return str(done.stdout)

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    for name, argument in instructions():
        if name == "COPY":
            copy(argument, tmp_path)
        elif name == "RUN" and argument.startswith("pip"):
            run("bash", "-c", placed(argument, tmp_path), cwd=tmp_path / "src")
    where = run("python", "-c", "import paraembed; print(paraembed.__file__)", cwd=tmp_path / "data")
    assert where.startswith(str(tmp_path / "venv"))
    for job in sorted((tmp_path / "app" / "jobs").glob("*.py")):
        assert "usage" in run("python", job, "--help", cwd=tmp_path / "data")
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pins = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", run("pip", "freeze", "--all"), re.MULTILINE):
        if name != "pip":
            assert version.partition("+")[0] == pins.get(name.lower().replace("_", "-")), f"{name} is not pinned"
