"""Compile loops to machine code with numba when one is called first, since numba takes 0.5 s to import, and a finished
output or a wrong input runs none; see ``paraembed.machine_code``.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import torch

_interprets = ContextVar("interprets", default=False)

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Loop:
    """Function that is compiled when it is called first, here or in the machine code of another one."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._options = options

    @cached_property
    def machine_code(self) -> Any:
        """The dispatcher of numba."""
        from paraembed.machine_code import compile_loop  # noqa: PLC0415 - with numba

        return compile_loop(self.__wrapped__, self._options)  # type: ignore[attr-defined]  # of ``update_wrapper``

    def __reduce__(self) -> str:
        return str(self.__qualname__)  # type: ignore[attr-defined]  # pickled by name, as a function is

    def __call__(self, *arguments: Any) -> Any:
        if _interprets.get() and "numba" not in sys.modules:
            return self.__wrapped__(*arguments)  # type: ignore[attr-defined]
        return self.machine_code(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """Type for numba, where the code of another loop calls this one."""
        return self.machine_code._numba_type_


def compiled(function: _Function, **options: Any) -> _Function:
    """Compile a function with numba, without the GIL; cache the machine code on disk if possible."""
    return cast("_Function", _Loop(function, options))


@contextmanager
def interpreted(is_short: bool) -> Iterator[None]:
    """Run the loops of the block in Python if that is short, and no other loop has needed numba yet."""
    token = _interprets.set(is_short)
    try:
        yield
    finally:
        _interprets.reset(token)


def inlined(function: _Function) -> _Function:
    """Compile a small function like ``compiled``, and inline its code into every caller."""
    return compiled(function, forceinline=True)


def arithmetic(device: "torch.device") -> str:
    """Return a text that names all that decides the last bits of a training result; equal texts mean equal results."""
    import numba  # noqa: PLC0415 - takes 0.5 s
    import torch  # noqa: PLC0415 - readers of text compile loops, too, and need no torch
    from llvmlite.binding import get_host_cpu_name  # noqa: PLC0415 - comes with numba

    processor, settings = get_host_cpu_name(), cast("Any", numba.config)
    if settings.CPU_NAME is not None:  # NUMBA_CPU_NAME; numba still takes the features of the host
        processor = f"{settings.CPU_NAME} on {processor}"
    if settings.CPU_FEATURES is not None:  # NUMBA_CPU_FEATURES
        processor = f"{processor} with features {settings.CPU_FEATURES or 'none'}"
    # torch and its BLAS choose their kernels by these; ATEN_CPU_CAPABILITY may restrict them.
    kernels = torch.backends.cpu.get_cpu_capability()
    gpu = f", GPU {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    return f"torch {torch.__version__}, numba {numba.__version__}, processor {processor} with {kernels}{gpu}"
