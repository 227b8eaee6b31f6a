"""Teach a student on Ray, in stages: texts, units, the teacher's vectors, regression, training on pairs, student.

Each stage is a folder in the work folder. Its name ends with a digest of everything that decides its content, and it
appears when it is complete, so a stopped job resumes, and jobs with other settings share the stages that are equal.
"""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed import checkpoint
from paraembed.cluster.embed import embed, workers_of
from paraembed.cluster.session import ray_session, run_tasks
from paraembed.cluster.shard import shard_pairs
from paraembed.cluster.train import Training, train_model
from paraembed.console import doing, duration, print_table, say
from paraembed.distillation.ridge import COLUMNS, Normal, Regression, frequencies
from paraembed.distillation.settings import DEFAULT_TEACHING, STUDENT, TeachSettings, Units
from paraembed.distillation.states import SummingTeacher, read_states, sums_states, write_states
from paraembed.distillation.student import Matrix, principal, prior_of, with_rare_length, with_states
from paraembed.distillation.texts import (
    COUNT,
    PAIRS,
    RULE,
    TEXT,
    UNIT,
    VOCABULARY,
    Pieces,
    left_out,
    num_pairs,
    read_pieces,
    read_texts,
    write_pairs,
    write_texts,
    write_units,
)
from paraembed.embedding.estimate import estimate
from paraembed.embedding.inputs import InputFile, list_inputs
from paraembed.embedding.manifest import PLAN, read_run
from paraembed.embedding.output import Embeddings
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, Oov
from paraembed.encoders.foreign.sentence_transformers import SentenceTransformerEncoder
from paraembed.encoders.protocol import TextEncoder
from paraembed.encoders.tables import of_mean_length
from paraembed.export.concat import write_concat
from paraembed.io.atomic import SUCCESS, new_folder, work_folder, write_file, write_json
from paraembed.io.escape import markdown
from paraembed.io.fingerprint import digest_of, read_json, sha256_of
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.io.resume import is_same_work
from paraembed.io.store import Folder, is_there
from paraembed.loading import open_encoder
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import has_ptb_tokens, read_manifest
from paraembed.recipe import Recipe
from paraembed.settings import DEFAULT_GPUS, DEFAULT_INFERENCE, Gpus, Inference, Placement, check_workers
from paraembed.text import SUBWORD, WORDPIECE
from paraembed.text.ragged import Ragged
from paraembed.text.subword import contents_of
from paraembed.text.tokenize import tokenize
from paraembed.text.tokens import TokenIds, as_strings
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.text.wordpiece import occurring
from paraembed.tracking.fetch import fetch_encoder
from paraembed.tracking.runs import Run, send_left, tracked_run
from paraembed.training.data import Pairs
from paraembed.training.loop import check_num_pairs
from paraembed.training.pairs import num_steps

FORMAT = "paraembed-teach-1"
MANIFEST = "_manifest.json"  # no input of embed
_PRIOR = "prior.npy"
_DIGITS = 12
_DECIDES = "teacher, text or setting"
_NOT_IN_CARD = ("settings", "recipe")
_STAGES = (
    *("texts", "units", "pairs", "shards", "vectors", "states", "alone", "prior", "ridge", "start", "trained"),
    "student",
)
_OF_PAIRS = ("pairs", "shards", "start", "trained")
_OF_STUDENTS = {"encoder": AvgConfig(), "teacher_objective": "none", "bos_eos_tokens": "none", "new_words": "unknown"}
_OF_STUDENTS |= {"max_words": None, "max_tokens": None, "pair_weights": "none"}
"""Values of the recipe that keep the units as they are, and fit the pairs, of which only the texts are kept."""
_PART_ROWS = 10_000  # Rows in a part of the teacher's vectors; a stopped job loses the parts that it was writing.
# The seconds of each stage, by the name of its folder. Encoders do not record them, so that their bytes stay equal.
_SECONDS = "_seconds.json"
_SAMPLE_TEXTS = 32_768
_MORE_PRODUCTS = 4  # The regression computes these besides its steps: sums, diagonal, errors.
_PAIRS_PER_SECOND, _MEASURED_WIDTH = 5200, 384  # Measured in docs/teach.md: 3 epochs of 260,618 pairs in 2.5 minutes.


@dataclass(frozen=True)
class Request:
    """What decides a student.

    Attributes:
        teacher: name of the teacher, see ``open_encoder``.
        texts: input files, folders, globs or URIs.
        text_columns: columns with texts; empty for .txt files.
        leave_out: files of evaluation sets, whose texts are left out.
        pairs: folder of pair shards on which the result of the regression is trained; None: no training.
        recipe: recipe of this training.
        settings: settings of the student.
        inference: settings of the teacher.
        reading: limits on reading an input file.
    """

    teacher: str
    texts: Sequence[str]
    text_columns: tuple[str, ...] = ()
    leave_out: tuple[Path, ...] = ()
    pairs: Path | None = None
    recipe: Recipe = STUDENT
    settings: TeachSettings = DEFAULT_TEACHING
    inference: Inference = DEFAULT_INFERENCE
    reading: TableLimits = DEFAULT_TABLE_LIMITS


def teach(
    request: Request, out: Path, work: Path, *, workers: int = 2, gpus: Gpus = DEFAULT_GPUS, overwrite: bool = False
) -> tuple[dict[str, Any], bool]:
    """Write a student of a teacher; the same call resumes.

    Args:
        request: what decides the student.
        out: encoder folder to write.
        work: folder of the stages, which is kept.
        workers: number of tasks at a time, one CPU each.
        gpus: GPUs of the teacher.
        overwrite: replace another encoder at ``out``.

    Returns:
        How the student was taught, as recorded in its folder, and whether it was finished before.

    Raises:
        FileNotFoundError, NotADirectoryError: an input is missing.
        ValueError: an input or setting cannot be used, ``out`` holds something else, or another job uses ``work``.
    """
    check_workers(workers)
    if request.settings.units == "both":
        return _teach_both(request, out, work, workers, gpus, overwrite)
    doing("reading the teacher")
    teacher = open_encoder(request.teacher, gpus.on(request.inference), fetch_encoder)
    pieces = None if request.settings.units == "word" else _pieces(teacher)
    doing("finding the texts")
    files = list_inputs(request.texts, request.reading)
    _check(request, teacher)
    before = _student_at(out)
    with work_folder(work):
        stages = _Stages(work, request, files, teacher, pieces, workers, gpus)
        earlier, now = ({_DECIDES: identity} for identity in (before.get("identity"), stages.student))
        if before and is_same_work(out, earlier, now, overwrite=overwrite):
            send_left(out)
            say(f"{out} is already finished; nothing to do")
            return before, True
        doing("starting Ray and MLflow")
        with tracked_run(f"teach {out.name}", out) as run, ray_session(workers):
            _describe(run, request, files, teacher, workers)
            record = stages.write_student(out)
            run.metrics({"units": record["units"], "texts": record["texts"], "explained": record["explained"]})
            seconds = stages.seconds()
            run.metrics({f"seconds/{name}": value for name, value in seconds.items()})
    print_table(("stage", "time"), [(name, duration(value)) for name, value in seconds.items()])
    return record, False


def _of_both(request: Request) -> dict[str, Request]:
    """Return the requests of the two students that become one encoder, by units."""
    units: tuple[Units, Units] = ("subword", "word")
    return {name: replace(request, settings=replace(request.settings, units=name)) for name in units}


def _teach_both(
    request: Request, out: Path, work: Path, workers: int, gpus: Gpus, overwrite: bool
) -> tuple[dict[str, Any], bool]:
    """Write a student of word pieces and one of words in ``work``, and both as one encoder; see ``teach``."""
    before = checkpoint.parts_of_concat(out) if checkpoint.is_concat(out) or not overwrite else []
    checkpoint.check_replaceable(out, overwrite=overwrite or bool(before))
    folders = [work / f"student-{units}" for units in _of_both(request)]
    record = dict[str, Any]()
    for folder, (units, of_units) in zip(folders, _of_both(request).items(), strict=True):
        is_part = (folder / "config.json").is_file() and checkpoint.read_config(folder)["fingerprint"] in before
        can_replace = overwrite or not is_part  # a part of `out` is refused here, before another one is taught
        record[units], _ = teach(of_units, folder, work, workers=workers, gpus=gpus, overwrite=can_replace)
    now = {units: checkpoint.read_config(folder)["fingerprint"] for units, folder in zip(record, folders, strict=True)}
    if before and is_same_work(out, dict(zip(record, before, strict=True)), now, overwrite=overwrite):
        say(f"{out} is already finished; nothing to do")
        return record, True
    write_concat(folders, out)
    return record, False


def dry_run(request: Request, *, workers: int = 2, gpus: Gpus = DEFAULT_GPUS) -> None:
    """Print what each stage takes; nothing is written.

    The times of the teacher and of the regression are measured, with two seconds of embedding and one product. That of
    the training is not: it assumes 5,200 pairs/s at 384 dimensions.

    Raises:
        FileNotFoundError, ValueError: the same errors as ``teach``.
    """
    check_workers(workers)
    if request.settings.units == "both":
        for units, of_units in _of_both(request).items():
            say(f"the student of units {units}:")
            dry_run(of_units, workers=workers, gpus=gpus)
        return
    doing("reading the teacher")
    teacher = open_encoder(request.teacher, gpus.on(request.inference), fetch_encoder)
    embedders, _ = workers_of(teacher, workers, gpus)
    pieces = None if request.settings.units == "word" else _pieces(teacher)
    _check(request, teacher)
    files = list_inputs(request.texts, request.reading)
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
        ("texts, units", f"{rows:,}", "–"),
        ("vectors", f"at most {rows:,}", f"{duration(rows / rate)} ({rate:,.0f} texts/s)"),
        *([("states", "from the same pass", "–")] if sums_states(teacher) else []),
        ("alone", *alone),
        ("prior", "the units", "–"),
        ("ridge", f"{slices} slices, {steps} steps", duration(ridge)),
    ]
    if request.pairs is not None:
        pairs, recipe = num_pairs(request.pairs), request.recipe
        rate = _PAIRS_PER_SECOND * _MEASURED_WIDTH / teacher.width
        expected_time = f"{duration(recipe.epochs * pairs / rate)} (assumes {rate:,.0f} pairs/s)"
        lines += [
            ("pairs, shards", f"{pairs:,}", "–"),
            ("start, trained", f"{recipe.epochs * num_steps(pairs, recipe.batch_size):,} steps", expected_time),
        ]
    print_table(("stage", "rows", f"estimated time, {workers} workers"), [*lines, ("student", "the units", "–")])


def _seconds_of_product(files: tuple[InputFile, ...], request: Request, pieces: Pieces | None) -> float:
    """Return the seconds per text of a product AᵀA X of the regression, measured on some texts."""
    texts = next(read_texts(files, request.text_columns), pa.array([], pa.string())).slice(0, _SAMPLE_TEXTS)
    if pieces is None:
        words = tokenize(as_strings(texts), "ptb-v1").flat.unique()
        to_ids = TokenIds(pa.concat_arrays([words, pa.array([UNKNOWN])]), "ptb-v1")
    else:
        to_ids = TokenIds(pieces.vocabulary, pieces.tokenizer)
    ids = to_ids(texts)
    A = frequencies(ids.ids, ids.offsets, len(to_ids.vocabulary))
    matrix = np.ones((A.shape[1], COLUMNS))
    started = time.perf_counter()
    A.T @ (A @ matrix)
    return (time.perf_counter() - started) / max(1, len(texts))


def _pieces(teacher: TextEncoder) -> Pieces:
    """Return the pieces of the teacher's tokenizer; raise ValueError if it has no ``tokenizer.json``."""
    files = getattr(teacher, "files", None)
    if files is None or "tokenizer.json" not in files.names:
        raise ValueError("`units` is subword, but the teacher has no tokenizer.json; use `units` word")
    try:
        return read_pieces(files.folder / "tokenizer.json")
    except ValueError as error:
        raise ValueError(f"`units` is subword, but {error}; or use `units` word") from None


def _check(request: Request, teacher: TextEncoder) -> None:
    settings, width = request.settings, teacher.width
    if settings.dim is not None and settings.dim > width:
        raise ValueError(
            f"`dim` is {settings.dim}, but the teacher's vectors have {width} dimensions; give at most {width}"
        )
    if settings.prior == "states" and not sums_states(teacher):
        raise ValueError(
            "`prior` is states, but only st: transformers without a prompt have token states; use `prior` alone"
        )
    if request.pairs is not None:
        for name, allowed in _OF_STUDENTS.items():
            if (value := getattr(request.recipe, name)) != allowed:
                raise ValueError(
                    f"the recipe of the student has {name} {value!r}; allowed: {allowed!r}; train the finished student "
                    "with other recipes, as `words` of jobs/train.py"
                )
        check_num_pairs(num_pairs(request.pairs), request.recipe.batch_size, 1)


def _student_at(out: Path) -> dict[str, Any]:
    """Return how the student at ``out`` was taught; an empty result if there is no encoder.

    Raises:
        ValueError: there is something else than an encoder.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    return dict((checkpoint.read_config(out).get("provenance") or {}).get("taught") or {"identity": ""})


def _describe(run: Run, request: Request, files: Sequence[InputFile], teacher: TextEncoder, workers: int) -> None:
    run.params({"teacher": request.teacher, **asdict(request.settings)})
    run.dataset("texts", digest_of([file.sha256 for file in files]), [file.shown for file in files], "teaching")
    if request.leave_out:
        sets = digest_of(sorted(map(sha256_of, request.leave_out)))
        run.dataset("evaluation sets left out", sets, list(map(str, request.leave_out)), "teaching")
    if request.pairs is not None:
        digest = sha256_of(request.pairs / "manifest.json")
        run.params({"recipe": request.recipe.to_dict(), "pairs": digest})
        run.dataset("pairs", digest, [str(request.pairs)], "teaching", num_pairs(request.pairs))
    run.tags({"workers": str(workers), "teacher_fingerprint": teacher.fingerprint})
    run.link("encoder_run", "fingerprint", teacher.fingerprint)


@dataclass(frozen=True)
class _Stages:
    """Stages of a job, see the module. The properties are their digests."""

    work: Path
    request: Request
    files: tuple[InputFile, ...]
    teacher: TextEncoder
    pieces: Pieces | None
    workers: int
    gpus: Gpus

    @cached_property
    def texts(self) -> str:
        inputs = [{"size": file.size, "sha256": file.sha256, "kind": file.kind} for file in self.files]
        return _digest(FORMAT, inputs, self.request.text_columns, *self._sets)

    @cached_property
    def _sets(self) -> list[Any]:
        """What decides which texts are left out."""
        digests = sorted(sha256_of(path) for path in self.request.leave_out)
        return [digests, RULE] if digests else [digests]

    @cached_property
    def units(self) -> str:
        settings = self.request.settings
        if self.pieces is not None:
            tokenizer = self.pieces.tokenizer
            more = [hashlib.sha256(contents_of(tokenizer)).hexdigest()] if tokenizer == SUBWORD else []
            return _digest(self.texts, tokenizer, self.pieces.vocabulary.to_pylist(), *more)
        return _digest(self.texts, settings.units, settings.min_count, settings.max_words)

    @cached_property
    def vectors(self) -> str:
        return _digest(self.texts, self.teacher.fingerprint, dict(self.teacher.identity), self._has_states)

    @property
    def states(self) -> str:
        return self.vectors

    @cached_property
    def alone(self) -> str:
        return _digest(self.units, self.teacher.fingerprint, dict(self.teacher.identity))

    @cached_property
    def prior(self) -> str:
        settings = self.request.settings
        of_states = (self.states, settings.alone_weight) if self._uses_states else ()
        return _digest(self.alone, settings.smoothing, *of_states)

    @cached_property
    def ridge(self) -> str:
        return _digest(self.prior, self.vectors, self.request.settings.l2, self.request.settings.steps)

    @cached_property
    def pairs(self) -> str:
        assert self.request.pairs is not None
        return _digest(FORMAT, sha256_of(self.request.pairs / "manifest.json"), *self._sets)

    @property
    def shards(self) -> str:
        return self.pairs

    @cached_property
    def start(self) -> str:
        return _digest(self.ridge, self.oov)

    @cached_property
    def trained(self) -> str:
        # Earlier versions trained words on the shards' own tokens; pieces have always been cut from the texts.
        tokenizer = ["ptb-v1"] if self.pieces is None and not self._has_ptb_tokens else []
        return _digest(self.start, self.pairs, self.request.recipe.to_dict(), *tokenizer)

    @cached_property
    def _has_ptb_tokens(self) -> bool:
        assert self.request.pairs is not None
        return has_ptb_tokens(read_manifest(self.request.pairs))

    @cached_property
    def student(self) -> str:
        settings, before = self.request.settings, self.ridge if self.request.pairs is None else self.trained
        return _digest(before, settings.dim, self.oov, settings.dtype)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage, in this run or an earlier one, without runs that were stopped meanwhile."""
        known = self._seconds()
        folders = {name: self.folder(name).name for name in _STAGES if self.request.pairs or name not in _OF_PAIRS}
        return {name: known[folder] for name, folder in folders.items() if folder in known}

    def _seconds(self) -> dict[str, float]:
        path = self.work / _SECONDS
        return read_json(path, dict[str, float]) if path.is_file() else {}

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        """Record the seconds of a stage, unless it is complete before."""
        folder, started = self.folder(name), time.perf_counter()
        was_complete = any((folder / file).is_file() for file in (MANIFEST, SUCCESS, "config.json"))
        yield
        for temporary in self.work.glob(f".{_SECONDS}.*.tmp"):  # of a run that was killed while it wrote
            temporary.unlink()
        if not was_complete:
            write_json(self.work / _SECONDS, {**self._seconds(), folder.name: time.perf_counter() - started})

    @cached_property
    def _has_states(self) -> bool:
        return sums_states(self.teacher)

    @property
    def _uses_states(self) -> bool:
        return self._has_states and self.request.settings.prior != "alone"

    @property
    def oov(self) -> Oov:
        """Vectors of OOV tokens."""
        return self.request.settings.oov if self.pieces is None else "shared"

    def folder(self, name: str) -> Path:
        """Return the folder of a stage."""
        return self.work / f"{name}-{getattr(self, name)}"

    def write_student(self, out: Path) -> dict[str, Any]:
        """Run the stages that are missing, and write the student; return its provenance."""
        texts = self._stage("texts", self._write_texts)
        say(
            f"{texts['kept']:,} distinct texts of {texts['read']:,}; {texts['left_out']:,} were left out, because the "
            "evaluation sets have them"
        )
        units = self._stage("units", partial(write_units, self.folder("texts"), self.pieces, self.request.settings))
        share = units["unknown_tokens"] / max(1, units["tokens"])
        say(f"{units['units']:,} units; {share:.2%} of {units['tokens']:,} tokens are out of vocabulary")
        if self.request.pairs is not None:
            self._write_pairs(self.request.pairs)
        if self._has_states:
            self._embed_with_states(texts["kept"])
        else:
            self._embed("vectors", self.folder("texts"), self.teacher)
        self._embed("alone", self.folder("units") / VOCABULARY, self.teacher)
        with self._timed("prior"):
            self._write_prior()
        with self._timed("ridge"):
            explained = self._write_ridge()
        say(f"the student explains {explained:.1%} of the variance of the teacher's vectors")
        record = {
            "identity": self.student,
            "teacher": self.request.teacher,
            "teacher_fingerprint": self.teacher.fingerprint,
            "settings": asdict(self.request.settings),
            "text_files": [file.name for file in self.files],
            "texts": texts["kept"],
            "left_out": texts["left_out"],
            "units": units["units"],
            "explained": explained,
        }
        if self.request.pairs is not None:
            record |= self._train()
        with self._timed("student"):
            self._save_student(out, record)
        return record

    def _save_student(self, out: Path, record: dict[str, Any]) -> None:
        """Write the student from the result of the regression or of the training."""
        matrix = checkpoint.load(self.folder("trained" if self.request.pairs else "ridge")).matrix.detach().numpy()
        if self.request.settings.dim is not None:
            matrix = principal(matrix, self._regression(), self.request.settings.dim)
        matrix = self._with_unknown(matrix)
        units, title = self._units(), f"A student of {self.request.teacher}"
        if self.pieces is not None and self.pieces.tokenizer == WORDPIECE:
            occurs = occurring(units.to_pylist())
            units, matrix = units.filter(pa.array(occurs)), matrix[occurs]
        more: dict[str, Any] = {"oov": self.oov, "dtype": self.request.settings.dtype}
        self._save(units, of_mean_length(matrix), out, record, title, **more)

    def _stage(self, name: str, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        """Return the manifest of a stage; if it is missing, make it."""
        folder = self.folder(name)
        if not (folder / MANIFEST).is_file():
            doing(f"writing the {name}")
            with self._timed(name), new_folder(folder) as new:
                counts = make(new)
                files = {path.name: sha256_of(path) for path in sorted(new.iterdir())}
                write_json(new / MANIFEST, {"format": FORMAT, "stage": name, **counts, "files": files})
        manifest: dict[str, Any] = read_json(folder / MANIFEST, dict[str, Any])
        for file, digest in manifest["files"].items():
            if not (folder / file).is_file() or sha256_of(folder / file) != digest:
                raise ValueError(
                    f"{folder / file} is missing or damaged; remove {folder} and run the same command again"
                )
        return manifest

    def _write_texts(self, folder: Path) -> dict[str, Any]:
        evaluation = left_out(self.request.leave_out)
        return write_texts(read_texts(self.files, self.request.text_columns), evaluation, folder)

    def _embed(self, name: str, texts: Path, teacher: TextEncoder) -> None:
        """Write the teacher's vectors of texts, with the texts, as ``jobs/embed.py`` does."""
        keep: tuple[str, ...] = (TEXT,)
        folder = Folder(self.folder(name))
        if is_there(folder, PLAN):  # a folder that an earlier version began has no texts
            keep = read_run(folder).plan.settings.keep
        settings = Settings(text_column=TEXT, keep=keep, part_rows=_PART_ROWS)
        options: dict[str, Any] = {"inference": self.request.inference, "gpus": self.gpus, "loaded": teacher}
        with self._timed(name):
            embed(self.request.teacher, [texts], self.folder(name), settings, workers=self.workers, **options)

    def _embed_with_states(self, num_texts: int) -> None:
        """Write the teacher's vectors of the texts and, from the same pass, the sums of its token states."""
        parts = self.folder("states").with_name(f".{self.folder('states').name}.partial")
        if not (self.folder("states") / MANIFEST).is_file():
            parts.mkdir(exist_ok=True)
            assert isinstance(self.teacher, SentenceTransformerEncoder)
            self._embed("vectors", self.folder("texts"), SummingTeacher(self.teacher, parts))
        else:
            self._embed("vectors", self.folder("texts"), self.teacher)
        self._stage("states", partial(write_states, parts, num_texts, self.teacher.width))
        shutil.rmtree(parts, ignore_errors=True)

    def _vocabulary(self) -> pa.Table:
        return pq.read_table(self.folder("units") / VOCABULARY, columns=[UNIT, TEXT, COUNT])

    def _units(self) -> pa.StringArray:
        return self._vocabulary()[UNIT].combine_chunks().cast(pa.string())

    def _save(
        self,
        units: pa.StringArray,
        matrix: Matrix,
        out: Path,
        record: dict[str, Any],
        title: str,
        *,
        oov: Oov = "shared",
        **more: Any,
    ) -> None:
        words = Words(units, matrix)
        tokenizer = "ptb-v1" if self.pieces is None else self.pieces.tokenizer
        lines = [f"* {name}: {markdown(str(value))}" for name, value in record.items() if name not in _NOT_IN_CARD]
        card = "\n".join([f"# {markdown(title)}", "", "Written by jobs/teach.py.", "", *lines, ""])
        encoder = Encoder(AvgConfig(), words, tokenizer, oov=oov)
        provenance: dict[str, Any] = {"taught": record}
        if "recipe" in record and self.request.pairs is not None:  # as a training on these pairs records them
            provenance["training"] = {"pairs": sha256_of(self.request.pairs / "manifest.json")}
        checkpoint.save(encoder, out, recipe=record.get("recipe", {}), provenance=provenance, model_card=card, **more)

    def _write_prior(self) -> None:
        """Write the prior as an encoder."""
        folder = self.folder("prior")
        if folder.exists():
            return
        doing("writing the prior")
        vectors = [block.vectors for block in Embeddings(self.folder("alone")).blocks()]
        counts = self._vocabulary()[COUNT].to_numpy()
        settings = self.request.settings
        units: npt.NDArray[np.floating] = np.concatenate(vectors)
        if self._uses_states:
            assert isinstance(self.teacher, SentenceTransformerEncoder)
            if self.pieces is None:
                tokens = self.teacher.token_ids(self._vocabulary()[TEXT].combine_chunks())
            else:
                tokens = Ragged(self.pieces.ids, np.arange(len(units) + 1))
            states = read_states(self.folder("states"))
            units = with_states(units, counts, states, tokens, settings.alone_weight)
        matrix = prior_of(units, counts, settings.smoothing)
        record = {"identity": self.prior, "teacher": self.request.teacher}
        self._save(
            self._units(),
            matrix,
            folder,
            record,
            "Units before the regression",
            write_more=lambda new: np.save(new / _PRIOR, matrix),
        )

    def _regression(self) -> Regression:
        settings = self.request.settings
        folders = self.folder("units"), self.folder("vectors"), self.folder("prior") / _PRIOR
        return Regression(*folders, settings.l2, settings.steps)

    def _write_ridge(self) -> float:
        """Write the result of the regression as an encoder; return the fraction of the variance that it explains."""
        folder = self.folder("ridge")
        if not folder.exists():
            parts = folder.with_name(f".{folder.name}.partial")
            parts.mkdir(exist_ok=True)
            width = self.teacher.width
            slices = [slice(start, min(start + COLUMNS, width)) for start in range(0, width, COLUMNS)]
            sums = self._slices("summing for the regression", parts, "sums", slices, partial(_sum, self._regression()))
            products, squares = (sum(float(part[name].sum()) for part in sums) for name in ("products", "squares"))
            scale = products / squares if squares else 0.0
            solve = partial(_solve, self._regression(), parts, scale)
            solved = self._slices("solving the regression", parts, "solved", slices, solve)
            errors, total = (
                sum(float(part["errors"].sum()) for part in solved),
                sum(float(part["total"].sum()) for part in sums),
            )
            record = {"identity": self.ridge, "explained": 1 - errors / total if total else 0.0}
            matrix = np.concatenate([part["matrix"] for part in solved], axis=1)
            self._save(self._units(), matrix, folder, record, "Regression")
            shutil.rmtree(parts)
        return float(checkpoint.read_config(folder)["provenance"]["taught"]["explained"])

    def _with_unknown(self, matrix: Matrix) -> Matrix:
        """Return the vectors; if those of OOV words are hashed, the vector of <unk> gets the length of rare words."""
        return with_rare_length(matrix, len(matrix) - 1) if self.oov == "hashed" else matrix

    def _train(self) -> dict[str, Any]:
        """Train the result of the regression on the pairs without texts of the evaluation sets."""
        assert self.request.pairs is not None
        with self._timed("start"):
            self._write_start()
        # A vocabulary that does not fit the pairs is only warned of: the hours of the teacher are not thrown away.
        folders = self.folder("shards"), self.folder("start")
        data = Pairs(self.request.recipe, *folders, min_coverage=0.0, has_ptb_tokens=self._has_ptb_tokens)
        with self._timed("trained"):
            train_model(Training("student", data, self.folder("trained"), Placement()))
        counts = self._written_pairs(self.request.pairs)
        return {
            "pairs": counts["kept"],
            "pairs_left_out": counts["read"] - counts["kept"],
            "recipe": self.request.recipe.to_dict(),
        }

    def _write_start(self) -> None:
        """Write the result of the regression, scaled for the training."""
        if not self.folder("start").exists():
            matrix = of_mean_length(self._with_unknown(checkpoint.load(self.folder("ridge")).matrix.numpy()))
            record = {"identity": self.start, "teacher": self.request.teacher}
            self._save(self._units(), matrix, self.folder("start"), record, "Before training", oov=self.oov)

    def _written_pairs(self, pairs: Path) -> dict[str, Any]:
        return self._stage("pairs", lambda folder: write_pairs(pairs, left_out(self.request.leave_out), folder))

    def _write_pairs(self, pairs: Path) -> None:
        """Write shards of the pairs without those that have a text of the evaluation sets."""
        counts = self._written_pairs(pairs)
        without = f"; {counts['read'] - counts['kept']:,} have a text of the evaluation sets"
        say(f"{counts['kept']:,} pairs of {counts['read']:,}{without if self.request.leave_out else ''}")
        check_num_pairs(counts["kept"], self.request.recipe.batch_size, 1)
        settings = ShardSettings(columns=("first", "second"), tokenizer="space")
        with self._timed("shards"):
            shard_pairs([self.folder("pairs") / PAIRS], self.folder("shards"), settings, workers=self.workers)

    def _slices(
        self, what: str, folder: Path, name: str, slices: list[slice], make: Callable[..., dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the arrays of each slice of columns; tasks compute those that no earlier run has written."""
        files = [folder / f"{name}-{number:05d}.npz" for number in range(len(slices))]
        todo = [number for number, path in enumerate(files) if not path.exists()]

        def write(number: int) -> None:
            arrays = make(number=number, columns=slices[number])
            write_file(files[number], lambda file: np.savez(file, **arrays))

        doing(f"{what}: {len(files)} slices")
        for done, _ in enumerate(run_tasks(write, todo, self.workers), len(files) - len(todo) + 1):
            doing(f"{what}: {done} of {len(files)} slices are done")
        return [dict(np.load(path, allow_pickle=False)) for path in files]


def _digest(*values: Any) -> str:
    return digest_of(list(values))[:_DIGITS]


def _sum(regression: Regression, number: int, columns: slice) -> dict[str, Any]:  # noqa: ARG001 - as _solve
    return regression.normal(columns)._asdict()


def _solve(regression: Regression, parts: Path, scale: float, number: int, columns: slice) -> dict[str, Any]:
    with np.load(parts / f"sums-{number:05d}.npz", allow_pickle=False) as arrays:
        normal = Normal(**{name: arrays[name] for name in Normal._fields})
    matrix, errors = regression.solve(normal, columns, scale)
    return {"matrix": matrix, "errors": errors}
