"""Command ``teach``, from a sentence encoder and texts to a static encoder: see ``python jobs/teach.py --help``."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import absolute_place, existing, existing_pairs, named_encoder, new_output
from paraembed.console import doing, say
from paraembed.distillation.settings import TeachSettings, reading_settings
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.recipe import Recipe, read_recipe
from paraembed.settings import DEFAULT_GPUS, DEFAULT_INFERENCE, Gpus, Inference, check_workers

GROUPS = {
    "data": "max_line_bytes max_inflation max_field_lines csv_delimiter csv_escape csv_skip_blanks encoding",
    "student": "smoothing l2 steps",
    "teacher": "prompt backend pooling batch_tokens trust_remote_code device precision gpus gpu_share cpus_per_gpu",
}


@dataclass(frozen=True)
class Teach:
    """Teach a static encoder, one vector per word or subword, the text vectors of a sentence encoder.

    Stages: distinct texts, units and counts, the teacher's vectors of the texts and of each unit, a regression from
    the former to the latter, and with --pairs a training on paraphrase pairs. The same command resumes a stopped or
    killed run; runs with other settings share the stages in --work that are equal.
    """

    teacher: Annotated[str, tyro.conf.arg(metavar="FOLDER|small|st:MODEL|m2v:MODEL|onnx:FOLDER|RUN")]
    """Sentence encoder, as jobs/embed.py --encoder takes it."""
    texts: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE [FILE ...]")]
    """Files, folders, globs or URIs: .txt (one text per line), .jsonl, .csv, .tsv, also .gz, .zst, .bz2; .parquet."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Encoder folder to write."""
    text_column: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[COLUMN ...]")] = ()
    """Columns with texts, for example 'first second' of pair shards; required for all formats except .txt."""
    leave_out: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[FILE ...]")] = ()
    """Evaluation sets, files or folders; texts that equal one of their cells in letters and digits are left out."""
    pairs: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Pair shards on which the result of the regression is trained, without pairs that have a text of --leave-out;
    default: no training. The texts are tokenized again; subwords need them as they are: shard with --tokenizer space.
    """
    recipe: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Recipe of this training, a .json file such as a sweep writes; default: margin 0.6, learning rate 2e-4 or
    with --bigrams 3e-4, mega-batches of 4 x 500 pairs, 3 epochs."""
    work: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of the stages, which is kept; default: <out>.teach."""
    settings: Annotated[TeachSettings, tyro.conf.arg(name="")] = field(default_factory=TeachSettings)
    workers: int = 2
    """Number of worker processes, one CPU each."""
    overwrite: bool = False
    """Replace another encoder at --out."""
    dry_run: bool = False
    """Print the estimated time of each stage and exit; the teacher and the regression are measured on a part of the
    texts, the training is assumed to take 5,200 pairs/s at 384 dimensions."""
    inference: Annotated[Inference, tyro.conf.arg(name="")] = DEFAULT_INFERENCE
    gpu: Annotated[Gpus, tyro.conf.arg(name="")] = DEFAULT_GPUS
    reading: Annotated[TableLimits, tyro.conf.arg(name="")] = DEFAULT_TABLE_LIMITS


def main(flags: Teach) -> dict[str, Any]:
    """Teach, and print the next command."""
    check_workers(flags.workers)
    inputs = flags.teacher, *flags.texts, flags.pairs, flags.recipe
    teacher, out = named_encoder(flags.teacher, "--teacher"), new_output(flags.out, "--out", *inputs)
    work = new_output(flags.work or out.with_name(f"{out.name}.teach"), "--work", *inputs)
    texts = [str(absolute_place(argument, "--texts")) for argument in flags.texts]
    sets = [existing(path, "--leave-out") for path in flags.leave_out]
    pairs = None if flags.pairs is None else existing_pairs(flags.pairs, "--pairs")
    if flags.recipe is not None and pairs is None:
        raise ValueError("--recipe is for the training on pairs; add --pairs, or leave it out")
    recipe = None if flags.recipe is None else read_recipe(existing(flags.recipe, "--recipe"), Recipe)
    from paraembed.embedding.inputs import find_inputs

    doing("finding the texts")
    text_files = find_inputs(texts, flags.reading)
    from paraembed.embedding.columns import carried_fields

    carried_fields(text_files[:1], reading_settings(flags.text_column))
    from paraembed.distillation.stages import StudentRequest
    from paraembed.tracking.fetch import fetch_encoder

    request = StudentRequest(
        teacher,
        texts,
        flags.text_column,
        leave_out=tuple(file for path in sets for file in _files_of(path)),
        pairs=pairs,
        recipe=recipe,
        settings=flags.settings,
        inference=flags.inference,
        reading=flags.reading,
        files=text_files,
    )
    if flags.dry_run:
        from paraembed.distillation.estimate import dry_run

        return {"estimate": dry_run(request, workers=flags.workers, gpus=flags.gpu, fetch=fetch_encoder)}
    from paraembed.cluster.teach import teach

    record, was_finished = teach(request, out, work, workers=flags.workers, gpus=flags.gpu, overwrite=flags.overwrite)
    if not was_finished:
        say(f"wrote {flags.out}; next: python jobs/evaluate.py --encoder {flags.out} …")
    first, *others = [record] if "texts" in record else record.values()  # of `units` both, one for each kind
    counts = {name: first[name] for name in ("texts", "pairs") if name in first}
    return {**counts, "units": sum(student["units"] for student in (first, *others))}


def _files_of(path: Path) -> list[Path]:
    """Return the files below a folder, or the file itself."""
    return sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Teach, GROUPS)
