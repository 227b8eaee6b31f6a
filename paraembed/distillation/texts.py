"""Texts for the teacher: distinct, without those of the evaluation sets; their units, counts and ids."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.distillation.settings import TeachSettings, reading_settings
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.plan import make_plan
from paraembed.embedding.rows import read_part, stream_parts
from paraembed.io.inflate import read_blocks
from paraembed.io.limits import MOST_LINE_BYTES
from paraembed.io.places import open_regular
from paraembed.io.tables import TableFormat, read_records
from paraembed.pairs.shards import read_pair_manifest
from paraembed.text import WORDPIECE
from paraembed.text.bigrams import TAB, Bigrams
from paraembed.text.hashing import hash_strings
from paraembed.text.ragged import Ragged
from paraembed.text.subword import Subwords, vocabulary_of, without_ends
from paraembed.text.tokenize import tokenize
from paraembed.text.tokens import TokenIds, as_strings
from paraembed.text.vocabulary import UNKNOWN
from paraembed.text.wordpiece import PREFIX, read_vocabulary
from paraembed.training.pairs import GrowingArray

TEXT, COUNT, UNIT = "text", "count", "unit"
VOCABULARY, BIGRAMS, IDS, OFFSETS = "vocabulary.parquet", "bigrams.parquet", "ids.npy", "offsets.npy"
PAIRS = "pairs.parquet"
_PART_ROWS, _GROUP_ROWS = 100_000, 10_000
_BRACKET = r"-[^\pL\pN]*[lr][crs]b[^\pL\pN]*-"
"""Bracket of the Penn Treebank in lower case, such as -lrb-, also after another tokenizer: - lrb -."""
RULE = "letters and digits"
"""Name of the rule of ``keys_of``, for digests; the first rule had spaces between words."""

Hashes = npt.NDArray[np.uint64]


def read_texts(files: tuple[InputFile, ...], columns: Sequence[str]) -> Iterator[pa.StringArray]:
    """Yield the texts of input files, string arrays [n]; the texts of several columns are separate texts. There are no
    columns in .txt files.

    Raises:
        ValueError: a file is damaged, or lacks a column.
    """
    settings = reading_settings(columns)
    plan = make_plan(files, settings)
    for sources, part, data in stream_parts(plan, plan.parts):
        for rows in read_part(sources, part, settings, data):
            yield rows.texts
            for column in rows.carried[1:]:
                yield column.cast(pa.string())


def keys_of(texts: pa.StringArray) -> pa.StringArray:
    """Return texts [n] in a form for comparisons: their letters and digits in lower case, and nothing between them.

    So a tokenizer does not hide a text: "doesn't" and "does n't", "cannot" and "can not", "(a)" and "-LRB- a -RRB-" are
    equal.
    """
    lower = pc.replace_substring_regex(pc.utf8_lower(pc.fill_null(texts, "")), _BRACKET, "")
    return pc.replace_substring_regex(lower, r"[^\pL\pN]+", "")


def left_out(paths: Iterable[Path]) -> Hashes:
    """Return the hashes of the texts in evaluation sets, in the form of ``keys_of``, sorted.

    The files are text files, plain or compressed; each tab-separated cell of a line is a text, and each cell of a .csv.

    Raises:
        OSError, ValueError: a file cannot be read.
    """
    hashes = [np.zeros(0, np.uint64)]
    for path in paths:
        if ".csv" in path.suffixes:
            blocks = read_records(
                read_blocks(path, 1 << 20), "csv", str(path), MOST_LINE_BYTES, TableFormat(0, 1000, True)
            )
            cells = [cell for block in blocks for row in range(len(block)) for cell in block.row(row)]
            cells = [cell.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for cell in cells]
        else:
            text = b"".join(read_blocks(path, 1 << 20)).decode("utf-8", "replace")
            cells = [cell for line in text.splitlines() for cell in line.split("\t")]
        keys = keys_of(pa.array(cells, pa.string()))
        hashes.append(hash_strings(keys.filter(pc.not_equal(keys, ""))))
    return np.unique(np.concatenate(hashes))


def write_texts(
    texts: Iterable[pa.StringArray], evaluation: Hashes, folder: Path, *, part_rows: int = _PART_ROWS
) -> dict[str, int]:
    """Write the distinct texts, in the order of the input, to Parquet files with a column ``text``, without empty texts
    and those of ``left_out``; return the numbers of texts read, kept, left out because an evaluation set has them, and
    repeated.

    Texts are compared by hashes of 64 bits: among 10 million, the probability that two distinct ones are taken for one
    is 3·10⁻⁶.
    """
    counts = Counter(read=0, kept=0, left_out=0, repeated=0)
    seen, waiting, number = np.zeros(0, np.uint64), list[pa.StringArray](), 0

    def write(block: pa.StringArray) -> None:
        name = folder / f"part-{number:05d}.parquet"
        pq.write_table(pa.table({TEXT: block}), name, compression="zstd", row_group_size=_GROUP_ROWS)

    for array in texts:
        block = pc.utf8_trim_whitespace(pc.fill_null(array, ""))
        block = block.filter(pc.not_equal(block, ""))
        counts["read"] += len(block)
        is_kept = ~np.isin(hash_strings(keys_of(block)), evaluation)
        counts["left_out"] += int((~is_kept).sum())
        hashes, firsts = np.unique(hash_strings(block), return_index=True)
        is_new = np.zeros(len(block), bool)
        is_new[firsts[~np.isin(hashes, seen, assume_unique=True)]] = True
        counts["repeated"] += int((is_kept & ~is_new).sum())
        seen = np.union1d(seen, hashes)
        waiting.append(block.filter(pa.array(is_kept & is_new)))
        while sum(map(len, waiting)) >= part_rows:
            whole = pa.concat_arrays(waiting)
            write(whole.slice(0, part_rows))
            waiting, number = [whole.slice(part_rows)], number + 1
    if sum(map(len, waiting)):
        write(pa.concat_arrays(waiting))
        number += 1
    counts["kept"] = counts["read"] - counts["left_out"] - counts["repeated"]
    if not counts["kept"]:
        raise ValueError(f"no text is left of {counts['read']:,}; {counts['left_out']:,} are in evaluation sets")
    return dict(counts)


def written_texts(folder: Path) -> Iterator[pa.StringArray]:
    """Yield the texts of ``write_texts``, in order."""
    for path in sorted(folder.glob("part-*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(_GROUP_ROWS, columns=[TEXT]):
            yield batch[TEXT]


def num_pairs(shards: Path) -> int:
    """Return the number of pairs in a folder of pair shards; the errors are those of ``read_pair_manifest``."""
    return int(read_pair_manifest(shards)["counts"]["kept"])


def without_left_out(table: pa.Table, evaluation: Hashes) -> pa.Table:
    """Return the rows of a table of texts that have no text of ``left_out``."""
    is_left_out = [np.isin(hash_strings(keys_of(column.combine_chunks())), evaluation) for column in table.columns]
    return table.filter(pa.array(~np.any(is_left_out, axis=0)))


def write_pairs(shards: Path, evaluation: Hashes, folder: Path) -> dict[str, int]:
    """Write the pairs of a folder of pair shards to one Parquet file, without those that have a text of ``left_out``;
    return the numbers of pairs read and kept.

    Raises:
        OSError, ValueError: the shards are missing or damaged, or no pair is left.
    """
    counts = Counter(read=0, kept=0)
    schema = pa.schema([("first", pa.string()), ("second", pa.string())])
    with pq.ParquetWriter(folder / PAIRS, schema, compression="zstd") as file:
        for shard in read_pair_manifest(shards)["shards"]:
            for block in pq.ParquetFile(shards / shard["name"]).iter_batches(_PART_ROWS, columns=schema.names):
                table = pa.table(block).cast(schema)
                kept = without_left_out(table, evaluation)
                counts.update(read=len(table), kept=len(kept))
                file.write_table(kept)
    if not counts["kept"]:
        raise ValueError(f"no pair is left of {counts['read']:,}; all have a text of the evaluation sets")
    return dict(counts)


@dataclass(frozen=True)
class Pieces:
    """Pieces of a teacher's tokenizer."""

    tokenizer: str  # ``WORDPIECE``, or a ``SubwordTokenizer``
    vocabulary: pa.StringArray  # string array [V]
    alone: list[str]  # text of each piece, which the teacher embeds
    ids: npt.NDArray[np.int32]  # the teacher's id of each piece, int32 [V]; -1 for a piece without one


def read_pieces(path: Path) -> Pieces:
    """Return the pieces of a ``tokenizer.json``; those of an uncased BERT tokenizer have compiled loops.

    Raises:
        OSError, ValueError: the file cannot be read, or the library ``tokenizers`` is not installed.
    """
    try:
        vocabulary = read_vocabulary(path)
    except ValueError:  # another tokenizer; a damaged file is an error below
        with open_regular(path) as file:
            tokenizer = without_ends(file.read(), str(path))
        vocabulary = vocabulary_of(tokenizer)
        subwords = Subwords(vocabulary, tokenizer)
        return Pieces(tokenizer, vocabulary, subwords.alone(), subwords.ids.astype(np.int32))
    alone = ["" if piece == UNKNOWN else piece.removeprefix(PREFIX) for piece in vocabulary.to_pylist()]
    return Pieces(WORDPIECE, vocabulary, alone, np.arange(len(vocabulary), dtype=np.int32))


def write_units(texts: Path, pieces: Pieces | None, settings: TeachSettings, folder: Path) -> dict[str, Any]:
    """Write the vocabulary with counts, and all texts of ``write_texts`` as ids; return counts for the manifest.

    The units are the pieces of the teacher's tokenizer; without any, the words of the texts. ``vocabulary.parquet`` has
    the columns unit, text (what the teacher embeds) and count; ``ids.npy`` is int32 [T], ``offsets.npy`` int64 [n + 1].
    """
    vocabulary = _frequent_words(texts, settings) if pieces is None else pieces.vocabulary
    to_ids = TokenIds(vocabulary, settings.tokenizer if pieces is None else pieces.tokenizer)
    ids, lengths = GrowingArray(np.int32), GrowingArray(np.int64)
    counts = np.zeros(len(vocabulary), np.int64)
    for block in written_texts(texts):
        ragged = to_ids(block)
        ids.append(ragged.ids)
        lengths.append(ragged.lengths)
        counts += np.bincount(ragged.ids, minlength=len(vocabulary))
    offsets = np.concatenate(([0], np.cumsum(lengths.array)))
    np.save(folder / IDS, ids.array)
    np.save(folder / OFFSETS, offsets)
    words = ("" if unit == UNKNOWN else unit for unit in vocabulary.to_pylist())
    columns = {UNIT: vocabulary, TEXT: list(words) if pieces is None else pieces.alone, COUNT: counts}
    pq.write_table(pa.table(columns), folder / VOCABULARY, compression="zstd", row_group_size=_GROUP_ROWS)
    num_unknown = int(counts[pc.index(vocabulary, UNKNOWN).as_py()])
    return {"units": len(vocabulary), "tokens": int(offsets[-1]), "unknown_tokens": num_unknown}


def write_bigrams(units: Path, min_count: int, folder: Path) -> dict[str, int]:
    """Write the bigrams that occur at least ``min_count`` times in the texts of ``write_units``, and all texts as ids
    with their bigrams; return counts for the manifest.

    ``bigrams.parquet`` has the columns unit and count, the most frequent first; in ``ids.npy`` and ``offsets.npy``, the
    ids of bigrams follow those of units.
    """
    vocabulary = pq.read_table(units / VOCABULARY, columns=[UNIT])[UNIT].combine_chunks().cast(pa.string())
    texts = Ragged(np.load(units / IDS), np.load(units / OFFSETS))
    bigrams, counts = frequent_bigrams(texts, vocabulary, min_count)
    pq.write_table(pa.table({UNIT: bigrams, COUNT: counts}), folder / BIGRAMS, compression="zstd")
    with_bigrams = Bigrams(pa.concat_arrays([vocabulary, bigrams]))(texts)
    np.save(folder / IDS, with_bigrams.ids)
    np.save(folder / OFFSETS, with_bigrams.offsets)
    return {"bigrams": len(bigrams), "in_texts": len(with_bigrams.ids) - len(texts.ids)}


def frequent_bigrams(
    texts: Ragged, vocabulary: pa.StringArray, min_count: int, at_once: int = 1 << 24
) -> tuple[pa.StringArray, npt.NDArray[np.int64]]:
    """Return the bigrams [B] that occur at least ``min_count`` times, the most frequent first, and their counts [B].

    Those with an OOV token, or with a token that contains a tab, are left out. ``at_once`` tokens are counted at a
    time; memory: 16 bytes for each distinct bigram of the texts.
    """
    ids, size = texts.ids, len(vocabulary)
    fits = ~pc.match_substring(vocabulary, TAB).to_numpy(zero_copy_only=False)
    fits[pc.index(vocabulary, UNKNOWN).as_py()] = False
    is_first = np.zeros(len(ids) + 1, bool)
    is_first[texts.offsets[:-1]] = True
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for start in range(0, len(ids) - 1, at_once):
        stop = min(start + at_once, len(ids) - 1)
        first, second = ids[start:stop].astype(np.int64), ids[start + 1 : stop + 1]
        is_counted = ~is_first[start + 1 : stop + 1] & fits[first] & fits[second]
        new, of_new = np.unique((first * size + second)[is_counted], return_counts=True)
        keys, rows = np.unique(np.concatenate([keys, new]), return_inverse=True)
        before, counts = np.concatenate([counts, of_new]), np.zeros(len(keys), np.int64)
        np.add.at(counts, rows, before)
    order = np.flatnonzero(counts >= min_count)
    order = order[np.argsort(-counts[order], kind="stable")]
    first, second = np.divmod(keys[order], size)
    halves = (vocabulary.take(pa.array(side)) for side in (first, second))
    return pc.binary_join_element_wise(*halves, TAB), counts[order]


def _frequent_words(texts: Path, settings: TeachSettings) -> pa.StringArray:
    """Return the words of the texts, the most frequent first; ``UNKNOWN`` is the last."""
    counts = Counter[str]()
    for block in written_texts(texts):
        table = pc.value_counts(tokenize(as_strings(block), settings.tokenizer).flat)
        counts.update(dict(zip(table.field("values").to_pylist(), table.field("counts").to_pylist(), strict=True)))
    words = sorted(
        (word for word in counts if counts[word] >= settings.min_count), key=lambda word: (-counts[word], word)
    )
    words = [word for word in words if "\n" not in word][: settings.max_words]
    if not words:
        raise ValueError(
            f"no word occurs `min_count` = {settings.min_count} times; give more texts, or a smaller value"
        )
    return pa.array([*words, UNKNOWN], pa.string())
