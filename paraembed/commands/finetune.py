"""Command ``finetune``, from labeled examples to an encoder with a supervised head: see ``python jobs/finetune.py
--help``.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import (
    existing_data,
    existing_encoder,
    staged_input,
    staged_output,
    staged_places,
    staged_start,
)
from paraembed.commands.recipe_flags import RECIPE_GROUPS, changed_fields, list_recipes, recipe_flags, say_idle
from paraembed.commands.train import check_before_download
from paraembed.console import print_table, say
from paraembed.encoders import config_from_dict
from paraembed.io.places import shown
from paraembed.papers import as_released, find_supervised_recipe
from paraembed.papers.supervised import SUPERVISED_RECIPES
from paraembed.recipe import SupervisedRecipe
from paraembed.settings import MAX_BAD_WORDS, MIN_COVERAGE, DataSet, TaskName, Workers, check_min_coverage

DEFAULT_RECIPE = "iclr2016/supervised-avg"


@dataclass(frozen=True)
class Finetune:
    """Train an encoder with a supervised head on labeled examples. The same command resumes a stopped or killed run.

    The best checkpoint on the dev set is kept and scored once on the test set. --recipe sets the defaults of all flags
    below; --list prints the recipes and encoders.
    """

    task: TaskName
    """Task: similarity or entailment of sentence pairs, sentiment of sentences, semeval2013 or turney (words and
    phrases).
    """
    data: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """Folder of the data sets: sick/, sts/, sst/, phrase/; or its URI (s3://, gs://)."""
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """Model folder to write, or its URI; its encoder/ is an encoder folder for every other job."""
    data_set: DataSet | None = None
    """Data set of the task similarity: sick or sts (2012 to 2015: 40 % train, 10 % dev, 50 % test); default: sick."""
    words: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Word-vector file with lines 'word v1 ... vd', plain or .gz, for the mode scratch, or its URI."""
    pretrained: Annotated[str | None, tyro.conf.arg(metavar="FOLDER|small")] = None
    """Pretrained encoder, a folder written by jobs/train.py, or its URI, for the modes universal and features."""
    recipe: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")] = DEFAULT_RECIPE
    """Supervised recipe of a paper (--list prints the names), or a .json file."""
    encoder: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Encoder architecture; default: that of the recipe."""
    as_released: bool = False
    """Set each form in which the released code differs from its paper to that of the code, such as Adam's and that of
    the initial values; all word vectors are updated in each step, at many times the cost.
    """
    settings: Annotated[SupervisedRecipe, tyro.conf.arg(name="")] = field(default_factory=SupervisedRecipe)
    placement: Annotated[Workers, tyro.conf.arg(name="")] = field(default_factory=Workers)
    min_coverage: float = MIN_COVERAGE
    """Minimum fraction of the training tokens that must have a word vector, 0 to 1; 0: no check."""
    max_bad_words: float = MAX_BAD_WORDS
    """Maximum fraction of rows of --words that are skipped because they are no word vectors, 0 to 1; 0: none."""
    register: str | None = None
    """Name under which MLflow registers the model, as models:/NAME@champion; default: not registered."""
    overwrite: bool = False
    """Replace an existing model or an unfinished training at --out."""
    list: bool = False
    """Print the recipes and encoders with their sources, and exit."""


def main(flags: Finetune) -> dict[str, Any]:
    """Train, and print the scores next to the papers' scores, and the model folder."""
    check_min_coverage(flags.min_coverage)
    with staged_places() as stage:
        out = staged_output(stage, flags.out, "--out", flags.words, flags.pretrained)
        base = find_supervised_recipe(flags.recipe)
        if flags.encoder is not None:
            base = replace(base, encoder=config_from_dict({"name": flags.encoder}))
        base = as_released(flags.recipe, base) if flags.as_released else base
        given = flags.data, flags.words, flags.pretrained
        check_before_download(stage, out, given, flags.placement, "finetune", overwrite=flags.overwrite)
        data = staged_input(stage, flags.data, "--data", existing_data)
        words = staged_input(stage, flags.words, "--words") if flags.words else None
        named = flags.pretrained
        pretrained = staged_start(stage, named, "--pretrained", existing_encoder) if named else None
        from paraembed.cluster.train import Training, train_model
        from paraembed.io.staging import sibling
        from paraembed.recipe import idle_fields
        from paraembed.supervised.labels import read_labels

        changed = changed_fields(flags.settings, base)
        labels = read_labels(
            flags.settings,
            flags.task,
            flags.data_set,
            data,
            words=words,
            pretrained=pretrained,
            asked=changed,
            min_coverage=flags.min_coverage,
            max_bad_words=flags.max_bad_words,
        )
        say_idle(idle_fields(labels.recipe, flags.task), changed)
        training = Training(
            flags.recipe, labels, out, flags.placement, uri=stage.uri(out), named=stage.in_uris, register=flags.register
        )
        done = train_model(training, overwrite=flags.overwrite)
        if done.table:
            print_table(*done.table)
        if not done.was_finished:
            name = shown(flags.out)
            say(f"wrote {name}; its README.md shows how to use it; its encoder is {sibling(name, '/encoder')}")
        return {"examples": len(labels.task.train)}


def defaults(arguments: list[str]) -> Finetune:
    """Return the default flags, given the recipe and the encoder that the command line names."""
    name, encoder, settings = recipe_flags(arguments, DEFAULT_RECIPE, find_supervised_recipe)
    return Finetune(tyro.MISSING, tyro.MISSING, tyro.MISSING, recipe=name, encoder=encoder, settings=settings)


def command() -> int:
    """Run the job with this process's command line."""
    return run(main, Finetune, RECIPE_GROUPS, defaults, lambda: list_recipes(SUPERVISED_RECIPES))
