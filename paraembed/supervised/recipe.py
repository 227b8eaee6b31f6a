"""SupervisedRecipe: everything that decides a training on gold labels, apart from data and number of workers."""

from dataclasses import dataclass
from typing import Literal

from paraembed.encoders import encoder_name
from paraembed.options import check_fields
from paraembed.recipe import BaseRecipe, has_weights, idle_in_any, named

Mode = Literal["scratch", "universal", "features"]

HEAD_RANGES = {"head_width": (1, 100_000), "margin": (1e-36, 1e36)}
"""Allowed values of what a head is built by."""

_RANGES = {
    **HEAD_RANGES,
    "head_penalty": (0, 1e36),
    "head_dropout": (0, 0.99),
    "dev_every": (1, 2**31 - 1),
    "patience": (1, 2**31 - 1),
}


@dataclass(frozen=True)
class SupervisedRecipe(BaseRecipe):
    """How an encoder and a head on it are trained on gold labels (Wieting 2016 §4.4); frozen, JSON."""

    mode: Mode = "scratch"
    """scratch: begin with word vectors.
    universal: begin with a trained encoder; λ_w and λ_c pull back to it (Wieting 2016 §4.4.1).
    features: a trained encoder stays as it is, only the head learns (§4.4.2)."""
    head_layer: Literal["sigmoid", "none"] = "sigmoid"
    """A sigmoid layer before the softmax layer (Wieting 2016); none: without it, for sentiment (Wieting 2015, CNN)."""
    head_width: int = 150
    """Width of the sigmoid layer h_s."""
    head_penalty: float = 0.0
    """λ_s, pulls the head's parameters to zero."""
    head_dropout: float = 0.0
    """Share of the numbers of a text's vector that a step drops before the head."""
    loss_form: Literal["paper", "released"] = "paper"
    """KL divergence of similarity scores as in the papers; in the released code it is divided by their number."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """What the tasks semeval2013 and turney compare phrases by."""
    margin: float = 1.0
    """δ of these tasks' contrastive loss (Zhou 2017 §2.4)."""
    dev_every: int | None = None
    """Examples from one look at the development part to the next; none: an epoch."""
    patience: int | None = None
    """Stop after so many looks in a row that were no better than the best; none: train to the end."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed, naming field, value and what is allowed."""
        if self.mode == "features":
            object.__setattr__(self, "train_words", False)
        super().__post_init__()
        check_fields(self, _RANGES)
        if self.precision != "float32":
            raise ValueError(f"precision is {self.precision!r}; heads are trained in float32 alone")

    @property
    def pulls_to_initial(self) -> bool:
        """Whether λ_c pulls the composition to its initial values: in the universal mode, unless it says otherwise."""
        if self.mode == "universal" and self.composition_target == "auto":
            return True
        return super().pulls_to_initial

    @property
    def train_composition(self) -> bool:
        """Whether the encoder's other parameters than the word vectors are learned."""
        return self.mode != "features"

    def evaluations_apart(self, num_examples: int) -> float:
        """Epochs of so many examples from one look at the development part to the next."""
        return 1.0 if self.dev_every is None else self.dev_every / num_examples


CHOICES = ("semeval2013", "turney")
"""Tasks whose answer is one of several texts; their head has no parameters."""


def check_recipe(recipe: SupervisedRecipe, task: str) -> None:
    """Raise ValueError where a recipe cannot be used for a task."""
    if task in CHOICES and recipe.mode == "features":
        raise ValueError(
            f"the mode features learns the head alone, and that of {task} has no parameters; allowed: scratch, "
            "universal"
        )
    if task in CHOICES and recipe.scramble:
        raise ValueError(f"scramble is {recipe.scramble}, and {task} asks for the order of two words; allowed: 0")
    if task in CHOICES and not recipe.train_words and not has_weights(recipe):
        raise ValueError(
            f"train_words is off, the encoder {encoder_name(recipe.encoder)} has no other parameters and the head of "
            f"{task} has none: nothing is left to train; set train_words, or take another encoder"
        )
    if task != "sentiment" and recipe.head_layer == "none":
        raise ValueError(f"head_layer is none, and the task {task} has a sigmoid layer; allowed: sigmoid")


def idle_fields(recipe: SupervisedRecipe, task: str) -> list[str]:
    """Fields that decide nothing for a task, given the others."""
    has_head, trains_weights = task not in CHOICES, recipe.train_composition and has_weights(recipe)
    idle = {
        "similarity margin": has_head,
        "head_layer head_width head_penalty": not has_head,
        "head_width ": recipe.head_layer == "none",
        "composition_learning_rate": not has_head and not trains_weights,
        "loss_form": task != "similarity",
        "scramble_form": task == "sentiment",  # an example is one text
        "new_words new_words_min_count max_words": recipe.mode == "features",
    }
    penalty = recipe.head_penalty if has_head else 0.0
    in_any = idle_in_any(recipe, has_weights=trains_weights, head_penalty=penalty)
    return [*dict.fromkeys([*in_any, *named(idle)])]
