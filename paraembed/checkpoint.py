"""Save and load encoder folders, in safetensors and JSON, never pickle.

A folder holds ``config.json`` (encoder options, tokenizer, recipe, provenance, digests of the other files,
fingerprint), ``words.txt`` (the vocabulary), ``model.safetensors`` (word matrix and other parameters), ``README.md``
and, for the tokenizer ``subword``, ``tokenizer.json``. With ``oov`` pieces, it holds the folder ``pieces`` of another
encoder, whose fingerprint is in ``config.json``. The word matrix is float32 ``matrix`` [V, D], or int8 with a
float32 scale for each row, ``matrix_scale`` [V]; vectors are computed in float32 in any case.

The folder of two encoders as one (``Concat``) holds their folders, ``first`` and ``second``, and a ``config.json`` with
their fingerprints.
"""

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired, TypedDict

import numpy as np
import pyarrow as pa

from paraembed.encoders import AnyConfig, config_from_dict, config_to_dict
from paraembed.encoders.concat import Concat
from paraembed.encoders.configs import BosEosTokens, Oov, TableDtype
from paraembed.encoders.own import OwnEncoder
from paraembed.encoders.tables import Floats, from_int8, to_int8
from paraembed.encoders.word_average import WordAverage, is_word_average
from paraembed.io import folder_config
from paraembed.io.atomic import new_folder
from paraembed.io.escape import markdown
from paraembed.io.folder_config import check_files, write_config
from paraembed.io.places import open_regular
from paraembed.io.resume import check_own_files
from paraembed.io.tensors import Arrays, check_tensors, load_arrays, save_tensors
from paraembed.options import Count, Range
from paraembed.text import SUBWORD, check_tokenizer
from paraembed.text.subword import contents_of, without_ends
from paraembed.text.tokens import TokenIds
from paraembed.text.vocabulary import Words, load_vocabulary, save_vocabulary, unknown_row

if TYPE_CHECKING:
    from paraembed.encoders import Encoder

FORMAT = "paraembed-encoder-2"
FORMAT_OF_CONCAT = "paraembed-concat-1"
# The last two are missing if they have their defaults, as in older folders.
_DECIDES = ("encoder", "tokeniser", "boundary_tokens", "max_tokens", "oov", "pieces")
_FILES = ("model.safetensors", "words.txt")
_TOKENIZER = "tokenizer.json"
_PARTS = ("first", "second")
_PIECES = "pieces"
OWN_FILES = re.compile(
    r"((first|second|encoder|pieces)/)*"
    r"((config|tokenizer|split)\.json|words\.txt|(model|head)\.safetensors|README\.md|training\.png)"
)
"""Pattern of the paths in the folder of an encoder, of two as one, or of a fine-tuned model."""


class _Training(TypedDict):
    pairs: NotRequired[str | None]
    gold: NotRequired[list[Any]]


class _Selected(TypedDict):
    metric: str
    scores: list[Any]


class _Data(TypedDict):
    pairs: NotRequired[Count | None]
    halvings: NotRequired[str | None]


class _Provenance(TypedDict):
    """The fields of an encoder's provenance that jobs read."""

    training: NotRequired[_Training | None]
    selected: NotRequired[_Selected | None]
    data: NotRequired[_Data | None]


class _ConcatConfig(TypedDict):
    encoders: list[str]
    files: dict[str, str]
    fingerprint: str
    provenance: NotRequired[_Provenance | None]


class _Config(TypedDict):
    encoder: dict[str, Any]
    tokeniser: str
    boundary_tokens: BosEosTokens
    max_tokens: Annotated[int, Range(1, 2**31 - 1)] | None
    files: dict[str, str]
    fingerprint: str
    oov: NotRequired[Oov]
    pieces: NotRequired[str]
    recipe: NotRequired[dict[str, Any] | None]
    provenance: NotRequired[_Provenance | None]


def save(
    encoder: OwnEncoder,
    folder: Path,
    *,
    recipe: dict[str, Any],
    provenance: dict[str, Any],
    model_card: str,
    written: Path | None = None,
    write_more: Callable[[Path], object] = lambda _: None,
    dtype: TableDtype = "float32",
    overwrite: bool = False,
) -> str:
    """Write an encoder folder atomically. Return the fingerprint: a digest of encoder options, tokenizer, vocabulary
    and weights, that is, of everything that decides a vector.

    ``config.json`` records the recipe and the provenance: input digests, versions and counts. ``written`` is a folder
    of the same encoder whose weights and vocabulary are moved instead of being written again; ``write_more`` writes
    further files into the folder. An int8 word matrix is rounded. The errors are those of ``check_replaceable``, before
    and after the writing.
    """
    with new_folder(folder, partial(check_replaceable, overwrite=overwrite)) as new:
        write_more(new)
        if written is None:
            save_vocabulary(encoder.vocabulary, new / "words.txt")
            save_tensors(_arrays(encoder, dtype), new / "model.safetensors")
        else:
            for name in _FILES:
                shutil.move(written / name, new / name)
        files: tuple[str, ...] = _FILES
        if encoder.tokenizer == SUBWORD:
            (new / _TOKENIZER).write_bytes(contents_of(encoder.tokenizer))
            files = (*_FILES, _TOKENIZER)
        (new / "README.md").write_text(model_card, encoding="utf-8")
        decides = {
            "encoder": config_to_dict(encoder.config),
            "tokeniser": encoder.tokenizer,
            "boundary_tokens": encoder.bos_eos_tokens,
            "max_tokens": encoder.max_tokens,
        }
        if encoder.oov != "shared":
            decides["oov"] = encoder.oov
        if encoder.pieces is not None:
            card, record = "The encoder of OOV tokens of the encoder above.\n", encoder.pieces.provenance
            part = new / _PIECES
            decides["pieces"] = save(encoder.pieces, part, recipe={}, provenance=record, model_card=card, dtype=dtype)
        return write_config(new, FORMAT, decides, files, {"recipe": recipe, "provenance": provenance})


def _arrays(encoder: OwnEncoder, dtype: TableDtype) -> Arrays:
    tensors = encoder.arrays()
    if dtype == "int8":
        tensors["matrix"], tensors["matrix_scale"] = to_int8(tensors["matrix"])
    return tensors


def write(encoder: object, folder: Path, *, overwrite: bool = False) -> None:
    """Write an encoder that was loaded or built; see ``EncoderMethods.save``."""
    if not isinstance(encoder, OwnEncoder | Concat):
        raise ValueError(f"{encoder!r} is a model of another library, which has its own files; copy its folder")
    if encoder.identity.get("precision", "float32") != "float32":
        raise ValueError(f"{encoder!r} computes in {encoder.identity['precision']}; load it in float32 to save it")
    card = f"# {markdown(repr(encoder))}\n\nWritten by `save` in Python.\n"
    if isinstance(encoder, OwnEncoder):
        save(encoder, folder, recipe={}, provenance=encoder.provenance, model_card=card, overwrite=overwrite)
        return
    with TemporaryDirectory() as scratch:
        folders = [Path(scratch) / part for part in _PARTS]
        for part, place in zip((encoder.first, encoder.second), folders, strict=True):
            write(part, place)
        save_concat(folders, folder, provenance=encoder.provenance, model_card=card, overwrite=overwrite)


class _Content(NamedTuple):
    """Checked content of an encoder folder."""

    config: dict[str, Any]
    options: AnyConfig
    tokenizer: str
    vocabulary: pa.StringArray
    matrix: Floats
    others: Arrays  # all other arrays, by the names of the encoder's parameters

    @property
    def reading(self) -> dict[str, Any]:
        """How texts are read, see ``OwnEncoder.options``."""
        return {
            "tokenizer": self.tokenizer,
            "bos_eos_tokens": self.config["boundary_tokens"],
            "max_tokens": self.config["max_tokens"],
            "oov": self.config.get("oov", "shared"),
        }


def _content(folder: Path) -> _Content:
    """Read an encoder folder; the errors are those of ``load``, without those of weights other than words."""
    config = read_config(folder)
    check_files(folder, config)
    tokenizer: str = config["tokeniser"]
    check_tokenizer(tokenizer, of_encoder=True)
    tensors = load_arrays(folder / "model.safetensors")
    vocabulary = load_vocabulary(folder / "words.txt")
    unknown_row(vocabulary)
    if tokenizer == SUBWORD:
        with open_regular(folder / _TOKENIZER) as file:
            tokenizer = without_ends(file.read(), f"{folder}/{_TOKENIZER}")
        try:
            TokenIds(vocabulary, tokenizer)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from None
    matrix = _float32_matrix(tensors)
    if matrix is None:
        raise ValueError(
            f"{folder}/model.safetensors has no word matrix 'matrix' of float32 [V, D], or of int8 with 'matrix_scale' "
            "of float32 [V]"
        )
    if matrix.shape[0] != len(vocabulary):
        raise ValueError(
            f"{folder}: words.txt has {len(vocabulary)} words, but the word matrix has a different number of rows"
        )
    return _Content(config, config_from_dict(config["encoder"]), tokenizer, vocabulary, matrix, tensors)


def _float32_matrix(tensors: Arrays) -> Floats | None:
    """Take the word matrix and its scale out of the tensors, and return it; None if it has neither form."""
    matrix, scale = tensors.pop("matrix", None), tensors.pop("matrix_scale", None)
    if matrix is None or matrix.ndim != 2 or not matrix.shape[1]:
        return None
    if scale is None:
        # NumPy asks Linux for huge pages: random rows cost a fifth less than in other memory (40k x 300).
        return np.array(matrix) if matrix.dtype == np.float32 else None
    if not (matrix.dtype == np.int8 and scale.dtype == np.float32 and scale.shape == matrix.shape[:1]):
        return None
    return from_int8(matrix, scale)


def load(folder: str | Path) -> "Encoder":
    """Load an encoder folder.

    Raises:
        FileNotFoundError, NotADirectoryError: the folder or one of its files does not exist.
        ValueError: the folder is not an encoder folder, or a file differs from its digest in ``config.json``.

    Example:
        >>> from paraembed import checkpoint
        >>> encoder = checkpoint.load("encoder")
        >>> encoder.config.name, encoder.matrix.shape
        ('avg', torch.Size([8, 4]))
    """
    return _encoder(Path(folder), _content(Path(folder)))


def _encoder(folder: Path, content: _Content) -> "Encoder":
    import torch  # noqa: PLC0415 - takes 2 s, and an average of words is computed without it

    from paraembed.encoders import Encoder  # noqa: PLC0415

    config, matrix = content.config, content.matrix
    with torch.device("meta"):  # shapes alone: a configuration may ask for more memory than there is
        composition = content.options.build(matrix.shape[1], torch.Generator())
        composition.for_vocabulary(len(content.vocabulary))
    expected = {f"composition.{name}": tensor for name, tensor in composition.state_dict().items()}
    check_tensors(content.others, expected, _mismatch(folder))
    # Copied: in the file an array may begin anywhere, and its alignment decides the last digits of products.
    tensors = {name: torch.from_numpy(array).clone() for name, array in content.others.items()}
    with torch.random.fork_rng(devices=[]):
        encoder = Encoder(
            content.options,
            Words(content.vocabulary, matrix),
            **content.reading,
            pieces=_load_pieces(folder, config["pieces"]) if "pieces" in config else None,
        )
    encoder.load_state_dict({"matrix": torch.from_numpy(matrix), **tensors}, assign=True)
    encoder.requires_grad_(False).eval()
    encoder.fingerprint = config["fingerprint"]
    encoder.provenance, encoder.name = config.get("provenance") or {}, folder.name
    return encoder


def _mismatch(folder: Path) -> str:
    return f"{folder}: the weights do not match the encoder in config.json"


def _word_average(folder: Path, content: _Content) -> WordAverage:
    check_tensors(content.others, {}, _mismatch(folder))
    encoder = WordAverage(content.options, content.vocabulary, content.matrix, **content.reading)
    encoder.fingerprint = content.config["fingerprint"]
    encoder.provenance, encoder.name = content.config.get("provenance") or {}, folder.name
    return encoder


def _load_pieces(folder: Path, fingerprint: str) -> "Encoder":
    """Load the encoder of OOV tokens in an encoder folder."""
    config = read_config(folder / _PIECES)
    if config["fingerprint"] != fingerprint or "pieces" in config:
        raise ValueError(f"{folder / _PIECES} is another encoder than in {folder}/config.json; write the folder again")
    return load(folder / _PIECES)


def save_concat(
    folders: Sequence[Path], out: Path, *, provenance: dict[str, Any], model_card: str, overwrite: bool = False
) -> Concat:
    """Write the folder of two encoders as one, with copies of their folders, atomically. The errors are those of
    ``load`` and ``check_replaceable``, and a ValueError if an encoder reads trees.
    """
    both = Concat(*map(load, folders))
    with new_folder(out, partial(check_replaceable, overwrite=overwrite)) as new:
        for part, folder in zip(_PARTS, folders, strict=True):
            shutil.copytree(folder, new / part)
        (new / "README.md").write_text(model_card, encoding="utf-8")
        decides = {"encoders": [both.first.fingerprint, both.second.fingerprint]}
        both.fingerprint = write_config(new, FORMAT_OF_CONCAT, decides, (), {"provenance": provenance})
    both.provenance = provenance
    return both


def load_any(folder: str | Path, *, for_vectors: bool = False) -> "Encoder | WordAverage | Concat":
    """Load an encoder folder, or that of two encoders as one; the errors are those of ``load``.

    ``for_vectors``: in float32 on a CPU, without PyTorch if the encoder only adds words.
    """
    folder = Path(folder)
    folders = [folder / part for part in _PARTS] if is_concat(folder) else [folder]
    config = _read_concat_config(folder) if is_concat(folder) else None
    contents = [_content(part) for part in folders]
    is_light = for_vectors and all(is_word_average(content.options, content.reading["oov"]) for content in contents)
    make = _word_average if is_light else _encoder
    encoders = [make(*item) for item in zip(folders, contents, strict=True)]
    if config is None:
        return encoders[0]
    both = Concat(*encoders)
    if [both.first.fingerprint, both.second.fingerprint] != config["encoders"]:
        raise ValueError(
            f"{folder}/{_PARTS[0]} or {_PARTS[1]} is another encoder than in config.json; write the folder again"
        )
    both.fingerprint, both.provenance = config["fingerprint"], config.get("provenance") or {}
    both.name = folder.name
    return both


class KnownEncoder(NamedTuple):
    """What a finished output must agree with, of an encoder that adds words and so computes on a CPU."""

    fingerprint: str
    tokenizer: str
    identity: Mapping[str, Any] = MappingProxyType({})


def known(folder: Path) -> KnownEncoder | None:
    """Return what ``load_any`` would find, without opening the encoder; None if it must be opened: a GPU may compute
    it, or it has another one for OOV tokens. Raise the errors of ``load`` for damaged files and configurations.
    """
    if is_concat(folder):
        first, second = (known(folder / part) for part in _PARTS)
        config = _read_concat_config(folder)
        if first is None or second is None or [first.fingerprint, second.fingerprint] != config["encoders"]:
            return None
        return first._replace(fingerprint=config["fingerprint"])
    config = read_config(folder)
    check_files(folder, config)
    if config_from_dict(config["encoder"]).adds is None or "pieces" in config:
        return None
    return KnownEncoder(config["fingerprint"], config["tokeniser"])


def parts_of_concat(folder: Path) -> list[str]:
    """Return the fingerprints of two encoders as one; an empty list if there is no folder, or an empty one. Raise
    NotADirectoryError or ValueError if the folder holds something else.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return []
    return list(_read_concat_config(folder)["encoders"])


def is_concat(folder: Path) -> bool:
    """Whether a folder holds two encoders as one."""
    return (folder / _PARTS[1]).is_dir()


def _read_concat_config(folder: Path) -> dict[str, Any]:
    what = "two encoders as one, concatenated by jobs/export.py"
    return folder_config.read_config(folder, FORMAT_OF_CONCAT, _ConcatConfig, ("encoders",), (), what)


def check_replaceable(
    out: Path, *, overwrite: bool, read: Callable[[Path], object] | None = None, what: str = "an encoder"
) -> None:
    """Check that an encoder folder may be written. Raise NotADirectoryError or ValueError if the path is a file, a
    folder that holds more or something else than an encoder, or contains an encoder without ``overwrite``. ``read``
    reads the configuration of another model, ``what``.
    """
    if out.exists() and any(out.iterdir() if out.is_dir() else [out]):
        (read or (_read_concat_config if is_concat(out) else read_config))(out)
        if not overwrite:
            raise ValueError(f"{out} contains {what}; choose another `out`, or replace it with `overwrite`")
        check_own_files(out, OWN_FILES, "paraembed", may_be_link=True)


def gold_of(provenance: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ``task``, ``data_set`` and ``seed`` of the labeled data that an encoder was trained on; other entries
    are skipped.
    """
    wanted = {"task": str, "data_set": str, "seed": int}
    return [
        labels
        for labels in (provenance.get("training") or {}).get("gold", [])
        if isinstance(labels, dict) and all(isinstance(labels.get(name), kind) for name, kind in wanted.items())
    ]


def read_config(folder: Path) -> dict[str, Any]:
    """Read ``config.json`` of an encoder folder; the errors are those of ``load``."""
    if is_concat(folder):
        raise ValueError(f"{folder} holds two encoders as one; give one of them: {' or '.join(_PARTS)} in that folder")
    what = "an encoder folder, written by jobs/train.py"
    config = folder_config.read_config(folder, FORMAT, _Config, _DECIDES, _FILES, what, may_list=(_TOKENIZER,))
    if (config["tokeniser"] == SUBWORD) != (_TOKENIZER in config["files"]):
        raise ValueError(f"{folder}/config.json must list {_TOKENIZER} if, and only if, the tokenizer is {SUBWORD}")
    return config
