"""What --recipe and --encoder of a command line say, before its other options are read."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace

from paraembed.commands.job import flag_value
from paraembed.encoders import check_options, config_from_dict, encoder_name
from paraembed.recipe import AnyRecipe, BaseRecipe


def recipe_flags(
    arguments: Sequence[str], default: str, find: Callable[[str], AnyRecipe]
) -> tuple[str, str | None, AnyRecipe]:
    """Name of the recipe, the encoder if one is named, and the recipe with it: the defaults of all other options.

    Raises:
        ValueError: an unknown recipe or encoder, or an option that the encoder does not have.
    """
    name = flag_value(arguments, "--recipe") or default
    settings = find(name)
    encoder = flag_value(arguments, "--encoder")
    if encoder is not None:
        settings = replace(settings, encoder=config_from_dict({"name": encoder}))
    given = [one.removeprefix("--encoder.").split("=")[0] for one in arguments if one.startswith("--encoder.")]
    check_options(encoder_name(settings.encoder), [one.removeprefix("no-").replace("-", "_") for one in given])
    return name, encoder, settings


def changed_fields(recipe: BaseRecipe, base: BaseRecipe) -> tuple[str, ...]:
    """Names of the fields that differ."""
    return tuple(one.name for one in dataclasses.fields(recipe) if getattr(recipe, one.name) != getattr(base, one.name))
