"""Score encoders on sentence pairs whose likeness people have judged."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from paraembed.cluster.job import print_table, run, say
from paraembed.cluster.session import absolute
from paraembed.cluster.tracking import tracked_run
from paraembed.evaluation.candidates import trained, untrained
from paraembed.evaluation.report import compare
from paraembed.evaluation.suites import read_pairs_files, read_sts


@dataclass(frozen=True)
class Flags:
    """Score an encoder, the untrained average of word vectors, or both side by side.

    A score is the correlation of two sentences' cosine with the score that people gave them, ×100 in the table.
    Say what to score (--encoder, --words or both) and what on (--suite with --data, --pairs, or both).

    Attributes:
        encoder: Encoder folder, as jobs/train.py writes.
        words: Word-vector file, one 'word v1 … vd' a line, plain or .gz; its plain average is scored.
        max_words: Rows of the word-vector file to use; the mean of the others stands for unknown words.
        suite: sts: the files <year>/<set>.tsv below --data; a year's score is the mean of its sets.
        data: Folder of the suite.
        pairs: Files of scored pairs, each a set: score, sentence1, sentence2, separated by tabs, plain or .gz.
        out: Folder for scores.json and scores.md; left out, ENCODER-scores beside the encoder, or ./scores.
    """

    encoder: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    words: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    max_words: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    suite: Annotated[Literal["sts"] | None, tyro.conf.arg(metavar="sts")] = None
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    pairs: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[FILE ...]")] = ()
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None


def main(flags: Flags) -> None:
    """Score, print the table, write it, log it."""
    _check(flags)
    torch.set_num_threads(1)  # two collapse where anything else runs: OpenMP's barriers spin
    beside = flags.encoder.with_name(f"{flags.encoder.name}-scores") if flags.encoder else Path("scores")
    out = absolute(flags.out or beside, "--out")
    suites = [read_sts(absolute(flags.data, "--data"))] if flags.data else []
    suites += [read_pairs_files([absolute(path, "--pairs") for path in flags.pairs])] if flags.pairs else []
    candidates = [trained(absolute(flags.encoder, "--encoder"))] if flags.encoder else []
    if flags.words:
        tokeniser = candidates[0].encoder.tokeniser if candidates else "ptb-v1"
        candidates.append(untrained(absolute(flags.words, "--words"), flags.max_words, tokeniser))
    with tracked_run(f"evaluate {candidates[0].description}", out) as tracked:
        tracked.params({name: value for name, value in asdict(flags).items() if value})
        report = compare(candidates, suites)
        for path in report.write(out):
            tracked.artifacts(path)
        tracked.metrics(report.metrics())
    print_table(*report.table())
    following = f"embed.py --encoder {flags.encoder}" if flags.encoder else f"train.py --words {flags.words}"
    say(*(f"note: {note}" for note in report.notes))
    say(f"wrote scores.json and scores.md to {out}; next: python jobs/{following} …")


def _check(flags: Flags) -> None:
    if not (flags.encoder or flags.words):
        raise ValueError("nothing to score; give --encoder FOLDER, --words FILE or both")
    if not (flags.suite or flags.pairs):
        raise ValueError("nothing to score on; give --suite sts --data FOLDER, --pairs FILE or both")
    if bool(flags.suite) != bool(flags.data):
        raise ValueError("--suite and --data go together: --suite sts --data FOLDER")
    if flags.max_words is not None and not flags.words:
        raise ValueError("--max-words needs --words FILE: it cuts the rows of that file")


if __name__ == "__main__":
    sys.exit(run(main, Flags))
