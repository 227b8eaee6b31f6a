"""The benchmark of embedding: its inputs, its programs as real processes, its tables from known numbers."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.benchmarks.embed import NAMES, SIZES, STAGES, JobTurn, Result, Together, measure, start
from paraembed.benchmarks.embed_case import EmbedWorkload, Inputs, write_inputs
from paraembed.benchmarks.embed_program import Task
from paraembed.benchmarks.embed_tables import markdown, notes
from paraembed.benchmarks.turns import Turn
from paraembed.words import UNKNOWN

SIZES_SMALL = {"few_files": 3, "many_files": 12, "few_groups": 8, "many_groups": 1000}
SMALL = EmbedWorkload(
    rows=50,
    memory_rows=20,
    small_rows=40,
    large_rows=70,
    part_rows=16,
    small_part_rows=4,
    words=30,
    width=6,
    rounds=2,
    **SIZES_SMALL,
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(SMALL, None, [], tmp_path_factory.mktemp("inputs"))


def test_lines_begin_again_and_the_encoder_has_their_most_frequent_words(tmp_path: Path) -> None:
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("the cat sat\nthe dog")
    second.write_text("a cat\n")
    work = EmbedWorkload(rows=7, memory_rows=1, small_rows=3, large_rows=2, small_part_rows=1, words=4, width=5)
    made = write_inputs(work, None, [first, second], tmp_path)
    lines = ["the cat sat", "the dog", "a cat"]
    assert made.texts.read_text().splitlines() == [*lines, *lines, lines[0]]
    assert made.small.read_text().splitlines() == lines
    assert made.large.read_text().splitlines() == lines[:2]
    encoder = checkpoint.load(made.encoder)
    assert encoder.vocabulary.to_pylist() == [UNKNOWN, "cat", "the", "a"]
    assert encoder.width == 5


def test_generated_sentences_are_the_same_again(inputs: Inputs, tmp_path: Path) -> None:
    again = write_inputs(SMALL, None, [], tmp_path)
    assert again.texts.read_bytes() == inputs.texts.read_bytes()
    assert [len(path.read_text().splitlines()) for path in (inputs.texts, inputs.small, inputs.large)] == [50, 40, 70]
    assert checkpoint.load(again.encoder).fingerprint == checkpoint.load(inputs.encoder).fingerprint


def test_the_floor_writes_the_rows_that_encode_gives(inputs: Inputs, tmp_path: Path) -> None:
    program = start("floor", SMALL, inputs, tmp_path)
    assert isinstance(program, Together)
    try:
        program.take_turn()
        (turn,) = program.turns
        assert turn.steps == 50
    finally:
        program.close()
    table = pq.read_table(tmp_path / "floor").sort_by("row")
    assert table["row"].to_pylist() == list(range(50))
    vectors = checkpoint.load(inputs.encoder).encode(inputs.texts.read_text().splitlines())
    # The floor adds up by PyTorch's embedding_bag, encode by its own loop: the last bit may differ.
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), vectors, rtol=1e-5, atol=1e-7)


def test_stages_and_encode_go_through_all_rows(inputs: Inputs, tmp_path: Path) -> None:
    def no_job(key: str) -> Together:
        raise AssertionError(key)

    keys = ["encode", *STAGES, *SIZES]
    groups = list(measure(SMALL, inputs, tmp_path, keys, no_job, lambda _: None))
    assert [[*group] for group in groups] == [["encode"], [*STAGES], [*SIZES]]
    results = groups[0] | groups[1] | groups[2]
    assert {key: [turn.steps for turn in one.turns] for key, one in results.items()} == {
        "encode": [20, 20],
        **{key: [40, 40] for key in STAGES},
        "few_files": [3, 3],
        "many_files": [12, 12],
        "few_groups": [1, 1],
        "many_groups": [8, 8],
    }
    assert all(turn.seconds > 0 and turn.peak_bytes > 50e6 for one in results.values() for turn in one.turns)
    parts = [pq.read_table(tmp_path / stage).sort_by("row") for stage in ("write", "part")]
    assert parts[0].equals(parts[1])
    assert len(parts[0]) == 40


def test_a_peer_that_is_not_installed_is_skipped(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model2vec.py").write_text("raise ModuleNotFoundError('no', name='model2vec')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program = start("model2vec", SMALL, inputs, tmp_path)
    program.close()
    assert program.skipped == "model2vec is not installed"
    table = "\n".join(markdown(SMALL, {"model2vec": Result(NAMES["model2vec"], [], program.skipped)}))
    assert "| model2vec StaticModel | model2vec is not installed |" in table


def result(key: str, *turns: Turn) -> Result:
    return Result(NAMES[key], turns)


def test_what_follows_from_the_numbers() -> None:
    work = EmbedWorkload(workers=2)

    def job(rows: int, seconds: float, peak: int, parts: int) -> JobTurn:
        return JobTurn(rows, seconds, 0.0, peak, 0, 0, 6.0, seconds + 7, 2 * seconds - 1, parts)

    results = {
        "encode": result("encode", Turn(1000, 1.0), Turn(1000, 2.0), Turn(1000, 4.0)),
        "model2vec": result("model2vec", Turn(1000, 8.0)),
        "float32": result("float32", job(6000, 3.0, 400, 6)),
        "float16": result("float16", job(6000, 4.0, 400, 6)),
        "floor": result("floor", Turn(6000, 2.0)),
        "few": result("few", job(2000, 1.0, 200_000_000, 4)),
        "many": result("many", job(2000, 2.0, 200_000_000, 104)),
        "large": result("large", job(20_000, 9.0, 220_000_000, 20)),
        **{key: result(key, Turn(1000, 0.1)) for key in STAGES},
        "part": result("part", Turn(1000, 0.5)),
        "many_files": result("many_files", Turn(20_000, 10.0)),
    }
    assert notes(work, results) == [
        "encode makes 4.0 × the vectors of model2vec StaticModel",
        "float16 reaches 0.75 × the rows of float32",
        "float32 reaches 67% of the bare floor, 2 processes without Ray",
        "from the command to the first part: 6.0 s",
        "peak memory of a worker: 200 MB for 2,000 rows, 220 MB for 20,000 rows: +10.0%",
        "a part costs 20.0 ms of a worker (100 more parts for the same rows)",
    ]
    table = "\n".join(markdown(work, results))
    # A worker takes 0.5 ms a row in parts, of which 0.1 ms are in no stage, and (2 · 3 - 5) s / 6000 rows outside.
    assert "| read | 10,000 | 15.0% |" in table
    assert "| the rest of a part | 10,000 | 15.0% |" in table
    assert "| Ray, commit | 6,000 | 25.0% |" in table
    assert "| all | 1,500 | 100.0% |" in table
    assert f"| {NAMES['many_files']} | 20,000 | 0.50 | 10.0 |" in table
    assert "| jobs/embed.py | 6,000 | 6 | 2,000 | 1.00 | 600 | 6.0 | 0 |" in table


def test_small_parts_are_smaller() -> None:
    with pytest.raises(ValueError, match="small_part_rows is 500; it must be below part_rows and small_rows, 500 and"):
        EmbedWorkload(part_rows=500, small_part_rows=500)


def test_a_task_is_a_command_line() -> None:
    task = Task("read", "encoder", "a.txt", "b", 5, 2, 1)
    assert Task(**json.loads(task.command()[-1])) == task
