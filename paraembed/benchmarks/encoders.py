"""Time of the part of a training step that the architecture decides: gather the words, compose, go back.

Words are drawn from Zipf's law and lengths from Poisson's, so that words repeat in a step as they do in text. The
encoders take turns, a round each, and the median over the rounds counts: what else runs then slows all of them alike.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import brentq

from paraembed.benchmarks.generated import ZIPF, draw_texts, draw_words, word_chances
from paraembed.checked import check_fields
from paraembed.encoders import ENCODERS, AnyConfig, Encoder, config_from_dict
from paraembed.encoders.base import MAX_WIDTH
from paraembed.ragged import Ragged
from paraembed.training.rows import distinct
from paraembed.words import Words

YARDSTICK = "lstm_avg"
"""The encoder that the others are compared with."""
NATIVE = f"{YARDSTICK} (torch.nn.LSTM)"
"""The same without peepholes, on torch's own kernels: shown beside it."""
VOCABULARY = 40_000
TURN_SECONDS = 0.1
"""A turn repeats its step for so long; one of ``avg`` is over in a millisecond."""


@dataclass(frozen=True)
class Workload:
    """What every encoder is given.

    Attributes:
        batch_size: Pairs a step.
        width: Width of word and text vectors.
        mean_tokens: Tokens a text, on average.
        distinct_words: Distinct words a step, on average; none: as many as in text, about 1,200 among 3,000 tokens.
        rounds: Times each encoder has its turn; the median counts.
        seed: Decides texts, word vectors and weights.
    """

    batch_size: int = 100
    width: int = 300
    mean_tokens: float = 15.0
    distinct_words: int | None = None
    rounds: int = 5
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        ranges: dict[str, tuple[float, float]] = {
            "batch_size": (1, 1_000_000),
            "width": (1, MAX_WIDTH),
            "mean_tokens": (1, 10_000),
            "distinct_words": (1, VOCABULARY),
            "rounds": (1, 1_000),
            "seed": (0, 2**63 - 1),
        }
        check_fields(self, ranges)
        tokens = self._tokens
        most = _expected_distinct(0, tokens)
        if self.distinct_words is not None and self.distinct_words >= most:
            raise ValueError(
                f"distinct_words is {self.distinct_words}; {tokens:,.0f} tokens a step hold fewer than {most:,.0f}"
            )

    @property
    def _tokens(self) -> float:
        return 2 * self.batch_size * self.mean_tokens

    def batches(self) -> list[Ragged]:
        """The texts of each round."""
        chances = word_chances(VOCABULARY, self._exponent())
        texts = 2 * self.batch_size
        return [draw_texts(texts, self.mean_tokens, chances, self.seed, turn) for turn in range(self.rounds)]

    def _exponent(self) -> float:
        if self.distinct_words is None:
            return ZIPF
        wanted = self.distinct_words
        exponent: float = brentq(lambda power: _expected_distinct(power, self._tokens) - wanted, 0, 50, xtol=1e-4)
        return exponent

    def words(self) -> Words:
        """Word vectors of a usual scale."""
        return draw_words(VOCABULARY, self.width, self.seed)


def _expected_distinct(exponent: float, tokens: float) -> float:
    """How many distinct words so many draws hold on average."""
    return float(-np.expm1(tokens * np.log1p(-np.minimum(word_chances(VOCABULARY, exponent), 1 - 1e-12))).sum())


@dataclass(frozen=True)
class Timing:
    """What was measured of one encoder.

    Attributes:
        encoder: name of the row.
        milliseconds: a step, each round, forward and backward.
        parameters: numbers the encoder learns besides the word vectors.
    """

    encoder: str
    milliseconds: tuple[float, ...]
    parameters: int

    @property
    def median(self) -> float:
        """Median over the rounds, ms."""
        return median(self.milliseconds)


def configurations(names: Sequence[str]) -> dict[str, AnyConfig]:
    """Encoders with their default options, by name of the row; all of them where no name is given.

    Raises:
        ValueError: unknown name, with those that are allowed.
    """
    chosen: dict[str, AnyConfig] = {}
    for name in names or ENCODERS:
        chosen[name] = config_from_dict({"name": name})
        if name == YARDSTICK:
            chosen[NATIVE] = config_from_dict({"name": name, "peepholes": False})
    return chosen


def measure(
    workload: Workload, names: Sequence[str], device: torch.device, report: Callable[[str], None]
) -> list[Timing]:
    """Time a step of encoders: distinct rows, composition, a sum of squares as the loss, gradients.

    Args:
        workload: what they are given.
        names: of the encoders; none: all.
        device: where.
        report: is told what is under way.

    Returns:
        One timing an encoder, in the order asked for.
    """
    chosen = configurations(names)
    words, batches = workload.words(), workload.batches()
    encoders: dict[str, Encoder] = {}
    for name, config in chosen.items():
        report(f"warming up {name}")
        encoders[name] = Encoder(config, words, "space", workload.seed).to(device)
        _turn(encoders[name], batches[0])
    taken: dict[str, list[float]] = {name: [] for name in encoders}
    for number, batch in enumerate(batches, 1):
        for name, encoder in encoders.items():
            report(f"round {number} of {len(batches)}: {name}")
            taken[name].append(_turn(encoder, batch))
    return [
        Timing(name, tuple(taken[name]), sum(one.numel() for one in encoder.composition.parameters()))
        for name, encoder in encoders.items()
    ]


def _turn(encoder: Encoder, batch: Ragged) -> float:
    """Milliseconds a step."""
    seen = np.zeros(VOCABULARY, np.int32)
    start, steps = time.perf_counter(), 0
    while True:
        _step(encoder, batch, seen)
        if encoder.matrix.is_cuda:
            torch.cuda.synchronize(encoder.matrix.device)
        steps += 1
        elapsed = time.perf_counter() - start
        if elapsed >= TURN_SECONDS:
            return elapsed / steps * 1000


def _step(encoder: Encoder, batch: Ragged, seen: npt.NDArray[np.int32]) -> None:
    device = encoder.matrix.device
    rows, local = distinct(batch.ids, seen)
    rows_R = torch.from_numpy(rows).to(device, torch.int64)
    leaf_RD = encoder.matrix.detach().index_select(0, rows_R).requires_grad_()
    vectors_NH = encoder.compose(leaf_RD, torch.from_numpy(local).to(device), batch)
    vectors_NH.square().sum().backward()  # type: ignore[no-untyped-call]
    encoder.zero_grad()


def table(timings: Sequence[Timing], batch_size: int) -> tuple[list[str], list[list[str]]]:
    """Head and rows for the terminal: time and pairs of a step, parameters, time in terms of the yardstick."""
    yardstick = next((one.median for one in timings if one.encoder == YARDSTICK), None)
    rows = [
        [
            one.encoder,
            f"{one.median:.2f}",
            f"{batch_size / one.median * 1000:,.0f}",
            f"{one.parameters:,}",
            "-" if yardstick is None else f"{one.median / yardstick:.3f}",
        ]
        for one in timings
    ]
    return ["encoder", "ms/step", "pairs/s", "parameters", f"× {YARDSTICK}"], rows
