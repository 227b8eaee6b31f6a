"""Options of every encoder, and the module that builds it; this module does not import PyTorch."""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from paraembed.options import check_fields

if TYPE_CHECKING:
    import torch

    from paraembed.encoders.composition import Composition

MAX_WIDTH = 65_536  # longest text vector: a matrix of its square fits in memory
_RANGES = {"width": (1, MAX_WIDTH), "filters": (1, MAX_WIDTH), "layers": (1, 4)}
BosEosTokens = Literal["none", "start", "end", "both"]
Oov = Literal["shared", "hashed", "pieces", "drop"]
"""Vectors of out-of-vocabulary (OOV) tokens: all that of <unk>; for each type a random direction, computed from a hash,
with the length of <unk>; that length, in the direction of the vector that another encoder has for its pieces; or none,
the token is dropped.
"""
TableDtype = Literal["float32", "int8"]
"""Number type of the word matrix in an encoder folder; int8 has a float32 scale for each row."""
Pool = Literal["mean", "last", "last_by_length"]
"""How the vectors of the tokens become a text vector: their mean, the last vector, or the last vector divided by the
number of tokens.
"""
Combine = Literal["sum", "tanh"]
"""How the vectors of both directions are combined: h_f + h_b, or tanh(W [h_f; h_b] + b)."""
Form = Literal["gran", "gran2", "gran3", "gran4", "gran5", "tanh", "relu"]


@dataclass(frozen=True)
class EncoderConfig:
    """Options of an encoder.

    Attributes:
        name: Name of the encoder.
        composition: Module of this folder, and its class or function that creates the composition: ``gru:Gru``.
        reads_trees: Whether the composition reads trees.
        has_released_init: Whether the released code uses other initial values (see ``draw_as_released``).
        adds: "mean" or "sum" if the text vector is just that of the word vectors.
    """

    name: ClassVar[str]
    composition: ClassVar[str]
    reads_trees: ClassVar[bool] = False
    has_released_init: ClassVar[bool] = False
    adds: ClassVar[Literal["mean", "sum"] | None] = None

    def __post_init__(self) -> None:
        """Raise ValueError if an option is not allowed."""
        check_fields(self, _RANGES, self.name)

    def build(self, dimension: int, generator: "torch.Generator") -> "Composition":
        """Return the composition for word vectors of width ``dimension``, initialized from ``generator``."""
        composition: Composition = resolve_name(f"{__package__}.{self.composition}")(self, dimension, generator)
        return composition

    @classmethod
    def module(cls) -> str:
        """Return the full name of the module that creates the composition."""
        return f"{__package__}.{cls.composition.partition(':')[0]}"


@dataclass(frozen=True)
class AvgConfig(EncoderConfig):
    """Mean of the word vectors; no options."""

    name = "avg"
    composition = "averages:Avg"
    adds = "mean"


@dataclass(frozen=True)
class SumConfig(EncoderConfig):
    """Sum of the word vectors; no options."""

    name = "sum"
    composition = "averages:Sum"
    adds = "sum"


@dataclass(frozen=True)
class WordConfig(EncoderConfig):
    """Vector of the first word; no options."""

    name = "word"
    composition = "averages:Word"


@dataclass(frozen=True)
class ScaledAvgConfig(EncoderConfig):
    """Mean of the scaled word vectors; no options."""

    name = "scaled_avg"
    composition = "averages:ScaledAvg"


@dataclass(frozen=True)
class ProjConfig(EncoderConfig):
    """Linear map of the mean of the word vectors.

    Attributes:
        width: Length of the text vector; default: the width of the word vectors.
    """

    name = "proj"
    composition = "dense:Proj"
    has_released_init = True
    width: int | None = None


@dataclass(frozen=True)
class DanConfig(EncoderConfig):
    """Dense layers on the mean of the word vectors.

    Attributes:
        layers: Number of layers, 1 to 4; Wieting 2016 tunes 1 or 2, the released code allows up to 4.
        activation: Activation function f of every layer.
        width: Width of every layer and of the text vector; default: the width of the word vectors.
    """

    name = "dan"
    composition = "dense:Dan"
    layers: int = 1
    activation: Literal["tanh", "relu"] = "tanh"
    width: int | None = None


@dataclass(frozen=True)
class RnnConfig(EncoderConfig):
    """Last state of a recurrent network.

    Attributes:
        activation: Activation function f.
        width: Width of the state and of the text vector; default: the width of the word vectors.
    """

    name = "rnn"
    composition = "rnn:Rnn"
    has_released_init = True
    activation: Literal["tanh", "relu"] = "tanh"
    width: int | None = None


@dataclass(frozen=True)
class IrnnConfig(EncoderConfig):
    """Linear recurrence that starts with identity weights; no options."""

    name = "irnn"
    composition = "rnn:Rnn"


@dataclass(frozen=True)
class CellOptions(EncoderConfig):
    """Options of an LSTM's cell.

    Attributes:
        output_gate: Use an output gate, h_t = o_t⊙tanh(c_t); otherwise h_t = tanh(c_t).
        peepholes: Use peephole connections from the cell to the gates (Gers 2003).
    """

    composition = "lstm:build"
    has_released_init = True
    pool: ClassVar[Pool] = "mean"
    output_gate: bool = True
    peepholes: bool = True


@dataclass(frozen=True)
class LstmOptions(CellOptions):
    """Options of an LSTM.

    Attributes:
        width: Width of the state and of the text vector; default: the width of the word vectors.
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
    """Combined last states of two LSTMs that read in opposite directions; an encoder of this package.

    The released code of Wieting 2017 averages the states under this name (``bilstm_avg`` here), and its tanh variant
    fails.

    Attributes:
        combine: Combination of the two states: their sum, or tanh(W [h_f; h_b] + b).
    """

    name = "bilstm"
    pool = "last"
    combine: Combine = "sum"


@dataclass(frozen=True)
class BiLstmAvgConfig(LstmOptions):
    """Mean over the tokens of the combined states of two LSTMs that read in opposite directions.

    Attributes:
        combine: Combination of the two states: their sum, or tanh(W [h_f; h_b] + b).
    """

    name = "bilstm_avg"
    combine: Combine = "sum"


@dataclass(frozen=True)
class GranOptions(CellOptions):
    """Options of a GRAN's LSTM, and of the form of its gates."""

    composition = "gran:build"
    form: ClassVar[Form] = "gran"


@dataclass(frozen=True)
class GranConfig(GranOptions):
    """Mean of a_t = x_t⊙σ(W_x x_t + W_h h_t + b); it equals ``avg`` if the gate is 1 (eq. 1)."""

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
        state: Text vector: the mean of the a_t, or the last a_t, as in the released code.
    """

    name = form = "gran5"
    state: Literal["mean", "last"] = "mean"


@dataclass(frozen=True)
class GranNoGateConfig(GranOptions):
    """Mean of a_t = f(W_x x_t + W_h h_t + b) (footnote 2).

    Attributes:
        activation: Activation function f.
        state: Text vector: the mean of the a_t, or the last a_t, as in the released code.
    """

    name = "gran_nogate"
    activation: Literal["tanh", "relu"] = "tanh"
    state: Literal["mean", "last"] = "mean"


@dataclass(frozen=True)
class BiGranConfig(GranOptions):
    """Mean over the tokens of the combined a_t of two ``gran`` that read in opposite directions.

    Attributes:
        combine: Combination of the two a_t: their sum, or tanh(W [a_f; a_b] + b).
    """

    name = "bigran"
    combine: Combine = "sum"


@dataclass(frozen=True)
class GruConfig(EncoderConfig):
    """Last state of a gated recurrent unit.

    Attributes:
        bias: Add biases to the gates and the candidate; the paper has none.
        width: Width of the state and of the text vector; default: the width of the word vectors.
    """

    name = "gru"
    composition = "gru:Gru"
    bias: bool = False
    width: int | None = None


@dataclass(frozen=True)
class RecursiveConfig(EncoderConfig):
    """Recursive network over binary constituency trees; no options."""

    name = "recursive"
    composition = "recursive:Recursive"
    reads_trees: ClassVar[bool] = True


@dataclass(frozen=True)
class CnnConfig(EncoderConfig):
    """Maxima of unigram filters over the text.

    Attributes:
        filters: Number of filters, which is the length of the text vector.
    """

    name = "cnn"
    composition = "cnn:Cnn"
    filters: int = 200


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
"""Union of the registered configuration types."""

ENCODERS: dict[str, type[AnyConfig]] = {config.name: config for config in get_args(AnyConfig)}
