"""Errors as text, in which the device's names are the CPU's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# Names of devices, tensor types and backends, which differ between the device's messages and the CPU's.
_NAMES = (
    (r"\S+\.(?:cpp|h):\d+: ", ""),  # the line of PyTorch's source, in errors about symbolic sizes
    (r"\b(?:torch\.)?(?:openreg|cuda)\.(\w+Tensor)\b", r"torch.\1"),
    (r"\b(?:CPU|CUDA|openreg)(\w+)Type\b", r"torch.\1Tensor"),
    (r"\b(openreg|cuda)(:\d+)?\b", "cpu"),
    (r", device='cpu'", ""),  # a printed tensor names its device only if it is an accelerator
    (r"PrivateUse1|OPENREG|CUDA|openreg", "CPU"),
    (r"ScaledDotProduct(FusedAttentionOverrideable|FlashAttentionForCpu)", "ScaledDotProductAttention"),
    (r"_scaled_dot_product_(fused_attention_overrideable|flash_attention_for_cpu)", "_scaled_dot_product_attention"),
    (r"\bj\d+\b", "j"),  # the ragged size of a jagged tensor is numbered
    # What follows lists the dispatch keys that have a kernel.
    (r"(?s)with arguments from the '\w+' backend.*", "with arguments from the backend"),
)


def sentence(error: BaseException) -> str:
    """An exception's type and message, with the device's names replaced by the CPU's."""
    text = str(error).strip()
    for pattern, replacement in _NAMES:
        text = re.sub(pattern, replacement, text)
    return f"{type(error).__name__}: {text}"


def outcome(function: Callable[[], Any]) -> Any:
    """What `function` returns, or the sentence of what it raises."""
    try:
        return function()
    except Exception as error:
        return sentence(error)
