"""Save, load and check named tensors in safetensors files."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

_TYPES = {torch.float32, torch.float64, torch.int8, torch.int32, torch.int64, torch.bool, torch.uint8}
_MESSAGE = 300  # characters of a name or of an error of safetensors


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors, on any device, to a file; raise OSError if it cannot be written (the disk is full)."""
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from None
    path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors: 0600, whatever the umask


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors into CPU memory.

    Raise OSError if the file cannot be read, ValueError if it is not a safetensors file, or contains a value that is
    not finite.
    """
    try:
        loaded = load_file(path)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:  # KeyError: a type that torch does not have
        raise ValueError(
            f"{path} is not a safetensors file: {str(error)[:_MESSAGE]}; download it or train it again"
        ) from None
    # Copied one by one: in the file a tensor may begin anywhere, and its alignment decides the last digits of products.
    tensors = {name: loaded.pop(name).clone() for name in list(loaded)}
    for name, tensor in tensors.items():
        if tensor.dtype not in _TYPES:
            raise ValueError(
                f"{path}: {name[:_MESSAGE]!r} is {_described(tensor)}, a type that paraembed does not write; "
                "download it or train it again"
            )
        if not _is_finite(tensor):
            rows = (~tensor.isfinite()).reshape(len(tensor) if tensor.ndim else 1, -1).any(dim=1)
            row = int(rows.nonzero()[0])
            raise ValueError(f"{path}: {name[:_MESSAGE]!r} has a NaN or infinite value in row {row}; train it again")
    return tensors


def _is_finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    return bool(torch.stack(tensor.aminmax()).isfinite().all())  # both are NaN where one value is


def check_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str) -> None:
    """Raise ValueError, beginning with ``what``, unless tensors have the expected names, types and shapes."""
    for name in [*expected, *tensors]:
        tensor, wanted = tensors.get(name), expected.get(name)
        if tensor is None or wanted is None:
            raise ValueError(
                f"{what}: {name[:_MESSAGE]!r} is {'missing' if tensor is None else 'not one of its tensors'}"
            )
        if (tensor.dtype, tensor.shape) != (wanted.dtype, wanted.shape):
            raise ValueError(f"{what}: {name!r} is {_described(tensor)}; expected {_described(wanted)}")


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
