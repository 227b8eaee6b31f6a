"""The benchmark of embedding: its inputs, and its programs as real processes."""

from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from infra.bench.command import parse
from infra.bench.embed import start_program, write_inputs
from infra.bench.rounds import measure
from paraembed import checkpoint
from paraembed.text.vocabulary import UNKNOWN


def test_lines_begin_again_and_the_encoder_has_their_most_frequent_words(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("the cat sat\nthe dog")
    second.write_text("a cat\n")
    options = parse(["embed", "--texts", str(first), str(second), *["--rows", "7", "--words", "4", "--width", "5"]])
    encoder = checkpoint.load(write_inputs(options, tmp_path))
    three = ["the cat sat", "the dog", "a cat"]
    assert (tmp_path / "texts.txt").read_text().splitlines() == [*three, *three, three[0]]
    assert encoder.vocabulary.to_pylist() == [UNKNOWN, "cat", "the", "a"]
    assert encoder.width == 5


@pytest.mark.slow
def test_every_program_goes_through_all_rows(tmp_path):
    options = parse(
        ["embed", "--rows", "50", "--memory-rows", "20", "--part-rows", "16", "--words", "30", "--width", "6"]
    )
    encoder, logged = write_inputs(options, tmp_path), {}
    starts = {key: partial(start_program, key, options, tmp_path, encoder) for key in ("encode", "floor")}
    programs = measure(starts, 2, logged.update, "rows")
    steps = {key: [round_.steps for round_ in program.rounds] for key, program in programs.items()}
    assert steps == {"encode": [20, 20], "floor": [50, 50]}  # the latter of two processes
    assert all(r.seconds > 0 and r.peak_bytes > 50e6 for program in programs.values() for r in program.rounds)
    assert logged["encode/rows_per_second"] == programs["encode"].rate
    table = pq.read_table(tmp_path / "floor").sort_by("row")
    assert table["row"].to_pylist() == list(range(50))
    vectors = checkpoint.load(encoder).encode((tmp_path / "texts.txt").read_text().splitlines())
    # The floor adds up by PyTorch's embedding_bag, encode by its own loop: the last bit may differ.
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), vectors, rtol=1e-5, atol=1e-7)
