"""The registry of encoders: name → configuration. One file an architecture."""

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from paraembed.encoders.avg import AvgConfig
from paraembed.encoders.base import Embedded, Encoder, EncoderConfig
from paraembed.encoders.cnn import CnnConfig
from paraembed.encoders.dan import DanConfig
from paraembed.encoders.gran import (
    BiGranConfig,
    Gran2Config,
    Gran3Config,
    Gran4Config,
    Gran5Config,
    GranConfig,
    GranNoGateConfig,
)
from paraembed.encoders.gru import GruConfig
from paraembed.encoders.irnn import IrnnConfig
from paraembed.encoders.lstm import BiLstmAvgConfig, BiLstmConfig, LstmAvgConfig, LstmConfig
from paraembed.encoders.proj import ProjConfig
from paraembed.encoders.recursive import RecursiveConfig
from paraembed.encoders.rnn import RnnConfig
from paraembed.encoders.scaled_avg import ScaledAvgConfig
from paraembed.encoders.sum import SumConfig
from paraembed.encoders.word import WordConfig

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

ENCODERS: dict[str, type[AnyConfig]] = {
    "avg": AvgConfig,
    "sum": SumConfig,
    "word": WordConfig,
    "scaled_avg": ScaledAvgConfig,
    "proj": ProjConfig,
    "dan": DanConfig,
    "rnn": RnnConfig,
    "irnn": IrnnConfig,
    "lstm": LstmConfig,
    "lstm_avg": LstmAvgConfig,
    "bilstm": BiLstmConfig,
    "bilstm_avg": BiLstmAvgConfig,
    "gran": GranConfig,
    "gran2": Gran2Config,
    "gran3": Gran3Config,
    "gran4": Gran4Config,
    "gran5": Gran5Config,
    "gran_nogate": GranNoGateConfig,
    "bigran": BiGranConfig,
    "gru": GruConfig,
    "recursive": RecursiveConfig,
    "cnn": CnnConfig,
}

__all__ = ["ENCODERS", "AnyConfig", "Embedded", "Encoder", "config_from_dict", "config_to_dict", "encoder_name"]


def encoder_name(config: EncoderConfig) -> str:
    """Name under which a configuration's class is registered."""
    return next(name for name, registered in ENCODERS.items() if registered is type(config))


def config_to_dict(config: EncoderConfig) -> dict[str, Any]:
    """``{"name": …, option: value, …}`` for JSON."""
    return {"name": encoder_name(config), **asdict(config)}  # type: ignore[call-overload]


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
