"""What the benchmark of embedding embeds: sentences and an encoder, as files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed import checkpoint
from paraembed.benchmarks.generated import draw_texts, draw_words, word_chances
from paraembed.checked import check_fields
from paraembed.embedding.settings import Settings
from paraembed.encoders import Encoder
from paraembed.encoders.avg import AvgConfig
from paraembed.encoders.base import MAX_WIDTH
from paraembed.files import read_blocks
from paraembed.text import Tokens, tokenise
from paraembed.words import UNKNOWN, Words

TOKENISER = "ptb-v1"
_MEAN_TOKENS = 19.0  # of the sentences of Project Gutenberg and the Brown corpus
_MOST_GENERATED = 200_000  # sentences; more rows begin again
_COUNTED_BYTES = 32 << 20  # of text that the vocabulary comes from
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class EmbedWorkload:
    """What is embedded.

    Attributes:
        rows: Sentences that are embedded end to end; where there are fewer, they begin again.
        memory_rows: Sentences of a call of encode.
        small_rows: Sentences of the small input: for memory, for what a part costs, and for the stages.
        large_rows: Sentences of the large input, for memory.
        part_rows: Rows an output file.
        small_part_rows: Rows an output file, where there are many.
        workers: Processes, or threads where there is one process.
        words: Rows of the word matrix of the encoder that is made where none is given.
        width: Of its word vectors.
        few_files: Input files of the smaller of two runs that show whether the start is linear in them.
        many_files: Input files of the larger.
        few_groups: Row groups of the smaller of two Parquet inputs that show whether a part costs the same in both.
        many_groups: Row groups of the larger.
        seed: Decides its vectors, and generated sentences.
        rounds: Times each program has its turn; the median counts.
    """

    rows: int = 776_000
    memory_rows: int = 100_000
    small_rows: int = 200_000
    large_rows: int = 2_000_000
    part_rows: int = Settings().part_rows
    small_part_rows: int = 1000
    workers: int = 2
    words: int = 40_000
    width: int = 300
    few_files: int = 2000
    many_files: int = 20_000
    few_groups: int = 1000
    many_groups: int = 100_000
    seed: int = 1
    rounds: int = 3

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        counts = ("rows", "memory_rows", "small_rows", "large_rows", "part_rows", "small_part_rows")
        ranges: dict[str, tuple[float, float]] = dict.fromkeys(counts, (1, 1_000_000_000))
        ranges |= {
            "workers": (1, 1024),
            "words": (2, 100_000_000),
            "width": (1, MAX_WIDTH),
            **dict.fromkeys(("few_files", "many_files"), (1, 10_000_000)),
            **dict.fromkeys(("few_groups", "many_groups"), (8, 1_000_000)),
            "seed": (0, 2**31),
            "rounds": (1, 1000),
        }
        check_fields(self, ranges)
        if self.small_part_rows >= min(self.part_rows, self.small_rows):
            raise ValueError(
                f"small_part_rows is {self.small_part_rows}; it must be below part_rows and small_rows, "
                f"{self.part_rows} and {self.small_rows}"
            )


@dataclass(frozen=True)
class Inputs:
    """Files of a workload.

    Attributes:
        encoder: folder.
        texts: of ``rows`` sentences, one a line.
        small: of ``small_rows``.
        large: of ``large_rows``.
    """

    encoder: Path
    texts: Path
    small: Path
    large: Path


def write_inputs(work: EmbedWorkload, encoder: Path | None, texts: Sequence[Path], folder: Path) -> Inputs:
    """Write what the programs read.

    Args:
        work: sizes.
        encoder: folder; None: one is made, ``avg`` on the most frequent words of the sentences, its vectors random.
        texts: files of sentences, one a line, plain or compressed; none: sentences are generated.
        folder: for the files.

    Raises:
        OSError, ValueError: a file will not do.
    """
    data = b"".join(map(_read, texts)) if texts else _generated(work)
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    if not len(ends):
        raise ValueError(f"--texts {' '.join(map(str, texts))}: there are no lines; give files with a sentence a line")
    made = Inputs(encoder or folder / "encoder", folder / "texts.txt", folder / "small.txt", folder / "large.txt")
    for path, rows in ((made.texts, work.rows), (made.small, work.small_rows), (made.large, work.large_rows)):
        _write_rows(data, ends, rows, path)
    if encoder is None:
        some = data[: ends[np.searchsorted(ends, min(_COUNTED_BYTES, len(data)))]]
        words = _frequent_words(some, work)
        made_encoder = Encoder(AvgConfig(), words, TOKENISER, work.seed)
        checkpoint.save(made_encoder, made.encoder, recipe={}, provenance={"made by": "bench.py embed"}, model_card="")
    else:
        checkpoint.load(encoder)  # so that a folder that will not do is told of now
    return made


def read_texts(path: Path, rows: int) -> pa.StringArray:
    """The first lines of a file that ``write_inputs`` wrote, string array [rows]; all where it has fewer."""
    lines = path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]
    return pa.array(lines[:rows], pa.string())


def _read(path: Path) -> bytes:
    data = b"".join(read_blocks(path, _BLOCK_BYTES))
    return data if not data or data.endswith(b"\n") else data + b"\n"


def _generated(work: EmbedWorkload) -> bytes:
    num_texts = min(_MOST_GENERATED, max(work.rows, work.small_rows, work.large_rows))
    drawn = draw_texts(num_texts, _MEAN_TOKENS, word_chances(work.words), work.seed)
    vocabulary = draw_words(work.words, 1, work.seed).vocabulary
    texts = Tokens(vocabulary.take(pa.array(drawn.ids)), drawn.offsets).joined()
    return "".join(f"{text}\n" for text in texts.to_pylist()).encode()


def _write_rows(data: bytes, ends: npt.NDArray[np.int64], rows: int, path: Path) -> None:
    """So many lines, from the first again after the last."""
    with path.open("wb") as file:
        for _ in range(rows // len(ends)):
            file.write(data)
        if rest := rows % len(ends):
            file.write(data[: ends[rest - 1]])


def _frequent_words(data: bytes, work: EmbedWorkload) -> Words:
    """The unknown word and the most frequent others, with random vectors; ties in the order of the words."""
    lines = pa.array(data.decode("utf-8", "replace").split("\n"), pa.string())
    counted = pc.value_counts(tokenise(lines, TOKENISER).flat).flatten()
    table = pa.table({"word": counted[0], "count": counted[1]})
    table = table.sort_by([("count", "descending"), ("word", "ascending")])
    frequent = table["word"].slice(0, work.words - 1).combine_chunks()
    vocabulary = pa.concat_arrays([pa.array([UNKNOWN]), frequent.cast(pa.string())])
    return Words(vocabulary, draw_words(len(vocabulary), work.width, work.seed).matrix)
