"""The cells (an operator of OpInfo, a dtype) that only CUDA has, and that the device computes: most in a wider dtype."""

from __future__ import annotations

import torch

half, bfloat16, chalf = torch.float16, torch.bfloat16, torch.complex32

CELLS = [
    *(
        (name, dtype)
        for name in (
            "nn.functional.avg_pool3d",
            "_upsample_bilinear2d_aa",
            "nn.functional.multi_margin_loss",
            "nn.functional.multilabel_margin_loss",
        )
        for dtype in (half, bfloat16)
    ),
    *((name, half) for name in ("nn.functional.rrelu", "round.decimals_3", "round.decimals_neg_3")),
    *((f"polygamma.polygamma_n_{n}", half) for n in range(1, 5)),
    *(("trace", dtype) for dtype in (torch.bool, chalf)),
    *((name, torch.bool) for name in ("abs", "nn.functional.softsign")),
    *(
        (name, chalf)
        for name in (
            "acos",
            "acosh",
            "angle",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "div.no_rounding_mode",
            "exp",
            "lerp",
            "log",
            "logaddexp",
            "pow",
            "prod",
            "rsqrt",
            "sigmoid",
            "sin",
            "sinh",
            "sqrt",
            "sum",
            "tan",
            "tanh",
            "true_divide",
        )
    ),
]

# torch.fft refuses these dtypes on every device whose type is not cuda, so they are computed under the name cuda only.
TRANSFORMS = [
    *((f"fft.{name}", half) for name in ("rfft", "rfft2", "rfftn", "ihfft", "ihfft2", "ihfftn")),
    *(
        (f"fft.{name}{dims}", dtype)
        for name in ("fft", "ifft", "hfft", "irfft")
        for dims in ("", "2", "n")
        for dtype in (half, chalf)
    ),
]


# PyTorch's tables have these cells for CUDA only, and the CPU's kernels compute them too.
ON_THE_CPU_TOO = [
    *((name, chalf) for name in ("diag", "norm.fro")),
    *((f"nn.functional.conv{kind}{n}d", chalf) for kind in ("", "_transpose") for n in (1, 2, 3)),
    *(("nn.functional.batch_norm.without_cudnn", dtype) for dtype in (half, bfloat16, torch.float32, torch.float64)),
]

# Computed by kernels of their own; attention under the name cuda only.
OTHERS = [
    *(("histc", dtype) for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)),
    *(("torch.ops.aten._flash_attention_forward", dtype) for dtype in (half, bfloat16)),
    *(("torch.ops.aten._efficient_attention_forward", dtype) for dtype in (half, bfloat16, torch.float32)),
    *((name, dtype) for name in ("nansum", "nanmean") for dtype in (chalf, torch.complex64, torch.complex128)),
]


def computed() -> dict[str, set[str]]:
    """The name of each operator in the tables of PyTorch -> the names of the dtypes."""
    found: dict[str, set[str]] = {}
    for name, dtype in CELLS + ON_THE_CPU_TOO + TRANSFORMS + OTHERS:
        found.setdefault(name.replace(".", "_"), set()).add(str(dtype).removeprefix("torch."))
    return found
