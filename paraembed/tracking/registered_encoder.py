"""Encoder folder as an MLflow model, from texts to vectors. MLflow stores this file with the model and runs it.

``registry`` stores the modules of this package that are imported here next to it.
"""

from typing import Any

import mlflow
import numpy as np
import numpy.typing as npt
from mlflow.pyfunc.model import PythonModel

from paraembed.checkpoint import load


class RegisteredEncoder(PythonModel):
    """MLflow model: ``mlflow.pyfunc.load_model("models:/NAME@champion").predict(["a text", …])`` returns float32 [n,
    H].
    """

    def load_context(self, context: Any) -> None:
        """Load the encoder."""
        self.encoder = load(context.artifacts["encoder"])

    def predict(  # type: ignore[override]  # MLflow reads the types, and calls it with what it declares
        self,
        context: Any,  # noqa: ARG002
        model_input: list[str],
    ) -> npt.NDArray[np.float32]:
        """Return the vectors of texts."""
        return self.encoder.encode(list(model_input))


mlflow.models.set_model(RegisteredEncoder())
