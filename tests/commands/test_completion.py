"""``paraembed completion``: bash completes with the script; of zsh and fish, which may be absent, the text is read."""

import re
import shutil
import sys

import pytest

from paraembed.commands import JOBS
from paraembed.commands.completion import job_flags, script
from tests.jobs import ran


@pytest.fixture(scope="module")
def bash(tmp_path_factory):
    """Return a function from the words of a command line to what bash offers for the last one."""
    path = tmp_path_factory.mktemp("bash") / "paraembed"
    path.write_text(ran(sys.executable, "-m", "paraembed", "completion", "bash").stdout)
    program = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _paraembed; echo "${COMPREPLY[@]}"'
    return lambda *words: ran("bash", "--norc", "-c", program, path, "paraembed", *words).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["emb"], ["embed"]),
        (["t"], ["train", "teach", "tune"]),
        (["embed", "--encode"], ["--encoder"]),
        (["embed", "--input", "texts", "--part"], ["--part-rows"]),
        (["evaluate", "--no-an"], ["--no-analyses"]),  # on by default
        (["sample", "--sui"], ["--suites"]),
        (["log", "-"], ["--quiet", "--json", "--help"]),  # OUT has no flag
        (["embed", "READ"], []),  # bash completes files
        (["emebd", "--encode"], []),
    ],
)
def test_bash_completes(bash, words, offered):
    assert bash(*words) == offered


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("zsh", "            {}) compadd -- {} ;;"),
        ("fish", 'complete -c paraembed -n "__fish_seen_subcommand_from {}" {}'),
    ],
)
def test_zsh_and_fish_get_every_job_with_its_flags(shell, line):
    text = script(shell).splitlines()
    for name in JOBS:
        flags = job_flags(name)
        lines = [" ".join(flags)] if shell == "zsh" else [f"-l {flag[2:]}" for flag in flags]
        assert {line.format(name, own) for own in lines} <= {*text}


def test_the_flags_are_those_that_help_lists(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("embed", "train", "verify"):
        listed = ran(sys.executable, "-m", "paraembed", name, "--help").stdout
        flags = set(re.findall(r"│ (?:-h, )?(--[\w-]+)(?![\w.-])", listed))
        assert {*job_flags(name)} == flags
