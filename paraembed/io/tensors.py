"""Save, load and check named arrays in safetensors files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

if TYPE_CHECKING:
    from torch import Tensor

Arrays = dict[str, npt.NDArray[Any]]

_TYPES = {"F32", "F64", "I8", "I32", "I64", "BOOL", "U8"}
_MESSAGE = 300  # characters of a name or of an error of safetensors


def save_tensors(tensors: "Mapping[str, npt.NDArray[Any] | Tensor]", path: Path) -> None:
    """Write arrays, or tensors on any device, to a file; raise OSError if it cannot be written (the disk is full)."""
    arrays = {
        name: values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()
        for name, values in tensors.items()
    }
    try:
        save_file({name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from None
    path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors: 0600, whatever the umask


def load_tensors(path: Path) -> "dict[str, Tensor]":
    """Read a file into tensors in CPU memory; the errors are those of ``load_arrays``."""
    import torch  # noqa: PLC0415 - takes 2 s, and an average of words is computed without it

    arrays = load_arrays(path)
    # Copied one by one: an array may begin anywhere, and its alignment decides the last digits of products.
    return {name: torch.from_numpy(arrays.pop(name)).clone() for name in list(arrays)}


def load_arrays(path: Path) -> Arrays:
    """Read a file into arrays of their own memory.

    Raise OSError if the file cannot be read, ValueError if it is not a safetensors file, or contains a value that is
    not finite.
    """
    try:
        with safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118 - a file, not a mapping
                piece = file.get_slice(name)
                if piece.get_dtype() not in _TYPES:
                    raise ValueError(
                        f"{path}: {name[:_MESSAGE]!r} is {piece.get_dtype()} {piece.get_shape()}, a type that "
                        "paraembed does not write; download it or train it again"
                    )
        loaded = load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a safetensors file: {str(error)[:_MESSAGE]}; download it or train it again"
        ) from None
    for name, array in loaded.items():
        if not _is_finite(array):
            row = int(np.flatnonzero(~np.isfinite(array).reshape(len(array) if array.ndim else 1, -1).all(axis=1))[0])
            raise ValueError(f"{path}: {name[:_MESSAGE]!r} has a NaN or infinite value in row {row}; train it again")
    return loaded


def _is_finite(array: npt.NDArray[Any]) -> bool:
    if array.dtype.kind != "f" or not array.size:
        return True
    return bool(np.isfinite([array.min(), array.max()]).all())  # both are NaN where one value is


def check_tensors(
    tensors: "Mapping[str, npt.NDArray[Any] | Tensor]", expected: "Mapping[str, npt.NDArray[Any] | Tensor]", what: str
) -> None:
    """Raise ValueError, beginning with ``what``, unless arrays have the expected names, types and shapes."""
    for name in [*expected, *tensors]:
        tensor, wanted = tensors.get(name), expected.get(name)
        if tensor is None or wanted is None:
            raise ValueError(
                f"{what}: {name[:_MESSAGE]!r} is {'missing' if tensor is None else 'not one of its tensors'}"
            )
        if _described(tensor) != _described(wanted):
            raise ValueError(f"{what}: {name!r} is {_described(tensor)}; expected {_described(wanted)}")


def _described(tensor: "npt.NDArray[Any] | Tensor") -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
