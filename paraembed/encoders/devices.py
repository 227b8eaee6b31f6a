"""Devices on which encoders compute."""

from typing import Literal

from paraembed.settings import Device

ComputeDevice = Literal["cpu", "cuda"]


def chosen_device(device: Device, *, gains: bool) -> ComputeDevice:
    """Return the device for a setting; ``auto`` is a GPU if there is one and it makes the encoder faster."""
    if device == "auto":
        if not gains:
            return "cpu"
        import torch  # noqa: PLC0415 - takes 2 s, and an average of words is computed without it

        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def require_device(device: str, count: int = 1) -> None:
    """Raise ValueError if this machine does not have the device, or not as many GPUs."""
    if device != "cuda":
        return
    import torch  # noqa: PLC0415 - as in ``chosen_device``

    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not available:
        raise ValueError("`device` is cuda, but PyTorch finds no GPU on this machine; use cpu, or check its driver")
    if count > available:
        raise ValueError(f"`gpus` is {count}, but PyTorch finds only {available} on this machine; give fewer")
