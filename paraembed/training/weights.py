"""Weights of pairs in the objective, from the column ``score`` of the pair shards.

The weight of a pair is w = s / s̄, with its score s and the mean score s̄ of all training pairs. So the mean weight is 1,
and a learning rate means the same as without weights. A pair of weight 0 adds nothing to the loss, but its texts remain
candidates for negatives. Only the terms of ``objective`` are weighted: those of a teacher compare vectors of single
texts or of the whole batch, and do not assume that a pair is a paraphrase.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.io.parquet import open_parquet
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged

SCORE = "score"

_BLOCK_ROWS = 65_536
_NEEDS = (
    "`pair_weights` 'score' needs a score for every pair, finite and at least 0, and not all 0; shard pairs with such "
    "scores, or set `pair_weights` to none"
)

Floats = npt.NDArray[np.float32]


def scores_of(block: pa.Table, where: str, first_row: int) -> Floats:
    """Return the scores of a block of pairs, float32 [n].

    Raises:
        ValueError: the column ``score`` is missing, or a score is null, not finite, or negative; the message names
            ``where`` and the row, counted from the block's ``first_row``.
    """
    if SCORE not in block.column_names:
        raise ValueError(f"{where}: there is no column 'score'; {_NEEDS}")
    scores = block[SCORE].cast(pa.float32()).combine_chunks()
    values: Floats = scores.to_numpy(zero_copy_only=False)  # a null becomes NaN
    is_wrong = ~(np.isfinite(values) & (values >= 0))
    if is_wrong.any():
        row = int(is_wrong.argmax())
        score = "null" if not scores[row].is_valid else f"{values[row]:g}"
        raise ValueError(f"{where}: row {first_row + row} (from 0) has the score {score}; {_NEEDS}")
    return values


def check_scores(shards: Sequence[Path]) -> None:
    """Raise ValueError if the scores of the pair shards cannot be weights; the message names the shard and the row."""
    highest = 0.0
    for path in shards:
        row = 0
        with open_parquet(path) as file:
            names = [SCORE] if SCORE in file.schema_arrow.names else []
            for batch in file.iter_batches(_BLOCK_ROWS, columns=names):
                highest = max(highest, scores_of(pa.table(batch), str(path), row).max(initial=0))
                row += len(batch)
    if not highest:
        raise ValueError(f"the scores of all pairs are 0; {_NEEDS}")


@dataclass(frozen=True)
class PairWeights:
    """Weights of the pairs of a training.

    Attributes:
        mean: s̄, the mean score of all pairs.
    """

    mean: float

    @classmethod
    def of(cls, recipe: Recipe, pairs: Ragged) -> "PairWeights | None":
        """Return the weights of a recipe for the 2n texts of the data; None without weights.

        Raises:
            ValueError: the pairs have no scores, or their mean is not finite and above 0.
        """
        if recipe.pair_weights == "none":
            return None
        if pairs.scores is None:
            raise ValueError(f"the pairs have no scores; {_NEEDS}")
        mean = float(pairs.scores[::2].mean(dtype=np.float64))
        if not 0 < mean < np.inf:
            raise ValueError(f"the mean score of the pairs is {mean:g}; {_NEEDS}")
        return cls(mean)

    def __call__(self, texts: Ragged, numbers: npt.NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return the weights of B pairs, float32 [B], whose 2B texts have these numbers among ``texts``."""
        assert texts.scores is not None
        scores = texts.scores[numbers][::2]
        return np.divide(scores, self.mean, dtype=np.float64).astype(np.float32)
