"""Base of the encoders of other libraries: identity, token counts, batches with a token budget."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from paraembed.encoders.devices import chosen_device, require_device
from paraembed.encoders.foreign.files import MOST_WIDTH, ModelError, ModelFiles, PackedFiles, versions_of
from paraembed.encoders.protocol import (
    BATCH_SIZE,
    NO_LOCK,
    ComputeLock,
    Embedded,
    EncoderMethods,
    OnRows,
    check_finite,
    no_progress,
    text_array,
)
from paraembed.io.fingerprint import differences, digest_of
from paraembed.process import HUB, HUB_OFFLINE, set_environment
from paraembed.settings import PEERS, Backend, Inference
from paraembed.text.ragged import Ragged

Ids = npt.NDArray[np.int32]
Matrix = npt.NDArray[np.float32]

log = logging.getLogger(__name__)


class ForeignEncoder(EncoderMethods):
    """An encoder of another library, see ``TextEncoder``.

    Attributes:
        kind: prefix of its name, a key of ``PEERS``.
        settings: fields of ``Inference``, other than the device, that it supports.
        libraries: packages whose versions decide the vectors.
        files: files of the model.
        inference: settings, with the actual device, prompt and batch size instead of the defaults.
        tokenizer: "model", since the model has its own tokenizer.
        max_tokens: maximum tokens of a text, without special tokens and prompt; longer texts are truncated. None: no
            maximum.
        width: H, the length of a text vector.
    """

    kind: ClassVar[str]
    settings: ClassVar[frozenset[str]]
    libraries: tuple[str, ...]
    tokenizer = "model"
    reads_trees = False

    def __init__(self, files: ModelFiles, inference: Inference, width: int, max_tokens: int | None) -> None:
        self.files, self.inference = files, inference
        self.width, self.max_tokens = check_width(width), max_tokens
        self._about = (PEERS[self.kind],)

    @classmethod
    def no_gpu(cls, backend: Backend) -> str:  # noqa: ARG003
        """Return why the installed library cannot compute on a GPU, with a remedy; empty if it can."""
        return ""

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """Everything that decides the vectors, by name."""
        settings = {name: getattr(self.inference, name) for name in ("device", "precision", "prompt", "batch_tokens")}
        return {
            "kind": self.kind,
            "max_tokens": self.max_tokens,
            **settings,
            **self._more_identity(),
            "libraries": versions_of(self.libraries),
            "files": self.files.digests,
        }

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the identity."""
        return digest_of(self.identity)

    @classmethod
    def opened(cls, files: ModelFiles, inference: Inference, name: str) -> "ForeignEncoder":
        """Return the encoder of a model's files, which messages call ``name``; see ``open_encoder``."""
        set_environment(HUB)
        for setting in fields(Inference):
            value = getattr(inference, setting.name)
            if setting.name not in {"device", *cls.settings} and value not in {None, "", setting.default, "float32"}:
                raise ValueError(
                    f"`{setting.name}` is {value!r}, but {cls.kind}: models do not support it; leave it out"
                )
        without_gpu = cls.no_gpu(inference.backend)
        if inference.device == "cuda" and without_gpu:
            raise ValueError(f"`device` is cuda, but {without_gpu}")
        inference = replace(inference, device=chosen_device(inference.device, gains=not without_gpu))
        is_decided = inference.device == "cpu" or "precision" not in cls.settings or inference.backend != "torch"
        if inference.precision == "auto" and is_decided:
            inference = replace(inference, precision="float32")
        make: Callable[[ModelFiles, Inference], ForeignEncoder] = cls
        problem = f"{name} is not a model that {PEERS[cls.kind]} can load"
        with errors_of_libraries(problem, name), files.snapshot() as snapshot:
            encoder = make(snapshot, inference)
        encoder.files, encoder.name = files, name
        return encoder

    def packed(self, *, is_local: bool = False) -> "PackedModel":
        """Return the model's files and the settings, for other processes; see ``TextEncoder``."""
        return PackedModel(type(self), PackedFiles.of(self.files, is_local=is_local), self.inference, self.identity)

    def embed(
        self,
        texts: pa.StringArray,
        batch_size: int = BATCH_SIZE,  # noqa: ARG002 - batches are made from all texts, by tokens
        trees: pa.StringArray | None = None,
        *,
        lock: ComputeLock = NO_LOCK,
        on_rows: OnRows = no_progress,
    ) -> Embedded:
        """Return vectors and counts of a string array [n]; see ``Embedded``. Null counts as empty; trees are a
        ValueError.

        A text without tokens gets the zero vector, because the vector that a transformer computes for special tokens
        alone does not describe the text.
        """
        if trees is not None:
            raise ValueError(
                f"trees were given, but an encoder of {self.libraries[0]} does not read trees; leave them out"
            )
        texts = text_array(texts)
        require_device(self.inference.device)
        with errors_of_libraries(f"the {self.kind}: model cannot compute the vectors of {len(texts)} texts"):
            embedded = self._computed(pc.fill_null(texts, ""), lock, on_rows)
        check_finite(embedded.vectors)
        return embedded

    def _more_identity(self) -> Mapping[str, Any]:
        return {}

    @abstractmethod
    def token_ids(self, texts: pa.StringArray) -> Ragged:
        """Return the tokens of a string array [n], without special ones."""

    @abstractmethod
    def _computed(self, texts: pa.StringArray, lock: ComputeLock, on_rows: OnRows) -> Embedded:
        """Return vectors and counts, without special tokens and prompt, of texts without null."""


@dataclass(frozen=True)
class PackedModel:
    """Encoder of another library in a form for other processes; see ``PackedEncoder``."""

    type: type[ForeignEncoder]
    files: PackedFiles
    inference: Inference
    identity: Mapping[str, Any]

    def encoder(self) -> ForeignEncoder:
        """Return the encoder on this machine, without downloads. Raise ValueError if the settings or versions here
        differ from those of the driver.
        """
        set_environment(HUB_OFFLINE, override=True)
        digest = digest_of(self.identity["files"])
        encoder = self.type.opened(self.files.unpacked(digest), self.inference, f"{self.type.kind}:{digest}")
        if changed := differences(self.identity, encoder.identity):
            raise ValueError(
                f"the {changed} of a worker's machine differs from the driver's; install the same versions on "
                "every machine"
            )
        return encoder


@contextmanager
def errors_of_libraries(problem: str, of_model: str = "") -> Iterator[None]:
    """Raise ValueError for the errors of libraries, which can be of any kind; also for a panic of the library
    ``tokenizers``, which is no Exception. The message begins with ``problem``, that of a ModelError with ``of_model``.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except ModelError as error:
        raise ValueError(f"{of_model or problem}: {error}") from None
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split()) or repr(error)
        raise ValueError(f"{problem}: {reason[:300]}") from error


def check_width(width: Any) -> int:
    """Return the width of a model's vectors; raise ModelError if it is not allowed."""
    if not isinstance(width, int) or not 0 < width <= MOST_WIDTH:
        raise ModelError(f"its vectors have {width} numbers; allowed: 1 to {MOST_WIDTH:,}")
    return width


def largest_id(tokenizer: Any) -> int:
    """Return the largest id of a tokenizer of the library ``tokenizers``; -1 if it has no tokens."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def check_ids(ids: Ragged, rows: int | None) -> Ragged:
    """Return ids; raise ModelError if one is not a row of a table of vectors with so many rows; None: not known."""
    if rows is not None and len(ids.ids) and not 0 <= ids.ids.min() <= ids.ids.max() < rows:
        raise ModelError(
            f"its tokenizer returned the id {ids.ids.max():,}, but there are {rows:,} vectors of tokens; save the "
            "model with its own tokenizer"
        )
    return ids


def ragged(ids: Sequence[Sequence[int]]) -> Ragged:
    """Return the ids of n texts as arrays."""
    offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
    return Ragged(np.fromiter(chain.from_iterable(ids), np.int32, offsets[-1]), offsets)


def tokenized(tokenizer: Any, texts: Sequence[str]) -> Ragged:
    """Return the tokens of texts, without special ones, from a tokenizer of the library ``tokenizers``."""
    return ragged([encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)])


def token_counts(ids: Ragged, unknown: int | None) -> tuple[Ids, Ids]:
    """Return the number of tokens of n texts, and the number of those that are ``unknown``, int32 [n]."""
    places = np.searchsorted(np.flatnonzero(ids.ids == unknown), ids.offsets)
    return ids.lengths.astype(np.int32), np.diff(places).astype(np.int32)
