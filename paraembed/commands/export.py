"""Command ``export``, from an encoder to another library's format: see ``python jobs/export.py --help``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import absolute, existing_encoder
from paraembed.console import doing, say


@dataclass(frozen=True)
class Export:
    """Write an encoder in the format of another library.

    word2vec: word vectors as text, a line 'rows width', then lines 'word v1 ... vd', for word2vec, gensim and
    jobs/train.py --words; values keep every bit of float32. The row UUUNKKK is <unk>; <s> and </s> are BOS and EOS.
    """

    encoder: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Encoder folder, written by jobs/train.py."""
    to: Literal["word2vec"]
    """Format to write."""
    out: Path
    """File to write; compressed if its name ends in .gz."""
    overwrite: bool = False
    """Replace an existing file at --out."""


def main(flags: Export) -> None:
    """Read the encoder, write the file, and log the run."""
    folder, out = existing_encoder(flags.encoder, "--encoder"), absolute(flags.out, "--out")
    if out.is_dir():
        raise IsADirectoryError(f"{flags.out} is a folder; give --out a file name, such as vectors.txt.gz")
    if out.exists() and not flags.overwrite:
        raise ValueError(f"{flags.out} already exists; choose another --out, or replace it with --overwrite")
    from paraembed import checkpoint
    from paraembed.export.word2vec import is_in_words, words_of, write_word2vec
    from paraembed.text.vocabulary import UNKNOWN
    from paraembed.tracking.runs import tracked_run

    doing(f"reading {folder.name}")
    encoder = checkpoint.load(folder)
    words = words_of(encoder)
    num_words, width = words.matrix.shape
    out.parent.mkdir(parents=True, exist_ok=True)
    doing(f"writing {out.name}")
    with tracked_run(f"export {flags.to}", out) as tracked:
        tracked.params({"encoder": str(folder), "to": flags.to, "out": str(out)})
        tracked.tags({"fingerprint": encoder.fingerprint, "sha256": write_word2vec(words, out)})
        tracked.metrics({"words": num_words, "width": width})
    say(f"wrote {flags.out}: {num_words:,} word vectors of width {width}; <unk> is {UNKNOWN}")
    if not is_in_words(encoder.composition):
        say(f"left out: the layers of {encoder.config.name}, so the word vectors alone do not give its text vectors")
    say(f"next: python jobs/train.py --words {flags.out} …")


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Export)
