"""Recipes: every setting that decides a training result, apart from the data and the number of workers.

Where a paper and its authors' released code differ, both forms are named values of one field.
"""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from paraembed.encoders import AnyConfig, config_from_dict, config_to_dict, encoder_name
from paraembed.encoders.configs import AvgConfig, BosEosTokens, IrnnConfig, WordConfig
from paraembed.io.fingerprint import read_json
from paraembed.names import current_names, on_disk
from paraembed.options import check_fields
from paraembed.text import check_tokenizer

_TINY = 1e-36  # float32 ends at 3.4e38, and Adam's first step is ten times the rate
_LARGEST = 2**31 - 1  # ids and counts are int32
_RANGES = {
    "max_tokens": (1, _LARGEST),
    "epochs": (1, _LARGEST),
    "batch_size": (2, 1_000_000),  # negatives come from other pairs
    "margin": (_TINY, 1 / _TINY),
    "mega_batch_size": (1, 10_000),
    "mega_batch_anneal_steps": (0, _LARGEST),
    "contrast_phrases": (1, 10_000),
    "learning_rate": (_TINY, 1 / _TINY),
    "encoder_learning_rate": (_TINY, 1 / _TINY),
    "word_l2": (0, 1 / _TINY),
    "encoder_l2": (0, 1 / _TINY),
    "clip": (_TINY, math.inf),
    "dropout": (0, 0.99),
    "word_dropout": (0, 0.99),
    "scramble": (0, 1),
    "scramble_swaps": (_TINY, 10_000),
    "max_words": (1, _LARGEST),
    "new_words_min_count": (1, _LARGEST),
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True)
class BaseRecipe:
    """Settings of every training: architecture, optimizer, regularizers, vocabulary, seed."""

    encoder: AnyConfig = field(default_factory=AvgConfig)
    """Encoder architecture and its options."""
    tokenizer: str = "ptb-v1"
    """Tokenizer of the encoder for raw text: ptb-v1 or space; pair shards are already tokenized."""
    bos_eos_tokens: BosEosTokens = "none"
    """Add BOS/EOS tokens, each with its own vector, around every text (Wieting 2017 footnote 4)."""
    max_tokens: int | None = None
    """Truncate texts to the first N tokens, in training and in the trained encoder; None: no limit."""
    epochs: int = 10
    """Passes over the training data."""
    batch_size: int = 100
    """Examples per step and worker, at least 2."""

    optimizer: Literal["adam", "adagrad", "sgd"] = "adam"
    """Adam, AdaGrad or plain SGD."""
    adam_form: Literal["paper", "released"] = "paper"
    """Add Adam's ε after the bias correction (paper: Kingma and Ba 2015, algorithm 1) or before it (released code).
    Scores do not differ."""
    adagrad_form: Literal["lasagne", "matlab", "torch"] = "lasagne"
    """Denominator of AdaGrad, which no paper prints: √(Σg²+1e-6) (lasagne: released code of 2016 and 2017), √Σg²+1e-4
    (matlab: that of 2015), √Σg²+1e-10 (torch: version 0.1). lasagne scores 0.4 STS points above torch."""
    learning_rate: float = 0.001
    """Learning rate η."""
    encoder_learning_rate: float | None = None
    """Learning rate of the encoder parameters other than the word vectors; None: learning_rate."""
    train_words: bool = True
    """Train the word vectors; otherwise they keep their initial values."""
    word_l2: float = 0.0
    """Weight λ_w of the L2 penalty that pulls the word vectors towards their initial values."""
    encoder_l2: float = 0.0
    """Weight λ_c of the L2 penalty on the encoder parameters other than the word vectors."""
    encoder_l2_target: Literal["auto", "zero", "initial"] = "auto"
    """Pull the encoder parameters towards zero or their initial values; auto: initial for irnn (Wieting 2016)."""
    l2_form: Literal["paper", "released"] = "paper"
    """L2 penalty λ‖·‖² as in the papers, or ½λ‖·‖² as in the released code."""
    clip: float | None = None
    """Maximum norm of a gradient, see clip_form; None: no clipping."""
    clip_form: Literal["tensor", "gate", "global"] = "tensor"
    """Per-parameter clipping (Wieting 2016; the gates of an LSTM count as one), per-gate clipping with norm + 1e-7
    (released code; scores do not differ), or global-norm clipping (Zhou 2017)."""
    dropout: float = 0.0
    """Dropout rate on the word vectors, 0 to 0.99 (Wieting 2017 §4.2)."""
    word_dropout: float = 0.0
    """Probability, 0 to 0.99, that a step drops a whole word."""
    scramble: float = 0.0
    """Fraction of the pairs, 0 to 1, whose words are shuffled in a step."""
    scramble_form: Literal["pair", "each"] = "pair"
    """Shuffle both texts of a pair, or decide for each text separately."""
    scramble_swaps: float | None = None
    """Shuffle by a Poisson-distributed number of swaps with this mean; None: permute all words."""

    update: Literal["sparse", "dense"] = "sparse"
    """sparse: update only the rows in the batch (optimizer and λ_w). dense: update every row, as in the papers."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 rounds matrix products on a GPU; hidden states, word vectors and optimizer stay float32."""
    max_words: int | None = None
    """Number of rows of the word-vector file to use; None: all."""
    new_words: Literal["unknown", "random"] = "unknown"
    """Training words without a word vector: share the vector of <unk>, or start from a random vector each."""
    new_words_min_count: int = 5
    """Minimum count in the training pairs for a word to get a random vector."""
    init: Literal["ours", "released"] = "ours"
    """Initial encoder parameters, which no paper prints: uniform within ±1/√H (ours), or as in the released code
    (N(0, 0.1²), ±0.01 for rnn, Glorot's for proj). The former scores higher after 200 steps."""
    seed: int = 1
    """Seed of the data order, initial values and all random draws."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed, naming field, value and what is allowed."""
        check_fields(self, _RANGES)
        check_tokenizer(self.tokenizer)
        if isinstance(self.encoder, WordConfig) and self.bos_eos_tokens in {"start", "both"}:
            raise ValueError(
                f"bos_eos_tokens is {self.bos_eos_tokens!r}, and the encoder word reads the first word alone: all "
                "texts would have one vector; allowed: none, end"
            )

    @property
    def pulls_to_initial(self) -> bool:
        """Whether λ_c pulls the encoder parameters towards their initial values, not towards zero."""
        if self.encoder_l2_target == "auto":
            return isinstance(self.encoder, IrnnConfig)
        return self.encoder_l2_target == "initial"

    @property
    def train_composition(self) -> bool:
        """Whether the encoder parameters (other than the word vectors) are trained."""
        return True

    def values(self) -> dict[str, Any]:
        """Return all fields as JSON values; ``from_dict`` reads them back."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**values, "encoder": config_to_dict(self.encoder)}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for a file, under their names in files, without the forms that 0.1 had."""
        values = self.values()
        old = forms_of_0_1(values)
        return on_disk({name: value for name, value in values.items() if name not in old or old[name] != value})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return a recipe from JSON values. Missing fields take their defaults, missing forms those of 0.1.

        Raises:
            ValueError: unknown field, encoder, option or value, with what is allowed.
        """
        if not isinstance(values, dict):
            raise ValueError(f"a recipe is {str(values)[:80]}; expected an object with a recipe's fields")
        values = current_names(values)
        allowed = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(allowed))
        if unknown:
            raise ValueError(f"a recipe has no field {unknown[0][:80]!r}; allowed: {', '.join(allowed)}")
        encoder = {"encoder": config_from_dict(values["encoder"])} if "encoder" in values else {}
        old = {name: value for name, value in forms_of_0_1(values).items() if name in allowed}
        return cls(**{**old, **values, **encoder})


def forms_of_0_1(values: dict[str, Any]) -> dict[str, str]:
    """Return the forms that a recipe file without them means, so that results of 0.1 stay reproducible.

    Args:
        values: the other fields; AdaGrad's form is read as that of 0.1 where AdaGrad is the optimizer.
    """
    return {
        "adagrad_form": "torch" if values.get("optimizer") == "adagrad" else "lasagne",
        "adam_form": "paper",
        "init": "ours",
        "negative_dropout": "shared",
        "target_form": "paper",
    }


@dataclass(frozen=True)
class Recipe(BaseRecipe):
    """Settings of a training on paraphrase pairs; frozen, JSON, part of the fingerprint."""

    objective: Literal["margin", "squared_l2", "contrastive"] = "margin"
    """Margin loss (Wieting 2016 eq. 11), squared distance (Wieting 2015) or contrastive max-margin (Zhou 2017)."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """Similarity in the objective: cosine, or dot product (Wieting 2015)."""
    margin: float = 0.4
    """Margin δ of the objective."""
    contrast_phrases: int = 29
    """k of the contrastive objective: random phrases per pair, drawn from all training phrases."""
    negatives: Literal["max", "mix", "rand", "min_violation"] = "max"
    """max: hardest candidate; rand: random; mix: half hardest, half random; min_violation: semi-hard."""
    negative_pool: Literal["both_sides", "same_side"] = "both_sides"
    """Candidates: both texts of the other pairs (released code), or the texts on the same side (paper)."""
    negative_pool_workers: Literal["own", "all"] = "own"
    """In-batch candidates of the own worker, or cross-worker candidates."""
    negative_dropout: Literal["shared", "fresh"] = "shared"
    """A text as a negative keeps its dropout mask (shared), or is encoded again with a fresh one (released code).
    The paper does not say; shared takes one encoding less."""
    mega_batch_size: int = 1
    """Number of mini-batches pooled for negative mining (mega-batching, Wieting and Gimpel 2018)."""
    mega_batch_anneal_steps: int = 0
    """Grow mega-batches from 1 by one mini-batch every N steps up to mega_batch_size; 0: full size from the start."""
    equal_negatives: Literal["auto", "allowed", "excluded"] = "auto"
    """Candidates equal to the text itself; auto: excluded for the encoder word (Wieting 2015)."""
    paired_negatives: Literal["allowed", "excluded"] = "allowed"
    """False-negative filtering: candidates that are paraphrases of the text, up to lemmas (Wieting 2015 §4.1)."""
    scramble_time: Literal["before", "after"] = "before"
    """Shuffle before or after negative selection; with mega-batching always after."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed, naming field, value and what is allowed."""
        super().__post_init__()
        if self.mega_batch_size > 1 and self.negative_pool_workers == "all":
            raise ValueError(
                f"mega_batch_size is {self.mega_batch_size}, and negative_pool_workers is 'all'; a worker chooses from "
                "its own mega-batch: set negative_pool_workers to own"
            )
        if self.negative_dropout == "fresh" and self.negative_pool_workers == "all":
            raise ValueError(
                "negative_dropout is 'fresh', and negative_pool_workers is 'all'; a worker encodes only the texts of "
                "its own batch again: set negative_pool_workers to own, or negative_dropout to shared"
            )


def idle_in_any(recipe: BaseRecipe, *, has_weights: bool, head_l2: float = 0.0) -> list[str]:
    """Return the fields without effect, given the others, in a training of any kind.

    Args:
        recipe: the fields.
        has_weights: whether encoder parameters (other than the word vectors) are trained.
        head_l2: λ_s of the head.
    """
    return named(
        {
            "encoder_l2": not has_weights,
            "encoder_l2_target": not has_weights or not recipe.encoder_l2,
            "word_l2 update": not recipe.train_words,
            "l2_form": not (recipe.word_l2 or head_l2 or (recipe.encoder_l2 and has_weights)),
            "clip_form": recipe.clip is None,
            "adam_form": recipe.optimizer != "adam",
            "adagrad_form": recipe.optimizer != "adagrad",
            "init": not recipe.encoder.has_released_init,
            "scramble_form scramble_swaps": not recipe.scramble,
            "new_words_min_count": recipe.new_words == "unknown",
        }
    )


def without_effect(recipe: Recipe) -> list[str]:
    """Return the fields that have no effect with the other settings."""
    own = {
        "similarity margin": recipe.objective == "squared_l2",
        "mega_batch_anneal_steps": recipe.objective != "margin" or recipe.mega_batch_size == 1,
        "mega_batch_size": recipe.objective != "margin",
        "negative_dropout": recipe.objective != "margin"
        or recipe.mega_batch_size > 1
        or not (recipe.dropout or recipe.word_dropout),
        "negatives negative_pool negative_pool_workers equal_negatives paired_negatives": recipe.objective != "margin",
        "contrast_phrases": recipe.objective != "contrastive",
        "encoder_learning_rate": not has_weights(recipe),
        "scramble_time": not recipe.scramble or recipe.mega_batch_size > 1,
    }
    return [*dict.fromkeys([*named(own), *idle_in_any(recipe, has_weights=has_weights(recipe))])]


def has_weights(recipe: BaseRecipe) -> bool:
    """Return whether the recipe's encoder has parameters other than its word vectors."""
    return encoder_name(recipe.encoder) not in {"avg", "sum", "word"}


def named(idle: dict[str, bool]) -> list[str]:
    """Return the names whose value is true; a key holds one or more names, separated by spaces."""
    return [name for names, is_idle in idle.items() if is_idle for name in names.split()]


AnyRecipe = TypeVar("AnyRecipe", bound=BaseRecipe)


def read_recipe(path: Path, kind: type[AnyRecipe]) -> AnyRecipe:
    """Return the recipe of a JSON file.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: no such file, not JSON, or not a recipe.
    """
    values = read_json(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {json.dumps(values)[:40]}; expected a JSON object with a recipe's fields")
    return kind.from_dict(values)


Mode = Literal["scratch", "universal", "features"]

HEAD_RANGES = {"head_width": (1, 100_000), "margin": (1e-36, 1e36)}
"""Allowed values of the fields that a head is built from."""

_SUPERVISED_RANGES = {
    **HEAD_RANGES,
    "head_l2": (0, 1e36),
    "head_dropout": (0, 0.99),
    "eval_every": (1, 2**31 - 1),
    "patience": (1, 2**31 - 1),
}


@dataclass(frozen=True)
class SupervisedRecipe(BaseRecipe):
    """Settings of a training on labeled examples: an encoder with a head (Wieting 2016 §4.4)."""

    mode: Mode = "scratch"
    """scratch: start from word vectors.
    universal: start from a pretrained encoder; λ_w and λ_c pull towards its values (Wieting 2016 §4.4.1).
    features: freeze a pretrained encoder and train only the head (§4.4.2)."""
    head_layer: Literal["sigmoid", "none"] = "sigmoid"
    """Sigmoid layer before the softmax layer (Wieting 2016); none: softmax only, for sentiment (Wieting 2015)."""
    head_width: int = 150
    """Width of the sigmoid layer h_s."""
    head_l2: float = 0.0
    """Weight λ_s of the L2 penalty on the head's parameters."""
    head_dropout: float = 0.0
    """Dropout rate on a text's vector before the head, 0 to 0.99."""
    loss_form: Literal["paper", "released"] = "paper"
    """KL divergence of similarity scores (papers), or divided by the number of scores (released code)."""
    target_form: Literal["paper", "released"] = "paper"
    """Target distribution p of a similarity score (papers), or p + 1e-6 (released code, against log 0)."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """Similarity of phrases for the tasks semeval2013 and turney."""
    margin: float = 1.0
    """Margin δ of the contrastive loss of semeval2013 and turney (Zhou 2017 §2.4)."""
    eval_every: int | None = None
    """Evaluate on the dev set every N examples; None: once per epoch."""
    patience: int | None = None
    """Stop after N evaluations in a row without improvement; None: train all epochs."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed, naming field, value and what is allowed."""
        if self.mode == "features":
            object.__setattr__(self, "train_words", False)
        super().__post_init__()
        check_fields(self, _SUPERVISED_RANGES)
        if self.precision != "float32":
            raise ValueError(f"precision is {self.precision!r}; heads are trained in float32 alone")

    @property
    def pulls_to_initial(self) -> bool:
        """Whether λ_c pulls the encoder parameters towards their initial values: the default in the universal mode."""
        if self.mode == "universal" and self.encoder_l2_target == "auto":
            return True
        return super().pulls_to_initial

    @property
    def train_composition(self) -> bool:
        """Whether the encoder parameters (other than the word vectors) are trained."""
        return self.mode != "features"

    def evaluations_apart(self, num_examples: int) -> float:
        """Return the epochs of ``num_examples`` examples between two dev-set evaluations."""
        return 1.0 if self.eval_every is None else self.eval_every / num_examples


CHOICES = ("semeval2013", "turney")
"""Multiple-choice tasks, whose answer is one of several texts; their head has no parameters."""


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
    """Return the fields without effect for a task, given the others."""
    has_head, trains_weights = task not in CHOICES, recipe.train_composition and has_weights(recipe)
    idle = {
        "similarity margin": has_head,
        "head_layer head_width head_l2": not has_head,
        "head_width ": recipe.head_layer == "none",
        "encoder_learning_rate": not has_head and not trains_weights,
        "loss_form target_form": task != "similarity",
        "scramble_form": task == "sentiment",  # an example is one text
        "new_words new_words_min_count max_words": recipe.mode == "features",
        "init": recipe.mode != "scratch",
    }
    penalty = recipe.head_l2 if has_head else 0.0
    in_any = idle_in_any(recipe, has_weights=trains_weights, head_l2=penalty)
    return [*dict.fromkeys([*in_any, *named(idle)])]
