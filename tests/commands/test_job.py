import ctypes
import errno
import json
import logging
import re
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Annotated

import pytest
import tyro
from ray.exceptions import RayTaskError, WorkerCrashedError

from paraembed.commands.flags import as_flags, parse_flags
from paraembed.commands.job import exit_status, explained, run
from paraembed.commands.train import Train, defaults
from paraembed.console import is_quiet, say, show, shown_status
from paraembed.encoders.configs import GranConfig
from paraembed.papers import RECIPES
from paraembed.settings import Workers
from paraembed.signals import STOPPED, STOPPED_LINE, RunFailedError


@dataclass
class Flags:
    """Nothing."""


@pytest.fixture(autouse=True)
def _job(monkeypatch):
    """The command line of a job without flags; a job sets the handlers of the process."""
    monkeypatch.setattr("sys.argv", ["job"])
    before = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = before


def test_passwords_in_addresses_are_not_said(capsys):
    def main(_):
        say("reading s3://key:secret@bucket/pairs.gz and s3://key:s%2Fecret@other/a@b.gz")
        logging.getLogger("paraembed").warning("%s failed", "postgresql://user:s@ecret@host:1/db")
        logging.getLogger("paraembed").warning("%s is down", "https://user:s/ecret@host/page")
        raise ValueError("s3://key:secret@bucket/pairs.gz does not exist; write to mail@example.org")

    assert run(main, Flags) == 2
    said = capsys.readouterr().err
    assert "ecret" not in said
    assert "s3://bucket/pairs.gz does not exist; write to mail@example.org" in said
    assert "reading s3://bucket/pairs.gz and s3://other/a@b.gz" in said
    assert "postgresql://host:1/db failed" in said
    assert "https://host/page is down" in said


@dataclass
class Sharded(Flags):
    out: str = "s3://key:secret@bucket/pairs"


def noisy(flags):
    with shown_status():
        assert is_quiet() == ("--quiet" in sys.argv), "workers of other processes follow it"
        say("about to begin", "warning: a remark")
    logging.getLogger("paraembed").info("a note")
    logging.getLogger("paraembed").warning("a fault")
    show("a result")
    return {"pairs": 3} if flags.out else None


def test_quiet_keeps_results_warnings_and_errors(capsys, monkeypatch):
    monkeypatch.setattr(logging.root.manager, "disable", 0)  # what Ray's quiet processes leave
    lines = ["about to begin", "warning: a remark", "a note", "a fault"]
    for flags, expected in (([], lines), (["--quiet"], lines[1::2])):
        monkeypatch.setattr("sys.argv", ["job", *flags])
        assert run(noisy, Sharded) == 0
        printed = capsys.readouterr()
        assert (printed.out, printed.err.splitlines()) == ("a result\n", expected)


@pytest.mark.parametrize(
    ("main", "flags", "expected"),
    [
        (noisy, [], {"status": 0, "written": ["s3://bucket/pairs"], "pairs": 3}),
        (lambda _: {"written": ["a"]}, [], {"status": 0, "written": ["a"]}),
        (lambda _: int("x"), [], {"status": 2, "error": "invalid literal for int() with base 10: 'x'"}),
        (noisy, ["--tag", "x"], {"status": 2, "error": "--tag is 'x'; give NAME=VALUE, such as team=search"}),
        (lambda _: signal.raise_signal(signal.SIGINT), [], {"status": STOPPED, "error": STOPPED_LINE}),
    ],
)
def test_json_is_the_last_line_whatever_the_end(capsys, monkeypatch, main, flags, expected):
    monkeypatch.setattr("sys.argv", ["job", "--json", *flags])
    assert run(main, Sharded) == expected["status"]
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 <= last.pop("seconds") < 60
    assert last == {"job": "sharded", **expected}


@dataclass
class Named(Flags):
    part_rows: int = 0
    fixed: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="[FIELD=VALUE ...]")] = ()
    placement: Annotated[Workers, tyro.conf.arg(name="")] = field(default_factory=Workers)


def test_parameters_are_named_as_flags(capsys):
    message = "`part_rows` is 0; `fixed` a=1, `checkpoint_minutes` or `other`, not part_rows, `max_rows` of jobs/x.py"
    expected = "--part-rows is 0; --set a=1, --checkpoint-minutes or `other`, not part_rows, --max-rows of jobs/x.py"
    assert as_flags(message, Named) == expected

    def main(_):
        logging.getLogger("paraembed").warning(message)
        raise ValueError(message)

    assert run(main, Named) == 2
    assert capsys.readouterr().err.splitlines() == [expected, f"error: {expected}"]


def test_a_stop_within_a_callback_from_c_is_not_lost(capsys):
    """Numba calls Python so when it loads compiled code, and Python drops what is raised there."""
    callback = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))
    hook, survived = sys.unraisablehook, []

    def main(_):
        callback()
        survived.append("the callback")
        time.sleep(60)
        survived.append("the stop")

    assert run(main, Flags) == STOPPED
    assert survived == ["the callback"]
    assert "Traceback" not in capsys.readouterr().err
    assert sys.unraisablehook is hook


def test_the_exit_status_says_whether_the_command_or_the_run_was_wrong():
    of_run = RunFailedError("a check"), OSError(errno.ENOSPC, "no space"), ChildProcessError("a worker")
    assert [exit_status(error) for error in (ValueError("a flag"), FileNotFoundError("an input"), *of_run)] == [
        *(2, 2, 1, 1, 1)
    ]


def help_of(name, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit):
        import_module(f"paraembed.commands.{name}").command()
    return capsys.readouterr().out


@pytest.mark.parametrize(("name", "groups"), [("train", 8), ("shard", 3)])
def test_help_begins_with_one_screen_and_continues_in_groups(name, groups, capsys, monkeypatch):
    text = help_of(name, 80, capsys, monkeypatch)
    boxes = [part.count("\n") for part in re.split(r"(?m)^\W+(?=[\w ]*options\s)", text)]
    assert sum(boxes[:2]) <= 40
    assert len(boxes) >= groups


def test_what_can_be_chosen_is_listed_a_line_each(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["train", "--list"])
    assert import_module("paraembed.commands.train").command() == 0
    assert "gran" in {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()}


def test_the_help_of_an_encoder_names_each_kind(capsys, monkeypatch):
    assert "FOLDER|small|st:MODEL|m2v:MODEL|onnx:FOLDER|RUN" in help_of("embed", 200, capsys, monkeypatch)


def test_the_last_of_repeated_flags_counts():
    arguments = "--pairs p --words w --out o --recipe acl2017/gran --encoder sum --recipe=acl2017/avg --encoder gran"
    flags = parse_flags(Train, arguments.split(), {}, defaults(arguments.split()))
    assert (flags.recipe, flags.encoder) == ("acl2017/avg", "gran")
    assert flags.settings == replace(RECIPES["acl2017/avg"], encoder=GranConfig())


def test_errors_of_ray_are_explained():
    wrong = ValueError("pairs.gz: wrong quoting")
    assert explained(wrong) is wrong
    assert explained(RayTaskError("parse", "traceback", wrong)) is wrong
    assert explained(RayTaskError("parse", "traceback", KeyError("first"))) is None
    assert explained(KeyError("first")) is None
    lost = explained(WorkerCrashedError())
    assert isinstance(lost, ChildProcessError)
    assert exit_status(lost) == 1


@dataclass
class Anything:
    """Any path."""

    folder: Annotated[tuple[str, ...], tyro.conf.arg(name="folder")] = ()
    """Folders."""


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["--folder", "caf\udce9.txt"], "--folder is 'caf\\udce9.txt'"),
        (["--folder=caf\udce9"], "--folder is 'caf\\udce9'"),
        (["--folder", "a", "b\udcff"], "--folder is 'b\\udcff'"),
    ],
)
def test_an_argument_that_is_not_utf_8_is_named(line, named, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["job", *line])
    assert run(lambda _: line[-1].encode(), Anything) == 2
    assert f"{named}, which is not UTF-8" in capsys.readouterr().err
