"""Estimate the time of each stage of teaching, from two seconds of embedding and one product of the regression."""

import time

import numpy as np
import pyarrow as pa

from paraembed.console import doing, duration, print_table, say
from paraembed.distillation.ridge import COLUMNS, frequencies
from paraembed.distillation.stages import StudentRequest, of_both, opened
from paraembed.distillation.texts import Pieces, frequent_bigrams, num_pairs, read_texts
from paraembed.distillation.token_states import sums_states
from paraembed.embedding.estimate import estimate, warn_if_slow, workers_of
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
) -> None:
    """Print what each stage takes; nothing is written.

    The times of the teacher and of the regression are measured, with two seconds of embedding and one product. That of
    the training is not: it assumes 5,200 pairs/s at 384 dimensions.

    Raises:
        FileNotFoundError, ValueError: the same errors as ``teach``.
    """
    check_workers(workers)
    if request.settings.units == "both":
        for units, of_units in of_both(request).items():
            say(f"the student of units {units}:")
            dry_run(of_units, workers=workers, gpus=gpus, fetch=fetch)
        return
    teacher, pieces, files = opened(request, gpus, fetch)
    embedders, _ = workers_of(teacher, workers, gpus)
    warn_if_slow(teacher)
    doing("embedding a sample with the teacher")
    columns = request.text_columns
    expected = estimate(teacher, make_plan(files, Settings(text_column=columns[0] if columns else None)), embedders)
    rows = expected.rows * max(1, len(columns))
    rate = max(expected.rows_per_second, 1e-9)
    doing("computing a product of the regression")
    slices, steps = -(-teacher.width // COLUMNS), request.settings.steps
    products = -(-slices // workers) * (steps + _MORE_PRODUCTS)
    ridge = products * rows * _seconds_of_product(files, request, pieces)
    alone = ("the units", "–") if pieces is None else (f"{len(pieces.alone):,}", duration(len(pieces.alone) / rate))
    lines = [
        (f"texts, units{'' if request.settings.bigrams is None else ', bigrams'}", f"{rows:,}", "–"),
        ("vectors", f"at most {rows:,}", f"{duration(rows / rate)} ({rate:,.0f} texts/s)"),
        *([("states", "from the same pass", "–")] if sums_states(teacher) else []),
        ("alone", *alone),
        ("prior", "the units", "–"),
        ("ridge", f"{slices} slices, {steps} steps", duration(ridge)),
    ]
    if request.pairs is not None:
        pairs, recipe = num_pairs(request.pairs), request.training
        rate = _PAIRS_PER_SECOND * _MEASURED_WIDTH / teacher.width
        expected_time = f"{duration(recipe.epochs * pairs / rate)} (assumes {rate:,.0f} pairs/s)"
        lines += [
            ("pairs, shards", f"{pairs:,}", "–"),
            ("start, trained", f"{recipe.epochs * num_steps(pairs, recipe.batch_size):,} steps", expected_time),
        ]
    print_table(("stage", "rows", f"estimated time, {workers} workers"), [*lines, ("student", "the units", "–")])
    say(f"texts/s: {expected.basis}, by one worker on this machine")


def _seconds_of_product(files: tuple[InputFile, ...], request: StudentRequest, pieces: Pieces | None) -> float:
    """Return the seconds per text of a product AᵀA X of the regression, measured on some texts."""
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
    A = frequencies(ids.ids, ids.offsets, size, num_units)
    matrix = np.ones((A.shape[1], COLUMNS))
    started = time.perf_counter()
    A.T @ (A @ matrix)
    return (time.perf_counter() - started) / max(1, len(texts))
