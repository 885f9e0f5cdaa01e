"""``python -m tests.simulator.device_models``: writes what CUDA and MPS lack, from PyTorch's own tables.

The files ``_cuda.json`` and ``_mps.json`` in torch_openreg/simulator/models list the operators that have a kernel for the CPU and
none for that backend. These come from native_functions.yaml. ``_cuda.json`` also lists the dtypes that CUDA's kernels
lack. These come from the table KERNELS below. OpInfo says which cells of (operator, dtype) the CPU has and CUDA has
not: tests/simulator/test_device_models.py checks that each of them is refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torchgen.gen import get_grouped_native_functions, parse_native_yaml
from torchgen.model import DispatchKey, NativeFunctionsGroup

ROOT = Path(__file__).parents[3]
MODELS = ROOT / "torch_openreg" / "simulator" / "models"
YAML = "aten/src/ATen/native/native_functions.yaml"
CUDA = "aten/src/ATen/native/cuda"

INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
HALVES = ["float16", "bfloat16"]
COMPLEX = ["complex32", "complex64", "complex128"]

# A row has: operators; the argument whose dtype counts; dtypes that CUDA's kernel lacks, and that the CPU's kernel has;
# the name of CUDA's kernel in the error message; its source file. "message: ..." in place of the name is a whole error
# message, for a kernel that has one of its own.
KERNELS: tuple[tuple[str, str, list[str], str, str], ...] = (
    ("mm mm.out", "self", INTEGERS, "addmm_cuda", f"{CUDA}/Blas.cpp"),
    (
        "addmm addmm_ addmm.out _addmm_activation _addmm_activation.out",
        "mat1",
        INTEGERS,
        "addmm_cuda",
        f"{CUDA}/Blas.cpp",
    ),
    ("bmm bmm.out", "self", INTEGERS, "baddbmm_cuda", f"{CUDA}/Blas.cpp"),
    ("baddbmm baddbmm_ baddbmm.out", "batch1", INTEGERS, "baddbmm_cuda", f"{CUDA}/Blas.cpp"),
    ("addbmm addbmm_ addbmm.out", "batch1", INTEGERS, "addmm_cuda", f"{CUDA}/Blas.cpp"),
    ("addmv addmv_ addmv.out", "mat", INTEGERS, "addmv_impl_cuda", f"{CUDA}/Blas.cpp"),
    ("mv mv.out", "self", INTEGERS, "addmv_impl_cuda", f"{CUDA}/Blas.cpp"),
    ("_trilinear", "i1", INTEGERS, "baddbmm_cuda", f"{CUDA}/Blas.cpp"),
    ("dot vdot", "self", INTEGERS, "dot", f"{CUDA}/Blas.cpp"),
    ("avg_pool2d avg_pool2d.out", "self", ["int64"], "avg_pool2d_out_cuda_frame", f"{CUDA}/AveragePool2d.cu"),
    ("avg_pool3d avg_pool3d.out", "self", ["int64"], "avg_pool3d_out_cuda", f"{CUDA}/AveragePool3d.cu"),
    (
        "max_pool2d_with_indices max_pool2d_with_indices.out",
        "self",
        INTEGERS,
        "max_pool2d_with_indices_out_cuda_frame",
        f"{CUDA}/DilatedMaxPool2d.cu",
    ),
    (
        "max_pool3d_with_indices max_pool3d_with_indices.out",
        "self",
        INTEGERS,
        "max_pool3d_with_indices_out_frame",
        f"{CUDA}/DilatedMaxPool3d.cu",
    ),
    (
        "upsample_bilinear2d upsample_bilinear2d.out",
        "self",
        ["uint8"],
        "upsample_bilinear2d_out_frame",
        f"{CUDA}/UpSampleBilinear2d.cu",
    ),
    (
        "upsample_bicubic2d upsample_bicubic2d.out",
        "self",
        ["uint8"],
        "upsample_bicubic2d_out_frame",
        f"{CUDA}/UpSampleBicubic2d.cu",
    ),
    (
        "_upsample_bilinear2d_aa _upsample_bilinear2d_aa.out _upsample_bicubic2d_aa _upsample_bicubic2d_aa.out",
        "self",
        ["uint8"],
        "upsample_bilinear2d_out_frame",
        f"{CUDA}/UpSampleBilinear2d.cu",
    ),
    (
        "convolution_overrideable",
        "input",
        ["int64"],
        "message: getCudnnDataTypeFromScalarType() not supported for {dtype}",
        "aten/src/ATen/cudnn/Types.cpp",
    ),
    ("igamma igamma_ igamma.out", "self", ["float16", "bfloat16"], "igamma_cuda", f"{CUDA}/IGammaKernel.cu"),
    ("igammac igammac_ igammac.out", "self", ["float16", "bfloat16"], "igammac_cuda", f"{CUDA}/IGammaKernel.cu"),
    ("angle angle.out", "self", ["float16", "bfloat16"], "angle_cuda", f"{CUDA}/UnaryComplexKernels.cu"),
    ("histc histc.out", "self", ["bfloat16"], "histc", f"{CUDA}/SummaryOps.cu"),
    ("histc histc.out", "self", ["float16"], "message: HalfTensor is not supported", f"{CUDA}/SummaryOps.cu"),
    ("native_dropout_backward", "grad_output", [*INTEGERS, "bool"], "masked_scale", f"{CUDA}/Dropout.cu"),
    (
        "scatter_reduce.two scatter_reduce_.two scatter_reduce.two_out",
        "self",
        ["bool"],
        "cuda_scatter_gather_base_kernel_func",
        f"{CUDA}/ScatterGatherKernel.cu",
    ),
)

# As KERNELS, for dtypes that the CPU's kernel lacks too: the error message then names CUDA's kernel, and not the CPU's.
# A real H100 said these names, for these operators or for others of the same source file. An operator belongs here only
# if CUDA has one kernel for all sizes of its arguments. Operators that a program calls very often, such as add and sum,
# are left out, because the check makes each call of an operator slower.
BOTH_LACK: tuple[tuple[str, str, list[str], str, str], ...] = (
    ("mm mm.out", "self", ["bool", "float8_e4m3fn", "float8_e5m2"], "addmm_cuda", f"{CUDA}/Blas.cpp"),
    ("addmm addmm_ addmm.out", "mat1", ["bool", "float8_e4m3fn", "float8_e5m2"], "addmm_cuda", f"{CUDA}/Blas.cpp"),
    ("bmm bmm.out", "self", ["bool", "float8_e4m3fn", "float8_e5m2"], "baddbmm_cuda", f"{CUDA}/Blas.cpp"),
    *(
        (f"{name} {name}.out", "self", [*INTEGERS, "bool", *COMPLEX], "host_softmax", f"{CUDA}/SoftMax.cu")
        for name in ("_softmax", "_log_softmax")
    ),
    ("gelu gelu_ gelu.out", "self", [*INTEGERS, "bool"], "GeluCUDAKernelImpl", f"{CUDA}/ActivationGeluKernel.cu"),
    ("silu silu_ silu.out", "self", [*INTEGERS, "bool"], "silu_cuda", f"{CUDA}/ActivationSiluKernel.cu"),
    (
        "leaky_relu leaky_relu_ leaky_relu.out",
        "self",
        [*INTEGERS, "bool"],
        "leaky_relu_cuda",
        f"{CUDA}/ActivationLeakyReluKernel.cu",
    ),
    ("mse_loss mse_loss.out", "self", INTEGERS, "mse_cuda", f"{CUDA}/BinaryMiscOpsKernels.cu"),
    ("huber_loss huber_loss.out", "self", INTEGERS, "huber_cuda", f"{CUDA}/BinaryMiscOpsKernels.cu"),
    (
        "upsample_nearest2d upsample_nearest2d.out",
        "self",
        ["int8", "int16", "int32", "int64", "bool"],
        "upsample_nearest2d_out_frame",
        f"{CUDA}/UpSampleNearest2d.cu",
    ),
    ("grid_sampler_2d", "input", [*INTEGERS, "bool"], "grid_sampler_2d_cuda", f"{CUDA}/GridSampler.cu"),
    ("reflection_pad1d reflection_pad1d.out", "self", ["bool"], "reflection_pad1d_out", f"{CUDA}/ReflectionPad.cu"),
    ("max max.unary_out", "self", COMPLEX, "max_all_cuda", f"{CUDA}/ReduceMaxValuesKernel.cu"),
    ("kthvalue.values", "self", ["bool", *COMPLEX], "kthvalue_cuda", f"{CUDA}/Sorting.cpp"),
    ("cummax cummax.out", "self", COMPLEX, "cummax_cuda", f"{CUDA}/ScanKernels.cu"),
    (
        "_logcumsumexp _logcumsumexp.out",
        "self",
        [*INTEGERS, "bool"],
        "logcumsumexp_cuda",
        f"{CUDA}/LogcumsumexpKernel.cu",
    ),
    ("bincount", "self", FLOATS, "bincount_cuda", f"{CUDA}/SummaryOps.cu"),
    *(
        (f"{name}.Tensor {name}_.Tensor {name}.Tensor_out", argument, dtypes, f"{kernel}_cuda", f"{CUDA}/{file}")
        for names, dtypes, file in (
            ("bitwise_and bitwise_or bitwise_xor", [*FLOATS, *COMPLEX], "BinaryBitwiseOpsKernels.cu"),
            ("bitwise_left_shift bitwise_right_shift", FLOATS, "BinaryShiftOpsKernels.cu"),
            ("remainder fmod", COMPLEX, "BinaryRemainderKernel.cu"),
        )
        for name in names.split()
        for argument in ("self", "other")
        for kernel in (name.replace("bitwise_left_", "l").replace("bitwise_right_", "r"),)
    ),
    *(
        (f"__{name}__.Scalar __{name}__.Tensor", "self", FLOATS, f"{name}_cuda", f"{CUDA}/BinaryShiftOpsKernels.cu")
        for name in ("lshift", "rshift")
    ),
    *(
        (f"{name} {name}_ {name}.out", argument, FLOATS, f"{name}_cuda", f"{CUDA}/GcdLcmKernel.cu")
        for name in ("gcd", "lcm")
        for argument in ("self", "other")
    ),
    *(
        (f"{name}.Scalar {name}.Tensor", "self", COMPLEX, "compare_cuda", f"{CUDA}/CompareKernels.cu")
        for name in ("lt", "le", "gt", "ge")
    ),
    ("lgamma lgamma_ lgamma.out", "self", COMPLEX, "lgamma_cuda", f"{CUDA}/UnaryGammaKernels.cu"),
    ("erf erf_ erf.out", "self", COMPLEX, "erf_cuda", f"{CUDA}/UnarySpecialOpsKernel.cu"),
    ("polar.out", "abs", HALVES, "polar_cuda", f"{CUDA}/ComplexKernel.cu"),
    ("normal_", "self", [*INTEGERS, "bool"], "normal_kernel_cuda", f"{CUDA}/DistributionNormal.cu"),
    (
        "bernoulli_.Tensor",
        "p",
        [*INTEGERS, "bool"],
        "message: expected probabilities tensor to have floating type, got {dtype}",
        f"{CUDA}/DistributionBernoulli.cu",
    ),
    ("arange.start_out randperm.generator_out", "out", ["bool"], "arange_cuda", f"{CUDA}/RangeFactories.cu"),
    ("linspace.out", "out", ["bool"], "linspace_cuda", f"{CUDA}/RangeFactories.cu"),
    (
        "linalg_cholesky_ex linalg_cholesky_ex.L",
        "self",
        HALVES,
        "cholesky_cusolver",
        f"{CUDA}/linalg/BatchLinearAlgebraLib.cpp",
    ),
    (
        "_linalg_eigh _linalg_eigh.eigenvalues",
        "A",
        HALVES,
        "linalg_eigh_cuda",
        f"{CUDA}/linalg/BatchLinearAlgebraLib.cpp",
    ),
    ("linalg_qr linalg_qr.out", "A", HALVES, "geqrf_cuda", f"{CUDA}/linalg/BatchLinearAlgebraLib.cpp"),
    (
        "index_select index_select.out",
        "index",
        ["uint8", "int8", "int16", "bool", *FLOATS],
        "index_select_out_cuda_impl",
        f"{CUDA}/Indexing.cu",
    ),
    (
        "masked_fill_.Scalar masked_fill_.Tensor",
        "mask",
        [*INTEGERS, *FLOATS],
        "message: masked_fill only supports boolean masks, but got dtype {dtype}",
        f"{CUDA}/Indexing.cu",
    ),
)

# Names of the dtypes in messages: dtype -> in c10::toString, in C++.
TYPES = {
    "float16": ("Half", "c10::Half"),
    "bfloat16": ("BFloat16", "c10::BFloat16"),
    "float32": ("Float", "float"),
    "float64": ("Double", "double"),
}
Condition = dict[str, str | list[str]]
# As KERNELS, with a condition as the last item: another argument has one of these values.
CONDITIONAL: tuple[tuple[str, str, list[str], str, str, Condition], ...] = (
    *(
        (
            "mm mm.out",
            "mat2",
            [other],
            f"message: expected mat1 and mat2 to have the same dtype, but got: {TYPES[dtype][1]} != {TYPES[other][1]}",
            f"{CUDA}/Blas.cpp",
            {"argument": "self", "values": [dtype]},
        )
        for dtype in TYPES
        for other in TYPES
        if other != dtype
    ),
    *(
        (
            "native_layer_norm",
            argument,
            [other for other in TYPES if other != dtype],
            f"message: expected scalar type {TYPES[dtype][0]} but found {{dtype}}",
            f"{CUDA}/layer_norm_kernel.cu",
            {"argument": "input", "values": [dtype]},
        )
        for argument in ("weight", "bias")
        for dtype in TYPES
    ),
    (
        "linalg_lstsq",
        "self",
        ["float32", "float64", "complex64", "complex128"],
        "message: torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA",
        "aten/src/ATen/native/BatchLinearAlgebra.cpp",
        {"argument": "driver", "values": ["gelsy", "gelsd", "gelss"]},
    ),
)
# Kernel of KERNELS or BOTH_LACK -> the condition of its restrictions.
WHEN: dict[str, Condition] = {
    "cuda_scatter_gather_base_kernel_func": {"argument": "reduce", "values": ["prod", "mean", "amax", "amin"]},
    "mse_cuda": {"argument": "target", "values": INTEGERS},
    "huber_cuda": {"argument": "target", "values": INTEGERS},
}

# PyTorch's c10::DispatchKey error (aten/src/ATen/core/dispatch/OperatorEntry.cpp, reportError).
NO_KERNEL = (
    "Could not run '{operator}' with arguments from the 'CUDA' backend. This could be because the operator doesn't "
    "exist "
    "for this backend, or was omitted during the selective/custom build process (if using custom build). If you are a "
    "Facebook employee using PyTorch on mobile, please visit https://fburl.com/ptmfixes for possible resolutions."
)
# aten/src/ATen/mps/MPSFallback.mm
NOT_ON_MPS = (
    "The operator '{operator}' is not currently implemented for the MPS device. If you want this op to be "
    "considered for "
    "addition please comment on https://github.com/pytorch/pytorch/issues/141287 and mention use-case, that "
    "resulted in "
    "missing op as well as commit hash `{commit}`. As a temporary fix, you can set the environment variable "
    "`PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for this op. WARNING: this will be slower than "
    "running "
    "natively on MPS."
)

# Patterns of the names of operators that have no kernel for the backend in native_functions.yaml, but that no program
# misses: the backend reaches the same result by another operator, has the kernel under another key (quantized), or only
# PyTorch's tests call the operator.
NOBODY_CALLS = (
    "_add_relu*",  # only of PyTorch's quantized CPU kernels
    "_foobar",
    "_test_*",
    "_make_dep_token",
    "_functional_assert_async.msg",
    "_empty_*",  # for dense tensors the CPU has only a stub, which raises
    "narrow_copy.out",
    "to_mkldnn",
    "mkldnn_rnn_layer*",
    "_convert_weight_to_int4pack_for_cpu",
    "_dyn_quant_*",
    "_scaled_dot_product_flash_attention_for_cpu*",
    "_weight_int4pack_mm_for_cpu",
)
OTHERWISE = {
    "CUDA": (*NOBODY_CALLS, "quantize_per_tensor.tensors", "slow_conv3d_forward*"),
    "MPS": (
        *NOBODY_CALLS,
        # Composed of other operators if the backend has no kernel.
        "all.dims*",
        "any.dims*",
        # aten/src/ATen/native/Convolution.cpp: a convolution of MPS tensors calls aten::_mps_convolution.
        "slow_conv*",
        "_slow_conv2d_*",
        # aten/src/ATen/native/transformers/attention.cpp: scaled_dot_product_attention takes its own branch for MPS.
        "_fused_sdp_choice",
        # aten/src/ATen/mps/MPSFallback.mm: computed on the CPU, with a warning. So is linalg_svd, which calls
        # _linalg_svd on other devices.
        "embedding_renorm_",
        "_linalg_svd*",
        # The fast path of torch/nn/modules/activation.py and transformer.py. A device of type PrivateUse1 takes it, and
        # MPS never does.
        "_native_multi_head_attention",
        "_transformer_encoder_layer_fwd",
        "_nested_tensor_from_mask",
        "_masked_softmax*",
        "_transform_bias_rescale_qkv",
        "_addmm_activation*",
    ),
}


def missing(backend: str) -> list[str]:
    """Operators that have a kernel for the CPU and none for ``backend``, according to native_functions.yaml."""
    path = Path(torch.__file__).parents[1] / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    parsed = parse_native_yaml(str(path), str(path.with_name("tags.yaml")))
    cpu, other = (parsed.backend_indices[DispatchKey.parse(key)] for key in ("CPU", backend))
    found = []
    for group in get_grouped_native_functions(parsed.native_functions):
        whole = isinstance(group, NativeFunctionsGroup)
        functions = list(group.functions()) if whole else [group]
        if whole and group.structured:
            found += functions if cpu.has_kernel(group) and not other.has_kernel(group) else []
        else:
            found += [
                f for f in functions if cpu.has_kernel(f) and not other.has_kernel(f) and not f.has_composite_kernel
            ]
    names = sorted(str(f.func.name) for f in found)
    return [f"aten::{name}" for name in names if not any(fnmatchcase(name, each) for each in OTHERWISE[backend])]


def cells(capability: str) -> dict[str, dict[str, list[str]]]:
    """What tests/simulator/device_models/cells.py prints. It runs in a separate process."""
    command = [sys.executable, "-m", "tests.simulator.device_models.cells", capability]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


def cuda() -> dict[str, object]:
    restrictions = []
    rows_of_kernels = ((*row, WHEN.get(row[3])) for row in (*KERNELS, *BOTH_LACK))
    for operators, argument, dtypes, kernel, source, condition in (*rows_of_kernels, *CONDITIONAL):
        text = (
            {"message": kernel.removeprefix("message: "), "error": "RuntimeError"}
            if kernel.startswith("message: ")
            else {"kernel": kernel}
        )
        operators = [f"aten::{name}" for name in operators.split()]
        when = {"when": condition} if condition else {}
        restrictions.append(
            {"operators": operators, "argument": argument, "dtypes": dtypes, **when, **text, "source": source}
        )
    return {
        "about": "What CUDA lacks and the CPU has. Made by `python -m tests.simulator.device_models`.",
        "properties": {
            "allocation_alignment": {"value": 512, "source": "c10/core/AllocatorConfig.h: kMinBlockSize"},
            "context_memory": {
                "value": 400_000_000,
                "source": "github.com/pytorch/pytorch/issues/109888, a developer of PyTorch: about 400 MB with CUDA 11.7 and "
                "later; measured with an RTX 6000 Ada: 426 MiB (github.com/unslothai/unsloth-zoo/pull/1053)",
            },
        },
        "nondeterminism_checks": {
            "value": True,
            "source": "the docstring of torch.use_deterministic_algorithms, "
            "whose operators are in NondeterminismChecks.cpp",
        },
        "missing_operators": [{"operators": missing("CUDA"), "message": NO_KERNEL, "source": YAML}],
        "restrictions": restrictions,
    }


def mps() -> dict[str, object]:
    return {
        "about": "What MPS lacks and the CPU has. Made by `python -m tests.simulator.device_models`.",
        "nondeterminism_checks": {
            "value": False,
            "source": "the docstring of torch.use_deterministic_algorithms, which names CUDA's tensors alone; so "
            "aten/src/ATen/native/mps/operations/Pad.mm asks nothing where native/cuda/ReflectionPad.cu alerts",
        },
        "missing_operators": [{"operators": missing("MPS"), "message": NOT_ON_MPS, "source": YAML}],
    }


def files() -> dict[Path, str]:
    """File -> the text that this program writes into it."""
    return {
        MODELS / "_cuda.json": json.dumps(cuda(), indent=1) + "\n",
        MODELS / "_mps.json": json.dumps(mps(), indent=1) + "\n",
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
        print(path)
