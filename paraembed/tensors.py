"""Named tensors ↔ safetensors file."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors from any device.

    Raises:
        OSError: they could not be written, for want of space perhaps.
    """
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from None
    path.chmod(path.parent.stat().st_mode & 0o666)  # safetensors: 0600, whatever the umask


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors to the CPU.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no safetensors file.
    """
    try:
        loaded = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
    # Copied one by one: in the file a tensor may begin anywhere, and the last digits of products depend on where.
    return {name: loaded.pop(name).clone() for name in list(loaded)}
