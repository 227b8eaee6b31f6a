"""``paraembed completion``: each shell that is installed completes with its script, as after the Tab key."""

import re
import shutil
import sys

import pytest

from paraembed.commands.completion import job_flags, script
from paraembed.encoders import ENCODERS
from tests.jobs import ran, run_named

PROGRAMS = {
    "bash": 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _paraembed; printf "%s\\n" "${COMPREPLY[@]}"',
    # Without a terminal, zsh's own functions cannot be called: these print what they are given.
    "zsh": """compdef() {}; compadd() { shift; print -l -- ${(M)@:#$words[CURRENT]*} }
        _files() { print -l -- $words[CURRENT]*(N) }
        source "$0"; words=("$@"); CURRENT=$#; _paraembed""",
    "fish": 'source $argv[1]; complete -C "$argv[2..]"',
}


@pytest.fixture(scope="module", params=PROGRAMS)
def complete(request, tmp_path_factory):
    """Return a function from the words of a command line to what the shell offers for the last one."""
    shell, folder = request.param, tmp_path_factory.mktemp(request.param)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (folder / "script").write_text(script(shell))
    (folder / "home").mkdir()
    (folder / "home" / "own.json").touch()
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]

    def offered(*words):
        command = shell, *options, "-c", PROGRAMS[shell], folder / "script", "paraembed", *words
        return ran(*command, cwd=folder / "home", env={"HOME": folder, "PATH": "/usr/bin:/bin"}).stdout.split()

    return offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["emb"], ["embed"]),
        (["embed", "--encode"], ["--encoder"]),
        (["embed", "--input", "texts", "--part"], ["--part-rows"]),
        (["evaluate", "--no-an"], ["--no-analyses"]),  # on by default
        (["log", "--q"], ["--quiet"]),
        (["embed", "--engine", "l"], ["local"]),
        (["evaluate", "--suite", "si"], ["sick"]),
        (["train", "--recipe", "small"], ["small"]),
        (["tune", "tacl2015/word-"], ["tacl2015/word-constraints"]),
        (["finetune", "--task", "sen"], ["sentiment"]),
        (["completion", "z"], ["zsh"]),
    ],
)
def test_a_shell_completes(complete, words, offered):
    assert complete(*words) == offered


def test_files_are_offered_where_a_file_may_be_given(complete):
    assert "own.json" in complete("train", "--recipe", "")
    assert {*complete("embed", "--encoder", "")} == {"small", "own.json"}
    assert {*complete("train", "--encoder", "")} == {*ENCODERS}


def test_the_job_prints_the_script(capsys):
    assert run_named("completion", "bash") == 0
    assert capsys.readouterr().out.rstrip() == script("bash").rstrip()


def test_the_flags_are_those_that_help_lists(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    listed = ran(sys.executable, "-m", "paraembed", "train", "--help").stdout
    flags = set(re.findall(r"│ (?:-h, )?(--[\w-]+)(?![\w.-])", listed))
    assert job_flags("train").keys() - {""} == flags
