"""Registry of encoders: name → configuration. Each architecture family has its own file.

The modules that compute are imported on first use, so names, options and recipes can be read without PyTorch, whose
import takes 2 s.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from paraembed.aliases import did_you_mean
from paraembed.encoders.configs import ENCODERS, AnyConfig, EncoderConfig

if TYPE_CHECKING:
    from paraembed.encoders.base import Encoder
    from paraembed.encoders.protocol import Embedded

__all__ = ["ENCODERS", "AnyConfig", "Embedded", "Encoder", "config_from_dict", "config_to_dict"]


_HOMES = {"Embedded": "protocol", "Encoder": "base"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def config_to_dict(config: EncoderConfig) -> dict[str, Any]:
    """Return a configuration as JSON values: ``{"name": …, option: value, …}``."""
    return {"name": config.name, **asdict(config)}


def config_from_dict(values: dict[str, Any]) -> AnyConfig:
    """Return the configuration that ``config_to_dict`` wrote. Raise ValueError if the encoder or an option is unknown;
    the message names the allowed ones.
    """
    if not isinstance(values, dict) or not isinstance(values.get("name"), str):
        raise ValueError(f'encoder is {repr(values)[:80]}; expected an object such as {{"name": "avg"}}')
    options = dict(values)
    name = options.pop("name")
    if name not in ENCODERS:
        near = did_you_mean(name[:80], ENCODERS)
        raise ValueError(f"unknown encoder {name[:80]!r}; allowed: {', '.join(ENCODERS)}{near}")
    check_options(name, options)
    return ENCODERS[name](**options)


def check_options(name: str, options: Iterable[str]) -> None:
    """Raise ValueError if a registered encoder lacks one of the options; the message names the allowed ones."""
    allowed = [field.name for field in fields(ENCODERS[name])]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ValueError(f"encoder {name!r} has no option {unknown[0][:80]!r}; allowed: {', '.join(allowed) or 'none'}")
