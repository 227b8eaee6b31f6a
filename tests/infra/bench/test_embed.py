"""The benchmark of embedding: its inputs, its programs as real processes, its tables from known numbers."""

from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from infra.bench.command import EMBED_PROGRAMS, Embed
from infra.bench.embed import SIZES, STAGES, notes, show_tables, start_program, write_inputs
from infra.bench.on_ray import JobRound
from infra.bench.rounds import Result, Round, measure
from paraembed import checkpoint
from paraembed.text.vocabulary import UNKNOWN

SMALL = Embed(
    rows=50,
    memory_rows=20,
    small_rows=40,
    large_rows=70,
    part_rows=16,
    small_part_rows=4,
    words=30,
    width=6,
    few_files=3,
    many_files=12,
    few_groups=8,
    many_groups=1000,
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    assert write_inputs(SMALL, folder) == folder / "encoder"
    return folder


def lines(folder):
    return [(folder / f"{name}.txt").read_text().splitlines() for name in ("texts", "small", "large")]


def test_lines_begin_again_and_the_encoder_has_their_most_frequent_words(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("the cat sat\nthe dog")
    second.write_text("a cat\n")
    given = str(first), str(second)
    options = Embed(texts=given, rows=7, memory_rows=1, small_rows=3, large_rows=2, small_part_rows=1, words=4, width=5)
    encoder = checkpoint.load(write_inputs(options, tmp_path))
    three = ["the cat sat", "the dog", "a cat"]
    assert lines(tmp_path) == [[*three, *three, three[0]], three, three[:2]]
    assert encoder.vocabulary.to_pylist() == [UNKNOWN, "cat", "the", "a"]
    assert encoder.width == 5


@pytest.mark.slow
def test_every_program_goes_through_all_rows(inputs):
    keys = ["encode", "floor", *STAGES, *SIZES]
    starts = {key: partial(start_program, key, SMALL, inputs, inputs / "encoder") for key in keys}
    results = measure(starts, 2)
    assert {key: [one.steps for one in result.rounds] for key, result in results.items()} == {
        "encode": [20, 20],
        "floor": [50, 50],  # of two processes
        **{key: [40, 40] for key in STAGES},
        "few_files": [3, 3],
        "many_files": [12, 12],
        "few_groups": [1, 1],
        "many_groups": [8, 8],
    }
    assert all(one.seconds > 0 and one.peak_bytes > 50e6 for result in results.values() for one in result.rounds)
    parts = [pq.read_table(inputs / stage).sort_by("row") for stage in ("write", "part")]
    assert parts[0].equals(parts[1])
    assert len(parts[0]) == 40
    table = pq.read_table(inputs / "floor").sort_by("row")
    assert table["row"].to_pylist() == list(range(50))
    vectors = checkpoint.load(inputs / "encoder").encode((inputs / "texts.txt").read_text().splitlines())
    # The floor adds up by PyTorch's embedding_bag, encode by its own loop: the last bit may differ.
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), vectors, rtol=1e-5, atol=1e-7)


def result(key, *rounds):
    return Result(EMBED_PROGRAMS[key], [*rounds])


def test_what_follows_from_the_numbers(capsys):
    options = Embed(workers=2)

    def job(rows, seconds, peak, parts):
        return JobRound(rows, seconds, 0.0, peak, 0, 0, 6.0, seconds + 7, 2 * seconds - 1, parts)

    results = {
        "encode": result("encode", Round(1000, 1.0), Round(1000, 2.0), Round(1000, 4.0)),
        "model2vec": result("model2vec", Round(1000, 8.0)),
        "float32": result("float32", job(6000, 3.0, 400, 6)),
        "float16": result("float16", job(6000, 4.0, 400, 6)),
        "floor": result("floor", Round(6000, 2.0)),
        "few": result("few", job(2000, 1.0, 200_000_000, 4)),
        "many": result("many", job(2000, 2.0, 200_000_000, 104)),
        "large": result("large", job(20_000, 9.0, 220_000_000, 20)),
        **{key: result(key, Round(1000, 0.1)) for key in STAGES},
        "part": result("part", Round(1000, 0.5)),
        "many_files": result("many_files", Round(20_000, 10.0)),
    }
    assert notes(options, results) == [
        "encode makes 4.0 × the vectors of model2vec StaticModel",
        "float16 reaches 0.75 × the rows of float32",
        "float32 reaches 67% of the bare floor, 2 processes without Ray",
        "from the command to the first part: 6.0 s",
        "peak memory of a worker: 200 MB for 2,000 rows, 220 MB for 20,000 rows: +10.0%",
        "a part costs 20.0 ms of a worker (100 more parts for the same rows)",
    ]
    show_tables(options, results)
    table = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if "|" in line]
    rows = {first.strip(): [cell.strip() for cell in rest] for first, *rest in table}
    # A worker takes 0.5 ms a row in parts, of which 0.1 ms are in no stage, and (2 · 3 - 5) s / 6000 rows outside.
    assert {
        name: rows[name]
        for name in ("read", "the rest of a part", "Ray, commit", "all", EMBED_PROGRAMS["many_files"], "jobs/embed.py")
    } == {
        "read": ["10,000", "15.0%"],
        "the rest of a part": ["10,000", "15.0%"],
        "Ray, commit": ["6,000", "25.0%"],
        "all": ["1,500", "100.0%"],
        EMBED_PROGRAMS["many_files"]: ["20,000", "0.50", "10.0"],
        "jobs/embed.py": ["6,000", "6", "2,000", "1.00", "600", "6.0", "0"],
    }
