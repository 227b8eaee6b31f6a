"""The README of an encoder folder."""

from collections.abc import Mapping

from paraembed.encoders import config_to_dict
from paraembed.evaluation.report import Report
from paraembed.io.escape import markdown, markdown_row
from paraembed.recipe import Recipe


def model_card(
    name: str,
    recipe: Recipe,
    width: int,
    loss: float,
    sources: Mapping[str, int],
    scores: Report | None,
    kept: str = "",
) -> str:
    """README of an encoder folder: what it is, how to use it, what it was trained on and how, its scores.

    Args:
        name: of the recipe.
        recipe: what was done.
        width: length of a text vector.
        loss: last mean loss a pair.
        sources: pairs by source.
        scores: of the trained and the untrained encoder, where they were asked for.
        kept: sentence on which encoder of the training it is; empty: that of the last step.
    """
    options = config_to_dict(recipe.encoder)
    encoder = options.pop("name")
    rows = "\n".join(markdown_row((source, f"{count:,}")) for source, count in sources.items())
    rest = {key: value for key, value in recipe.to_dict().items() if key != "encoder"}
    settings = "\n".join(markdown_row((key, str(value))) for key, value in {**options, **rest}.items())
    table = f"\n#{scores.markdown()}" if scores else ""
    which = f"\nO{markdown(kept[1:])}.\n" if kept else ""
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
