"""Benchmark of the part of a training step that depends on the encoder: look up words, compose, backpropagate.

Words are drawn from Zipf's law and text lengths from a Poisson distribution, so words repeat within a step as in real
text.
"""

import time
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import brentq

from infra.bench.command import Encoders
from infra.bench.generated import ZIPF, draw_texts, draw_words, word_chances
from infra.bench.rounds import Program, Result, Round, measure, show_table
from paraembed.console import say
from paraembed.encoders import ENCODERS, AnyConfig, Encoder, config_from_dict
from paraembed.text.ragged import Ragged
from paraembed.training.update import distinct

BASELINE = "lstm_avg"
NATIVE = f"{BASELINE} (torch.nn.LSTM)"
"""The same encoder without peepholes, on torch's kernels."""
VOCABULARY = 40_000
ROUND_SECONDS = 0.1
"""Minimum duration of a round; a step of ``avg`` takes a millisecond."""


def run(options: Encoders, _: object) -> dict[str, Any]:
    """Measure, print the table, return the numbers."""
    chosen = _configurations(options)
    torch.set_num_threads(options.threads)
    words, batches = draw_words(VOCABULARY, options.width, options.seed), draw_batches(options)
    parameters: dict[str, int] = {}

    def start(name: str, config: AnyConfig) -> Program:
        encoder = Encoder(config, words, "space", options.seed).to(torch.device(options.device))
        parameters[name] = sum(parameter.numel() for parameter in encoder.composition.parameters())
        _round(encoder, batches[0])
        texts = cycle(batches)
        return Program(name, lambda: _round(encoder, next(texts)))

    results = measure({name: partial(start, name, config) for name, config in chosen.items()}, options.rounds)

    def ratio(result: Result) -> str:
        return f"{result.seconds / results[BASELINE].seconds:.3f}" if BASELINE in results else "-"

    columns = {
        "ms/step": lambda result: f"{result.seconds * 1000:.2f}",
        "pairs/s": lambda result: f"{options.batch_size * result.rate:,.0f}",
        "parameters": lambda result: f"{parameters[result.name]:,}",
        f"× {BASELINE}": ratio,
    }
    show_table("encoder", results.values(), columns)
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, threads: {options.threads}"
    say(f"forward and backward, median of {options.rounds} rounds; torch {torch.__version__}, {where}")
    numbers = [
        {
            "encoder": name,
            "milliseconds": [1000 * round_.seconds / round_.steps for round_ in result.rounds],
            "parameters": parameters[name],
        }
        for name, result in results.items()
    ]
    return {"settings": options.settings() | {"torch": torch.__version__, "device": where}, "encoders": numbers}


def draw_batches(options: Encoders) -> list[Ragged]:
    """Return the texts of each round; raise ValueError if a step cannot hold so many distinct words."""
    texts, exponent = 2 * options.batch_size, ZIPF
    tokens, wanted = texts * options.mean_tokens, options.distinct_words
    if wanted is not None:
        if wanted >= (most := _expected_distinct(0, tokens)):
            raise ValueError(
                f"distinct_words is {wanted}, but {tokens:,.0f} tokens per step contain fewer than {most:,.0f}; give "
                "fewer"
            )
        exponent = brentq(lambda power: _expected_distinct(power, tokens) - wanted, 0, 50, xtol=1e-4)
    chances = word_chances(VOCABULARY, exponent)
    return [draw_texts(texts, options.mean_tokens, chances, options.seed, number) for number in range(options.rounds)]


def _configurations(options: Encoders) -> dict[str, AnyConfig]:
    """Return configurations with their default options, by name of the row."""
    chosen: dict[str, AnyConfig] = {}
    for name in options.encoders or ENCODERS:
        chosen[name] = config_from_dict({"name": name})
        if name == BASELINE:
            chosen[NATIVE] = config_from_dict({"name": name, "peepholes": False})
    return chosen


def _expected_distinct(exponent: float, tokens: float) -> float:
    """Return the mean number of distinct words in ``tokens`` draws."""
    return float(-np.expm1(tokens * np.log1p(-np.minimum(word_chances(VOCABULARY, exponent), 1 - 1e-12))).sum())


def _round(encoder: Encoder, batch: Ragged) -> Round:
    seen = np.zeros(VOCABULARY, np.int32)
    start, cpu_start, steps, seconds = time.perf_counter(), time.process_time(), 0, 0.0
    while seconds < ROUND_SECONDS:
        _step(encoder, batch, seen)
        if encoder.matrix.is_cuda:
            torch.cuda.synchronize(encoder.matrix.device)
        steps, seconds = steps + 1, time.perf_counter() - start
    return Round(steps, seconds, time.process_time() - cpu_start)


def _step(encoder: Encoder, batch: Ragged, seen: npt.NDArray[np.int32]) -> None:
    """Run a step: distinct rows, composition, sum of squares as the loss, gradients."""
    device = encoder.matrix.device
    rows, local = distinct(batch.ids, seen)
    rows_R = torch.from_numpy(rows).to(device, torch.int64)
    leaf_RD = encoder.matrix.detach().index_select(0, rows_R).requires_grad_()
    vectors_NH = encoder.compose(leaf_RD, torch.from_numpy(local).to(device), batch)
    vectors_NH.square().sum().backward()  # type: ignore[no-untyped-call]
    encoder.zero_grad()
