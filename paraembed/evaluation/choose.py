"""1-of-k choice: find the paraphrase of a phrase among k candidates (Zhou 2017 §3.1, there "100-choose-1")."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.sets import Choices, Group, Suite
from paraembed.io.fingerprint import sha256_of
from paraembed.pairs.blocks import Block
from paraembed.pairs.formats import read_pairs
from paraembed.pairs.shards import read_pair_manifest

SEED = 0


def read_choose(held_out: Path, options: int = 100) -> Suite:
    """Return a suite ``choose`` of held-out pairs: find the second text of each among ``options`` - 1 contrast phrases.

    Contrast phrases are drawn uniformly and independently from the distinct texts of the pairs except the two of the
    pair. If there are few texts, a question may contain the same one twice. ``held_out`` is a folder of pair shards, or
    a pair file of any format that jobs/shard.py reads. Raise FileNotFoundError or ValueError if the pairs do not exist,
    k (``options``) is below 2, or there are too few distinct texts.
    """
    if options < 2:
        raise ValueError(f"`choices` is {options}; it must be at least 2: the paraphrase and one contrast phrase")
    first, second, num_left_out = _held_out_pairs(held_out)
    texts = pc.unique(pa.chunked_array([first, second], pa.string()))
    if len(texts) < options + 1:
        raise ValueError(
            f"{held_out} has {len(texts)} distinct texts, but {options} choices need {options + 1}; give more "
            "held-out pairs or fewer `choices`"
        )
    first_ids, other = (pc.index_in(side, value_set=texts).to_numpy().astype(np.int32) for side in (first, second))
    generator = np.random.default_rng([SEED, options])
    contrast = generator.integers(0, len(texts) - 2, (len(first_ids), options - 1), np.int32)
    for taken in np.sort([first_ids, other], axis=0):  # the lower first: the numbers go round both
        contrast += contrast >= taken[:, None]
    questions = Choices(
        str(options),
        texts,
        np.repeat(first_ids[:, None], options, axis=1),
        np.concatenate([other[:, None], contrast], axis=1),
    )
    left_out = f"choose: {num_left_out:,} rows of {held_out.name} are no pairs of different texts and were left out"
    notes = (left_out,) if num_left_out else ()
    return Suite("choose", (Group("", (questions,)),), measure="accuracy", notes=notes)


def is_trained_on(held_out: Path, digest: str) -> bool:
    """Return whether these are the pair shards of a training, by the sha256 of their manifest."""
    return held_out.is_dir() and bool(digest) and sha256_of(held_out / "manifest.json") == digest


def check_held_out(held_out: Path | None, candidates: Sequence[Candidate]) -> None:
    """Raise ValueError if the held-out pairs are the training pairs of a candidate."""
    for candidate in candidates:
        if held_out and is_trained_on(held_out, candidate.trained_on):
            raise ValueError(
                f"`held_out` {held_out} contains the training pairs of {candidate.label}; give pairs that it was not "
                "trained on (`margin_pairs` accepts any pairs)"
            )


def _blocks(path: Path) -> Iterator[Block]:
    """Yield the pairs of a file; if it can only be read with a flag of jobs/shard.py, the error says so."""
    try:
        yield from read_pairs(path)
    except ValueError as error:
        if " `" not in str(error):
            raise
        raise ValueError(
            f"{error}; these are options of jobs/shard.py: shard the pairs, and give `held_out` the shards"
        ) from None


def _held_out_pairs(path: Path) -> tuple[pa.StringArray, pa.StringArray, int]:
    """Return first texts, second texts, and the number of rows left out: no pairs, or pairs of equal texts."""
    tables = []
    num_refused = 0
    if path.is_dir():
        names = [shard["name"] for shard in read_pair_manifest(path, for_training=False)["shards"]]
        tables += [pq.read_table(path / name, columns=["first", "second"]) for name in names]
    else:
        for block in _blocks(path):
            kept = pc.is_null(block.pairs.refused)
            num_refused += kept.false_count
            columns = {"first": block.pairs.first.filter(kept), "second": block.pairs.second.filter(kept)}
            tables.append(pa.table(columns))
    table = pa.concat_tables(tables) if tables else pa.table({"first": [], "second": []})
    first, second = (table[name].cast(pa.string()).combine_chunks() for name in ("first", "second"))
    different = pc.not_equal(first, second)
    if not different.true_count:
        raise ValueError(f"{path} has no pairs of different texts; give other held-out pairs")
    return first.filter(different), second.filter(different), num_refused + different.false_count
