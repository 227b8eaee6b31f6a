"""Time the encoder's part of a training step, forward and backward: look up words, compose, backpropagate.

Words are drawn from Zipf's law and text lengths from a Poisson distribution, so words repeat within a step as in real
text.
"""

import time
from argparse import Namespace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from infra.bench.command import Add, count
from infra.bench.generated import draw_texts, draw_words, word_chances
from infra.bench.rounds import Log, Program, Round, measure, ratio, report, show_table
from paraembed.encoders import ENCODERS, Encoder, config_from_dict
from paraembed.text.ragged import Ragged
from paraembed.training.update import distinct

BASELINE = "lstm_avg"
NATIVE = f"{BASELINE} (torch.nn.LSTM)"
"""The same encoder without peepholes, on torch's kernels."""
PROGRAMS = {name: name for encoder in ENCODERS for name in ([encoder, NATIVE] if encoder == BASELINE else [encoder])}
VOCABULARY = 40_000
ROUND_SECONDS = 0.1
"""Minimum duration of a round; a step of ``avg`` takes a millisecond."""


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--batch-size", type=count, default=100, help="pairs a step")
    add("--width", type=count, default=300, help="width of word and text vectors")
    add("--mean-tokens", type=float, default=15.0, help="mean tokens of a text")
    add("--threads", type=count, default=1, help="threads of PyTorch")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="device of the step")


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Measure, print the table, return the numbers."""
    torch.set_num_threads(options.threads)
    words, chances = draw_words(VOCABULARY, options.width, options.seed), word_chances(VOCABULARY)
    sizes = 2 * options.batch_size, options.mean_tokens
    batches = [draw_texts(*sizes, chances, options.seed, number) for number in range(options.rounds)]
    parameters: dict[str, int] = {}

    def start(name: str) -> Program:
        config = {"name": BASELINE, "peepholes": False} if name == NATIVE else {"name": name}
        encoder = Encoder(config_from_dict(config), words, "space", options.seed).to(torch.device(options.device))
        parameters[name] = sum(parameter.numel() for parameter in encoder.composition.parameters())
        _round(encoder, batches[0])
        texts = iter(batches)
        return Program(name, lambda: _round(encoder, next(texts)))

    programs = measure({name: partial(start, name) for name in options.programs}, options.rounds, log, "steps")
    columns = {
        "ms/step": lambda program: f"{program.seconds * 1000:.2f}",
        "pairs/s": lambda program: f"{options.batch_size * program.rate:,.0f}",
        "parameters": lambda program: f"{parameters[program.name]:,}",
        f"× {BASELINE}": ratio(programs, dict.fromkeys(PROGRAMS, BASELINE)),
    }
    show_table("encoder", programs.values(), columns)
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, threads: {options.threads}"
    return report(options, programs, where) | {"parameters": parameters}


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
