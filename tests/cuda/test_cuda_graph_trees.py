"""Graph trees of inductor under the name cuda: torch.compile(mode="reduce-overhead").

Nearly all programs call kernels of ATen only, so that little is compiled.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled import MODES, output_of, runner
from cuda_builds import AS_CUDA
from programs import Run

pytestmark = [AS_CUDA, pytest.mark.slow]

START = """
import re
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import cudagraph_trees

torch._inductor.config.triton.fast_path_cudagraph_asserts = True  # compares the pool with the living tensors
recordings, replays = [], []

def count(name, calls):
    original = getattr(cudagraph_trees.CUDAGraphNode, name)
    def counted(self, *args):
        calls.append(self)
        return original(self, *args)
    setattr(cudagraph_trees.CUDAGraphNode, name, counted)

count("_record", recordings)
count("run_graph", replays)

def compiled(compute, **options):
    return torch.compile(compute, mode="reduce-overhead", **options)

def skips():
    return counters["inductor"]["cudagraph_skips"]

def refused(call):
    try:
        call()
    except RuntimeError as error:
        assert "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run" in str(error)
    else:
        raise AssertionError("no error")

"""


@pytest.fixture
def python(inductor_cache: Path, tmp_path: Path) -> Run:
    environment = {"TORCH_OPENREG_AS": "cuda", "TORCHINDUCTOR_CACHE_DIR": str(inductor_cache)}
    return runner(tmp_path / "program.py", START, **environment)


@MODES
def test_a_function_is_recorded_once_and_then_replayed_for_each_input(python: Run, mode: str) -> None:
    code = """
    compute = compiled(lambda x, y: (x @ y, y @ y))
    with torch.no_grad():
        for step in range(5):
            x, y = torch.randn(4, 8, device="cuda"), torch.randn(8, 8, device="cuda")
            results = compute(x, y)
            for result, expected in zip(results, (x @ y, y @ y)):
                assert torch.equal(result, expected)
    assert (len(recordings), len(replays), skips()) == (1, 3, 0)
    assert torch._inductor.async_compile.AsyncCompile._ready_future is None  # no process was started for Triton
    """
    assert output_of(python(code, OPENREG_EXECUTION=mode)) == ""


def test_an_output_that_the_next_step_has_overwritten_is_refused_in_pytorch_s_words(python: Run) -> None:
    code = """
    compute = compiled(lambda x: x @ x)
    x = torch.ones(4, 4, device="cuda")
    with torch.no_grad():
        for step in range(3):  # the warm-up, the recording and a replay
            result = compute(x)
            if step > 0:
                for use in (lambda: old[0, 0].item(), lambda: old + 1, old.clone, lambda: old.add_(1), lambda: view.sum()):
                    refused(use)
            old, view = result, result[1]
        first = compute(x)
        second = compute(2 * x)
        assert first is second and first[0, 0].item() == 16  # as on a GPU: a replay returns the same tensor
        kept = first.clone()
        compute(x)
        assert kept[0, 0].item() == 16 and first[0, 0].item() == 4

        for step in range(3):  # a step of two calls keeps both results
            torch.compiler.cudagraph_mark_step_begin()
            first = compute(x)
            second = compute(3 * x)
            assert (first[0, 0].item(), second[0, 0].item()) == (4, 36)
            assert first.data_ptr() != second.data_ptr()
    assert (len(recordings), skips()) == (2, 0)
    """
    assert output_of(python(code)) == ""


def test_under_the_check_graph_a_result_that_is_kept_is_refused_in_every_step(python: Run) -> None:
    code = """
    from torch_openreg.openreg import sanitizer

    compute = compiled(lambda x: x @ x)
    x = torch.ones(4, 4, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            compute(x)
        before = len(replays)
        assert before > 0
        with sanitizer.enable("graph"):
            for _ in range(3):
                kept, copied = compute(x), compute(x).clone()
                refused(lambda: kept[0, 0].item())
                compute(2 * x)
                assert copied[0, 0].item() == 4
        assert len(replays) == before
        kept = compute(x)
        compute(2 * x)
        assert len(replays) == before + 2 and kept[0, 0].item() == 16
    """
    assert output_of(python(code)) == ""


@pytest.mark.parametrize("result", ["compute(x)", "compute(x).clone()"])
def test_a_program_that_keeps_a_result_ends_under_the_check_graph_with_pytorch_s_words(
    python: Run, result: str
) -> None:
    code = f"""
    compute = torch.compile(lambda x: x @ x, mode="reduce-overhead")
    x = torch.ones(4, 4, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            first = {result}
            second = compute(2 * x)
    print(first[0, 0].item())
    """
    is_right = "clone" in result
    program = python(code, OPENREG_SANITIZER="graph", status=0 if is_right else 1)
    if is_right:
        assert output_of(program) == "4.0"
    else:
        assert "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run" in program.stderr


def test_a_second_graph_follows_a_replay_and_spares_the_living_outputs_of_the_first(python: Run) -> None:
    code = """
    # Between two runs PyTorch compares the allocated blocks of the pool with the living tensors.
    eye, two = torch.eye(4, device="cuda"), 2 * torch.eye(4, device="cuda")
    first, second, third = (compiled(lambda x, y, n=n: (x @ y) if n else (y @ x @ y)) for n in (1, 0, 1))
    with torch.no_grad():
        for step, last in enumerate((second, second, second, third, third, third, second)):
            torch.compiler.cudagraph_mark_step_begin()
            a = first(step * eye, two)
            b = last(a, two)
            assert a[0, 0].item() == 2 * step and b[0, 0].item() == (8 if last is second else 4) * step
            assert a.data_ptr() != b.data_ptr()
            del a, b
    assert len(recordings) == 3 and skips() == 0
    """
    assert output_of(python(code)) == ""


def test_before_a_recording_the_pool_returns_to_the_tensors_that_live(python: Run) -> None:
    code = """
    import gc

    torch._inductor.config.triton.skip_cudagraph_warmup = True

    def graphed(compute, inputs):
        def call(arguments):
            own = list(arguments)
            arguments.clear()
            return compute(own.pop())
        return cudagraph_trees.cudagraphify_impl(call, inputs, (), device_index=0, is_inference=True, is_backward=False)

    def checkpoints():
        return cudagraph_trees.get_container(0).tree_manager.debug_checkpointing_counter

    def segments():
        return [each for each in torch.cuda.memory_snapshot() if each["segment_pool_id"] != (0, 0)]

    def living():
        return sum(block["state"] == "active_allocated" for segment in segments() for block in segment["blocks"])

    def outputs(x):
        parts = [x * number for number in range(1, 6)]  # freed in the capture: gaps of small and of large blocks
        whole = torch.cat(parts)
        return whole.sum(0, keepdim=True), parts[2], parts[4][:1], parts[4][1:]

    for size in (4, 600_000):
        x = torch.rand(size, device="cuda")
        first = graphed(outputs, [x])
        first([x])
        for number in range(3):  # a replay, and then a recording that takes the second output
            total, third, head, tail = first([x])
            inputs = [third]
            del total, third, head  # `tail` keeps their memory
            second = graphed(lambda x: (x * number, x + number), inputs)
            results = second(inputs)
            assert checkpoints() == number + 1 and living() == 3
            assert torch.equal(results[0], x * 3 * number) and torch.equal(results[1], x * 3 + number)
            assert torch.equal(tail, (x * 5)[1:])
            del results, tail
            assert living() == 0
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        assert not segments()
    """
    assert output_of(python(code)) == ""


def test_a_training_step_equals_the_one_without_graphs(python: Run) -> None:
    code = """
    def train(**options):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Dropout(0.3), nn.Linear(16, 3, bias=False)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        compute, losses = torch.compile(model, **options), []
        for _ in range(5):
            optimizer.zero_grad()
            loss = compute(torch.randn(4, 8, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    expected = train()
    assert not recordings
    assert train(mode="reduce-overhead") == expected
    assert len(recordings) == 2  # forward and backward
    """
    assert output_of(python(code)) == ""


def test_an_operator_that_waits_and_a_tensor_of_the_cpu_stay_out_of_graphs(python: Run) -> None:
    code = """
    def compute(x, y):
        count = (x @ x).nonzero().size(0)
        return x @ x, y @ y, count

    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    x, y = torch.ones(4, 4, device="cuda"), torch.ones(4, 4)
    call = compiled(compute)
    with torch.no_grad():
        for _ in range(3):
            on_device, on_cpu, count = call(x, y)
            assert on_device[0, 0].item() == on_cpu[0, 0].item() == 4 and count == 16
    assert recordings and counters["inductor"]["cudagraph_partitions"] > 1
    """
    assert output_of(python(code)) == ""


def test_a_buffer_may_change_in_a_graph_and_an_input_may_not(python: Run) -> None:
    code = """
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4, 4))

        def forward(self, x):
            self.mean.addmm_(x, x, beta=0.5)
            return self.mean @ x

    eager, module, x = Mean().cuda(), Mean().cuda(), torch.randn(4, 4, device="cuda")
    graphed = compiled(module)
    with torch.no_grad():
        for _ in range(4):
            assert torch.equal(graphed(x), eager(x))
            assert torch.equal(module.mean, eager.mean)
        assert (len(recordings), len(replays), skips()) == (1, 2, 0)

        def change(y):
            y.addmm_(x, x)
            return y @ x
        compiled(change)(torch.ones(4, 4, device="cuda"))
    assert skips() == 1
    """
    result = python(code)
    assert "skipping cudagraphs due to mutated inputs (1 instances)" in result.stderr


def test_each_size_of_a_dynamic_shape_has_a_recording_of_its_own(python: Run) -> None:
    code = """
    compute = compiled(lambda x: x @ x.T, dynamic=True)
    with torch.no_grad():
        for size in (3, 5, 3, 5, 3, 5, 7):
            x = torch.randn(size, 4, device="cuda")
            assert torch.equal(compute(x), x @ x.T)
    assert [node.outputs_metadata[0]["size"][0] for node in recordings] == [3, 5]
    assert (len(replays), skips()) == (2, 0)
    """
    assert output_of(python(code)) == ""


def test_dynamo_s_backend_cudagraphs_records_too_and_the_sanitizer_finds_nothing(python: Run) -> None:
    code = """
    compute = torch.compile(lambda x: (x.sin() + 1).sum(0), backend="cudagraphs")
    for _ in range(4):
        x = torch.randn(5, 3, device="cuda")
        assert torch.equal(compute(x), (x.sin() + 1).sum(0))
    assert (len(recordings), len(replays)) == (1, 2)
    """
    assert output_of(python(code, OPENREG_SANITIZER="race,init,memory,leak", OPENREG_EXECUTION="async")) == ""
