import gzip

import numpy as np
import psutil
import pytest

from paraembed.recipe import Recipe
from paraembed.training.inputs import Memory, available_memory, check_memory, estimate


def vectors(path, rows, width, header=False):
    values = np.random.default_rng(0).standard_normal((rows, width)).round(4).astype(str)
    text = "".join(f"word{number} {' '.join(row)}\n" for number, row in enumerate(values))
    text = f"{rows} {width}\n{text}" if header else text
    path.write_bytes(gzip.compress(text.encode(), 1) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(("name", "rows"), [("v.txt", 40_000), ("v.txt.gz", 40_000), ("v.txt", 70), ("v.txt.gz", 70)])
def test_rows_are_estimated_from_the_beginning_of_a_file(tmp_path, name, rows):
    memory = estimate(vectors(tmp_path / name, rows, 25, header=True), Recipe(), 0, 0, 1)
    assert memory.width == 25
    assert memory.num_words == pytest.approx(rows, rel=0.1)
    assert memory.words >= 4 * memory.num_words * 25


@pytest.mark.parametrize(
    ("recipe", "matrices"),
    [
        (Recipe(), 2),
        (Recipe(optimizer="adagrad", word_l2=0.1), 2),
        (Recipe(optimizer="sgd"), 0),
        (Recipe(update="dense"), 6),
        (Recipe(update="dense", train_words=False), 0),
    ],
)
def test_copies_are_those_of_the_recipe(tmp_path, recipe, matrices):
    memory = estimate(vectors(tmp_path / "v.txt", 100, 10), recipe, 50, 10, 3)
    assert memory.copies == matrices * 4 * 100 * 10
    assert memory.pairs == 4 * 50 + 16 * 10
    assert estimate(tmp_path / "v.txt", Recipe(max_words=7), 50, 10, 1, most_pair_bytes=99).num_words == 7


def test_what_workers_share_counts_once_and_the_best_encoder_too(tmp_path):
    path, gib = vectors(tmp_path / "v.txt", 100, 10), 2**30
    more = [estimate(path, Recipe(), 50, 10, 8, keeps_best=best).needed for best in (False, True)]
    assert more[1] - more[0] == 4 * 100 * 10
    each, shared = (Memory(10**6, 300, 2 * gib, 6 * gib, 0, 8, are_shared) for are_shared in (False, True))
    processes = each.needed - 8 * 8 * gib
    assert shared.needed == 8 * 4 * gib + processes  # all of them read the words; then there is one matrix with copies
    alike, few = (Memory(10**6, 300, 2 * gib, 6 * gib, 0, 2, are_shared) for are_shared in (False, True))
    assert alike.needed - few.needed == 4 * gib


def test_files_that_are_no_vectors_are_left_to_their_reader(tmp_path):
    for number, data in enumerate([b"", b"\x00\xff", b"\x1f\x8bbroken", gzip.compress(b"a 1\n")[:12]]):
        (tmp_path / f"{number}.gz").write_bytes(data)
        (tmp_path / f"{number}.txt").write_bytes(data)
        for suffix in ("gz", "txt"):
            memory = estimate(tmp_path / f"{number}.{suffix}", Recipe(), 0, 0, 1)
            check_memory(memory, 2**40)
            assert memory.words <= 2**20  # nothing much is made of a few bytes


def test_what_does_not_fit_is_said_in_numbers():
    memory = Memory(num_words=10**6, width=300, words=2**30, copies=3 * 2**30, pairs=2**29, workers=2)
    check_memory(memory, memory.needed)
    with pytest.raises(
        ValueError, match=r"needs about 10\.2 GiB of memory, and 8\.0 GiB are available: 1,000,000 words .* 2 workers"
    ):
        check_memory(memory, 2**33)
    assert 0 < available_memory() <= psutil.virtual_memory().total
