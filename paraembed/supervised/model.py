"""An encoder with a head on it: texts to scores, classes or choices; folder ↔ model, never pickle.

A folder holds ``encoder/`` (an encoder folder, which every job takes), ``head.safetensors``, ``config.json`` (task,
recipe, provenance, digests) and a ``README.md``.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed import checkpoint, folder_config
from paraembed.encoders import Encoder
from paraembed.files import new_folder
from paraembed.folder_config import check_files, write_config
from paraembed.supervised.heads import ChoiceHead, PairHead, TextHead, expected_scores, score_targets, similarity_loss
from paraembed.supervised.recipe import SupervisedRecipe
from paraembed.supervised.tasks import Task
from paraembed.tensors import load_tensors, save_tensors

FORMAT = "paraembed-supervised-1"
_DECIDES = ("kind", "head")
_FILES = ("encoder/config.json", "head.safetensors")
_HEADS = {"similarity": PairHead, "entailment": PairHead, "sentiment": TextHead}


@dataclass(frozen=True)
class Kind:
    """What a model answers.

    Attributes:
        task: its name.
        data_set: what it was trained on.
        classes: names of the classes; of similarity: the whole scores, ascending.
        low: lowest score of similarity.
    """

    task: str
    data_set: str
    classes: tuple[str, ...]
    low: int

    @classmethod
    def of(cls, task: Task) -> "Kind":
        """What a model of a task answers."""
        return cls(task.name, task.data_set, task.classes, task.low)


@dataclass(frozen=True)
class HeadOptions:
    """What a head is built by: the fields of the recipe that decide its shape and what it compares by."""

    head_layer: str
    head_width: int
    similarity: Literal["cosine", "dot"]
    margin: float
    loss_form: str


class Supervised(nn.Module):
    """Encoder and head.

    Attributes:
        encoder: texts to vectors.
        head: vectors to scores.
        kind: what it answers.
    """

    def __init__(self, encoder: Encoder, kind: Kind, options: HeadOptions, seed: int = 0) -> None:
        """Put a new head on an encoder.

        Raises:
            ValueError: the task has no such head.
        """
        super().__init__()
        self.encoder, self.kind, self.options = encoder, kind, options
        self.head = _head(kind, encoder.width, options, torch.Generator().manual_seed(seed))

    @property
    def matrix(self) -> nn.Parameter:
        """W_w of the encoder."""
        return self.encoder.matrix

    def targets(self, labels: npt.NDArray[np.float64]) -> Tensor:
        """What ``losses`` compares with: distributions [n, K] of scores, classes int64 [n]."""
        if self.kind.task == "similarity":
            low = self.kind.low
            return score_targets(torch.from_numpy(labels), low, low + len(self.kind.classes) - 1).float()
        return torch.from_numpy(labels.astype(np.int64))

    def losses(self, outputs_NK: Tensor, targets_N: Tensor) -> Tensor:
        """The objective of each example [N]."""
        if isinstance(self.head, ChoiceHead):
            return self.head.losses(outputs_NK)
        if self.kind.task == "similarity":
            losses_N = similarity_loss(outputs_NK, targets_N)
            return losses_N / outputs_NK.shape[1] if self.options.loss_form == "released" else losses_N
        return F.cross_entropy(outputs_NK, targets_N, reduction="none")

    def num_right(self, outputs_NK: Tensor, targets_N: Tensor) -> Tensor:
        """How many answers are right; of similarity: how many are nearest to the right whole score."""
        if isinstance(self.head, ChoiceHead):
            return (outputs_NK.argmax(1) == 0).sum()
        if self.kind.task == "similarity":
            steps_K = torch.arange(targets_N.shape[1], dtype=targets_N.dtype, device=targets_N.device)
            return ((expected_scores(outputs_NK, 0) - targets_N @ steps_K).abs() < 0.5).sum()
        return (outputs_NK.argmax(1) == targets_N).sum()

    @torch.inference_mode()
    def outputs(self, *texts: Sequence[str] | pa.StringArray, trees: Sequence[pa.StringArray] | None = None) -> Tensor:
        """What the head says of n examples, [n, K].

        Args:
            texts: one, two or more sequences of n texts, as many as the task's examples have.
            trees: for an encoder that reads trees, arrays of n bracketed trees, null where there is none.
        """
        arrays = [pa.array(one, pa.string()) if not isinstance(one, pa.Array) else one for one in texts]
        reads = self.encoder.composition.reads_trees
        given = trees if trees is not None and reads else [None] * len(arrays)
        vectors = [self.encoder.embed(one, trees=of).vectors for one, of in zip(arrays, given, strict=True)]
        self.head.eval()
        outputs: Tensor = self.head(torch.from_numpy(np.stack(vectors, axis=1)).to(self.matrix.device))
        return outputs.cpu()

    def predict(self, *texts: Sequence[str] | pa.StringArray) -> npt.NDArray[Any]:
        """Answers for n examples.

        Args:
            texts: one sequence of n texts (sentiment), two (similarity, entailment), as many as the task has.

        Returns:
            Scores float32 [n] (similarity), names of classes [n], similarities of options [n, K] (choices).
        """
        outputs_NK = self.outputs(*texts)
        if isinstance(self.head, ChoiceHead):
            similarities: npt.NDArray[np.float32] = outputs_NK.numpy()
            return similarities
        if self.kind.task == "similarity":
            scores: npt.NDArray[np.float32] = expected_scores(outputs_NK, self.kind.low).numpy()
            return scores
        return np.take(np.array(self.kind.classes), outputs_NK.argmax(1).numpy())


def options_of(recipe: SupervisedRecipe) -> HeadOptions:
    """The fields of a recipe that a head is built by."""
    return HeadOptions(**{one.name: getattr(recipe, one.name) for one in dataclasses.fields(HeadOptions)})


def _head(kind: Kind, width: int, options: HeadOptions, generator: torch.Generator) -> nn.Module:
    if kind.task not in _HEADS:
        return ChoiceHead(kind.task, options.similarity, options.margin)
    if kind.task == "sentiment":
        head_width = options.head_width if options.head_layer == "sigmoid" else None
        return TextHead(width, head_width, len(kind.classes), generator)
    if options.head_layer == "none":
        raise ValueError(f"head_layer is none, and the task {kind.task} has a sigmoid layer; allowed: sigmoid")
    return PairHead(width, options.head_width, len(kind.classes), generator)


def save(
    model: Supervised, folder: Path, *, recipe: dict[str, Any], provenance: dict[str, Any], model_card: str
) -> None:
    """Write a model folder, whole or not at all; a folder that stands there is replaced.

    Args:
        model: what to save.
        folder: where to.
        recipe: what decided the result, for the record.
        provenance: inputs, split and scores, for the record.
        model_card: text of ``README.md``.
    """
    with new_folder(folder) as new:
        checkpoint.save(
            model.encoder,
            new / "encoder",
            recipe=recipe,
            provenance={"training": {"task": dataclasses.asdict(model.kind)}},
            model_card=f"The encoder of a {model.kind.task} model, trained with it; see the README.md above.\n",
        )
        save_tensors(model.head.state_dict(), new / "head.safetensors")
        (new / "README.md").write_text(model_card, encoding="utf-8")
        decides = {"kind": dataclasses.asdict(model.kind), "head": dataclasses.asdict(model.options)}
        write_config(new, FORMAT, decides, _FILES, {"recipe": recipe, "provenance": provenance})


def load(folder: str | Path) -> Supervised:
    """Load a model folder.

    Raises:
        FileNotFoundError, NotADirectoryError: no folder there, or a file of it is missing.
        ValueError: not a model folder, or a file that differs from its digest.
    """
    folder = Path(folder)
    config = read_config(folder)
    check_files(folder, config)
    kind = Kind(**{**config["kind"], "classes": tuple(config["kind"]["classes"])})
    model = Supervised(checkpoint.load(folder / "encoder"), kind, HeadOptions(**config["head"]))
    try:
        model.head.load_state_dict(load_tensors(folder / "head.safetensors"))
    except RuntimeError as error:
        raise ValueError(f"{folder}: the weights do not fit the head in config.json: {error}") from None
    return model.requires_grad_(False).eval()


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a model folder.

    Raises:
        FileNotFoundError, NotADirectoryError, ValueError: as for ``load``.
    """
    return folder_config.read_config(folder, FORMAT, _DECIDES, _FILES, "a model folder, as jobs/finetune.py writes")
