"""Teach a student on Ray, see paraembed/distillation/stages.py."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from paraembed import checkpoint
from paraembed.cluster.shard import shard_pairs
from paraembed.cluster.train import Training, train_model
from paraembed.console import doing, duration, print_table, say
from paraembed.distillation.stages import (
    MANIFEST,
    Stages,
    StudentRequest,
    differing,
    known_teacher,
    of_both,
    opened,
    sums_states,
)
from paraembed.distillation.texts import (
    PAIRS,
    TEXT,
    VOCABULARY,
    left_out,
    num_pairs,
    write_bigrams,
    write_pairs,
    write_units,
)
from paraembed.embedding.estimate import workers_of
from paraembed.embedding.inputs import InputFile
from paraembed.embedding.settings import Settings
from paraembed.encoders.protocol import TextEncoder
from paraembed.io.atomic import work_folder, write_file
from paraembed.io.fingerprint import digest_of, sha256_of
from paraembed.io.resume import is_within, other_work
from paraembed.late import Late
from paraembed.pairs.settings import ShardSettings
from paraembed.settings import DEFAULT_GPUS, Gpus, Placement, Smaller, check_workers
from paraembed.tracking.fetch import fetch_encoder
from paraembed.tracking.records import Run
from paraembed.tracking.runs import send_left, tracked_run
from paraembed.training.data import Pairs
from paraembed.training.pairs import check_num_pairs

if TYPE_CHECKING:
    from paraembed.cluster import embed, session
    from paraembed.distillation import ridge, token_states
    from paraembed.export import concat, smaller
else:
    embed, session = Late("paraembed.cluster.embed"), Late("paraembed.cluster.session")
    ridge, token_states = Late("paraembed.distillation.ridge"), Late("paraembed.distillation.token_states")
    concat, smaller = Late("paraembed.export.concat"), Late("paraembed.export.smaller")

_PART_ROWS = 10_000  # Rows in a part of the teacher's vectors; a stopped job loses the parts that it was writing.


def teach(
    request: StudentRequest,
    out: Path,
    work: Path,
    *,
    workers: int = 2,
    gpus: Gpus = DEFAULT_GPUS,
    overwrite: bool = False,
) -> tuple[dict[str, Any], bool]:
    """Write a student of a teacher; the same call resumes. Return how the student was taught, as its folder records it,
    and whether it was finished before.

    The folder ``work`` of the stages is kept. ``overwrite`` replaces another encoder at ``out``.

    Raises:
        FileNotFoundError, NotADirectoryError: an input is missing.
        ValueError: an input or setting cannot be used, ``out`` holds something else, or another job uses ``work``.
    """
    check_workers(workers)
    if is_within(work, out):
        raise ValueError(f"`work` {work} is `out` or inside of it; choose another folder for one of them")
    if request.settings.units == "both":
        return _teach_both(request, out, work, workers, gpus, overwrite)
    before = _student_at(out)
    if before and gpus == DEFAULT_GPUS and _is_known(request, work, before):
        return _finished(out, before)
    teacher, pieces, files = opened(request, gpus, fetch_encoder)
    with work_folder(work):
        stages = _StagesOnRay(work, request, files, teacher, pieces, workers, gpus)
        if before.get("identity") == stages.digests["student"]:
            return _finished(out, before)
        if before and not overwrite:
            raise other_work(out, differing(before, stages.recorded))
        checkpoint.check_replaceable(out, overwrite=overwrite)
        embedders, _ = workers_of(teacher, workers, gpus)
        doing("starting Ray and MLflow")
        with tracked_run(f"teach {out.name}", out) as run, session.ray_session(max(workers, embedders)):
            _describe(run, request, files, teacher, workers)
            record = stages.write_student(out, overwrite=overwrite)
            run.metrics({"units": record["units"], "texts": record["texts"], "explained": record["explained"]})
            seconds = stages.seconds()
            run.metrics({f"seconds/{name}": value for name, value in seconds.items()})
    print_table(("stage", "time"), [(name, duration(value)) for name, value in seconds.items()])
    return record, False


def _is_known(request: StudentRequest, work: Path, before: dict[str, Any]) -> bool:
    """Return whether a student is known to be that of a request, without opening the teacher."""
    if (known := known_teacher(request, work)) is None:
        return False
    _, pieces, files = opened(request, DEFAULT_GPUS, None, known)
    teachers = (cast("TextEncoder", replace(known, has_states=has_states)) for has_states in (True, False))
    return any(
        before.get("identity") == Stages(work, request, files, teacher, pieces).digests["student"]
        for teacher in teachers
    )


def _finished(out: Path, before: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    send_left(out)
    say(f"{out} is already finished; nothing to do")
    return before, True


def _teach_both(
    request: StudentRequest, out: Path, work: Path, workers: int, gpus: Gpus, overwrite: bool
) -> tuple[dict[str, Any], bool]:
    """Write a student of word pieces and one of words in ``work``, and both as one encoder; see ``teach``."""
    before = checkpoint.parts_of_concat(out) if checkpoint.is_concat(out) or not overwrite else []
    if overwrite or not before:
        checkpoint.check_replaceable(out, overwrite=overwrite)
    subwords, words = folders = [work / f"student-{units}" for units in of_both(request)]
    parts, gets_pieces = folders, request.settings.oov == "pieces"
    if gets_pieces:
        parts = [subwords, work / "student-word-pieces"]
    if before and not overwrite and gets_pieces != ("pieces" in checkpoint.read_config(out / "second")):
        raise other_work(out, f"settings.oov ({'is' if gets_pieces else 'was'} pieces)")
    record = dict[str, Any]()
    for folder, part, (units, of_units) in zip(folders, parts, of_both(request).items(), strict=True):
        is_part = (part / "config.json").is_file() and checkpoint.read_config(part)["fingerprint"] in before
        can_replace = overwrite or not is_part  # a part of `out` is refused here, before another one is taught
        record[units], _ = teach(of_units, folder, work, workers=workers, gpus=gpus, overwrite=can_replace)
    if gets_pieces and not _is_current(parts[1], words, subwords):
        with work_folder(work):
            options = Smaller(oov_pieces=str(subwords), dtype=request.settings.dtype)
            smaller.write_smaller([words], parts[1], options, overwrite=True)
    now = [checkpoint.read_config(part)["fingerprint"] for part in parts]
    if before == now:
        say(f"{out} is already finished; nothing to do")
        return record, True
    if before and not overwrite:
        name, units = ("first", "subword") if before[0] != now[0] else ("second", "word")
        raise other_work(out, differing(_student_at(out / name), record[units]))
    concat.write_concat(parts, out, overwrite=overwrite)
    return record, False


def _is_current(folder: Path, words: Path, pieces: Path) -> bool:
    """Return whether an encoder is that of ``words`` with the OOV vectors of ``pieces``."""
    if not (folder / "config.json").is_file():
        return False
    record = checkpoint.read_config(folder)["provenance"].get("made_smaller", {})
    recorded = [*record.get("sources", []), record.get("oov_pieces")]
    return recorded == [checkpoint.read_config(part)["fingerprint"] for part in (words, pieces)]


def _student_at(out: Path) -> dict[str, Any]:
    """Return how the student at ``out`` was taught, empty if ``out`` is; ValueError if it is not an encoder."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    return dict((checkpoint.read_config(out).get("provenance") or {}).get("taught") or {"identity": ""})


def _describe(
    run: Run, request: StudentRequest, files: Sequence[InputFile], teacher: TextEncoder, workers: int
) -> None:
    run.params({"teacher": request.teacher, **asdict(request.settings)})
    run.dataset("texts", digest_of([file.sha256 for file in files]), [file.shown for file in files], "teaching")
    if request.leave_out:
        sets = digest_of(sorted(map(sha256_of, request.leave_out)))
        run.dataset("evaluation sets left out", sets, list(map(str, request.leave_out)), "teaching")
    if request.pairs is not None:
        digest = sha256_of(request.pairs / "manifest.json")
        run.params({"recipe": request.training.to_dict(), "pairs": digest})
        run.dataset("pairs", digest, [str(request.pairs)], "teaching", num_pairs(request.pairs))
    run.tags({"workers": str(workers), "teacher_fingerprint": teacher.fingerprint})
    run.link("encoder_run", "fingerprint", teacher.fingerprint)


@dataclass(frozen=True)
class _StagesOnRay(Stages):
    """The stages, with those that need Ray."""

    workers: int
    gpus: Gpus

    def write_student(self, out: Path, *, overwrite: bool) -> dict[str, Any]:
        """Run the stages that are missing, and write the student; return its provenance."""
        texts = self._stage("texts", self._write_texts)
        say(
            f"{texts['kept']:,} distinct texts of {texts['read']:,}; {texts['left_out']:,} were left out, because the "
            "evaluation sets have them"
        )
        units = self._stage("units", partial(write_units, self.folder("texts"), self.pieces, self.request.settings))
        share = units["unknown_tokens"] / max(1, units["tokens"])
        say(f"{units['units']:,} units; {share:.2%} of {units['tokens']:,} tokens are out of vocabulary")
        if (least := self.request.settings.bigrams) is not None:
            bigrams = self._stage("bigrams", partial(write_bigrams, self.folder("units"), least))
            say(f"{bigrams['bigrams']:,} bigrams, {bigrams['in_texts']:,} times in the texts")
        pairs = None if self.request.pairs is None else self._write_pairs(self.request.pairs)
        self._embed_texts(texts["kept"])
        self._embed("alone", self.folder("units") / VOCABULARY, self.teacher)
        with self._timed("prior"):
            self._write_prior()
        with self._timed("ridge"):
            explained = self._write_ridge()
        say(f"the student explains {explained:.1%} of the variance of the teacher's vectors")
        record = {
            **self.recorded,
            "texts": texts["kept"],
            "left_out": texts["left_out"],
            "units": units["units"],
            "explained": explained,
        }
        if pairs is not None:
            self._train()
            record |= {"pairs": pairs["kept"], "pairs_left_out": pairs["read"] - pairs["kept"]}
        with self._timed("student"):
            self._save_student(out, record, overwrite=overwrite)
        return record

    def _embed(self, name: str, texts: Path, teacher: TextEncoder) -> None:
        """Write the teacher's vectors of texts, with the texts, as ``jobs/embed.py`` does."""
        settings = Settings(text_column=TEXT, keep=(TEXT,), part_rows=_PART_ROWS)
        options: dict[str, Any] = {"inference": self.request.inference, "gpus": self.gpus, "loaded": teacher}
        with self._timed(name):
            embed.embed(self.request.teacher, [texts], self.folder(name), settings, workers=self.workers, **options)

    def _embed_texts(self, num_texts: int) -> None:
        """Write the teacher's vectors of the texts and, from the same pass, the sums of its token states, if any."""
        teacher, folder = self.teacher, self.folder("states")
        parts = folder.with_name(f".{folder.name}.partial")
        if sums_states(teacher) and not (folder / MANIFEST).is_file():
            parts.mkdir(exist_ok=True)
            teacher = token_states.SummingTeacher(teacher, parts)
        self._embed("vectors", self.folder("texts"), teacher)
        if self._has_states:
            self._stage("states", partial(token_states.write_states, parts, num_texts, self.teacher.width))
            shutil.rmtree(parts, ignore_errors=True)

    def _write_ridge(self) -> float:
        """Write the result of the regression as an encoder; return the fraction of the variance that it explains."""
        folder = self.folder("ridge")
        parts = folder.with_name(f".{folder.name}.partial")
        if not folder.exists():
            parts.mkdir(exist_ok=True)
            width, step = self.teacher.width, ridge.columns_of_task(len(self._units()), self.device)
            slices = [slice(start, min(start + step, width)) for start in range(0, width, step)]
            sums = self._slices("summing for the regression", parts, "sums", slices, partial(_sum, self._regression()))
            products, squares = (sum(float(part[name].sum()) for part in sums) for name in ("products", "squares"))
            scale = products / squares if squares else 0.0
            solve = partial(_solve, self._regression(), parts, scale)
            solved = self._slices("solving the regression", parts, "solved", slices, solve)
            errors = sum(float(part["errors"].sum()) for part in solved)
            total = sum(float(part["total"].sum()) for part in sums)
            record = {"identity": self.digests["ridge"], "explained": 1 - errors / total if total else 0.0}
            matrix = np.concatenate([part["matrix"] for part in solved], axis=1)
            self._save(self._units(), matrix, folder, record, "Regression")
        shutil.rmtree(parts, ignore_errors=True)
        return float(checkpoint.read_config(folder)["provenance"]["taught"]["explained"])

    def _train(self) -> None:
        """Train the result of the regression on the pairs without texts of the evaluation sets."""
        with self._timed("start"):
            self._write_start()
        # A vocabulary that does not fit the pairs is only warned of: the hours of the teacher are not thrown away.
        folders = self.folder("shards"), self.folder("start")
        data = Pairs(self.request.training, *folders, min_coverage=0.0, has_ptb_tokens=self._has_ptb_tokens)
        with self._timed("trained"):
            train_model(Training("student", data, self.folder("trained"), Placement()))

    def _write_pairs(self, pairs: Path) -> dict[str, Any]:
        """Write shards of the pairs without those that have a text of the evaluation sets; return the counts."""
        counts = self._stage("pairs", lambda folder: write_pairs(pairs, left_out(self.request.leave_out), folder))
        without = f"; {counts['read'] - counts['kept']:,} have a text of the evaluation sets"
        say(f"{counts['kept']:,} pairs of {counts['read']:,}{without if self.request.leave_out else ''}")
        check_num_pairs(counts["kept"], self.request.training.batch_size, 1)
        settings = ShardSettings(columns=("first", "second"), tokenizer="space")
        with self._timed("shards"):
            shard_pairs([self.folder("pairs") / PAIRS], self.folder("shards"), settings, workers=self.workers)
        return counts

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
        workers, num_gpus = (self.gpus.gpus or 1, 1) if self.device == "cuda" else (self.workers, 0)
        tasks = session.run_tasks(write, todo, workers, num_gpus=num_gpus)
        for done, _ in enumerate(tasks, len(files) - len(todo) + 1):
            doing(f"{what}: {done} of {len(files)} slices are done")
        return [dict(np.load(path, allow_pickle=False)) for path in files]


def _sum(regression: "ridge.Regression", number: int, columns: slice) -> dict[str, Any]:  # noqa: ARG001 - as _solve
    return regression.normal(columns)._asdict()


def _solve(regression: "ridge.Regression", parts: Path, scale: float, number: int, columns: slice) -> dict[str, Any]:
    with np.load(parts / f"sums-{number:05d}.npz", allow_pickle=False) as arrays:
        normal = ridge.Normal(**{name: arrays[name] for name in ridge.Normal._fields})
    matrix, errors = regression.solve(normal, columns, scale)
    return {"matrix": matrix, "errors": errors}
