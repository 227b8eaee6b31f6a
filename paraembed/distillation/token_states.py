"""The teacher's token states, summed in the same pass that embeds the texts.

Each batch of an embedding job writes its sums to a file, named by a digest of its texts, before it returns the vectors.
So a finished part has its sums, and a batch that is computed twice writes the same file twice.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from paraembed.encoders.foreign.sentence_transformers import SentenceTransformerEncoder
from paraembed.encoders.protocol import BATCH_SIZE, NO_LOCK, ComputeLock, Embedded, OnRows, PackedEncoder, no_progress
from paraembed.encoders.token_sums import StateSums, merged
from paraembed.io.atomic import write_file
from paraembed.text.ragged import Ragged

STATES = "states.npz"


@dataclass
class SummingTeacher:
    """Teacher that writes the sums of its token states; see ``TextEncoder``."""

    teacher: SentenceTransformerEncoder  # encoder for which ``sums_states`` is true
    folder: Path  # existing folder for the sums, on a disk that all workers share

    tokenizer = SentenceTransformerEncoder.tokenizer
    reads_trees = False

    def __post_init__(self) -> None:
        """Copy width, token limit, identity and fingerprint of the teacher, and what decided its precision."""
        self.width, self.max_tokens = self.teacher.width, self.teacher.max_tokens
        self.least_cosine = self.teacher.least_cosine
        self.identity, self.fingerprint = self.teacher.identity, self.teacher.fingerprint

    def packed(self, *, is_local: bool = False) -> "PackedSummingTeacher":
        """See ``TextEncoder``."""
        return PackedSummingTeacher(self.teacher.packed(is_local=is_local), self.folder)

    def embed(
        self,
        texts: pa.StringArray,
        batch_size: int = BATCH_SIZE,  # noqa: ARG002 - as in ``ForeignEncoder``
        trees: pa.StringArray | None = None,  # noqa: ARG002
        *,
        lock: ComputeLock = NO_LOCK,
        on_rows: OnRows = no_progress,
    ) -> Embedded:
        """Return vectors and counts, and write the sums; the lock covers all of it, since the teacher holds the sums of
        one call.
        """
        with lock:
            embedded, sums = self.teacher.embed_states(texts)
        digest = hashlib.sha256("\0".join(texts.to_pylist()).encode()).hexdigest()
        values = {**sums._asdict(), "sums": sums.sums.astype(np.float32), "rows": len(texts)}
        write_file(self.folder / f"{digest}.npz", lambda file: np.savez(file, **values))
        on_rows(len(texts))
        return embedded

    def token_ids(self, texts: pa.StringArray) -> Ragged:
        """Return the tokens of a string array [n]."""
        return self.teacher.token_ids(texts)


@dataclass(frozen=True)
class PackedSummingTeacher:
    """``SummingTeacher`` in a form for other processes; see ``PackedEncoder``."""

    teacher: PackedEncoder
    folder: Path

    def encoder(self) -> SummingTeacher:
        """Return the teacher on this machine."""
        teacher = self.teacher.encoder()
        assert isinstance(teacher, SentenceTransformerEncoder)
        return SummingTeacher(teacher, self.folder)


def write_states(folder: Path, num_texts: int, width: int, new: Path) -> dict[str, int]:
    """Write the sums of all batches to ``new / states.npz``; return the counts for the manifest.

    The files of ``SummingTeacher`` in ``folder`` are added in the order of their names.

    Raises:
        ValueError: files are missing, so that the batches have fewer than ``num_texts`` texts.
    """
    rows = 0

    def read() -> Iterator[StateSums]:
        nonlocal rows
        for path in sorted(folder.glob("*.npz")):
            with np.load(path, allow_pickle=False) as arrays:
                rows += int(arrays["rows"])
                yield StateSums(arrays["tokens"], arrays["counts"], arrays["sums"])

    total = merged(read(), width)
    if rows != num_texts:
        vectors = folder.with_name(folder.name.removeprefix(".").removesuffix(".partial").replace("states", "vectors"))
        raise ValueError(
            f"{folder} has the token states of {rows:,} texts, not of {num_texts:,}; remove {vectors} and run the same "
            "command again"
        )
    np.savez(new / STATES, **total._asdict())
    return {"tokens": int(total.counts.sum())}


def read_states(folder: Path) -> StateSums:
    """Return the sums of ``write_states``."""
    with np.load(folder / STATES, allow_pickle=False) as arrays:
        return StateSums(**arrays)
