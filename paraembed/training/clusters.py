"""Batches of similar pairs, so that the objectives within a batch compare similar texts.

Each pair belongs to one of K anchors, which are pairs drawn at random: the one whose first text has the most similar
vector of the teacher. Random anchors are cheaper than k-means, but their clusters differ more in size. Batches of pairs
on disk are cut from the clusters of their shuffle window.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paraembed.encoders.tables import to_int8
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.training.pairs import RANDOM, Longs, MappedPairs, Order

_MOST_ANCHORS = 1024  # 9.1M pairs with 384 dimensions: 7 TFLOP, minutes on a core
_BLOCK_PAIRS = 4096  # 16 MB of similarities
_EXACT_WIDTH = 2**24 // 127**2
"""Most dimensions for which float32 holds every sum of products of int8 steps, 1,040."""


@dataclass(frozen=True)
class ClusteredOrder(Order):
    """Order of the pairs whose batches, of ``batch_size`` pairs, are cut from clusters; worker r gets the r-th batch of
    a step.
    """

    clusters: Longs
    batch_size: int

    def shuffled(self, pairs_W: Longs, first: int, generator: np.random.Generator) -> Longs:
        """Return the order of pairs; see ``Order``.

        Shuffled pairs are sorted by cluster and cut into batches, and the batches are shuffled. Pairs of a batch that
        begins before them, or that they do not fill, are random, so that it is not always of the last cluster.
        """
        size = self.batch_size
        begun = min(-first % size, len(pairs_W))
        num_whole = (len(pairs_W) - begun) // size * size
        begins, order, rest = np.split(generator.permutation(len(pairs_W)), [begun, begun + num_whole])
        order = order[np.argsort(self.clusters[pairs_W[order]], kind="stable")]
        batches = generator.permutation(order.reshape(-1, size))
        return np.concatenate([begins, batches.reshape(-1), rest])


def order_for(recipe: Recipe, pairs: Ragged) -> Order:
    """Return the order of the pairs; clusters of pairs on disk have about ``batch_size`` pairs in a window."""
    if recipe.batches == "random":
        return RANDOM
    assert pairs.teacher is not None
    num_windows = -(-(len(pairs) // 2) // pairs.window) if isinstance(pairs, MappedPairs) else 1
    clusters = nearest_anchors(pairs.teacher[::2], recipe.batch_size * num_windows, recipe.seed)
    return ClusteredOrder(clusters, recipe.batch_size)


def nearest_anchors(vectors_NT: npt.NDArray[np.float32], cluster_size: int, seed: int) -> Longs:
    """Return the number of the most similar anchor of each vector, int64 [n]; about ``cluster_size`` vectors have the
    same one, unless there would be too many anchors.

    Vectors are rounded to int8, so that scalar products are exact in floating point whatever the order of the sums:
    workers on other processors, whose order differs, must come to the same clusters.
    """
    num_anchors = min(_MOST_ANCHORS, -(-len(vectors_NT) // cluster_size))
    # The spawn key keeps this draw apart from those of the epochs.
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    anchors_KT = vectors_NT[generator.choice(len(vectors_NT), num_anchors, replace=False)]
    exact: Any = np.float32 if vectors_NT.shape[1] <= _EXACT_WIDTH else np.float64
    steps_KT = to_int8(anchors_KT)[0].astype(exact)
    lengths_K = np.sqrt(np.square(steps_KT).sum(axis=1, dtype=np.float64)).clip(min=1)
    blocks = (vectors_NT[first : first + _BLOCK_PAIRS] for first in range(0, len(vectors_NT), _BLOCK_PAIRS))
    products = (to_int8(block)[0].astype(exact) @ steps_KT.T for block in blocks)
    return np.concatenate([(product_BK / lengths_K).argmax(axis=1) for product_BK in products])
