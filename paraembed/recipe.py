"""Recipes: all settings that decide a training result, except the data and the number of workers.

Where a paper and its authors' released code differ, both forms are named values of one field.
"""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from paraembed.aliases import REMOVED, STILL_WRITTEN, current_names, on_disk
from paraembed.encoders import AnyConfig, config_from_dict, config_to_dict
from paraembed.encoders.configs import AvgConfig, BosEosTokens, IrnnConfig, WordConfig
from paraembed.io.fingerprint import read_json
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
    """Settings shared by all trainings: architecture, optimizer, regularization, vocabulary, seed."""

    encoder: AnyConfig = field(default_factory=AvgConfig)
    """Encoder architecture and its options."""
    tokenizer: str = "ptb-v1"
    """Tokenizer of the encoder for raw text: ptb-v1 or space, with +nfc or +nfkc to normalize texts first; pair shards
    are already tokenized.
    """
    bos_eos_tokens: BosEosTokens = "none"
    """Add BOS/EOS tokens, each with its own vector, around every text (Wieting 2017 footnote 4)."""
    max_tokens: int | None = None
    """Truncate texts to the first N tokens (at least 1), in training and in the trained encoder; None: no limit."""
    epochs: int = 10
    """Passes over the training data."""
    batch_size: int = 100
    """Examples per step and worker, at least 2."""

    optimizer: Literal["adam", "adagrad", "sgd"] = "adam"
    """Optimizer: adam, adagrad or sgd (plain SGD)."""
    adam_form: Literal["paper", "released"] = "paper"
    """Where Adam adds ε: after the bias correction (paper: Kingma and Ba 2015, algorithm 1) or before it (released
    code). Both reach the same scores.
    """
    adagrad_form: Literal["lasagne", "matlab", "torch"] = "lasagne"
    """Denominator of AdaGrad, which no paper prints: √(Σg²+1e-6) (lasagne, released code of 2016 and 2017), √Σg²+1e-4
    (matlab, released code of 2015) or √Σg²+1e-10 (torch, version 0.1). lasagne takes smaller first steps and
    scores higher after few of them; after ten epochs of avg both score the same.
    """
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
    """Target of the L2 penalty on the encoder parameters: zero or their initial values; auto: initial for irnn (Wieting
    2016), zero for the others.
    """
    l2_form: Literal["paper", "released"] = "paper"
    """L2 penalty λ‖·‖² as in the papers, or ½λ‖·‖² as in the released code."""
    clip: float | None = None
    """Maximum norm of a gradient, in the form that clip_form sets; None: no clipping."""
    clip_form: Literal["tensor", "gate", "global"] = "tensor"
    """Gradient clipping: tensor (per parameter, Wieting 2016; the gates of an LSTM count as one), gate (per gate, with
    norm + 1e-7, released code; equal scores) or global (global norm, Zhou 2017).
    """
    dropout: float = 0.0
    """Dropout rate on the word vectors, 0 to 0.99 (Wieting 2017 §4.2)."""
    word_dropout: float = 0.0
    """Probability, 0 to 0.99, of dropping each word of a text in a step."""
    scramble: float = 0.0
    """Fraction of the pairs, 0 to 1, whose words are shuffled in each step."""
    scramble_form: Literal["pair", "each"] = "pair"
    """Shuffle both texts of a selected pair, or select each text separately."""
    scramble_swaps: float | None = None
    """Shuffle words by a random number of swaps, Poisson-distributed with this mean; None: a random permutation."""

    update: Literal["sparse", "dense"] = "sparse"
    """Rows of the word matrix that a step updates: those in the batch (sparse, for the optimizer and λ_w) or all
    (dense, as in the papers).
    """
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products on a GPU: float32, or bfloat16; hidden states, word vectors and optimizer stay
    float32.
    """
    max_words: int | None = None
    """Number of rows to use from the word-vector file; None: all."""
    word_scale: Literal["file", "unit"] = "file"
    """Initial word vectors: as in the file (file), or times the factor that makes their mean length 1 (unit). Steps of
    Adam do not grow with the vectors, so vectors of length 6 change less in the same number of steps.
    """
    new_words: Literal["unknown", "random"] = "unknown"
    """Training words without a word vector: use the vector of <unk> (unknown), or a random vector per word (random)."""
    new_words_min_count: int = 5
    """Minimum count in the training pairs for a word to get a random vector."""
    init: Literal["ours", "released"] = "ours"
    """Initial encoder parameters, which no paper prints: uniform within ±1/√H (ours), or as in the released code (N(0,
    0.1²); ±0.01 for rnn, Glorot for proj). The former scores higher after 200 steps.
    """
    seed: int = 1
    """Random seed of the data order, the initial values and all other draws."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is not allowed; the message names field, value and what is allowed."""
        check_fields(self, _RANGES)
        check_tokenizer(self.tokenizer, of_encoder=self.starts_from_encoder)
        if isinstance(self.encoder, WordConfig) and self.bos_eos_tokens in {"start", "both"}:
            raise ValueError(
                f"bos_eos_tokens is {self.bos_eos_tokens!r}, but the encoder word reads only the first token, so all "
                "texts would have the same vector; allowed: none, end"
            )

    @property
    def starts_from_encoder(self) -> bool:
        """Whether the training starts from a pretrained encoder, which brings its tokenizer and vocabulary."""
        return False

    @property
    def pulls_to_initial(self) -> bool:
        """Whether the L2 penalty λ_c pulls the encoder parameters towards their initial values instead of zero."""
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
        """Return the fields with their names in files, without the forms that 0.1 had."""
        values = self.values()
        old = forms_of_0_1(values)
        return on_disk({name: value for name, value in values.items() if name not in old or old[name] != value})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return a recipe from JSON values. Missing fields get their defaults; missing form fields get the value that
        0.1 used.

        Raises:
            ValueError: a field, encoder, option or value is unknown or not allowed; the message names what is allowed.

        Example:
            >>> recipe = Recipe.from_dict({"encoder": {"name": "proj"}, "margin": 0.6})
            >>> recipe.margin, recipe.batch_size
            (0.6, 100)
        """
        if not isinstance(values, dict):
            given = json.dumps(values, default=str)[:80]
            raise ValueError(f"a recipe is {given}; expected a JSON object with the fields of a recipe")
        values = _without_removed(current_names(values))
        allowed = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(allowed))
        if unknown:
            raise ValueError(f"a recipe has no field {unknown[0][:80]!r}; allowed: {', '.join(allowed)}")
        encoder = {"encoder": config_from_dict(values["encoder"])} if "encoder" in values else {}
        old = {name: value for name, value in forms_of_0_1(values).items() if name in allowed}
        try:
            return cls(**{**old, **values, **encoder})
        except ValueError as error:
            raise ValueError(str(error).replace("`", "")) from None  # keys of JSON, not parameters


def forms_of_0_1(values: dict[str, Any]) -> dict[str, str | float]:
    """Return the later fields that a recipe file of 0.1 implies, so that results of 0.1 stay reproducible."""
    return {
        "adagrad_form": "torch" if values.get("optimizer") == "adagrad" else "lasagne",
        "adam_form": "paper",
        "init": "ours",
        "negative_dropout": "shared",
        "target_form": "paper",
        "word_scale": "file",
    }


def _without_removed(values: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a recipe without those of earlier versions; ValueError if one of them had an effect."""
    used = {name: values[name] for name, unused in REMOVED.items() if values.get(name, unused) != unused}
    if values.get("objective") in ("info_nce", "none"):
        used["objective"] = values["objective"]
    if used:
        name, value = next(iter(used.items()))
        raise ValueError(
            f"a recipe has {name} {value!r}, which paraembed 0.2.0 removed; train with another recipe (encoders that "
            "were trained with it can still be used)"
        )
    return {name: value for name, value in values.items() if name not in REMOVED}


@dataclass(frozen=True)
class Recipe(BaseRecipe):
    """Settings of a training on paraphrase pairs, part of its fingerprint."""

    objective: Literal["margin", "squared_l2", "contrastive", "negative_sampling"] = "margin"
    """Margin loss (Wieting 2016 eq. 11), squared distance (Wieting 2015), contrastive max-margin (Zhou 2017), or
    negative sampling, which Zhou 2017 compares with.
    """
    similarity: Literal["cosine", "dot"] = "cosine"
    """Similarity in the objective: cosine, or dot product (Wieting 2015)."""
    margin: float = 0.4
    """Margin δ of the objective."""
    contrast_phrases: int = 29
    """k of contrastive max-margin and negative sampling: random phrases per pair, drawn from all training phrases."""
    negatives: Literal["max", "mix", "rand", "min_violation"] = "max"
    """Choice of the negative: hardest candidate (max), random (rand), half hardest and half random (mix), semi-hard
    (min_violation).
    """
    negative_pool: Literal["both_sides", "same_side"] = "both_sides"
    """Candidates for negatives: both texts of all other pairs (released code), or only the texts on the same side
    (paper).
    """
    negative_pool_workers: Literal["own", "all"] = "own"
    """In-batch negatives from the worker's own batch (own), or cross-worker negatives from the batches of all workers
    (all).
    """
    negative_dropout: Literal["shared", "fresh"] = "shared"
    """Dropout mask of a text as a negative: the one it already has (shared), or a second encoding with a new mask
    (fresh, released code). The paper does not say; shared saves one encoding.
    """
    mega_batch_size: int = 1
    """Number of mini-batches pooled for negative mining (mega-batching, Wieting and Gimpel 2018)."""
    equal_negatives: Literal["auto", "allowed", "excluded"] = "auto"
    """Whether candidates equal to the text itself are allowed as negatives; auto: excluded for the encoder word
    (Wieting 2015).
    """
    paired_negatives: Literal["allowed", "excluded"] = "allowed"
    """Whether candidates that are paraphrases of the text, compared by lemma, are allowed as negatives (false-negative
    filtering, Wieting 2015 §4.1).
    """
    scramble_time: Literal["before", "after"] = "before"
    """Shuffle before or after negative selection; mega-batches always shuffle after it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pools_batches and self.negative_pool_workers == "all":
            raise ValueError(
                f"mega_batch_size is {self.mega_batch_size} and negative_pool_workers is 'all'; mega-batches use the "
                "worker's own batches only: set negative_pool_workers to own"
            )
        if self.objective == "margin" and self.negative_dropout == "fresh" and self.negative_pool_workers == "all":
            raise ValueError(
                "negative_dropout is 'fresh' and negative_pool_workers is 'all'; a worker can encode only the texts "
                "of its own batch again: set negative_pool_workers to own, or negative_dropout to shared"
            )

    @property
    def pools_batches(self) -> bool:
        """Whether candidates come from mega-batches."""
        return self.objective == "margin" and self.mega_batch_size > 1

    @property
    def draws_contrast(self) -> bool:
        """Whether pairs are compared with contrast phrases, drawn from all training phrases."""
        return self.objective in {"contrastive", "negative_sampling"}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields with their names in files, without the forms that 0.1 had."""
        return super().to_dict() | STILL_WRITTEN


def idle_in_any(recipe: BaseRecipe, *, has_weights: bool, head_l2: float = 0.0) -> list[str]:
    """Return the fields of any training that have no effect, given the others; ``head_l2`` is λ_s of the head."""
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
    """Return the fields that have no effect, given the others."""
    own = {
        "similarity": recipe.objective == "squared_l2",
        "margin": recipe.objective in {"squared_l2", "negative_sampling"},
        "negative_dropout": recipe.objective != "margin"
        or recipe.mega_batch_size > 1
        or not (recipe.dropout or recipe.word_dropout),
        "negatives negative_pool negative_pool_workers mega_batch_size": recipe.objective != "margin",
        "equal_negatives paired_negatives": recipe.objective != "margin",
        "contrast_phrases": not recipe.draws_contrast,
        "encoder_learning_rate": not has_weights(recipe),
        "scramble_time": not recipe.scramble or recipe.mega_batch_size > 1,
    }
    return [*dict.fromkeys([*named(own), *idle_in_any(recipe, has_weights=has_weights(recipe))])]


def has_weights(recipe: BaseRecipe) -> bool:
    """Return whether the recipe's encoder has parameters other than its word vectors."""
    return recipe.encoder.name not in {"avg", "sum", "word"}


def named(idle: dict[str, bool]) -> list[str]:
    """Return the names whose value is true; each key holds one or more names, separated by spaces."""
    return [name for names, is_idle in idle.items() if is_idle for name in names.split()]


AnyRecipe = TypeVar("AnyRecipe", bound=BaseRecipe)


def read_recipe(path: Path, kind: type[AnyRecipe]) -> AnyRecipe:
    """Read a recipe from a JSON file.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: the file does not exist, is not JSON, or is not a recipe.
    """
    values = read_json(path)
    try:
        return kind.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


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

    mode: Literal["scratch", "universal", "features"] = "scratch"
    """Start from word vectors (scratch); start from a pretrained encoder, with λ_w and λ_c pulling towards its values
    (universal, Wieting 2016 §4.4.1); or freeze a pretrained encoder and train only the head (features, §4.4.2).
    """
    head_layer: Literal["sigmoid", "none"] = "sigmoid"
    """Sigmoid layer before the softmax layer (Wieting 2016), or none (softmax only, for sentiment, Wieting 2015)."""
    head_width: int = 150
    """Width of the sigmoid layer h_s."""
    head_l2: float = 0.0
    """Weight λ_s of the L2 penalty on the head's parameters."""
    head_dropout: float = 0.0
    """Dropout rate on the text vector before the head, 0 to 0.99."""
    loss_form: Literal["paper", "released"] = "paper"
    """Loss of similarity scores: KL divergence (paper), or KL divergence divided by the number of scores (released)."""
    target_form: Literal["paper", "released"] = "paper"
    """Target distribution of a score or class: p (paper), or p + 1e-6 (released)."""
    similarity: Literal["cosine", "dot"] = "cosine"
    """Similarity of phrases in the tasks semeval2013 and turney."""
    margin: float = 1.0
    """Margin δ of the contrastive loss of semeval2013 and turney (Zhou 2017 §2.4)."""
    eval_every: int | None = None
    """Evaluate on the dev set every N examples; None: once per epoch."""
    patience: int | None = None
    """Stop after N evaluations in a row without improvement; None: train all epochs."""

    def __post_init__(self) -> None:
        if self.mode == "features":
            object.__setattr__(self, "train_words", False)
        super().__post_init__()
        check_fields(self, _SUPERVISED_RANGES)
        if self.precision != "float32":
            raise ValueError(f"precision is {self.precision!r}; supervised models are trained in float32 only")

    @property
    def starts_from_encoder(self) -> bool:
        """Whether the training starts from a pretrained encoder, which brings its tokenizer and vocabulary."""
        return self.mode != "scratch"

    @property
    def pulls_to_initial(self) -> bool:
        """Whether the L2 penalty λ_c pulls the encoder parameters towards their initial values, as by default in the
        mode universal.
        """
        if self.mode == "universal" and self.encoder_l2_target == "auto":
            return True
        return super().pulls_to_initial

    @property
    def train_composition(self) -> bool:
        """Whether the encoder parameters (other than the word vectors) are trained."""
        return self.mode != "features"

    def evaluations_apart(self, num_examples: int) -> float:
        """Return the number of epochs between two dev-set evaluations, for ``num_examples`` examples per epoch."""
        return 1.0 if self.eval_every is None else self.eval_every / num_examples


CHOICES = ("semeval2013", "turney")
"""Multiple-choice tasks, whose answer is one of several texts; their heads have no parameters."""


def check_recipe(recipe: SupervisedRecipe, task: str) -> None:
    """Raise ValueError if a recipe cannot be used for a task."""
    if task in CHOICES and recipe.mode == "features":
        raise ValueError(
            f"the mode features trains only the head, but the head of {task} has no parameters; allowed: scratch, "
            "universal"
        )
    if task in CHOICES and recipe.scramble:
        raise ValueError(
            f"scramble is {recipe.scramble}, but the answer of {task} depends on the order of two words; allowed: 0"
        )
    if task in CHOICES and not recipe.train_words and not has_weights(recipe):
        raise ValueError(
            f"train_words is off, but neither the encoder {recipe.encoder.name} nor the head of {task} has "
            "other parameters to train; set train_words, or choose another encoder"
        )
    if task != "sentiment" and recipe.head_layer == "none":
        raise ValueError(f"head_layer is none, but the task {task} needs a sigmoid layer; allowed: sigmoid")


def idle_fields(recipe: SupervisedRecipe, task: str) -> list[str]:
    """Return the fields that have no effect for a task, given the others."""
    has_head, trains_weights = task not in CHOICES, recipe.train_composition and has_weights(recipe)
    idle = {
        "similarity margin": has_head,
        "head_layer head_width head_l2 target_form": not has_head,
        "head_width ": recipe.head_layer == "none",
        "encoder_learning_rate": not has_head and not trains_weights,
        "loss_form": task != "similarity",
        "scramble_form": task == "sentiment",  # an example is one text
        "new_words new_words_min_count max_words word_scale": recipe.mode == "features",
        "init": recipe.mode != "scratch",
    }
    penalty = recipe.head_l2 if has_head else 0.0
    in_any = idle_in_any(recipe, has_weights=trains_weights, head_l2=penalty)
    return [*dict.fromkeys([*in_any, *named(idle)])]
