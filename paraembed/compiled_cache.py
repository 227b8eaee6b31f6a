"""Where machine code is kept: by what it was made from, not by where its source lies.

numba's own places go by the source's path, so that every ``ray job submit``, which runs from a new copy of the working
folder, would compile everything again in every worker: 8 s of a core for the tokeniser alone.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import UserWideCacheLocator


class ByContent(UserWideCacheLocator):
    """A folder in NUMBA_CACHE_DIR, else in the user's cache, for each state of the package's compiled loops."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        settings: Any = numba.config
        folder = Path(settings.CACHE_DIR or Path(self._cache_path).parent)
        self._cache_path = str(folder / f"paraembed-{_digest()}")


@cache
def _digest() -> str:
    """Of all modules that hold compiled loops: one loop's code holds that of those it calls."""
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        if b"paraembed.compiled import" in source:
            digest.update(f"{path.relative_to(folder)}\n".encode() + source)
    return digest.hexdigest()[:24]
