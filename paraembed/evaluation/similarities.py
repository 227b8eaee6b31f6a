"""Similarities of the texts of a suite, and the thresholds and choices based on them."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.encoders import Encoder
from paraembed.evaluation.candidates import PairScorer, TextEncoder
from paraembed.evaluation.measures import Vector, cosine
from paraembed.evaluation.sets import AnySet, Choices, ScoredPairs, Suite

Flags = npt.NDArray[np.bool_]

_TIE = 1e-6  # float32 vectors of one text from two batches give cosines that differ by up to 1e-7
_CELLS = 1 << 24  # numbers at a time, 64 MB in float32


class Similarities:
    """Cosines of the texts of a suite, each distinct one encoded once; or what a scorer of pairs says.

    Raises:
        ValueError: what ``embed`` raises; a vector that is not finite.
    """

    def __init__(self, encoder: TextEncoder | PairScorer, suite: Suite) -> None:
        self._pairs = encoder if isinstance(encoder, PairScorer) else None
        self._known = pa.array([], pa.string())
        if isinstance(encoder, PairScorer):
            return
        self._known = pc.unique(pa.chunked_array(suite.texts, pa.string()))
        self._embedded = encoder.embed(self._known)
        if isinstance(encoder, Encoder):
            encoder.warn_of_unread(self._embedded)

    @property
    def has_vectors(self) -> bool:
        """Whether they are of an encoder of texts; a scorer of pairs has none."""
        return self._pairs is None

    def of(self, first: pa.StringArray, second: pa.StringArray) -> Vector:
        """Similarity of each of n texts to its counterpart, float64 [n]."""
        if self._pairs is not None:
            return self._pairs.similarity(first, second)
        vectors = self._embedded.vectors
        return cosine(vectors[self._rows(first)], vectors[self._rows(second)])

    def of_options(self, choices: Choices) -> npt.NDArray[np.float32]:
        """Cosine of the two texts of each option, float32 [n, k]."""
        vectors = self._embedded.vectors[self._rows(choices.distinct)]
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        units = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms != 0)
        num_options = choices.first.shape[1]
        at_once = max(1, _CELLS // (num_options * units.shape[1]))
        parts = [
            np.einsum(
                "nkh,nkh->nk",
                units[choices.first[start : start + at_once]],
                units[choices.second[start : start + at_once]],
            )
            for start in range(0, len(choices), at_once)
        ]
        return np.concatenate(parts)

    def counts(self, questions: AnySet) -> tuple[int, int]:
        """Return the numbers of tokens and OOV tokens in a set; for choices, both texts of every option count."""
        if self._pairs is not None:
            return 0, 0
        if isinstance(questions, Choices):
            rows = self._rows(questions.distinct)
            first, second = (
                np.bincount(side.ravel(), minlength=len(rows)) for side in (questions.first, questions.second)
            )
            times = first + second
        else:
            sides = questions.texts if isinstance(questions, ScoredPairs) else questions.test.texts
            rows = np.concatenate([self._rows(side) for side in sides])
            times = np.ones(len(rows), np.int64)
        embedded = self._embedded
        return int((times * embedded.num_tokens[rows]).sum()), int((times * embedded.num_unknown[rows]).sum())

    def are_covered(self, pairs: ScoredPairs) -> Flags | None:
        """Whether no word of a pair is unknown, bool [n]; None where tokens are not counted."""
        if self._pairs is not None or not self._embedded.num_tokens.any():
            return None
        first, second = (self._embedded.num_unknown[self._rows(side)] == 0 for side in pairs.texts)
        covered: Flags = first & second
        return covered

    def num_known_answers(self, choices: Choices) -> int | None:
        """Questions whose right answer has no OOV word; None where tokens are not counted."""
        if self._pairs is not None or not self._embedded.num_tokens.any():
            return None
        rows = self._rows(choices.distinct)
        return int((self._embedded.num_unknown[rows] == 0)[choices.second[:, 0]].sum())

    def _rows(self, texts: pa.StringArray) -> npt.NDArray[np.int32]:
        rows: npt.NDArray[np.int32] = pc.index_in(texts, value_set=self._known).to_numpy()
        return rows


def best_threshold(similarities: Vector, labels: Vector) -> float:
    """The similarity from which on pairs are called the same, so that most are right; the lowest of equally good ones.

    Thresholds lie half way between similarities; below all of them and above all of them are allowed.

    Args:
        similarities: float64 [n].
        labels: float64 [n], 1 the same, 0 not.

    Raises:
        ValueError: similarities that are all the same or not finite.
    """
    _check(similarities)
    order = np.argsort(similarities, kind="stable")
    values, same = similarities[order], labels[order] > 0
    right = same.sum() + np.concatenate(([0], np.cumsum(np.where(same, -1, 1))))  # the first i are called different
    cuts = np.concatenate(([-np.inf], (values[:-1] + values[1:]) / 2, [np.inf]))
    possible = np.concatenate(([True], values[:-1] < values[1:], [True]))
    return float(cuts[np.argmax(np.where(possible, right, -1))])


def first_place(similarities_NK: npt.NDArray[np.float32]) -> tuple[Flags, Vector]:
    """Whether option 0 is the most similar one.

    Args:
        similarities_NK: of k options to n questions.

    Returns:
        bool [n], no where it shares the first place; float64 [n], a share of 1 where it does: what drawing among the
        first would give on average.

    Raises:
        ValueError: similarities that are all the same or not finite.
    """
    _check(similarities_NK)
    right_N = similarities_NK[:, 0]
    others_N = similarities_NK[:, 1:].max(axis=1)
    equal_N = 1 + (np.abs(similarities_NK[:, 1:] - right_N[:, None]) <= _TIE).sum(axis=1)
    return right_N > others_N + _TIE, np.where(right_N >= others_N - _TIE, 1 / equal_N, 0.0)


def _check(similarities: npt.NDArray[np.floating]) -> None:
    if not np.isfinite(similarities).all():
        raise ValueError("a similarity is not finite; are there NaNs in the encoder's weights?")
    if np.ptp(similarities) <= _TIE:
        raise ValueError(
            f"the {similarities.size} predictions are all {similarities.flat[0]:.6g}; are the words of the texts in "
            "the vocabulary?"
        )
