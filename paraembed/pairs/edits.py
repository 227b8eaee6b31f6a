"""Texts at most one edit apart, and the word overlap score of P15 §3.1."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cpdist

from paraembed.text.tokenize import Tokens

MOST_TOKENS = 64
"""Maximum tokens of a phrase; ``word_overlap``, whose cost is tokens × tokens, skips longer texts."""
_PAIRS_AT_A_TIME = 1 << 20


def split_tokens(texts: pa.StringArray) -> Tokens:
    """Return the tokens of n tokenized texts: one space between tokens, none at the ends."""
    lists = pc.split_pattern(texts, " ")
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return Tokens(lists.flatten(), offsets - offsets[0])


def one_edit_apart(first: pa.StringArray, second: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Return whether the Levenshtein distance of two texts, in characters, is at most 1, bool [n]."""
    distances = cpdist(first.to_pylist(), second.to_pylist(), scorer=Levenshtein.distance, score_cutoff=1)
    return np.asarray(distances.reshape(-1) <= 1)


def word_overlap(first: pa.StringArray, second: pa.StringArray) -> npt.NDArray[np.float64]:
    """Return the word overlap score (P15 §3.1): fraction of the shorter text's tokens near a token of the longer text.

    Near: Levenshtein distance at most 1. Shorter: fewer tokens; for texts with the same number of tokens the higher of
    the two fractions, so that the score does not depend on the order of the pair.

    Args:
        first: string array [n] of tokens with one space between.
        second: the same.

    Returns:
        float64 [n], 0 to 1; NaN if a text has more than ``MOST_TOKENS`` tokens.
    """
    tokens = split_tokens(pa.concat_arrays([first, second]))
    encoded = tokens.flat.dictionary_encode()
    codes, words = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
    lengths = np.diff(tokens.offsets).reshape(2, -1)
    starts = tokens.offsets[:-1].reshape(2, -1)
    short_enough = (lengths <= MOST_TOKENS).all(axis=0)
    rows = np.flatnonzero(short_enough)
    has_near = np.zeros(len(codes), bool)
    products = np.cumsum(lengths[0, rows] * lengths[1, rows])
    cuts = np.searchsorted(products, np.arange(_PAIRS_AT_A_TIME, products[-1] if len(rows) else 0, _PAIRS_AT_A_TIME))
    for part in np.split(rows, cuts):
        one_P, other_P = _token_pairs(starts[:, part], lengths[:, part])
        near_P = _near(codes[one_P], codes[other_P], words)
        has_near[one_P[near_P]] = has_near[other_P[near_P]] = True
    shared = np.add.reduceat(has_near, tokens.offsets[:-1], dtype=np.int64).reshape(2, -1) if len(first) else lengths
    return np.where(short_enough, share_of_shorter(shared, lengths), np.nan)


def share_of_shorter(shared_2N: npt.NDArray[np.int64], lengths_2N: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the fraction of the shorter text's tokens that are also in the longer text, [N]; 0 without tokens.

    For texts with the same number of tokens, the higher of the two fractions.

    Args:
        shared_2N: number of tokens of each text that are in the other text.
        lengths_2N: number of tokens of each text.
    """
    shares = shared_2N / np.maximum(lengths_2N, 1)
    fewer, more = lengths_2N[0] < lengths_2N[1], lengths_2N[0] > lengths_2N[1]
    share: npt.NDArray[np.float64] = np.where(fewer, shares[0], np.where(more, shares[1], shares.max(axis=0)))
    return share


def _token_pairs(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return positions [P] and [P] of every token of the first text with every token of the second, for n rows.

    Args:
        starts: [2, n], first token of each text.
        lengths: [2, n], number of tokens of each text.
    """
    products = lengths[0] * lengths[1]
    owner = np.repeat(np.arange(len(products)), products)
    place = np.arange(len(owner)) - (np.cumsum(products) - products)[owner]
    return starts[0, owner] + place // lengths[1, owner], starts[1, owner] + place % lengths[1, owner]


def _near(one_P: npt.NDArray[np.int64], other_P: npt.NDArray[np.int64], words: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Return whether two words, given by their indices, are at most one edit apart; each pair is compared once."""
    near: npt.NDArray[np.bool_] = one_P == other_P
    lengths = pc.utf8_length(words).to_numpy()
    rows = np.flatnonzero(~near & (np.abs(lengths[one_P] - lengths[other_P]) <= 1))
    low, high = np.minimum(one_P[rows], other_P[rows]), np.maximum(one_P[rows], other_P[rows])
    unique, inverse = np.unique(low * len(words) + high, return_inverse=True)
    compared = one_edit_apart(words.take(pa.array(unique // len(words))), words.take(pa.array(unique % len(words))))
    near[rows] = compared[inverse]
    return near
