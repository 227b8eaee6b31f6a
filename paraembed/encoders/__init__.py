"""The registry of encoders: name → configuration. One file per architecture family.

What encodes is imported when it is asked for: names, options and recipes are read without PyTorch, which takes 2 s.
"""

from collections.abc import Iterable
from dataclasses import asdict, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args

from paraembed.encoders.configs import (
    AvgConfig,
    BiGranConfig,
    BiLstmAvgConfig,
    BiLstmConfig,
    CnnConfig,
    DanConfig,
    EncoderConfig,
    Gran2Config,
    Gran3Config,
    Gran4Config,
    Gran5Config,
    GranConfig,
    GranNoGateConfig,
    GruConfig,
    IrnnConfig,
    LstmAvgConfig,
    LstmConfig,
    ProjConfig,
    RecursiveConfig,
    RnnConfig,
    ScaledAvgConfig,
    SumConfig,
    WordConfig,
)

if TYPE_CHECKING:
    from paraembed.encoders.base import Embedded, Encoder

AnyConfig = (
    AvgConfig
    | SumConfig
    | WordConfig
    | ScaledAvgConfig
    | ProjConfig
    | DanConfig
    | RnnConfig
    | IrnnConfig
    | LstmConfig
    | LstmAvgConfig
    | BiLstmConfig
    | BiLstmAvgConfig
    | GranConfig
    | Gran2Config
    | Gran3Config
    | Gran4Config
    | Gran5Config
    | GranNoGateConfig
    | BiGranConfig
    | GruConfig
    | RecursiveConfig
    | CnnConfig
)
"""The registered configurations, as a type."""

ENCODERS: dict[str, type[AnyConfig]] = {config.name: config for config in get_args(AnyConfig)}

__all__ = ["ENCODERS", "AnyConfig", "Embedded", "Encoder", "config_from_dict", "config_to_dict", "encoder_name"]


def __getattr__(name: str) -> Any:
    if name not in {"Embedded", "Encoder"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.base"), name)


def encoder_name(config: EncoderConfig) -> str:
    """Name under which a configuration's class is registered."""
    return config.name


def config_to_dict(config: EncoderConfig) -> dict[str, Any]:
    """``{"name": …, option: value, …}`` for JSON."""
    return {"name": config.name, **asdict(config)}


def config_from_dict(values: dict[str, Any]) -> AnyConfig:
    """The configuration that ``config_to_dict`` wrote.

    Raises:
        ValueError: unknown encoder or option, with those that are allowed.
    """
    if not isinstance(values, dict) or not isinstance(values.get("name"), str):
        raise ValueError(f'encoder is {repr(values)[:80]}; expected an object such as {{"name": "avg"}}')
    options = dict(values)
    name = options.pop("name")
    if name not in ENCODERS:
        raise ValueError(f"unknown encoder {name[:80]!r}; allowed: {', '.join(ENCODERS)}")
    check_options(name, options)
    return ENCODERS[name](**options)


def check_options(name: str, options: Iterable[str]) -> None:
    """Raise ValueError, with those that are allowed, for an option that a registered encoder does not have."""
    allowed = [field.name for field in fields(ENCODERS[name])]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ValueError(f"encoder {name!r} has no option {unknown[0][:80]!r}; allowed: {', '.join(allowed) or 'none'}")
