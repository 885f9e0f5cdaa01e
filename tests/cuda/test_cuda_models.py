"""Device models under the name cuda: torch.cuda answers as on that card, or that there is none."""

from __future__ import annotations

import pytest
from cuda_builds import AS_CUDA
from models import ERROR, GRADIENTS, TF32, answer

pytestmark = AS_CUDA

CUDA_ANSWERS = """
c = torch.cuda
x = torch.ones(2, 2, dtype=torch.int32, device="cuda")
print(c.device_count(), c.get_device_name(), *c.get_device_capability(), c.mem_get_info()[1], sep="; ")
print(c.is_bf16_supported(), c.is_bf16_supported(including_emulation=False), c.is_tf32_supported())
print(c.get_device_properties(0).multi_processor_count, c.get_device_properties(0).L2_cache_size)
print(error(lambda: x @ x))
print(error(lambda: torch.empty(1 << 40, dtype=torch.uint8, device="cuda")).split(". Tried")[0])
torch.use_deterministic_algorithms(True)
print(error(lambda: torch.ones(3, device="cuda").median(0))[:42])
"""
REFUSED = [
    "NotImplementedError: \"addmm_cuda\" not implemented for 'Int'",
    "OutOfMemoryError: CUDA out of memory",
    "RuntimeError: median CUDA with indices out",
]


@pytest.mark.parametrize(
    ("model", "first", "dtypes", "sizes"),
    [
        ("cuda-t4", "1; Tesla T4; 7; 5; 15843721216", "True False False", "40 4194304"),
        ("cuda-v100", "2; Tesla V100-SXM2-16GB; 7; 0; 16935682048", "True False False", "80 6291456"),
        ("cuda-a100", "2; NVIDIA A100-SXM4-40GB; 8; 0; 42405855232", "True True True", "108 41943040"),
        ("cuda-h100", "2; NVIDIA H100 80GB HBM3; 9; 0; 85045477376", "True True True", "132 52428800"),
        ("consumer-8gb", "1; NVIDIA GeForce RTX 3070; 8; 6; 8589410304", "True True True", "46 4194304"),
    ],
)
def test_torch_cuda_answers_as_on_that_card(model: str, first: str, dtypes: str, sizes: str) -> None:
    lines = answer(ERROR + CUDA_ANSWERS, model, TORCH_OPENREG_AS="cuda").splitlines()
    assert lines == [first, dtypes, sizes, *REFUSED]


@pytest.mark.parametrize("test", [TF32, GRADIENTS], ids=["rounded inputs", "gradients and integers"])
def test_convolutions_follow_the_model_as_under_the_own_name(test: str) -> None:
    assert answer(test, "cuda-a100", TORCH_OPENREG_AS="cuda") == answer(test, "cuda-a100")


# Lightning sets this variable when it is imported. With "1", torch.cuda.is_available() asks NVML, not the driver.
ASK_THE_DRIVER = {"PYTORCH_NVML_BASED_CUDA_CHECK": "0"}


@pytest.mark.slow
def test_torch_cuda_says_that_there_is_no_device() -> None:
    uses = "torch.ones(1, device='cuda')", "torch.cuda.Stream()"
    code = ERROR + "print(torch.cuda.is_available())" + "".join(f"\nprint(error(lambda: {use}))" for use in uses)
    available, *said = answer(
        code, TORCH_OPENREG_AS="cuda", OPENREG_FAULTS="start=nodevice", **ASK_THE_DRIVER
    ).splitlines()
    assert available == "False" and len(said) == 2
    for each in said:
        assert each.startswith("AcceleratorError: CUDA error: no CUDA-capable device is detected (injected by ")


# c10/cuda/CUDAFunctions.cpp, device_count_impl()
TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading "
    "and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to: "
    "https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver. "
    "CUDA driver version is insufficient for CUDA runtime version (injected by start=driver)"
)


USES = ["init()", "current_device()", "get_device_name()", "synchronize()", "FloatTensor(1)", "Stream()"]


@pytest.mark.slow
@pytest.mark.parametrize("use", USES)
def test_torch_cuda_says_that_the_driver_is_too_old(use: str) -> None:
    code = f"""{ERROR}
import warnings
with warnings.catch_warnings(record=True) as caught:
    print(torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.is_initialized())
print(*(str(each.message).partition(" (Triggered")[0] for each in caught))
print(error(lambda: torch.cuda.{use}))
print(error(lambda: torch.cuda.{use}))
"""
    variables = {"TORCH_OPENREG_AS": "cuda", "OPENREG_FAULTS": "start=driver", **ASK_THE_DRIVER}
    lines = answer(code, "cuda-t4", **variables).splitlines()
    assert lines == [
        "False 1 False",  # device_count() asks NVML, which works with an old driver
        f"CUDA initialization: {TOO_OLD}",
        *[f"RuntimeError: {TOO_OLD}"] * 2,
    ]


# sdp_utils.cpp: the ranges of check_flash_attention_hardware_support, less_than_sm80_mem_efficient_dtypes
ATTENTION = """
from torch.nn.attention import SDPBackend, sdpa_kernel
def has(backend, dtype):
    q = torch.ones(1, 1, 8, 8, dtype=dtype, device="cuda")
    with sdpa_kernel(backend): return error(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))
for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
    print(*(has(backend, dtype) for dtype in (torch.half, torch.bfloat16, torch.float)), sep=";")
"""
NO_KERNEL = "RuntimeError: No available kernel. Aborting execution."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "flash", "efficient"),
    [
        ("cuda-v100", [NO_KERNEL] * 3, ["nothing", NO_KERNEL, "nothing"]),
        ("cuda-t4", [NO_KERNEL] * 3, ["nothing", NO_KERNEL, "nothing"]),
        ("cuda-a100", ["nothing", "nothing", NO_KERNEL], ["nothing"] * 3),
        (None, ["nothing", "nothing", NO_KERNEL], ["nothing"] * 3),
    ],
)
def test_the_fused_kernels_of_attention_follow_the_compute_capability(
    model: str | None, flash: list[str], efficient: list[str]
) -> None:
    lines = answer(ERROR + ATTENTION, model, TORCH_OPENREG_AS="cuda").splitlines()
    assert [line.split(";") for line in lines] == [flash, efficient]
