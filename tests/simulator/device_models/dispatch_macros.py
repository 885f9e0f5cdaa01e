"""Which dtypes CUDA's kernels take, read by hand from the dispatch macros of their sources: independent of OpInfo.

``call`` calls the operator with a tensor of ones of the dtype. ``accepts`` and ``refuses`` have
only dtypes that the CPU accepts: a device without a model would refuse the others too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

FOLDER = "aten/src/ATen/native/cuda"
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
FLOATS = ("float32", "float64")
HALVES = ("float16", "bfloat16")
COMPLEX = ("complex64", "complex128")


class Macro(NamedTuple):
    file: str
    kernel: str
    accepts: tuple[str, ...]
    refuses: tuple[str, ...]
    call: Callable[[torch.Tensor], Any]


F = torch.nn.functional
MACROS = (
    # AT_DISPATCH_INTEGRAL_TYPES
    Macro("GcdLcmKernel.cu", "gcd_cuda", INTEGERS, (), lambda x: torch.gcd(x, x)),
    Macro("GcdLcmKernel.cu", "lcm_cuda", INTEGERS, (), lambda x: torch.lcm(x, x)),
    # AT_DISPATCH_INTEGRAL_TYPES_AND(kBool)
    Macro(
        "BinaryBitwiseOpsKernels.cu",
        "bitwise_and_cuda",
        (*INTEGERS, "bool"),
        (),
        lambda x: x & x,
    ),
    Macro(
        "BinaryBitwiseOpsKernels.cu",
        "bitwise_or_cuda",
        (*INTEGERS, "bool"),
        (),
        lambda x: x | x,
    ),
    Macro(
        "BinaryBitwiseOpsKernels.cu",
        "bitwise_xor_cuda",
        (*INTEGERS, "bool"),
        (),
        lambda x: x ^ x,
    ),
    # AT_DISPATCH_FLOATING_TYPES_AND2(Half, BFloat16)
    Macro("ActivationHardswishKernel.cu", "hardswish_cuda", (*FLOATS, *HALVES), (), F.hardswish),
    Macro("ActivationGeluKernel.cu", "GeluCUDAKernelImpl", (*FLOATS, *HALVES), (), F.gelu),
    Macro("ActivationEluKernel.cu", "elu_cuda", (*FLOATS, *HALVES), (), F.elu),
    Macro("ActivationSiluKernel.cu", "silu_cuda", (*FLOATS, *HALVES), (), F.silu),
    Macro(
        "DilatedMaxPool2d.cu",
        "max_pool2d_with_indices_out_cuda_frame",
        (*FLOATS, *HALVES),
        INTEGERS,
        lambda x: F.max_pool2d(image(x), 2),
    ),
    Macro(
        "DilatedMaxPool3d.cu",
        "max_pool3d_with_indices_out_frame",
        (*FLOATS, *HALVES),
        INTEGERS,
        lambda x: F.max_pool3d(image(x)[None], 1),
    ),
    Macro(
        "AveragePool2d.cu",
        "avg_pool2d_out_cuda_frame",
        (*FLOATS, *HALVES),
        ("int64",),
        lambda x: F.avg_pool2d(image(x), 2),
    ),
    # AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES_AND2(Half, BFloat16)
    Macro("Blas.cpp", "addmm_cuda", (*FLOATS, *HALVES, *COMPLEX), INTEGERS, lambda x: matrix(x) @ matrix(x)),
    Macro(
        "Blas.cpp",
        "baddbmm_cuda",
        (*FLOATS, *HALVES, *COMPLEX),
        INTEGERS,
        lambda x: torch.bmm(matrix(x)[None], matrix(x)[None]),
    ),
    Macro(
        "Blas.cpp",
        "addmv_impl_cuda",
        (*FLOATS, *HALVES, *COMPLEX),
        INTEGERS,
        lambda x: torch.mv(matrix(x), matrix(x)[0]),
    ),
    Macro("Blas.cpp", "dot", (*FLOATS, *HALVES, *COMPLEX), INTEGERS, lambda x: torch.dot(x, x)),
    Macro("Blas.cpp", "dot", (*FLOATS, *HALVES, *COMPLEX), INTEGERS, lambda x: torch.vdot(x, x)),
    Macro(
        "Blas.cpp",
        "addmm_cuda",
        (*FLOATS, *HALVES, *COMPLEX),
        INTEGERS,
        lambda x: torch.addmm(matrix(x), matrix(x), matrix(x)),
    ),
    Macro(
        "Blas.cpp",
        "baddbmm_cuda",
        (*FLOATS, *HALVES, *COMPLEX),
        INTEGERS,
        lambda x: torch.baddbmm(matrix(x)[None], matrix(x)[None], matrix(x)[None]),
    ),
    Macro(
        "Blas.cpp",
        "addmv_impl_cuda",
        (*FLOATS, *HALVES, *COMPLEX),
        INTEGERS,
        lambda x: torch.addmv(matrix(x)[0], matrix(x), matrix(x)[0]),
    ),
    # AT_DISPATCH_FLOATING_TYPES_AND2(Half, BFloat16)
    Macro(
        "AveragePool3d.cu",
        "avg_pool3d_out_cuda",
        FLOATS,
        ("int64",),
        lambda x: F.avg_pool3d(image(x)[None], 1),
    ),
    Macro(
        "UpSampleBilinear2d.cu",
        "upsample_bilinear2d_out_frame",
        (*FLOATS, *HALVES),
        ("uint8",),
        lambda x: F.interpolate(image(x), (4, 4), mode="bilinear"),
    ),
    Macro(
        "UpSampleBicubic2d.cu",
        "upsample_bicubic2d_out_frame",
        (*FLOATS, *HALVES),
        ("uint8",),
        lambda x: F.interpolate(image(x), (4, 4), mode="bicubic"),
    ),
    Macro(
        "UpSampleBilinear2d.cu",
        "upsample_bilinear2d_out_frame",
        FLOATS,
        ("uint8",),
        lambda x: F.interpolate(image(x), (4, 4), mode="bilinear", antialias=True),
    ),
    Macro(
        "UpSampleBilinear2d.cu",
        "upsample_bilinear2d_out_frame",
        FLOATS,
        ("uint8",),
        lambda x: F.interpolate(image(x), (4, 4), mode="bicubic", antialias=True),
    ),
    Macro(
        "Dropout.cu",
        "masked_scale",
        (*FLOATS, *HALVES),
        (*INTEGERS, "bool"),
        lambda x: torch.ops.aten.native_dropout_backward(x, x.bool(), 2.0),
    ),
    # AT_DISPATCH_ALL_TYPES_AND3(Half, Bool, BFloat16)
    Macro(
        "StepKernel.cu",
        "heaviside_cuda",
        (*INTEGERS, *FLOATS, *HALVES, "bool"),
        (),
        lambda x: torch.heaviside(x, x),
    ),
    # AT_DISPATCH_INTEGRAL_TYPES, and AT_DISPATCH_FLOATING_TYPES_AND2(Half, BFloat16)
    Macro(
        "BinaryRemainderKernel.cu",
        "remainder_cuda",
        (*INTEGERS, *FLOATS, *HALVES),
        (),
        lambda x: torch.remainder(x, x),
    ),
    # AT_DISPATCH_FLOATING_TYPES, after branches of their own for Half and BFloat16
    Macro("CopysignKernel.cu", "copysign_cuda", (*FLOATS, *HALVES), (), lambda x: torch.copysign(x, x)),
    # AT_DISPATCH_FLOATING_TYPES
    Macro("IGammaKernel.cu", "igamma_cuda", FLOATS, HALVES, lambda x: torch.igamma(x, x)),
    Macro("IGammaKernel.cu", "igammac_cuda", FLOATS, HALVES, lambda x: torch.igammac(x, x)),
    Macro("UnaryComplexKernels.cu", "angle_cuda", (*FLOATS, *COMPLEX), HALVES, torch.angle),
)


def matrix(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(2, 2)


def image(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(1, 1, 2, 2)


def rows(kind: str) -> Iterator[tuple[Macro, str]]:
    """Every (macro, dtype) that CUDA ``"accepts"`` or ``"refuses"``."""
    for macro in MACROS:
        for dtype in getattr(macro, kind):
            yield macro, dtype
