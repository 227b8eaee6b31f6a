"""Command ``paraembed completion``: a script that completes the command line in a shell.

The script contains the names of the jobs and their flags, so completing a word starts no Python. It must be made again
after an update of the package. A limitation: values of flags are completed as files, also where they are not files.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Literal

import tyro

from paraembed.commands import JOBS
from paraembed.commands.flags import typed_flags, with_common
from paraembed.commands.job import run
from paraembed.console import show

_BASH = """_paraembed() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words=
    if [[ $COMP_CWORD -eq 1 ]]; then
        words='{jobs} --help --version'
    elif [[ $word == -* ]]; then
        case ${{COMP_WORDS[1]}} in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _paraembed paraembed  # default: files, if no job or flag fits
"""
_ZSH = """#compdef paraembed
_paraembed() {{
    if (( CURRENT == 2 )); then
        compadd -- {jobs} --help --version
    elif [[ $words[CURRENT] == -* ]]; then
        case $words[2] in
{cases}
        esac
    else
        _files
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
            lines += [f'complete -c paraembed -n "__fish_seen_subcommand_from {name}" -l {flag[2:]}' for flag in flags]
        return "\n".join(lines)
    template, line = (_BASH, "{}) words='{}' ;;") if shell == "bash" else (_ZSH, "{}) compadd -- {} ;;")
    cases = [f"            {line.format(name, ' '.join(flags))}" for name, flags in jobs.items()]
    return template.format(jobs=names, cases="\n".join(cases))


def job_flags(name: str) -> list[str]:
    """Return the flags of a job, with the defaults of its first recipe."""
    module = import_module(f"paraembed.commands.{name}")
    defaults = getattr(module, "defaults", None)
    return [*typed_flags(*with_common(getattr(module, name.capitalize()), defaults and defaults([]))), "--help"]


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Completion)
