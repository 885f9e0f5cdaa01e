"""The face that the device has in a process. The environment of the process chooses it before torch is imported."""

from __future__ import annotations


def face_of(device: str) -> str:
    """The value of TORCH_OPENREG_AS in a process that tests devices of this type."""
    return "cuda" if device == "cuda" else ""
