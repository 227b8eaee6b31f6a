"""The benchmark of search and mining, on few rows: its programs in this process, and two of them as real processes."""

import pytest

from infra.bench import search
from infra.bench.command import parse
from infra.bench.rounds import Finished


@pytest.mark.slow
def test_every_program_is_measured_next_to_its_product(tmp_path, capsys):
    flags = "search --rows 60 --mine-rows 40 --queries 3 --width 6 --threads 1 --rounds 1 --programs mine mine_product"
    options = parse([*flags.split(), "--folder", str(tmp_path)])
    logged = {}
    numbers = search.run(options, logged.update)
    assert [*numbers["programs"]] == options.programs == ["mine", "mine_product"]
    assert all(key + "/rows_per_second" in logged for key in options.programs)
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    ratios = {cells[1].strip(): cells[4].strip() for cells in rows}
    assert [bool(ratios[search.PROGRAMS[key]]) for key in options.programs] == [False, True]

    out = search.write_output(options, options.rows, tmp_path)
    for key in search.PROGRAMS:
        steps = []

        def clock(number, steps=steps):
            steps.append(number)
            if len(steps) == 3:
                raise Finished

        with pytest.raises(Finished):
            search.run_program(clock, key, str(out), options.queries, options.threshold)
        assert steps == [0, 60, 120]
