"""The README of an encoder folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paraembed.encoders import config_to_dict
from paraembed.evaluation.report import Report
from paraembed.io.escape import markdown, markdown_row
from paraembed.recipe import Recipe


@dataclass(frozen=True)
class Selected:
    """Which of a training's encoders was kept.

    Attributes:
        metric: by which it is the best.
        every: epochs between evaluations.
        best: its step, the pairs done by then, its score.
        scores: the same of every evaluation; None for a score that is not defined.
    """

    metric: str
    every: float
    best: tuple[int, int, float]
    scores: Sequence[tuple[int, int, float | None]]

    @property
    def step(self) -> int:
        """The step after which it was scored."""
        return self.best[0]

    def in_words(self) -> str:
        """One sentence."""
        (step, _, score), (last_step, _, last) = self.best, self.scores[-1]
        ends = "the last" if step == last_step else f"the last, after step {last_step:,}: {_hundredfold(last)}"
        return (
            f"of {len(self.scores)} evaluations, one every {self.every:g} epochs, the best by {self.metric} is kept: "
            f"{_hundredfold(score)} after step {step:,} ({ends})"
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        (step, _, score), (last_step, _, last) = self.best, self.scores[-1]
        return {
            "metric": self.metric,
            "best": {"step": step, "score": score},
            "last": {"step": last_step, "score": last},
            "scores": [[step, score] for step, _, score in self.scores],
        }

    def metrics(self) -> dict[str, float]:
        """For MLflow."""
        last = self.scores[-1][2]
        found = {"best/step": float(self.step), "best/score": self.best[2]}
        return found if last is None else {**found, "last/score": last}


def _hundredfold(score: float | None) -> str:
    return "none" if score is None else f"{100 * score:.2f}"


def model_card(
    name: str,
    recipe: Recipe,
    width: int,
    loss: float,
    sources: Mapping[str, int],
    scores: Report | None,
    selected: Selected | None = None,
) -> str:
    """README of an encoder folder: what it is, how to use it, what it was trained on and how, its scores.

    Args:
        name: of the recipe.
        recipe: what was done.
        width: length of a text vector.
        loss: last mean loss a pair.
        sources: pairs by source.
        scores: of the trained and the untrained encoder, where they were asked for.
        selected: which encoder of the training it is; None: that of the last step.
    """
    options = config_to_dict(recipe.encoder)
    encoder = options.pop("name")
    rows = "\n".join(markdown_row((source, f"{count:,}")) for source, count in sources.items())
    rest = {key: value for key, value in recipe.to_dict().items() if key != "encoder"}
    settings = "\n".join(markdown_row((key, str(value))) for key, value in {**options, **rest}.items())
    table = f"\n#{scores.markdown()}" if scores else ""
    which = f"\nO{markdown(selected.in_words()[1:])}.\n" if selected else ""
    return f"""# {encoder} ({markdown(name)})

A paraphrastic text encoder, trained by paraembed; last mean loss {loss:.4f}.
{which}
```python
import paraembed

encoder = paraembed.load("this folder")
encoder.encode(["how do i control my thoughts", "can i control my thoughts"])  # float32 [2, {width}]
```

| source | pairs |
|---|---|
{rows}

| recipe | {encoder} |
|---|---|
{settings}
{table}"""
