"""Which face the device shows in a process: chosen in its environment, before torch is imported."""

from __future__ import annotations


def environment_of(device: str) -> dict[str, str]:
    """The variables of a process that tests devices of this type, and of its child processes."""
    return {"TEST_DEVICE": device, "TORCH_OPENREG_AS": "cuda" if device == "cuda" else ""}
