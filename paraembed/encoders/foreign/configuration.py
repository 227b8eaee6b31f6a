"""Configuration files of st: models: the module types, names and numbers with which a model may be built.

The library imports what a file names, calls it, and allocates what a number says. Each file is therefore checked
against an allow-list first.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from safetensors import safe_open

from paraembed.encoders.foreign.files import MOST_WIDTH, ModelError, ModelFiles, versions_of
from paraembed.options import Range, json_value

LIBRARIES = ("sentence-transformers", "transformers", "tokenizers", "torch")
"""Packages whose versions decide the vectors of an ``st:`` model."""
# all-MiniLM-L6-v2 on one core: 2048 tokens take 7 % less time than 4096, as their activations fit into the cache.
BATCH_TOKENS = {"cpu": 2048, "cuda": 65_536}
"""Token budget of a batch, by device."""
_Width = Annotated[int, Range(1, MOST_WIDTH)]
_Length = Annotated[int, Range(1, 1 << 24)]
_Layers = Annotated[int, Range(0, 1024)]
_Side = Literal["left", "right"]
_Feature = Literal["sentence_embedding", "token_embeddings"]
_Mode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
# Names of the module types, in versions 5.2 to 6, with and without the name of the class behind that of its module.
_TYPE = re.compile(
    r"sentence_transformers\.(?:models|(?:base|sentence_transformer)\.modules)(?:\.\w+)?\."
    r"(Transformer|Pooling|Normalize|Dense|StaticEmbedding|LayerNorm|WeightedLayerPooling)"
)
_ACTIVATION = re.compile(
    r"torch\.nn\.(?:modules\.(?:activation|linear)\.)?(?:Identity|Tanh|ReLU6?|L?ELU|GELU|SELU|CELU|SiLU|Mish|LeakyReLU|"
    r"Sigmoid|LogSigmoid|Hardtanh|Hardswish|Hardsigmoid|Softplus|Softsign|Tanhshrink)"
)


@dataclass(frozen=True)
class Module:
    """A module of a model, as in ``modules.json``."""

    name: str
    path: str
    type: str
    idx: int = 0
    kwargs: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Name of the class, a key of ``_KINDS``; empty for another one."""
        match = _TYPE.fullmatch(self.type)
        return match[1] if match else ""


class ModelConfig(TypedDict, total=False):
    """Settings in ``config_sentence_transformers.json``."""

    model_type: str | None
    prompts: dict[str, str | None] | None
    default_prompt_name: str | None
    truncate_dim: _Width | None


class _Index(TypedDict):
    weight_map: dict[str, str]


class _Modality(TypedDict):
    method: Literal["forward"]
    method_output_name: list[Literal["last_hidden_state"]] | Literal["last_hidden_state"]
    format: NotRequired[str]


@dataclass(frozen=True)
class _Modalities:
    text: _Modality
    message: _Modality | None = None


@dataclass(frozen=True)
class _ModelOptions:
    attn_implementation: Literal["eager", "sdpa"] | None = None
    add_pooling_layer: bool = False


@dataclass(frozen=True)
class _TokenizerOptions:
    model_max_length: _Length | None = None
    padding_side: _Side = "right"
    truncation_side: _Side = "right"
    use_fast: bool = True
    do_lower_case: bool = False
    add_bos_token: bool = False
    add_eos_token: bool = False


@dataclass(frozen=True)
class _TextOptions:
    padding: bool | Literal["longest", "max_length"] = True
    truncation: bool | Literal["longest_first"] = True
    max_length: _Length | None = None
    pad_to_multiple_of: Annotated[int, Range(1, 1024)] | None = None
    padding_side: _Side = "right"
    add_special_tokens: bool = True
    return_tensors: Literal["pt"] = "pt"


@dataclass(frozen=True)
class _ChatOptions:
    add_generation_prompt: bool = False
    restore_suffix: bool = False


@dataclass(frozen=True)
class _CallOptions:
    common: _TextOptions | None = None
    text: _TextOptions | None = None
    chat_template: _ChatOptions | None = None


@dataclass(frozen=True)
class _ConfigOptions:
    output_hidden_states: bool = False
    use_cache: bool = False
    is_causal: bool = False


@dataclass(frozen=True)
class _Transformer:
    max_seq_length: _Length | None = None
    do_lower_case: bool = False
    transformer_task: Literal["feature-extraction"] = "feature-extraction"
    modality_config: _Modalities | None = None
    module_output_name: Literal["token_embeddings"] = "token_embeddings"
    unpad_inputs: bool | None = None
    query_length: _Length | None = None
    document_length: _Length | None = None
    model_args: _ModelOptions | None = None
    model_kwargs: _ModelOptions | None = None
    tokenizer_args: _TokenizerOptions | None = None
    processor_kwargs: _TokenizerOptions | None = None
    processing_kwargs: _CallOptions | None = None
    config_args: _ConfigOptions | None = None
    config_kwargs: _ConfigOptions | None = None


@dataclass(frozen=True)
class _Pooling:
    embedding_dimension: _Width | None = None
    word_embedding_dimension: _Width | None = None
    pooling_mode: list[_Mode] | _Mode = "mean"
    pooling_mode_cls_token: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False
    include_prompt: bool = True


@dataclass(frozen=True)
class _Normalize:
    module_input_name: _Feature = "sentence_embedding"
    module_output_name: _Feature | None = None


@dataclass(frozen=True)
class _Dense:
    in_features: _Width
    out_features: _Width
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"
    module_input_name: _Feature = "sentence_embedding"
    module_output_name: _Feature | None = None
    use_residual: bool = False

    def __post_init__(self) -> None:
        if not _ACTIVATION.fullmatch(self.activation_function):
            raise ValueError(f"the activation function {self.activation_function[:80]} is not one of PyTorch's")


@dataclass(frozen=True)
class _LayerNorm:
    dimension: _Width


@dataclass(frozen=True)
class _WeightedLayerPooling:
    embedding_dimension: _Width | None = None
    word_embedding_dimension: _Width | None = None
    layer_start: _Layers = 4
    num_hidden_layers: _Layers = 12


_KINDS: dict[str, Any] = {
    "Transformer": _Transformer,
    "Pooling": _Pooling,
    "Normalize": _Normalize,
    "Dense": _Dense,
    "StaticEmbedding": Any,
    "LayerNorm": _LayerNorm,
    "WeightedLayerPooling": _WeightedLayerPooling,
}
_OF_TRANSFORMER = re.compile(r"sentence_[\w-]+_config\.json")
# Names of the other files, without .json, from which the libraries build something.
_CONFIGS = {
    "modules",
    "config_sentence_transformers",
    "config",
    "tokenizer_config",
    "generation_config",
    "processor_config",
    "preprocessor_config",
    "router_config",
}
_INDEX = "model.safetensors.index.json"  # of weights in several files
# Keys whose values import, download or open something.
_CODE = {
    "auto_map",
    "quantization_config",
    "compression_config",
    "kernel_config",
    "backbone",
    "backbone_config",
    "attribute_map",
    "sub_configs",
    "custom_pipelines",
    "init_inputs",
    "transformers_weights",
    "gguf_file",
}
_IMPLEMENTATIONS = {
    "attn_implementation": {None, "eager", "sdpa"},
    "experts_implementation": {None, "eager", "batched_mm", "grouped_mm"},
}
# Arguments of a tokenizer that can be paths; the library sets those of files in the model's folder itself.
_PATHS = re.compile(r".*_file|.*spm.*|vocab|merges")
_FLASH = re.compile(r"flash_attention_\d")  # which can load a kernel from the hub; vectors differ by rounding alone
_COUNTS = re.compile(r".*(?:layers?|depths?|blocks|experts|stages|heads|groups)", re.IGNORECASE)
_SIZES = re.compile(r"(?!.*(?:window|batch|chunk|image|block)).*(?:size|dims?|width|inner|embd?|features)|d_\w+")
_LENGTHS = re.compile(r"(?!model_max_length).*(?:position|length|ctx).*")
_LABELS = {"id2label", "label2id"}
_SETTINGS = "config_sentence_transformers.json"
_MOST_MODULES, _LONGEST_PROMPT = 32, 1 << 14
_MOST_LAYERS, _SMALL, _LONGEST, _LARGEST = 1024, 4096, 1 << 24, 1 << 40
_UNLIMITED = 10**30  # length of a tokenizer without limit, as transformers writes it


def modules_of(files: ModelFiles, *, is_trusted: bool) -> tuple[list[Module], ModelConfig, bool]:
    """Return the modules of a model and its own settings, from a snapshot of its files, and whether only the library
    can build it: it has no ``modules.json``, or it is trusted and has code of its own.

    Raise ModelError for what is not allowed.
    """
    config: ModelConfig = _read(files, _SETTINGS, ModelConfig, {})
    modules: list[Module] = _read(files, "modules.json", list[Module], [])
    if len(modules) > _MOST_MODULES:
        raise ModelError(f"modules.json has {len(modules):,} modules; allowed: at most {_MOST_MODULES}")
    for prompt in (config.get("prompts") or {}).values():
        check_prompt(prompt)
    problems = [*_problems(files), *chain.from_iterable(_module_problems(files, module) for module in modules)]
    if (kind := config.get("model_type") or "SentenceTransformer") != "SentenceTransformer":
        problems.append(f"{_SETTINGS} says that the model is a {kind[:80]}")
    if problems and not is_trusted:
        raise ModelError(f"{problems[0]}; such a model can run Python code that comes with it; see `trust_remote_code`")
    return modules, config, bool(problems) or not modules


def has_defaults(files: ModelFiles, identity: Mapping[str, Any]) -> bool:
    """Return whether an identity is that of an ``st:`` model of these files, with default settings on a CPU. The model
    is not opened, which takes 7 s.
    """
    config: ModelConfig = _read(files, _SETTINGS, ModelConfig, {})
    prompt = (config.get("prompts") or {}).get(config.get("default_prompt_name") or "") or ""
    expected: dict[str, Any] = {
        "kind": "st",
        "device": "cpu",
        "precision": "float32",
        "prompt": prompt,
        "backend": "torch",
    }
    expected |= {"batch_tokens": BATCH_TOKENS["cpu"], "trust_remote_code": False, "files": files.digests}
    try:
        expected |= {"max_tokens": identity.get("max_tokens"), "libraries": versions_of(LIBRARIES)}
    except ModuleNotFoundError:  # opening the model names it
        return False
    return expected == identity


def check_prompt(prompt: str | None) -> None:
    """Raise ModelError if a prompt, which is read before each text, is too long."""
    if prompt and len(prompt) > _LONGEST_PROMPT:
        raise ModelError(f"a prompt has {len(prompt):,} characters; allowed: at most {_LONGEST_PROMPT:,}")


def _module_problems(files: ModelFiles, module: Module) -> Iterator[str]:
    """Yield the settings of a module that need `trust_remote_code`."""
    path = PurePosixPath(module.path)
    if path.is_absolute() or any(part.startswith(".") for part in path.parts):
        raise ModelError(f"modules.json names the folder {module.path[:80]!r}; allowed: visible folders of the model")
    if not module.kind:
        yield f"modules.json names the module {module.type[:80]} (allowed: {', '.join(_KINDS)})"
        return
    names = [str(path / "config.json")] if module.kind not in {"Transformer", "StaticEmbedding"} else []
    if module.kind == "Transformer":
        names = [name for name in files.names if _OF_TRANSFORMER.fullmatch(PurePosixPath(name).name)]
    for name in names:
        try:
            config = _read(files, name, _KINDS[module.kind], None)
        except ValueError as error:
            yield str(error)
            continue
        weights = files.folder / path / "model.safetensors"
        if isinstance(config, _Dense) and weights.is_file():
            size = config.in_features * config.out_features
            if size > weights.stat().st_size:
                raise ModelError(f"{name} says that the module has {size:,} weights, but its file is smaller")


def _problems(files: ModelFiles) -> Iterator[str]:
    """Yield the settings that need `trust_remote_code`."""
    has_config = any(PurePosixPath(name).name == "config.json" for name in files.names)
    largest = _largest(files) if has_config else 0
    for name in files.names:
        path = PurePosixPath(name)
        if path.name == _INDEX:
            index: _Index = _read(files, name, _Index, {})
            if other := {str(path.parent / file) for file in index["weight_map"].values()} - set(files.names):
                raise ModelError(f"{name} names {min(other)[:80]}, which is not one of the model's files")
        elif path.suffix == ".json" and (path.stem in _CONFIGS or _OF_TRANSFORMER.fullmatch(path.name)):
            value = _without_ignored(_read(files, name, Any, None))
            if path.name == "tokenizer_config.json" and isinstance(value, dict):
                value = {key: item for key, item in value.items() if not _PATHS.fullmatch(key)}
                if isinstance(length := value.get("max_length"), int | float) and length >= _UNLIMITED:
                    del value["max_length"]
                tokenizers = {file for file in files.names if PurePosixPath(file).match("tokenizer.*json")}
                if other := {str(path.parent / file) for file in value.get("fast_tokenizer_files") or []} - tokenizers:
                    raise ModelError(f"{name} names {min(other)[:80]}, which is not one of the model's tokenizers")
            (files.folder / name).write_text(json.dumps(value), encoding="utf-8")
            yield from _value_problems(value, "", name, largest if path.name == "config.json" else _LONGEST)


def _without_ignored(value: Any, key: str = "") -> Any:
    """Return a value without fields that this package decides: the precision, and kernels for attention."""
    if isinstance(value, list):
        return [_without_ignored(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        inner: _without_ignored(item, inner)
        for inner, item in value.items()
        if not (inner.endswith("attn_implementation") and isinstance(item, str) and _FLASH.fullmatch(item))
        and not (key in {"model_args", "model_kwargs"} and inner in {"dtype", "torch_dtype"})
    }


def _value_problems(value: Any, key: str, name: str, largest: int) -> Iterator[str]:
    """Yield settings that need `trust_remote_code`; raise ModelError for a number above its limit."""
    for inner, item in value.items() if isinstance(value, dict) else ((key, item) for item in value):
        if isinstance(item, dict | list) and inner not in _LABELS:
            yield from _value_problems(item, inner, name, largest)
        if inner in _CODE and item:
            if "--" in str(item):
                raise ModelError(f"{name} names Python code of another model; save the model with its code")
            yield f"{name} has the field {inner}"
        if inner == "tokenizer_name_or_path" and item:
            raise ModelError(f"{name} names a tokenizer outside of the model; save the model again with its tokenizer")
        for ending, allowed in _IMPLEMENTATIONS.items():
            if inner.endswith(ending) and (not isinstance(item, str | None) or item not in allowed):
                yield f"{name} has the {ending} {str(item)[:80]}"
        if type(item) in {int, float} and abs(item) > (most := _most(inner, largest)):
            raise ModelError(f"{name}: {inner[:80]} is {item!r:.40}; allowed: at most {most:,}")


def _most(key: str, largest: int) -> float:
    """Return the largest number that a field may have; a size is at most the largest one of the weights."""
    if _COUNTS.fullmatch(key):
        return _MOST_LAYERS
    if _SIZES.fullmatch(key):
        return max(_SMALL, largest)
    return _LONGEST if _LENGTHS.fullmatch(key) else math.inf if key == "model_max_length" else _LARGEST


def _largest(files: ModelFiles) -> int:
    """Return the largest dimension of the weights; a configuration can be in another folder, as next to a graph."""
    weights = [name for name in files.names if PurePosixPath(name).match("*.safetensors")]
    largest = 0 if weights else _LONGEST  # of other backends, which build nothing from a configuration
    for name in weights:
        with safe_open(files.folder / name, "np") as tensors:
            for tensor in tensors.keys():  # noqa: SIM118 - it is no mapping
                shape = tensors.get_slice(tensor).get_shape()
                if 0 not in shape:  # an empty tensor can have any other dimension
                    largest = max(largest, *shape, 0)
    return largest


def _read(files: ModelFiles, name: str, kind: Any, default: Any) -> Any:
    """Return the value of a JSON file of a snapshot, or the default if there is none; errors name it without folder."""
    if name not in files.names:
        return default
    return json_value((files.folder / name).read_bytes(), name, kind)
