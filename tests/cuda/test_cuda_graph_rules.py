"""What a capture of CUDA takes, and what it refuses: questions with the answers of CUDA and PyTorch, and their sources.

Each question is asked in a capture of its own, under the name cuda. An answer is "captured", or the name of CUDA's error
or a part of PyTorch's message. ``end`` is the answer of the end of the capture, if the call itself gives no error.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import textwrap
from typing import NamedTuple

import pytest
from cuda_answers import ANSWERS
from cuda_builds import AS_CUDA
from programs import Run

pytestmark = AS_CUDA

# Sources. GUIDE: CUDA C++ Programming Guide, "Creating a Graph Using Stream Capture". RUNTIME: CUDA Runtime API, the page
# of the function or of cudaError_t. NOTES: PyTorch's docs/source/notes/cuda.rst, "CUDA Graphs". Others are PyTorch's files.
GUIDE, RUNTIME, NOTES = "CUDA C++ Programming Guide, Stream Capture", "CUDA Runtime API", "PyTorch notes/cuda.rst"

CUDA_TEXTS = {
    "cudaErrorIllegalState": "the operation cannot be performed in the present state",
    "cudaErrorStreamCaptureUnsupported": "operation not permitted when stream is capturing",
    "cudaErrorStreamCaptureInvalidated": "operation failed due to a previous error during capture",
    "cudaErrorStreamCaptureMerge": "operation would result in a merge of separate capture sequences",
    "cudaErrorStreamCaptureUnjoined": "capturing stream has unjoined work",
    "cudaErrorStreamCaptureIsolation": "dependency created on uncaptured work in another stream",
    "cudaErrorStreamCaptureImplicit": "operation would make the legacy stream depend on a capturing blocking stream",
    "cudaErrorCapturedEvent": "operation not permitted on an event last recorded in a capturing stream",
}
TORCH = [int(part) for part in importlib.metadata.version("torch").split(".")[:2]]
WAITS, CAPTURED = "cudaErrorStreamCaptureUnsupported", "captured"
NO_STATE = "Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture"


class Question(NamedTuple):
    code: str  # statements
    answer: str
    source: str
    end: str = ""


QUESTIONS = [
    # The host needs a number of the device.
    Question("x.sum().item()", WAITS, NOTES),
    Question("bool(x[0])", WAITS, NOTES),
    Question("float(x[0])", WAITS, NOTES),
    Question("x.tolist()", WAITS, NOTES),
    Question("x.cpu()", WAITS, NOTES),
    Question("repr(x)", WAITS, NOTES),
    Question("torch.isnan(x).any() and 1", WAITS, NOTES),
    Question("torch.equal(x, y)", WAITS, "aten/src/ATen/native/cuda/Equal.cpp: item()"),
    Question("torch.testing.assert_close(x, x)", WAITS, NOTES),
    Question("nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)", WAITS, "torch/nn/utils/clip_grad.py"),
    Question("torch.linalg.inv(x.view(2, 2))", WAITS, "aten/src/ATen/native/LinearAlgebraUtils.h: item() of info"),
    Question("torch.histc(x)", WAITS, "aten/src/ATen/native/cuda/SummaryOps.cu: min and max"),
    Question("x[i[0]:i[1]]", WAITS, "torch.Tensor.__index__"),
    # The shape of a result depends on numbers of the device.
    Question("x.nonzero()", WAITS, "aten/src/ATen/native/cuda/Nonzero.cu"),
    Question("torch.where(x > 0)", WAITS, "aten/src/ATen/native/cuda/Nonzero.cu"),
    Question("x[x > 0]", WAITS, "aten/src/ATen/native/cuda/Nonzero.cu"),
    Question("torch.masked_select(x, x > 0)", WAITS, "aten/src/ATen/native/cuda/Nonzero.cu"),
    Question("torch.unique(x)", WAITS, "aten/src/ATen/native/cuda/Unique.cu"),
    Question("torch.unique_consecutive(x)", WAITS, "aten/src/ATen/native/cuda/Unique.cu"),
    Question("torch.bincount(i)", WAITS, "aten/src/ATen/native/cuda/SummaryOps.cu"),
    Question("x[mask]", CAPTURED, "aten/src/ATen/native/IndexingUtils.h: a mask of the CPU, through pinned memory"),
    Question("x[mask] = y[:2]", CAPTURED, "aten/src/ATen/native/IndexingUtils.h: a mask of the CPU"),
    Question("x[columns]", WAITS, "aten/src/ATen/native/IndexingUtils.h: indices of the CPU, a pageable copy"),
    Question(
        "torch.where(x > 0, x, torch.tensor(0.0))", WAITS, "aten/src/ATen/native/TensorCompare.cpp: where_self_out"
    ),
    Question("x.masked_fill_(x > 9, y[0])", WAITS, "aten/src/ATen/native/cuda/Indexing.cu: item() of the value"),
    Question("y.index_fill_(0, i, torch.tensor(1.0))", CAPTURED, "aten/src/ATen/native/TensorAdvancedIndexing.cpp"),
    Question("x.repeat_interleave(i)", WAITS, "aten/src/ATen/native/Repeat.cpp"),
    Question("x.repeat_interleave(i, output_size=6)", CAPTURED, "aten/src/ATen/native/Repeat.cpp"),
    Question("F.one_hot(i)", WAITS, "aten/src/ATen/native/Onehot.cpp"),
    Question("F.one_hot(i, 4)", CAPTURED, "aten/src/ATen/native/Onehot.cpp: checks on the CPU only"),
    Question("x.to_sparse()", WAITS, "aten/src/ATen/native/cuda/Nonzero.cu"),
    # Sparse tensors. SPARSE: the elements of x, as a matrix.
    Question("SPARSE @ y[:, None]", CAPTURED, "aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu"),
    Question("SPARSE.to_sparse_csr() @ y[:, None]", CAPTURED, "aten/src/ATen/native/sparse/cuda/SparseBlasImpl.cpp"),
    Question("SPARSE.to_dense()", CAPTURED, "aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu"),
    Question("SPARSE + SPARSE", CAPTURED, "aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu: no merge"),
    Question("torch.cat([SPARSE] * 2).coalesce()", WAITS, "aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu"),
    Question("torch.sparse.mm(SPARSE, SPARSE)", WAITS, "aten/src/ATen/native/sparse/cuda/SparseMatMul.cu"),
    Question("torch.sparse.softmax(SPARSE, 1)", WAITS, "aten/src/ATen/native/sparse/cuda/SoftMax.cu"),
    Question("nn.Embedding.forward(table, i).sum().backward()", CAPTURED, "aten/src/ATen/native/Embedding.cpp"),
    # Copies.
    Question("torch.tensor([1.0], device='cuda')", WAITS, "RUNTIME: cudaMemcpyAsync, pageable memory"),
    Question("x.copy_(torch.ones(4))", WAITS, "RUNTIME: cudaMemcpyAsync, pageable memory"),
    Question("x.copy_(torch.ones(4), non_blocking=True)", WAITS, "RUNTIME: cudaMemcpyAsync, pageable memory"),
    Question("x.to('cpu', torch.int32)", WAITS, "aten/src/ATen/native/cuda/Copy.cu: converted, then a pageable copy"),
    Question("x.view(2, 2).t().cpu()", WAITS, "aten/src/ATen/native/cuda/Copy.cu: contiguous, then a pageable copy"),
    Question("x.copy_(torch.ones(4).double())", WAITS, "aten/src/ATen/native/cuda/Copy.cu: a pageable copy, converted"),
    Question(
        "x[0] = 1.0",
        WAITS if TORCH < [2, 15] else CAPTURED,
        "torch/csrc/autograd/python_variable_indexing.cpp: a copy of a number of the CPU; ATen/TensorIndexing.h: filled in",
    ),
    Question("x.copy_(pinned)", WAITS, "aten/src/ATen/native/cuda/Copy.cu: waits for the stream"),
    Question("x.copy_(pinned, non_blocking=True)", CAPTURED, "aten/src/ATen/native/cuda/Copy.cu"),
    Question("pinned.copy_(x, non_blocking=True)", CAPTURED, "aten/src/ATen/native/cuda/Copy.cu"),
    Question("torch.ones(4).pin_memory()", CAPTURED, "aten/src/ATen/cuda/CachingHostAllocator.cpp: a private pool"),
    Question("x.to('cpu', non_blocking=True)", CAPTURED, "aten/src/ATen/native/TensorConversions.cpp: pinned"),
    Question("x.copy_(y)", CAPTURED, GUIDE),
    Question("copy.deepcopy(x)", CAPTURED, "torch/storage.py: a copy on the device"),
    Question("x.zero_()", CAPTURED, GUIDE),
    Question("x[x > 0] = 0.0", CAPTURED, "aten/src/ATen/native/TensorAdvancedIndexing.cpp: masked_fill"),
    Question(
        "x * torch.tensor(2.0)", CAPTURED, "aten/src/ATen/native/cuda/Loops.cuh: a scalar of the CPU is an argument"
    ),
    # The lengths of ctc_loss. PyTorch 2.13 also copies the targets to the CPU, before it chooses a kernel.
    Question("F.ctc_loss(speech, i.view(1, 4), (9,), (4,))", WAITS, "aten/src/ATen/native/LossCTC.cpp: ctc_loss_impl"),
    Question("F.ctc_loss(speech, i[None], *lengths)", WAITS, "aten/src/ATen/native/LossCTC.cpp: ctc_loss_impl"),
    Question("F.ctc_loss(speech, i.int(), *device_lengths)", WAITS, "aten/src/ATen/native/LossCTC.cpp: ctc_loss"),
    Question("torch._ctc_loss(speech, i[None], (9,), (4,))", WAITS, "aten/src/ATen/native/cuda/LossCTC.cu: pageable"),
    Question("torch._ctc_loss(speech, i[None], *device_lengths)", WAITS, "aten/src/ATen/native/cuda/LossCTC.cu"),
    # Kernels without a meta kernel.
    Question(
        "F.multi_margin_loss(w[None], i[:1]).backward()", CAPTURED, "aten/src/ATen/native/cuda/MultiMarginLoss.cu"
    ),
    Question("torch.binomial(x, y)", CAPTURED, "aten/src/ATen/native/cuda/Distributions.cu"),
    # The state of streams, events and the device.
    Question("torch.cuda.synchronize()", WAITS, f"{GUIDE}: prohibited operations"),
    Question("torch.cuda.current_stream().synchronize()", WAITS, f"{GUIDE}: prohibited operations"),
    Question("torch.cuda.current_stream().query()", WAITS, f"{GUIDE}: prohibited operations"),
    Question(
        "torch.cuda.default_stream().query()", WAITS, f"{RUNTIME}: cudaThreadExchangeStreamCaptureMode, unsafe calls"
    ),
    Question("torch.cuda.current_stream().record_event().query()", "cudaErrorCapturedEvent", f"{RUNTIME}: cudaError_t"),
    Question(
        "torch.cuda.current_stream().record_event().synchronize()", "cudaErrorCapturedEvent", f"{RUNTIME}: cudaError_t"
    ),
    Question("torch.cuda.Event(external=True).record()", CAPTURED, f"{RUNTIME}: cudaEventRecordWithFlags"),
    Question("before.query()", WAITS, f"{RUNTIME}: cudaThreadExchangeStreamCaptureMode, unsafe calls"),
    Question("x.add_(1).record_stream(side)", CAPTURED, "c10/cuda/CUDACachingAllocator.cpp"),
    # Other streams.
    Question(
        "side.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(side):\n    x.add_(1)\n"
        "torch.cuda.current_stream().wait_stream(side)",
        CAPTURED,
        f"{GUIDE}: cross-stream dependencies",
    ),
    Question(
        "side.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(side):\n    x.add_(1)",
        CAPTURED,
        f"{RUNTIME}: cudaError_t",
        end="cudaErrorStreamCaptureUnjoined",
    ),
    Question(
        "torch.cuda.current_stream().wait_event(outside)", "cudaErrorStreamCaptureIsolation", f"{RUNTIME}: cudaError_t"
    ),
    Question(
        "torch.cuda.default_stream().wait_stream(torch.cuda.current_stream())",
        "cudaErrorStreamCaptureImplicit",
        f"{RUNTIME}: cudaError_t",
    ),
    Question("torch.cuda.CUDAGraph().capture_begin()", "cudaErrorIllegalState", f"{RUNTIME}: cudaStreamBeginCapture"),
    Question("graph_of_others.replay()", CAPTURED, f"{RUNTIME}: cudaGraphLaunch, a child graph"),
    # Memory.
    Question("torch.empty(1 << 24, device='cuda')", CAPTURED, f"{NOTES}: a private pool"),
    Question("in_thread(lambda: torch.empty(1 << 24, device='cuda'))", WAITS, f"{RUNTIME}: cudaMalloc is unsafe"),
    Question("torch.cuda.empty_cache()", WAITS, f"{RUNTIME}: cudaFree is unsafe"),
    Question("torch.cuda.memory_allocated()", CAPTURED, "c10/cuda/CUDACachingAllocator.cpp"),
    # Random numbers.
    Question("torch.rand(4, device='cuda')", CAPTURED, f"{NOTES}: philox"),
    Question("F.dropout(x)", CAPTURED, f"{NOTES}: philox"),
    Question("torch.bernoulli(x / 9)", CAPTURED, f"{NOTES}: philox"),
    Question("torch.multinomial(x, 1)", CAPTURED, "aten/src/ATen/native/Distributions.cpp: _assert_async"),
    Question("torch.cuda.get_rng_state()", NO_STATE, "aten/src/ATen/cuda/CUDAGeneratorImpl.cpp: current_seed()"),
    Question("torch.cuda.initial_seed()", NO_STATE, "aten/src/ATen/cuda/CUDAGeneratorImpl.cpp: current_seed()"),
    Question(
        "torch.cuda.set_rng_state(torch.zeros(16, dtype=torch.uint8))",
        "Please ensure to utilize the CUDAGeneratorImpl::set_state_index method during capturing. during CUDA graph capture",
        "aten/src/ATen/cuda/CUDAGeneratorImpl.cpp: set_state()",
    ),
    Question(
        "torch.Generator('cuda')",
        "Cannot construct a new CUDAGeneratorImpl during CUDA graph capture",
        "aten/src/ATen/cuda/CUDAGeneratorImpl.cpp: the constructor",
    ),
    Question("torch.cuda.manual_seed(99)", "only if new seed is the same", "aten/src/ATen/cuda/CUDAGeneratorImpl.cpp"),
    # Training.
    Question("F.mse_loss(x * w, y).backward()", CAPTURED, NOTES),
    Question("F.cross_entropy(x.view(2, 2), i[:2])", CAPTURED, NOTES),
    Question("nn.utils.clip_grad_norm_([w], 1.0)", CAPTURED, "torch/nn/utils/clip_grad.py"),
    Question("capturable.step()", CAPTURED, "torch/optim/optimizer.py"),
    Question("plain.step()", "param_groups' capturable is False", "torch/optim/optimizer.py"),
    Question("scaler.step(sgd)", WAITS, "torch/amp/grad_scaler.py: item() of found_inf"),
    Question("scaler.scale(x)", CAPTURED, "torch/amp/grad_scaler.py"),
    Question("torch._assert_async(x.sum() > 0)", CAPTURED, "aten/src/ATen/native/cuda/TensorCompare.cu"),
]

START = """
import copy, json, sys, threading
import torch
from torch import nn
from torch.nn import functional as F

def in_thread(call):
    errors = []
    def run():
        try:
            call()
        except RuntimeError as error:
            errors.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]

def start():
    x, y = torch.tensor([1.0, 2, 3, 5], device="cuda"), torch.zeros(4, device="cuda")
    i = torch.tensor([0, 1, 2, 3], device="cuda")
    pinned = torch.ones(4).pin_memory()
    mask, columns = torch.tensor([True, False, True, False]), torch.tensor([0, 2])
    SPARSE, table = torch.diag(x).to_sparse(), nn.Embedding(4, 2, sparse=True, device="cuda")
    speech, lengths = torch.zeros(9, 1, 5, device="cuda"), (torch.tensor([9]), torch.tensor([4]))
    device_lengths = [each.int().cuda() for each in lengths]
    w = torch.ones(4, device="cuda", requires_grad=True)
    w.grad = torch.ones_like(w)
    side = torch.cuda.Stream()
    before, outside = torch.cuda.Event(), torch.cuda.Event()
    before.record()
    capturable = torch.optim.AdamW([w], capturable=True)
    plain, sgd = torch.optim.AdamW([w]), torch.optim.SGD([w])
    for optimizer in (capturable, plain):
        optimizer.step()
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(x)
    scaler.unscale_(sgd)
    graph_of_others = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph_of_others):
        y.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y.add_(1)
        outside.record()
    torch.empty(1 << 23, device="cuda")  # a free segment
    return locals()

def ask(code):
    names = {**globals(), **start()}
    graph, answers = torch.cuda.CUDAGraph(), []
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        try:
            exec(code, names)
        except Exception as error:
            answers.append(str(error))
        else:
            answers.append("captured")
        names.get("y", None)
        try:
            graph.capture_end()
        except Exception as error:
            answers.append(str(error))
        else:
            answers.append("")
    torch.cuda.synchronize()
    assert (names["x"].cpu() == torch.tensor([1.0, 2, 3, 5])).all(), "something ran in the capture"
    return answers

import warnings
warnings.simplefilter("ignore")
print(json.dumps([ask(code) for code in json.loads(sys.stdin.read())]))
"""


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_capture_answers_as_cuda_does(run_python: Run, mode: str) -> None:
    codes = json.dumps([question.code for question in QUESTIONS])
    program = START.replace("sys.stdin.read()", repr(codes))
    result = run_python(textwrap.dedent(program), TORCH_OPENREG_AS="cuda", OPENREG_EXECUTION=mode, status=0)
    wrong = []
    for question, (answer, end) in zip(QUESTIONS, json.loads(result.stdout), strict=True):
        expected = CUDA_TEXTS.get(question.answer, question.answer)
        at_end = CUDA_TEXTS.get(question.end, question.end)
        if expected not in answer or (at_end not in end if at_end else question.answer == CAPTURED and end != ""):
            wrong.append(f"{question.code}: {answer!r}, and at the end {end!r}")
    assert not wrong, "\n".join(wrong)


def test_at_least_60_questions_have_a_source() -> None:
    assert len({question.code for question in QUESTIONS}) >= 60
    assert all(question.source for question in QUESTIONS)


WAITS_OF_A_GPU = ANSWERS / "waits.json"
UNSUPPORTED = "not supported in a capture yet"
# Why a capture refuses a statement for which a GPU's host does not wait.
REFUSED_WITHOUT_A_WAIT = {
    r"^(c|c\[::2\])\.to\(.*non_blocking|^x\.copy_\((c|torch\.tensor\(1\.0\)), non_blocking": "a copy from pageable memory",
    r"^(c|p\.double\(\))\.copy_\(x, non_blocking": "a copy to pageable memory",
    r"\.unique(_consecutive)?\(dim=0": "native/cuda/Unique.cu: Thrust waits, without a warning",
    r"^x\[:0\]\.unique\(\)|^torch\.bincount\(i\[:0\]\)": "the device counts elements, also if there are none",
    r"seed\(|rng_state|get_state|generator=g": "native/CUDAGeneratorImpl.cpp: the state of a generator",
    r"checkpoint\(torch\.sin": "torch/utils/checkpoint.py: get_rng_state()",
    r"torch\.optim\.\w+\(p.*\.step\(\)|^s\.step\(a\)": "torch/optim/optimizer.py: capturable is False",
    r"\.(synchronize|query|elapsed_time|empty_cache)\(": "CUDA's prohibited operations",
    r"coalesce\(\)$|^torch\.sparse\.sum\(s, 0\)": "native/sparse/cuda/SparseCUDATensor.cu: Thrust waits, without a warning",
    r"^torch\.sparse\.softmax": "native/sparse/cuda/SoftMax.cu: Thrust waits, without a warning",
    r"^torch\.sparse\.mm\((s, s|c, c)\)": "native/sparse/cuda: cuSPARSE counts the elements, without a warning",
}
CAPTURED_WITH_A_WAIT = {
    r"save_on_cpu\(pin_memory=True\)": "since PyTorch 2.13 it does not wait; the GPU answered with PyTorch 2.11",
}
if TORCH >= [2, 14]:
    CAPTURED_WITH_A_WAIT[r"^torch\.combinations\("] = "since PyTorch 2.14 it does not wait; the GPU answered with 2.11"
if TORCH >= [2, 15]:
    CAPTURED_WITH_A_WAIT[r"^[xy]\[[^\]]*(\[0\])?\] = \d"] = (
        "ATen/TensorIndexing.h: a number is filled in since PyTorch 2.15"
    )

ASK_ALL = """
import json, sys, warnings
import torch
import torch.nn.functional as F
warnings.simplefilter("ignore")

def ask(preparation, statement):
    names = {"DEVICE": "cuda", "module": torch.cuda, "torch": torch, "F": F}
    exec(preparation, names)
    torch.cuda.synchronize()
    graph, answers = torch.cuda.CUDAGraph(), []
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        for call in (lambda: exec(statement, names), graph.capture_end):
            try:
                call()
            except Exception as error:
                answers.append(str(error))
    return answers[:1]
"""


def test_what_a_gpu_waits_for_is_refused_in_a_capture_and_nothing_else(run_python: Run) -> None:
    asked = []
    for program, answer in json.loads(WAITS_OF_A_GPU.read_text())["answers"].items():
        if not program.startswith("waits(") or answer["value"][2] is not None:
            continue
        call = ast.parse(program, mode="eval").body
        if isinstance(call, ast.Call) and len(call.args) == 3:
            preparation, statement = (ast.literal_eval(argument) for argument in call.args[1:])
            asked.append((preparation, statement, answer["value"][0] > 0))
    program = ASK_ALL + f"print(json.dumps([ask(*each[:2]) for each in {asked!r}]))"
    answers = json.loads(run_python(program, TORCH_OPENREG_AS="cuda", status=0).stdout)
    wrong, used = [], set()
    for (_, statement, waits), answer in zip(asked, answers, strict=True):
        refused = any("captur" in text for text in answer)
        reasons = REFUSED_WITHOUT_A_WAIT if refused else CAPTURED_WITH_A_WAIT
        given = [each for each in reasons if re.search(each, statement)]
        if refused != waits:
            used.update(given)
        if UNSUPPORTED in str(answer) or (refused != waits and not given):
            wrong.append(f"{statement}: a GPU {'waits' if waits else 'does not wait'}, and here {answer}")
    assert not wrong, "\n".join(wrong)
    assert used == {*REFUSED_WITHOUT_A_WAIT, *CAPTURED_WITH_A_WAIT}


OF_THE_DATABASE = """
import itertools, json, warnings
import torch
from torch.testing._internal import common_methods_invocations as database
from torch.utils import _pytree as pytree
warnings.simplefilter("ignore")
database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # a capture refuses a seed

def copies(value):
    return pytree.tree_map_only(torch.Tensor, lambda each: each.detach().clone(), value)

def bits(value):
    tensors = [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]
    tensors = [each if each.layout == torch.strided else each.to_dense() for each in tensors]
    return [each.cpu().contiguous().view(-1).view(torch.uint8).tolist() for each in tensors if each.numel()]

def ask(op, sample):
    operands, others = (copies((sample.input, sample.args, sample.kwargs)) for _ in range(2))
    try:
        torch.manual_seed(1)
        expected = bits(op(operands[0], *operands[1], **operands[2]))
    except Exception:
        return "not asked"
    torch.manual_seed(1)
    graph, error = torch.cuda.CUDAGraph(), None
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        try:
            result = op(others[0], *others[1], **others[2])
        except Exception as raised:
            error = str(raised)
        try:
            graph.capture_end()
        except Exception as raised:
            error = error or str(raised)
    if error:
        return "refused" if "operation not permitted" in error and "yet" not in error else error
    graph.replay()
    torch.cuda.synchronize()
    return "captured" if bits(result) == expected else "other numbers"

answers = {}
for op in database.op_db:
    dtypes = [each for each in (torch.float32, torch.int64, torch.complex64, torch.bool) if each in op.dtypes]
    for sample in itertools.islice(op.sample_inputs("cuda", dtypes[0]) if dtypes else (), 3):
        answers.setdefault(ask(op, sample), set()).add(op.name)
print(json.dumps({answer: sorted(names) for answer, names in answers.items()}))
"""
# Their results hold what the memory held.
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
NOT_CAPTURED = {"histogramdd"}  # CUDA has no kernel of it


@pytest.mark.slow
def test_each_operator_is_captured_or_refused_as_on_cuda_and_replayed_with_the_bits_of_eager(run_python: Run) -> None:
    answers = json.loads(run_python(OF_THE_DATABASE, TORCH_OPENREG_AS="cuda", status=0).stdout)
    captured, refused, numbers = (set(answers.pop(each)) for each in ("captured", "refused", "other numbers"))
    answers.pop("not asked", None)
    assert {name for names in answers.values() for name in names} <= NOT_CAPTURED, answers
    assert all(UNSUPPORTED in answer for answer in answers)
    assert numbers <= UNINITIALIZED
    assert len(captured) > 500 and refused >= {"nonzero", "masked_select", "unique", "nn.functional.ctc_loss", "svd"}
