"""Command ``weight``: write weighted word vectors as an encoder, a baseline to score or to embed a corpus with."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import existing, existing_encoder, new_output
from paraembed.console import doing, say
from paraembed.settings import MAX_BAD_WORDS, SMOOTHING
from paraembed.text import check_tokenizer


@dataclass(frozen=True)
class Weight:
    """Write a baseline, the weighted average of word vectors, as an encoder folder that all other jobs accept."""

    words: Path
    """Word-vector file with lines 'word v1 ... vd', plain or .gz."""
    out: Path
    """Encoder folder to write."""
    weighting: Literal["avg", "sif", "sif-common", "inverse-frequency", "l1"] = "sif"
    """Weights: a / (a + p(w)) (sif); the same without the common components of --corpus (sif-common, Arora et al.
    2017); 1 / p(w) (inverse-frequency); L1 norm of the word's vector in --trained (l1, Wieting 2016).
    """
    counts: Path | None = None
    """File of word counts for p(w), lines 'word count' or 'count word', plain or .gz; needed by all but l1."""
    corpus: Path | None = None
    """Text file, one text per line, on which the common components are fitted."""
    trained: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Encoder folder whose word vectors give the weights of l1."""
    max_words: int | None = None
    """Number of rows of the word-vector file to use; the mean of the other rows becomes the vector of <unk>; default:
    all.
    """
    max_bad_words: float = MAX_BAD_WORDS
    """Maximum fraction of rows of --words that are skipped because they are no word vectors, 0 to 1; 0: none."""
    tokenizer: str = "ptb-v1"
    """Tokenizer of the encoder: ptb-v1 or space, with +nfc or +nfkc to normalize texts first (ptb-v1+nfkc)."""
    smoothing: float = SMOOTHING
    """Smoothing a of sif, above 0 and below 1."""
    removed: int = 1
    """Number of common components to remove, at least 1."""
    overwrite: bool = False
    """Replace an existing encoder at --out."""


def main(flags: Weight) -> dict[str, Any]:
    """Build the encoder, write it, and log the run."""
    check_tokenizer(flags.tokenizer)
    out = new_output(flags.out, "--out", flags.words, flags.counts, flags.corpus, flags.trained)
    files = {name: getattr(flags, name) for name in ("words", "counts", "corpus")}
    paths = {name: existing(path, f"--{name}") for name, path in files.items() if path is not None}
    if flags.trained is not None:
        paths["trained"] = existing_encoder(flags.trained, "--trained")
    from paraembed import checkpoint, encoders
    from paraembed.evaluation.baselines import Sources, baseline
    from paraembed.evaluation.report import encoder_metadata
    from paraembed.io.escape import markdown
    from paraembed.io.fingerprint import sha256_of
    from paraembed.tracking.runs import tracked_run

    checkpoint.check_replaceable(out, overwrite=flags.overwrite)
    sources = Sources(
        **paths,
        max_words=flags.max_words,
        max_bad_words=flags.max_bad_words,
        tokenizer=flags.tokenizer,
        smoothing=flags.smoothing,
        removed=flags.removed,
    )
    doing(f"reading the words of {flags.words.name}")
    weighted = baseline(flags.weighting, sources)
    encoder = weighted.encoder
    assert isinstance(encoder, encoders.Encoder)
    with tracked_run(f"weight {out.name}", out) as tracked:
        tracked.params({name: str(value) for name, value in asdict(flags).items() if value is not None})
        for name, path in paths.items():
            digest = checkpoint.read_config(path)["fingerprint"] if name == "trained" else sha256_of(path)
            tracked.dataset(name, digest, [str(path)], "weighting")
        card = f"{encoder_metadata(encoder, flags.weighting)}\n# {weighted.label}\n\n"
        card += f"An {markdown(weighted.description)}; nothing of it was trained by paraembed.\n"
        fingerprint = checkpoint.save(
            encoder, out, recipe={}, provenance=encoder.provenance, model_card=card, overwrite=flags.overwrite
        )
        tracked.tags({"fingerprint": fingerprint})
    say(f"wrote {flags.out}: {weighted.description}", f"next: python jobs/evaluate.py --encoder {flags.out} …")
    return {"words": len(encoder.vocabulary), "width": encoder.width}


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Weight)
