"""Settings of a run outside of its recipe, such as workers, evaluation and search; this module does not import
PyTorch.
"""

import math
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from paraembed.aliases import did_you_mean
from paraembed.options import MOST_INT, check_fields

TaskName = Literal["similarity", "entailment", "sentiment", "semeval2013", "turney"]
DataSet = Literal["sick", "sts", "sst", "semeval2013", "turney"]

CACHE_GB = 50.0
"""Default size of a cache of vectors, in GB."""
MIN_COVERAGE = 0.2
MAX_BAD_WORDS = 0.001
"""Maximum fraction of rows of a word-vector file that are skipped because they are no word vectors."""
"""Default minimum fraction of tokens that must have a word vector."""
RESAMPLES = 1000
"""Default number of bootstrap resamples for the confidence interval of a score."""
SMOOTHING = 1e-3
"""a of the weights a / (a + p(w)) of sif (Arora et al. 2017)."""
PEERS = {"st": "sentence_transformers", "m2v": "model2vec", "onnx": "onnxruntime"}
"""Prefix of an encoder name → the library that provides the model."""
SHIPPED = "small"
"""Name of the encoder that the package contains."""
SHIPPED_FOLDER = Path(__file__).with_name(SHIPPED)
"""Folder of that encoder."""
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bfloat16", "float16"]
AnyPrecision = Literal["auto", "float32", "bfloat16", "float16"]
Backend = Literal["torch", "onnx", "openvino"]
Pooling = Literal["mean", "cls"]
Engine = Literal["auto", "local", "ray"]
"""Where an embedding run computes: in this process, in workers of Ray, or (auto) here if that takes up to 20 s."""
_RUN_ID = re.compile(r"[0-9a-f]{32}")
MADE_OF = {"sif": ["counts"], "sif-common": ["counts", "corpus"], "inverse-frequency": ["counts"], "l1": ["trained"]}
"""Baseline → the files it needs besides the word vectors."""
HEURISTICS = "ppdb-heuristics"
"""Two baselines, strict and lemmatized word overlap; as a suite, the suite phrases with these baselines."""


def is_peer(name: str) -> bool:
    """Return whether an encoder name is a model of another library: ``st:…``, ``m2v:…`` or ``onnx:…``."""
    return name.partition(":")[0] in PEERS and ":" in name


def is_shipped(name: str) -> bool:
    """Return whether an encoder name is that of the encoder in the package, and not a file or folder of that name."""
    return name == SHIPPED and not Path(name).exists()


def is_run(name: str) -> bool:
    """Return whether an encoder name is an MLflow run or registered model, and not a folder of that name."""
    return name.startswith("models:/") or bool(_RUN_ID.fullmatch(name) and not Path(name).exists())


def suggested(name: str) -> str:
    """Return a suggestion to append to the error for an unknown encoder name."""
    parts = name.split("/")
    if len(parts) == 2 and all(parts) and not os.path.lexists(parts[0]):
        return f"; for a model of the Hugging Face hub write st:{name}"
    return did_you_mean(name, [SHIPPED])


@dataclass(frozen=True)
class Inference:
    """How an encoder computes vectors; every setting affects their values."""

    device: Device = "auto"
    """Device: cpu, cuda, or auto (a GPU if PyTorch finds one and the encoder is not an average of word vectors)."""
    precision: AnyPrecision = "auto"
    """Number type of the computation; auto: float32, but bfloat16 for an st: model on a GPU if its vectors are nearly
    equal, with cosines of at least 0.999.
    """
    prompt: str | None = None
    """Text to put before each text, such as 'query: ', for st: and onnx: models; default: the prompt in the model."""
    backend: Backend = "torch"
    """Backend that computes an st: model."""
    pooling: Pooling | None = None
    """Text vector of an onnx: model that returns token vectors: their mean, or the first one (cls); default: as
    1_Pooling/config.json in the model says.
    """
    batch_tokens: int | None = None
    """Maximum number of tokens in a batch of st: and onnx: models, including padding; default: 2048 on a CPU, 65536 on
    a GPU.
    """
    trust_remote_code: bool = False
    """Run Python code that an st: model contains; read that code first."""

    def __post_init__(self) -> None:
        check_fields(self, {"batch_tokens": (1, 2**31 - 1)})


DEFAULT_INFERENCE = Inference()


@dataclass(frozen=True)
class Gpus:
    """GPUs of an embedding job."""

    gpus: int | None = None
    """Number of GPUs to use instead of `workers`; default: 1 if the encoder computes on a GPU."""
    gpu_share: float = 1.0
    """Fraction of a GPU per worker process, for example 0.5 for two processes on each GPU."""
    cpus_per_gpu: int | None = None
    """Parts that are read, tokenized and written at a time for each GPU; default: the CPUs of a machine per GPU, 8 at
    most; 4 in workers of Ray.
    """

    def __post_init__(self) -> None:
        check_fields(self, {"gpus": (1, 100_000), "gpu_share": (0.01, 1), "cpus_per_gpu": (1, 1024)})

    @property
    def workers(self) -> int:
        """Number of worker processes."""
        return (self.gpus or 1) * int(1 / self.gpu_share)

    def on(self, inference: Inference) -> Inference:
        """Return the settings, with a GPU for ``auto`` if ``gpus`` is given: the driver's machine may have none."""
        if self.gpus is None or inference.device != "auto":
            return inference
        return replace(inference, device="cuda")


DEFAULT_GPUS = Gpus()
MOST_CPUS_PER_GPU = 8
"""Most CPUs that feed a GPU by default: at 45 µs a text of a tokenizer that is not compiled, 175,000 texts/s. With
more of them, the first parts end later.
"""


def check_workers(workers: int) -> None:
    """Raise ValueError unless the number of workers is positive."""
    if workers < 1:
        raise ValueError(f"`workers` is {workers}; it must be at least 1")


def check_min_coverage(least: float) -> None:
    """Raise ValueError if a minimum coverage is not a fraction from 0 to 1."""
    if not 0 <= least <= 1:
        raise ValueError(f"`min_coverage` is {least:g}; it must be a fraction from 0 (no check) to 1, for example 0.2")


def check_register(name: str | None) -> None:
    """Raise ValueError if MLflow would reject the name of a registered model, which it does only after the training."""
    if name is not None and (not name.strip() or set(name) & set("/:'\"")):
        raise ValueError(f"`register` is {name!r}; give a name without / : ' and quotation marks")


@dataclass(frozen=True)
class Workers:
    """Where and how a training runs."""

    workers: int | str = 1
    """Training processes, each with a batch of its own; or MIN:MAX, as many as a cluster has."""
    gpus: bool = False
    """Use one GPU per worker."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; every epoch also ends with one."""
    checkpoint_steps: int | None = None
    """Additional checkpoint every N steps; None: by time only."""
    keep_checkpoints: int = 2
    """Number of checkpoints to keep; if the newest is damaged, the one before it is used."""

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            allowed = "MIN of MIN:MAX must be from 1 to MAX" if ":" in str(self.workers) else "it must be at least 1"
            raise ValueError(f"`workers` is {self.workers}; {allowed}")
        check_fields(
            self,
            {"checkpoint_minutes": (0, math.inf), "checkpoint_steps": (1, 2**31 - 1), "keep_checkpoints": (1, 10_000)},
        )

    @property
    def least(self) -> int:
        """Smallest number of training processes."""
        return self._bounds[0]

    @property
    def most(self) -> int:
        """Largest number of training processes."""
        return self._bounds[1]

    @property
    def is_elastic(self) -> bool:
        """Whether the number of training processes follows the machines of a cluster."""
        return self.least < self.most

    @property
    def _bounds(self) -> tuple[int, int]:
        bounds = re.fullmatch(r"(-?\d{1,9})(?::(\d{1,9}))?", str(self.workers), re.ASCII)
        if bounds is None:
            raise ValueError(
                f"`workers` is {self.workers!r}; give a number of at most 9 digits, or MIN:MAX, such as 2:8"
            )
        return int(bounds[1]), int(bounds[2] or bounds[1])


@dataclass(frozen=True)
class Placement(Workers):
    """Where and how a training on pairs runs."""

    pairs_memory_gb: float = 8.0
    """Memory for the pairs, in GB, shared by the workers of a machine; larger data are shuffled in windows of this size
    per worker."""
    profile: bool = False
    """Write a profiler trace of a few steps next to the encoder; open it at https://ui.perfetto.dev."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, {"pairs_memory_gb": (0, math.inf)})

    @property
    def pairs_bytes(self) -> int:
        """Maximum bytes of memory for the pairs, or for a worker's window of them."""
        return int(min(self.pairs_memory_gb * 1e9, 2**62))


@dataclass(frozen=True)
class Selection:
    """How often the encoder is evaluated, and how the best checkpoint is selected."""

    eval_every: float = 1.0
    """Number of epochs between evaluations, for example 0.25; the encoder is always evaluated at the end of
    training.
    """
    select: str | None = None
    """Score that selects the best checkpoint, for example sts/2016/mean; None: the mean of the first suite."""
    patience: int | None = None
    """Stop after N evaluations in a row without improvement; None: train all epochs."""

    def __post_init__(self) -> None:
        check_fields(self, {"eval_every": (1e-6, math.inf), "patience": (1, 2**31 - 1)})


@dataclass(frozen=True)
class AnalysisOptions:
    """Options of the analyses in an evaluation."""

    neighbors_of: tuple[str, ...] = ()
    """Words whose nearest neighbors are listed; default: the words of Wieting 2016 table 8 and frequent words."""
    against: str | None = None
    """Name of the encoder to compare with the first one, pair by pair; default: the second encoder."""
    margin_pairs: Path | None = None
    """Folder of pair shards, written by jobs/shard.py, for the margin statistics."""
    tagged: Path | None = None
    """File with tagged sentences for the analysis of GRAN's gates: CoNLL-U, or lines of token, tag and optional
    label.
    """
    show_texts: bool = False
    """Write the texts of pairs on which two encoders disagree to files and MLflow; otherwise write only row numbers."""
    runs: tuple[Path, ...] = ()
    """Encoders that were trained on several amounts of data: their folders, or folders of these."""


@dataclass(frozen=True)
class SearchSettings:
    """How the points of a space are chosen."""

    search: Literal["grid", "random", "tpe"] = "grid"
    """grid: every point; random: a random sample; tpe: points proposed by Optuna's TPE sampler."""
    trials: int | None = None
    """Number of trials of random and tpe; default: 32, at most the size of the space."""
    seed: int = 1
    """Random seed of random and tpe; the seed of the trainings is part of the recipe."""
    asha: bool = False
    """Stop the worst trials early, at epochs 1, 3, 9, … (ASHA)."""
    reduction: int = 3
    """Reduction factor of ASHA: about 1 of N trials continues at each of these epochs."""

    def __post_init__(self) -> None:
        check_fields(self, {"trials": (1, 2**31 - 1), "seed": (0, 2**31 - 1), "reduction": (2, 100)})
        if self.search == "grid" and self.trials is not None:
            raise ValueError(
                "`trials` is only for `search` random and tpe; `search` grid runs every point of the space"
            )

    def num_trials(self, size: int) -> int:
        """Return the number of trials for a space of ``size`` points; raise ValueError if the space is smaller."""
        if self.search == "grid":
            return size
        if self.trials is not None and self.trials > size:
            raise ValueError(
                f"`trials` is {self.trials:,}, but the space has {size:,} points; use fewer trials, or `search` grid"
            )
        return min(self.trials or 32, size)

    @property
    def looks_back(self) -> bool:
        """Whether a trial depends on the results of earlier trials."""
        return self.search == "tpe" or self.asha


@dataclass(frozen=True)
class MineSettings:
    """Settings that, together with the outputs, decide the pairs."""

    threshold: float = 0.8
    """Minimum cosine of a pair, from -1 to 1."""
    top: int = 5
    """Number of nearest rows to consider for each row; a pair is kept if one of its rows is among them for the other
    row.
    """
    text_column: str = "text"
    """Column with the texts, copied by `keep` of jobs/embed.py."""
    block_rows: int = 16_384
    """Number of rows in a block; a task compares one block with all rows."""
    part_pairs: int = 100_000
    """Maximum number of pairs per output file."""
    distinct: bool = False
    """Leave out pairs whose two texts are equal, character by character; `top` counts these pairs, too."""
    groups: bool = False
    """Also write _groups/*.parquet: ids of rows that pairs connect, those of equal texts included, and which row of
    each group to keep; for pairs within one output.
    """

    def to_json(self) -> dict[str, Any]:
        """Return the settings for the manifest, without options that are off, which earlier manifests do not have, and
        with those that were removed, which they have.
        """
        removed = {"exact_rows": 1_000_000, "recall": 0.95}
        return {name: value for name, value in (asdict(self) | removed).items() if value is not False}

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("top", "block_rows", "part_pairs"), (1, MOST_INT))
        check_fields(self, {"threshold": (-1, 1), **counts})


@dataclass(frozen=True)
class Smaller:
    """How jobs/export.py makes an encoder smaller, in this order."""

    max_words: int | None = None
    """Number of words, word pieces or bigrams to keep, the most frequent ones in `texts`; <unk>, special tokens and
    single characters of word pieces are kept too. Without a word or subword, its tokens are OOV tokens; a removed word
    piece is divided into shorter ones. For `to` encoder.
    """
    dim: int | None = None
    """Number of dimensions to keep, the first principal components of the vectors of `texts`. For `to` encoder."""
    dtype: Literal["float32", "int8"] | None = None
    """Number type of the word vectors in the folder; int8 takes a quarter of the disk space; default: float32. For `to`
    encoder.
    """
    oov_pieces: str | None = None
    """Folder of an encoder of word pieces or subwords, whose vector of a token, the mean of its pieces, gives the
    direction of the vector of an OOV token; a student of the same teacher and texts, without `dim`. For `to` encoder.
    """

    def __post_init__(self) -> None:
        most = 2**31 - 1
        check_fields(self, {"max_words": (1, most), "dim": (1, most)})

    def check(self, texts: Path | None, num_encoders: int) -> None:
        """Raise ValueError if nothing would change, or if the file of texts does not fit the other values."""
        names = [name for name in ("max_words", "dim") if getattr(self, name) is not None]
        if names and texts is None:
            raise ValueError(
                f"`{names[0]}` needs `texts`, a file with one text per line, of the kind that the encoder will embed"
            )
        if texts is not None and not names:
            raise ValueError("`texts` decides nothing without `max_words` or `dim`; give one of them, or leave it out")
        if num_encoders == 1 and self == DEFAULT_SMALLER:
            raise ValueError(
                "the encoder would stay the same; give `max_words`, `dim`, `oov_pieces`, `dtype`, or several encoders "
                "to average"
            )


DEFAULT_SMALLER = Smaller()
