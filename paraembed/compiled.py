"""Compile loops to machine code with numba, if it is installed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import torch

try:
    import numba
except ImportError:  # a bare machine: torch, numpy and pyarrow alone
    numba = None  # type: ignore[assignment]

COMPILED = numba is not None
"""Whether ``compiled`` compiles; plain Python runs these loops a hundred times slower."""

# Where numba keeps the code: the folder of paraembed, else its own.
_PLACES = "paraembed.compiled_cache.ByContent,UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator"

_Function = TypeVar("_Function", bound=Callable[..., Any])


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
