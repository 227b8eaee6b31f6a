"""Untrained baselines: averages of weighted word vectors, and word overlap.

``avg``: weight 1. ``sif``: a / (a + p(w)) (Arora et al. 2017). ``sif-common``: like sif, without the first common
components. ``inverse-frequency``: 1 / p(w) (Wieting 2016 §6), where <unk> represents all counted words that have no
vector. ``l1``: |v|₁ of the word's trained vector v (Wieting 2016 §6).

These baselines are ordinary encoders. The weights are multiplied into the word matrix of an ``avg``; the common
components are removed by the linear map I - UUᵀ of a ``proj``. The components are fitted once, on a corpus that the
user names, and are then part of the encoder. A vector thus depends on its text alone, whereas the original code fits
the components on the texts that are being scored.

Word overlap scores pairs without vectors: the fraction of the shorter phrase's words that are in the longer one
(Wieting 2015 §6.4).
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed import checkpoint, encoders
from paraembed.console import doing
from paraembed.encoders.configs import AvgConfig, ProjConfig
from paraembed.encoders.protocol import BATCH_SIZE
from paraembed.evaluation.candidates import Candidate, PairScorer
from paraembed.io.fingerprint import sha256_of
from paraembed.io.lines import read_lines
from paraembed.late import Late
from paraembed.pairs.filters import share_of_shorter
from paraembed.settings import MADE_OF, MAX_BAD_WORDS, SMOOTHING
from paraembed.text.tokenize import Tokens, tokenize
from paraembed.text.vocabulary import LOW_COVERAGE, Words, read_words, unknown_row, word_ids

if TYPE_CHECKING:
    import torch

    from paraembed.encoders import Encoder
else:
    torch = Late("torch")

log = logging.getLogger(__name__)

BASELINES = ("avg", *MADE_OF)

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sources:
    """Inputs of the baselines."""

    words: Path
    counts: Path | None = None  # file of word counts, for p(w): ``word count`` or ``count word`` on each line
    corpus: Path | None = None  # text file, one text per line, on which the common components are fitted
    trained: Path | None = None  # encoder folder whose word vectors give the weights of ``l1``
    max_words: int | None = None  # number of rows of the word-vector file to use; None: all
    tokenizer: str = "ptb-v1"
    smoothing: float = SMOOTHING  # a
    removed: int = 1  # number of common components to remove
    max_bad_words: float = MAX_BAD_WORDS  # maximum fraction of rows of the word-vector file that are skipped

    def __post_init__(self) -> None:
        if not 0 < self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}; it must be above 0 and below 1, such as {SMOOTHING}")
        if self.removed < 1:
            raise ValueError(f"removed is {self.removed}; at least 1 component must be removed")


def baseline(name: str, sources: Sources, words: Words | None = None) -> Candidate:
    """Return one of ``BASELINES`` as a candidate; its encoder's provenance has the settings and the digests of the
    input files. ``words`` is the content of ``sources.words``, if it has been read already.

    Raise OSError or ValueError if the name is unknown, or a required file is not given or cannot be read.
    """
    if name not in BASELINES:
        raise ValueError(f"unknown baseline {name!r}; allowed: {', '.join(BASELINES)}")
    files = {what: getattr(sources, what) for what in MADE_OF.get(name, ())}
    missing = [f"`{what}`" for what, path in files.items() if path is None]
    if missing:
        raise ValueError(f"the baseline {name} needs more files than word vectors; set {' and '.join(missing)}")
    if words is None:
        words = read_words(sources.words, sources.max_words, sources.max_bad_words)
    doing(f"weighting the words: {name}")
    weights, how = _weights(name, sources, words.vocabulary)
    scaled = Words(words.vocabulary, (words.matrix * weights[:, None]).astype(np.float32))
    encoder = encoders.Encoder(AvgConfig(), scaled, sources.tokenizer).requires_grad_(False).eval()
    of = f"average of {len(words.vocabulary):,} word vectors from {sources.words.name}{how}"
    if name == "sif-common":
        assert sources.corpus is not None
        encoder, share = without_common(encoder, _batches(sources.corpus), sources.removed)
        components = "its first common component" + (f"s ({sources.removed})" if sources.removed > 1 else "")
        of += f", less {components}, {share:.0%} of the squared length of the texts of {sources.corpus.name}"
    digests = {
        what: sha256_of(path) if what != "trained" else checkpoint.read_config(path)["fingerprint"]
        for what, path in {"words": sources.words, **files}.items()
    }
    settings = {"smoothing": sources.smoothing, "removed": sources.removed, "max_words": sources.max_words}
    encoder.provenance = {"baseline": name, **settings, **digests}
    return Candidate(name, of, encoder, is_baseline=True)


def _weights(name: str, sources: Sources, vocabulary: pa.StringArray) -> tuple[Weights, str]:
    """Return weights [V], and a description of their source."""
    if name == "avg":
        return np.ones(len(vocabulary)), ", untrained"
    if name == "l1":
        assert sources.trained is not None
        trained = checkpoint.load(sources.trained)
        norms = trained.matrix.detach().abs().sum(dim=1, dtype=torch.float64).numpy()
        # A word without a trained vector gets the value of <unk>.
        return norms[word_ids(vocabulary, trained.vocabulary)], f", weighted by |v|₁ of {sources.trained.name}"
    assert sources.counts is not None
    counts, total = read_counts(sources.counts, vocabulary)
    if counts.sum() < LOW_COVERAGE * total:
        log.warning(
            "%s has a vector for only %.1f%% of the counts in %s; check that both use the same language and tokenizer",
            *(sources.words.name, 100 * counts.sum() / total, sources.counts.name),
        )
    of = f"with p(w) from {sources.counts.name}"
    if name != "inverse-frequency":
        how = f", weighted by a / (a + p(w)), a = {sources.smoothing:g}, {of}"
        return sources.smoothing / (sources.smoothing + counts / total), how
    unknown, rest = unknown_row(vocabulary), 1 - counts.sum() / total
    uncounted = len(counts) - np.count_nonzero(counts) - (not counts[unknown])
    how = f"; counted words without a vector, {rest:.1%} of the counts, are one; {uncounted:,} words count 1"
    # As in the paper, a word without a count has count 1. The count of <unk> is the sum of all words without a vector:
    # with count 1 its vector would dominate texts with many OOV words, and the STS mean is 8 instead of 48 if 28 % of
    # the tokens are OOV.
    counts[unknown] += total - counts.sum()
    return total / np.maximum(counts, 1), f", weighted by 1 / p(w) {of}{how}"


def without_common(encoder: "Encoder", batches: Iterable[pa.StringArray], removed: int) -> "tuple[Encoder, float]":
    """Return an ``avg`` without the components that its vectors of some texts share, and their share of the squared
    length. The texts come in batches, of which one at a time is in memory.

    The result is the ``proj`` (I - UUᵀ)·g(x), where U [D, removed] holds the first right singular vectors of the
    uncentered matrix of all vectors (Arora et al. 2017, algorithm 1). Raise ValueError if no text has a vector, or no
    dimension would be left.
    """
    width = encoder.width
    if removed >= width:
        raise ValueError(f"removed is {removed}, but vectors have only {width} dimensions; allowed: 1 to {width - 1}")
    moments_DD, num_texts = np.zeros((width, width)), 0
    for texts in batches:
        doing(f"fitting sif-common: text {num_texts:,}")
        vectors_ND = encoder.embed(texts).vectors.astype(np.float64)
        moments_DD += vectors_ND.T @ vectors_ND
        num_texts += len(texts)
    powers, axes_DD = np.linalg.eigh(moments_DD)  # ascending
    if not powers[-1] > 0:
        raise ValueError(
            "no text of the corpus has a non-zero vector; give a corpus in the language of the word vectors"
        )
    common_DU = axes_DD[:, -removed:]
    words = Words(encoder.vocabulary, encoder.matrix.detach().numpy())
    projected = encoders.Encoder(ProjConfig(), words, encoder.tokenizer).requires_grad_(False).eval()
    weight, bias = projected.composition.get_parameter("weight"), projected.composition.get_parameter("bias")
    weight.copy_(torch.from_numpy(np.eye(width) - common_DU @ common_DU.T))
    bias.zero_()
    return projected, float(powers[-removed:].sum() / powers.sum())


def _batches(path: Path) -> Iterator[pa.StringArray]:
    """Yield the texts of a file, ``BATCH_SIZE`` at a time, so that sums do not depend on the blocks of the reader."""
    texts = pa.chunked_array([], pa.large_string())  # 64-bit: the texts of a batch may have 2 GiB or more
    for lines in read_lines(path):
        texts = pa.chunked_array([*texts.chunks, lines.text.fill_null("").cast(pa.large_string())])
        while len(texts) >= BATCH_SIZE:
            yield texts.slice(0, BATCH_SIZE).combine_chunks()
            texts = texts.slice(BATCH_SIZE)
    if len(texts):
        yield texts.combine_chunks()


def read_counts(path: Path, vocabulary: pa.StringArray) -> tuple[Weights, float]:
    """Return the counts of a vocabulary's words [V], 0 for words that are not in the file, and the sum of all counts.

    Each line is ``word count`` or ``count word``, whichever fits the whole file; words are lower-cased, and the counts
    of words that become equal are added. Raise ValueError if a line cannot be read.
    """
    left, right = [], []
    for lines in read_lines(path):
        cells = pc.split_pattern_regex(pc.utf8_trim_whitespace(lines.text.fill_null("")), r"\s+")
        fits = pc.equal(pc.list_value_length(cells), 2).to_numpy(zero_copy_only=False)
        if not fits.all():
            row = int(np.argmin(fits))
            raise ValueError(
                f"{path}, line {lines.first + row + 1}: {str(lines.text[row])[:60]!r}; expected 'word count'"
            )
        left.append(pc.list_element(cells, 0))
        right.append(pc.list_element(cells, 1))
    tokens, numbers = pa.chunked_array(left), pa.chunked_array(right)
    if not _all_counts(numbers):
        tokens, numbers = numbers, tokens
    if not _all_counts(numbers):
        raise ValueError(
            f"{path}: neither its first nor its second column contains only whole numbers; expected 'word count'"
        )
    counts = numbers.cast(pa.float64()).to_numpy()
    rows = pc.index_in(pc.utf8_lower(tokens), value_set=vocabulary)
    known = rows.is_valid().to_numpy()
    totals = np.zeros(len(vocabulary))
    np.add.at(totals, rows.drop_null().to_numpy(), counts[known])
    if not counts.sum():
        raise ValueError(f"{path}: all counts are 0; expected 'word count'")
    return totals, float(counts.sum())


def _all_counts(cells: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.match_substring_regex(cells, "^[0-9]{1,18}$")).as_py())


class WordOverlap(PairScorer):
    """Scorer of pairs by their shared words or their shared English lemmas.

    The shorter phrase is the one with fewer words; for phrases of equal length, the higher of both fractions is used,
    so that the order of a pair does not matter. A phrase without words has overlap 0.
    """

    def __init__(self, *, lemmatized: bool) -> None:
        self.lemmatized = lemmatized

    def similarity(self, first: pa.StringArray, second: pa.StringArray) -> Weights:
        """Return the overlap of each text [n] with its counterpart, float64 [n], 0 to 1."""
        sides = [self._words(texts) for texts in (first, second)]
        shared = [list(map(_num_shared, *order)) for order in (sides, sides[::-1])]
        return share_of_shorter(np.array(shared), np.array([list(map(len, side)) for side in sides]))

    def _words(self, texts: pa.StringArray) -> list[list[str]]:
        words = token_lists(tokenize(texts, "ptb-v1"))
        if not self.lemmatized:
            return words
        from simplemma import lemmatize  # noqa: PLC0415 - a second to import

        lemmas = {word: lemmatize(word, lang="en").lower() for word in {*chain.from_iterable(words)}}
        return [[lemmas[word] for word in of_text] for of_text in words]


def overlap_candidates() -> list[Candidate]:
    """Return two candidates: strict word overlap and lemmatized word overlap."""
    described = "share of the words of the shorter text that are in the longer"
    return [
        Candidate("overlap", described, WordOverlap(lemmatized=False), is_baseline=True),
        Candidate("lemma overlap", f"{described}, lemmatized", WordOverlap(lemmatized=True), is_baseline=True),
    ]


def token_lists(tokens: Tokens) -> list[list[str]]:
    """Return the tokens of each text."""
    flat: list[str] = tokens.flat.to_pylist()
    return [flat[start:stop] for start, stop in pairwise(tokens.offsets.tolist())]


def _num_shared(words: list[str], others: list[str]) -> int:
    known = set(others)
    return sum(word in known for word in words)
