"""The Python API: what ``import paraembed`` offers, on the engines of the jobs.

Like the jobs, ``train`` and ``embed`` start Ray where it is needed, log to MLflow, resume, and report progress on
stderr.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args, get_origin

from paraembed import checkpoint
from paraembed.embedding.settings import DEFAULT_LIMITS, Identity, Limits, Settings
from paraembed.encoders import config_from_dict
from paraembed.io.limits import TableLimits
from paraembed.io.places import Place, absolute_name, to_place
from paraembed.io.resume import check_destination
from paraembed.loading import open_encoder
from paraembed.options import checked
from paraembed.papers import DEFAULT_RECIPE, OWN_RECIPES, find_recipe, unnamed_recipe
from paraembed.process import one_thread
from paraembed.recipe import Recipe
from paraembed.settings import (
    CACHE_GB,
    DEFAULT_GPUS,
    DEFAULT_INFERENCE,
    MIN_COVERAGE,
    RESAMPLES,
    SHIPPED,
    SHIPPED_FOLDER,
    Engine,
    Gpus,
    Inference,
    Placement,
    Selection,
    is_shipped,
)
from paraembed.tracking.fetch import fetch_encoder

if TYPE_CHECKING:
    import pyarrow as pa

    from paraembed.cluster.embed import EmbeddingResult
    from paraembed.encoders import Encoder
    from paraembed.encoders.concat import Concat
    from paraembed.encoders.foreign.base import ForeignEncoder
    from paraembed.encoders.word_average import WordAverage
    from paraembed.evaluation.report import Report

AnyPath = str | Path
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Value = TypeVar("_Value", str, AnyPath)
_ENGINE: Any = Engine  # a union of values, which mypy does not take for a type
_IDENTITY: Any = Identity  # the same
_NUMBERS: dict[Any, type] = {int: Integral, float: Real}  # so that NumPy's numbers are accepted


def _typed(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function that raises TypeError if an argument is not of a type that its annotation names."""
    parameters = signature(function)

    @wraps(function)
    def call(*positional: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        bound = parameters.bind(*positional, **named)
        for name in bound.arguments.keys() - {"settings"}:
            hint = parameters.parameters[name].annotation
            bound.arguments[name] = _of_type(bound.arguments[name], hint, name)
        return function(*bound.args, **bound.kwargs)

    return call


def _of_type(value: Any, hint: Any, name: str) -> Any:
    """Return a value of an allowed type, several values as a list; raise TypeError for others."""
    allowed = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    for kind in allowed:
        if get_origin(kind) is not Sequence:
            if isinstance(value, _NUMBERS.get(kind, kind)) and (kind is bool or not isinstance(value, bool)):
                return value
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
            return [_of_type(item, get_args(kind)[0], f"{name}[{number}]") for number, item in enumerate(value)]
    names = ["None" if kind is NoneType else kind.__name__ for kind in allowed if get_origin(kind) is not Sequence]
    expected = " or ".join(names) + ", or a list of them" * (len(names) < len(allowed))
    raise TypeError(f"`{name}` is {str(value)[:80]!r} of type {type(value).__name__}; expected {expected}")


@_typed
def load(name: AnyPath, inference: Inference = DEFAULT_INFERENCE) -> "Encoder | WordAverage | Concat | ForeignEncoder":
    """Load an encoder.

    Args:
        name: encoder folder; ``small``, the encoder in the package; ``st:``, ``m2v:`` or ``onnx:`` with a model's
            folder, or its name on the Hugging Face hub; id of an MLflow run; ``models:/NAME@ALIAS``.
        inference: device, precision, prompt.

    Returns:
        The encoder; ``encode`` takes one text or a list, ``embed`` an Arrow array. ``avg`` and ``sum`` are computed
        without PyTorch where that changes no bit; all others of this package are ``torch.nn.Module``.

    Raises:
        FileNotFoundError, NotADirectoryError: no folder there, or a file of it is missing.
        ValueError: not an encoder, a damaged one, a missing library, or a setting that it does not have.

    Examples:
        >>> encoder = paraembed.load("encoder")
        >>> encoder.encode(["the cat sat", "a dog ran"]).shape
        (2, 4)
    """
    return open_encoder(str(name), inference, fetch_encoder)


@_typed
def train(
    pairs: AnyPath,
    words: AnyPath | None = None,
    out: AnyPath | None = None,
    *,
    recipe: str | Recipe | None = None,
    suites: str | Sequence[str] = (),
    data: AnyPath | None = None,
    evaluate_pairs: AnyPath | Sequence[AnyPath] = (),
    selection: Selection | None = None,
    placement: Placement | None = None,
    min_coverage: float = MIN_COVERAGE,
    register: str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> "Encoder":
    """Train an encoder, as ``jobs/train.py`` does; the same call resumes a stopped training.

    Args:
        pairs: folder of pair shards, written by jobs/shard.py.
        words: word-vector file, or the folder of an encoder avg, or ``small``, whose vectors and tokenizer are taken;
            only the recipe ``small`` has a default, ``small``.
        out: encoder folder to write.
        recipe: name of a recipe (``paraembed.RECIPES``, or ``small``), path of a .json file, or a recipe; default:
            iclr2016/avg, for texts that are normalized (nfkc), unless ``words`` is an encoder.
        suites: names of suites in ``data`` to evaluate on during training; the best checkpoint is kept.
        data: folder of the evaluation suites.
        evaluate_pairs: tab-separated files of scored pairs to evaluate on.
        selection: how often to evaluate, and how to select the best checkpoint.
        placement: workers, GPUs, checkpoints.
        min_coverage: minimum fraction of the tokens that must have a word vector.
        register: name under which MLflow registers the encoder.
        overwrite: replace another encoder or unfinished training at ``out``.
        settings: fields of the recipe that differ, such as ``epochs=3``; ``encoder`` may be a name, such as "lstm".

    Returns:
        The trained encoder.

    Raises:
        OSError, ValueError: an input, setting or output cannot be used, or the training failed.
    """
    from paraembed.cluster.train import Training, train_model
    from paraembed.evaluation.suites import read_pairs_files, read_suites
    from paraembed.training.data import Pairs

    name, base = (recipe, find_recipe(recipe)) if isinstance(recipe, str) else ("recipe", recipe)
    earlier = None
    if base is None:
        name, base = DEFAULT_RECIPE, unnamed_recipe(None if words is None else str(words))
        earlier = None if "tokenizer" in settings else find_recipe(DEFAULT_RECIPE).tokenizer
    chosen = replace(base, **_checked(settings, Recipe, "recipe"))
    words = SHIPPED if words is None and name in OWN_RECIPES else words
    if words is None or out is None:
        raise ValueError(f"`{'words' if words is None else 'out'}` is missing; only the recipe small has default words")
    if bool(suites) != (data is not None):
        raise ValueError("`suites` and `data` must be given together, for example suites=['sts'], data='eval'")
    names, files = _several(suites), _several(evaluate_pairs)
    if selection is not None and not (names or files):
        raise ValueError("`selection` has no effect without `suites` and `data`, or `evaluate_pairs`; give one of them")
    read = list(read_suites(list(map(str, names)), _absolute(data))) if data is not None else []
    read += [read_pairs_files(list(map(_absolute, files)))] if files else []
    placement = placement or Placement()
    words = SHIPPED_FOLDER if is_shipped(str(words)) else _absolute(words)
    check_destination(_absolute(out), _absolute(pairs), words, *map(str, files))
    data_set = Pairs(
        chosen,
        _absolute(pairs),
        words,
        suites=read,
        selection=selection or Selection(),
        min_coverage=min_coverage,
        max_bytes=placement.pairs_bytes,
    )
    data_set.check_tokens()
    training = Training(name, data_set, _absolute(out), placement, register=register, earlier_tokenizer=earlier)
    train_model(training, overwrite=overwrite)
    return checkpoint.load(_absolute(out))


@_typed
def embed(
    encoder: AnyPath,
    inputs: AnyPath | Sequence[AnyPath],
    out: AnyPath,
    *,
    workers: int = 2,
    engine: str = "auto",
    identity: str = "stamp",
    append: bool = False,
    overwrite: bool = False,
    limits: Limits | None = None,
    inference: Inference = DEFAULT_INFERENCE,
    gpus: Gpus = DEFAULT_GPUS,
    cache: AnyPath | None = None,
    cache_gb: float = CACHE_GB,
    **settings: Any,
) -> "EmbeddingResult":
    """Write one embedding for each row of text or tables to Parquet files, as ``jobs/embed.py`` does; the same call
    resumes a stopped run.

    Args:
        encoder: name of an encoder, as ``load`` takes it.
        inputs: files, folders, globs or URIs: .txt (one text per line), .jsonl, .csv, .tsv, .parquet.
        out: output folder or its URI: new, empty, or of an earlier call with the same arguments.
        workers: number of worker processes, one CPU each.
        engine: ``local``, in this process; ``ray``; or ``auto``, local if the estimated time is below 20 seconds.
        identity: how a resumed run recognizes inputs and finished parts: ``stamp``, by size and times; ``sha256``, by
            contents, for which all are read.
        append: add the inputs that a finished output does not have yet, as a new generation; the others are not read.
        overwrite: embed everything again, and replace the existing output at the end.
        limits: limits that stop the run; None: the defaults of ``paraembed.embedding.settings.Limits``.
        inference: device, precision, prompt.
        gpus: GPUs of the workers, if the encoder computes on a GPU.
        cache: folder or URI that keeps vectors, so that later runs with this encoder compute only those of new texts.
        cache_gb: maximum size of ``cache`` in GB; at the end of a run, the oldest files are removed.
        settings: fields of ``paraembed.embedding.settings.Settings``, such as ``text_column="title"``.

    Returns:
        The numbers of rows and parts; the output itself is the folder.

    Raises:
        OSError, ValueError: an input, setting or output cannot be used, or a limit is exceeded.
    """
    from paraembed.cluster.embed import embed as run

    chosen = Settings(**_checked(settings, Settings, "embed"))
    kept = None if cache is None else _absolute_place(cache)
    named = [str(encoder), *map(str, _several(inputs))]
    check_destination(_absolute_place(out), *named)
    if kept is not None:
        check_destination(kept, *named, _absolute_place(out), name="cache")
    return run(
        absolute_name(str(encoder), _absolute),
        [str(_absolute_place(file)) for file in _several(inputs)],
        _absolute_place(out),
        chosen,
        workers=workers,
        engine=checked(_ENGINE, engine, "`engine`"),
        identity=checked(_IDENTITY, identity, "`identity`"),
        append=append,
        overwrite=overwrite,
        limits=limits or DEFAULT_LIMITS,
        inference=inference,
        gpus=gpus,
        cache=kept,
        cache_gb=cache_gb,
    )


@_typed
def evaluate(
    encoders: AnyPath | Sequence[AnyPath],
    *,
    suites: str | Sequence[str] = (),
    data: AnyPath | None = None,
    pairs: AnyPath | Sequence[AnyPath] = (),
    pair_columns: Sequence[str] = (),
    held_out: AnyPath | None = None,
    words: AnyPath | None = None,
    out: AnyPath | None = None,
    resamples: int = RESAMPLES,
    inference: Inference = DEFAULT_INFERENCE,
) -> "Report":
    """Score encoders, as ``jobs/evaluate.py`` does; nothing is logged to MLflow.

    Args:
        encoders: one name or several, as ``load`` takes them.
        suites: names of suites in ``data``, or "all".
        data: folder of the suites.
        pairs: tab-separated files of scored pairs: score, sentence1, sentence2.
        pair_columns: other columns of both sentences and of the score, by name or number from 1.
        held_out: held-out pairs, for the test of finding a text's paraphrase among 100 texts.
        words: word-vector file whose average is scored as a baseline.
        out: folder for tables, analyses and report.html; None: no files.
        resamples: bootstrap resamples for the 95 % intervals and the paired tests; 0: neither.
        inference: device, precision, prompt.

    Returns:
        The scores: ``metrics()`` by name, ``table()``, ``markdown()``.

    Raises:
        OSError, ValueError: an encoder or a file cannot be used, or a score is undefined.

    Examples:
        >>> report = paraembed.evaluate("encoder", pairs=["scored.tsv"], resamples=0)
        >>> sorted(report.metrics())
        ['pairs/scored/pearson', 'pairs/scored/spearman']
    """
    from paraembed.evaluation import evaluate as evaluation
    from paraembed.evaluation.report import compare

    if not (encoders or words):
        raise ValueError("no encoder to score; give `encoders`, `words` or both")
    if bool(suites) != (data is not None) or not (suites or pairs or held_out):
        raise ValueError("no data to score on; give `suites` and `data`, `pairs`, or `held_out`")
    request = evaluation.EvaluationRequest(
        encoders=tuple(absolute_name(str(name), _absolute) for name in _several(encoders)),
        words=None if words is None else _absolute(words),
        suites=tuple(map(str, _several(suites))),
        data=None if data is None else _absolute(data),
        pairs=tuple(map(_absolute, _several(pairs))),
        pair_columns=tuple(pair_columns),
        held_out=None if held_out is None else _absolute(held_out),
        resamples=resamples,
        inference=inference,
    )
    if out is not None:
        check_destination(_absolute(out), *map(str, _several(encoders)), *request.pairs, request.held_out)
        evaluation.check_target(_absolute(out))
    with one_thread():
        candidates, sets = evaluation.prepare(request, fetch_encoder)
        if out is None:
            return compare(candidates, sets, resamples=resamples)
        return evaluation.evaluate(request, candidates, sets, _absolute(out)).report


@_typed
def search(
    folder: AnyPath,
    queries: str | Sequence[str],
    *,
    top: int = 10,
    encoder: AnyPath | None = None,
    prompt: str | None = None,
    trust_remote_code: bool = False,
) -> "pa.Table":
    """Return the rows of an embeddings folder that are nearest to queries, by cosine, exactly.

    Args:
        folder: finished output of ``embed``, a folder or URI.
        queries: one text or several.
        top: number of rows for each query.
        encoder: name of the encoder of the rows; None: the name that was given to ``embed``.
        prompt: text put before each query, for models that have one; None: the prompt of the rows.
        trust_remote_code: run Python code that an ``st:`` model contains.

    Returns:
        A table with the columns query (its number), query_text, rank, cosine (float32), and those of the rows: the id
        and the kept columns. Rows with equal cosines are in the order of ids of the input; those with equal or
        generated ids are in input order.

    Raises:
        OSError, ValueError: the folder is not a finished output, the encoder is another one, or no query has a token.
    """
    from paraembed.embedding import search as engine
    from paraembed.embedding.output import Embeddings

    if top < 1:
        raise ValueError(f"`top` is {top}; it must be at least 1")
    texts = list(_several(queries))
    embeddings = Embeddings(to_place(str(folder)))
    name = None if encoder is None else absolute_name(str(encoder), _absolute)
    opened = engine.query_encoder(
        embeddings, name, prompt=prompt, fetch=fetch_encoder, trust_remote_code=trust_remote_code
    )
    embedded = engine.embed_queries(opened, texts, embeddings)
    return engine.table_of(embeddings, embedded, engine.search(embeddings, embedded.vectors, top))


def _checked(settings: dict[str, Any], kind: type, what: str) -> dict[str, Any]:
    """Return the settings, with an encoder's name as its options; raise ValueError if one is unknown."""
    allowed = [field.name for field in fields(kind)]
    unknown = [name for name in settings if name not in allowed]
    limits = {"Limits({}=…)": Limits, "Limits(reading=TableLimits({}=…))": TableLimits} if kind is Settings else {}
    for form, own in limits.items():
        if unknown and unknown[0] in (field.name for field in fields(own)):
            raise ValueError(f"`{unknown[0]}` is one of the limits; give limits={form.format(unknown[0])}")
    if unknown:
        raise ValueError(f"unknown setting {unknown[0]!r} of {what}; allowed: {', '.join(allowed)}")
    encoder = settings.get("encoder")
    return {**settings, "encoder": config_from_dict({"name": encoder})} if isinstance(encoder, str) else settings


def _several(values: _Value | Sequence[_Value]) -> Sequence[_Value]:
    """Return one value as a sequence, several as they are."""
    return values if isinstance(values, list | tuple) else [values]  # type: ignore[list-item]


def _absolute_place(place: AnyPath) -> Place:
    """Return an absolute path, or a URI as it is."""
    path_or_uri = to_place(str(place))
    return path_or_uri if isinstance(path_or_uri, str) else _absolute(path_or_uri)


def _absolute(path: AnyPath) -> Path:
    if not str(path).strip():
        raise ValueError("an empty path was given; give the path of a file or folder")
    return Path(path).absolute()
