"""Command ``export``, from an encoder to another library's format: see ``python jobs/export.py --help``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import absolute, existing, existing_encoder
from paraembed.console import doing, say

if TYPE_CHECKING:
    from paraembed.encoders import Encoder
    from paraembed.tracking.runs import Run

_PREFIXES = {"sentence-transformers": "st", "hub": "st", "model2vec": "m2v", "onnx": "onnx"}


@dataclass(frozen=True)
class Export:
    """Write an encoder in the format of another library.

    sentence-transformers: folder that SentenceTransformer(path) loads, of avg, scaled_avg, word, proj and dan.

    hub: the same folder with a model card, for huggingface-cli upload; nothing is uploaded.

    model2vec: folder that StaticModel.from_pretrained(path) loads, of avg, scaled_avg and proj.

    onnx: folder with model.onnx (opset 17) and tokenizer.json, for ONNX Runtime and fastembed, of all encoders but
    recursive.

    word2vec: word vectors as text, a line 'rows width', then lines 'word v1 ... vd', for word2vec, gensim and
    jobs/train.py --words; values keep every bit of float32. The row UUUNKKK is <unk>; <s> and </s> are BOS and EOS.
    """

    encoder: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Encoder folder, written by jobs/train.py."""
    to: Literal["word2vec", "sentence-transformers", "model2vec", "onnx", "hub"]
    """Format to write."""
    out: Path
    """Folder to write; for word2vec a file, compressed if its name ends in .gz."""
    check: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Text file with one text per line, also .gz; the export fails if the tokens of a line would differ. A built-in
    sample is always compared.
    """
    license: str = ""
    """License of the encoder in the model card of hub, such as apache-2.0."""
    scores: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """scores.json of jobs/evaluate.py, whose scores are in the model card of hub."""
    overwrite: bool = False
    """Replace an existing file or exported model at --out."""


def main(flags: Export) -> None:
    """Read the encoder, write the file or folder, and log the run."""
    folder, out = existing_encoder(flags.encoder, "--encoder"), absolute(flags.out, "--out")
    check = existing(flags.check, "--check") if flags.check else None
    scores = existing(flags.scores, "--scores") if flags.scores else None
    if flags.to != "hub" and (scores or flags.license):
        raise ValueError(f"--license and --scores are for the model card of --to hub, not {flags.to}; leave them out")
    if flags.to == "word2vec":
        if out.is_dir():
            raise IsADirectoryError(f"{flags.out} is a folder; give --out a file name, such as vectors.txt.gz")
        if check:
            raise ValueError("--check compares tokens, but word2vec text has no tokenizer; leave it out")
        if out.exists() and not flags.overwrite:
            raise ValueError(f"{flags.out} already exists; choose another --out, or replace it with --overwrite")
    else:
        from paraembed.export.folder import check_target

        check_target(out, overwrite=flags.overwrite)
    from paraembed import checkpoint
    from paraembed.tracking.runs import tracked_run

    doing(f"reading {folder.name}")
    encoder = checkpoint.load(folder)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tracked_run(f"export {flags.to}", out) as tracked:
        tracked.params({"encoder": str(folder), "to": flags.to, "out": str(out)})
        tracked.tags({"fingerprint": encoder.fingerprint})
        tracked.dataset("encoder", encoder.fingerprint, [str(folder)], "export")
        if flags.to == "word2vec":
            _write_word2vec(encoder, out, flags, tracked)
        else:
            card = None
            if flags.to == "hub":
                from paraembed.export.hub import model_card

                readme = folder / "README.md"
                text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
                card = model_card(encoder, text, flags.license, scores)
            _write_folder(encoder, out, flags, check, card)


def _write_word2vec(encoder: "Encoder", out: Path, flags: Export, tracked: "Run") -> None:
    from paraembed.export.word2vec import is_in_words, words_of, write_word2vec
    from paraembed.text.vocabulary import UNKNOWN

    words = words_of(encoder)
    num_words, width = words.matrix.shape
    doing(f"writing {out.name}")
    tracked.tags({"sha256": write_word2vec(words, out)})
    tracked.metrics({"words": num_words, "width": width})
    say(f"wrote {flags.out}: {num_words:,} word vectors of width {width}; <unk> is {UNKNOWN}")
    if not is_in_words(encoder.composition):
        say(f"left out: the layers of {encoder.config.name}, so the word vectors alone do not give its text vectors")
    say(f"next: python jobs/train.py --words {flags.out} …")


def _write_folder(encoder: "Encoder", out: Path, flags: Export, check: Path | None, card: str | None) -> None:
    from paraembed.export.folder import write_folder
    from paraembed.io.lines import read_text

    texts = read_text(check) if check else []
    doing(f"comparing the tokens of {len(texts):,} texts and a sample, and writing {out.name}")
    write_folder(encoder, flags.to, out, texts, card)
    say(
        f"wrote {flags.out}: model folder with text vectors of width {encoder.width}",
        f"next: python jobs/evaluate.py --encoder {_PREFIXES[flags.to]}:{flags.out} …",
    )


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Export)
