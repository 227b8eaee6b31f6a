"""Machine code of loops, by numba, found on disk by the content of its source; imported with the first call of one.

numba's own cache depends on the path of the source. ``ray job submit`` runs from a new copy of the working folder each
time, so every worker would compile everything again: 8 s of a core for the tokenizer alone.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any

import llvmlite
import numba
from numba.core.caching import UserWideCacheLocator

# Where numba keeps the code: the folder of paraembed, else its own.
_CONFIGURING = RLock()
_PLACES = "paraembed.machine_code.ByContent,UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator"


class ByContent(UserWideCacheLocator):
    """Cache folder for one state of package and compiler, in NUMBA_CACHE_DIR or else the user's cache folder."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)  # type: ignore[no-untyped-call]
        settings: Any = numba.config
        folder = Path(settings.CACHE_DIR or Path(self._cache_path).parent)
        self._cache_path = str(folder / f"paraembed-{digest_of(Path(__file__).parent)}")


@cache
def digest_of(folder: Path) -> str:
    """Return a digest of a package's modules and the compiler, since compiled code includes functions of any module."""
    digest = hashlib.sha256(f"numba {numba.__version__}, llvmlite {llvmlite.__version__}\n".encode())
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(source)}\n".encode() + source)
    return digest.hexdigest()[:24]


def compile_loop(function: Callable[..., Any], more: dict[str, Any]) -> Any:
    """Return numba's dispatcher of a function, see ``compiled``; ``more`` are further options of numba."""
    # Sums may be made in vector registers (else a scalar product takes four times as long); NaN and infinity stay.
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": {"contract", "reassoc", "nsz"},
        **more,
    }
    settings: Any = numba.config
    with _CONFIGURING:  # a setting of the process, while several threads may call loops first
        before = getattr(settings, "CACHE_LOCATOR_CLASSES", "")
        settings.CACHE_LOCATOR_CLASSES = before or _PLACES
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's cache folder can be written
            return numba.njit(**options)(function)
        finally:
            settings.CACHE_LOCATOR_CLASSES = before
