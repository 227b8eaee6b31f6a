"""The benchmark of search and mining, on few rows: its programs in this process, and two of them as real processes."""

import pytest

from infra.bench import search
from infra.bench.command import SEARCH_PROGRAMS, Search
from infra.bench.rounds import Finished


@pytest.mark.slow
def test_every_program_is_measured_next_to_its_product(tmp_path, capsys):
    options = Search(rows=60, mine_rows=40, queries=3, width=6, words=30, threads=1, rounds=1, folder=str(tmp_path))
    keys = ("mine", "mine_product")
    logged = {}
    numbers = search.run(Search(**{**vars(options), "programs": keys}), logged.update)
    assert tuple(numbers["programs"]) == keys
    assert all(key + "/rows_per_second" in logged for key in keys)
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    ratios = {cells[1].strip(): cells[4].strip() for cells in rows}
    assert [bool(ratios[SEARCH_PROGRAMS[key]]) for key in keys] == [True, False]

    out = search._write_output(options, options.rows, tmp_path)
    for key in SEARCH_PROGRAMS:
        steps = []

        def clock(number, steps=steps):
            steps.append(number)
            if len(steps) == 3:
                raise Finished

        with pytest.raises(Finished):
            search.run_program(clock, key, str(out), 1 if key.endswith("_1") else options.queries, options.threshold)
        assert steps == [0, 60, 120]
