"""Compile loops to machine code with numba, if it is installed, and find the code on disk by the content of its source.

numba's own cache depends on the path of the source. ``ray job submit`` runs from a new copy of the working folder each
time, so every worker would compile everything again: 8 s of a core for the tokenizer alone.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import torch

try:
    import llvmlite
    import numba
    from numba.core.caching import UserWideCacheLocator
except ImportError:  # a bare machine: torch, numpy and pyarrow alone
    numba = None  # type: ignore[assignment]
    UserWideCacheLocator = object  # type: ignore[assignment,misc]

COMPILED = numba is not None
"""Whether ``compiled`` compiles; plain Python runs these loops a hundred times slower."""

# Where numba keeps the code: the folder of paraembed, else its own.
_PLACES = "paraembed.compiled.ByContent,UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator"

_Function = TypeVar("_Function", bound=Callable[..., Any])


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


def compiled(function: _Function, **more: Any) -> _Function:
    """Compile a function with numba, without the GIL; cache the machine code on disk if possible."""
    if numba is None:
        return function
    # Sums may be made in vector registers (else a scalar product takes four times as long); NaN and infinity stay.
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": {"contract", "reassoc", "nsz"},
        **more,
    }
    settings: Any = numba.config
    before = getattr(settings, "CACHE_LOCATOR_CLASSES", "")
    settings.CACHE_LOCATOR_CLASSES = before or _PLACES
    try:
        machine_code: _Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache folder can be written
        machine_code = numba.njit(**options)(function)
    finally:
        settings.CACHE_LOCATOR_CLASSES = before
    return machine_code


def inlined(function: _Function) -> _Function:
    """Compile a small function like ``compiled``, and inline its code into every caller."""
    return compiled(function, forceinline=True)


def arithmetic(device: "torch.device") -> str:
    """Return a text that names all that decides the last bits of a training result; equal texts mean equal results."""
    import torch  # noqa: PLC0415 - readers of text compile loops, too, and need no torch

    processor = "any"
    if numba is not None:
        from llvmlite.binding import get_host_cpu_name  # noqa: PLC0415 - comes with numba

        processor, settings = get_host_cpu_name(), cast("Any", numba.config)
        if settings.CPU_NAME is not None:  # NUMBA_CPU_NAME; numba still takes the features of the host
            processor = f"{settings.CPU_NAME} on {processor}"
        if settings.CPU_FEATURES is not None:  # NUMBA_CPU_FEATURES
            processor = f"{processor} with features {settings.CPU_FEATURES or 'none'}"
    loops = numba.__version__ if numba else "not installed"
    # torch and its BLAS choose their kernels by these; ATEN_CPU_CAPABILITY may restrict them.
    kernels = torch.backends.cpu.get_cpu_capability()
    gpu = f", GPU {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    return f"torch {torch.__version__}, numba {loops}, processor {processor} with {kernels}{gpu}"
