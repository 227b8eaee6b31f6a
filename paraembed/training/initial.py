"""Inputs of a training: the untrained encoder, the coverage of its vocabulary, and the memory that the training
needs.
"""

import gzip
import logging
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from paraembed import checkpoint, encoders
from paraembed.console import say
from paraembed.encoders.configs import AvgConfig, Oov
from paraembed.encoders.tables import of_mean_length
from paraembed.io.fingerprint import sha256_of
from paraembed.io.inflate import is_compressed
from paraembed.late import Late
from paraembed.options import Count, Range
from paraembed.recipe import BaseRecipe
from paraembed.settings import MAX_BAD_WORDS
from paraembed.text import OF_PIECES
from paraembed.text.tokens import tokens_of
from paraembed.text.vocabulary import BOS_EOS, LOW_COVERAGE, UNKNOWN, Words, add_random_words, read_words, word_row
from paraembed.text.word_formats import stated_shape
from paraembed.training.pairs import ORDER_BYTES, both_sides

if TYPE_CHECKING:
    import torch

    from paraembed.encoders import Encoder
else:
    torch = Late("torch")

_NUM_MISSING = 10
_SHOWN_CHARACTERS = 30

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Coverage:
    """Coverage of the training tokens by word vectors."""

    num_words: Count  # rows of the word matrix, including random vectors
    width: Count  # length of a word vector
    covered: Annotated[float, Range(0, 1)]  # fraction of the tokens that have a pretrained vector, 0 to 1
    num_random: Count  # number of words with a random vector
    # Fraction of the tokens that have their own vector, pretrained or random, 0 to 1.
    with_vector: Annotated[float, Range(0, 1)]
    # The most frequent words without a pretrained vector, with their counts.
    missing: tuple[tuple[str, Count], ...] = ()


def coverage_of(counts: pa.StructArray, pretrained: pa.StringArray, words: Words) -> Coverage:
    """Count the tokens that have a vector, given the words with a pretrained vector, and these with the random ones.

    The token counts have the fields ``values`` and ``counts``, as ``pyarrow.compute.value_counts`` returns them.
    """
    tokens = pa.table({"word": counts.field("values"), "count": counts.field("counts")})
    total = pc.sum(tokens["count"]).as_py() or 1
    is_word = pc.not_equal(tokens["word"], UNKNOWN)  # as pieces without a vector are named
    is_known, has_vector = (
        pc.and_(is_word, pc.is_in(tokens["word"], value_set=known)) for known in (pretrained, words.vocabulary)
    )
    covered, with_vector = (
        (pc.sum(tokens["count"].filter(chosen)).as_py() or 0) / total for chosen in (is_known, has_vector)
    )
    most_frequent = [("count", "descending"), ("word", "ascending")]
    missing = tokens.filter(pc.invert(is_known)).sort_by(most_frequent).slice(0, _NUM_MISSING).to_pylist()
    num_words, width = words.matrix.shape
    return Coverage(
        num_words,
        width,
        covered,
        num_random=len(words.vocabulary) - len(pretrained),
        with_vector=with_vector,
        missing=tuple((row["word"], row["count"]) for row in missing),
    )


def check_coverage(coverage: Coverage, least: float, vectors: str, texts: str) -> None:
    """Warn if less than half of the tokens have a pretrained vector; messages name the ``vectors`` and the ``texts``.

    Raises:
        ValueError: less than the fraction ``least`` of the tokens have their own vector, pretrained or random; the
            message names the most frequent missing words.
    """
    is_too_low = coverage.with_vector < least
    if not is_too_low and coverage.covered >= LOW_COVERAGE:
        return
    missing = ", ".join(f"{word[:_SHOWN_CHARACTERS]!r} ({count:,})" for word, count in coverage.missing)
    fact = (
        f"{vectors} has a vector for {coverage.covered:.1%} of the tokens of {texts}; the most frequent words without "
        f"one: {missing}"
    )
    if not is_too_low:
        random = f" ({coverage.num_random:,} words got a random vector)" if coverage.num_random else ""
        log.warning("warning: %s%s; %s", fact, random, _REMEDIES)
        return
    raise ValueError(
        f"{fact}. At least {least:.1%} of the tokens must have one (`min_coverage` {least:g}); {_REMEDIES}, or skip "
        "this check with `min_coverage` 0"
    )


_REMEDIES = (
    "tokenize the texts with the tokenizer of the word vectors (`tokenizer`; pairs are tokenized by jobs/shard.py), "
    "check that the texts are lower-cased, as words are when they are read, use other `words` (or another "
    "`pretrained`), or give each missing word a random vector with `new_words` random (and `new_words_min_count`)"
)


def untrained_encoder(
    words_file: Path, blocks: Iterable[pa.Table], recipe: BaseRecipe, max_bad_words: float = MAX_BAD_WORDS
) -> "tuple[Encoder, Coverage]":
    """Return the untrained encoder, and the coverage of the pairs in blocks of shards by its vocabulary; the errors are
    those of ``initial_words``.
    """
    start = initial_words(words_file, recipe, max_bad_words)
    tokenizer = tokenizer_of_pairs(words_file, start.tokenizer, reads_trees=recipe.encoder.reads_trees)
    return _encoder_from(start, _token_counts(blocks, tokenizer, start.words.vocabulary), recipe)


def tokenizer_of_pairs(words: Path, tokenizer: str, *, reads_trees: bool) -> str:
    """Return the tokenizer for the texts of pair shards, which are tokens already.

    The words of an encoder are those of its tokenizer, so the texts get this one, also if the shards have another. It
    does not change its own tokens. The tokens of a word-vector file are unknown, and the leaves of a parse tree are the
    shards' tokens; for both the tokens stay as they are, but those of a tokenizer that normalizes are normalized.
    """
    if words.is_dir() and not reads_trees:
        return tokenizer
    form = tokenizer.partition("+")[2]
    return f"space+{form}" if form and not reads_trees else "space"


@dataclass(frozen=True)
class InitialWords:
    """Initial word vectors, with the tokenizer and the vectors of OOV tokens that belong to them."""

    words: Words
    tokenizer: str
    oov: Oov


def initial_words(path: Path, recipe: BaseRecipe, max_bad_words: float = MAX_BAD_WORDS) -> InitialWords:
    """Read word vectors from a file, or from the folder of an averaging encoder, such as a student of jobs/teach.py, in
    the scale of the recipe.

    Raises:
        OSError, ValueError: the same errors as ``read_words`` and ``checkpoint.load``; the encoder is not ``avg``, or
            the recipe does not fit it.
    """
    start = _words_of(path, recipe, max_bad_words)
    if recipe.word_scale == "unit":
        before, matrix = start.words.matrix, of_mean_length(start.words.matrix)
        factor = np.linalg.norm(matrix) / max(float(np.linalg.norm(before)), 1e-36)
        say(f"the word vectors of {path.name} are multiplied by {factor:.3g}; their mean length is 1 (`word_scale`)")
        start = replace(start, words=Words(start.words.vocabulary, matrix))
    return start


def _words_of(path: Path, recipe: BaseRecipe, max_bad_words: float) -> InitialWords:
    if not path.is_dir():
        return InitialWords(read_words(path, recipe.max_words, max_bad_words), recipe.tokenizer, "shared")
    encoder = checkpoint.load(path)
    check_trainable(path)
    if not isinstance(encoder.config, AvgConfig):
        raise ValueError(
            f"{path} is an encoder {encoder.config.name!r}; `words` takes a word-vector file or an encoder "
            "'avg'; export the word vectors of others first (`to` of jobs/export.py: word2vec)"
        )
    if recipe.max_words is not None:
        raise ValueError(
            f"`max_words` is {recipe.max_words}, which is for files of word vectors, but {path} is an encoder; leave "
            "it out, or make the encoder smaller with `max_words` of jobs/export.py"
        )
    for name in ("bos_eos_tokens", "max_tokens"):
        if getattr(recipe, name) != getattr(encoder, name):
            raise ValueError(
                f"`{name}` is {getattr(recipe, name)!r}, but {getattr(encoder, name)!r} in {path}; set it to the latter"
            )
    if recipe.encoder.reads_trees and encoder.tokenizer in OF_PIECES:
        raise ValueError(
            f"the encoder {recipe.encoder.name!r} reads parse trees of words, but {path} has word pieces; use "
            "another encoder, or other `words`"
        )
    return InitialWords(Words(encoder.vocabulary, encoder.matrix.detach().numpy()), encoder.tokenizer, encoder.oov)


def check_trainable(path: Path) -> None:
    """Raise ValueError if an encoder has another one for its OOV tokens, which would not be trained with it."""
    if "pieces" in checkpoint.read_config(path):
        raise ValueError(
            f"{path} has vectors of pieces for OOV tokens, which a training would leave as they are; train the encoder "
            "without them, and add them with `oov_pieces` of jobs/export.py"
        )


def words_digest(path: Path) -> str:
    """Return the digest of a word-vector file, or the fingerprint of an encoder folder."""
    if path.is_dir():
        return str(checkpoint.read_config(path)["fingerprint"])
    return sha256_of(path)


def encoder_for(
    words_file: Path, counts: pa.StructArray, recipe: BaseRecipe, max_bad_words: float = MAX_BAD_WORDS
) -> "tuple[Encoder, Coverage]":
    """Return the untrained encoder for texts with given token counts, the fields ``values`` and ``counts`` as
    ``pyarrow.compute.value_counts`` returns them; the errors are those of ``initial_words``.
    """
    return _encoder_from(initial_words(words_file, recipe, max_bad_words), counts, recipe)


def _encoder_from(start: InitialWords, counts: pa.StructArray, recipe: BaseRecipe) -> "tuple[Encoder, Coverage]":
    if not pc.sum(counts.field("counts")).as_py():
        raise ValueError("the training texts have no tokens; give other texts")
    words = with_new_words(start.words, counts, recipe)
    coverage = coverage_of(counts, start.words.vocabulary, words)
    return encoder_of(recipe, _with_bos_eos(words, recipe), start.tokenizer, start.oov), coverage


def encoder_of(recipe: BaseRecipe, words: Words, tokenizer: str, oov: Oov) -> "Encoder":
    """Return the untrained encoder of a recipe; one that reads trees has a shared vector for OOV tokens."""
    return encoders.Encoder(
        recipe.encoder,
        words,
        tokenizer,
        recipe.seed,
        bos_eos_tokens=recipe.bos_eos_tokens,
        max_tokens=recipe.max_tokens,
        init=recipe.init,
        oov="shared" if recipe.encoder.reads_trees else oov,
    )


def with_new_words(words: Words, counts: pa.StructArray, recipe: BaseRecipe) -> Words:
    """Return the words, with a random vector for each counted token without one if the recipe says so."""
    if recipe.new_words != "random":
        return words
    known = pc.is_in(counts.field("values"), value_set=words.vocabulary)
    often = pc.greater_equal(counts.field("counts"), recipe.new_words_min_count)
    new = counts.field("values").filter(pc.and_(often, pc.invert(known))).sort()
    if pc.any(pc.match_substring(new, "\n")).as_py():
        raise ValueError(
            "a token of the pairs contains a line feed, which is not allowed in a vocabulary; shard the pairs again"
        )
    return add_random_words(words, new, recipe.seed)


def with_words_of(encoder: "Encoder", counts: pa.StructArray, recipe: BaseRecipe) -> "tuple[Encoder, Coverage]":
    """Return a trained encoder with random vectors for new words, and the coverage; its existing vectors are
    unchanged.
    """
    pretrained = Words(encoder.vocabulary, encoder.matrix.detach().numpy())
    words = with_new_words(pretrained, counts, recipe)
    coverage = coverage_of(counts, pretrained.vocabulary, words)
    if not coverage.num_random:
        return encoder, coverage
    wider = encoder.with_words(words, recipe.seed)
    with torch.no_grad():
        for name, tensor in encoder.state_dict().items():  # one may have a row a word, as scaled_avg's has
            wider.state_dict()[name][: len(tensor)] = tensor
    wider.provenance = encoder.provenance
    return wider, coverage


def _with_bos_eos(words: Words, recipe: BaseRecipe) -> Words:
    """Return the words with the recipe's BOS/EOS tokens: the file's vectors of <s> and </s>, or random ones."""
    wanted = BOS_EOS[recipe.bos_eos_tokens]
    new = [word for word in wanted if not pc.is_in(pa.scalar(word), value_set=words.vocabulary).as_py()]
    if not new:
        return words
    words = add_random_words(words, pa.array(new, pa.string()), recipe.seed + 1)
    for word in new:  # files have them in lower case, as read_words does
        row = pc.index(words.vocabulary, word.lower()).as_py()
        if row >= 0:
            words.matrix[word_row(words.vocabulary, word)] = words.matrix[row]
    return words


def _token_counts(blocks: Iterable[pa.Table], tokenizer: str, vocabulary: pa.StringArray) -> pa.StructArray:
    """Return the count of each token or word piece in the pairs, with the fields ``values`` and ``counts``."""
    tables = []
    for block in blocks:
        texts = both_sides(block)
        if tokenizer == "space":
            tokens = pc.split_pattern(texts, " ").flatten()
        else:
            tokens = tokens_of(texts, tokenizer, vocabulary).flat
        counted = pc.value_counts(tokens)
        tables.append(pa.table({"token": counted.field("values"), "count": counted.field("counts")}))
    total = pa.concat_tables(tables).group_by("token").aggregate([("count", "sum")]).combine_chunks()
    return pa.StructArray.from_arrays([total["token"].chunk(0), total["count_sum"].chunk(0)], ["values", "counts"])


_SAMPLE_BYTES = 4 << 20  # of the word-vector file, from which its rows are estimated
_WORD_BYTES = 300  # a word: in the vocabulary, and in the tables that build it
_PROCESS_BYTES = 600 << 20  # Python with torch, numpy, pyarrow and their caches: 0.3 to 0.6 GB measured
_DENSE_MATRICES = 4  # the gradient, and what the optimizer and λ_w compute on the way
_OPTIMIZER_MATRICES = {"adam": 2, "adagrad": 1, "sgd": 0}
_GIB = 2**30


@dataclass(frozen=True)
class Memory:
    """Bytes that a training needs on one machine."""

    num_words: int  # rows of the word matrix, estimated
    width: int  # columns of the word matrix
    words: int  # bytes of the word matrix and its vocabulary
    copies: int  # bytes of other arrays of the matrix's size: optimizer state, initial values, gradients
    pairs: int  # bytes of ids and offsets, or of their order or a window of them if they are in files
    workers: int  # number of processes; each needs all of this, except for what is shared and for ``best``
    are_shared: bool = False  # whether the processes share one word matrix and its copies
    best: int = 0  # bytes of the best encoder's word matrix, which one process keeps
    cuts_words: bool = True  # whether `max_words` can reduce the number of rows
    mapped: int = 0  # bytes of the pairs' files, which the processes share in memory, read in random order

    @property
    def needed(self) -> int:
        """Total bytes. Reading the word vectors temporarily needs two matrices, which is the minimum for any
        training.
        """
        # Each process lets go of its own matrix once all of them have the common one.
        copies = self.words + self.copies if self.are_shared else self.workers * self.copies
        words = self.workers * self.words + max(copies, self.workers * self.words)
        return words + self.best + self.mapped + self.workers * (self.pairs + _PROCESS_BYTES)

    def of_workers(self, here: int, world: int) -> "Memory":
        """Return the memory of some of the workers of a training, on one machine."""
        return replace(self, workers=here, are_shared=self.are_shared and here == world)


def estimate(
    words: Path | tuple[int, int],
    recipe: BaseRecipe,
    num_tokens: int,
    num_pairs: int,
    workers: int,
    most_pair_bytes: int | None = None,
    *,
    are_shared: bool = False,
    keeps_best: bool = False,
) -> Memory:
    """Estimate the memory of a training.

    Args:
        words: text file of word vectors, whose first rows and size give the number of rows; folder of an encoder; or
            rows and width of a trained encoder's matrix.
        recipe: vocabulary cut, optimizer, penalty.
        num_tokens: number of tokens in all pairs.
        num_pairs: number of pairs.
        workers: number of processes on this machine.
        most_pair_bytes: maximum bytes of the pairs' files to be read in random order, and of a window of larger ones;
            None: each worker has all pairs in memory.
        are_shared: whether the workers share the word matrix; see ``fast.step_kind``.
        keeps_best: whether the encoder is evaluated during training.

    Raises:
        OSError: the file cannot be read.
    """
    if isinstance(words, Path) and words.is_dir():
        encoder = checkpoint.load(words)
        num_words, width = encoder.matrix.shape
        words = num_words, width
        num_tokens *= 2 if encoder.has_bigrams else 1  # a token begins at most one bigram
    if isinstance(words, Path):
        num_words, width = _shape(words)
        num_words = min(num_words, recipe.max_words or num_words)
    else:
        num_words, width = words
    matrix = 4 * num_words * width
    matrices = 0
    if recipe.train_words:
        matrices = _OPTIMIZER_MATRICES[recipe.optimizer] + bool(recipe.word_l2)
        matrices += _DENSE_MATRICES if recipe.update == "dense" else 0
    pairs = (8 if recipe.encoder.reads_trees else 4) * num_tokens + 16 * num_pairs  # ids and offsets
    mapped = pairs if most_pair_bytes is not None and pairs <= most_pair_bytes else 0
    if most_pair_bytes is not None:
        pairs = ORDER_BYTES * num_pairs if mapped else most_pair_bytes
    own = matrix + _WORD_BYTES * num_words
    best, cuts_words = matrix * keeps_best, isinstance(words, Path)
    return Memory(num_words, width, own, matrices * matrix, pairs, workers, are_shared, best, cuts_words, mapped)


def check_memory(memory: Memory, available: int) -> None:
    """Raise ValueError if a training needs more memory than is available on a machine."""
    if memory.needed <= available:
        return
    workers = f", for each of {memory.workers} workers" if memory.workers > 1 else ""
    workers += ", which share the words and their copies after all of them have read the words" * memory.are_shared
    workers += f", and the best encoder so far {memory.best / _GIB:,.1f} GiB" if memory.best else ""
    workers += f", and the files of the pairs {memory.mapped / _GIB:,.1f} GiB" if memory.mapped else ""
    fewer = "keep fewer words with `max_words`, or " if memory.cuts_words else ""
    raise ValueError(
        f"the training needs about {memory.needed / _GIB:,.1f} GiB of memory, but only {available / _GIB:,.1f} GiB "
        f"are available: {memory.num_words:,} words of width {memory.width} take {memory.words / _GIB:,.1f} GiB, "
        f"optimizer state and copies of them {memory.copies / _GIB:,.1f} GiB, the pairs {memory.pairs / _GIB:,.1f} "
        f"GiB{workers}; {fewer}use fewer workers or a larger machine"
    )


def available_memory() -> int:
    """Return the available memory of this machine, or of its container (cgroup v2), in bytes."""
    available: int = psutil.virtual_memory().available
    try:
        group = Path("/proc/self/cgroup").read_text().strip().split("\n")[-1].split("::")[-1].lstrip("/")
        folder = Path("/sys/fs/cgroup") / group
        folder = folder if (folder / "memory.max").exists() else Path("/sys/fs/cgroup")
        most = int((folder / "memory.max").read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        cached = int(statistics["inactive_file"]) + int(statistics["active_file"])  # as the files of the pairs are
        used = int((folder / "memory.current").read_text()) - cached
    except (OSError, ValueError, KeyError):  # no such group, or no limit ("max")
        return available
    return min(available, most - used)


def _shape(path: Path) -> tuple[int, int]:
    """Return the approximate number of rows and the width of a word-vector file; (0, 0) if the file is not one."""
    if stated := stated_shape(path):
        return stated
    if is_compressed(path) and path.suffix != ".gz":
        return 0, 0
    with path.open("rb") as raw:
        if path.suffix != ".gz":
            text = raw.read(_SAMPLE_BYTES)
            read = len(text)
        else:
            try:
                text = gzip.GzipFile(fileobj=raw).read(_SAMPLE_BYTES)
            except (EOFError, OSError, zlib.error):
                return 0, 0
            read = raw.tell()
    lines = text.splitlines()
    if len(lines) < 2:
        return len(lines), 0
    lines = lines[:-1] if read < path.stat().st_size else lines
    width = lines[-1].count(b" ")
    return int(len(lines) * max(1.0, path.stat().st_size / read)), width
