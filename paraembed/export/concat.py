"""Write the folder of two encoders as one, whose text vector is those of both, one after the other."""

from collections.abc import Sequence
from pathlib import Path

from paraembed import checkpoint
from paraembed.encoders.concat import Concat
from paraembed.evaluation.report import encoder_metadata
from paraembed.export.smaller import cards_of, names_of, training_of


def write_concat(folders: Sequence[Path], out: Path, *, overwrite: bool = False) -> Concat:
    """Write the folder of two encoders as one; ``overwrite`` replaces an encoder at ``out``.

    Raise ValueError, and write nothing, if the number of encoders is not two, or an encoder reads trees.
    """
    if len(folders) != 2:
        raise ValueError(f"concat takes two encoders, got {len(folders)}; give `encoder` two folders")
    encoders = list(map(checkpoint.load, folders))
    lines = [
        encoder_metadata(encoders[0], "concat"),
        f"# {' and '.join(names_of(folders))} as one encoder",
        "",
        "Written by jobs/export.py; a text vector is those of both encoders, each of length √½, one after the other.",
        "The cosine of two texts is the mean of their two cosines.",
    ]
    provenance = {**training_of(encoders), "concat": [encoder.fingerprint for encoder in encoders]}
    card = "\n".join([*lines, *cards_of(folders), ""])
    return checkpoint.save_concat(folders, out, provenance=provenance, model_card=card, overwrite=overwrite)
