"""The benchmark of search and mining as real processes, on few rows."""

from infra.bench.command import SEARCH_PROGRAMS, Search
from infra.bench.search import run


def test_every_program_is_measured_next_to_its_product(tmp_path, capsys):
    options = Search(rows=60, mine_rows=40, queries=3, width=6, words=30, threads=1, rounds=1, folder=str(tmp_path))
    logged = {}
    numbers = run(options, logged.update)
    assert list(numbers["programs"]) == list(SEARCH_PROGRAMS)
    assert all(key + "/rows_per_second" in logged for key in SEARCH_PROGRAMS)
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    ratios = {cells[1].strip(): cells[4].strip() for cells in rows}
    with_product = {SEARCH_PROGRAMS[key] for key in ("search_1", "search", "mine")}
    assert {name for name, ratio in ratios.items() if name in SEARCH_PROGRAMS.values() and ratio} == with_product
