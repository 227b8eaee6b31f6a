"""Command ``paraembed sample``, which writes the generated sample; its flags are in ``paraembed/pairs/sample.py``."""

from paraembed.commands.job import run
from paraembed.console import doing, say
from paraembed.pairs.sample import Sample, write_sample


def main(flags: Sample) -> dict[str, int]:
    """Write the sample, and print the next command."""
    doing("writing the sample")
    files = write_sample(**vars(flags))
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
    return {name: getattr(flags, name) for name in ("lines", "pairs", "sentences", "test_pairs")}


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Sample)
