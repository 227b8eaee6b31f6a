"""Programs that take turns, as real processes."""

import sys

import pytest

from paraembed.benchmarks.turns import Program

PROGRAM = """
import sys, time, torch
from paraembed.benchmarks.turns import Finished, Turns
turns = Turns(0.05, torch.device("cpu"))
print("a library says something")
try:
    for step in range(1, 10**9):
        time.sleep(0.001)
        if step % 10 == 0:
            turns(step)
        if step > {last}:
            raise RuntimeError("out of steps")
except Finished:
    pass
"""


def program(last: int) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(last=last)]


def test_turns() -> None:
    running = Program("sleeper", [program(10**9)], threads=1)
    try:
        assert running.warm_up_seconds > 0.01
        for _ in range(2):
            running.take_turn()
    finally:
        running.close()
    for turn in running.turns:
        assert turn.steps % 10 == 0
        assert 0 < turn.steps <= turn.seconds / 0.001
        assert turn.seconds >= 0.05
        assert turn.peak_bytes > 50e6  # torch is in it


def test_a_program_that_ends_is_named() -> None:
    running = Program("sleeper", [program(30)], threads=1)
    try:
        with pytest.raises(ValueError, match="sleeper ended before its turn was over: RuntimeError: out of steps"):
            running.take_turn()
    finally:
        running.close()
