"""Model card for the Hugging Face hub: the README of an exported folder, with the metadata that the hub reads."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paraembed.encoders.base import Encoder
from paraembed.evaluation.report import without_usage
from paraembed.io.fingerprint import read_json

_MOST = 200  # results of a card


def model_card(encoder: Encoder, readme: str, license_id: str, scores: Path | None) -> str:
    """Return the README of an exported encoder: metadata, usage, then the encoder folder's ``readme`` without the usage
    section in it.

    ``license_id`` is the license of the encoder as the hub names it, such as apache-2.0; empty: the card names none.
    The first column of ``scores``, the ``scores.json`` of ``jobs/evaluate.py`` for this encoder, becomes the
    ``model-index``; another file is a ValueError.
    """
    name = f"paraembed-{encoder.config.name}"
    about: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "sentence-similarity", "feature-extraction", "paraembed"],
        **({"license": license_id} if license_id else {}),
    }
    if scores is not None:
        about["model-index"] = [{"name": name, "results": _results(scores)}]
    # JSON is YAML, whatever a name or a value contains.
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in about.items()]
    return "\n".join(
        ["---", *lines, "---", "", *_USAGE.format(width=encoder.width).splitlines(), "", without_usage(readme)]
    )


_USAGE = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")  # this folder, or its name on the hub
model.encode(["how do i control my thoughts", "can i control my thoughts"])  # float32 [2, {width}]
```"""


def _results(scores: Path) -> list[dict[str, Any]]:
    """Return the scores of a report's first column in the form of the hub."""
    report = read_json(scores)
    try:
        named: Mapping[str, Any] = report["encoders"][0]["scores"]
        return [
            {
                "task": {"type": "sentence-similarity"},
                "dataset": {"type": name, "name": name},
                "metrics": [{"type": score["measure"], "value": float(score[score["measure"]])}],
            }
            for name, score in list(named.items())[:_MOST]
        ]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise ValueError(f"{scores} is not the scores.json that jobs/evaluate.py writes; choose another file") from None
