"""Estimate the time of each stage of teaching, from two seconds of embedding and one product of the regression."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from paraembed.console import doing, duration, print_table, say
from paraembed.distillation.device_matrix import DeviceMatrix
from paraembed.distillation.ridge import columns_of_task, frequencies
from paraembed.distillation.stages import StudentRequest, of_both, opened, sums_states
from paraembed.distillation.texts import Pieces, frequent_bigrams, num_pairs, read_texts
from paraembed.distillation.token_states import SummingTeacher
from paraembed.embedding.estimate import estimate, workers_of
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from paraembed.loading import Fetch
from paraembed.settings import DEFAULT_GPUS, Gpus, check_workers
from paraembed.text.bigrams import Bigrams
from paraembed.text.tokenize import tokenize
from paraembed.text.tokens import TokenIds, as_strings
from paraembed.text.vocabulary import UNKNOWN
from paraembed.training.pairs import num_steps

_SAMPLE_TEXTS = 32_768
_MORE_PRODUCTS = 4  # The regression computes these besides its steps: sums, diagonal, errors.
_PAIRS_PER_SECOND, _MEASURED_WIDTH = 5200, 384  # Measured in docs/teach.md: 3 epochs of 260,618 pairs in 2.5 minutes.


def dry_run(
    request: StudentRequest, *, workers: int = 2, gpus: Gpus = DEFAULT_GPUS, fetch: Fetch | None = None
) -> dict[str, Any]:
    """Print what each stage takes, and on which processors; nothing is written. Return the numbers of texts and pairs,
    and the seconds of the stages that take long; for `units` both, of each student.

    The times of the teacher and of the regression are measured, with two seconds of embedding and one product. That of
    the training is not: it assumes 5,200 pairs/s at 384 dimensions.

    Raises:
        FileNotFoundError, ValueError: the same errors as ``teach``.
    """
    check_workers(workers)
    if request.settings.units == "both":
        both = {}
        for units, of_units in of_both(request).items():
            say(f"the student of units {units}:")
            both[units] = dry_run(of_units, workers=workers, gpus=gpus, fetch=fetch)
        return both
    teacher, pieces, files = opened(request, gpus, fetch)
    embedders, gpu_share = workers_of(teacher, workers, gpus)
    device, count = ("cuda", gpus.gpus or 1) if gpu_share else (None, workers)
    driver, cpus, used = _processors(1, None), _processors(workers, None), _processors(count, device)
    doing("embedding a sample with the teacher")
    columns = request.text_columns
    plan = make_plan(files, Settings(text_column=columns[0] if columns else None))
    with TemporaryDirectory() as sums:
        expected = estimate(SummingTeacher(teacher, Path(sums)) if sums_states(teacher) else teacher, plan)
    rows = expected.rows * max(1, len(columns))
    rate = max(embedders * expected.rows_per_second, 1e-9)
    doing("computing a product of the regression")
    slices, seconds = _slices(files, request, pieces, teacher.width, device)
    steps = request.settings.steps
    ridge = -(-slices // count) * (steps + _MORE_PRODUCTS) * rows * seconds
    numbers, times = {"texts": rows}, {"vectors": rows / rate, "ridge": ridge}
    alone = ("the units", used, "–")
    if pieces is not None:
        times["alone"] = len(pieces.alone) / rate
        alone = f"{len(pieces.alone):,}", used, duration(times["alone"])
    lines = [
        (f"texts, units{'' if request.settings.bigrams is None else ', bigrams'}", f"{rows:,}", driver, "–"),
        ("vectors", f"at most {rows:,}", used, f"{duration(rows / rate)} ({rate:,.0f} texts/s)"),
        *([("states", "from the same pass", used, "–")] if sums_states(teacher) else []),
        ("alone", *alone),
        ("prior", "the units", driver, "–"),
        ("ridge", f"{slices} slices, {steps} steps", used, duration(ridge)),
    ]
    if request.pairs is not None:
        pairs, recipe = num_pairs(request.pairs), request.training
        rate = _PAIRS_PER_SECOND * _MEASURED_WIDTH / teacher.width
        numbers["pairs"], times["trained"] = pairs, recipe.epochs * pairs / rate
        expected_time = f"{duration(times['trained'])} (assumes {rate:,.0f} pairs/s)"
        lines += [
            ("pairs, shards", f"{pairs:,}", cpus, "–"),
            ("start, trained", f"{recipe.epochs * num_steps(pairs, recipe.batch_size):,} steps", driver, expected_time),
        ]
    lines.append(("student", "the units", driver, "–"))
    print_table(("stage", "rows", "on", "estimated time"), lines)
    say(f"texts/s: {expected.basis}, by one worker on this machine")
    return {**numbers, "seconds": times}


def _processors(count: int, device: str | None) -> str:
    return f"{count} {'GPU' if device else 'CPU'}" + ("s" if count > 1 else "")


def _slices(
    files: tuple[InputFile, ...], request: StudentRequest, pieces: Pieces | None, width: int, device: str | None
) -> tuple[int, float]:
    """Return the number of slices of the regression, and the measured seconds per text of a product AᵀA X."""
    texts = next(read_texts(files, request.text_columns), pa.array([], pa.string())).slice(0, _SAMPLE_TEXTS)
    if pieces is None:
        words = tokenize(as_strings(texts), request.settings.tokenizer).flat.unique()
        to_ids = TokenIds(pa.concat_arrays([words, pa.array([UNKNOWN])]), request.settings.tokenizer)
    else:
        to_ids = TokenIds(pieces.vocabulary, pieces.tokenizer)
    ids, size = to_ids(texts), len(to_ids.vocabulary)
    num_units = None
    if request.settings.bigrams is not None:
        # The rarest ones of the sample represent those of the other texts.
        bigrams, _ = frequent_bigrams(ids, to_ids.vocabulary, 1)
        vocabulary, num_units = pa.concat_arrays([to_ids.vocabulary, bigrams]), size
        ids, size = Bigrams(vocabulary)(ids), len(vocabulary)
    A: Any = frequencies(ids.ids, ids.offsets, size, num_units)
    columns = min(width, columns_of_task(size, device))
    matrix: Any = np.ones((size, columns))
    if device is not None:
        A, matrix = DeviceMatrix.of(A, device), torch.tensor(matrix, device=device)
    started = 0.0
    for _ in range(2):  # the first product also loads the kernels of a GPU
        started = time.perf_counter()
        float((A.T @ (A @ matrix)).sum())  # waits for a GPU
    return -(-width // columns), (time.perf_counter() - started) / max(1, len(texts))
