"""Command line of the benchmarks: ``python jobs/bench.py BENCHMARK [options]``, with one of ``BENCHMARKS``.

Each option is a field of a dataclass. ``train`` needs only torch, numpy and pyarrow; if Ray and MLflow are installed,
every benchmark logs one MLflow run. Help and wrong flags are handled before torch or Ray is imported.
"""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from paraembed.encoders.configs import MAX_WIDTH
from paraembed.options import check_fields
from paraembed.stops import FAILED, STOP_SIGNALS, STOPPED

TEXTS = {"sentences": 15.0, "phrases": 4.0}
"""Mean number of tokens per text; 4 is close to the phrases of PPDB XXL."""
MEGA_BATCH_SIZE = 20
SCALE = {"texts": "phrases", "batch_size": 100, "pairs": 9_100_000, "epochs": 10}
TRAIN_PROGRAMS = {
    "paraembed": "paraembed",
    "ready": "paraembed, batches ready",
    "embedding_bag": "EmbeddingBag(sparse=True), SparseAdam",
    "embedding": "Embedding, Adam",
    "static_embedding": "sentence-transformers StaticEmbedding",
    "mega": f"paraembed, mega-batches of {MEGA_BATCH_SIZE}",
    "workers": "paraembed, 2 workers",
    "machines": "paraembed, 2 workers without shared memory",
    "machines3": "paraembed, 3 workers without shared memory",
    "ray": "paraembed on Ray",
    "ray_workers": "paraembed on Ray, 2 workers",
}
EMBED_PROGRAMS = {
    "encode": "paraembed",
    "encode_1": "paraembed, one thread",
    "model2vec": "model2vec StaticModel",
    "static_embedding": "sentence-transformers StaticEmbedding",
    "float32": "jobs/embed.py",
    "float16": "jobs/embed.py --dtype float16",
    "floor": "tokenize, embedding_bag, write_table",
    "few": "jobs/embed.py, few rows",
    "many": "jobs/embed.py, few rows in many parts",
    "large": "jobs/embed.py, many rows",
    "read": "read",
    "tokenize": "tokenize, look up",
    "gather": "gather",
    "write": "write",
    "part": "a whole part",
    "few_files": "list and plan a few input files",
    "many_files": "list and plan many input files",
    "few_groups": "read a part of a Parquet file of few row groups",
    "many_groups": "read a part of a Parquet file of many row groups",
}

MODEL_PROGRAMS = {
    "st": "jobs/embed.py --encoder st:MODEL",
    "st_bare": "SentenceTransformer.encode, write_table",
    "int8": "onnx:MODEL, int8",
    "int8_torch": "st:MODEL",
    "m2v": "jobs/embed.py --encoder m2v:MODEL",
    "m2v_bare": "StaticModel.encode, write_table",
    "lstm_avg": "lstm_avg",
    "lstm_avg_floor": "matrix products of lstm_avg",
    "lstm_avg_threads": "lstm_avg, threads of one process",
    "gran": "gran",
    "gran_floor": "matrix products of gran",
    "gran_threads": "gran, threads of one process",
    "device": "a worker whose encoder takes 5 ms a batch of 256",
}

SEARCH_PROGRAMS = {
    "read": "read the vectors from Parquet",
    "search_1": "search, one query",
    "product_1": "matrix product in memory, one query",
    "search": "search, many queries",
    "product": "matrix product in memory, many queries",
    "mine": "neighbors of all blocks",
    "mine_product": "matrix products of the same tiles in memory",
}

STUDENT_PROGRAMS = {
    "teacher": "teacher",
    "model2vec": "model2vec",
    "tokenlearn": "tokenlearn",
    "static_embedding": "StaticEmbedding, random vectors",
    "from_model2vec": "StaticEmbedding, vectors of model2vec",
    "luxical": "Luxical",
}


def option(text: str, low: float | None = None, high: float = 0, *, is_path: bool = False, **default: Any) -> Any:
    """Return a dataclass field that is an option; ``text`` is its help, ``low`` and ``high`` are its allowed range."""
    return field(metadata={"help": text, "range": (low, high), "is_path": is_path}, **default)


def chosen(names: Mapping[str, str], what: str = "programs to run; default: all of") -> Any:
    """Return an option that selects some of these programs."""
    return field(metadata={"help": f"{what} {', '.join(names)}", "names": names, "is_path": False}, default=())


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Base class that raises ValueError for a field out of its range."""

    def __post_init__(self) -> None:
        ranges = {field.name: field.metadata.get("range", (None, 0)) for field in fields(self)}
        check_fields(self, {name: limits for name, limits in ranges.items() if limits[0] is not None})
        for option in fields(self):
            if "names" in option.metadata:
                _check_names(option.name, getattr(self, option.name), option.metadata["names"])


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Options of every benchmark."""

    rounds: int = option("interleaved rounds; the median counts", 1, 1000, default=3)
    out: str | None = option("JSON file for the numbers", is_path=True, default=None)

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the numbers, for JSON and MLflow, without the paths of outputs."""
        return {name: value for name, value in vars(self).items() if name not in {"folder", "out"}}


@dataclass(frozen=True, kw_only=True)
class Encoders(Options):
    """Time the encoder's part of a training step, forward and backward, for each encoder."""

    encoders: tuple[str, ...] = option("names of encoders; default: all", default=())
    batch_size: int = option("pairs a step", 1, 1_000_000, default=100)
    width: int = option("width of word and text vectors", 1, MAX_WIDTH, default=300)
    mean_tokens: float = option("mean tokens of a text", 1, 10_000, default=15.0)
    distinct_words: int | None = option("mean distinct words of a step; default: as in text", 1, 40_000, default=None)
    rounds: int = option("interleaved rounds; the median counts", 1, 1000, default=5)
    seed: int = option("seed of texts, word vectors and weights", 0, 2**63 - 1, default=1)
    threads: int = option("threads of PyTorch", 1, 1024, default=1)
    device: Literal["cpu", "cuda"] = option("cpu or cuda", default="cpu")


@dataclass(frozen=True, kw_only=True)
class Shard(Options):
    """Time the sharding of generated PPDB 2.0 lines (980 bytes each), next to gzip and plain Python loops."""

    folder: str = option("folder for shards and generated files (0.24 GB a million lines; reused)", is_path=True)
    lines: int = option("lines in all", 1, 10**10, default=2_000_000)
    files: int = option("gzip files that the lines are spread over", 1, 1_000_000, default=4)
    workers: int = option("processes", 1, 1024, default=2)
    loop_lines: int = option("lines of the first file that a Python loop reads", 1, 10**10, default=100_000)
    seed: int = option("seed of the lines", 0, 2**31, default=1)
    small_files: int = option("ten-line files; then four times as many, to compare", 1, 1_000_000, default=100)


@dataclass(frozen=True, kw_only=True)
class Embed(Options):
    """Time embedding next to other libraries, in memory and from text to Parquet, with its memory, parts and stages."""

    encoder: str | None = option("encoder folder; default: avg with random vectors", is_path=True, default=None)
    texts: tuple[str, ...] = option("files, a sentence a line; default: generated", is_path=True, default=())
    rows: int = option("sentences embedded from text to Parquet", 1, 10**9, default=776_000)
    memory_rows: int = option("sentences of a call of encode", 1, 10**9, default=100_000)
    small_rows: int = option("sentences of the small input, for memory, parts and stages", 1, 10**9, default=200_000)
    large_rows: int = option("sentences of the large input, for memory", 1, 10**9, default=2_000_000)
    part_rows: int = option("rows of an output file", 1, 10**9, default=100_000)
    small_part_rows: int = option("rows of an output file of the run with many", 1, 10**9, default=1000)
    workers: int = option("processes, or threads of one process", 1, 1024, default=2)
    words: int = option("words of the encoder that is generated", 2, 10**8, default=40_000)
    width: int = option("width of its word vectors", 1, MAX_WIDTH, default=300)
    few_files: int = option("input files of a small job start", 1, 10**7, default=2000)
    many_files: int = option("input files of a large job start", 1, 10**7, default=20_000)
    few_groups: int = option("row groups of a small Parquet input", 8, 10**6, default=1000)
    many_groups: int = option("row groups of a large Parquet input", 8, 10**6, default=100_000)
    seed: int = option("seed of word vectors and generated sentences", 0, 2**31, default=1)
    programs: tuple[str, ...] = chosen(EMBED_PROGRAMS)
    folder: str | None = option("folder for temporary files, 3 kB a large row", is_path=True, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.small_part_rows >= min(self.part_rows, self.small_rows):
            raise ValueError(
                f"small_part_rows is {self.small_part_rows}; it must be below part_rows and small_rows, "
                f"{self.part_rows} and {self.small_rows}"
            )


@dataclass(frozen=True, kw_only=True)
class Models(Options):
    """Time embedding with transformers, static models of other libraries and recurrent encoders."""

    model: str | None = option("folder of a transformer; default: all-MiniLM-L6-v2", is_path=True, default=None)
    rows: int = option("sentences for the transformer", 8, 10**9, default=8_000)
    static_rows: int = option("sentences for the static model", 8, 10**9, default=200_000)
    recurrent_rows: int = option("sentences for each process with a recurrent encoder", 8, 10**9, default=8_000)
    device_rows: int = option("sentences for the worker with a device", 8, 10**9, default=300_000)
    workers: int = option("processes", 1, 1024, default=2)
    seed: int = option("seed of the sentences", 0, 2**31, default=1)
    programs: tuple[str, ...] = chosen(MODEL_PROGRAMS)
    folder: str | None = option("folder for temporary files", is_path=True, default=None)


@dataclass(frozen=True, kw_only=True)
class Export(Options):
    """Compare every encoder with its exports: ids, vectors, nearest texts, and speed in the peer's own library."""

    texts: str = option("file of sentences, one per line, plain or compressed", is_path=True)
    rows: int = option("sentences, from the first on", 10, 10**7, default=10_000)
    encoders: tuple[str, ...] = option("names of encoders; default: all", default=())
    width: int = option("width of the word vectors", 1, MAX_WIDTH, default=300)
    seed: int = option("seed of word vectors and weights", 0, 2**31, default=1)
    folder: str | None = option("folder for temporary files", is_path=True, default=None)

    def __post_init__(self) -> None:
        from paraembed.encoders import ENCODERS  # noqa: PLC0415 - imports torch

        super().__post_init__()
        _check_names("encoders", self.encoders, ENCODERS)


@dataclass(frozen=True, kw_only=True)
class Search(Options):
    """Time the search of embeddings and the mining of pairs next to the bare matrix products."""

    rows: int = option("rows that are searched", 1, 10**9, default=1_000_000)
    queries: int = option("queries of a search for many", 1, 10_000, default=1000)
    mine_rows: int = option("rows that are compared with each other", 1, 10**9, default=50_000)
    threshold: float = option("smallest cosine of a pair", -1, 1, default=0.8)
    width: int = option("width of the vectors", 1, MAX_WIDTH, default=300)
    words: int = option("words of the encoder that is generated", 2, 10**8, default=40_000)
    threads: int = option("threads of a search", 1, 1024, default=2)
    seed: int = option("seed of word vectors and sentences", 0, 2**31, default=1)
    programs: tuple[str, ...] = chosen(SEARCH_PROGRAMS)
    folder: str | None = option("folder for temporary files, 1 kB per row", is_path=True, default=None)


@dataclass(frozen=True, kw_only=True)
class Students(Options):
    """Compare static encoders made from one teacher: scores, speed, size, and CPU minutes to make each."""

    data: str = option("folder of the evaluation sets, whose texts are left out", is_path=True)
    texts: str = option("file of texts, one per line, plain or compressed", is_path=True)
    pairs: tuple[str, ...] = option("files of pairs, tab-separated or .csv", is_path=True)
    work: str = option("folder that keeps the peers' encoders; another run only measures them", is_path=True)
    encoders: tuple[str, ...] = option("encoder folders of this package, or small", default=("small",))
    teacher: str | None = option("folder of the teacher; default: all-MiniLM-L6-v2", is_path=True, default=None)
    rows: int = option("texts that a static encoder embeds in a round", 64, 10**8, default=20_000)
    programs: tuple[str, ...] = chosen(STUDENT_PROGRAMS, "peers; default: all of")


@dataclass(frozen=True, kw_only=True)
class TrainingSize(Checked):
    """Options of every case of a training."""

    pairs: int = option("generated pairs; rounded down to full batches of two workers", 1, 10**9, default=200_000)
    words: int = option("rows of the word matrix", 2, 10**8, default=40_000)
    width: int = option("width of a word vector", 1, MAX_WIDTH, default=300)
    device: Literal["cpu", "cuda"] = option("cpu or cuda", default="cpu")
    precision: Literal["float32", "bfloat16"] = option("float32 or, on a GPU, bfloat16", default="float32")
    threads: int = option("threads of PyTorch in each process", 1, 1024, default=1)
    seconds: float = option("shortest round, in seconds", 0, 86_400, default=2.0)
    seed: int = option("seed of texts and word vectors", 0, 2**31, default=1)


@dataclass(frozen=True, kw_only=True)
class Case(TrainingSize):
    """One training to measure; with ``epochs`` 0 it runs until the rounds end."""

    texts: str = "sentences"
    batch_size: int = option("pairs a step and worker", 2, 1_000_000, default=100)
    encoder: str = "avg"
    epochs: int = option("epochs of a whole training, which is one round", 0, 10_000, default=0)
    mega_batch_size: int = 1

    def __post_init__(self) -> None:
        from paraembed.encoders import ENCODERS  # noqa: PLC0415 - imports torch

        super().__post_init__()
        _check_names("texts", [self.texts], TEXTS)
        _check_names("encoder", [self.encoder], ENCODERS)
        if self.device == "cpu" and self.precision != "float32":
            raise ValueError(f"precision is {self.precision!r}, but a CPU trains only in float32; use float32")
        if not self.num_pairs:
            raise ValueError(
                f"pairs is {self.pairs}; two workers of batch_size {self.batch_size} need {2 * self.batch_size} or more"
            )

    @property
    def num_pairs(self) -> int:
        """Number of pairs: full batches of two workers, so that all steps have the same size."""
        return self.pairs // (2 * self.batch_size) * 2 * self.batch_size


@dataclass(frozen=True, kw_only=True)
class Train(Options, TrainingSize):
    """Time training on generated pairs next to what others would write, with each program in its own processes."""

    texts: tuple[str, ...] = option("sentences (15 tokens a text) or phrases (4)", default=tuple(TEXTS))
    batch_sizes: tuple[int, ...] = option("pairs a step and worker", default=(100, 1024))
    encoders: tuple[str, ...] = option("encoders to train; the peers train avg only", default=("avg",))
    programs: tuple[str, ...] = chosen(TRAIN_PROGRAMS, "default: all that suit, of")
    scale: bool = option("instead, one whole training: 9,100,000 pairs of phrases, 10 epochs, batch 100", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cases()

    def cases(self) -> list[Case]:
        """Return the trainings to measure."""
        common = {field.name: getattr(self, field.name) for field in fields(TrainingSize)}
        if self.scale:
            return [Case(**{**common, **SCALE}, encoder=name) for name in self.encoders]
        chosen = product(self.encoders, self.texts, self.batch_sizes)
        return [Case(**common, texts=texts, batch_size=size, encoder=name) for name, texts, size in chosen]


BENCHMARKS: dict[str, type[Options]] = {
    "embed": Embed,
    "encoders": Encoders,
    "export": Export,
    "models": Models,
    "search": Search,
    "shard": Shard,
    "students": Students,
    "train": Train,
}


def parse(arguments: Sequence[str]) -> tuple[str, Options]:
    """Return the name of the benchmark and its options; raise ValueError if a value is not allowed."""
    parser = argparse.ArgumentParser("bench.py", description="Measure the speed of paraembed on this machine.")
    commands = parser.add_subparsers(dest="benchmark", metavar=f"{{{','.join(BENCHMARKS)}}}", required=True)
    for name, kind in BENCHMARKS.items():
        command = commands.add_parser(name, help=kind.__doc__, description=kind.__doc__)
        for option in fields(kind):
            _add_option(command, option)
    values = vars(parser.parse_args(arguments))
    name = values.pop("benchmark")
    given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    return name, BENCHMARKS[name](**given)


def _add_option(parser: argparse.ArgumentParser, option: "Field[Any]") -> None:
    flag, text, default = f"--{option.name.replace('_', '-')}", option.metadata["help"], option.default
    if option.type is bool:
        parser.add_argument(flag, action="store_true", help=text)
        return
    is_list = get_origin(option.type) is tuple
    kind: Any = get_args(option.type)[0] if get_args(option.type) else option.type
    kind = kind if kind in {int, float} else _absolute if option.metadata["is_path"] else str
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
    parser.add_argument(
        flag,
        type=kind,
        nargs=("+" if default else "*") if is_list else None,
        default=None if default is MISSING else default,
        required=default is MISSING,
        metavar={int: "N", float: "X", str: "NAME"}.get(kind, "PATH"),
        help=text if shown in {None, "", MISSING} else f"{text} ({shown})",
    )


def _absolute(text: str) -> str:
    """Return an absolute path, because programs run in other folders, and a submitted job in a temporary copy."""
    if "runtime_resources" in Path.cwd().parts and not Path(text).is_absolute():
        raise argparse.ArgumentTypeError(
            f'{text!r} is relative, but a submitted job needs an absolute path: "$PWD/{text}"'
        )
    return str(Path(text).absolute())


def _check_names(name: str, values: Sequence[str], allowed: Sequence[str] | dict[str, Any]) -> None:
    for value in values:
        if value not in allowed:
            raise ValueError(f"{name}: {value!r} is unknown; allowed: {', '.join(allowed)}")


def main(arguments: Sequence[str]) -> int:
    """Run a benchmark.

    Return the exit status: 0 done, or skipped because there is no GPU; 1 failed; 130 stopped.
    """
    try:
        name, options = parse(arguments)
        if getattr(options, "device", "") == "cuda" and not import_module("torch").cuda.is_available():
            no_gpu = "--device cuda: PyTorch sees no GPU on this machine; use --device cpu"
            if name != "train":
                raise ValueError(no_gpu)
            print(f"skipped: {no_gpu}", file=sys.stderr)  # a script may ask for both devices
            return 0
        benchmark = import_module(f"infra.bench.{name}")
        for number in STOP_SIGNALS:
            signal.signal(number, signal.default_int_handler)  # so that the programs end, too
        _run(name, benchmark.run, options)
    except KeyboardInterrupt:
        print("stopped; no numbers were kept", file=sys.stderr)
        return STOPPED
    except Exception as error:
        cause = error if isinstance(error, OSError | ValueError) else _explained(error)
        if cause is None:
            raise
        print(f"error: {cause}", file=sys.stderr)
        return FAILED
    return 0


def _explained(error: Exception) -> Exception | None:
    """Return the error to show instead of one of Ray; None without Ray, or for a defect."""
    return None if missing_package() else import_module("paraembed.commands.job").explained(error)


def _run(name: str, run: Callable[..., dict[str, Any]], options: Options) -> None:
    """Run a benchmark and write its numbers, as one MLflow run if Ray and MLflow are installed."""
    from paraembed.console import say, shown_status  # noqa: PLC0415 - imports Arrow

    out, tracked = Path(options.out) if options.out else None, None
    with shown_status(), ExitStack() as stack:
        folders = [getattr(options, "folder", None), out.parent if out else None]
        for folder in filter(None, folders):
            Path(folder).mkdir(parents=True, exist_ok=True)
        if missing := missing_package():
            say(f"without Ray and MLflow: {missing} is not installed")
        elif name != "encoders":  # which is over in seconds, and needs neither
            tracking = import_module("paraembed.tracking.runs")
            tracked = stack.enter_context(tracking.tracked_run(f"bench {name}", out or Path.cwd() / "bench"))
            tracked.params({key: str(value) for key, value in options.settings().items()})
        numbers = run(options, tracked.metrics if tracked else lambda _: None)
        if out:
            out.write_text(json.dumps(numbers, indent=1, sort_keys=True) + "\n")
            say(f"wrote {out}")
            if tracked:
                tracked.artifacts(out)


def missing_package() -> str:
    """Return the missing package that programs on Ray and the MLflow run need; empty if none is missing."""
    return next((name for name in ("ray", "mlflow") if find_spec(name) is None), "")
