"""Word vectors times a weight of their word, as an encoder: a baseline to score, or to embed a corpus with."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import absolute, existing, existing_encoder
from paraembed.console import doing, say
from paraembed.settings import SMOOTHING


@dataclass(frozen=True)
class Weight:
    """Write a baseline, the weighted average of word vectors, as an encoder folder for every other job."""

    words: Path
    """Word-vector file with lines 'word v1 ... vd', plain or .gz."""
    out: Path
    """Encoder folder to write."""
    weighting: Literal["avg", "sif", "sif-common", "inverse-frequency", "l1"] = "sif"
    """sif: a / (a + p(w)); sif-common: and minus the common components of --corpus (Arora et al. 2017);
    inverse-frequency: 1 / p(w); l1: L1 norm of the word's vector in --trained (Wieting 2016)."""
    counts: Path | None = None
    """Word counts for p(w), lines 'word count' or 'count word', plain or .gz."""
    corpus: Path | None = None
    """Text file, one text per line, to fit the common components on."""
    trained: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Encoder folder whose word vectors give the weights of l1."""
    max_words: int | None = None
    """Number of rows of the word-vector file to use; the mean of the others becomes the vector of <unk>."""
    tokenizer: str = "ptb-v1"
    """Tokenizer of the encoder: ptb-v1 or space."""
    smoothing: float = SMOOTHING
    """Smoothing a of sif."""
    removed: int = 1
    """Number of common components to remove."""
    overwrite: bool = False
    """Replace an encoder at --out."""


def main(flags: Weight) -> None:
    """Make it, write it, log it."""
    out = absolute(flags.out, "--out")
    files = {name: getattr(flags, name) for name in ("words", "counts", "corpus")}
    paths = {name: existing(path, f"--{name}") for name, path in files.items() if path is not None}
    if flags.trained is not None:
        paths["trained"] = existing_encoder(flags.trained, "--trained")
    from paraembed import checkpoint
    from paraembed.evaluation.baselines import Sources, baseline
    from paraembed.io.escape import markdown
    from paraembed.tracking.runs import tracked_run

    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        checkpoint.read_config(out)
        if not flags.overwrite:
            raise ValueError(f"{flags.out} holds an encoder; choose another --out, or replace it with --overwrite")
    sources = Sources(
        **paths,
        max_words=flags.max_words,
        tokenizer=flags.tokenizer,
        smoothing=flags.smoothing,
        removed=flags.removed,
    )
    with tracked_run(f"weight {flags.weighting}", out) as tracked:
        tracked.params({name: str(value) for name, value in asdict(flags).items() if value is not None})
        doing(f"reading the words of {flags.words.name}")
        weighted = baseline(flags.weighting, sources, progress=doing)
        card = f"# {weighted.name}\n\nAn {markdown(weighted.description)}; nothing of it was trained by paraembed.\n"
        fingerprint = checkpoint.save(weighted.encoder, out, recipe={}, provenance=weighted.provenance, model_card=card)
        tracked.tags({"fingerprint": fingerprint})
    say(f"wrote {flags.out}: {weighted.description}", f"next: python jobs/evaluate.py --encoder {flags.out} …")


def command() -> int:
    """Run the job of this process's command line."""
    return run(main, Weight)
