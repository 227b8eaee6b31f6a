"""Pair files to pair shards: see ``python jobs/shard.py --help``."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from paraembed.cluster.job import run, say
from paraembed.cluster.session import absolute
from paraembed.cluster.shard import shard_pairs
from paraembed.data.shards import ShardSettings


@dataclass(frozen=True)
class Shard:
    """Read paraphrase pairs, count what is refused, drop duplicates, write pair shards (Parquet) for training.

    Input: PPDB 1.0 or 2.0 lines, TSV or CSV with two columns (or a header that names them), plain or .gz. Columns
    tree1 and tree2 hold bracketed binary trees, for an encoder that reads them.
    """

    input: tuple[Path, ...]
    """Pair files, best first: of equal pairs the one with the lowest line number stays, then the one first named."""
    out: Path
    """Folder to write: pairs-*.parquet, manifest.json, rejected-sample.jsonl, _SUCCESS."""
    settings: Annotated[ShardSettings, tyro.conf.arg(name="")] = field(default_factory=ShardSettings)
    workers: int = 2
    """Files parsed side by side."""
    overwrite: bool = False
    """Replace pair shards of other inputs or settings."""


def main(flags: Shard) -> None:
    """Shard, then say what was kept and what comes next."""
    inputs = [absolute(path, "--input") for path in flags.input]
    out = absolute(flags.out, "--out")
    manifest, before = shard_pairs(inputs, out, flags.settings, workers=flags.workers, overwrite=flags.overwrite)
    if before:
        return
    counts = manifest["counts"]
    for reason, count in counts["reasons"].items():
        say(f"  refused: {count:,} {reason}")
    say(
        f"wrote {counts['kept']:,} pairs of {counts['read']:,} rows to {flags.out}; "
        f"next: python jobs/train.py --pairs {flags.out} --words VECTORS.txt.gz --out ENCODER"
    )


if __name__ == "__main__":
    sys.exit(run(main, Shard))
