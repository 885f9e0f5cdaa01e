"""``torch.use_deterministic_algorithms(True)`` raises for the operators that are nondeterministic on CUDA.

The oracle is that function's own docstring: each of its entries about CUDA has a program here, which must raise. The
docstring is wrong about three operators. CUDA's kernels decide there, as a GPU shows (cuda_answers/nondeterminism.py).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from comparison import DEVICE
from torch import Tensor, nn
from torch.nn import functional as F

Program = Callable[[], object]


@pytest.fixture(autouse=True)
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def randn(*size: int) -> Tensor:
    return torch.randn(*size, device=DEVICE)


def ints(*values: int) -> Tensor:
    return torch.tensor(values, device=DEVICE)


def backward(fn: Callable[[Tensor], Tensor], *size: int) -> Program:
    """A program that raises in its backward; the forward must not."""
    output = []

    def program() -> None:
        if not output:
            output.append(fn(randn(*size).requires_grad_()))
        output[0].sum().backward(retain_graph=True)

    return program


def interpolate(mode: str, *size: int) -> Program:
    return backward(lambda x: F.interpolate(x, scale_factor=2, mode=mode), *size)


def ctc_loss(x: Tensor) -> Tensor:
    return F.ctc_loss(x.log_softmax(2), ints(1, 2, 1).expand(2, 3), (10, 10), (3, 3))


# Entry of the docstring, without markup -> the kernels that it stands for, and a program for each.
RAISES: dict[str, dict[str, Program]] = {
    "torch.nn.AvgPool3d when attempting to differentiate a CUDA tensor": {
        "avg_pool3d_backward_cuda": backward(nn.AvgPool3d(2), 1, 2, 4, 4, 4),
    },
    "torch.nn.AdaptiveAvgPool2d when attempting to differentiate a CUDA tensor": {
        "adaptive_avg_pool2d_backward_cuda": backward(nn.AdaptiveAvgPool2d(2), 1, 2, 5, 5),
    },
    "torch.nn.AdaptiveAvgPool3d when attempting to differentiate a CUDA tensor": {
        "adaptive_avg_pool3d_backward_cuda": backward(nn.AdaptiveAvgPool3d(2), 1, 2, 5, 5, 5),
    },
    "torch.nn.AdaptiveMaxPool2d when attempting to differentiate a CUDA tensor": {
        "adaptive_max_pool2d_backward_cuda": backward(nn.AdaptiveMaxPool2d(2), 1, 2, 5, 5),
    },
    "torch.nn.FractionalMaxPool2d when attempting to differentiate a CUDA tensor": {
        "fractional_max_pool2d_backward_cuda": backward(nn.FractionalMaxPool2d(2, output_ratio=0.5), 1, 2, 6, 6),
    },
    "torch.nn.FractionalMaxPool3d when attempting to differentiate a CUDA tensor": {
        "fractional_max_pool3d_backward_cuda": backward(nn.FractionalMaxPool3d(2, output_ratio=0.5), 1, 2, 6, 6, 6),
    },
    "torch.nn.MaxUnpool1d": {
        "max_unpooling2d_forward_out": lambda: nn.MaxUnpool1d(2)(randn(1, 1, 2), ints(0, 2).view(1, 1, 2)),
    },
    "torch.nn.MaxUnpool2d": {
        "max_unpooling2d_forward_out": lambda: nn.MaxUnpool2d(2)(randn(1, 1, 1, 1), ints(0).view(1, 1, 1, 1)),
    },
    "torch.nn.MaxUnpool3d": {
        "max_unpooling3d_forward_out": lambda: nn.MaxUnpool3d(2)(randn(1, 1, 1, 1, 1), ints(0).view(1, 1, 1, 1, 1)),
    },
    "torch.nn.functional.interpolate when attempting to differentiate a CUDA tensor "
    "and one of the following modes is used:": {
        "upsample_linear1d_backward_out_cuda": interpolate("linear", 1, 2, 3),
        # In a deterministic program, interpolate() itself takes another path, as for a CUDA tensor.
        "upsample_bilinear2d_backward_out_cuda": backward(
            lambda x: torch._C._nn.upsample_bilinear2d(x, (6, 6), False), 1, 2, 3, 3
        ),
        "upsample_bilinear2d_aa_backward_out_cuda": backward(
            lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", antialias=True), 1, 2, 3, 3
        ),
        "upsample_bicubic2d_backward_out_cuda": interpolate("bicubic", 1, 2, 3, 3),
        "upsample_bicubic2d_aa_backward_out_cuda": backward(
            lambda x: F.interpolate(x, scale_factor=2, mode="bicubic", antialias=True), 1, 2, 3, 3
        ),
        "upsample_trilinear3d_backward_out_cuda": backward(
            lambda x: torch._C._nn.upsample_trilinear3d(x, (6, 6, 6), False), 1, 2, 3, 3, 3
        ),
    },
    "torch.nn.ReflectionPad1d when attempting to differentiate a CUDA tensor": {
        "reflection_pad1d_backward_out_cuda": backward(nn.ReflectionPad1d(1), 2, 3, 4),
    },
    "torch.nn.ReflectionPad2d when attempting to differentiate a CUDA tensor": {},  # has a deterministic form
    "torch.nn.ReflectionPad3d when attempting to differentiate a CUDA tensor": {
        "reflection_pad3d_backward_out_cuda": backward(nn.ReflectionPad3d(1), 2, 3, 4, 4, 4),
    },
    "torch.nn.NLLLoss when called on a CUDA tensor": {
        "nll_loss2d_forward_out_cuda_template": lambda: nn.NLLLoss()(randn(1, 3, 2, 2), ints(0, 1, 2, 0).view(1, 2, 2)),
    },
    "torch.nn.CTCLoss when attempting to differentiate a CUDA tensor": {
        "ctc_loss_backward_gpu": backward(ctc_loss, 10, 2, 4),
    },
    "torch.nn.EmbeddingBag when attempting to differentiate a CUDA tensor when mode='max'": {
        "embedding_bag_backward_cuda_max": backward(
            lambda weight: F.embedding_bag(ints(0, 1, 1, 2).view(2, 2), weight, mode="max"), 4, 3
        ),
    },
    "torch.Tensor.put_ when accumulate=False": {
        "put_": lambda: randn(4).put_(ints(0, 0), randn(2)),
    },
    "torch.Tensor.put_ when accumulate=True and called on a CUDA tensor": {
        "put_": lambda: randn(4).put_(ints(0, 0), randn(2), accumulate=True),
    },
    "torch.histc when called on a CUDA tensor": {
        "_histc_cuda with floating point input": lambda: torch.histc(randn(4)),
    },
    "torch.bincount when called on a CUDA tensor and weights tensor is given": {
        "_bincount_cuda": lambda: torch.bincount(ints(0, 1), randn(2)),
    },
    "torch.median with indices output when called on a CUDA tensor": {
        "median CUDA with indices output": lambda: torch.median(randn(3, 4), 1),
    },
    "torch.nn.functional.grid_sample when attempting to differentiate a CUDA tensor": {
        "grid_sampler_2d_backward_cuda": backward(
            lambda x: F.grid_sample(x, randn(1, 2, 2, 2), align_corners=False), 1, 2, 3, 3
        ),
        "grid_sampler_3d_backward_cuda": backward(
            lambda x: F.grid_sample(x, randn(1, 2, 2, 2, 3), align_corners=False), 1, 2, 3, 3, 3
        ),
    },
    "torch.cumsum when called on a CUDA tensor when dtype is floating point or complex": {},  # is deterministic
    "torch.Tensor.scatter_reduce when reduce='prod' and called on CUDA tensor": {
        "scatter_reduce_cuda_prod_": lambda: randn(4).scatter_reduce(0, ints(0, 0), randn(2), "prod"),
    },
    "torch.Tensor.resize_ when called with a quantized tensor": {
        "quantized_resize_cpu_": lambda: torch.quantize_per_tensor(randn(4), 0.1, 0, torch.qint8).resize_(2),
    },
}
# Kernels that the docstring does not name, or calls deterministic (MaxPool3d), but that raise in CUDA's source.
RAISES_TOO: dict[str, Program] = {
    "max_pool3d_with_indices_backward_cuda": backward(nn.MaxPool3d(2), 1, 2, 4, 4, 4),
    "median CUDA with indices output": lambda: torch.nanmedian(randn(3, 4), 1),
    "index_reduce_cuda": lambda: randn(4).index_reduce_(0, ints(0, 0), randn(2), "amax"),
    "scatter_reduce_cuda_kernel": lambda: randn(4).scatter_(0, ints(0, 0), randn(2), reduce="multiply"),
    "_histc_cuda with floating point input": lambda: torch.histc(randn(4), out=randn(100)),
}
# Calls of the same operators for which CUDA's kernel is deterministic, or has a deterministic form.
STAYS_SILENT: dict[str, Program] = {
    "NLLLoss, no reduction": lambda: F.nll_loss(randn(1, 3, 2, 2), ints(0, 1, 2, 0).view(1, 2, 2), reduction="none"),
    "NLLLoss of rows": lambda: F.nll_loss(randn(2, 3), ints(0, 1)),
    "EmbeddingBag, sum": backward(lambda weight: F.embedding_bag(ints(0, 1).view(1, 2), weight, mode="sum"), 4, 3),
    "bincount": lambda: torch.bincount(ints(0, 1)),
    "median": lambda: torch.median(randn(4)),
    "kthvalue": lambda: torch.kthvalue(randn(4), 1),
    "ReflectionPad2d": backward(nn.ReflectionPad2d(1), 2, 3, 4, 4),
    "cumsum": lambda: [torch.cumsum(randn(4), 0), torch.cumsum(ints(1, 2), 0), randn(4).cumsum_(0)],
    "cumprod": lambda: torch.cumprod(randn(4), 0),
    "scatter_reduce": lambda: [
        randn(4).scatter_reduce(0, ints(0, 0), randn(2), reduce) for reduce in ("sum", "mean", "amax", "amin")
    ],
    "scatter, add": lambda: randn(4).scatter_(0, ints(0, 0), randn(2), reduce="add"),
    "nearest": interpolate("nearest", 1, 2, 3),
    "bilinear": interpolate("bilinear", 1, 2, 3, 3),
    "trilinear": interpolate("trilinear", 1, 2, 3, 3, 3),
    # From here on: the docstring's list of operators that become deterministic.
    "Conv2d": backward(lambda x: F.conv2d(x, randn(2, 2, 3, 3)), 1, 2, 5, 5),
    "ConvTranspose2d": backward(lambda x: F.conv_transpose2d(x, randn(2, 2, 3, 3)), 1, 2, 5, 5),
    "ReplicationPad2d": backward(nn.ReplicationPad2d(1), 2, 3, 4, 4),
    "bmm": lambda: torch.bmm(randn(1, 2, 3).to_sparse(), randn(1, 3, 2)),
    "getitem": backward(lambda x: x[[0, 0], [1, 1]], 2, 3),
    "index_put": lambda: [randn(4).index_put((ints(0, 0),), randn(2), accumulate=a) for a in (False, True)],
    "scatter_add_": lambda: randn(4).scatter_add_(0, ints(0, 0), randn(2)),
    "gather": backward(lambda x: x.gather(0, ints(0, 0)), 4),
    "index_add": lambda: randn(4).index_add(0, ints(0, 0), randn(2)),
    "index_select": backward(lambda x: x.index_select(0, ints(0, 0)), 4),
    "repeat_interleave": backward(lambda x: x.repeat_interleave(2), 4),
    "index_copy": lambda: randn(4).index_copy(0, ints(0, 1), randn(2)),
    "scatter": lambda: randn(4).scatter(0, ints(0, 1), randn(2)),
}


def sentence(kernel: str, mode: str = "True") -> str:
    return (
        f"{kernel} does not have a deterministic implementation, but you set "
        f"'torch.use_deterministic_algorithms({mode})'."
    )


def entries(heading: str) -> list[str]:
    """The entries of the docstring's list under a heading, each as one line, without markup and inner lists."""
    documentation = torch.use_deterministic_algorithms.__doc__
    assert documentation is not None
    section = documentation.split(heading)[1].split("\n\n", 1)[1]
    section = re.split(r"\n    (?=\S)", section)[0]
    found = re.findall(r"^        \* (.*(?:\n          (?! *-)\S.*)*)", section, re.MULTILINE)
    return [re.sub(r"\s+", " ", re.sub(r":\w+:|`", "", entry)).strip() for entry in found]


def test_every_entry_of_pytorchs_list_has_a_program_here() -> None:
    if torch.__version__ >= "2.15":
        pytest.skip(
            "since 2.15 the list is also about MPS, and says otherwise of scatter_reduce; RAISES is CUDA's of 2.13"
        )
    documented = entries("will throw a\n    :class:`RuntimeError` when ``mode=True``:")
    # cumsum is on the list until 2.13.
    assert documented == [each for each in RAISES if "torch.cumsum" not in each or torch.__version__ < "2.14"]


PROGRAMS = [(kernel, program) for programs in RAISES.values() for kernel, program in programs.items()]
PROGRAMS += RAISES_TOO.items()
if torch.__version__ >= "2.15":  # these versions no longer raise there
    PROGRAMS = [(kernel, program) for kernel, program in PROGRAMS if kernel != "upsample_bicubic2d_backward_out_cuda"]
IDS = [f"{index}-{kernel.split()[0]}" for index, (kernel, _) in enumerate(PROGRAMS)]


@pytest.mark.parametrize(("kernel", "program"), PROGRAMS, ids=IDS)
def test_what_is_nondeterministic_on_cuda_raises(kernel: str, program: Program) -> None:
    with pytest.raises(RuntimeError, match=re.escape(sentence(kernel))):
        program()


@pytest.mark.parametrize(("kernel", "program"), PROGRAMS, ids=IDS)
def test_with_warn_only_it_warns_once_and_computes(kernel: str, program: Program) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program()
        torch.accelerator.synchronize()
    about = [str(warning.message) for warning in caught if "deterministic implementation" in str(warning.message)]
    assert [text.split("You can file")[0].strip() for text in about] == [sentence(kernel, "True, warn_only=True")]


@pytest.mark.parametrize("program", STAYS_SILENT.values(), ids=STAYS_SILENT)
def test_what_has_a_deterministic_form_on_cuda_computes(program: Program) -> None:
    program()
    torch.accelerator.synchronize()


def test_without_deterministic_algorithms_every_program_runs() -> None:
    torch.use_deterministic_algorithms(False)
    for _, program in PROGRAMS:
        program()
    torch.accelerator.synchronize()
