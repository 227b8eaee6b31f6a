"""Every command of the pages is one that its job takes, and the quickstart runs."""

import logging
import os
import re
import sys
from importlib import import_module

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.bench import command as bench
from paraembed.commands import JOBS, job
from tests.docs.pages import NAMES, ROOT, blocks, job_commands, prose
from tests.jobs import ran

COMMANDS = [
    (page, name, arguments)
    for page in NAMES
    for name, arguments in job_commands(page)
    if "…" not in arguments  # stands for arguments that are left out
]
# Of Ray, Docker, pip, kubectl, curl and MLflow; --encoder.OPTION stands for the options of an encoder.
FOREIGN = {
    "--backend-store-uri",
    "--index-url",
    "--head",
    "--block",
    "--temp-dir",
    "--encoder.OPTION",
    "--encoder.layers",
    "--encoder.width",
}


@pytest.fixture
def parse(monkeypatch):
    """Parse a command line as the job does, without running it; return the exit status."""
    before = logging.getLogger().handlers[:]

    def parsed(name, arguments):
        monkeypatch.setattr("sys.argv", [name, *arguments])
        if name == "bench":
            bench.parse(arguments)
            return 0
        module = import_module(f"paraembed.commands.{name}")

        def without_main(main, *others, **named):
            return job.run(lambda _: None, *others, **named)

        monkeypatch.setattr(module, "run", without_main)
        return module.command()

    yield parsed
    logging.getLogger().handlers[:] = before


def test_there_are_commands_of_every_job():
    assert {name for _, name, _ in COMMANDS} == {*JOBS, "bench"}


@pytest.mark.parametrize(("page", "name", "arguments"), COMMANDS, ids=lambda value: str(value)[:60])
def test_a_command_is_one_that_its_job_takes(page, name, arguments, parse, capsys):
    try:
        status = parse(name, arguments)
    except SystemExit as stop:
        status = stop.code
    assert not status, f"{page}: {name} {' '.join(arguments)}\n{capsys.readouterr()}"


def flags_of(parse, capsys, name, *arguments):
    with pytest.raises(SystemExit):
        parse(name, [*arguments, "--help"])
    return set(re.findall(r"(?<![\w-])--[\w.-]+", capsys.readouterr().out))


def test_a_flag_in_the_prose_is_one_of_a_job(parse, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    known = set().union(*(flags_of(parse, capsys, name) for name in JOBS))
    known |= flags_of(parse, capsys, "shard", "fetch")
    known |= set().union(*(flags_of(parse, capsys, "bench", name) for name in bench.BENCHMARKS))
    switches = {flag.replace("--no-", "--") for flag in known if flag.startswith("--no-")}
    known |= switches | {flag.replace("--", "--no-", 1) for flag in known}
    for page in ("README.md", *(name for name in NAMES if name.startswith("docs/"))):
        spans = re.findall(r"`([^`\n]+)`", prose(page))
        flags = {flag.rstrip(".") for span in spans for flag in re.findall(r"(?<![\w-])--[a-z][\w.-]*", span)}
        assert not flags - known - FOREIGN, page


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_the_quickstart_runs(tmp_path):
    commands = [block for block in blocks("docs/quickstart.md", "bash") if re.search(r"jobs/|paraembed sample", block)]
    assert len(commands) == 7
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    (tmp_path / "bin").mkdir()
    for name, call in {"python": "", "paraembed": "-m paraembed"}.items():
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
        script.chmod(0o755)
    (tmp_path / "corpus").mkdir()
    pq.write_table(pa.table({"id": [3, 4], "text": ["a b", "c"]}), tmp_path / "corpus" / "a.parquet")
    script = "set -e\n" + "\n".join(commands).replace("60000", "3000")
    environment = os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }
    ran("bash", "-c", script, cwd=tmp_path, env=environment, timeout=800)
    for name in ("small", "embeddings"):
        assert pq.read_table(tmp_path / "demo" / name, columns=["row"]).num_rows == 20_000
    assert pq.read_table(tmp_path / "demo" / "corpus-embeddings")["id"].to_pylist() == [3, 4]
