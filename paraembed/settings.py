"""What a user chooses about a run besides its recipe: workers, evaluation, search; reading it needs no PyTorch."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paraembed.options import check_fields

TaskName = Literal["similarity", "entailment", "sentiment", "semeval2013", "turney"]
DataSet = Literal["sick", "sts", "sst", "semeval2013", "turney"]

MIN_COVERAGE = 0.2
"""Fraction of the tokens that must have a vector of their own, unless the user sets another one."""
RESAMPLES = 1000
"""Resamples behind the confidence interval of a score, unless the user sets another number."""
SMOOTHING = 1e-3
"""a of the weights a / (a + p(w)) of sif (Arora et al. 2017)."""
PEERS = {"st": "sentence_transformers", "m2v": "model2vec"}
"""Prefix of a model of another library → the library."""
MADE_OF = {"sif": ["counts"], "sif-common": ["counts", "corpus"], "inverse-frequency": ["counts"], "l1": ["trained"]}
"""Baseline → the files, besides the words, that it is made of."""


def check_workers(workers: int) -> None:
    """Raise ValueError unless the number of workers is positive."""
    if workers < 1:
        raise ValueError(f"`workers` is {workers}; it must be at least 1")


def check_min_coverage(least: float) -> None:
    """Raise ValueError where a minimum coverage is no fraction."""
    if not 0 <= least <= 1:
        raise ValueError(f"`min_coverage` is {least:g}; it must be a fraction from 0 (no check) to 1, for example 0.2")


@dataclass(frozen=True)
class Workers:
    """Where and how a training runs."""

    workers: int = 1
    """Training processes; each takes its own batches, so the step grows with them."""
    gpus: bool = False
    """Give each worker a GPU."""
    checkpoint_minutes: float = 5.0
    """Time between checkpoints; every epoch ends with one."""
    checkpoint_steps: int | None = None
    """Steps between checkpoints, besides the time."""
    keep_checkpoints: int = 2
    """How many checkpoints stay; where the last one is damaged the one before it is used."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        check_workers(self.workers)
        check_fields(
            self,
            {"checkpoint_minutes": (0, math.inf), "checkpoint_steps": (1, 2**31 - 1), "keep_checkpoints": (1, 10_000)},
        )


@dataclass(frozen=True)
class Placement(Workers):
    """Where and how a training on pairs runs."""

    pairs_memory_gb: float = 8.0
    """Memory of a worker for the pairs, in GB; more of them stay on disk, and are shuffled in windows that fit."""
    profile: bool = False
    """Write a trace of some steps beside the encoder, for https://ui.perfetto.dev."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        super().__post_init__()
        check_fields(self, {"pairs_memory_gb": (0, math.inf)})

    @property
    def pairs_bytes(self) -> int:
        """Bytes that a worker may use for the pairs."""
        return int(min(self.pairs_memory_gb * 1e9, 2**62))


@dataclass(frozen=True)
class Selection:
    """How often the encoder is scored, and which one is kept."""

    eval_every: float = 1.0
    """Epochs from one evaluation to the next, 0.25 for instance; the end of the training has one, too."""
    select: str | None = None
    """The encoder with the highest score of this name is the result, sts/2016/mean for instance.
    None: the mean of the first suite, or its first score."""
    patience: int | None = None
    """Stop after so many evaluations in a row that are no better than the best; none: train to the end."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        check_fields(self, {"eval_every": (1e-6, math.inf), "patience": (1, 2**31 - 1)})


@dataclass(frozen=True)
class AnalysisOptions:
    """What a user adds to the analyses of an evaluation."""

    neighbours_of: tuple[str, ...] = ()
    """Words whose nearest neighbours are shown; left out, those of Wieting 2016 table 8 and common ones."""
    against: str | None = None
    """Column to compare the first one with, pair by pair; left out, the second one."""
    margin_pairs: Path | None = None
    """Pairs for the margin statistic: pair shards of jobs/shard.py."""
    tagged: Path | None = None
    """Tagged sentences for the gates of a GRAN: CoNLL-U, or lines of token, tag and maybe label, tab-separated."""
    show_texts: bool = False
    """Write the texts of pairs on which two encoders disagree to files and MLflow; without it, their row numbers."""
    runs: tuple[Path, ...] = ()
    """Runs on several amounts of data: encoder folders, or one table (.csv or .tsv; columns pairs, order, score, …)."""


@dataclass(frozen=True)
class SearchSettings:
    """How a space is searched."""

    search: Literal["grid", "random", "tpe"] = "grid"
    """grid: every point; random: some points, drawn; tpe: some points, where Optuna expects the best. See trials."""
    trials: int | None = None
    """Trials of random and tpe; left out, 32, or all points where these are fewer."""
    seed: int = 1
    """Decides what random and tpe draw; the trainings' seed is the recipe's."""
    asha: bool = False
    """Stop trials that are not among the best of those before at the end of an epoch: 1, 3, 9, … (reduction 3)."""
    reduction: int = 3
    """Of the trials that reach such an epoch, about one in so many goes on."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        check_fields(self, {"trials": (1, 2**31 - 1), "seed": (0, 2**31 - 1), "reduction": (2, 100)})
        if self.search == "grid" and self.trials is not None:
            raise ValueError("`trials` is for `search` random and tpe; grid runs every point of the space")

    def num_trials(self, size: int) -> int:
        """Trials in a space of so many points.

        Raises:
            ValueError: more than there are points.
        """
        if self.search == "grid":
            return size
        if self.trials is not None and self.trials > size:
            raise ValueError(f"`trials` is {self.trials:,}; the space has {size:,} points: use fewer, or `search` grid")
        return min(self.trials or 32, size)

    @property
    def looks_back(self) -> bool:
        """Whether a trial depends on those before it."""
        return self.search == "tpe" or self.asha
