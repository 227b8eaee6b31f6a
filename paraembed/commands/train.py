"""Command ``train``, from pair shards to an encoder: see ``python jobs/train.py --help``."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from paraembed.commands.flags import names_in
from paraembed.commands.job import flag_value, given_flags, run
from paraembed.commands.paths import (
    existing,
    existing_data,
    existing_pairs,
    staged_input,
    staged_output,
    staged_places,
    staged_start,
)
from paraembed.commands.recipe_flags import RECIPE_GROUPS, changed_fields, list_recipes, recipe_flags, say_idle
from paraembed.console import print_table, say
from paraembed.io.places import shown
from paraembed.papers import DEFAULT_RECIPE, OWN_RECIPES, RECIPES, as_released, find_recipe, unnamed_recipe
from paraembed.recipe import Recipe, without_effect
from paraembed.settings import MAX_BAD_WORDS, MIN_COVERAGE, SHIPPED, Placement, Selection, Workers, check_min_coverage

if TYPE_CHECKING:
    from paraembed.evaluation.sets import Suite
    from paraembed.io.staging import Staging


@dataclass(frozen=True)
class Train:
    """Train an encoder on pair shards. The same command resumes a stopped or killed run, even with other --workers.

    --recipe sets the defaults of all flags below; --list prints the recipes and encoders.
    """

    pairs: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """Folder of pair shards, written by jobs/shard.py, or its URI (s3://, gs://)."""
    words: Annotated[str, tyro.conf.arg(metavar="FILE|ENCODER")]
    """Word-vector file with lines 'word v1 ... vd', plain or .gz, or its URI; also word2vec's .bin, model.safetensors
    of a static model, and the folder of an encoder avg, or small, whose vectors and tokenizer are taken; with --recipe
    small, the default is small.
    """
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """Encoder folder to write, or its URI."""
    recipe: Annotated[str, tyro.conf.arg(metavar="NAME|FILE")] = DEFAULT_RECIPE
    """Recipe of a paper (--list prints the names); small, which trains the encoder in the package further and needs no
    --words; or a .json file. If none is named, texts are normalized (--tokenizer ptb-v1+nfkc), unless --words is
    an encoder.
    """
    encoder: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Encoder architecture; default: that of the recipe."""
    as_released: bool = False
    """Set each form in which the released code differs from its paper to that of the code, such as Adam's and that of
    the initial values; all word vectors are updated in each step, at many times the cost.
    """
    settings: Annotated[Recipe, tyro.conf.arg(name="")] = field(default_factory=Recipe)
    evaluate: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Suites in --data to evaluate on during training, for example sts,phrases; the best checkpoint is kept."""
    data: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder of the evaluation suites, or its URI."""
    evaluate_pairs: tuple[Path, ...] = ()
    """Tab-separated files of scored pairs to evaluate on: score, sentence1, sentence2."""
    pair_columns: Annotated[tuple[str, str, str] | tuple[()], tyro.conf.arg(metavar="TEXT1 TEXT2 SCORE")] = ()
    """Columns of both texts and of the score in the files of --evaluate-pairs, by name in the first line or by
    number from 1, for example sentence1 sentence2 score; default: score, sentence1, sentence2, and no others.
    """
    selection: Annotated[Selection, tyro.conf.arg(name="")] = field(default_factory=Selection)
    placement: Annotated[Placement, tyro.conf.arg(name="")] = field(default_factory=Placement)
    min_coverage: float = MIN_COVERAGE
    """Minimum fraction of the pairs' tokens that must have a word vector, 0 to 1; 0: no check."""
    max_bad_words: float = MAX_BAD_WORDS
    """Maximum fraction of rows of --words that are skipped because they are no word vectors, 0 to 1; 0: none."""
    register: str | None = None
    """Name under which MLflow registers the encoder, as models:/NAME@champion; default: not registered."""
    license: str = ""
    """License of the encoder in its model card, such as apache-2.0; default: none is named."""
    overwrite: bool = False
    """Replace an existing encoder or an unfinished training at --out."""
    list: bool = False
    """Print the recipes and encoders with their sources, and exit."""


def sets_of(flags: Train) -> tuple[str, ...]:
    """Return the names of the suites to evaluate on; raise ValueError if a required flag is missing."""
    names = names_in(flags.evaluate)
    if bool(names) != (flags.data is not None):
        raise ValueError(
            "--evaluate and --data must be given together, for example --evaluate sts --data FOLDER; or use "
            "--evaluate-pairs FILE"
        )
    if flags.selection != Selection() and not (names or flags.evaluate_pairs):
        raise ValueError(
            "--eval-every, --select and --patience have no effect without an evaluation; add --evaluate or "
            "--evaluate-pairs"
        )
    return names


def check_before_download(
    stage: "Staging", out: Path, inputs: Sequence[str | None], placement: Workers, job: str, *, overwrite: bool
) -> None:
    """Check output and GPUs if an input is on an object store; otherwise the training checks them soon enough."""
    uri = stage.uri(out)
    if uri is not None or any("://" in (text or "") for text in inputs):
        from paraembed.cluster.train import check_output

        check_output(uri, placement, job, overwrite=overwrite)


def main(flags: Train) -> dict[str, Any]:
    """Train, and print the scores, the encoder folder and the next command."""
    check_min_coverage(flags.min_coverage)
    with staged_places() as stage:
        inputs: list[Path | str] = [flags.pairs, flags.words, *flags.evaluate_pairs]
        out = staged_output(stage, flags.out, "--out", *inputs)
        base = find_recipe(flags.recipe)
        base = as_released(flags.recipe, base) if flags.as_released else base
        names = sets_of(flags)
        check_before_download(
            stage, out, (flags.pairs, flags.words), flags.placement, "train", overwrite=flags.overwrite
        )
        pairs = staged_input(stage, flags.pairs, "--pairs", existing_pairs)
        words = staged_start(stage, flags.words, "--words")
        from paraembed.evaluation.suites import read_pairs_files, read_suites

        suites: list[Suite] = []
        if flags.data is not None:
            suites += read_suites(names, staged_input(stage, flags.data, "--data", existing_data))
        if flags.evaluate_pairs:
            files = [existing(file, "--evaluate-pairs") for file in flags.evaluate_pairs]
            suites.append(read_pairs_files(files, flags.pair_columns))
        say_idle(without_effect(flags.settings), changed_fields(flags.settings, base))
        from paraembed.cluster.train import Training, train_model
        from paraembed.training.data import Pairs

        data = Pairs(
            flags.settings,
            pairs,
            words,
            suites,
            selection=flags.selection,
            min_coverage=flags.min_coverage,
            max_bad_words=flags.max_bad_words,
            max_bytes=flags.placement.pairs_bytes,
            license_id=flags.license,
        )
        data.check_tokens()
        training = Training(
            flags.recipe,
            data,
            out,
            flags.placement,
            uri=stage.uri(out),
            named=stage.in_uris,
            register=flags.register,
            earlier_tokenizer=None if {"--recipe", "--tokenizer"} & given_flags() else base.tokenizer,
        )
        outcome = train_model(training, overwrite=flags.overwrite)
        if outcome.table:
            print_table(*outcome.table)
        if not outcome.was_finished:
            name = shown(flags.out)
            say(f"wrote {name}; next: python jobs/evaluate.py --encoder {name} --suite sts --data STS_FOLDER")
        return {"pairs": data.num_pairs}


def defaults(arguments: list[str]) -> Train:
    """Return the default flags, given the recipe and the encoder that the command line names."""
    name, encoder, settings = recipe_flags(arguments, DEFAULT_RECIPE, find_recipe)
    if flag_value(arguments, "--recipe") is None and "--as-released" not in arguments:
        settings = replace(settings, tokenizer=unnamed_recipe(flag_value(arguments, "--words")).tokenizer)
    words = SHIPPED if name in OWN_RECIPES else tyro.MISSING
    return Train(tyro.MISSING, words, tyro.MISSING, name, encoder, settings=settings)


def command() -> int:
    """Run the job with this process's command line."""
    groups = RECIPE_GROUPS | {"data": f"{RECIPE_GROUPS['data']} pair_columns"}
    return run(main, Train, groups, defaults, lambda: list_recipes(RECIPES, OWN_RECIPES))
