"""Score encoders on what the papers measured, beside what they printed."""

import sys

if __name__ == "__main__":  # before imports that take seconds, and fail without the virtual environment
    sys.path.append(f"{sys.path[0]}/..")
    from paraembed.commands.start import guard

    guard()

import shutil

import torch

from paraembed.commands.evaluate import Evaluation, blocks, evaluate
from paraembed.commands.job import print_table, run, say


def main(flags: Evaluation) -> None:
    """Score, print the tables, say where the rest is."""
    torch.set_num_threads(1)  # two collapse where anything else runs: OpenMP's barriers spin
    outcome = evaluate(flags)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for table in outcome.report.tables(brief=True):
        print(table.title)
        for block in blocks(table, width):
            print_table(*block)
        print(*(f"  {note}" for note in table.notes), "", sep="\n")
    say(*(f"note: {note}" for note in outcome.report.notes))
    say(*(f"not made: {one}" for one in outcome.not_made))
    following = (
        f"embed.py --encoder {flags.encoder[0]}" if flags.encoder else f"train.py --words {flags.words or 'FILE'}"
    )
    files = f"{len(outcome.written)} files, such as {outcome.written[-1].name}"
    say(f"wrote {files}, to {outcome.out}; next: python jobs/{following} …")


if __name__ == "__main__":
    sys.exit(run(main, Evaluation))
