"""How far a GRAN opens its gate: by word, by part of speech, by dependency label (Wieting 2017 tables 9 to 11)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from paraembed.encoders import Encoder, encoder_name
from paraembed.encoders.gran import Gran
from paraembed.encoders.lstm import BiRecurrent, Recurrent
from paraembed.encoders.packed import Packed, pack, project_words
from paraembed.evaluation.analyses.content import CannotMakeError, Content, Heading, Inputs, Table
from paraembed.evaluation.analyses.drawing import PUBLISHED, colour, new_figure, plain_text, shortened, tidy, to_png
from paraembed.evaluation.analyses.tagged import TaggedSentences, read_tagged
from paraembed.evaluation.correlation import Vector
from paraembed.ragged import Ragged
from paraembed.text import tokenise
from paraembed.words import unknown_row, word_ids

HEADING = Heading("gates", "Gates of a GRAN", "Wieting 2017, tables 9 to 11")
NUM_SHOWN = 15
LEAST_TOKENS = 10
"""A word, tag or label that occurs less often is left out."""
MOST_TEXTS = 10_000
"""Read for the words, evenly over what was scored; the paper's number of sentences."""
_AT_ONCE = 16_384  # tokens


@dataclass(frozen=True)
class Mean:
    """Mean gate of the tokens of one kind."""

    name: str
    norm: float
    num_tokens: int


def has_gate(encoder: Encoder) -> bool:
    """Whether an encoder is a GRAN with a gate."""
    composition = encoder.composition
    return (
        isinstance(composition, Recurrent | BiRecurrent)
        and isinstance(composition.reader, Gran)
        and composition.reader.form not in {"tanh", "relu"}
    )


@torch.inference_mode()
def gate_norms(encoder: Encoder, texts: Ragged) -> Vector:
    """L1 norm of the gate on each token, [T], between 0 and D; of ``bigran`` the mean of both directions'.

    Where a GRAN has two gates (gran3, gran4, gran5), it is the one on the word.

    Args:
        encoder: one that ``has_gate``.
        texts: none of them empty, without boundary tokens, which are put around them here.
    """
    cuts = np.searchsorted(texts.offsets, np.arange(0, len(texts.ids), _AT_ONCE))
    bounds = np.unique([*cuts, len(texts)]).tolist()
    parts = [_norms(encoder, texts.slice(start, stop)) for start, stop in pairwise(bounds)]
    return np.concatenate([np.zeros(0), *parts])


def by_kind(kinds: Sequence[str], norms: Vector, least: int = LEAST_TOKENS) -> list[Mean]:
    """Mean norm [T] of each kind of token, the widest gate first; kinds of fewer than ``least`` tokens are left out."""
    names, numbers = np.unique(np.array(kinds, object), return_inverse=True)
    counts = np.bincount(numbers)
    means = np.bincount(numbers, norms) / counts
    order = sorted(np.flatnonzero(counts >= least).tolist(), key=lambda at: (-means[at], names[at]))
    return [Mean(str(names[at]), float(means[at]), int(counts[at])) for at in order]


def make(inputs: Inputs) -> Content:
    """Gates of each GRAN among the candidates: by word of what was scored, and by tag and label of the tagged file."""
    found = [(label, encoder) for label, encoder in inputs.encoders() if has_gate(encoder)]
    if not found:
        names = ", ".join(sorted({encoder_name(encoder.config) for _, encoder in inputs.encoders()}))
        raise CannotMakeError(f"the encoders are {names}; only a GRAN has gates")
    tagged = None if inputs.options.tagged is None else read_tagged(inputs.options.tagged)
    texts = pc.unique(pa.chunked_array([texts for suite in inputs.suites for texts in suite.texts], pa.string()))
    texts = texts.take(pa.array(np.arange(0, len(texts), -(-len(texts) // MOST_TEXTS))))
    tables: list[Table] = []
    panels: list[tuple[str, list[Mean]]] = []
    for number, (label, encoder) in enumerate(found, start=1):
        words = tokenise(texts, encoder.tokeniser)
        means = _means(encoder, words.flat, words.offsets, words.flat.to_pylist())
        if means:
            tables.append(_table(f"{HEADING.name}-words-{number}", f"{label}: words", "word", _ends(means)))
            panels.append((f"{label}: words", means))
        if tagged is not None:
            tables += _by_tags(f"{HEADING.name}-{{}}-{number}", label, encoder, tagged, panels)
    if not tables:
        raise CannotMakeError(
            f"no known word stands {LEAST_TOKENS} times in the texts that were scored; add --suite sts"
        )
    text = (
        "Mean L1 norm of the gate on a token (of a GRAN with two gates, of that on the word): how much of a word goes "
        f"into the average, at most the width. The {NUM_SHOWN} widest and the {NUM_SHOWN} narrowest of those "
        f"that stand there {LEAST_TOKENS} times or more; words are those of the texts that were scored. "
    ) + (
        "Tags and dependency labels are those of --tagged."
        if tagged is not None
        else "By part of speech and dependency label: give --tagged FILE, such as a CoNLL-U treebank."
    )
    return Content(text, tuple(tables), draw(panels))


@plain_text
def draw(panels: list[tuple[str, list[Mean]]]) -> bytes:
    """A PNG: a title and the mean gates, the widest first, of each panel."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    shown = [(title, _ends(means)) for title, means in panels]
    most = max(4, *(len(ends) for _, ends in shown))
    figure = new_figure(4.2 * columns, rows * (1.2 + 0.17 * most))
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (title, ends) in zip(grid.flat, shown, strict=False):
        norms = [mean.norm for mean in ends]
        axes.hlines(range(len(ends)), min(norms), norms, color=PUBLISHED, linewidth=0.8)
        axes.scatter(norms, range(len(ends)), color=colour(0), s=26)
        axes.set_yticks(range(len(ends)), [shortened(mean.name, 20) for mean in ends], fontsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_ylim(most - 0.5, -0.5)  # one distance between names in all panels
        if len(ends) == 2 * NUM_SHOWN:
            axes.axhline(NUM_SHOWN - 0.5, color="#000000", linewidth=0.8, linestyle=":")
        axes.set_xlabel("mean L1 norm of the gate", fontsize=9)
        tidy(axes, title, "x")
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    return to_png(figure)


def _norms(encoder: Encoder, texts: Ragged) -> Vector:
    composition = encoder.composition
    assert isinstance(composition, Recurrent | BiRecurrent)
    bounded = encoder.with_boundaries(texts)
    offsets, ids_T = torch.from_numpy(bounded.offsets), torch.from_numpy(bounded.ids)
    matrix = encoder.matrix.cpu()
    readers = [(composition.reader, False)]
    readers += [(composition.reader_back, True)] if isinstance(composition, BiRecurrent) else []
    norms = []
    for reader, backward in readers:
        assert isinstance(reader, Gran)
        packed = pack(offsets, matrix.device, backward=backward)
        norms.append(_gates(reader, matrix, ids_T[packed.tokens], packed).sum(dim=1)[packed.slots].double().numpy())
    extra = len(bounded.ids) - len(texts.ids)
    each, has_start = extra // len(texts), encoder.boundary_tokens in {"start", "both"}
    inner = np.arange(len(texts.ids)) + np.repeat(each * np.arange(len(texts)) + has_start, texts.lengths)
    mean: Vector = np.mean(norms, axis=0)[inner]
    return mean


def _gates(reader: Gran, matrix: Tensor, ids_P: Tensor, packed: Packed) -> Tensor:
    """The gate on the word, or the only one, of each slot, [P, D]: between 0 and 1."""
    states_PD = reader.lstm(matrix, ids_P, packed)
    logits_PG = project_words(matrix, ids_P, reader.input_weight, reader.bias) + states_PD @ reader.state_weight.t()
    if reader.sum_weight is not None:  # gran4: the gates see the sum before
        sums_PD = reader(matrix, ids_P, packed)
        logits_PG[packed.sizes[0] :] += packed.before(sums_PD) @ reader.sum_weight.t()
    gates_PG: Tensor = logits_PG.sigmoid()
    width = reader.width
    match reader.form:
        case "gran3" | "gran4":  # the first is on the sum
            return gates_PG[:, width:]
        case _:
            return gates_PG[:, :width]


def _means(
    encoder: Encoder, tokens: pa.StringArray, offsets: npt.NDArray[np.int64], kinds: Sequence[str]
) -> list[Mean]:
    """Mean gates by kind of token; a token without a vector is passed over."""
    texts = Ragged(word_ids(tokens, encoder.vocabulary), offsets)
    filled = np.flatnonzero(texts.lengths > 0)
    norms = gate_norms(encoder, texts.take(filled))
    known = texts.ids != unknown_row(encoder.vocabulary)
    return by_kind([kind for kind, is_known in zip(kinds, known, strict=True) if is_known], norms[known])


def _by_tags(
    name: str, label: str, encoder: Encoder, tagged: TaggedSentences, panels: list[tuple[str, list[Mean]]]
) -> list[Table]:
    """Tables by tag, by label and by both; the first two become panels, too."""
    tokens = pc.utf8_lower(tagged.tokens)
    kinds = [("tags", "tag", list(tagged.tags))]
    if tagged.labels:
        kinds.append(("labels", "dependency label", list(tagged.labels)))
        both = [f"{tag} {relation}" for tag, relation in zip(tagged.tags, tagged.labels, strict=True)]
        kinds.append(("tags-and-labels", "tag and label", both))
    tables = []
    for which, head, kind in kinds:
        means = _means(encoder, tokens, tagged.offsets, kind)
        if not means:
            continue
        # every tag with each of its labels: the paper's tables 10 and 11 are two of them
        shown = sorted(means, key=lambda mean: mean.name.split()[0]) if which == "tags-and-labels" else means
        tables.append(_table(name.format(which), f"{label}: by {head}", head, shown))
        if which != "tags-and-labels":
            panels.append((f"{label}: by {head}", means))
    return tables


def _ends(means: list[Mean]) -> list[Mean]:
    """The widest and the narrowest gates."""
    return means if len(means) <= 2 * NUM_SHOWN else means[:NUM_SHOWN] + means[-NUM_SHOWN:]


def _table(name: str, title: str, head: str, means: list[Mean]) -> Table:
    rows = tuple((mean.name, mean.norm, mean.num_tokens) for mean in means)
    return Table(name, title, (head, "mean L1 norm", "tokens"), rows)
