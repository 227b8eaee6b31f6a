"""Command ``export``, from an encoder to another library's format: see ``python jobs/export.py --help``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from paraembed.aliases import did_you_mean
from paraembed.commands.job import run
from paraembed.commands.paths import existing, new_output
from paraembed.console import doing, say
from paraembed.io.atomic import check_file
from paraembed.settings import DEFAULT_SMALLER, SHIPPED, SHIPPED_FOLDER, Smaller, is_shipped

if TYPE_CHECKING:
    from paraembed.encoders import Encoder
    from paraembed.tracking.records import Run

GROUPS = {"smaller encoder": "texts max_words dim dtype oov_pieces"}

_PREFIXES = {"sentence-transformers": "st", "hub": "st", "model2vec": "m2v", "onnx": "onnx"}


@dataclass(frozen=True)
class Export:
    """Write an encoder in the format of another library, or a smaller encoder.

    sentence-transformers: folder that SentenceTransformer(path) loads, of avg, scaled_avg, word, proj and dan.

    hub: the same folder with a model card, for huggingface-cli upload; nothing is uploaded.

    model2vec: folder that StaticModel.from_pretrained(path) loads, of avg, scaled_avg and proj.

    onnx: folder with model.onnx (opset 17) and tokenizer.json, for ONNX Runtime and fastembed, of all encoders but
    recursive.

    word2vec: word vectors as text, a line 'rows width', then lines 'word v1 ... vd', for word2vec, gensim and
    jobs/train.py --words; values keep every bit of float32. The row UUUNKKK is <unk>; <s> and </s> are BOS and EOS.

    encoder: encoder folder of paraembed, made from avg or scaled_avg encoders: the average of several, with fewer
    words, fewer dimensions, in int8, or with vectors of pieces for OOV tokens.

    concat: encoder folder of two encoders as one; its text vectors are those of both, one after the other.
    """

    encoder: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FOLDER|small [FOLDER ...]")]
    """Encoder folder, written by jobs/train.py or jobs/teach.py; small: the encoder in the package. --to encoder
    averages several encoders with the same words, --to concat takes two of any words.
    """
    to: Literal["word2vec", "sentence-transformers", "model2vec", "onnx", "hub", "encoder", "concat"]
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
    texts: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Text file with one text per line, also .gz, for --max-words and --dim; texts like those to embed."""
    smaller: Annotated[Smaller, tyro.conf.arg(name="")] = field(default_factory=Smaller)
    overwrite: bool = False
    """Replace an existing file, exported model or encoder at --out."""


def main(flags: Export) -> dict[str, int]:
    """Read the encoder, write the file or folder, and log the run."""
    folders, out = (
        [_folder(path) for path in flags.encoder],
        new_output(
            flags.out, "--out", *flags.encoder, flags.check, flags.scores, flags.texts, is_file=flags.to == "word2vec"
        ),
    )
    check = existing(flags.check, "--check") if flags.check else None
    scores = existing(flags.scores, "--scores") if flags.scores else None
    texts = existing(flags.texts, "--texts") if flags.texts else None
    if flags.to != "hub" and (scores or flags.license):
        raise ValueError(f"--license and --scores are for the model card of --to hub, not {flags.to}; leave them out")
    if flags.to == "encoder":
        return _write_smaller(folders, out, flags, texts)
    if texts or flags.smaller != DEFAULT_SMALLER:
        raise ValueError(
            f"--texts, --max-words, --dim, --dtype and --oov-pieces are for --to encoder, not {flags.to}; leave them "
            "out, or run --to encoder first and export its folder"
        )
    if flags.to == "concat":
        return _write_concat(folders, out, flags)
    if len(folders) > 1:
        raise ValueError(
            f"--to {flags.to} takes one encoder, got {len(folders)}; run --to encoder first, which averages them, and "
            "export its folder"
        )
    return _write_format(folders[0], out, flags, check, scores)


def _folder(path: Path, flag: str = "--encoder") -> Path:
    """Return the folder of a value of --encoder or --oov-pieces."""
    if is_shipped(str(path)):
        return SHIPPED_FOLDER
    return existing(path, flag, f"expected an encoder folder{did_you_mean(str(path), [SHIPPED])}")


def _write_format(folder: Path, out: Path, flags: Export, check: Path | None, scores: Path | None) -> dict[str, int]:
    """Write an encoder in the format of another library."""
    if flags.to == "word2vec":
        if check:
            raise ValueError("--check compares tokens, but word2vec text has no tokenizer; leave it out")
        check_file(out, overwrite=flags.overwrite)
    else:
        from paraembed.export.folder import check_target

        check_target(out, overwrite=flags.overwrite)
    from paraembed import checkpoint
    from paraembed.tracking.runs import tracked_run

    doing(f"reading {folder.name}")
    encoder = checkpoint.load(folder)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tracked_run(f"export {out.name}", out) as tracked:
        tracked.params({"encoder": str(folder), "to": flags.to, "out": str(out)})
        tracked.tags({"fingerprint": encoder.fingerprint})
        tracked.dataset("encoder", encoder.fingerprint, [str(folder)], "export")
        if flags.to == "word2vec":
            return _write_word2vec(encoder, out, flags, tracked)
        card = None
        if flags.to == "hub":
            from paraembed.export.hub import model_card

            readme = folder / "README.md"
            text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
            card = model_card(encoder, text, flags.license, scores)
        _write_folder(encoder, out, flags, check, card)
    return {"words": len(encoder.vocabulary), "width": encoder.width}


def _write_smaller(folders: list[Path], out: Path, flags: Export, texts: Path | None) -> dict[str, int]:
    """Write an encoder folder that is made from one or several others."""
    flags.smaller.check(texts, len(folders))
    from paraembed.export.smaller import write_smaller
    from paraembed.io.fingerprint import sha256_of

    name = flags.smaller.oov_pieces
    pieces = [] if name is None else [_folder(Path(name), "--oov-pieces")]
    settings = replace(flags.smaller, oov_pieces=str(pieces[0])) if pieces else flags.smaller
    with _tracked([*folders, *pieces], out, flags) as tracked:
        tracked.params({name: value for name, value in asdict(flags.smaller).items() if value is not None})
        if texts is not None:
            tracked.params({"texts": str(texts)})
            tracked.dataset("texts", sha256_of(texts), [str(texts)], "export")
        encoder, measures = write_smaller(folders, out, settings, texts, overwrite=flags.overwrite)
        num_words = len(encoder.vocabulary)
        size = sum(path.stat().st_size for path in out.rglob("model.safetensors")) / 1e6
        tracked.tags({"fingerprint": encoder.fingerprint})
        tracked.metrics({"words": num_words, "width": encoder.width, "megabytes": size, **measures})
    dtype = flags.smaller.dtype or "float32"
    line = f"wrote {flags.out}: {num_words:,} word vectors of width {encoder.width} in {dtype}, {size:.1f} MB"
    if "explained" in measures:
        line += f"; {measures['explained']:.1%} of the squared length of the text vectors is in these dimensions"
    if "oov" in measures:
        line += f"; {measures['oov']:.2%} of the tokens are out of vocabulary, before {measures['oov_before']:.2%}"
        if measures["more_tokens"]:
            line += f"; the number of tokens changes by {measures['more_tokens']:+.1%}"
    say(line, f"next: python jobs/evaluate.py --encoder {flags.out} …")
    return {"words": num_words, "width": encoder.width}


def _write_concat(folders: list[Path], out: Path, flags: Export) -> dict[str, int]:
    """Write the folder of two encoders as one."""
    from paraembed.export.concat import write_concat

    with _tracked(folders, out, flags) as tracked:
        both = write_concat(folders, out, overwrite=flags.overwrite)
        tracked.tags({"fingerprint": both.fingerprint})
        tracked.metrics({"width": both.width})
    say(
        f"wrote {flags.out}: {both.first.config.name} of width {both.first.width} and {both.second.config.name} of "
        f"width {both.second.width} as one encoder",
        f"next: python jobs/evaluate.py --encoder {flags.out} …",
    )
    return {"words": len(both.first.vocabulary) + len(both.second.vocabulary), "width": both.width}


@contextmanager
def _tracked(folders: list[Path], out: Path, flags: Export) -> "Iterator[Run]":
    """Check the folders of an export to an encoder folder, and log it as a run."""
    from paraembed import checkpoint
    from paraembed.tracking.runs import tracked_run

    if flags.check:
        raise ValueError(f"--check compares tokens with another library's, and --to {flags.to} has none; leave it out")
    checkpoint.check_replaceable(out, overwrite=flags.overwrite)
    fingerprints = [checkpoint.read_config(folder)["fingerprint"] for folder in folders]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tracked_run(f"export {out.name}", out) as tracked:
        tracked.params({"encoder": " ".join(map(str, folders)), "to": flags.to, "out": str(out)})
        for folder, fingerprint in zip(folders, fingerprints, strict=True):
            tracked.dataset("encoder", fingerprint, [str(folder)], "export")
        doing(f"reading {', '.join(folder.name for folder in folders)}")
        yield tracked


def _write_word2vec(encoder: "Encoder", out: Path, flags: Export, tracked: "Run") -> dict[str, int]:
    from paraembed.export.word2vec import is_in_words, words_of, write_word2vec
    from paraembed.text.vocabulary import UNKNOWN

    words = words_of(encoder)
    num_words, width = words.matrix.shape
    doing(f"writing {out.name}")
    tracked.tags({"sha256": write_word2vec(words, out, overwrite=flags.overwrite)})
    tracked.metrics({"words": num_words, "width": width})
    say(f"wrote {flags.out}: {num_words:,} word vectors of width {width}; <unk> is {UNKNOWN}")
    if not is_in_words(encoder.composition):
        say(f"left out: the layers of {encoder.config.name}, so the word vectors alone do not give its text vectors")
    if encoder.pieces is not None:
        say("left out: the pieces, so OOV tokens have the vector of <unk>")
    say(f"next: python jobs/train.py --words {flags.out} …")
    return {"words": num_words, "width": width}


def _write_folder(encoder: "Encoder", out: Path, flags: Export, check: Path | None, card: str | None) -> None:
    from paraembed.export.folder import write_folder
    from paraembed.io.lines import read_text

    texts = read_text(check) if check else []
    doing(f"comparing the tokens of {len(texts):,} texts and a sample, and writing {out.name}")
    write_folder(encoder, flags.to, out, texts, card, overwrite=flags.overwrite)
    say(
        f"wrote {flags.out}: model folder with text vectors of width {encoder.width}",
        f"next: python jobs/evaluate.py --encoder {_PREFIXES[flags.to]}:{flags.out} …",
    )


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Export, GROUPS)
