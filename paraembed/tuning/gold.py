"""Trials on gold labels: what they share, and what they are scored by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from paraembed.encoders import Encoder
from paraembed.recipe import SupervisedRecipe
from paraembed.supervised.model import Kind, Supervised, options_of
from paraembed.supervised.scores import score
from paraembed.supervised.step import ExampleIds, SupervisedStep, example_ids
from paraembed.supervised.tasks import Task
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import Words
from paraembed.training.loop import Report, run_steps
from paraembed.training.state import Counters


@dataclass(frozen=True)
class GoldInputs:
    """What trials on gold labels share; nothing here is written to.

    Attributes:
        kind: what a model answers.
        vocabulary: string array [V].
        matrix: float32 [V, D], the initial word vectors.
        composition: the other parameters of the encoder that trials begin with, by name; None: new ones, by the seed.
        texts: those of an example side by side.
        targets: what the model's ``losses`` compare with [n, …].
        num_dropped: examples that were left out, for one of their texts has no token.
    """

    kind: Kind
    vocabulary: pa.StringArray
    matrix: npt.NDArray[np.float32]
    composition: Mapping[str, npt.NDArray[Any]] | None
    texts: Ragged
    targets: npt.NDArray[Any]
    num_dropped: int = 0

    def __len__(self) -> int:
        """How many examples."""
        return len(self.targets)

    def first(self, num: int) -> "GoldInputs":
        """The first examples."""
        num_texts = len(self.texts) // len(self)
        return replace(self, texts=self.texts.slice(0, num * num_texts), targets=self.targets[:num])

    def part(self, share: float, seed: int) -> "GoldInputs":  # noqa: ARG002 - as pairs have it
        """All of them: no space searches the share."""
        assert share == 1
        return self

    def model(self, recipe: SupervisedRecipe, device: str = "cpu") -> Supervised:
        """The model before training, as ``jobs/finetune.py`` begins with it; the word matrix is a copy."""
        encoder = Encoder(
            recipe.encoder,
            Words(self.vocabulary, self.matrix.copy()),
            recipe.tokeniser,
            recipe.seed,
            boundary_tokens=recipe.boundary_tokens,
            max_tokens=recipe.max_tokens,
        )
        if self.composition is not None:
            encoder.composition.load_state_dict({name: _tensor(one) for name, one in self.composition.items()})
        return Supervised(encoder, self.kind, options_of(recipe), recipe.seed).to(device)

    def fit(
        self,
        model: Supervised,
        recipe: SupervisedRecipe,
        *,
        rank: int = 0,
        world: int = 1,
        on_report: Callable[[Report], None] = lambda _: None,
    ) -> Counters:
        """Train a model in place; errors and arguments as for ``training.loop.train``."""
        data = ExampleIds(self.texts, _tensor(self.targets))
        return run_steps(model, SupervisedStep(model, recipe, rank, world), data, len(data), on_report=on_report)


def gold_inputs(model: Supervised, task: Task, has_prior: bool) -> GoldInputs:
    """The inputs of trials that begin as a model does: with its words, and where it has a prior, with its encoder.

    Raises:
        ValueError: no example is left, or a tree does not fit its text.
    """
    data, encoder = example_ids(model, task.train), model.encoder
    if not len(data):
        raise ValueError(f"every example of the training part of {task.data_set} has a text without a token")
    composition = {name: one.detach().numpy() for name, one in encoder.composition.state_dict().items()}
    return GoldInputs(
        model.kind,
        encoder.vocabulary,
        encoder.matrix.detach().numpy(),
        composition if has_prior else None,
        data.texts,
        data.targets.numpy(),
        data.num_dropped,
    )


@dataclass(frozen=True)
class GoldScorer:
    """What a trial on gold labels is scored by: the development part of its task.

    As ``jobs/finetune.py`` keeps the model that is best on it, the score of a trial is that of its best epoch so far.

    Attributes:
        task: without the other parts, which trials do not look at.
    """

    task: Task
    keeps_best: ClassVar[bool] = True

    @classmethod
    def of(cls, task: Task) -> "GoldScorer":
        """The scorer of a task."""
        none = np.arange(0)
        return cls(replace(task, train=task.train.take(none), test=task.test.take(none)))

    def __call__(self, model: Supervised) -> tuple[float, dict[str, float]]:
        """The score, and all measures.

        Raises:
            ValueError: a correlation that is not defined.
        """
        values = score(model, self.task, "dev").values
        return values[self.task.measure], {f"dev/{name}": value for name, value in values.items()}


def _tensor(values: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values.copy())  # shared memory cannot be written to
