"""Devices on which encoders compute."""

from typing import Literal

import torch

from paraembed.settings import Device

ComputeDevice = Literal["cpu", "cuda"]


def chosen_device(device: Device, *, gains: bool) -> ComputeDevice:
    """Return the device for a setting; ``auto`` is a GPU if there is one and it makes the encoder faster."""
    if device == "auto":
        return "cuda" if gains and torch.cuda.is_available() else "cpu"
    return device


def require_device(device: str) -> None:
    """Raise ValueError if this machine does not have the device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("`device` is cuda, but PyTorch finds no GPU on this machine; use cpu, or check its driver")
