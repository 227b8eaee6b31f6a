"""A generated sample of any size: pairs in the PPDB line formats, word vectors, sentences and scored test pairs.

Everything follows from ``lexicon.py`` and a seed, so the demo and the tests need no download; equal arguments give
equal bytes (with one version of numpy and zlib). Given up: the noise and the long tail of a real paraphrase collection;
what is learned here says that a method runs, not how good it is.
"""

import gzip
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

from paraembed.data.sample.ppdb_format import ppdb_lines
from paraembed.data.sample.scored import scored_pairs
from paraembed.data.sample.sentences import corpus, sentence_pairs
from paraembed.data.sample.vectors import vector_lines
from paraembed.files import write_file

__all__ = ["SampleFiles", "write_sample"]


@dataclass(frozen=True)
class SampleFiles:
    """Where ``write_sample`` put its files; None for one that was not asked for."""

    ppdb_1: Path | None
    ppdb_2: Path | None
    pairs: Path | None
    vectors: Path
    test_pairs: Path
    sentences: Path


def write_sample(
    out: Path,
    *,
    lines: int = 100_000,
    seed: int = 1,
    dimension: int = 100,
    sentences: int = 20_000,
    test_pairs: int = 1_000,
    ppdb_version: Literal["1.0", "2.0", "both"] = "both",
    broken: float = 0.0,
    pairs: int = 0,
) -> SampleFiles:
    """Write a generated sample: pairs in the PPDB line formats, word vectors, sentences and scored test pairs.

    Args:
        out: Folder for the files; new, empty or with an earlier sample, which is replaced file by file.
        lines: Lines of each PPDB-format file. Both hold the same pairs, ordered by falling score.
        seed: Equal settings give equal bytes.
        dimension: Length of the word vectors.
        sentences: Lines of sentences.txt.
        test_pairs: Rows of test-pairs.tsv, besides the header.
        ppdb_version: Which line formats to write.
        broken: Share of lines to spoil (broken, repeated, swapped), to see the refusal counts; such as 0.001.
        pairs: Lines of pairs.tsv, two sentences a line and no header; 0 for no such file.

    Returns:
        The paths.

    Raises:
        ValueError: a number out of range, or more lines than the lexicon gives.
        FileExistsError: ``out`` is a file or holds other things.
    """
    least = {"lines": (lines, 1), "dimension": (dimension, 1), "seed": (seed, 0), "sentences": (sentences, 0)}
    for name, (value, minimum) in (least | {"test_pairs": (test_pairs, 0), "pairs": (pairs, 0)}).items():
        if value < minimum:
            raise ValueError(f"{name}={value}: it must be at least {minimum}")
    if not 0 <= broken <= 0.5:
        raise ValueError(f"broken={broken}: it is a share of the lines, from 0 to 0.5, such as 0.001")
    every = SampleFiles(
        ppdb_1=out / "ppdb-1.0-format.gz",
        ppdb_2=out / "ppdb-2.0-format.gz",
        pairs=out / "pairs.tsv",
        vectors=out / "vectors.txt.gz",
        test_pairs=out / "test-pairs.tsv",
        sentences=out / "sentences.txt",
    )
    _make_folder(out, every)
    files = replace(
        every,
        ppdb_1=every.ppdb_1 if ppdb_version != "2.0" else None,
        ppdb_2=every.ppdb_2 if ppdb_version != "1.0" else None,
        pairs=every.pairs if pairs else None,
    )
    for path, version in ((files.ppdb_1, "1.0"), (files.ppdb_2, "2.0")):
        if path:
            _write(path, ppdb_lines(version, lines, seed, broken))
    if files.pairs:
        _write(files.pairs, sentence_pairs(pairs, seed))
    _write(files.vectors, ["".join(vector_lines(dimension, seed))])
    _write(files.test_pairs, ["".join(scored_pairs(test_pairs, seed))])
    _write(files.sentences, corpus(sentences, seed))
    return files


def _make_folder(out: Path, files: SampleFiles) -> None:
    """Make the folder; in one that exists, allow the sample's files, the shards that the next step puts there, .*."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; give a folder")
    out.mkdir(parents=True, exist_ok=True)
    expected = {*vars(files).values(), out / "shards"}
    others = sorted(path.name for path in out.iterdir() if path not in expected and path.name[0] != ".")
    if others:
        named = ", ".join(others[:3]) + (", …" if others[3:] else "")
        raise FileExistsError(f"{out} holds other things ({named}); give a new or empty folder")


def _write(path: Path, blocks: Iterable[str]) -> None:
    """Write a text file, gzipped if its name ends so, whole or not at all."""

    def write(file: BinaryIO) -> None:
        # zlib lets go of the interpreter lock: a thread compresses one block while the next is made.
        zipped = gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) if path.suffix == ".gz" else None
        with zipped or nullcontext(file) as to, ThreadPoolExecutor(max_workers=1) as writer:
            writing = writer.submit(to.write, b"")
            for encoded in (block.encode("utf-8", "surrogateescape") for block in blocks):
                writing.result()
                writing = writer.submit(to.write, encoded)
            writing.result()

    write_file(path, write)
