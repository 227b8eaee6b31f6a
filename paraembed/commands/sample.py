"""Command ``paraembed sample``, which writes the generated sample; its flags are the parameters of ``write_sample``."""

from collections.abc import Sequence

import tyro

from paraembed.commands.job import exit_status
from paraembed.console import say
from paraembed.pairs.sample import write_sample


def command(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of ``paraembed sample``, or the given arguments; return the exit status."""
    try:
        files = tyro.cli(write_sample, args=arguments, prog="paraembed sample")
    except (ValueError, OSError) as error:
        say(f"error: {error}")
        return exit_status(error)
    out, names = files.vectors.parent, ", ".join(path.name for path in vars(files).values() if path)
    if files.suites:
        say(
            f"{files.suites} has generated examples in the layouts of the evaluation suites, not the published sets; "
            f"score an encoder: python jobs/evaluate.py --encoder small --suite all --data {files.suites}"
        )
    say(
        f"wrote {names} to {out} (generated pairs in the PPDB line formats, not PPDB); "
        f"next: python jobs/shard.py --input {files.ppdb_2 or files.ppdb_1} --for small --out {out / 'shards'}"
    )
    return 0
