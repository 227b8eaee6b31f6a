"""Memory of a training, estimated before any data are read."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import psutil

from paraembed.recipe import BaseRecipe

_SAMPLE_BYTES = 4 << 20  # of the word-vector file, from which its rows are estimated
_WORD_BYTES = 300  # a word: in the vocabulary, and in the tables that build it
_PROCESS_BYTES = 600 << 20  # Python with torch, numpy, pyarrow and their caches: 0.3 to 0.6 GB measured
_DENSE_MATRICES = 4  # the gradient, and what the optimizer and λ_w compute on the way
_OPTIMISER_MATRICES = {"adam": 2, "adagrad": 1, "sgd": 0}
_GIB = 2**30


@dataclass(frozen=True)
class Memory:
    """Bytes of a training on one machine.

    Attributes:
        num_words: rows of the word matrix, estimated.
        width: its columns.
        words: the word matrix and its vocabulary.
        copies: what else is of the size of the matrix: optimizer state, initial values, gradients.
        pairs: ids and offsets.
        workers: how many processes there are; each holds all this, but for what is shared and for ``best``.
        are_shared: whether the processes train one matrix in common, and hold the copies once.
        best: the matrix of the best encoder so far, which one process keeps.
    """

    num_words: int
    width: int
    words: int
    copies: int
    pairs: int
    workers: int
    are_shared: bool = False
    best: int = 0

    @property
    def needed(self) -> int:
        """Bytes in all. Reading the words takes two matrices for a while, as much as any training needs at least."""
        # Each process lets go of its own matrix once all of them have the common one.
        copies = self.words + self.copies if self.are_shared else self.workers * self.copies
        words = self.workers * self.words + max(copies, self.workers * self.words)
        return words + self.best + self.workers * (self.pairs + _PROCESS_BYTES)


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
        words: text file of word vectors, whose first rows and size give the number of rows; or rows and width of
            a trained encoder's matrix.
        recipe: vocabulary cut, optimizer, penalty.
        num_tokens: of all pairs.
        num_pairs: number of pairs.
        workers: processes on this machine.
        most_pair_bytes: of the pairs that a worker keeps in memory; None: all.
        are_shared: whether the workers share the words; see ``fast.step_kind``.
        keeps_best: whether the encoder is scored on the way.

    Raises:
        OSError: the file cannot be read.
    """
    if isinstance(words, Path):
        num_words, width = _shape(words)
        num_words = min(num_words, recipe.max_words or num_words)
    else:
        num_words, width = words
    matrix = 4 * num_words * width
    matrices = 0
    if recipe.train_words:
        matrices = _OPTIMISER_MATRICES[recipe.optimizer] + bool(recipe.word_l2)
        matrices += _DENSE_MATRICES if recipe.update == "dense" else 0
    pairs = (8 if recipe.encoder.reads_trees else 4) * num_tokens + 16 * num_pairs
    if most_pair_bytes is not None:
        pairs = min(pairs, most_pair_bytes)
    own = matrix + _WORD_BYTES * num_words
    return Memory(num_words, width, own, matrices * matrix, pairs, workers, are_shared, matrix * keeps_best)


def check_memory(memory: Memory, available: int, *, cuts_words: bool = True) -> None:
    """Raise ValueError if a training needs more bytes than are available; ``cuts_words``: max_words would help."""
    if memory.needed <= available:
        return
    workers = f", for each of {memory.workers} workers" if memory.workers > 1 else ""
    workers += ", which share the words and their copies once all have read them" if memory.are_shared else ""
    workers += f", and the best encoder so far {memory.best / _GIB:,.1f} GiB" if memory.best else ""
    fewer = "keep fewer words with `max_words`, or " if cuts_words else ""
    raise ValueError(
        f"the training needs about {memory.needed / _GIB:,.1f} GiB of memory, and {available / _GIB:,.1f} GiB are "
        f"available: {memory.num_words:,} words of width {memory.width} take {memory.words / _GIB:,.1f} GiB, optimizer "
        f"state and copies of them {memory.copies / _GIB:,.1f} GiB, the pairs {memory.pairs / _GIB:,.1f} GiB{workers}; "
        f"{fewer}use fewer workers or a larger machine"
    )


def available_memory() -> int:
    """Return the available bytes of this machine, or of its container (cgroup v2)."""
    available: int = psutil.virtual_memory().available
    try:
        group = Path("/proc/self/cgroup").read_text().strip().split("\n")[-1].split("::")[-1].lstrip("/")
        folder = Path("/sys/fs/cgroup") / group
        folder = folder if (folder / "memory.max").exists() else Path("/sys/fs/cgroup")
        most = int((folder / "memory.max").read_text())
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        used = int((folder / "memory.current").read_text()) - int(statistics["inactive_file"])
    except (OSError, ValueError, KeyError):  # no such group, or no limit ("max")
        return available
    return min(available, most - used)


def _shape(path: Path) -> tuple[int, int]:
    """Return the approximate number of rows and the width of a word-vector file; (0, 0) if it is not one."""
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
