"""Generated sample of any size: pairs in the PPDB line formats, word vectors, sentences and scored test pairs.

The demo and the tests need no download: ``sample_lexicon.py`` and a seed decide everything; equal arguments give equal
bytes (with one version of numpy and zlib). What this gives up: the noise and the long tail of a real paraphrase
collection. A score on the sample shows that a method runs, not how good it is.
"""

import gzip
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from paraembed.io.atomic import write_file
from paraembed.pairs.sample_lexicon import CONCEPTS, PATTERNS, SENTENCES, SHORT_SENTENCE
from paraembed.pairs.sample_pairs import draw_pairs, is_held_out, ppdb_lines

_PPDB_1, _PPDB_2 = "ppdb-1.0-format.gz", "ppdb-2.0-format.gz"
_OURS = {_PPDB_1, _PPDB_2, "pairs.tsv", "vectors.txt.gz", "test-pairs.tsv", "sentences.txt", "shards"}


@dataclass(frozen=True)
class SampleFiles:
    """Paths of the files of ``write_sample``; None for a file that is not written."""

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
        broken: Fraction of lines to spoil (broken, repeated, swapped), to see them rejected; such as 0.001.
        pairs: Lines of pairs.tsv, two sentences a line and no header; 0 for no such file.

    Raises:
        ValueError: a number out of range, or more lines than the lexicon gives.
        FileExistsError: ``out`` is a file or holds other things.
    """
    least = {"lines": (lines, 1), "dimension": (dimension, 1), "seed": (seed, 0), "sentences": (sentences, 0)}
    for name, (value, minimum) in (least | {"test_pairs": (test_pairs, 0), "pairs": (pairs, 0)}).items():
        if value < minimum:
            raise ValueError(f"{name} is {value}; it must be at least {minimum}")
    if not 0 <= broken <= 0.5:
        raise ValueError(f"broken is {broken}; it must be a fraction of the lines from 0 to 0.5, such as 0.001")
    _make_folder(out)
    return SampleFiles(
        ppdb_1=None if ppdb_version == "2.0" else _write(out / _PPDB_1, ppdb_lines("1.0", lines, seed, broken)),
        ppdb_2=None if ppdb_version == "1.0" else _write(out / _PPDB_2, ppdb_lines("2.0", lines, seed, broken)),
        pairs=_write(out / "pairs.tsv", _sentence_pairs(pairs, seed)) if pairs else None,
        vectors=_write(out / "vectors.txt.gz", _vectors(dimension, seed)),
        test_pairs=_write(out / "test-pairs.tsv", _scored_pairs(test_pairs, seed)),
        sentences=_write(out / "sentences.txt", _corpus(sentences, seed)),
    )


def _make_folder(out: Path) -> None:
    """Make the folder; an existing one may hold the sample's files, shards of the next step, and hidden files."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; give a folder")
    out.mkdir(parents=True, exist_ok=True)
    others = sorted(path.name for path in out.iterdir() if path.name not in _OURS and path.name[0] != ".")
    if others:
        raise FileExistsError(f"{out} holds other files ({', '.join(others[:3])}); give a new or empty folder")


def _write(path: Path, blocks: Iterable[str]) -> Path:
    """Write a text file atomically, gzipped if its name ends in .gz."""

    def write(file: BinaryIO) -> None:
        zipped = gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) if path.suffix == ".gz" else None
        with zipped or nullcontext(file) as to:
            to.writelines(block.encode("utf-8", "surrogateescape") for block in blocks)

    write_file(path, write)
    return path


def _corpus(count: int, seed: int) -> Iterator[str]:
    """Yield lines of one sentence; every fourth line has two sentences joined by "and"."""
    for pairs in draw_pairs((SHORT_SENTENCE, *SENTENCES), count, [seed, 5]):
        texts = [pair.first for pair in pairs]
        for place in range(0, len(texts) - 1, 4):
            texts[place] += f", and {pairs[place + 1].second}"
        yield from (f"{text[0].upper()}{text[1:]}.\n" for text in texts)


def _sentence_pairs(count: int, seed: int) -> Iterator[str]:
    """Yield lines of two sentences with the same meaning."""
    for pairs in draw_pairs(SENTENCES, count, [seed, 6]):
        for pair in pairs:
            first, second = (f"{text[0].upper()}{text[1:]}." for text in (pair.first, pair.second))
            yield f"{first}\t{second}\n"


def _vectors(dimension: int, seed: int) -> Iterator[str]:
    """Yield one line per word: a random Gaussian vector of expected length 1, decided by the seed and the word."""
    texts = [word for concept in CONCEPTS for word in concept.words]
    texts += [template for pattern in (*PATTERNS, *SENTENCES) for template in pattern.templates]
    for word in sorted({".", ",", "and"} | {token for text in texts for token in text.split() if token[0] != "{"}):
        number = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        values = np.random.default_rng([seed, number]).standard_normal(dimension) / math.sqrt(dimension)
        yield f"{word} {' '.join(f'{value:.5f}' for value in values.tolist())}\n"


def _scored_pairs(count: int, seed: int) -> Iterator[str]:
    """Yield lines of a score and two sentences, of combinations that are held out from all other files.

    The score, 0 to 5, is exact: the fraction of shared concepts, where the first three slots weigh 2, the others 1.
    30 % are paraphrases. Half of the others echo the wording of the first sentence, so that equal words mislead.
    """
    yield "score\tsentence1\tsentence2\n"
    rng = np.random.default_rng([seed, 4])
    for _ in range(count):
        pattern = SENTENCES[rng.integers(len(SENTENCES))]
        weights_S = np.where(np.arange(len(pattern.slots)) < 3, 2, 1)
        num_changed = 0 if rng.random() < 0.3 else rng.integers(1, len(weights_S) + 1)
        changed_S = rng.permutation(len(weights_S)) < num_changed
        is_echo = num_changed > 0 and rng.random() < 0.5
        meaning_S, other_S = _draw_meanings(rng, pattern.slots, changed_S)
        words = [str(rng.choice(CONCEPTS[concept].words)) for concept in meaning_S]
        other_words = [
            word if is_echo and not changed else str(rng.choice([w for w in CONCEPTS[concept].words if w != word]))
            for word, concept, changed in zip(words, other_S, changed_S, strict=True)
        ]
        ways = rng.permutation(len(pattern.templates))[: 1 if is_echo else 2]
        first, second = pattern.templates[ways[0]].format(*words), pattern.templates[ways[-1]].format(*other_words)
        yield f"{5 * weights_S[~changed_S].sum() / weights_S.sum():.2f}\t{first}\t{second}\n"


def _draw_meanings(
    rng: np.random.Generator, slots: Sequence[str], changed_S: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return two held-out combinations of concepts, int64 [2, S], that differ only in the changed ones."""
    kinds = [[number for number, concept in enumerate(CONCEPTS) if concept.kind == kind] for kind in slots]
    while True:
        tries_2TS = np.stack([rng.choice(kind, (2, 512)) for kind in kinds], axis=-1)
        tries_2TS[1, :, ~changed_S] = tries_2TS[0, :, ~changed_S]
        num_shared_T = (tries_2TS[0, :, :, None] == tries_2TS[1, :, None]).sum(axis=(1, 2))
        fits_2T = is_held_out(tries_2TS[..., :3]) & (tries_2TS[..., 0] != tries_2TS[..., 2])
        fits_T = fits_2T.all(axis=0) & (num_shared_T == (~changed_S).sum())
        if fits_T.any():
            return tries_2TS[:, int(np.argmax(fits_T))]
