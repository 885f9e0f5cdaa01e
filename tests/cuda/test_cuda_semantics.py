"""What PyTorch's core decides by the device's name "cuda". `make modes` runs other tests under that name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import programs
import pytest
from cuda_builds import AS_CUDA
from programs import PYTEST, Run
from sweep import report
from sweep.__main__ import sweep

pytestmark = AS_CUDA

ROOT = Path(__file__).parents[2]


def output_of(run_python: Run, code: str) -> Any:
    """The value that a program on the type cuda prints as JSON."""
    result = run_python("import json, torch\n" + code, TORCH_OPENREG_AS="cuda", status=0, errors="")
    return json.loads(result.stdout)


@pytest.mark.slow
def test_operators_that_pytorch_composes_in_another_way_for_cuda_agree_with_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_OPENREG_AS", "cuda")  # for the processes of the sweep
    # PyTorch asks for CUDA in Convolution.cpp (select_conv_backend), LossCTC.cpp (ctc_loss) and attention.cpp.
    names = ["conv*", "ctc_loss", "scaled_dot_product_attention", "batch_norm", "dropout*", "embedding_bag", "rms_norm"]
    records = sweep(
        device="cuda",
        suites=["op"],
        ops=[f"nn.functional.{name}" for name in names],
        dtypes=["default"],
        variants=["forward", "backward"],
        samples=10,
        jobs=1,  # each worker imports the databases
        results=tmp_path / "results.jsonl",
    )
    assert len(records) > 25
    assert [report.line(record) for record in report.unlisted(records, report.load_exceptions("cuda"))] == []


LAYOUTS = """
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
calls = {
    "svd": (torch.linalg.svd, (3, 5, 4)),
    "reduced svd": (lambda x: torch.linalg.svd(x, full_matrices=False), (4, 7)),
    "eig": (torch.linalg.eig, (2, 3, 3)),
    "rfftn": (torch.fft.rfftn, (4, 6, 8)),
    "ifftn": (lambda x: torch.fft.ifftn(x, dim=(0, 2)), (4, 6, 8)),
    "pool": (lambda x: F.avg_pool2d(x.to(memory_format=torch.channels_last), 2), (2, 3, 8, 8)),
    "reflection_pad": (lambda x: F.pad(x.to(memory_format=torch.channels_last), (1,) * 4, "reflect"), (2, 3, 8, 8)),
}
strides = {}
for name, (function, shape) in calls.items():
    with FakeTensorMode():
        fake = function(torch.empty(shape, device="cuda"))
    real = function(torch.randn(shape, device="cuda"))
    strides[name] = [
        [t.stride() for t in (results if isinstance(results, tuple) else (results,))] for results in (fake, real)
    ]
print(json.dumps(strides))
"""


def test_meta_functions_give_the_layout_that_the_kernels_give(run_python: Run) -> None:
    # Some of torch/_meta_registrations.py ask for the name cuda: device_hint(). Inductor's code checks the layout.
    for name, (expected, actual) in output_of(run_python, LAYOUTS).items():
        assert actual == expected, name


DEPTHWISE = """
calls = {}
for dims in (1, 2, 3):
    for transposed in (False, True):
        convolve = getattr(torch.nn.functional, f"conv{'_transpose' if transposed else ''}{dims}d")
        for groups, dilation in ((4, 1), (4, 2), (1, 2), (2, 1)):
            torch.manual_seed(0)
            weight = torch.randn(4, 4 // groups, *[3] * dims)
            operands = [torch.randn(2, 4, *[8] * dims), weight, torch.randn(4)]
            results = []
            for device in ("cpu", "cuda"):
                leaves = [t.detach().to(device).requires_grad_() for t in operands]
                output = convolve(*leaves, groups=groups, dilation=dilation)
                output.square().sum().backward()
                results.append([output.detach().cpu(), *(t.grad.cpu() for t in leaves)])
            calls[f"{dims} {transposed} {groups} {dilation}"] = all(map(torch.equal, *results))
print(json.dumps(calls))
"""


@pytest.mark.slow
def test_depthwise_dilated_and_transposed_convolutions_are_the_cpus_bit_for_bit(run_python: Run) -> None:
    calls = output_of(run_python, DEPTHWISE)
    assert len(calls) == 24 and all(calls.values()), calls


PRODUCTS = """
answers = []
for dtype in (torch.float16, torch.bfloat16):
    sum, first, second = (torch.randn(2, 5, 5, dtype=dtype) for _ in range(3))
    for name, operands in {
        "mm": (first[0], second[0]), "bmm": (first, second),
        "addmm": (sum[0], first[0], second[0]), "baddbmm": (sum, first, second),
    }.items():
        product, on_device = getattr(torch, name), [t.cuda() for t in operands]
        expected = product(*(t.float() for t in operands))
        result = product(*on_device, out_dtype=torch.float32)
        out = torch.empty_like(result)
        product(*on_device, out_dtype=torch.float32, out=out)
        answers += [torch.equal(result.cpu(), expected), torch.equal(out.cpu(), expected), str(result.dtype)]
refused = []
a = torch.ones(2, 2, device="cuda")
for call in (
    lambda: torch.mm(a, a, out_dtype=torch.float16),
    lambda: torch.mm(a, a.half(), out_dtype=torch.float32),
    lambda: torch.mm(a.half(), a.half(), out_dtype=torch.float32, out=a.half()),
):
    try:
        call()
    except RuntimeError as error:
        refused.append(str(error))
print(json.dumps([answers, refused]))
"""


def test_products_of_half_precision_may_be_returned_in_float32(run_python: Run) -> None:
    answers, refused = output_of(run_python, PRODUCTS)
    assert answers == [True, True, "torch.float32"] * 8
    assert refused == [  # Blas.cpp
        "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs",
        "input dtypes must be the same, got: input: Float, mat2: Half",
        "out_dtype must be the same as the dtype of the provided out tensor",
    ]


MASKS = """
import warnings
x, mask = torch.zeros(4, device="cuda"), torch.tensor([True, False, True, False], device="cuda")
values = torch.ones(2, device="cuda"), torch.ones((), device="cuda")
warnings.simplefilter("ignore")  # the notice that the mode is a prototype
torch.cuda.set_sync_debug_mode("error")
x[mask] = 1.0
heard = []
for value in values:
    try:
        x[mask] = value
        heard.append("no error")
    except RuntimeError as error:
        heard.append(str(error))
torch.cuda.set_sync_debug_mode("default")
print(json.dumps([x.tolist(), heard]))
"""


def test_a_number_for_the_elements_of_a_mask_needs_no_synchronization(run_python: Run) -> None:
    values, heard = output_of(run_python, MASKS)  # canDispatchToMaskedFill() in TensorAdvancedIndexingUtils.h
    assert (values, heard) == ([1, 0, 1, 0], ["called a synchronizing CUDA operation"] * 2)


# aten/src/ATen/native/transformers/cuda/attention.cu, _fused_sdp_choice_cuda
ALL_OFF = (
    "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the math "
    "kernel and the fused kernels."
)

SWITCHES = """
from torch.nn.attention import SDPBackend, sdpa_kernel
answers = {}
for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH", "OVERRIDEABLE"):
    for dtype in (torch.float16, torch.float32, torch.float64):
        q = torch.ones(1, 2, 4, 8, device="cuda", dtype=dtype, requires_grad=True)
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()
            answer = "ok"
        except RuntimeError as error:
            answer = str(error)
        answers.setdefault(backend, []).append(answer)
print(json.dumps(answers))
"""


def test_attention_obeys_the_switches_of_cudas_kernels_and_refuses_in_their_words(run_python: Run) -> None:
    # aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_tensor_dtype: flash attention accepts half precision,
    # memory-efficient attention also float32, and neither accepts float64. The message is in select_sdp_backend.
    none = "No available kernel. Aborting execution."
    assert output_of(run_python, SWITCHES) == {
        "FLASH_ATTENTION": ["ok", none, none],
        "EFFICIENT_ATTENTION": ["ok", "ok", none],
        "CUDNN_ATTENTION": [none, none, none],
        "MATH": ["ok"] * 3,
        "OVERRIDEABLE": [ALL_OFF] * 3,
    }


def test_attention_takes_the_fused_kernel_where_cuda_has_one_that_is_enabled(run_python: Run) -> None:
    code = """
def choice(dtype):
    q = torch.ones(1, 2, 4, 8, device="cuda", dtype=dtype)
    return torch._fused_sdp_choice(q, q, q)  # of SDPBackend: MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION
before = [choice(dtype) for dtype in (torch.float16, torch.float32, torch.float64)]
torch.backends.cuda.enable_mem_efficient_sdp(False)
without_efficient = [choice(dtype) for dtype in (torch.float16, torch.float32)]
torch.backends.cuda.enable_flash_sdp(False)
print(json.dumps([before, without_efficient, choice(torch.float16)]))
"""
    assert output_of(run_python, code) == [[1, 2, 0], [1, 0], 0]


def test_attention_refuses_the_kernels_of_other_backends_as_cuda_does(run_python: Run) -> None:
    code = """
torch.backends.cuda.enable_math_sdp(False)
q = torch.ones(1, 2, 4, 8, device="cuda", dtype=torch.float64)
try:
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
    # select_sdp_backend: SDPBackend.OVERRIDEABLE, which is on by default, comes after all others.
    assert output_of(run_python, code) == "Invalid backend"


def test_attention_says_that_everything_is_off_as_cuda_says_it(run_python: Run) -> None:
    code = """
for name in ("flash", "mem_efficient", "math", "cudnn"):
    getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)
q = torch.ones(1, 2, 4, 8, device="cuda")
try:
    torch.nn.functional.scaled_dot_product_attention(q, q, q)
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
    assert output_of(run_python, code) == ALL_OFF


def test_a_generator_of_the_current_device_is_made(run_python: Run) -> None:
    # This once failed, because the hooks called themselves without end.
    code = """
torch.cuda.set_device(1)
print(json.dumps([str(torch.Generator("cuda").device), torch.Generator("cuda:0").manual_seed(5).initial_seed()]))
"""
    assert output_of(run_python, code) == ["cuda:1", 5]


@pytest.mark.parametrize(
    "use", ["torch.empty(1, device='cuda:2')", "torch.cuda.set_device(2)", "torch.ones(1).cuda(2)"]
)
def test_an_index_without_a_device_has_cudas_text(run_python: Run, use: str) -> None:
    # c10/cuda/CUDAException.cpp: "CUDA error: " and cudaGetErrorString(cudaErrorInvalidDevice);
    # c10/cuda/CUDAMiscFunctions.cpp: the second line.
    code = f"""
try:
    {use}
except RuntimeError as error:
    print(json.dumps(str(error).splitlines()[:2]))
"""
    assert output_of(run_python, code) == [
        "CUDA error: invalid device ordinal",
        "GPU device may be out of range, do you have enough GPUs?",
    ]


AS_IN_MODES = ("--device", "cuda", "--openreg-as=cuda")
# A build with CUDA must be told the type before torch is imported, and the server of programs has imported it.
BEFORE_TORCH = programs.HAS_CUDA


@pytest.mark.slow
def test_tests_run_under_this_name() -> None:
    """`make modes` runs all tests of semantics under this name, in every mode."""
    runtime = ("generator", "storage", "streams_events")
    files = ["tests/operators/test_copy.py", *(f"tests/runtime/test_{name}.py" for name in runtime)]
    chaos = ("--execution", "chaos")
    programs.run(*PYTEST, *AS_IN_MODES, *chaos, *files, cwd=ROOT, new_interpreter=BEFORE_TORCH, status=0)


@pytest.mark.slow
def test_traces_and_memory_pages_are_right_with_this_type() -> None:
    """Runs the tests whose traces and pages name the device."""
    files = ["tests/runtime/test_profiler_trace.py", "tests/tools/test_memory_pages.py"]
    named = "obeys_the_rules or describes_the_devices or the_table_has or a_copy_says or a_real_run_is_explained"
    command = (*PYTEST, *AS_IN_MODES, *files, "-k", named)
    result = programs.run(*command, cwd=ROOT, new_interpreter=BEFORE_TORCH, status=0)
    assert " skipped" not in result.stdout


TRACED = """
import os
device, answers = os.environ["TRACED_ON"], {}
for name in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"):
    for dtype, autocast in ((torch.float32, False), (torch.float16, False), (torch.float32, True)):
        module = getattr(torch.nn, name)(3, 4, 3).to(device, dtype)
        first, second = (torch.randn(2, 3, *[6] * int(name[-2]), device=device, dtype=dtype) for _ in range(2))
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=autocast, cache_enabled=False):
            traced, expected = torch.jit.trace(module, first, check_trace=False)(second), module(second)
        answers[f"{name} {dtype} {autocast}"] = traced.device.type == device and torch.equal(traced, expected)
print(json.dumps(answers))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("device", "identity"), [("cuda", "cuda"), ("openreg", "")])
def test_a_traced_convolution_computes_with_the_input_that_it_is_given(
    run_python: Run, device: str, identity: str
) -> None:
    # PyTorch's tracer records _convolution, not convolution: DONT_RECORD_TRACE in tools/autograd/gen_trace_type.py.
    code = "import json, warnings\nwarnings.simplefilter('ignore')\nimport torch\n" + TRACED
    result = run_python(code, TORCH_OPENREG_AS=identity, TRACED_ON=device, status=0)
    answers = json.loads(result.stdout)
    assert len(answers) == 18 and all(answers.values()), answers


def test_compiling_a_kernel_is_refused_in_one_sentence(run_python: Run) -> None:
    code = """
try:
    torch.cuda._compile_kernel("", "f")
except NotImplementedError as error:
    print(json.dumps(str(error)))
"""
    assert output_of(run_python, code) == (
        "torch.cuda._compile_kernel is not available: it compiles CUDA's C++, which the simulated device does not run."
    )
