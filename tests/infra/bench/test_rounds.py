"""Programs in interleaved rounds, as real processes."""

import sys
import time
from argparse import Namespace
from functools import partial

import pytest

from infra.bench.rounds import Program, Round, measure, report, show_table, start


def sleep(clock, last, rank=0, world=1):
    """Steps of a millisecond."""
    sys.stdout.write("a library says something\n")
    for step in range(1, 10**9):
        time.sleep(0.001)
        if step % 10 == 0:
            clock(step)
        if step > last:
            raise RuntimeError(f"out of steps, rank {rank}")


def miss(clock):
    raise ModuleNotFoundError("no", name="faiss.swig")


@pytest.mark.slow
def test_rounds_are_interleaved_and_sum_up_the_processes_that_answer():
    order = []

    def call():
        order.append("here")
        return Round(4, 2.0)

    def two():
        program = start("two sleepers", sleep, {"last": 10**9}, processes=2, seconds=0.05)

        def run_round():
            order.append("two")
            return program.run_round()

        return Program("two sleepers", run_round, program.close)

    logged = {}
    results = measure({"two": two, "here": partial(Program, "here", call, workers=3)}, 2, logged.update, "rows")
    assert order == ["two", "here", "two", "here"]
    assert results["here"].rounds == [Round(4, 2.0)] * 2
    assert (results["here"].seconds, results["here"].rate) == (0.5, 6.0)
    assert logged["here/rows_per_second"] == 6.0
    for one in results["two"].rounds:
        assert one.steps % 10 == 0
        assert 0 < one.steps <= 2 * one.seconds / 0.001
        assert one.seconds >= 0.05
        assert one.peak_bytes > 50e6  # torch is in it
    measured = report(Namespace(rounds=2, out="x"), results)
    assert measured["settings"] == {"rounds": 2}
    assert measured["programs"]["two"]["turns"][0]["steps"] == results["two"].rounds[0].steps


def test_a_program_that_ends_is_named():
    running = start("sleeper", sleep, {"last": 30}, seconds=60)  # the program fails after 30 ms
    try:
        with pytest.raises(ValueError, match=r"sleeper ended .*: RuntimeError: out of steps"):
            running.run_round()
    finally:
        running.close()


def test_a_program_whose_package_is_not_installed_says_so_in_its_row(capsys):
    results = measure(
        {"peer": lambda: start("peer", miss, {}), "here": lambda: Program("a longer name", lambda: Round(10, 2.0))},
        1,
        lambda _: None,
        "rows",
    )
    assert results["peer"].skipped == "faiss.swig is not installed"
    columns = {"steps/s": lambda one: f"{one.rate:.1f}", "MB": lambda one: f"{one.peak_bytes}"}
    show_table("program", results.values(), columns)
    assert capsys.readouterr().out.splitlines() == [
        "| program       |                     steps/s |  MB |",
        "| ------------- | --------------------------: | --: |",
        "| peer          | faiss.swig is not installed |     |",
        "| a longer name |                         5.0 |   0 |",
        "",
    ]
