"""Pairs as what a sweep's trials train on; and whether any inputs are enough, and fit into memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from paraembed.cluster.placement import workers_here
from paraembed.cluster.shard import shard_pairs
from paraembed.cluster.train import about_tokens
from paraembed.console import say
from paraembed.evaluation.selection import suites_digest
from paraembed.evaluation.sets import Suite
from paraembed.io.fingerprint import sha256_of
from paraembed.io.places import require_file
from paraembed.pairs.shards import ShardSettings, read_pair_manifest
from paraembed.recipe import BaseRecipe, Recipe
from paraembed.training.inputs import MIN_COVERAGE
from paraembed.training.memory import available_memory, estimate
from paraembed.tuning.points import Points
from paraembed.tuning.trial import DECIDES_INPUTS, Inputs, Metric, Scorer, inputs_key, read_inputs

SAMPLE = "tuning-pairs"
_KEPT_COLUMNS = ("first", "second", "score", "first_tree", "second_tree")
_DECIDES_MEMORY = ("encoder", "optimiser", "train_words", "word_penalty", "update", "batch_size")
_GIB = 2**30


@dataclass(frozen=True)
class Pairs:
    """What trials on pairs begin with, and what they are scored on.

    Attributes:
        folder: pair shards.
        words: word-vector text file.
        suites: which sets the metric is of.
        sample: pairs of the tuning set, drawn; None: all.
        min_coverage: fraction of the pairs' tokens that must have a vector of their own; it does not decide the result.
    """

    folder: Path
    words: Path
    suites: tuple[Suite, ...] = ()
    sample: int | None = None
    min_coverage: float = MIN_COVERAGE

    def check(self) -> None:
        """Raise OSError or ValueError unless shards and vectors are there."""
        require_file(self.words)
        read_pair_manifest(self.folder)

    def identity(self) -> dict[str, Any]:
        """What decides a trial's result besides its recipe; digests, JSON."""
        return {
            "pairs": sha256_of(self.folder / "manifest.json"),
            "words": sha256_of(self.words),
            "data": suites_digest(self.suites),
            "sample": self.sample,
        }

    def told(self) -> dict[str, Any]:
        """What MLflow learns of it."""
        return {"sample": self.sample}

    def scorer(self, metric: Metric) -> Scorer:
        """What trials are scored by."""
        return Scorer(self.suites, tuple(metric))

    def drawn(self, out: Path, seed: int, workers: int) -> "Pairs":
        """The trials' pairs: the ones that ``jobs/shard.py --sample`` would draw, in a folder below ``out``, or all."""
        shards = read_pair_manifest(self.folder)
        kept = shards["counts"]["kept"]
        if self.sample is None or self.sample >= kept:
            return self
        files = [self.folder / shard["name"] for shard in shards["shards"]]
        if not files:
            raise ValueError(f"{self.folder}/manifest.json names no pair shards; shard the pairs again")
        names = pq.read_schema(files[0]).names
        columns: tuple[Any, ...] = tuple(name if name in _KEPT_COLUMNS else "ignore" for name in names)
        settings = ShardSettings(columns=columns, tokeniser="space", sample=self.sample, sample_seed=seed)
        shard_pairs(files, out / SAMPLE, settings, workers=workers)
        say(f"the trials train on {self.sample:,} of {kept:,} pairs, drawn with seed {seed}")
        return replace(self, folder=out / SAMPLE)

    def inputs(self, points: Points, workers: int, concurrent: int) -> dict[str, Inputs]:
        """What the trials share, by ``inputs_key``.

        Args:
            points: what is searched.
            workers: of a trial.
            concurrent: trials at a time.

        Raises:
            ValueError: too few pairs, or too little memory, for one of the recipes; or the words cover too few of the
                pairs' tokens.
        """
        shards = read_pair_manifest(self.folder)
        kept = shards["counts"]["kept"]
        recipes = differing_recipes(points)
        check_batches(recipes, kept, workers)
        check_memory_of_trials(recipes, self.words, about_tokens(self.folder, shards), kept, workers, concurrent)
        found = dict[str, Inputs]()
        for recipe in recipes:
            assert isinstance(recipe, Recipe)
            if inputs_key(recipe) not in found:
                found[inputs_key(recipe)] = read_inputs(
                    self.words, self.folder, shards, recipe, min_coverage=self.min_coverage
                )
        return found


def differing_recipes(points: Points) -> list[BaseRecipe]:
    """Recipes with all values of the fields that decide what is read, and how much memory it takes."""
    return [point.recipe for point in points.differing_in({*DECIDES_INPUTS, *_DECIDES_MEMORY})]


def check_batches(recipes: Sequence[BaseRecipe], kept: int, workers: int) -> None:
    """Raise ValueError where a recipe's step asks for more pairs than are there."""
    most = max(recipe.batch_size for recipe in recipes)
    if most * workers > kept:
        each, fewer = (f" for each of {workers} workers", " or fewer --workers") if workers > 1 else ("", "")
        raise ValueError(
            f"the space has batches of {most:,} pairs{each}, and there are {kept:,}; give more pairs, a larger "
            f"--sample{fewer}"
        )


def check_memory_of_trials(
    recipes: Sequence[BaseRecipe], words: Path | tuple[int, int], tokens: int, kept: int, workers: int, concurrent: int
) -> None:
    """Raise ValueError where this machine has too little memory for its trials.

    Args:
        recipes: all that differ in what they take.
        words: word-vector text file, or rows and width of a trained encoder's matrix.
        tokens: of the texts, about.
        kept: pairs or examples.
        workers: of a trial.
        concurrent: trials at a time.
    """
    here = workers_here(concurrent * workers)
    takes = {(one.optimiser, one.train_words, one.word_penalty > 0, one.update, one.max_words): one for one in recipes}
    needed = max(estimate(words, recipe, tokens, kept, here).needed for recipe in takes.values())
    available = available_memory()
    fewer = "keep fewer words with --set max_words=N, or " if isinstance(words, Path) else ""
    if needed > available:
        raise ValueError(
            f"{concurrent} trials at a time need about {needed / _GIB:,.1f} GiB of memory, and {available / _GIB:,.1f} "
            f"GiB are available; {fewer}use a smaller --concurrent"
        )
