"""An encoder with a head, from texts to scores, classes or choices; saved to folders without pickle.

A folder holds ``encoder/`` (an encoder folder, which every job accepts), ``head.safetensors``, ``config.json`` (task,
recipe, provenance, digests) and ``README.md``.
"""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.io.atomic import new_folder
from paraembed.io.folder_config import check_files, write_config
from paraembed.io.tensors import check_tensors, load_tensors, save_tensors
from paraembed.options import check_fields, checked
from paraembed.recipe import CHOICES, HEAD_RANGES, SupervisedRecipe
from paraembed.settings import DataSet, TaskName
from paraembed.supervised.folder import FILES, FORMAT, HEAD_FILE, read_config
from paraembed.supervised.heads import ChoiceHead, ClassifierHead, expected_scores, score_targets, similarity_loss
from paraembed.supervised.tasks import Examples, Task

_HEAD_DRAWS = 4  # a stream of its own: else the head would begin as a copy of the encoder's first numbers
_MOST_CLASSES = 1000
NUM_TEXTS = {"similarity": (2,), "entailment": (2,), "sentiment": (1,), "semeval2013": (2, 3), "turney": (7,)}
"""Number of texts of an example, by task; semeval2013 has two texts in a question and three in a training example."""


@dataclass(frozen=True)
class Kind:
    """Task and answers of a model, as in ``Task``."""

    task: TaskName
    data_set: DataSet
    classes: tuple[str, ...]
    low: int

    def __post_init__(self) -> None:
        """Raise ValueError if a value is not allowed."""
        check_fields(self, {"low": (-_MOST_CLASSES, _MOST_CLASSES)})
        num_classes = len(self.classes)
        if not (num_classes == 0 if self.task in CHOICES else 2 <= num_classes <= _MOST_CLASSES):
            raise ValueError(
                f"the task {self.task} has {num_classes} classes; expected 2 to {_MOST_CLASSES}, or 0 for choices"
            )

    @classmethod
    def of(cls, task: Task) -> "Kind":
        """Return the kind of a model for a task."""
        return cls(task.name, task.data_set, task.classes, task.low)


@dataclass(frozen=True)
class HeadOptions:
    """Recipe fields that determine a head: its shape, and the similarity it uses."""

    head_layer: Literal["sigmoid", "none"]
    head_width: int
    similarity: Literal["cosine", "dot"]
    margin: float
    loss_form: Literal["paper", "released"]

    def __post_init__(self) -> None:
        """Raise ValueError if a value is not allowed."""
        check_fields(self, HEAD_RANGES)


class Supervised(nn.Module):
    """Encoder, from texts to vectors, and head, from vectors to scores; ``kind`` says what they answer."""

    def __init__(self, encoder: Encoder, kind: Kind, options: HeadOptions, seed: int = 0) -> None:
        """Put a new head on an encoder.

        Raises:
            ValueError: the options do not fit the task.
        """
        super().__init__()
        self.encoder, self.kind, self.options = encoder, kind, options
        drawn = int(np.random.default_rng((seed, _HEAD_DRAWS)).integers(2**63))  # the encoder is drawn by the seed
        self.head = _head(kind, encoder.width, options, torch.Generator().manual_seed(drawn))

    @property
    def matrix(self) -> nn.Parameter:
        """Word matrix W_w of the encoder."""
        return self.encoder.matrix

    def targets(self, labels: npt.NDArray[np.float64]) -> Tensor:
        """Return the targets for ``losses``: distributions [n, K] for scores, int64 [n] for classes."""
        if self.kind.task == "similarity":
            low = self.kind.low
            return score_targets(torch.from_numpy(labels), low, low + len(self.kind.classes) - 1)
        return torch.from_numpy(labels.astype(np.int64))

    def losses(self, outputs_NK: Tensor, targets_N: Tensor, added: float = 0.0) -> Tensor:
        """Return the objective of each example [N]; ``added`` is added to each probability of its target."""
        if isinstance(self.head, ChoiceHead):
            return self.head.losses(outputs_NK)
        if self.kind.task == "similarity":
            losses_N = similarity_loss(outputs_NK, targets_N + added)
            return losses_N / outputs_NK.shape[1] if self.options.loss_form == "released" else losses_N
        if added:
            targets_N = F.one_hot(targets_N, outputs_NK.shape[1]).to(outputs_NK) + added
        return F.cross_entropy(outputs_NK, targets_N, reduction="none")

    def num_right(self, outputs_NK: Tensor, targets_N: Tensor) -> Tensor:
        """Return the number of right answers; for similarity, of scores nearest to the right integer. A tie of m
        choices counts 1/m.
        """
        if isinstance(self.head, ChoiceHead):
            is_first_NK = outputs_NK == outputs_NK.amax(1, keepdim=True)
            return (is_first_NK[:, 0] / is_first_NK.sum(1)).sum()
        if self.kind.task == "similarity":
            steps_K = torch.arange(targets_N.shape[1], dtype=targets_N.dtype, device=targets_N.device)
            return ((expected_scores(outputs_NK, 0) - targets_N @ steps_K).abs() < 0.5).sum()
        return (outputs_NK.argmax(1) == targets_N).sum()

    @torch.inference_mode()
    def read(self, examples: Examples) -> tuple[Tensor, int, int]:
        """Return the outputs of the head [n, K], the number of tokens of all texts, and the number of those without a
        word vector.
        """
        trees = (examples.trees if self.encoder.composition.reads_trees else None) or [None] * len(examples.texts)
        read = [self.encoder.embed(side, trees=of) for side, of in zip(examples.texts, trees, strict=True)]
        self.head.eval()
        vectors_NMH = torch.from_numpy(np.stack([embedded.vectors for embedded in read], axis=1)).to(self.matrix.device)
        outputs_NK: Tensor = self.head(vectors_NMH).cpu()
        tokens, unknown = (
            sum(int(getattr(embedded, name).sum()) for embedded in read) for name in ("num_tokens", "num_unknown")
        )
        return outputs_NK, tokens, unknown

    def predict(self, *texts: Sequence[str] | pa.StringArray) -> npt.NDArray[Any]:
        """Return the answers for n examples.

        Args:
            texts: one sequence of n texts (sentiment), two sequences (similarity, entailment; semeval2013: word and
                phrase), or seven sequences (turney: bigram, reversed bigram, five words).

        Returns:
            Scores float32 [n] (similarity), names of classes [n], similarities of options [n, K] (choices).

        Raises:
            ValueError: the number of sequences is wrong, or they differ in length.
        """
        lengths = [len(side) for side in texts]
        has_text = any(isinstance(side, str) for side in texts)
        if has_text or len(texts) not in NUM_TEXTS[self.kind.task]:
            single = "; one of them is a single text: put it into a list" if has_text else ""
            wanted = NUM_TEXTS[self.kind.task][0]
            raise ValueError(f"{self.kind.task} needs {wanted} sequences of texts, got {len(texts)}{single}")
        if len(set(lengths)) > 1:
            raise ValueError(f"the sequences have {', '.join(map(str, lengths))} texts; they must have equal lengths")
        arrays = tuple(side if isinstance(side, pa.Array) else pa.array(side, pa.string()) for side in texts)
        outputs_NK, _, _ = self.read(Examples(arrays, np.zeros(lengths[0])))
        if isinstance(self.head, ChoiceHead):
            similarities: npt.NDArray[np.float32] = outputs_NK.numpy()
            return similarities
        if self.kind.task == "similarity":
            scores: npt.NDArray[np.float32] = expected_scores(outputs_NK, self.kind.low).numpy()
            return scores
        return np.take(np.array(self.kind.classes), outputs_NK.argmax(1).numpy())


def options_of(recipe: SupervisedRecipe) -> HeadOptions:
    """Return the recipe fields that determine a head."""
    return HeadOptions(**{field.name: getattr(recipe, field.name) for field in dataclasses.fields(HeadOptions)})


def _head(kind: Kind, width: int, options: HeadOptions, generator: torch.Generator) -> nn.Module:
    if kind.task in CHOICES:
        return ChoiceHead(kind.task, options.similarity, options.margin)
    head_width = None if (kind.task, options.head_layer) == ("sentiment", "none") else options.head_width
    return ClassifierHead(NUM_TEXTS[kind.task][0], width, head_width, len(kind.classes), generator)


def save(
    model: Supervised,
    folder: Path,
    *,
    recipe: dict[str, Any],
    provenance: dict[str, Any],
    model_card: str,
    written: Path | None = None,
    write_more: Callable[[Path], object] = lambda _: None,
    overwrite: bool = False,
) -> None:
    """Write a model folder atomically; ``overwrite`` replaces another model.

    ``config.json`` records the recipe and the provenance: inputs, split and scores. The encoder's folder keeps the
    provenance of the pretrained encoder: its training pairs, and how it was selected. ``written`` is a folder of the
    same model whose weights and vocabulary are moved instead of being written again; ``write_more`` writes further
    files into the folder.
    """
    from paraembed.evaluation.report import encoder_metadata  # noqa: PLC0415 - not in the code of a registered model

    check = partial(checkpoint.check_replaceable, overwrite=overwrite, read=read_config, what="a model")
    with new_folder(folder, check) as new:
        write_more(new)
        checkpoint.save(
            model.encoder,
            new / "encoder",
            recipe=recipe,
            provenance=_encoder_provenance(model, recipe, bool(provenance)),
            model_card=f"{encoder_metadata(model.encoder)}\n"
            f"The encoder of a {model.kind.task} model, trained with it; see the README.md above.\n",
            written=written and written / "encoder",
        )
        if written is None:
            save_tensors(model.head.state_dict(), new / HEAD_FILE)
        else:
            shutil.move(written / HEAD_FILE, new / HEAD_FILE)
        (new / "README.md").write_text(model_card, encoding="utf-8")
        decides = {"kind": dataclasses.asdict(model.kind), "head": dataclasses.asdict(model.options)}
        write_config(new, FORMAT, decides, FILES, {"recipe": recipe, "provenance": provenance})


def _encoder_provenance(model: Supervised, recipe: dict[str, Any], is_trained: bool) -> dict[str, Any]:
    """Return the pairs and labeled examples that the encoder was trained on, and how it was selected."""
    before = model.encoder.provenance
    gold = checkpoint.gold_of(before)
    if is_trained and recipe["mode"] != "features":
        gold.append({"task": model.kind.task, "data_set": model.kind.data_set, "seed": recipe["seed"]})
    pairs = (before.get("training") or {}).get("pairs")
    known = {"gold": gold, **({"pairs": pairs} if pairs else {})}
    return {"training": known, **({"selected": before["selected"]} if before.get("selected") else {})}


def load(folder: str | Path) -> Supervised:
    """Load a model folder.

    Raises:
        FileNotFoundError, NotADirectoryError: the folder or one of its files does not exist.
        ValueError: the folder is not a model folder, or a file differs from its digest.
    """
    folder = Path(folder)
    config = read_config(folder)
    check_files(folder, config)
    kind = checked(Kind, config["kind"], f"{folder}/config.json: kind")
    options = checked(HeadOptions, config["head"], f"{folder}/config.json: head")
    encoder = checkpoint.load(folder / "encoder")
    tensors = load_tensors(folder / HEAD_FILE)
    with torch.device("meta"):  # shapes alone, as ``checkpoint.load``
        expected = _head(kind, encoder.width, options, torch.Generator()).state_dict()
    check_tensors(tensors, expected, f"{folder}: the weights do not match the head in config.json")
    model = Supervised(encoder, kind, options)
    model.head.load_state_dict(tensors)
    return model.requires_grad_(False).eval()
