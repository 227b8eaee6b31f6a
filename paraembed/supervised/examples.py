"""Examples as word ids in flat memory, and the order in which an epoch visits them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from paraembed.data.trees import TreeError, fitting_trees
from paraembed.ragged import Ragged
from paraembed.supervised.model import Supervised
from paraembed.supervised.tasks import Examples
from paraembed.text import Tokens, tokenise
from paraembed.training.pairs import epoch_order, shares
from paraembed.words import word_ids

_CHUNK_EXAMPLES = 8_192  # brought into epoch order at a time


@dataclass(frozen=True)
class ExampleIds:
    """n examples of M texts each; the texts of an example stand side by side.

    Attributes:
        texts: n · M texts, none of them empty.
        targets: what the model's ``losses`` compares with, [n, …].
        num_dropped: examples that were left out, for one of their texts has no token.
    """

    texts: Ragged
    targets: Tensor
    num_dropped: int = 0

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class ExampleBatch:
    """One worker's share of a step.

    Attributes:
        texts: of its examples, side by side; empty where a last batch leaves none for a worker.
        targets: of its examples.
        total: examples of the step over all workers.
        may_pause: a run may be broken off behind any of them.
    """

    texts: Ragged
    targets: Tensor
    total: int
    may_pause: bool = True


def example_ids(model: Supervised, examples: Examples) -> ExampleIds:
    """Examples as the model's encoder reads them.

    Raises:
        ValueError: a tree does not fit its text.
    """
    encoder, num_texts = model.encoder, len(examples.texts)
    tokens = tokenise(pa.concat_arrays(examples.texts), encoder.tokeniser)
    merges = None
    if encoder.composition.reads_trees:
        merges = tree_merges(examples, tokens, encoder.tokeniser)
    sides = Ragged(word_ids(tokens.flat, encoder.vocabulary), tokens.offsets, merges)
    kept = np.flatnonzero(is_filled(tokens, num_texts))
    texts = sides.take((kept[:, None] + np.arange(num_texts) * len(examples)).reshape(-1))
    targets = model.targets(examples.labels[kept])
    return ExampleIds(
        texts if encoder.max_tokens is None else texts.cut(encoder.max_tokens), targets, len(examples) - len(kept)
    )


def is_filled(tokens: Tokens, num_texts: int) -> npt.NDArray[np.bool_]:
    """Which examples have a token in each of their texts, [n].

    Args:
        tokens: first texts of all examples, then second ones, and so on.
        num_texts: of an example.
    """
    filled: npt.NDArray[np.bool_] = np.logical_and.reduce((np.diff(tokens.offsets) > 0).reshape(num_texts, -1))
    return filled


def tree_merges(examples: Examples, tokens: Tokens, tokeniser: str) -> npt.NDArray[np.int32]:
    """What the trees of the examples join, as ``Ragged`` holds it; a text without a tree gets the right-branching one.

    Args:
        examples: n of them.
        tokens: first texts of all examples, then second ones, and so on.
        tokeniser: by which they were split.

    Raises:
        ValueError: a tree does not fit its text.
    """
    trees = examples.trees or [pa.nulls(len(examples), pa.string())] * len(examples.texts)
    try:
        return fitting_trees(pa.concat_arrays(trees), tokens).merges
    except TreeError as error:
        hint = "" if tokeniser == "space" else "; trees stand over tokens split at spaces: take --tokeniser space"
        raise ValueError(f"training part, {error}{hint}") from None


def epoch_batches(
    examples: ExampleIds, *, epoch: int, seed: int, batch_size: int, rank: int = 0, world: int = 1, first: int = 0
) -> Iterator[ExampleBatch]:
    """The batches of one worker in one epoch, whose order is f(seed, epoch) as for pairs.

    Args:
        examples: all of them; the same on every worker.
        epoch: from 0.
        seed: of the run.
        batch_size: examples a step and worker.
        rank: which worker, from 0.
        world: how many workers.
        first: examples of this epoch that are done already, over all workers.
    """
    order = epoch_order(len(examples), epoch, seed)
    num_texts = len(examples.texts) // max(1, len(examples))
    for places_SB, total in shares(len(examples), batch_size, rank, world, first, _CHUNK_EXAMPLES):
        for places_B in places_SB:
            chosen = order[places_B]
            texts = examples.texts.take((num_texts * chosen[:, None] + np.arange(num_texts)).reshape(-1))
            yield ExampleBatch(texts, examples.targets[torch.from_numpy(chosen)], total)
