"""Simulated time in dry execution: each value follows from the rates of the device model by arithmetic."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import programs
import pytest

from torch_openreg.simulator._cli import _dry_time

RATES = {
    "flops_float32": 1e12,
    "flops_float16": 4e12,
    "flops_tf32": 2e12,
    "memory_bandwidth": 1e12,
    "memory_efficiency": 0.8,
    "matmul_efficiency": 0.5,
    "convolution_efficiency": 0.25,
    "attention_efficiency": 0.2,
    "attention_backward_efficiency": 0.1,
    "host_bandwidth": 1e10,
    "peer_bandwidth": 1e11,
    "peer_efficiency": 0.5,
    "network_bandwidth": 2e10,
    "network_efficiency": 0.5,
    "peer_latency": 1e-4,
    "network_latency": 1e-3,
    "collective_latency": 1e-2,
    "kernel_latency": 1e-3,
    "launch_time": 0,
}
MEMORY = 0.8e12  # bytes per second that kernels reach
LATENCY = 1.0  # ms
N = 1 << 22  # elements of a large tensor


def model(folder: Path, **changed: float) -> Path:
    file = folder / "model.json"
    rates = {name: {"value": value, "source": "this test"} for name, value in (RATES | changed).items()}
    file.write_text(json.dumps({"rates": rates}))
    return file


PRELUDE = f"""
import json, torch
D = torch.accelerator.current_accelerator()
N = {N}
def timed(fn):
    '''The milliseconds between two events around fn().'''
    events = [torch.Event(D, enable_timing=True) for _ in range(2)]
    events[0].record()
    fn()
    events[1].record()
    torch.accelerator.synchronize()
    return events[0].elapsed_time(events[1])
def flops(fn):
    before = torch.openreg.dry.clock()
    fn()
    return torch.openreg.dry.clock().since(before).flops
x, y, half = torch.empty(N, device=D), torch.empty(N, device=D), torch.empty(N, device=D, dtype=torch.float16)
square, half_square = x.view(2048, 2048), half.view(2048, 2048)
torch.accelerator.synchronize()
found = {{}}
"""


def python(code: str, file: Path, **variables: str) -> Any:
    """What the program, which fills ``found``, has found."""
    done = programs.python(
        PRELUDE + code + "\nprint(json.dumps(found))",
        status=0,
        OPENREG_DRY="64K",
        OPENREG_MODEL=str(file),
        **variables,
    )
    return json.loads(done.stdout)


SNIPPETS = """
found["matmul"] = timed(lambda: square @ square)
found["half_matmul"] = timed(lambda: half_square @ half_square)
torch.set_float32_matmul_precision("high")
found["tf32_matmul"] = timed(lambda: square @ square)
torch.set_float32_matmul_precision("highest")
found["add"] = timed(lambda: x + y)
found["add_in_place"] = timed(lambda: x.add_(y))
found["fill"] = timed(lambda: x.fill_(1))
found["broadcast"] = timed(lambda: square + y[:2048])
ids = torch.arange(1000).to(D)
found["embedding"] = timed(lambda: torch.nn.functional.embedding(ids, square))
found["foreach"] = timed(lambda: torch._foreach_add_([x, y], 1))
found["two_kernels"] = timed(lambda: (x + y, x + y))
found["nothing"] = timed(lambda: None)
host, pinned = torch.empty(N), torch.empty(N).pin_memory()
found["to_device"] = timed(lambda: x.copy_(host))
found["to_host"] = timed(lambda: host.copy_(x))
found["on_device"] = timed(lambda: x.copy_(y))

main, side = torch.accelerator.current_stream(), torch.Stream(D)
def overlap(waits):
    side.wait_stream(main)
    square @ square
    if waits:
        side.wait_stream(main)
    with side:
        square @ square
    main.wait_stream(side)
found["side_by_side"] = timed(lambda: overlap(False))
found["one_after_another"] = timed(lambda: overlap(True))
before = torch.openreg.dry.clock()
square @ square
after = torch.openreg.dry.clock().since(before)
found["clock"] = [after.seconds, after.compute, after.memory, after.latency, after.flops, after.peak_seconds]
found["kernels"] = after.kernels
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder: Path = tmp_path_factory.mktemp("models")
    result: dict[str, Any] = python(SNIPPETS, model(folder))
    return result


def by_bytes(count: float, bandwidth: float = MEMORY) -> float:
    return count / bandwidth * 1e3


PRODUCT = 2 * 2048**3 / (1e12 * 0.5) * 1e3  # ms of `square @ square`
EXPECTED = {
    "matmul": PRODUCT + LATENCY,
    "half_matmul": PRODUCT / 4 + LATENCY,
    "tf32_matmul": PRODUCT / 2 + LATENCY,
    "add": by_bytes(3 * 4 * N) + LATENCY,
    "add_in_place": by_bytes(3 * 4 * N) + LATENCY,
    "fill": by_bytes(4 * N) + LATENCY,
    "broadcast": by_bytes(2 * 4 * N + 4 * 2048) + LATENCY,
    "embedding": by_bytes(1000 * (2 * 4 * 2048 + 2 * 8)) + LATENCY,
    "foreach": by_bytes(4 * 4 * N) + LATENCY,
    "two_kernels": 2 * (by_bytes(3 * 4 * N) + LATENCY),
    "nothing": 0,
    "to_device": by_bytes(4 * N, 1e10) + LATENCY,
    "to_host": by_bytes(4 * N, 1e10) + LATENCY,
    "on_device": by_bytes(2 * 4 * N) + LATENCY,
    "side_by_side": PRODUCT + LATENCY,
    "one_after_another": 2 * (PRODUCT + LATENCY),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_work_takes_its_operations_or_its_bytes_at_the_models_rates_and_a_latency(
    found: dict[str, Any], name: str
) -> None:
    assert found[name] == pytest.approx(EXPECTED[name], rel=1e-5)


def test_the_clock_says_what_bounds_the_kernels(found: dict[str, Any]) -> None:
    work = PRODUCT / 1e3
    assert found["clock"] == pytest.approx([work + 1e-3, work, 0, 1e-3, 2 * 2048**3, work / 2])
    assert found["kernels"] == {"aten::mm": [1, pytest.approx(work + 1e-3), 2 * 2048**3, 2 * 4 * N]}


def test_a_stream_is_idle_while_the_host_launches(tmp_path: Path) -> None:
    code = """
x + y
torch.accelerator.synchronize()
before = torch.openreg.dry.clock()
found["time"] = timed(lambda: [x + y for _ in range(10)])
after = torch.openreg.dry.clock().since(before)
found["stream"], found["seconds"] = after.streams[0], after.seconds
"""
    found = python(code, model(tmp_path, launch_time=5e-3, kernel_latency=0))
    kernel = by_bytes(3 * 4 * N)  # less than a launch
    assert found["time"] == pytest.approx(10 * 5 + kernel, rel=1e-5)
    _, busy, idle_for_launch, idle_for_work = found["stream"]
    assert (busy, idle_for_work) == (pytest.approx(10 * kernel / 1e3), 0)
    assert found["seconds"] == pytest.approx((10 * 5 + kernel) / 1e3)
    assert idle_for_launch == pytest.approx(found["seconds"] - busy)


def test_a_program_that_reads_values_waits_and_cannot_launch_ahead(tmp_path: Path) -> None:
    code = """
def step(reads):
    total = square @ square
    if reads:
        total.sum().item()
for reads in (False, True):
    before = torch.openreg.dry.clock()
    for _ in range(4):
        step(reads)
    found[reads] = torch.openreg.dry.clock().since(before).streams[0].idle_for_launch
"""
    found = python(code, model(tmp_path, launch_time=5e-3))
    # The product of a step is launched 5 ms after the value of the step before was read; the rest while it runs.
    assert found["false"] == pytest.approx(0)
    assert found["true"] == pytest.approx(3 * 5e-3)


def test_the_operations_are_those_of_pytorchs_flop_counter(tmp_path: Path) -> None:
    code = """
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
F = torch.nn.functional
def t(*sizes):
    return torch.empty(*sizes, device=D, requires_grad=True)
PROGRAMS = {
    "mm": lambda: t(300, 40) @ t(40, 500),
    "addmm": lambda: F.linear(t(8, 30, 40), t(50, 40), t(50)),
    "bmm": lambda: t(7, 300, 40) @ t(7, 40, 50),
    "baddbmm": lambda: torch.baddbmm(t(7, 300, 50), t(7, 300, 40), t(7, 40, 50)),
    "conv1d": lambda: F.conv1d(t(4, 8, 100), t(16, 8, 3), padding=1),
    "conv2d": lambda: F.conv2d(t(4, 8, 32, 30), t(16, 8, 3, 5), stride=(2, 1), padding=(1, 0), dilation=2),
    "groups": lambda: F.conv2d(t(4, 8, 32, 30), t(16, 4, 3, 5), groups=2).detach().requires_grad_(),
    "conv3d": lambda: F.conv3d(t(2, 4, 9, 8, 7), t(6, 4, 3, 3, 3)),
    "transposed": lambda: F.conv_transpose2d(t(2, 8, 16, 16), t(8, 4, 3, 3), stride=2),
}
for name, program in PROGRAMS.items():
    with FlopCounterMode(display=False) as counter:
        counted = flops(lambda: program().sum().backward())
    found[name] = [counted, counter.get_total_flops()]
q, k, v = (2, 4, 50, 16), (2, 4, 60, 16), (2, 4, 60, 16)
formula = sdpa_flop_count(q, k, v) + sdpa_backward_flop_count(q, q, k, v)
for is_causal, share in ((False, 1), (True, 0.5)):
    attend = lambda: F.scaled_dot_product_attention(t(*q), t(*k), t(*v), is_causal=is_causal).sum().backward()
    found[f"attention {is_causal}"] = [flops(attend), formula * share]
"""
    found = python(code, model(tmp_path))
    assert len(found) == 11
    assert {name: each[0] for name, each in found.items()} == {name: each[1] for name, each in found.items()}
    assert all(each[0] > 0 for each in found.values())


def test_a_model_without_rates_keeps_real_time(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text('{"about": "nothing is known"}')
    found = python('found["clock"], found["time"] = torch.openreg.dry.clock(), timed(lambda: square @ square)', file)
    assert found["clock"] is None and found["time"] >= 0


# Eight ranks, four on each host. The ring's bandwidth is the lesser of 0.5e11 within a host and four times 1e10 between two;
# a step takes 0.1 ms within a host and 1 ms between two. A collective takes 10 ms besides.
WORLD = """
import torch.distributed as dist
dist.init_process_group()
host, pair = dist.new_group([0, 1, 2, 3]), dist.new_group([0, 4])
many = torch.empty(8 * N, device=D)
def waited():
    work = dist.all_reduce(x, async_op=True)
    half_square @ half_square
    work.wait()
    y.add_(1)
def future():
    done = dist.all_reduce(x, async_op=True).get_future()
    half_square @ half_square
    done.wait()
    y.add_(1)
calls = {
    "all_reduce": lambda: dist.all_reduce(x),
    "all_reduce host": lambda: dist.all_reduce(x, group=host),
    "all_reduce pair": lambda: dist.all_reduce(x, group=pair),
    "all_gather": lambda: dist.all_gather_into_tensor(many, x),
    "all_gather list": lambda: dist.all_gather(list(many.chunk(8)), x),
    "reduce_scatter": lambda: dist.reduce_scatter_tensor(x, many),
    "broadcast": lambda: dist.broadcast(x, 0),
    "all_to_all": lambda: dist.all_to_all_single(y, x),
    "send": lambda: dist.send(x, 1),
    "recv": lambda: dist.recv(x, 7),
    "barrier": lambda: dist.barrier(),
    "alone": lambda: dist.all_reduce(x, group=alone),
    "waited": waited,
    "future": future,
}
alone = dist.new_group([0])
for name, call in calls.items():
    torch.accelerator.synchronize()
    before = torch.openreg.dry.clock()
    call()
    torch.accelerator.synchronize()
    spent = torch.openreg.dry.clock().since(before)
    found[name] = [spent.seconds * 1e3, spent.communication * 1e3, spent.exposed_communication * 1e3]
"""
WITHIN, BETWEEN = 0.5e11, 1e10
STEPS = 6 * 0.1 + 1  # ms
COLLECTIVES = {
    "all_reduce": 10 + 2 * (by_bytes(4 * N, 4 * BETWEEN) + 3 * 0.1 + 1),  # a tree
    "all_reduce host": 10 + 2 * (by_bytes(4 * N * 3 / 4, WITHIN) + 3 * 0.1),
    "all_reduce pair": 10 + 2 * (by_bytes(4 * N / 2, BETWEEN) + 1),
    "all_gather": 10 + by_bytes(4 * N * 7, 4 * BETWEEN) + STEPS,
    "all_gather list": 10 + by_bytes(4 * N * 7, 4 * BETWEEN) + STEPS,
    "reduce_scatter": 10 + by_bytes(4 * N * 7, 4 * BETWEEN) + STEPS,
    "broadcast": 10 + by_bytes(4 * N * 7 / 8, 4 * BETWEEN) + STEPS,
    "all_to_all": 10 + by_bytes(4 * N / 2, BETWEEN) + 1,
    "send": 10 + by_bytes(4 * N, WITHIN) + 0.1,
    "recv": 10 + by_bytes(4 * N, BETWEEN) + 1,
    "barrier": 10 + 2 * (3 * 0.1 + 1),
    "alone": 0,
}


def test_a_collective_takes_its_bytes_and_its_steps_at_the_models_rates(tmp_path: Path) -> None:
    variables = {"OPENREG_DRY_WORLD": "8", "RANK": "0", "OPENREG_DEVICE_COUNT": "4"}
    found = python(WORLD, model(tmp_path), **variables)
    for name, seconds in COLLECTIVES.items():
        assert found[name] == pytest.approx([seconds, seconds, seconds], rel=1e-4), name
    # The product runs beside the collective, and the addition after it.
    communication = COLLECTIVES["all_reduce"]
    addition = by_bytes(2 * 4 * N) + LATENCY
    expected = [communication + addition, communication, communication - PRODUCT / 4 - LATENCY]
    for name in ("waited", "future"):
        assert found[name] == pytest.approx(expected, rel=1e-4), name


TRAINING = """
import torch
D = torch.accelerator.current_accelerator()
layer = torch.nn.Linear(2048, 2048, bias=False, device=D)
optimizer = torch.optim.SGD(layer.parameters())
x = torch.empty(2048, 2048, device=D)
for _ in range(4):
    optimizer.zero_grad()
    layer(x).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def trained(dry: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Callable[..., tuple[str, dict[str, Any]]]:
    """Gives the output and the answer of the command for TRAINING."""

    def run(*arguments: str | Path) -> tuple[str, dict[str, Any]]:
        program, answer = tmp_path / "train.py", tmp_path / "answer.json"
        program.write_text(TRAINING)
        status, output, errors = dry("--json", answer, *arguments, program)
        assert (status, errors) == (0, "")
        return output, json.loads(answer.read_text())

    return run


def test_the_command_estimates_the_time_of_a_step(
    trained: Callable[..., tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    output, answer = trained("--model", model(tmp_path, launch_time=1e-6), "--html", page)
    # The sum, its gradient, the layer and the layer's gradient, the update; the gradient is a new tensor in each step.
    kernels = {each["name"]: each for each in answer["time"]["kernels"]}
    products = kernels["aten::mm"]
    assert products["count"] == 3 * 2 and products["seconds"] == pytest.approx(6 * (PRODUCT + LATENCY) / 1e3)
    seconds = sum(each["seconds"] for each in kernels.values())
    assert answer["step_seconds"] == pytest.approx(seconds / 3, rel=1e-3)
    assert answer["seconds"] > 4 * answer["step_seconds"]
    assert answer["time"]["is_estimate"] and answer["time"]["steps"] == 3
    assert sum(answer["time"]["bound_by"].values()) == pytest.approx(1)
    assert answer["time"]["utilization"] == pytest.approx(6 * PRODUCT / 2 / 1e3 / seconds, rel=1e-3)
    assert "Estimated time (" in output and "6 x aten::mm" in output
    assert "<h2>Estimated time</h2>" in page.read_text()


def test_the_command_says_that_it_estimates_no_time(trained: Callable[..., tuple[str, dict[str, Any]]]) -> None:
    output, answer = trained()
    assert answer["step_seconds"] is None and answer["seconds"] is None and answer["time"] is None
    assert "No time is estimated: the device model has no rates" in output


@pytest.mark.parametrize(("seconds", "text"), [(2.5, "2.5 s"), (1234.6, "1235 s"), (0.0123, "12.3 ms"), (8e-6, "8 us")])
def test_times_are_written_with_a_unit(seconds: float, text: str) -> None:
    assert _dry_time.span(seconds) == text


def test_a_replay_of_a_graph_takes_the_time_of_its_kernels_and_one_launch(tmp_path: Path) -> None:
    code = """
stream = torch.Stream(D)
out = torch.empty_like(square)
def work():
    torch.mm(square, square, out=out)
    torch.add(x, y, out=x)
    torch.add(x, y, out=x)
with stream:
    work()
    torch.accelerator.synchronize()
    graph = torch.accelerator.Graph()
    before = torch.openreg.dry.clock()
    with graph:
        work()
    found["capture"] = torch.openreg.dry.clock().since(before).kernels
    torch.accelerator.synchronize()
    before = torch.openreg.dry.clock()
    graph.replay()
    graph.replay()
    torch.accelerator.synchronize()
after = torch.openreg.dry.clock().since(before)
found["kernels"] = {name: [each.count, each.flops] for name, each in after.kernels.items()}
found["seconds"], found["reads"] = after.seconds, [each.how for each in torch.openreg.dry.assumed_reads()]
"""
    found = python(code, model(tmp_path, launch_time=1e-4))
    assert found["capture"] == {} and found["reads"] == []
    assert found["kernels"] == {"aten::mm.out": [2, 2 * 2 * 2048**3], "aten::add.out": [4, 0]}
    of_replay = PRODUCT + LATENCY + 2 * (by_bytes(3 * 4 * N) + LATENCY)
    assert found["seconds"] * 1e3 == pytest.approx(0.1 + 2 * of_replay, rel=1e-5)
