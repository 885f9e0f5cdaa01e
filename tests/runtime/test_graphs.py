"""Graphs of PyTorch (torch.accelerator.Graph): what a capture takes and refuses, and what a replay computes."""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import DEVICE_0
from torch import nn
from torch.nn import functional as F

from torch_openreg import openreg

pytestmark = pytest.mark.filterwarnings("ignore:The .* Graph is empty")  # of captures that are refused

PERMITTED = "operation not permitted when stream is capturing"


@pytest.fixture(autouse=True, params=["inline", "async", "chaos"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    with openreg.execution_mode(request.param, seed=7):
        yield request.param
        torch.accelerator.synchronize()


def captured(
    compute: Callable[[], object], stream: torch.Stream | None = None, pool: tuple[int, int] | None = None
) -> torch.accelerator.Graph:
    graph = torch.accelerator.Graph(pool=pool)
    with stream or torch.Stream(), graph:
        compute()
    return graph


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).to(DEVICE_0)


@contextlib.contextmanager
def refused(text: str) -> Iterator[None]:
    """The block is captured, and raises an error with this text. Afterwards the stream captures no more."""
    graph = torch.accelerator.Graph()
    with torch.Stream() as stream:
        torch.accelerator.synchronize()
        graph.capture_begin()
        try:
            with pytest.raises(RuntimeError, match=text):
                yield
        finally:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
        assert not stream.is_capturing()


# ---- Capture and replay ----------------------------------------------------------------------------------------------


def test_a_capture_runs_nothing_and_a_replay_runs_all() -> None:
    x, y = vector(1, 2), vector(7, 7)

    def compute() -> None:
        y.copy_(x * 2 + 1)
        x.add_(1)

    graph = captured(compute)
    assert (x.tolist(), y.tolist()) == ([1, 2], [7, 7])
    graph.replay()
    assert (x.tolist(), y.tolist()) == ([2, 3], [3, 5])
    graph.replay()
    assert (x.tolist(), y.tolist()) == ([3, 4], [5, 7])
    x.copy_(vector(10, 20))
    graph.replay()
    assert y.tolist() == [21, 41]


def test_a_model_gives_the_eager_result_of_each_new_input() -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(8), nn.LayerNorm(8)]
    model = nn.Sequential(*layers, nn.Softmax(-1)).to(DEVICE_0).eval()
    inputs = [torch.randn(3, 1, 8, 8, device=DEVICE_0) for _ in range(3)]
    static = inputs[0].clone()
    outputs = []
    with torch.no_grad():
        expected = [model(each) for each in inputs]
        graph = captured(lambda: outputs.append(model(static)))
        for each, eager in zip(inputs, expected, strict=True):
            static.copy_(each)
            graph.replay()
            assert torch.equal(outputs[0], eager)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_captured_training_step_equals_the_uncaptured_one(optimizer: str) -> None:
    def train(capture: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)).to(DEVICE_0)
        batches = [(torch.randn(4, 6, device=DEVICE_0), torch.randn(4, 2, device=DEVICE_0)) for _ in range(6)]
        if optimizer == "sgd":
            updates: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        else:
            updates = torch.optim.Adam(model.parameters(), lr=0.1, capturable=True)
        x, target = batches[0][0].clone(), batches[0][1].clone()

        def step() -> None:
            updates.zero_grad(set_to_none=True)
            F.mse_loss(model(x), target).backward()
            updates.step()

        stream, run = torch.Stream(), step
        torch.accelerator.synchronize()
        with stream:  # the same stream for the first steps, as for CUDA's graphs
            for i, (new_x, new_target) in enumerate(batches):
                x.copy_(new_x)
                target.copy_(new_target)
                if capture and i == 2:
                    graph = torch.accelerator.Graph()
                    with graph:
                        step()
                    run = graph.replay
                run()
            stream.synchronize()
        return [parameter.detach().cpu() for parameter in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(train(False), train(True), strict=True))


def test_branches_on_two_streams_join_and_give_the_eager_result() -> None:
    x, out = vector(3), vector(0)
    first, second = torch.Stream(), torch.Stream()
    graph = torch.accelerator.Graph()
    with first, graph:
        y = x * 2
        second.wait_stream(first) if hasattr(second, "wait_stream") else second.wait_event(first.record_event())
        with second:
            z = x * 5
        first.wait_event(second.record_event())
        out.copy_(y + z)
    for value in (3, 4):
        x.fill_(value)
        graph.replay()
        assert out.tolist() == [7 * value]


def test_a_replay_runs_with_the_settings_of_the_capture_and_leaves_those_of_the_program() -> None:
    x, out = vector(1), vector(0)

    def compute() -> None:
        with torch.no_grad():
            out.copy_(x + 1)

    graph = captured(compute)
    assert torch.is_grad_enabled()
    graph.replay()
    assert torch.is_grad_enabled() and out.tolist() == [2]
    with torch.inference_mode():
        graph.replay()
        assert torch.is_inference_mode_enabled()


def test_a_failure_of_a_replayed_kernel_names_the_operator_and_the_graph_still_works() -> None:
    x, index, out = vector(1, 2), torch.tensor([1]).to(DEVICE_0), vector(0)
    graph = captured(lambda: out.copy_(x[index]))
    index.fill_(5)
    graph.replay()
    with pytest.raises(IndexError, match="out of bounds.*index|index.*out of bounds|out of range"):
        torch.accelerator.synchronize()
    index.fill_(0)
    graph.replay()
    assert out.tolist() == [1]


def test_the_stream_says_that_it_captures() -> None:
    stream, graph = torch.Stream(), torch.accelerator.Graph()
    with stream, graph:
        inside = stream.is_capturing()
    assert inside and not stream.is_capturing()


# ---- Memory ----------------------------------------------------------------------------------------------------------


def test_the_pool_of_a_graph_keeps_its_memory_until_reset() -> None:
    x = torch.ones(1 << 20, device=DEVICE_0)
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    before = torch.accelerator.memory_reserved()
    outputs = []
    graph = captured(lambda: outputs.append(x + 1))
    address = outputs[0].data_ptr()
    outputs.clear()
    assert torch.accelerator.memory_reserved() > before
    others = [torch.empty(1 << 20, device=DEVICE_0) for _ in range(8)]
    assert address not in [each.data_ptr() for each in others]
    graph.replay()
    graph.reset()
    others.clear()
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() == before
    with pytest.raises(RuntimeError, match="Graph::replay without a preceding successful capture"):
        graph.replay()
    with torch.Stream(), graph:  # after reset() the object captures again
        x.add_(1)
    graph.replay()
    assert x[0].item() == 2


def test_two_graphs_share_a_pool() -> None:
    x, stream = torch.ones(1 << 20, device=DEVICE_0), torch.Stream()
    first: list[torch.Tensor] = []
    a = captured(lambda: first.append(x + 1), stream)
    address = first.pop().data_ptr()
    second: list[torch.Tensor] = []
    b = captured(lambda: second.append(x + 2), stream, a.pool())
    assert a.pool() == b.pool() and second[0].data_ptr() == address
    a.reset()
    b.replay()
    assert second[0][0].item() == 3


def test_a_block_that_another_stream_uses_can_be_freed_in_a_capture() -> None:
    x = torch.ones(1 << 18, device=DEVICE_0)
    other = torch.Stream()
    torch.accelerator.synchronize()
    x.record_stream(other)
    y = vector(1)
    graph = torch.accelerator.Graph()
    with torch.Stream(), graph:
        del x
        y.add_(1)
        torch.empty(1 << 18, device=DEVICE_0)
    graph.replay()
    assert y.tolist() == [2]


def test_an_emptied_cache_is_refused_in_a_capture_and_loses_no_memory() -> None:
    torch.empty(1 << 22, device=DEVICE_0)  # a free segment
    before = torch.accelerator.memory_reserved()
    with refused(PERMITTED):
        torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() >= before
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() < before


def test_a_graph_that_ends_during_another_capture_does_not_disturb_it() -> None:
    x = vector(1)
    graph = captured(lambda: x.add_(torch.ones(1 << 20, device=DEVICE_0)[:1]))

    def compute() -> None:
        nonlocal graph
        del graph
        gc.collect()
        x.mul_(3)

    other = captured(compute)
    other.replay()
    assert x.tolist() == [3]


# ---- Random numbers --------------------------------------------------------------------------------------------------


def test_replays_continue_the_random_sequence_as_eager_calls_do() -> None:
    x, out = torch.ones(64, device=DEVICE_0), torch.empty(64, device=DEVICE_0)
    compute = lambda: out.copy_(F.dropout(x, 0.5) + torch.rand_like(x))  # noqa: E731
    openreg.manual_seed(5)
    eager = [compute().cpu() for _ in range(3)]
    graph = captured(compute)
    openreg.manual_seed(5)
    replayed = []
    for i in range(3):
        if i == 1:
            with torch.Stream() as stream:
                stream.wait_event(torch.accelerator.current_stream(0).record_event())
                graph.replay()
                stream.synchronize()
        else:
            graph.replay()
        replayed.append(out.cpu())
    assert all(torch.equal(a, b) for a, b in zip(eager, replayed, strict=True))
    assert not torch.equal(replayed[0], replayed[1])


def test_another_generator_takes_part_in_a_capture_since_pytorch_2_14() -> None:
    own, x = torch.Generator(DEVICE_0).manual_seed(4), vector(0, 0)
    expected = [torch.rand(2, generator=own, device=DEVICE_0) for _ in range(2)]
    own.manual_seed(4)
    if torch.__version__ < "2.14":
        with refused("RNG op during graph capture but generator is not registered with the capturing graph"):
            x.uniform_(generator=own)
        return
    graph = captured(lambda: x.uniform_(generator=own))
    for numbers in expected:
        graph.replay()
        assert torch.equal(x, numbers)


def test_a_capture_allows_only_the_seed_that_the_generator_has() -> None:
    x = vector(1)
    openreg.manual_seed(1)

    def compute() -> None:
        openreg.manual_seed(1)
        x.add_(1)

    captured(compute).replay()
    assert x.tolist() == [2]
    with refused("can be called during stream capture only if new seed is the same as the original seed"):
        openreg.manual_seed(2)
    with refused("Cannot call OpenRegGeneratorImpl::current_seed during OpenReg graph capture. The call would take"):
        openreg.get_rng_state()
    with refused("Cannot construct a new OpenRegGeneratorImpl during OpenReg graph capture."):
        torch.Generator(DEVICE_0)


# ---- Refusals --------------------------------------------------------------------------------------------------------


PINNED = torch.ones(4).pin_memory()
REFUSED: dict[str, tuple[str, Callable[[torch.Tensor], object]]] = {
    "item": (PERMITTED, lambda x: x.sum().item()),
    "bool": (PERMITTED, lambda x: bool(x[0])),
    "cpu": (PERMITTED, lambda x: x.cpu()),
    "nonzero": (PERMITTED, lambda x: x.nonzero()),
    "mask": (PERMITTED, lambda x: x[x > 0]),
    "put through a mask": (PERMITTED, lambda x: x.index_put_((x > 1,), torch.ones(2, device=x.device))),
    "equal": (PERMITTED, lambda x: torch.equal(x, x + 1)),
    "unique": (PERMITTED, lambda x: torch.unique(x)),
    "pageable": (PERMITTED, lambda x: x.copy_(torch.ones(4), non_blocking=True)),
    "pageable, cast": (PERMITTED, lambda x: x.copy_(torch.ones(4, dtype=torch.float64), non_blocking=True)),
    "constant": (PERMITTED, lambda x: torch.tensor([1.0], device=x.device)),
    "pinned, blocking": (PERMITTED, lambda x: x.copy_(PINNED)),
    "synchronize": (PERMITTED, lambda x: torch.accelerator.synchronize()),
    "stream": (PERMITTED, lambda x: torch.accelerator.current_stream().synchronize()),
    "query": (PERMITTED, lambda x: torch.accelerator.current_stream().query()),
    "event": ("recorded in a capturing stream", lambda x: torch.accelerator.current_stream().record_event().query()),
    "overlap": ("refer to a single memory location", lambda x: x[1:].copy_(x[:-1])),
    "overlap of an operator": ("refer to a single memory location", lambda x: x[1:].mul_(x[:-1])),
    "sparse": (PERMITTED, lambda x: x.to_sparse()),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_capture_refuses(case: str) -> None:
    text, call = REFUSED[case]
    x = torch.arange(4.0).to(DEVICE_0)
    with refused(text):
        call(x)
    assert x.tolist() == [0, 1, 2, 3]  # nothing has run, and the device works
    graph = captured(lambda: x.add_(1))
    graph.replay()
    assert x.tolist() == [1, 2, 3, 4]


def gradient(compute: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad(compute(leaf).sum(), leaf)[0]


INDICES, BAGS = torch.tensor([0, 1, 1, 0, 1]).to(DEVICE_0), torch.tensor([0, 2, 5]).to(DEVICE_0)
REPEATS = torch.tensor([0, 1, 2, 3]).to(DEVICE_0)
MASK, ZEROS = torch.tensor([False, True]), torch.zeros(2, dtype=torch.int32, device=DEVICE_0)
LEGIT = torch.ops.aten._native_batch_norm_legit
CAPTURED: dict[str, Callable[[torch.Tensor], object]] = {
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 1),
    "std": lambda x: torch.std_mean(x, 1),
    "prod": lambda x: x.prod(),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=0),
    "logsumexp": lambda x: x.logsumexp(1),
    "median": lambda x: x.median(1),
    "cumsum": lambda x: x.cumsum(1),
    "sort": lambda x: x.sort(1, descending=True),
    "topk": lambda x: x.topk(2),
    "fft": lambda x: torch.fft.rfft(x).abs(),
    "solve": lambda x: torch.linalg.solve_ex(x @ x.T + torch.eye(2, device=x.device), x)[0],
    "group_norm": lambda x: F.group_norm(x.view(2, 4, 1), 2),
    "pool": lambda x: F.max_pool1d(x, 2),
    "interpolate": lambda x: F.interpolate(x.view(1, 1, 2, 4), scale_factor=2, mode="bilinear"),
    "index_put": lambda x: x.clone().index_put_((torch.zeros_like(x, dtype=torch.long)[0, :2],), x[0], accumulate=True),
    "gather": lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.long)),
    "tril_indices": lambda x: torch.tril_indices(3, 3, device=x.device),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "geqrf": lambda x: torch.geqrf(x.view(1, 2, 4).expand(3, 2, 4)),
    "embedding_bag": lambda x: F.embedding_bag(INDICES, x, BAGS, mode="sum"),
    "embedding_bag, mean": lambda x: F.embedding_bag(INDICES, x, BAGS, mode="mean", include_last_offset=True),
    "embedding_bag, max": lambda x: F.embedding_bag(INDICES, x, BAGS, mode="max", padding_idx=0),
    "embedding_bag, float64": lambda x: F.embedding_bag(INDICES, x.double(), BAGS.int(), mode="sum"),
    "embedding_bag, gradient": lambda x: gradient(lambda x: F.embedding_bag(INDICES, x, BAGS, mode="mean"), x),
    "batch_norm": lambda x: torch.native_batch_norm(x, None, None, x[0].clone(), x[1].clone(), False, 0.1, 1e-5),
    "batch_norm, legit": lambda x: LEGIT(x, None, None, x[0].clone(), x[1].clone(), False, 0.1, 1e-5),
    "batch_norm, no statistics": lambda x: LEGIT.no_stats(x, None, None, True, 0.1, 1e-5),
    "repeat_interleave": lambda x: x.repeat_interleave(REPEATS, 1, output_size=6),
    "fill through a mask": lambda x: x.clone().index_put_((x > 3,), torch.tensor(0.5)),
    "mask of the CPU": lambda x: x[MASK, 1:],
    "put through a mask of the CPU": lambda x: x.clone().index_put_((MASK,), x[1:] * 2, accumulate=True),
    "fill with a number of the CPU": lambda x: x.clone().index_fill_(1, INDICES[:1], torch.tensor(0.5)),
    "multi_margin_loss, gradient": lambda x: gradient(lambda x: F.multi_margin_loss(x, INDICES[:2]), x),
    "multilabel_margin_loss, gradient": lambda x: gradient(lambda x: F.multilabel_margin_loss(x, x.long() % 4), x),
    "fake quantization": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.3, 0, 0, 255),
    "fake quantization of channels": lambda x: torch.fake_quantize_per_channel_affine(x, x[:, 0] / 9, ZEROS, 0, 0, 9),
    "masked softmax": lambda x: torch._masked_softmax(x, x % 2 > 0, 1),
    "another shape": lambda x: torch.add(x, 1, out=torch.empty(3, device=x.device)),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("case", CAPTURED)
def test_a_capture_takes(case: str) -> None:
    x, outputs = torch.arange(1.0, 9.0).view(2, 4).to(DEVICE_0), []
    graph = captured(lambda: outputs.append(CAPTURED[case](x)))
    for factor in (1, 3):
        x.mul_(factor)
        graph.replay()
        torch.testing.assert_close(outputs[0], CAPTURED[case](x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_a_number_give_the_bits_of_the_cpu_queued_and_captured(dtype: torch.dtype) -> None:
    on_cpu = torch.linspace(-3, 3, 512).to(dtype)
    x, results = on_cpu.to(DEVICE_0), []

    def compute(x: torch.Tensor) -> list[torch.Tensor]:
        return [x / 8**0.5, x * 8**0.5, x + 8**0.5, x.clone().div_(8**0.5), x / torch.tensor(8**0.5)]

    captured(lambda: results.extend(compute(x))).replay()
    for expected, queued, replayed in zip(compute(on_cpu), compute(x), results, strict=True):
        assert torch.equal(queued.cpu(), expected) and torch.equal(replayed.cpu(), expected)


def test_a_call_with_wrong_operands_raises_its_error_and_the_capture_goes_on() -> None:
    x, y = vector(1, 2), vector(1, 2, 3)

    def compute() -> None:
        for call in (lambda: x + y, lambda: x.copy_(y), lambda: x.flip(2), lambda: F.group_norm(x.view(1, 2), 3)):
            with pytest.raises((RuntimeError, IndexError, ValueError), match="size|shape|range|divisible"):
                call()
        x.add_(1)

    captured(compute).replay()
    assert x.tolist() == [2, 3]


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Operators that are not PyTorch's, and whose kernels are the CPU's. `untold` has no meta kernel, and that of `above`
    does not know the size of the result."""

    def add_one(x: torch.Tensor) -> None:
        x.add_(1)

    with torch.library._scoped_library("graphs_test", "FRAGMENT") as made:
        made.define("twice(Tensor x) -> Tensor")
        made.define("parts(Tensor x, Tensor[] y) -> (Tensor, Tensor)")
        made.define("add_one(Tensor(a!) x) -> ()")
        made.define("untold(Tensor x) -> Tensor")
        made.define("above(Tensor x, float y) -> Tensor")
        made.impl("twice", lambda x: x * 2, "CPU")
        made.impl("parts", lambda x, y: (x.t().contiguous().t() + y[0], y[1].sum(0)), "CPU")
        made.impl("add_one", add_one, "CPU")
        made.impl("untold", lambda x: x * 3, "CPU")
        made.impl("above", lambda x, y: x[x > y], "CPU")
        made.impl("twice", torch.empty_like, "Meta")
        made.impl("parts", lambda x, y: (torch.empty_like(x), y[1][0].clone()), "Meta")
        made.impl("add_one", lambda x: None, "Meta")
        register = torch.library.register_fake("graphs_test::above", lib=made)
        register(lambda x, y: x.new_empty(torch.library.get_ctx().new_dynamic_size()))
        yield torch.ops.graphs_test


def test_a_capture_takes_a_kernel_that_is_not_pytorchs_if_it_has_a_meta_kernel(library: Any) -> None:
    x, other, outputs = torch.arange(6.0).view(2, 3).to(DEVICE_0), torch.ones(2, 3).to(DEVICE_0), []

    def compute() -> None:
        library.add_one(other)
        outputs[:] = [library.twice(x), *library.parts(x, [other, x])]

    graph = captured(compute)
    assert other.sum() == 6  # nothing has run
    for factor in (1, 3):
        x.mul_(factor)
        graph.replay()
        on_cpu = x.cpu()
        expected = [on_cpu * 2, on_cpu + other.cpu(), on_cpu.sum(0)]
        for output, value in zip(outputs, expected, strict=True):
            assert torch.equal(output.cpu(), value) and output.is_contiguous()
    assert other.tolist() == [[3.0] * 3] * 2


@pytest.mark.parametrize("name", ["untold", "above"])
def test_a_kernel_that_is_not_pytorchs_is_refused_if_no_meta_kernel_tells_its_result(library: Any, name: str) -> None:
    x = vector(1, 2)
    arguments = (x,) if name == "untold" else (x, 1.5)
    message = f"graphs_test::{name} is computed on the calling thread, which is not supported in a capture yet"
    with refused(message):
        getattr(library, name)(*arguments)
    assert getattr(library, name)(*arguments).tolist() == {"untold": [3, 6], "above": [2]}[name]


def test_work_that_has_not_joined_is_refused_at_the_end() -> None:
    x, first, second = vector(1), torch.Stream(), torch.Stream()
    with pytest.raises(RuntimeError, match="unjoined work"), first, torch.accelerator.Graph():
        second.wait_event(first.record_event())
        with second:
            x.add_(1)
    assert not second.is_capturing() and x.tolist() == [1]


def test_a_capture_needs_a_stream_of_its_own() -> None:
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"), torch.accelerator.Graph():
        pass
    with torch.Stream() as stream, torch.accelerator.Graph():
        with pytest.raises(RuntimeError, match="captures already"):
            torch.accelerator.Graph().capture_begin()
        assert stream.is_capturing()


def test_a_graph_is_written_to_a_file(tmp_path: Path) -> None:
    x = vector(1)
    graph = torch.accelerator.Graph()
    graph.enable_debug_mode()
    with torch.Stream(), graph:
        x.add_(1)
        x.mul_(2)
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert "aten::add_" in text and "n0 -> n1" in text


# ---- What tools see --------------------------------------------------------------------------------------------------


def test_a_profile_shows_the_kernels_of_a_replay_under_one_launch_and_no_allocation(tmp_path: Path) -> None:
    x = vector(1, 2)
    graph = captured(lambda: (x * 2).exp() + 1)
    torch.accelerator.synchronize()
    before = openreg.memory_stats()
    with torch.profiler.profile() as profile:
        graph.replay()
        torch.accelerator.synchronize()
    after = openreg.memory_stats()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (launch,) = (each["args"]["correlation"] for each in events if each["name"] == "orGraphLaunch")
    kernels = {each["name"]: each["args"]["correlation"] for each in events if each.get("cat") == "kernel"}
    assert kernels == dict.fromkeys(("openreg::mul.Tensor", "openreg::exp", "openreg::add.Tensor"), launch)
    assert [name for name in before if "allocated" in name and before[name] != after[name]] == []
