"""Stages of teaching: texts, units, the teacher's vectors, regression, training on pairs, student.

Each stage is a folder in the work folder. Its name ends with a digest of everything that decides its content, and it
appears when it is complete, so a stopped job resumes, and jobs with other settings share the stages that are equal.
This module holds what decides the stages, and those that one process writes; paraembed/cluster/teach.py runs the others
on Ray.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed import checkpoint, encoders
from paraembed.console import doing
from paraembed.distillation.settings import DEFAULT_TEACHING, STUDENT, STUDENT_WITH_BIGRAMS, TeachSettings, Units
from paraembed.distillation.texts import (
    BIGRAMS,
    COUNT,
    RULE,
    TEXT,
    UNIT,
    VOCABULARY,
    Pieces,
    left_out,
    num_pairs,
    read_pieces,
    read_texts,
    write_texts,
)
from paraembed.embedding.identity import hash_inputs
from paraembed.embedding.inputs import InputFile, find_inputs
from paraembed.embedding.manifest import encoder_of
from paraembed.embedding.output import Embeddings
from paraembed.encoders.configs import AvgConfig, Oov
from paraembed.encoders.foreign.files import ModelFiles, model_files
from paraembed.encoders.protocol import TextEncoder
from paraembed.encoders.tables import of_mean_length
from paraembed.evaluation.report import encoder_metadata
from paraembed.io.atomic import SUCCESS, any_content, new_folder, write_json
from paraembed.io.escape import markdown
from paraembed.io.fingerprint import differences, digest_of, read_json, sha256_of
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.io.store import open_store
from paraembed.late import Late
from paraembed.loading import Fetch, known_encoder, open_encoder
from paraembed.pairs.shards import has_ptb_tokens, read_manifest
from paraembed.recipe import Recipe
from paraembed.settings import DEFAULT_INFERENCE, Gpus, Inference
from paraembed.text import SUBWORD, WORDPIECE
from paraembed.text.bigrams import is_bigram
from paraembed.text.ragged import Ragged
from paraembed.text.subword import contents_of
from paraembed.text.vocabulary import Words
from paraembed.text.wordpiece import occurring
from paraembed.training.pairs import check_num_pairs

if TYPE_CHECKING:
    from paraembed.distillation import ridge, student, token_states
    from paraembed.encoders.foreign.sentence_transformers import SentenceTransformerEncoder
else:
    ridge, student = Late("paraembed.distillation.ridge"), Late("paraembed.distillation.student")
    token_states = Late("paraembed.distillation.token_states")

FORMAT = "paraembed-teach-1"
MANIFEST = "_manifest.json"  # no input of embed
_PRIOR = "prior.npy"
_DIGITS = 12  # of the digest in the name of a stage
_NOT_IN_CARD = ("settings", "recipe")
_OF_STUDENTS = {"encoder": AvgConfig(), "bos_eos_tokens": "none", "new_words": "unknown"}
_OF_STUDENTS |= {"max_words": None, "max_tokens": None}
"""Values of the recipe that keep the units as they are, and fit the pairs, of which only the texts are kept."""
_COMPARED = ("settings", "teacher_fingerprint", "recipe", "text_files")
_NOT_RECORDED = "`texts`, `leave_out` or `pairs`"
# The seconds of each stage, by the name of its folder. Encoders do not record them, so that their bytes stay equal.
_SECONDS = "_seconds.json"


@dataclass(frozen=True)
class StudentRequest:
    """What decides a student."""

    teacher: str  # name of the teacher, see ``open_encoder``
    texts: Sequence[str]  # input files, folders, globs or URIs
    text_columns: tuple[str, ...] = ()  # columns with texts; empty for .txt files
    leave_out: tuple[Path, ...] = ()  # files of evaluation sets, whose texts are left out
    # Folder of pair shards on which the result of the regression is trained; None: no training.
    pairs: Path | None = None
    recipe: Recipe | None = None  # recipe of this training; None: ``STUDENT``, or with bigrams ``STUDENT_WITH_BIGRAMS``
    settings: TeachSettings = DEFAULT_TEACHING
    inference: Inference = DEFAULT_INFERENCE  # settings of the teacher
    reading: TableLimits = DEFAULT_TABLE_LIMITS  # limits on reading an input file
    files: tuple[InputFile, ...] | None = None  # those of ``find_inputs``, if they are found already

    @property
    def training(self) -> Recipe:
        """Recipe of the training."""
        return self.recipe or (STUDENT if self.settings.bigrams is None else STUDENT_WITH_BIGRAMS)


def of_both(request: StudentRequest) -> dict[str, StudentRequest]:
    """Return the requests of the two students that become one encoder, by units."""
    units: tuple[Units, Units] = ("subword", "word")
    settings, oov = request.settings, request.settings.oov
    settings = replace(settings, oov="hashed" if oov == "pieces" else oov)  # the pieces come to the finished students
    return {name: replace(request, settings=replace(settings, units=name)) for name in units}


def opened(
    request: StudentRequest, gpus: Gpus, fetch: Fetch | None, known: "KnownTeacher | None" = None
) -> tuple[TextEncoder, Pieces | None, tuple[InputFile, ...]]:
    """Return the teacher, or what is ``known`` of it, the pieces of its tokenizer if they are the units, and the files
    with the texts.

    Raises:
        FileNotFoundError, ValueError: an input is missing, or cannot be used together with the others.
    """
    doing("finding the texts")
    files = find_inputs(request.texts, request.reading) if request.files is None else request.files
    if known is None:
        doing("reading the teacher")
        teacher: TextEncoder = open_encoder(request.teacher, gpus.on(request.inference), fetch)
        _check(request, teacher)
    else:
        teacher = cast("TextEncoder", known)
    pieces = None if request.settings.units == "word" else _pieces(teacher)
    doing("hashing the texts")
    return teacher, pieces, hash_inputs(files)


@dataclass(frozen=True)
class KnownTeacher:
    """What decides the students of an ``st:`` model that is not opened, see ``known_teacher``."""

    fingerprint: str
    identity: Mapping[str, Any]
    files: ModelFiles
    has_states: bool = True


def known_teacher(request: StudentRequest, work: Path) -> KnownTeacher | None:
    """Return what the vectors in ``work`` say about the teacher, without opening it, which takes 7 s; None if they are
    of another encoder, or it must be opened.
    """
    if not request.teacher.startswith("st:"):
        return None
    for folder in work.glob("vectors-*"):
        with suppress(OSError, ValueError):
            if known := known_encoder(request.teacher, request.inference, partial(encoder_of, open_store(folder))):
                files = model_files(request.teacher.removeprefix("st:"), request.teacher, request.inference.backend)
                return KnownTeacher(known.fingerprint, known.identity, files)
    return None


def sums_states(teacher: TextEncoder) -> "TypeGuard[SentenceTransformerEncoder]":
    """Return whether the states of a teacher's tokens can be summed: it is a transformer of sentence-transformers."""
    return bool(getattr(teacher, "has_states", False))


def _pieces(teacher: TextEncoder) -> Pieces:
    """Return the pieces of the teacher's tokenizer; raise ValueError if it has no ``tokenizer.json``."""
    files = getattr(teacher, "files", None)
    if files is None or "tokenizer.json" not in files.names:
        raise ValueError("`units` is subword, but the teacher has no tokenizer.json; use `units` word")
    try:
        return read_pieces(files.folder / "tokenizer.json")
    except ValueError as error:
        raise ValueError(f"`units` is subword, but {error}; or use `units` word") from None


def _check(request: StudentRequest, teacher: TextEncoder) -> None:
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
            if (value := getattr(request.training, name)) != allowed:
                raise ValueError(
                    f"the recipe of the student has {name} {value!r}; allowed: {allowed!r}; train the finished student "
                    "with other recipes, as `words` of jobs/train.py"
                )
        check_num_pairs(num_pairs(request.pairs), request.training.batch_size, 1)


@dataclass(frozen=True)
class Stages:
    """Stages of a job, see the module."""

    work: Path
    request: StudentRequest
    files: tuple[InputFile, ...]
    teacher: TextEncoder
    pieces: Pieces | None

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digest of what decides each stage, by the name of the stage, in the order of the stages."""
        request, settings, pieces = self.request, self.request.settings, self.pieces
        inputs = [
            {"size": file.size, "sha256": file.sha256, "kind": file.kind} | file.how_read() for file in self.files
        ]
        sets = sorted(sha256_of(path) for path in request.leave_out)
        left_out_by = [sets, RULE] if sets else [sets]
        teacher = self.teacher.fingerprint, dict(self.teacher.identity)
        texts = _digest(FORMAT, inputs, request.text_columns, *left_out_by)
        if pieces is None:
            normalized = [] if settings.normalize == "none" else [settings.normalize]
            units = _digest(texts, settings.units, settings.min_count, settings.max_words, *normalized)
        else:
            more = [hashlib.sha256(contents_of(pieces.tokenizer)).hexdigest()] if pieces.tokenizer == SUBWORD else []
            units = _digest(texts, pieces.tokenizer, pieces.vocabulary.to_pylist(), *more)
        vectors, alone = _digest(texts, *teacher, self._has_states), _digest(units, *teacher)
        of_states = (vectors, settings.alone_weight) if self._uses_states else ()
        bigrams = {} if settings.bigrams is None else {"bigrams": _digest(units, settings.bigrams)}
        prior = _digest(alone, settings.smoothing, *of_states, *bigrams.values())
        # SciPy and a GPU add in other orders, so the last bits differ.
        ridge = _digest(prior, vectors, settings.l2, settings.steps, *([self.device] if self.device else []))
        digests = {"texts": texts, "units": units, **bigrams}
        trained = {}
        if request.pairs is not None:
            pairs = _digest(FORMAT, sha256_of(request.pairs / "manifest.json"), *left_out_by)
            digests |= {"pairs": pairs, "shards": pairs}
            start = _digest(ridge, self.oov)
            # Earlier versions trained words on the shards' own tokens; pieces have always been cut from the texts.
            tokenizer = ["ptb-v1"] if pieces is None and not self._has_ptb_tokens else []
            trained = {"start": start, "trained": _digest(start, pairs, request.training.to_dict(), *tokenizer)}
        digests |= {"vectors": vectors, "states": vectors, "alone": alone, "prior": prior, "ridge": ridge, **trained}
        student = _digest(trained.get("trained", ridge), settings.dim, self.oov, settings.dtype)
        return {**digests, "student": student}

    @cached_property
    def _has_ptb_tokens(self) -> bool:
        assert self.request.pairs is not None
        return has_ptb_tokens(read_manifest(self.request.pairs))

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage, in this run or an earlier one, without runs that were stopped meanwhile."""
        known = self._seconds()
        folders = {name: self.folder(name).name for name in self.digests}
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

    @cached_property
    def device(self) -> str | None:
        """Device of PyTorch that computes the regression: the teacher's GPU; None: SciPy computes it."""
        return "cuda" if self.teacher.identity.get("device") == "cuda" else None

    @property
    def oov(self) -> Oov:
        """Vectors of OOV tokens."""
        return self.request.settings.oov if self.pieces is None else "shared"

    @property
    def recorded(self) -> dict[str, Any]:
        """What decides the student, as its folder records it."""
        request = self.request
        record: dict[str, Any] = {
            "identity": self.digests["student"],
            "teacher": request.teacher,
            "teacher_fingerprint": self.teacher.fingerprint,
            "settings": request.settings.to_dict(),
            "text_files": [file.name for file in self.files],
        }
        return record if request.pairs is None else {**record, "recipe": request.training.to_dict()}

    def folder(self, name: str) -> Path:
        """Return the folder of a stage."""
        return self.work / f"{name}-{self.digests[name]}"

    def _save_student(self, out: Path, record: dict[str, Any], *, overwrite: bool) -> None:
        """Write the student from the result of the regression or of the training; ``overwrite`` replaces an encoder."""
        matrix = checkpoint.load(self.folder("trained" if self.request.pairs else "ridge")).matrix.detach().numpy()
        if self.request.settings.dim is not None:
            matrix = student.principal(matrix, self._regression(), self.request.settings.dim)
        matrix = self._with_unknown(matrix)
        units, title = self._units(), f"A student of {self.request.teacher}"
        if self.pieces is not None and self.pieces.tokenizer == WORDPIECE:
            occurs = occurring(units.to_pylist()) | is_bigram(units)
            units, matrix = units.filter(pa.array(occurs)), matrix[occurs]
        dtype = self.request.settings.dtype
        self._save(units, of_mean_length(matrix), out, record, title, oov=self.oov, dtype=dtype, overwrite=overwrite)

    def _stage(self, name: str, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        """Return the manifest of a stage; if it is missing, make it."""
        folder = self.folder(name)
        if not (folder / MANIFEST).is_file():
            doing(f"writing the {name}")
            with self._timed(name), new_folder(folder, any_content) as new:
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

    def _vocabulary(self) -> pa.Table:
        return pq.read_table(self.folder("units") / VOCABULARY, columns=[UNIT, TEXT, COUNT])

    def _units(self) -> pa.StringArray:
        """Return the units, and after them the bigrams."""
        units = self._vocabulary()[UNIT].combine_chunks().cast(pa.string())
        if self.request.settings.bigrams is None:
            return units
        bigrams = pq.read_table(self.folder("bigrams") / BIGRAMS)[UNIT].combine_chunks()
        return pa.concat_arrays([units, bigrams.cast(pa.string())])

    def _save(
        self,
        units: pa.StringArray,
        matrix: "student.Matrix",
        out: Path,
        record: dict[str, Any],
        title: str,
        *,
        oov: Oov = "shared",
        **more: Any,
    ) -> None:
        words = Words(units, matrix)
        tokenizer = self.request.settings.tokenizer if self.pieces is None else self.pieces.tokenizer
        lines = [f"* {name}: {markdown(str(value))}" for name, value in record.items() if name not in _NOT_IN_CARD]
        encoder = encoders.Encoder(AvgConfig(), words, tokenizer, oov=oov)
        provenance: dict[str, Any] = {"taught": record}
        sources: Iterable[str] = ()
        if "recipe" in record and self.request.pairs is not None:  # as a training on these pairs records them
            provenance["training"] = {"pairs": sha256_of(self.request.pairs / "manifest.json")}
            sources = read_manifest(self.request.pairs).get("sources", ())
        metadata = encoder_metadata(encoder, "teach", datasets=sources)
        card = "\n".join([metadata, f"# {markdown(title)}", "", "Written by jobs/teach.py.", "", *lines, ""])
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
            assert sums_states(self.teacher)
            if self.pieces is None:
                tokens = self.teacher.token_ids(self._vocabulary()[TEXT].combine_chunks())
            else:
                tokens = Ragged(self.pieces.ids, np.arange(len(units) + 1))
            states = token_states.read_states(self.folder("states"))
            units = student.with_states(units, counts, states, tokens, settings.alone_weight)
        matrix, entries = student.prior_of(units, counts, settings.smoothing), self._units()
        matrix = np.concatenate([matrix, np.zeros((len(entries) - len(matrix), matrix.shape[1]), np.float32)])
        record = {"identity": self.digests["prior"], "teacher": self.request.teacher}
        title = "Units before the regression"
        self._save(entries, matrix, folder, record, title, write_more=lambda new: np.save(new / _PRIOR, matrix))

    def _regression(self) -> "ridge.Regression":
        settings = self.request.settings
        texts, num_units = self.folder("units"), None
        if settings.bigrams is not None:
            texts, num_units = self.folder("bigrams"), len(self._vocabulary())
        prior = self.folder("prior") / _PRIOR
        return ridge.Regression(
            texts, self.folder("vectors"), prior, settings.l2, settings.steps, num_units, self.device
        )

    def _with_unknown(self, matrix: "student.Matrix") -> "student.Matrix":
        """Return the vectors; if those of OOV words are hashed, the vector of <unk> gets the length of rare words."""
        if self.oov != "hashed":
            return matrix
        num_units = len(self._vocabulary())
        rare = student.with_rare_length(matrix[:num_units], num_units - 1)
        return np.concatenate([rare, matrix[num_units:]])

    def _write_start(self) -> None:
        """Write the result of the regression, scaled for the training."""
        if not self.folder("start").exists():
            units, matrix = self._units(), checkpoint.load(self.folder("ridge")).matrix.numpy()
            matrix = of_mean_length(self._with_unknown(matrix))
            record = {"identity": self.digests["start"], "teacher": self.request.teacher}
            self._save(units, matrix, self.folder("start"), record, "Before training", oov=self.oov)


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the fields that differ between the records of two students with other identities; if none does, name the
    inputs whose contents a record does not have.
    """
    names = [name for name in _COMPARED if name in before and name in now]
    return differences(*({name: record[name] for name in names} for record in (before, now))) or _NOT_RECORDED


def _digest(*values: Any) -> str:
    return digest_of(list(values))[:_DIGITS]
