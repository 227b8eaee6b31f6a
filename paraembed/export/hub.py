"""Model card for the Hugging Face hub: the README of an exported folder, with the metadata that the hub reads."""

from pathlib import Path
from typing import Any

from paraembed.encoders.base import Encoder
from paraembed.evaluation.report import HUB_TAGS, hub_metadata, known_metadata, without_usage
from paraembed.io.fingerprint import read_json


def model_card(encoder: Encoder, readme: str, license_id: str, scores: Path | None) -> str:
    """Return the README of an exported encoder: metadata, usage, then the encoder folder's ``readme`` without the usage
    section in it.

    ``license_id`` is the license of the encoder as the hub names it, such as apache-2.0; empty: that of ``readme``.
    The first column of ``scores``, the ``scores.json`` of ``jobs/evaluate.py`` for this encoder, becomes the
    ``model-index``; another file is a ValueError. Without it, the scores in the metadata of ``readme`` stay, as do
    language and data sets.
    """
    known = known_metadata(readme)
    kept = "language", "datasets", *(["model-index"] if scores is None else [])
    about: dict[str, Any] = {name: known.get(name) for name in kept}
    report = {"encoders": [{"scores": {}}]} if scores is None else read_json(scores)
    try:
        metadata = hub_metadata(
            f"paraembed-{encoder.config.name}",
            report["encoders"][0]["scores"],
            library_name="sentence-transformers",
            license=license_id or known.get("license"),
            tags=["sentence-transformers", *HUB_TAGS],
            **about,
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise ValueError(f"{scores} is not the scores.json that jobs/evaluate.py writes; choose another file") from None
    return "\n".join([metadata, *_USAGE.format(width=encoder.width).splitlines(), "", without_usage(readme)])


_USAGE = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")  # this folder, or its name on the hub
model.encode(["how do i control my thoughts", "can i control my thoughts"])  # float32 [2, {width}]
```"""
