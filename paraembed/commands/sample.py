"""Write the generated sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from paraembed.console import say
from paraembed.stops import FAILED


@dataclass(frozen=True)
class Sample:
    """Write a generated sample: pairs in the PPDB line formats, word vectors, sentences and scored test pairs.

    Attributes:
        out: Folder for the files; new, empty or with an earlier sample, which is replaced file by file.
        lines: Lines of each PPDB-format file. Both hold the same pairs, ordered by falling score.
        seed: Equal settings give equal bytes.
        dimension: Length of the word vectors.
        sentences: Lines of sentences.txt.
        test_pairs: Rows of test-pairs.tsv, besides the header.
        ppdb_version: Which line formats to write.
        broken: Fraction of lines to spoil (broken, repeated, swapped), to see them rejected; such as 0.001.
        pairs: Lines of pairs.tsv, two sentences a line and no header; 0 for no such file.
    """

    out: Path
    lines: int = 100_000
    seed: int = 1
    dimension: int = 100
    sentences: int = 20_000
    test_pairs: int = 1_000
    ppdb_version: Literal["1.0", "2.0", "both"] = "both"
    broken: float = 0.0
    pairs: int = 0


def command(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of ``paraembed sample``, or these arguments; return the exit status."""
    flags = tyro.cli(Sample, args=arguments, prog="paraembed sample")
    from paraembed.pairs.sample import write_sample

    try:
        files = write_sample(**vars(flags))
    except (ValueError, OSError) as error:
        say(f"error: {error}")
        return FAILED
    out, names = files.vectors.parent, ", ".join(path.name for path in vars(files).values() if path)
    say(
        f"wrote {names} to {out} (generated pairs in the PPDB line formats, not PPDB); "
        f"next: python jobs/shard.py --input {files.ppdb_2 or files.ppdb_1} --out {out / 'shards'}"
    )
    return 0
