"""Generate a sample of any size: pairs in the PPDB line formats, word vectors, sentences and scored test pairs.

The demo and the tests therefore need no download. ``sample_lexicon.tsv`` and a seed decide everything: equal arguments
give equal bytes (with the same version of numpy and zlib). A limitation: the sample lacks the noise and the long tail
of a real paraphrase collection. A score on the sample shows that a method runs, not how good it is.

Each pair of a pattern is a number. Its digits select the concept and the two words of each slot, and the two templates.
The numbers are visited in the order of a keyed permutation, so no number repeats and none needs to be stored.
"""

import gzip
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from paraembed.io.atomic import write_file
from paraembed.io.resume import check_destination
from paraembed.pairs.sample_lexicon import CONCEPTS, PATTERNS, SENTENCES, SHORT_SENTENCE, Pattern
from paraembed.pairs.sample_suites import NOTE, suite_files
from paraembed.text.hashing import mixed

_PPDB_1, _PPDB_2 = "ppdb-1.0-format.gz", "ppdb-2.0-format.gz"
_OURS = {_PPDB_1, _PPDB_2, "pairs.tsv", "vectors.txt.gz", "test-pairs.tsv", "sentences.txt", "shards", "suites"}


@dataclass(frozen=True)
class SampleFiles:
    """Paths of the files of a sample; None for a file that was not requested."""

    ppdb_1: Path | None
    ppdb_2: Path | None
    pairs: Path | None
    vectors: Path
    test_pairs: Path
    sentences: Path
    suites: Path | None  # a folder


@dataclass(frozen=True)
class Sample:
    """Write a generated sample: pairs in the PPDB line formats, word vectors, sentences and scored test pairs."""

    out: Path
    """Output folder: new, empty or with an earlier sample, whose files are replaced."""
    lines: int = 100_000
    """Lines of each file in a PPDB format; all hold the same pairs, by descending score."""
    seed: int = 1
    """Random seed; equal settings give equal bytes."""
    dimension: int = 100
    """Length of the word vectors."""
    sentences: int = 20_000
    """Lines of sentences.txt."""
    test_pairs: int = 1_000
    """Rows of test-pairs.tsv, without its header."""
    ppdb_version: Literal["1.0", "2.0", "both"] = "both"
    """PPDB line formats to write."""
    pairs: int = 0
    """Lines of pairs.tsv, two sentences per line, no header; 0: do not write the file."""
    suites: bool = False
    """Also write a folder ``suites`` with generated examples in the file layout of every evaluation suite and labeled
    task; they are not the published data sets.
    """

    def __post_init__(self) -> None:
        """Raise ValueError if a number is out of range."""
        least = {"lines": 1, "dimension": 1, "seed": 0, "sentences": 0, "test_pairs": 0, "pairs": 0}
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"`{name}` is {getattr(self, name)}; it must be at least {minimum}")


def write_sample(out: Path, **settings: Any) -> SampleFiles:
    """Write a sample with the settings of ``Sample``; return the paths of its files.

    Raises:
        ValueError: a number is out of range, or the lexicon has too few pairs for the lines.
        FileExistsError: ``out`` is a file or holds other files.
    """
    sample = Sample(out, **settings)
    _make_folder(out)
    lines, seed, version = sample.lines, sample.seed, sample.ppdb_version
    return SampleFiles(
        ppdb_1=None if version == "2.0" else _write(out / _PPDB_1, ppdb_lines("1.0", lines, seed)),
        ppdb_2=None if version == "1.0" else _write(out / _PPDB_2, ppdb_lines("2.0", lines, seed)),
        pairs=_write(out / "pairs.tsv", _sentence_pairs(sample.pairs, seed)) if sample.pairs else None,
        vectors=_write(out / "vectors.txt.gz", _vectors(sample.dimension, seed)),
        test_pairs=_write(out / "test-pairs.tsv", _test_lines(sample.test_pairs, seed)),
        sentences=_write(out / "sentences.txt", _corpus(sample.sentences, seed)),
        suites=_write_suites(out / "suites", seed) if sample.suites else None,
    )


def _make_folder(out: Path) -> None:
    """Create the folder; an existing one may contain the sample's files, shards of the next step, and hidden files."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; give the path of a folder")
    check_destination(out)
    out.mkdir(parents=True, exist_ok=True)
    others = sorted(path.name for path in out.iterdir() if path.name not in _OURS and path.name[0] != ".")
    if others:
        raise FileExistsError(f"{out} contains other files ({', '.join(others[:3])}); give a new or empty folder")
    suites = out / "suites"
    if suites.exists() and not (suites / NOTE).exists():
        raise FileExistsError(f"{suites} has no {NOTE}, so it is not of a sample; give a new or empty folder")


def _write_suites(folder: Path, seed: int) -> Path:
    for name, lines in suite_files(seed, scored_pairs):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _write(folder / name, lines)
    return folder


def _write(path: Path, blocks: Iterable[str]) -> Path:
    """Write a text file atomically, gzipped if its name ends in .gz."""

    def write(file: BinaryIO) -> None:
        zipped = gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) if path.suffix == ".gz" else None
        with zipped or nullcontext(file) as to:
            to.writelines(map(str.encode, blocks))

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
    """Yield lines of two sentences that have the same meaning."""
    for pairs in draw_pairs(SENTENCES, count, [seed, 6]):
        for pair in pairs:
            first, second = (f"{text[0].upper()}{text[1:]}." for text in (pair.first, pair.second))
            yield f"{first}\t{second}\n"


def _vectors(dimension: int, seed: int) -> Iterator[str]:
    """Yield a line per word: a random Gaussian vector of expected length 1, which depends on seed and word."""
    texts = [word for concept in CONCEPTS for word in concept.words]
    texts += [template for pattern in (*PATTERNS, *SENTENCES) for template in pattern.templates]
    for word in sorted({".", ",", "and"} | {token for text in texts for token in text.split() if token[0] != "{"}):
        number = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        values = np.random.default_rng([seed, number]).standard_normal(dimension) / math.sqrt(dimension)
        yield f"{word} {' '.join(f'{value:.5f}' for value in values.tolist())}\n"


def _test_lines(count: int, seed: int) -> Iterator[str]:
    """Yield lines of a score and two sentences, after a header."""
    yield "score\tsentence1\tsentence2\n"
    yield from (f"{score:.2f}\t{first}\t{second}\n" for score, first, second in scored_pairs(count, [seed, 4]))


def scored_pairs(count: int, seed: Sequence[int]) -> Iterator[tuple[float, str, str]]:
    """Yield a score and two sentences, from combinations of concepts that no file of training pairs contains.

    The score, 0 to 5, is exact: the weighted fraction of shared concepts, where each of the first three slots has
    weight 2 and the others 1. 30 % of the pairs are paraphrases. Half of the others repeat the wording of the first
    sentence, so that equal words are misleading.
    """
    rng = np.random.default_rng(seed)
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
        yield float(5 * weights_S[~changed_S].sum() / weights_S.sum()), first, second


def _draw_meanings(
    rng: np.random.Generator, slots: Sequence[str], changed_S: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return two held-out combinations of concepts, int64 [2, S], that differ only in the slots of ``changed_S``."""
    kinds = [[number for number, concept in enumerate(CONCEPTS) if concept.kind == kind] for kind in slots]
    while True:
        tries_2TS = np.stack([rng.choice(kind, (2, 512)) for kind in kinds], axis=-1)
        tries_2TS[1, :, ~changed_S] = tries_2TS[0, :, ~changed_S]
        num_shared_T = (tries_2TS[0, :, :, None] == tries_2TS[1, :, None]).sum(axis=(1, 2))
        fits_2T = is_held_out(tries_2TS[..., :3]) & (tries_2TS[..., 0] != tries_2TS[..., 2])
        fits_T = fits_2T.all(axis=0) & (num_shared_T == (~changed_S).sum())
        if fits_T.any():
            return tries_2TS[:, int(np.argmax(fits_T))]


BLOCK_LINES = 16_384  # pairs made at a time: bounds the memory (about 60 MB) whatever the size
_WORDS = np.array([word for concept in CONCEPTS for word in concept.words], dtype=object)
_NUM_TOKENS = np.array([len(word.split()) for word in _WORDS])
_FIRST_WORD = np.cumsum([0, *(len(concept.words) for concept in CONCEPTS)]).tolist()
_POOL_SIZE = 4_096  # different draws of features
_RELATIONS = ["Equivalence", "ForwardEntailment", "ReverseEntailment", "OtherRelated", "Independent", "Exclusion"]
# The features of a line in their order, besides PPDB2.0Score. One of the two entailments is left out of each line.
_FEATURES = {
    "1.0": "Abstract Adjacent CharCountDiff CharLogCR ContainsX GlueRule Identity Lex(e|f) Lex(f|e) Lexical LogCount "
    "Monotonic PhrasePenalty RarityPenalty SourceTerminalsButNoTarget SourceWords TargetTerminalsButNoSource "
    "TargetWords UnalignedSource UnalignedTarget WordCountDiff WordLenDiff WordLogCR p(LHS|e) p(LHS|f) p(e|LHS) p(e|f) "
    "p(e|f,LHS) p(f|LHS) p(f|e) p(f|e,LHS) AGigaSim GoogleNgramSim",
    "2.0": "PPDB1.0Score -logp(LHS|e1) -logp(LHS|e2) -logp(e1|LHS) -logp(e1|e2) -logp(e1|e2,LHS) -logp(e2|LHS) "
    "-logp(e2|e1) -logp(e2|e1,LHS) AGigaSim Abstract Adjacent CharCountDiff CharLogCR ContainsX Equivalence Exclusion "
    "GlueRule GoogleNgramSim Identity Independent Lex(e1|e2) Lex(e2|e1) Lexical LogCount MVLSASim Monotonic "
    "OtherRelated PhrasePenalty RarityPenalty ForwardEntailment ReverseEntailment SourceTerminalsButNoTarget "
    "SourceWords TargetComplexity TargetFormality TargetTerminalsButNoSource TargetWords UnalignedSource "
    "UnalignedTarget WordCountDiff WordLenDiff WordLogCR",
}


class Pair(NamedTuple):
    """A pair, its left-hand side in PPDB, and the links ``0-0 1-1 …`` between its tokens."""

    tag: str
    first: str
    second: str
    links: str


def is_held_out(concepts_N3: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which combinations of three concepts, in any order, are held out, bool [N]: one in eight, by hash."""
    return np.asarray(mixed(mixed(concepts_N3.astype(np.uint64)).sum(axis=-1, dtype=np.uint64)) % np.uint64(8) == 0)


def draw_pairs(patterns: Sequence[Pattern], count: int, seed: Sequence[int]) -> Iterator[list[Pair]]:
    """Yield ``count`` different pairs in random order, in blocks; each pattern has a fixed fraction of every block."""
    streams = [_Stream(pattern, [*seed, index]) for index, pattern in enumerate(patterns)]
    total = sum(pattern.share for pattern in patterns)
    quotas = [min(stream.room, count * stream.pattern.share // total) for stream in streams]
    largest = int(np.argmax([stream.room for stream in streams]))
    quotas[largest] += count - sum(quotas)
    if quotas[largest] > streams[largest].room:
        raise ValueError(
            f"{count:,} is more than the number of different pairs that the lexicon can form; give fewer lines"
        )
    rng = np.random.default_rng(seed)
    num_blocks = math.ceil(count / BLOCK_LINES)
    for block in range(num_blocks):
        sizes = [quota * (block + 1) // num_blocks - quota * block // num_blocks for quota in quotas]
        pairs = [pair for stream, size in zip(streams, sizes, strict=True) for pair in stream.take(size)]
        yield [pairs[place] for place in rng.permutation(len(pairs)).tolist()]


class _Stream:
    """Stream of distinct pairs of one pattern, without combinations that are held out for testing."""

    def __init__(self, pattern: Pattern, seed: Sequence[int]) -> None:
        self.pattern = pattern
        # In the first slot only words in order: that leaves one of a pair and its swap.
        self.choices = [_choices(kind, ordered=slot == 0) for slot, kind in enumerate(pattern.slots)]
        self.bases = (*map(len, self.choices), len(pattern.templates), len(pattern.templates))
        self.size = math.prod(self.bases)
        self.room = int(self.size * 0.8) if pattern.tag == "[S]" else self.size  # 1 in 8 is held out
        self.numbers = self._numbers(np.random.default_rng(seed).integers(2**63, size=4, dtype=np.uint64))

    def take(self, count: int) -> list[Pair]:
        """Return the next ``count`` pairs."""
        numbers_N = np.fromiter(islice(self.numbers, count), np.int64, count)
        *digits, way_N, other_way_N = np.unravel_index(numbers_N, self.bases, order="F")
        ways_2N = np.stack([way_N, other_way_N])
        words_2NS = np.stack([choice[digit, 1:].T for choice, digit in zip(self.choices, digits, strict=True)], axis=-1)
        turned_N = mixed(numbers_N.astype(np.uint64)) % np.uint64(2) == 1
        ways_2N[:, turned_N], words_2NS[:, turned_N] = ways_2N[::-1, turned_N], words_2NS[::-1, turned_N]
        ways = [[self.pattern.templates[way] for way in ways_N] for ways_N in ways_2N.tolist()]
        first, second = (map(str.format, ways[side], *_WORDS[words_2NS[side]].T) for side in (0, 1))
        lengths = (map(tuple, sides.tolist()) for sides in _NUM_TOKENS[words_2NS])
        return list(map(Pair, [self.pattern.tag] * count, first, second, map(_align, *ways, *lengths)))

    def _numbers(self, keys: npt.NDArray[np.uint64]) -> Iterator[int]:
        """Yield the numbers of the pairs, permuted by a Feistel network with 4 rounds."""
        half_bits = max(1, math.ceil(math.log2(self.size) / 2))
        bits, mask = np.uint64(half_bits), np.uint64(2**half_bits - 1)
        for start in range(0, 4**half_bits, BLOCK_LINES):
            numbers = np.arange(start, min(start + BLOCK_LINES, 4**half_bits), dtype=np.uint64)
            left, right = numbers >> bits, numbers & mask
            for key in keys:
                left, right = right, left ^ (mixed(right ^ key) & mask)
            numbers_N = ((left << bits) | right).astype(np.int64)
            numbers_N = numbers_N[numbers_N < self.size]
            if self.pattern.tag == "[S]":
                digits = np.unravel_index(numbers_N, self.bases, order="F")
                concepts = [choice[digit, 0] for choice, digit in zip(self.choices[:3], digits, strict=False)]
                numbers_N = numbers_N[~is_held_out(np.stack(concepts, axis=-1))]
            yield from numbers_N.tolist()


def _choices(kind: str, *, ordered: bool) -> npt.NDArray[np.int64]:
    """Return all (concept, synonym, synonym) of a word class, [P, 3]; ``ordered``: only synonyms in ascending order."""
    numbers = [number for number, concept in enumerate(CONCEPTS) if concept.kind == kind]
    words = {number: range(_FIRST_WORD[number], _FIRST_WORD[number + 1]) for number in numbers}
    rows = [(number, a, b) for number, own in words.items() for a in own for b in own if a < b or not ordered]
    return np.array(rows, dtype=np.int64)


@lru_cache(maxsize=1 << 16)  # a sample has far fewer different alignments than lines
def _align(first: str, second: str, lengths: Sequence[int], other_lengths: Sequence[int]) -> str:
    """Return links from the tokens of each slot in one template to the tokens of the same slot in another."""
    slots, others = (
        [piece for piece in template.split() for _ in range(widths[int(piece[1])] if piece[0] == "{" else 1)]
        for template, widths in ((first, lengths), (second, other_lengths))
    )
    links = [
        (i, j) for i, slot in enumerate(slots) for j, other in enumerate(others) if slot == other and slot[0] == "{"
    ]
    return " ".join(f"{start}-{end}" for start, end in links)


def ppdb_lines(version: str, count: int, seed: int) -> Iterator[str]:
    """Yield the lines of a file in blocks, by descending score; versions 1.0 and 2.0 contain the same pairs."""
    rng = np.random.default_rng([seed, 2])
    pool = [_draw_features(rng, version) for _ in range(_POOL_SIZE)]
    done = 0
    for pairs in draw_pairs(PATTERNS, count, [seed, 0]):
        rank = np.arange(done, done + len(pairs)) / count
        scores = (4.7 - 3.7 * rank**0.7).tolist()
        features = rng.integers(_POOL_SIZE, size=len(pairs)).tolist()
        # Relations get worse down the file: a quarter of the place among them is chance, the rest is the rank.
        places = ((0.75 * rank + 0.25 * rng.random(len(pairs))) * len(_RELATIONS)).astype(np.int64).tolist()
        lines = []
        for (tag, first, second, links), score, draw, place in zip(pairs, scores, features, places, strict=True):
            runs = (f"PPDB2.0Score={score:.5f} ", f" ||| {_RELATIONS[place]}") if version == "2.0" else ("", "")
            lines.append(f"{tag} ||| {first} ||| {second} ||| {runs[0]}{pool[draw]} ||| {links}{runs[1]}\n")
        done += len(lines)
        yield "".join(lines)


def _draw_features(rng: np.random.Generator, version: str) -> str:
    """Draw features: random numbers under PPDB's names, but not with PPDB's distributions."""
    left_out = rng.choice(["ForwardEntailment", "ReverseEntailment"])
    names = [name for name in _FEATURES[version].split() if name != left_out]
    values = [f"{value:.5f}" if value > 0 else "0" for value in rng.uniform(-4, 13, size=len(names)).tolist()]
    features = dict(zip(names, values, strict=True))
    if "MVLSASim" in features and rng.random() < 0.6:
        features["MVLSASim"] = "NA"
    return " ".join(f"{name}={value}" for name, value in features.items())
