"""The options of every encoder, and which module builds it; reading them needs no PyTorch."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Literal

from paraembed.options import check_fields

if TYPE_CHECKING:
    import torch

    from paraembed.encoders.base import Composition

MAX_WIDTH = 65_536  # longest text vector: a matrix of its square fits in memory
_RANGES = {"width": (1, MAX_WIDTH), "filters": (1, MAX_WIDTH), "layers": (1, 4)}
BosEosTokens = Literal["none", "start", "end", "both"]
Pool = Literal["mean", "last", "last_by_length"]
"""A text's vector from those of its tokens: their mean, the last, or the last by the number of tokens."""
Combine = Literal["sum", "tanh"]
"""One vector from those of both directions: h_f + h_b, or tanh(W [h_f; h_b] + b)."""
Form = Literal["gran", "gran2", "gran3", "gran4", "gran5", "tanh", "relu"]


@dataclass(frozen=True)
class EncoderConfig:
    """Options of an encoder.

    Attributes:
        name: of the encoder.
        module: module of this folder whose function ``build`` makes the composition; empty: the encoder's name.
        reads_trees: whether the composition reads trees.
        has_released_init: whether the released code draws other initial values (see ``encoders.initial``).
    """

    name: ClassVar[str]
    module: ClassVar[str] = ""
    reads_trees: ClassVar[bool] = False
    has_released_init: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise ValueError for an option that is not allowed."""
        check_fields(self, _RANGES, self.name)

    def build(self, dimension: int, generator: "torch.Generator") -> "Composition":
        """Return the composition for word vectors of width ``dimension``, initialized from ``generator``."""
        composition: Composition = import_module(self.builder()).build(self, dimension, generator)
        return composition

    @classmethod
    def builder(cls) -> str:
        """Return the whole name of the module that builds the composition."""
        return f"{__package__}.{cls.module or cls.name}"


@dataclass(frozen=True)
class AvgConfig(EncoderConfig):
    """Mean of the word vectors; no options."""

    name = "avg"
    module = "averages"


@dataclass(frozen=True)
class SumConfig(EncoderConfig):
    """Sum of the word vectors; no options."""

    name = "sum"
    module = "averages"


@dataclass(frozen=True)
class WordConfig(EncoderConfig):
    """The first word's vector; no options."""

    name = "word"
    module = "averages"


@dataclass(frozen=True)
class ScaledAvgConfig(EncoderConfig):
    """Mean of the scaled word vectors; no options."""

    name = "scaled_avg"
    module = "averages"


@dataclass(frozen=True)
class ProjConfig(EncoderConfig):
    """Linear map of the mean.

    Attributes:
        width: length of the text vector; the width of the word vectors when left out.
    """

    name = "proj"
    module = "dense"
    has_released_init = True
    width: int | None = None


@dataclass(frozen=True)
class DanConfig(EncoderConfig):
    """Dense layers on the mean.

    Attributes:
        layers: how many; Wieting 2016 tunes 1 or 2, the released code allows up to 4.
        activation: f of every layer.
        width: length of every layer and of the text vector; the width of the word vectors when left out.
    """

    name = "dan"
    module = "dense"
    layers: int = 1
    activation: Literal["tanh", "relu"] = "tanh"
    width: int | None = None


@dataclass(frozen=True)
class RnnConfig(EncoderConfig):
    """Last state of a recurrent network.

    Attributes:
        activation: f.
        width: length of a state and of the text vector; the width of the word vectors when left out.
    """

    name = "rnn"
    has_released_init = True
    activation: Literal["tanh", "relu"] = "tanh"
    width: int | None = None


@dataclass(frozen=True)
class IrnnConfig(EncoderConfig):
    """Linear recurrence from identity weights; no options."""

    name = "irnn"


@dataclass(frozen=True)
class CellOptions(EncoderConfig):
    """Options of an LSTM's cell.

    Attributes:
        output_gate: h_t = o_t⊙tanh(c_t); without it h_t = tanh(c_t).
        peepholes: the gates see the cell (Gers 2003).
    """

    module = "lstm"
    has_released_init = True
    pool: ClassVar[Pool] = "mean"
    output_gate: bool = True
    peepholes: bool = True


@dataclass(frozen=True)
class LstmOptions(CellOptions):
    """Options of an LSTM.

    Attributes:
        width: length of a state and of the text vector; the width of the word vectors when left out.
    """

    width: int | None = None


@dataclass(frozen=True)
class LstmConfig(LstmOptions):
    """Last state of an LSTM."""

    name = "lstm"
    pool = "last"


@dataclass(frozen=True)
class LstmAvgConfig(LstmOptions):
    """Mean of the states of an LSTM."""

    name = "lstm_avg"


@dataclass(frozen=True)
class BiLstmConfig(LstmOptions):
    """Last states of two LSTMs, one of which reads from the end, combined; an encoder of this package.

    The released code of Wieting 2017 averages under this name (``bilstm_avg`` here), and its tanh variant fails.

    Attributes:
        combine: sum of the two, or tanh(W [h_f; h_b] + b).
    """

    name = "bilstm"
    pool = "last"
    combine: Combine = "sum"


@dataclass(frozen=True)
class BiLstmAvgConfig(LstmOptions):
    """States of two LSTMs, one of which reads from the end, combined token by token; their mean.

    Attributes:
        combine: sum of the two, or tanh(W [h_f; h_b] + b).
    """

    name = "bilstm_avg"
    combine: Combine = "sum"


@dataclass(frozen=True)
class GranOptions(CellOptions):
    """Options of the LSTM of a GRAN, and what the GRAN makes of its states."""

    module = "gran"
    form: ClassVar[Form] = "gran"


@dataclass(frozen=True)
class GranConfig(GranOptions):
    """Mean of a_t = x_t⊙σ(W_x x_t + W_h h_t + b); with the gate at 1 it is ``avg`` (eq. 1)."""

    name = form = "gran"


@dataclass(frozen=True)
class Gran2Config(GranOptions):
    """Mean of a_t = h_t⊙σ(W_x x_t + W_h h_t + b)."""

    name = form = "gran2"


@dataclass(frozen=True)
class Gran3Config(GranOptions):
    """a_n / n of a_t = a_{t-1}⊙g_1 + x_t⊙g_2, with g_i = σ(W_xi x_t + W_hi h_t + b_i)."""

    name = form = "gran3"
    pool = "last_by_length"


@dataclass(frozen=True)
class Gran4Config(GranOptions):
    """a_n / n of a_t = a_{t-1}⊙g_1 + x_t⊙g_2, with g_i = σ(W_xi x_t + W_hi h_t + W_ai a_{t-1} + b_i)."""

    name = form = "gran4"
    pool = "last_by_length"


@dataclass(frozen=True)
class Gran5Config(GranOptions):
    """a_t = x_t⊙g_1 + h_t⊙g_2, with g_i = σ(W_xi x_t + W_hi h_t + b_i): between ``avg`` and ``lstm_avg``.

    Attributes:
        state: g(x) is the mean of the a_t, or the last of them, as in the released code.
    """

    name = form = "gran5"
    state: Literal["mean", "last"] = "mean"


@dataclass(frozen=True)
class GranNoGateConfig(GranOptions):
    """Mean of a_t = f(W_x x_t + W_h h_t + b) (footnote 2).

    Attributes:
        activation: f.
    """

    name = "gran_nogate"
    activation: Literal["tanh", "relu"] = "tanh"


@dataclass(frozen=True)
class BiGranConfig(GranOptions):
    """Mean of the a_t of two ``gran``, one of which reads from the end, combined token by token.

    Attributes:
        combine: sum of the two, or tanh(W [a_f; a_b] + b).
    """

    name = "bigran"
    combine: Combine = "sum"


@dataclass(frozen=True)
class GruConfig(EncoderConfig):
    """Last state of a gated recurrent unit.

    Attributes:
        bias: whether gates and candidate have biases; the paper has none.
        width: length of a state and of the text vector; the width of the word vectors when left out.
    """

    name = "gru"
    bias: bool = False
    width: int | None = None


@dataclass(frozen=True)
class RecursiveConfig(EncoderConfig):
    """Recursive network over binary constituency trees; no options."""

    name = "recursive"
    reads_trees: ClassVar[bool] = True


@dataclass(frozen=True)
class CnnConfig(EncoderConfig):
    """Maxima of unigram filters.

    Attributes:
        filters: how many; the length of the text vector.
    """

    name = "cnn"
    filters: int = 200
