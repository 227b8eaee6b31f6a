"""The line that says what a job is doing: on a terminal, elsewhere, and not at all where a job is quick."""

import io
import sys
from dataclasses import replace

import pytest

from paraembed.cluster.train_worker import OnlyWorker, _report
from paraembed.console import Status, doing, duration, over_status, print_table, say, shown_status
from paraembed.tracking.records import Run
from paraembed.training.data import Pairs
from paraembed.training.loop import ProgressReport


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7620, "2 h 07 min"),
        (1e7, "2,777 h 46 min"),
    ],
)
def test_durations_for_a_reader(seconds, text):
    assert duration(seconds) == text


def test_a_terminal_shows_one_line_after_half_a_second_and_erases_it(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    status = Status(100.0)
    status.set("set 7 of 33")
    status.draw(100.4)
    assert terminal.getvalue() == ""
    status.draw(101.6)
    status.set("set 8\n of " + "3" * 1000)
    status.draw(175)
    first, second = terminal.getvalue().split("\x1b[K\r")[:2]
    assert first == "\rset 7 of 33 (2 s)"
    assert second.startswith("\rset 8\ufffd of 33")
    assert len(second) == 80  # a longer line would wrap, and could not be rewritten
    status.set("")
    assert terminal.getvalue().endswith("\r\x1b[K")
    status.draw(200)
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_elsewhere_a_line_comes_at_once_then_every_ten_seconds_then_every_thirty(monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    status = Status(0.0)
    for second in range(95):
        status.set(f"set {second} of 95")
        status.draw(second)
    assert terminal.getvalue().splitlines() == [
        *(f"set {second} of 95 ({second} s)" for second in (1, 11, 21, 31, 41, 51)),
        "set 61 of 95 (1 min 01 s)",
        "set 91 of 95 (1 min 31 s)",
    ]


def test_messages_are_written_over_the_line(monkeypatch):
    monkeypatch.setattr("paraembed.console.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("paraembed.console._TICK_SECONDS", 0.001)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with shown_status(), shown_status():
        doing("reading the words")
        while "reading the words" not in terminal.getvalue():
            pass
        say("wrote it")
        doing("")
    assert "\r\x1b[Kwrote it\n" in terminal.getvalue()
    assert over_status("x") == "x"
    doing("nothing, for no job runs here")


def test_no_line_of_an_earlier_step_follows_that_of_the_last_step(monkeypatch):
    for name in ("QUIET_SECONDS", "_EARLY_SECONDS", "_TICK_SECONDS"):
        monkeypatch.setattr(f"paraembed.console.{name}", 0.001)
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    before = ProgressReport(1, 1, 200, 240, 0.5, 0.5, 100.0, 4.0, end_of_epoch=False)
    with shown_status():
        _report(Run(None), OnlyWorker(), Pairs, before)
        while "step 200/240" not in terminal.getvalue():
            pass
        _report(Run(None), OnlyWorker(), Pairs, replace(before, step=240, end_of_epoch=True))
        num_lines = len(terminal.getvalue().splitlines())
        while len(terminal.getvalue().splitlines()) < num_lines + 3:
            pass
    lines = terminal.getvalue().splitlines()
    last = next(row for row, line in enumerate(lines) if "step 240/240" in line)
    assert all("step 240/240" in line for line in lines[last:])


def test_a_wide_table_is_printed_in_parts(capsys):
    head, rows = ("set", "pairs", "mine"), (("a", "1,000", "0.5"), ("mean", "", ""))
    print_table(head, rows)
    assert capsys.readouterr().out == "set   pairs  mine\n----  -----  ----\na     1,000   0.5\nmean\n"
    print_table(head, rows, 12)  # 4 + 2 + 5 is 11
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[::4]] == [["set", "pairs"], ["set", "mine"]]
