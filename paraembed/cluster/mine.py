"""Mine paraphrase pairs: compare blocks of rows, keep the nearest rows, select pairs, write Parquet parts, commit; few
rows in this process, others by tasks of Ray.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from paraembed.cluster.tasks import Tasks, started_tasks
from paraembed.console import doing, duration, say
from paraembed.embedding.manifest import MANIFEST
from paraembed.embedding.mine import (
    FORMAT,
    GROUPS,
    Comparison,
    keep_pairs,
    last_of_top,
    load,
    neighbors,
    save,
    write_groups,
    write_part,
)
from paraembed.embedding.output import Embeddings
from paraembed.embedding.plan import numbered_name
from paraembed.io.atomic import SUCCESS, replace_folder, work_folder
from paraembed.io.fingerprint import read_json, sha256_of
from paraembed.io.places import Place
from paraembed.io.resume import Work, check_own_files
from paraembed.io.store import Folder, commit_manifest, is_committed
from paraembed.process import in_order
from paraembed.settings import Engine, MineSettings, check_workers
from paraembed.tracking.records import Run
from paraembed.tracking.runs import send_left, tracked_run

_JOB = "jobs/mine.py"
# Of one process that compares all rows, with their selection: 4.2e11 of 57,339 rows with each other in 7.3 s.
_MULTIPLICATIONS_PER_SECOND = 4e10
_PART = r"part-\d{5,}-of-\d{5,}\.parquet"
_FILE = rf"({_PART}|{MANIFEST}|{SUCCESS})"
_OUTPUT = rf"({GROUPS}/)?({_FILE}|\.{_FILE}\.[0-9a-f]{{8}}\.tmp)"
_STEP = r"(identity\.json|(pairs|kept)-\d{5,}\.npy|last-(first|second)\.npy)"
_OUTPUT_FILES = re.compile(_OUTPUT)
_WORK_FILES = re.compile(rf"{_STEP}|\.{_STEP}\.[0-9a-f]{{8}}\.tmp|result/{_OUTPUT}")


def mine(
    place: Place,
    out: Path,
    settings: MineSettings,
    *,
    other: Place | None = None,
    workers: int = 2,
    engine: Engine = "auto",
    overwrite: bool = False,
) -> tuple[dict[str, Any], bool]:
    """Write the paraphrase pairs within an output of embeddings, or between two; return the manifest, and whether the
    output was finished before.

    The folder appears when it is complete. Until then the work is in a hidden folder next to it, and the same call
    resumes from the finished blocks.

    Raises:
        FileNotFoundError, NotADirectoryError: an output of embeddings is missing.
        ValueError: it is unfinished or damaged, or ``out`` holds something else.
    """
    check_workers(workers)
    doing("reading the manifest")
    comparison = Comparison(Embeddings(place), Embeddings(other) if other is not None else None, settings)
    comparison.check()
    identity = {
        "format": FORMAT,
        "settings": settings.to_json(),
        "embeddings": comparison.output.digest,
        "other": comparison.other and comparison.other.digest,
    }
    work = Work(out, out.with_name(f".{out.name}.partial"), "identity.json", identity, _WORK_FILES, _JOB, overwrite)
    before = _finished(work)
    if before is None:
        with work_folder(work.folder):
            before = _finished(work)  # by another run, since
            if before is None:
                return _run(comparison, work, engine, workers), False
    work.remove_leftover()
    send_left(out)
    say(f"{out} is already finished, {before['pairs']:,} pairs; nothing to do")
    return before, True


def _finished(work: Work) -> dict[str, Any] | None:
    """Return the manifest of a finished output; None if there is none, or if it will be replaced."""
    out = work.out
    check_own_files(out, _OUTPUT_FILES, _JOB, may_be_link=True)
    if not work.is_finished(partial(_read_identity, fields=tuple(work.fingerprint))):
        return None
    manifest: dict[str, Any] = read_json(out / MANIFEST, dict[str, Any])
    for part in [*manifest["parts"], *filter(None, [manifest.get("groups")])]:
        path = out / part["name"]
        if not path.is_file() or sha256_of(path) != part["sha256"]:
            if work.overwrite:
                return None
            raise ValueError(f"{path} is missing or damaged; start over with `overwrite`")
    return manifest


def _read_identity(out: Path, fields: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a finished output's manifest that decided its pairs."""
    manifest = read_json(out / MANIFEST, dict[str, Any]) if is_committed(Folder(out), MANIFEST) else {}
    if manifest.get("format") != FORMAT:
        raise ValueError(f"{out} does not contain finished pairs of {_JOB}; choose another `out`, or empty it")
    return {name: manifest.get(name) for name in fields}


def _run(comparison: Comparison, work: Work, engine: Engine, workers: int) -> dict[str, Any]:
    """Write the output; return its manifest."""
    out, replaced = work.out, work.out.with_name(f".{work.out.name}.old")
    check_own_files(replaced, _OUTPUT_FILES, _JOB)
    begun = work.is_begun()
    multiplications = comparison.output.rows * comparison.seconds.rows * comparison.output.width
    multiplications //= 1 if comparison.other else 2
    seconds = multiplications / _MULTIPLICATIONS_PER_SECOND
    doing("starting the job")
    with tracked_run(f"mine {out.name}", out) as run, started_tasks(engine, workers, seconds) as tasks:
        if begun:
            say(f"resuming the work in {work.folder}")
        else:
            work.clear()
            work.begin()
        _describe(run, comparison, workers)
        if not tasks.is_local:
            pairs = f"{comparison.output.rows:,} × {comparison.seconds.rows:,} rows"
            say(f"comparing {pairs} takes about {duration(seconds / workers)} in {workers} workers")
        manifest = _Steps(comparison, work.folder, tasks).write(work.fingerprint)
        run.metrics({"pairs": manifest["pairs"], "parts": len(manifest["parts"])})
        run.metrics({"equal_texts": manifest["equal_texts"]} if "equal_texts" in manifest else {})
        shutil.rmtree(replaced, ignore_errors=True)
        replace_folder(work.folder / "result", out, replaced, lambda _: _finished(work))
        work.remove()
        run.artifacts(out / MANIFEST)
    return manifest


def _describe(run: Run, comparison: Comparison, workers: int) -> None:
    run.params(asdict(comparison.settings))
    run.params({"embeddings": comparison.output.digest, "rows": comparison.output.rows})
    for output in filter(None, (comparison.output, comparison.other)):
        run.dataset(output.store.name, output.digest, [str(output.store)], "mining", output.rows)
    if comparison.other is not None:
        run.params({"other": comparison.other.digest, "other_rows": comparison.other.rows})
    run.tags({"workers": str(workers)})
    run.link("encoder_run", "fingerprint", comparison.output.encoder)


@dataclass(frozen=True)
class _Steps:
    """Steps of ``paraembed.embedding.mine`` as tasks; each writes files, which a later run reuses."""

    comparison: Comparison
    folder: Path
    tasks: Tasks

    def write(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Write the parts, the manifest and finally ``_SUCCESS`` to ``result``; return the manifest."""
        comparison, settings = self.comparison, self.comparison.settings
        pair_files = self._make("comparing", "pairs", partial(neighbors, comparison))
        of_firsts, of_seconds = (self._write_lasts(name, pair_files) for name in ("first", "second"))
        files = self._make("choosing pairs", "kept", partial(keep_pairs, pair_files, of_firsts, of_seconds))
        num_pairs, size = sum(len(load(path)) for path in files), settings.part_pairs
        result, count = self.folder / "result", max(1, -(-num_pairs // size))
        result.mkdir(exist_ok=True)
        for temporary in result.rglob(".*.tmp"):  # of a worker that was killed
            temporary.unlink()

        def write(number: int) -> dict[str, Any]:
            span = number * size, (number + 1) * size
            return write_part(comparison, files, span, result / numbered_name(number, count))

        entries = list[dict[str, Any]]()
        for entry in self.tasks.run(write, range(count)):
            entries.append(entry)
            doing(f"writing: part {len(entries):,} of {count:,}")
        written, groups = sum(entry["rows"] for entry in entries), list[dict[str, Any]]()
        if settings.groups:
            doing("grouping rows")
            path = result / GROUPS / numbered_name(0, 1)
            path.parent.mkdir(exist_ok=True)
            groups = list(self.tasks.run(partial(write_groups, comparison, files), [path]))
        manifest = {
            **identity,
            "pairs": written,
            **({"equal_texts": num_pairs - written} if settings.distinct else {}),
            **({"groups": groups[0]} if groups else {}),
            "rows": {"first": comparison.output.rows, "second": comparison.seconds.rows},
            "encoder": comparison.output.encoder,
            "index": {},  # that earlier versions could build; still written, so that the bytes stay the same
            "parts": sorted(entries, key=lambda entry: str(entry["name"])),
        }
        commit_manifest(Folder(result), MANIFEST, manifest)
        return manifest

    def _write_lasts(self, name: str, pair_files: list[Path]) -> Path:
        """Write the ``top``-th nearest row of each first or second row; within one output these are the same rows."""
        comparison = self.comparison
        are_seconds = name == "second" and comparison.other is not None
        path = self.folder / f"last-{'second' if are_seconds else 'first'}.npy"
        if not path.exists():
            doing("ranking pairs")
            spans = comparison.blocks_of(comparison.seconds if are_seconds else comparison.output)
            last = partial(last_of_top, comparison, are_seconds=are_seconds, paths=pair_files)
            save(path, np.concatenate(list(in_order(self.tasks.run, last, spans))))
        return path

    def _make(self, what: str, name: str, function: Callable[..., None]) -> list[Path]:
        """Call ``function(block=…, path=…)`` for each block whose file is missing; return the files of all blocks."""
        files = [self.folder / f"{name}-{number:05d}.npy" for number in range(len(self.comparison.blocks))]
        todo = [block for block, path in enumerate(files) if not path.exists()]
        before = len(files) - len(todo)
        if before:
            say(f"  {what}: {before:,} of {len(files):,} blocks are already done")

        def make(block: int) -> None:
            function(block=block, path=files[block])

        doing(f"{what}: {len(files):,} blocks")
        for done, _ in enumerate(self.tasks.run(make, todo), before + 1):
            doing(f"{what}: {done:,} of {len(files):,} blocks are done")
        return files
