"""Analyses of word vectors: nearest neighbors (Wieting 2016 table 8), longest and shortest vectors (Wieting 2016
§6).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.evaluation.analyses.content import AnalysisInputs, AnalysisTable, CannotMakeError, Content
from paraembed.evaluation.measures import unit_rows
from paraembed.late import Late
from paraembed.plots import Panel, Series, bars
from paraembed.text.bigrams import is_bigram
from paraembed.text.vocabulary import END, START, UNKNOWN

if TYPE_CHECKING:
    from paraembed.encoders import Encoder, averages
else:
    averages = Late("paraembed.encoders.averages")

WIETING_2016 = ("unlike", "2", "ladies", "lookin", "disagree")
"""Words of the paper's table."""
MOST_COMMON = 10_000
"""Number of words to search: the first ones of the vocabulary, since word-vector files are ordered by frequency (the
paper: 10,000).
"""
NUM_NEIGHBORS = 7
NUM_WORDS = 20
_DEFAULT_WORDS = 10

Matrix = npt.NDArray[np.float32]


def common_words(encoder: "Encoder") -> tuple[list[str], Matrix]:
    """Return the most common words of an encoder, [k], and their vectors [k, D], without <unk>, BOS and EOS."""
    first = encoder.vocabulary.slice(0, MOST_COMMON + 3)
    words, is_word = first.to_pylist(), ~is_bigram(first)
    rows = [row for row, word in enumerate(words) if is_word[row] and word not in {UNKNOWN, START, END}][:MOST_COMMON]
    return [words[row] for row in rows], averages.vectors_of(encoder)[rows]


def nearest(vectors_KD: Matrix, matrix_VD: Matrix, count: int) -> tuple[npt.NDArray[np.int64], Matrix]:
    """Return the rows most similar to each vector and their cosines, [K, count]; ties go to the lowest row.

    A zero row or a zero vector has cosine 0 with everything.
    """
    cosines_KV = unit_rows(vectors_KD) @ unit_rows(matrix_VD).T
    rows = np.argsort(-cosines_KV, axis=1, kind="stable")[:, :count]
    return rows, np.take_along_axis(cosines_KV, rows, axis=1)


def default_words(vocabulary: Sequence[str]) -> list[str]:
    """Return the paper's words that are in a vocabulary, by frequency, then common words, ten in all."""
    known = set(vocabulary)
    chosen = [word for word in WIETING_2016 if word in known]
    letters = [word for word in vocabulary[100:2000] if word.isalpha() and len(word) > 3 and word not in chosen]
    missing = min(_DEFAULT_WORDS - len(chosen), len(letters))
    return chosen + [letters[index] for index in np.linspace(0, len(letters) - 1, missing, dtype=int)]


def neighbors(inputs: AnalysisInputs) -> Content:
    """Find the nearest neighbors of words in the vector space of each candidate."""
    encoders = inputs.encoders()
    wanted = [word.lower() for word in inputs.options.neighbors_of] or default_words(common_words(encoders[0][1])[0])
    columns = [_neighbors_of(encoder, wanted) for _, encoder in encoders]
    text = (
        f"Words sorted by the cosine of their vectors, among the {MOST_COMMON:,} first words of the vocabulary, whose "
        "order is mostly that of frequency. `neighbors_of` asks for other words."
    )
    head = ("word", *(label for label, _ in encoders))
    return Content(text, (AnalysisTable("", "", head, tuple(zip(wanted, *columns, strict=True))),))


def norms(inputs: AnalysisInputs) -> Content:
    """Find the longest and the shortest word vectors of each candidate."""
    tables: list[AnalysisTable] = []
    panels = []
    for label, encoder in inputs.encoders():
        words, matrix = common_words(encoder)
        if len(words) < 2:
            continue
        lengths = np.linalg.norm(matrix.astype(np.float64), axis=1)
        order = np.argsort(-lengths, kind="stable")
        count = min(NUM_WORDS, len(order) // 2)
        longest, shortest = order[:count].tolist(), order[::-1][:count].tolist()
        rows = tuple(
            (words[high], float(lengths[high]), words[low], float(lengths[low]))
            for high, low in zip(longest, shortest, strict=True)
        )
        number = len(tables)
        tables.append(AnalysisTable(f"-{number + 1}", label, ("longest", "norm", "shortest", "norm "), rows, 3))
        ends = longest + shortest[::-1]
        series = [Series("", lengths[ends])]
        panels.append(Panel(label, series, [words[index] for index in ends], float(np.median(lengths)), number))
    if not tables:
        raise CannotMakeError("no vocabulary has two or more words; add an encoder")
    text = (
        f"L2 norms of the {MOST_COMMON:,} first words of the vocabulary. In an average a long vector weighs more: the "
        "paper found information-bearing words at one end and function words at the other. The line is the median."
    )
    return Content(text, tuple(tables), bars(panels, "L2 norm", horizontal=True))


def _neighbors_of(encoder: "Encoder", wanted: list[str]) -> list[str]:
    words, common = common_words(encoder)
    matrix = averages.vectors_of(encoder)
    known = pc.index_in(pa.array(wanted, pa.string()), encoder.vocabulary).to_pylist()
    cells = []
    for word, row in zip(wanted, known, strict=True):
        if row is None:
            cells.append("not in the vocabulary")
            continue
        rows, cosines = nearest(matrix[row : row + 1], common, NUM_NEIGHBORS + 1)
        near = [(words[index], cosine) for index, cosine in zip(rows[0].tolist(), cosines[0].tolist(), strict=True)]
        others = [f"{other} {cosine:.2f}" for other, cosine in near if other != word]
        cells.append(", ".join(others[:NUM_NEIGHBORS]))
    return cells
