"""Command ``paraembed completion``: a script that completes the command line in a shell.

The script contains the names of the jobs, their flags and the values of these, so completing a word starts no Python.
It must be made again after an update of the package. The scripts of tyro have no names of recipes, suites and spaces.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Literal

import tyro

from paraembed.commands import JOBS
from paraembed.commands.flags import typed_flags, with_common
from paraembed.commands.job import run
from paraembed.console import show

_FILES = "FILE"  # among the values of a flag: files are offered, too
_BASH = """_paraembed() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} flag= words= number=$((COMP_CWORD - 1))
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        words='{jobs} --help --version'
    elif [[ $word == -* ]]; then
        case ${{COMP_WORDS[1]}} in
{flags}
        esac
    else
        while [[ $number -gt 1 && ${{COMP_WORDS[number]}} != -* ]]; do ((number--)); done
        [[ $number -gt 1 ]] && flag=${{COMP_WORDS[number]}}
        [[ $word == = ]] && word=
        case ${{COMP_WORDS[1]}}:$flag in
{values}
        esac
    fi
    if [[ $words == *' {files}' ]]; then
        compopt -o filenames 2> /dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        words=${{words% {files}}}
    fi
    COMPREPLY+=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _paraembed paraembed  # default: files, if nothing fits
"""
_ZSH = """#compdef paraembed
_paraembed() {{
    local flag= number=$((CURRENT - 1))
    if (( CURRENT == 2 )); then
        compadd -- {jobs} --help --version
    elif [[ $words[CURRENT] == -* ]]; then
        case $words[2] in
{flags}
        esac
    else
        while [[ $number -gt 2 && $words[number] != -* ]]; do ((number--)); done
        [[ $number -gt 2 ]] && flag=$words[number]
        case $words[2]:$flag in
{values}
            *) _files ;;
        esac
    fi
}}
if [[ $funcstack[1] == _paraembed ]]; then
    _paraembed "$@"
else
    compdef _paraembed paraembed
fi
"""


@dataclass(frozen=True)
class Completion:
    """Print a script that completes the jobs of paraembed, their flags, and files.

    Write it to a file that the shell reads at its start: see docs/quickstart.md.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Shell that reads the script."""


def main(flags: Completion) -> None:
    """Print the script."""
    show(script(flags.shell).rstrip("\n"))


def script(shell: str) -> str:
    """Return the script for a shell."""
    jobs = {name: job_flags(name) for name in JOBS}
    names = " ".join(jobs)
    if shell == "fish":
        lines = [f'complete -c paraembed -f -n "not __fish_seen_subcommand_from {names}" -a "{names}"']
        for name, flags in jobs.items():
            seen = f'complete -c paraembed -n "__fish_seen_subcommand_from {name}"'
            lines += [f"{seen}{_in_fish(flag, values)}" for flag, values in flags.items() if flag or values]
        return "\n".join(lines)
    template = _BASH if shell == "bash" else _ZSH
    cases = [_case(shell, name, [flag for flag in of_job if flag]) for name, of_job in jobs.items()]
    named = [(f"{name}:{flag}", values) for name, of_job in jobs.items() for flag, values in of_job.items() if values]
    values = [_case(shell, *case) for case in named]
    return template.format(jobs=names, flags="\n".join(cases), values="\n".join(values), files=_FILES)


def _case(shell: str, name: str, offered: list[str]) -> str:
    """Return the line of a case that offers values, in bash or zsh."""
    if shell == "bash":
        return f"            {name}) words='{' '.join(offered)}' ;;"
    files = "; _files" if _FILES in offered else ""
    return f"            {name}) compadd -- {' '.join(value for value in offered if value != _FILES)}{files} ;;"


def _in_fish(flag: str, values: list[str]) -> str:
    """Return the options of fish for a flag; -x: no files."""
    offered = f' -{"r" if _FILES in values else "x"} -a "{" ".join(value for value in values if value != _FILES)}"'
    return f"{f' -l {flag[2:]}' if flag else ''}{offered if values else ''}"


def job_flags(name: str) -> dict[str, list[str]]:
    """Return the flags of a job, with the defaults of its first recipe, and the values that are offered for each; ""
    is the flag of a positional argument.
    """
    module = import_module(f"paraembed.commands.{name}")
    defaults = getattr(module, "defaults", None)
    typed = typed_flags(*with_common(getattr(module, name.capitalize()), defaults and defaults([])))
    return {**{flag: [*values] for flag, values in typed.items()}, **_names(name), "--help": []}


def _names(job: str) -> Mapping[str, list[str]]:
    """Return the values of flags that take names."""
    from paraembed.encoders import ENCODERS
    from paraembed.evaluation.suites import SUITES
    from paraembed.papers import OWN_RECIPES, RECIPES
    from paraembed.papers.supervised import SUPERVISED_RECIPES
    from paraembed.settings import HEURISTICS, MADE_OF, SHIPPED
    from paraembed.text import TOKENIZERS
    from tune_spaces import SPACES

    shipped, encoders = [SHIPPED, _FILES], [*ENCODERS]
    train = {"--recipe": [*RECIPES, *OWN_RECIPES, _FILES], "--encoder": encoders, "--evaluate": [*SUITES]}
    names: dict[str, dict[str, list[str]]] = {
        **{name: {"--encoder": shipped} for name in ("embed", "verify", "search", "export")},
        "train": {**train, "--words": shipped},
        "finetune": {"--recipe": [*SUPERVISED_RECIPES, _FILES], "--encoder": encoders},
        "tune": {"": [*SPACES, _FILES], "--words": shipped},
        "evaluate": {
            "--suite": ["all", *SUITES, HEURISTICS],
            "--baseline": [*MADE_OF, HEURISTICS],
            "--encoder": shipped,
        },
        "shard": {"": ["fetch"], "--for": shipped, "--tokenizer": ["auto", *TOKENIZERS]},
        "weight": {"--tokenizer": [*TOKENIZERS]},
        "teach": {"--teacher": shipped},
    }
    return names.get(job, {})


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Completion)
