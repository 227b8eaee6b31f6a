"""Command ``embed``, from text or tables to embeddings in Parquet: see ``python jobs/embed.py --help``."""

from dataclasses import dataclass
from shlex import quote
from typing import Annotated, Any

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import absolute_place, named_encoder
from paraembed.console import doing, say
from paraembed.embedding.settings import Identity, Limits, Settings
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.io.resume import check_destination
from paraembed.settings import CACHE_GB, DEFAULT_GPUS, DEFAULT_INFERENCE, Engine, Gpus, Inference, check_workers

DEFAULTS = Settings()


GROUPS = {
    "chunks": "chunk_tokens chunk_overlap chunk_by explode pool",
    "data": "id_kind tree_column stamp_column max_rejected max_rejected_share max_bad_files on_duplicate_id "
    "max_line_bytes "
    "max_inflation max_field_lines csv_delimiter csv_escape csv_skip_blanks encoding",
    "output": "normalize dim part_rows compression compact",
    "model": "prompt backend pooling batch_tokens trust_remote_code",
    "resources": "engine cache cache_gb batch_size device precision gpus gpu_share cpus_per_gpu price_per_hour",
}


@dataclass(frozen=True)
class FlatLimits(Limits):
    """Limits whose fields of ``reading`` are flags of their own."""

    reading: Annotated[TableLimits, tyro.conf.arg(name="")] = DEFAULT_TABLE_LIMITS


@dataclass(frozen=True)
class Embed:
    """Write one embedding for each row of text or tables, to a folder of Parquet files.

    Columns: the id, the columns of --keep, embedding, n_tokens and n_unknown. The same command resumes a stopped or
    killed run and repairs missing or damaged parts.
    """

    encoder: Annotated[str, tyro.conf.arg(metavar="FOLDER|small|st:MODEL|m2v:MODEL|onnx:FOLDER|RUN")]
    """Encoder folder, written by jobs/train.py; small, the encoder in the package; a model of sentence-transformers
    (st:), model2vec (m2v:) or ONNX Runtime (onnx:), as a folder or a name on the Hugging Face hub; or an MLflow run id,
    or models:/NAME@ALIAS.
    """
    input: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE [FILE ...]")]
    """Files, folders, globs or URIs: .txt (one text per line), .jsonl, .json, .csv, .tsv, also .gz, .zst, .bz2, .zip;
    .parquet, .arrow; a folder can be a Delta or Iceberg table.
    """
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """Output folder or its URI (s3://, gs://): new, empty, or of an earlier run of the same command."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = DEFAULTS
    limits: Annotated[FlatLimits, tyro.conf.arg(name="")] = FlatLimits()
    workers: int = 2
    """Number of worker processes, one CPU each; not read if the encoder computes on GPUs, see --gpus."""
    engine: Engine = "auto"
    """Where to embed: in the process of the job (local), in --workers processes of Ray (ray), or (auto) local if the
    estimated time is below 20 seconds and neither a cluster nor a GPU is used. Both write the same bytes.
    """
    identity: Identity = "stamp"
    """How a run that is resumed recognizes its inputs and finished parts: by size and times, or the ETag of an object
    (stamp); or by their SHA-256, for which all are read at each start (sha256).
    """
    append: bool = False
    """Add the inputs that a finished output does not have yet; the others are not read. The ids must be file-row or
    of a column.
    """
    cache: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder or URI that keeps vectors, so that later runs with this encoder compute only those of new texts."""
    cache_gb: float = CACHE_GB
    """Maximum size of --cache in GB; at the end of a run, the oldest files are removed."""
    overwrite: bool = False
    """Embed everything again, and replace the existing output at the end."""
    dry_run: bool = False
    """Print the expected rows, files, bytes and time, measured by two seconds of embedding, and exit."""
    inference: Annotated[Inference, tyro.conf.arg(name="")] = DEFAULT_INFERENCE
    gpu: Annotated[Gpus, tyro.conf.arg(name="")] = DEFAULT_GPUS
    price_per_hour: float | None = None
    """Price of all workers per hour, for the cost estimate of --dry-run."""


def main(flags: Embed) -> dict[str, Any]:
    """Embed, and print the next command."""
    check_workers(flags.workers)
    encoder, out = named_encoder(flags.encoder, "--encoder"), absolute_place(flags.out, "--out")
    cache = None if flags.cache is None else absolute_place(flags.cache, "--cache")
    check_destination(out, flags.encoder, *flags.input)
    if cache is not None:
        check_destination(cache, flags.encoder, *flags.input, out, name="cache")
    elif flags.cache_gb != CACHE_GB:
        raise ValueError(f"--cache-gb is {flags.cache_gb}, but --cache is not given; give it, too, or leave both out")
    inputs = [str(absolute_place(argument, "--input")) for argument in flags.input]
    if flags.price_per_hour is not None and not flags.dry_run:
        raise ValueError(
            f"--price-per-hour is {flags.price_per_hour}, but only --dry-run prints a cost; add --dry-run, or leave "
            "it out"
        )
    if flags.overwrite and flags.append:
        raise ValueError("--overwrite and --append are both given; give only one of them")
    options: dict[str, Any] = {"workers": flags.workers, "inference": flags.inference, "gpus": flags.gpu}
    options |= {"limits": flags.limits, "append": flags.append, "cache": cache, "cache_gb": flags.cache_gb}
    if flags.dry_run:
        from paraembed.cluster.tasks import is_local
        from paraembed.embedding.estimate import dry_run
        from paraembed.tracking.fetch import fetch_encoder

        options |= {"price_per_hour": flags.price_per_hour, "fetch": fetch_encoder}
        options |= {"is_local": lambda seconds: is_local(flags.engine, seconds)}
        return {"estimate": dry_run(encoder, inputs, out, flags.settings, **options)}
    doing("finding the input files")
    from paraembed.cluster.embed import embed

    options |= {"engine": flags.engine, "identity": flags.identity, "overwrite": flags.overwrite}
    done = embed(encoder, inputs, out, flags.settings, **options)
    if not done.was_finished:
        rows, parts = f"{done.rows:,} row{'s'[: done.rows != 1]}", f"{done.parts} part{'s'[: done.parts > 1]}"
        written = f"added {done.added:,} to {rows} of" if done.added else f"wrote {rows} in {parts} to"
        say(f"{written} {done.table}; next: python jobs/verify.py {quote(str(out))}")
    counts = {"rows": done.rows, "parts": done.parts, "bad_files": done.bad_files, "cached": done.cached}
    return counts | ({"added": done.added} if flags.append else {})


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Embed, GROUPS)
