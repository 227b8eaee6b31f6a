"""Command line: parse flags, make one call, print one message. ``jobs/X.py`` and ``paraembed X`` run these modules."""

import sys
from importlib import import_module

from paraembed import __version__
from paraembed.signals import guard

INTRODUCTION = """paraembed trains text encoders on paraphrase pairs and embeds a corpus to Parquet.
start: paraembed sample --out sample && paraembed embed --encoder small --input sample/sentences.txt --out embeddings
docs:  README.md and docs/quickstart.md of the source; 'make docs' builds a site in build/site
"""
JOBS = {
    "shard": "pair files to pair shards; 'shard fetch' downloads public originals",
    "train": "pair shards to an encoder",
    "teach": "a sentence encoder and texts to a static encoder",
    "tune": "search a space of recipes",
    "evaluate": "score encoders",
    "finetune": "labeled examples to an encoder with a head",
    "weight": "word vectors to a weighted average as an encoder",
    "export": "an encoder in another library's format",
    "embed": "texts to embeddings in Parquet",
    "status": "progress of embed, also from another machine",
    "verify": "check an output of embed",
    "compact": "rewrite an output of embed that was added to as one generation",
    "search": "the rows of an output of embed nearest to a query",
    "load": "an output of embed into LanceDB, DuckDB, Delta Lake or pgvector",
    "mine": "paraphrase pairs from outputs of embed",
    "log": "send the records of a job to MLflow that was not reachable",
    "sample": "write generated pairs, word vectors, sentences and test sets",
    "completion": "print a script that completes jobs and flags in bash, zsh or fish",
}


def main(name: str) -> int:
    """Run a job with this process's command line; return its exit status."""
    guard()  # before imports that take seconds, and fail without the virtual environment
    return int(import_module(f"{__name__}.{name}").command())


def run_named() -> int:
    """Run the job that the first argument names; ``paraembed --help`` lists the jobs."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in JOBS:
        sys.argv[:2] = [f"paraembed {name}"]
        return main(name)
    lines = [f"  {name:<10} {what}" for name, what in JOBS.items()]
    usage = "\n".join(["usage: paraembed JOB [OPTIONS]", "", *lines, "", "paraembed JOB --help shows its options."])
    if name == "--version":
        sys.stdout.write(f"paraembed {__version__}\n")
        return 0
    if name in {"-h", "--help"}:
        sys.stdout.write(f"{INTRODUCTION}\n{usage}\n")
        return 0
    from paraembed.aliases import did_you_mean

    sys.stderr.write(f"error: unknown job {name!r}{did_you_mean(name, JOBS) or '; choose one of these'}\n{usage}\n")
    return 2
