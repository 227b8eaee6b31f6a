"""The benchmark of the sharding, which runs on Ray."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from paraembed.benchmarks.shard import ShardWorkload, growth_table, measure, stage_table, table
from paraembed.cluster.job import print_table, say
from paraembed.cluster.session import absolute, ray_session
from paraembed.cluster.shard import shard_pairs
from paraembed.data.shards import ShardSettings
from paraembed.files import write_json


@dataclass(frozen=True)
class Shard:
    """Time the sharding of PPDB-format lines beside gzip and plain Python loops.

    Attributes:
        folder: For the generated files (0.24 GB a million lines; kept, so that a next run takes them) and the shards.
        out: JSON file for the numbers.
    """

    folder: Path
    workload: Annotated[ShardWorkload, tyro.conf.arg(name="")] = field(default_factory=ShardWorkload)
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None


def bench_shard(flags: Shard) -> None:
    """Measure inside of one Ray session, whose start does not count; print the tables, write the numbers."""
    workload, folder = flags.workload, absolute(flags.folder, "--folder")
    out = absolute(flags.out, "--out") if flags.out else None
    folder.mkdir(parents=True, exist_ok=True)

    def shard(inputs: Sequence[Path], to: Path, workers: int) -> None:
        shard_pairs(inputs, to, ShardSettings(), workers=workers, overwrite=True)

    with ray_session(workload.workers):
        found = measure(workload, folder, shard, say)
    print_table(*table(found))
    print_table(*stage_table(found))
    print_table(*growth_table(found))
    peak = f"{found.peak_bytes / 2**20:,.0f} MiB" if found.peak_bytes else "not known"
    say(f"{found.line_bytes:.0f} bytes a line; {workload.workers} workers; peak memory of a worker: {peak}")
    if out:
        write_json(out, {"settings": asdict(workload), **asdict(found)})
        say(f"wrote {out}")
