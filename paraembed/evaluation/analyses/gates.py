"""Opening of a GRAN's gate by word, part of speech and dependency label (Wieting 2017 tables 9 to 11)."""

import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from paraembed.encoders import Encoder
from paraembed.encoders.gran import Gran
from paraembed.encoders.lstm import Recurrent
from paraembed.encoders.packed import PackedTokens, pack, project_words
from paraembed.evaluation.analyses.content import AnalysisInputs, AnalysisTable, CannotMakeError, Content
from paraembed.evaluation.measures import Vector
from paraembed.io.lines import read_text
from paraembed.plots import Panel, Series, bars
from paraembed.text.ragged import Ragged
from paraembed.text.tokens import tokens_of
from paraembed.text.vocabulary import unknown_row, word_ids

NUM_SHOWN = 15
LEAST_TOKENS = 10
"""Minimum number of occurrences of a word, tag or label."""
MOST_TEXTS = 10_000
"""Maximum number of texts to read for the words, evenly spaced over the scored texts; the paper's number of
sentences.
"""
_AT_ONCE = 16_384  # tokens
_HEAD = ("mean L1 norm", "tokens")
_COLUMNS = 10  # of CoNLL-U: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC
_NO_WORD = re.compile(r"\d+[-.]\d+")  # a multiword token, an empty node
_EXPECTED = "expected CoNLL-U (10 columns), or two or three: token, tag, dependency label"


@dataclass(frozen=True)
class TaggedSentences:
    """n sentences; sentence i is ``tokens[offsets[i]:offsets[i + 1]]``, with tags and labels in the same range."""

    tokens: pa.StringArray  # tokens [T] of all sentences
    tags: tuple[str, ...]  # part of speech of each token [T]: CoNLL-U's XPOS if the file has it, else UPOS
    labels: tuple[str, ...]  # dependency label of each token [T]; empty without labels
    offsets: npt.NDArray[np.int64]  # int64 [n + 1]


def read_tagged(path: Path) -> TaggedSentences:
    """Read a file of tagged sentences, plain or compressed.

    In CoNLL-U, comments, multiword tokens (``3-4``) and empty nodes (``3.1``) are skipped. Raise ValueError, with file
    and line, if a line has neither format, or the file has no tokens.
    """
    rows: list[tuple[str, str, str]] = []
    ends = [0]
    width = 0
    for number, line in enumerate(read_text(path), start=1):
        if not line.strip(" "):
            ends.append(len(rows))
            continue
        cells = line.split("\t")
        if line.startswith("#") and (width == _COLUMNS or len(cells) not in {2, 3}):
            continue  # a comment; the token # has as many columns as the others
        width = width or len(cells)
        if len(cells) != width or width not in {2, 3, _COLUMNS}:
            _reject(path, number, f"{len(cells)} columns")
        if width == _COLUMNS and not cells[0].isdigit():
            if not _NO_WORD.fullmatch(cells[0]):
                _reject(path, number, f"the ID is {cells[0][:20]!r}")
            continue
        token, tag, label = _fields(cells)
        if not token.strip() or not tag.strip():
            _reject(path, number, "no token" if not token.strip() else "no tag")
        rows.append((token, tag, label))
    if not rows:
        raise ValueError(f"{path} has no tokens; {_EXPECTED}")
    tokens, tags, labels = zip(*rows, strict=True)
    has_labels = any(label != "_" for label in labels)
    offsets = np.unique([*ends, len(rows)]).astype(np.int64)
    return TaggedSentences(pa.array(tokens, pa.string()), tags, labels if has_labels else (), offsets)


class Mean(NamedTuple):
    """Mean gate of the tokens of one kind."""

    name: str
    norm: float
    num_tokens: int


def has_gate(encoder: Encoder) -> bool:
    """Return whether an encoder is a GRAN with a gate."""
    composition = encoder.composition
    return (
        isinstance(composition, Recurrent)
        and isinstance(composition.reader, Gran)
        and composition.reader.form not in {"tanh", "relu"}
    )


@torch.inference_mode()
def gate_norms(encoder: Encoder, texts: Ragged) -> Vector:
    """Return the L1 norm of the gate at each token, [T], between 0 and D; for ``bigran`` the mean of both directions.

    For a GRAN with two gates (gran3, gran4, gran5), this is the gate on the word. The texts are not empty, and without
    BOS/EOS tokens, which are added here.
    """
    cuts = np.searchsorted(texts.offsets, np.arange(0, len(texts.ids), _AT_ONCE))
    bounds = np.unique([*cuts, len(texts)]).tolist()
    parts = [_norms(encoder, texts.slice(start, stop)) for start, stop in pairwise(bounds)]
    return np.concatenate([np.zeros(0), *parts])


def by_kind(kinds: Sequence[str], norms: Vector, least: int = LEAST_TOKENS) -> list[Mean]:
    """Return the mean norm [T] of each kind of token, descending, without kinds of fewer than ``least`` tokens."""
    names, numbers = np.unique(np.array(kinds, object), return_inverse=True)
    counts = np.bincount(numbers)
    means = np.bincount(numbers, norms) / counts
    order = sorted(np.flatnonzero(counts >= least).tolist(), key=lambda index: (-means[index], names[index]))
    return [Mean(str(names[index]), float(means[index]), int(counts[index])) for index in order]


def gates(inputs: AnalysisInputs) -> Content:
    """Analyze the gates of each GRAN: by word of the scored texts, by tag and label of the tagged file."""
    encoders = inputs.encoders()
    grans = [(label, encoder) for label, encoder in encoders if has_gate(encoder)]
    if not grans:
        names = ", ".join(sorted({encoder.config.name for _, encoder in encoders}))
        raise CannotMakeError(f"the encoders are {names}, but only a GRAN has gates; add a GRAN encoder")
    tagged = None if inputs.options.tagged is None else read_tagged(inputs.options.tagged)
    texts = pc.unique(pa.chunked_array([texts for suite in inputs.suites for texts in suite.texts], pa.string()))
    texts = texts.take(pa.array(np.arange(0, len(texts), -(-len(texts) // MOST_TEXTS))))
    tables, panels = [], []
    for number, (label, encoder) in enumerate(grans, start=1):
        words = tokens_of(texts, encoder.tokenizer, encoder.vocabulary)
        means = _means(encoder, words.flat, words.offsets, words.flat.to_pylist())
        kinds = [("words", "word", f"{label}: words", _ends(means))]
        if tagged is not None:
            tokens = pc.utf8_lower(tagged.tokens)
            for slug, head, of_tokens in _tags(tagged):
                means = _means(encoder, tokens, tagged.offsets, of_tokens)
                kinds.append((slug, head, f"{label}: by {head}", means))
        for slug, head, title, means in kinds:
            rows = means
            if slug == "tags-and-labels":  # every tag with each of its labels: the paper's tables 10 and 11 are two
                rows = sorted(means, key=lambda mean: mean.name.split()[0])
            elif rows:
                ends = _ends(means)
                series = [Series("", [mean.norm for mean in ends])]
                panels.append(Panel(title, series, [mean.name for mean in ends]))
            if rows:
                tables.append(AnalysisTable(f"-{slug}-{number}", title, (head, *_HEAD), tuple(rows)))
    if not tables:
        raise CannotMakeError(f"no known word occurs {LEAST_TOKENS} times in the scored texts; add `suite` sts")
    text = (
        "Mean L1 norm of the gate on a token (of a GRAN with two gates, of that on the word): how much of a word goes "
        f"into the average, at most the width. The {NUM_SHOWN} widest and the {NUM_SHOWN} narrowest of those "
        f"that occur {LEAST_TOKENS} times or more; words are those of the texts that were scored. "
    ) + (
        "Tags and dependency labels are those of `tagged`."
        if tagged is not None
        else "By part of speech and dependency label: give `tagged` FILE, such as a CoNLL-U treebank."
    )
    return Content(text, tuple(tables), bars(panels, "mean L1 norm of the gate", horizontal=True))


def _norms(encoder: Encoder, texts: Ragged) -> Vector:
    composition = encoder.composition
    if encoder.identity:  # the encoder may be on a GPU, or have 16-bit numbers
        composition = deepcopy(composition).float().cpu()
    assert isinstance(composition, Recurrent)
    bounded = encoder.with_boundaries(texts)
    offsets, ids_T = torch.from_numpy(bounded.offsets), torch.from_numpy(bounded.ids)
    matrix = encoder.matrix.float().cpu()
    norms = []
    for reader, backward in ((composition.reader, False), (composition.reader_back, True)):
        if not isinstance(reader, Gran):
            continue  # not a bigran
        packed = pack(offsets, matrix.device, backward=backward)
        norms.append(_gates(reader, matrix, ids_T[packed.tokens], packed).sum(dim=1)[packed.slots].double().numpy())
    extra = len(bounded.ids) - len(texts.ids)
    each, has_start = extra // len(texts), encoder.bos_eos_tokens in {"start", "both"}
    inner = np.arange(len(texts.ids)) + np.repeat(each * np.arange(len(texts)) + has_start, texts.lengths)
    mean: Vector = np.mean(norms, axis=0)[inner]
    return mean


def _gates(reader: Gran, matrix: Tensor, ids_P: Tensor, packed: PackedTokens) -> Tensor:
    """Return the gate on the word, or the only gate, for each slot, [P, D]: between 0 and 1."""
    states_PD = reader.lstm(matrix, ids_P, packed)
    logits_PG = project_words(matrix, ids_P, reader.input_weight, reader.bias) + states_PD @ reader.state_weight.t()
    if reader.sum_weight is not None:  # gran4: the gates see the sum before
        sums_PD = reader(matrix, ids_P, packed)
        logits_PG[packed.sizes[0] :] += packed.before(sums_PD) @ reader.sum_weight.t()
    gates_PG: Tensor = logits_PG.sigmoid()
    is_on_sum = reader.form in {"gran3", "gran4"}  # the first gate
    return gates_PG[:, reader.width :] if is_on_sum else gates_PG[:, : reader.width]


def _means(
    encoder: Encoder, tokens: pa.StringArray, offsets: npt.NDArray[np.int64], kinds: Sequence[str]
) -> list[Mean]:
    """Return mean gates by kind of token; tokens without a vector are skipped."""
    texts = Ragged(word_ids(tokens, encoder.vocabulary), offsets)
    filled = np.flatnonzero(texts.lengths > 0)
    norms = gate_norms(encoder, texts.take(filled))
    known = texts.ids != unknown_row(encoder.vocabulary)
    return by_kind([kind for kind, is_known in zip(kinds, known, strict=True) if is_known], norms[known])


def _tags(tagged: TaggedSentences) -> list[tuple[str, str, list[str]]]:
    """Return the kinds of tokens: part of a file name, column name, and the kind of each token [T]."""
    kinds = [("tags", "tag", list(tagged.tags))]
    if tagged.labels:
        both = [f"{tag} {label}" for tag, label in zip(tagged.tags, tagged.labels, strict=True)]
        kinds += [("labels", "dependency label", list(tagged.labels)), ("tags-and-labels", "tag and label", both)]
    return kinds


def _ends(means: list[Mean]) -> list[Mean]:
    """Return the kinds with the widest and the narrowest gates."""
    return means if len(means) <= 2 * NUM_SHOWN else means[:NUM_SHOWN] + means[-NUM_SHOWN:]


def _fields(cells: list[str]) -> tuple[str, str, str]:
    """Return token, tag and label of a line; ``_`` for a missing label."""
    if len(cells) == _COLUMNS:
        return cells[1], cells[3] if cells[4] == "_" else cells[4], cells[7]
    return cells[0], cells[1], cells[2] if len(cells) > 2 else "_"


def _reject(path: Path, line: int, what: str) -> NoReturn:
    raise ValueError(f"{path}, line {line}: {what}; {_EXPECTED}; correct or delete the line")
