"""The command line of the generated sample: see ``python -m paraembed.data.sample --help``."""

import sys
from collections.abc import Sequence

import tyro

from paraembed.data.sample import write_sample


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the sample, say what comes next; returns the exit status."""
    try:
        files = tyro.cli(write_sample, args=arguments, prog="python -m paraembed.data.sample")
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    out = files.vectors.parent
    names = ", ".join(path.name for path in vars(files).values() if path)
    sys.stdout.write(
        f"wrote {names} to {out} (generated pairs in the PPDB line formats, not PPDB); "
        f"next: python jobs/shard.py --input {files.ppdb_2 or files.ppdb_1} --out {out / 'shards'}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
