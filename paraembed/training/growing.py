"""Arrays that grow block by block, in memory or, past a limit, in files."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class MemoryLimit:
    """What data may take of the memory of one worker.

    Attributes:
        max_bytes: with more, the data are kept in files.
        folder: where these files are made. They have no name there, so that none outlives its process, however that
            ends.
    """

    max_bytes: int
    folder: Path


class GrowingArray:
    """An array [n] to which blocks are appended; at no time is there a second copy of it."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.array: npt.NDArray[Any] = np.empty(0, dtype)
        self.file: IO[bytes] | None = None
        self._folder = ""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.array.nbytes

    def append(self, block: npt.NDArray[Any]) -> None:
        """Add a block at the end.

        Raises:
            OSError: the disk is full.
        """
        if self.file is not None:
            self._write(self.file, block)
            return
        start = len(self.array)
        self.array.resize(start + len(block), refcheck=False)  # realloc moves pages of large arrays, it copies none
        self.array[start:] = block

    def to_file(self, folder: Path) -> None:
        """From here on keep the array in a file.

        Raises:
            OSError: the folder cannot be written to, or the disk is full.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by ``close``
        self._folder = str(folder)
        whole, self.array = self.array, np.empty(0, self.array.dtype)
        self._write(self.file, whole)

    def finished(self) -> npt.NDArray[Any]:
        """The array; from a file it is mapped, read-only, and outlives ``close``."""
        if self.file is None or not self.file.tell():
            return self.array
        return np.asarray(np.memmap(self.file, self.array.dtype, "r"))

    def _write(self, file: IO[bytes], block: npt.NDArray[Any]) -> None:
        try:
            file.write(np.ascontiguousarray(block, self.array.dtype).data)
            file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._folder) from None

    def close(self) -> None:
        """Let go of the file, if there is one."""
        if self.file is not None:
            self.file.close()
