"""Command ``mine``, from embeddings to paraphrase pairs: see ``python jobs/mine.py --help``."""

from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import existing_output, new_output
from paraembed.console import say
from paraembed.settings import Engine, MineSettings, check_workers

GROUPS = {"output": "distinct groups part_pairs", "resources": "engine block_rows"}


@dataclass(frozen=True)
class Mine:
    """Find pairs of similar texts within an embeddings folder, or between two, and write them to Parquet.

    Columns: first and second (the texts), score (their cosine), first_id, second_id; jobs/shard.py --input reads this
    format. All pairs of rows are compared. The same command resumes a stopped or killed run.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Finished output of jobs/embed.py, a folder or URI."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Folder to write: part-*.parquet, _manifest.json and _SUCCESS."""
    other: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Second output of jobs/embed.py with the same encoder, to find pairs between both; default: find pairs within
    FOLDER.
    """
    settings: Annotated[MineSettings, tyro.conf.arg(name="")] = field(default_factory=MineSettings)
    workers: int = 2
    """Number of worker processes, one CPU each."""
    engine: Engine = "auto"
    """Where to compare: in the process of the job (local), in --workers processes of Ray (ray), or (auto) local if the
    estimated time is below 20 seconds and no cluster is used.
    """
    overwrite: bool = False
    """Replace existing pairs of other embeddings or settings."""


def main(flags: Mine) -> dict[str, Any]:
    """Mine, and print the numbers of pairs and groups, and the next command."""
    check_workers(flags.workers)
    folder, out = existing_output(flags.folder, "FOLDER"), new_output(flags.out, "--out", flags.folder, flags.other)
    other = existing_output(flags.other, "--other") if flags.other is not None else None
    from paraembed.cluster.mine import mine

    workers, engine, overwrite = flags.workers, flags.engine, flags.overwrite
    manifest, before = mine(
        folder, out, flags.settings, other=other, workers=workers, engine=engine, overwrite=overwrite
    )
    if not before:
        files = f"{quote(str(flags.out))}/*.parquet"
        left_out = f", without {manifest['equal_texts']:,} pairs of equal texts" if flags.settings.distinct else ""
        if flags.settings.groups:
            groups = manifest["groups"]
            say(
                f"grouped {groups['rows']:,} rows into {groups['groups']:,} groups, the largest of "
                f"{groups['largest']:,} rows; the {groups['rows'] - groups['groups']:,} rows to remove have "
                f"keep = false in {flags.out}/_groups/*.parquet"
            )
        say(
            f"wrote {manifest['pairs']:,} pairs to {flags.out}{left_out}; next: python jobs/shard.py --input {files} "
            "--out PAIRS"
        )
    return {"pairs": manifest["pairs"], **(manifest["groups"] if flags.settings.groups else {})}


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Mine, GROUPS)
