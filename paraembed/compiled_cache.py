"""Where machine code is kept: by what it was made from, not by where its source lies.

numba's own places go by the source's path, so that every ``ray job submit``, which runs from a new copy of the working
folder, would compile everything again in every worker: 8 s of a core for the tokenizer alone.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import UserWideCacheLocator


class ByContent(UserWideCacheLocator):
    """A folder in NUMBA_CACHE_DIR, else in the user's cache, for each state of the package and its compiler."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        settings: Any = numba.config
        folder = Path(settings.CACHE_DIR or Path(self._cache_path).parent)
        self._cache_path = str(folder / f"paraembed-{digest_of(Path(__file__).parent)}")


@cache
def digest_of(folder: Path) -> str:
    """Of a package's modules and of the compiler: a loop's code holds that of functions in any of them."""
    digest = hashlib.sha256(f"numba {numba.__version__}, llvmlite {llvmlite.__version__}\n".encode())
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(source)}\n".encode() + source)
    return digest.hexdigest()[:24]
