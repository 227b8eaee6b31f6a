"""Encoder or fine-tuned model as an MLflow model; MLflow calls ``_load_pyfunc`` when it loads one.

``registry`` stores this module, and the modules of this package that it imports, with the model.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paraembed import checkpoint
from paraembed.supervised import model as supervised


class Vectors:
    """Encoder for MLflow: texts to vectors float32 [n, H]."""

    num_texts = None  # a list of texts, not a table

    def __init__(self, folder: Path) -> None:
        self._encoder = checkpoint.load(folder)

    def predict(self, texts: Any, params: dict[str, Any] | None = None) -> Any:  # noqa: ARG002 - MLflow passes it
        """Return the vectors of texts: a list, an array, or a table with one column."""
        table = pd.DataFrame(np.atleast_1d(np.asarray(texts, dtype=object)))
        if table.shape[1] != 1:
            raise ValueError(
                f"the texts have {table.shape[1]} columns; give a list of texts, or a table with one column"
            )
        return self._encoder.encode(_strings(table[0]))


class Answers:
    """Fine-tuned model for MLflow: a table with a column per text of an example (``num_texts``), to answers."""

    def __init__(self, folder: Path) -> None:
        self._model = supervised.load(folder)
        self.num_texts = supervised.NUM_TEXTS[self._model.kind.task][0]

    def predict(self, table: Any, params: dict[str, Any] | None = None) -> Any:  # noqa: ARG002 - MLflow passes it
        """Return scores, names of classes, or similarities of options, one row per example."""
        columns = pd.DataFrame(table)
        return self._model.predict(*(_strings(columns[name]) for name in columns))


def _strings(column: pd.Series) -> list[str]:
    """Return a column as texts; a missing one is empty."""
    return ["" if is_missing else str(text) for text, is_missing in zip(column, column.isna(), strict=True)]


def load_model(folder: Path) -> Vectors | Answers:
    """Load an encoder folder, or a model folder of jobs/finetune.py."""
    return Answers(folder) if (folder / "encoder").is_dir() else Vectors(folder)


def _load_pyfunc(path: str) -> Vectors | Answers:
    return load_model(Path(path))
