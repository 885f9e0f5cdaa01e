"""CUDA graphs under the name cuda: torch.cuda.CUDAGraph, torch.cuda.graph and make_graphed_callables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

import pytest
from cuda_builds import AS_CUDA
from programs import Run

pytestmark = AS_CUDA

MODES = pytest.mark.parametrize("mode", ["inline", "async", "chaos"])

START = """
import re
import torch
from torch import nn

def refused(text, call, *arguments):
    try:
        call(*arguments)
    except RuntimeError as error:
        assert re.search(text, str(error)), str(error)
    else:
        raise AssertionError(f"no error: {text}")
"""


@pytest.fixture
def succeeds(run_python: Run) -> Callable[..., None]:
    """A function that runs a program. The program must print nothing and warn of nothing."""

    def run(program: str, **environment: str) -> None:
        result = run_python(START + textwrap.dedent(program), **{"TORCH_OPENREG_AS": "cuda", **environment})
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")

    return run


@MODES
def test_a_replay_computes_with_new_inputs_and_runs_no_python(succeeds: Callable[..., None], mode: str) -> None:
    succeeds(
        """
        class Model(nn.Module):
            def forward(self, x):
                self.last = x * 2
                self.captures = torch.cuda.is_current_stream_capturing()
                return self.last + 1

        model, x = Model(), torch.ones(3, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(x)
        assert model.captures and not torch.cuda.is_current_stream_capturing()
        model.last = None
        for value in (5, 7):
            x.fill_(value)
            graph.replay()
            assert out.tolist() == [2 * value + 1] * 3 and model.last is None

        # the classes of torch.cuda and torch.accelerator answer for each other's captures
        with torch.cuda.stream(torch.cuda.Stream()), torch.accelerator.Graph():
            assert torch.cuda.is_current_stream_capturing()
            x.add_(1)
        assert x.tolist() == [7] * 3
        """,
        OPENREG_EXECUTION=mode,
    )


def test_what_a_capture_refuses_and_what_works_afterwards(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        import contextlib
        import threading

        x = torch.ones(4, device="cuda")

        def capture(compute, **settings):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(torch.cuda.Stream()):
                try:
                    with torch.cuda.graph(graph, **settings):
                        compute()
                finally:
                    assert not torch.cuda.is_current_stream_capturing()
            return graph

        # torch.cuda.graph raises the error of the end of the capture, which quotes the first one.
        INVALIDATED = "CUDA error: orStreamEndCapture: operation failed due to a previous error during capture"
        PERMITTED = f"{INVALIDATED}: .*: operation not permitted when stream is capturing"
        refused(f"{PERMITTED}: a copy from or to pageable memory", capture, lambda: x * torch.arange(4.0).to(x.device))
        refused(PERMITTED, capture, lambda: x.sum().item())
        refused(PERMITTED, capture, lambda: x.nonzero())
        refused(PERMITTED, capture, torch.cuda.synchronize)

        # The error mode decides whose queries end the capture.
        def query():
            with contextlib.suppress(RuntimeError):
                torch.cuda.default_stream().query()

        def query_elsewhere():
            thread = threading.Thread(target=query)
            thread.start()
            thread.join()

        for mode, ending in (("global", (query, query_elsewhere)), ("thread_local", (query,)), ("relaxed", ())):
            for call in (query, query_elsewhere):
                compute = lambda: (x.mul(2), call())
                if call in ending:
                    refused(INVALIDATED, lambda: capture(compute, capture_error_mode=mode))
                else:
                    capture(compute, capture_error_mode=mode)
        refused(
            "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got strict",
            lambda: capture(query, capture_error_mode="strict"),
        )
        assert (x * torch.arange(4.0).to(x.device)).tolist() == [0, 1, 2, 3]
        """
    )


def test_calls_in_the_wrong_order_raise_cudas_errors(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        # Since 2.14, PyTorch's replay() instantiates first.
        REPLAYED_TOO_EARLY = (
            r"capture_end\\(\\) must have been called before calling instantiate"
            if torch.__version__ >= "2.14"
            else "Called CUDAGraph::replay without a preceding successful capture."
        )
        x = torch.ones(2, device="cuda")
        graph = torch.cuda.CUDAGraph()
        refused(REPLAYED_TOO_EARLY, graph.replay)
        refused(r"Called CUDAGraph::pool\\(\\) without a preceding successful capture.", graph.pool)
        refused(r"capture_end\\(\\) must have been called before calling instantiate", graph.instantiate)
        refused(r"instance until instantiate\\(\\) has been called", graph.raw_cuda_graph_exec)
        refused("unless CUDAGraph was initialized with keep_graph=true", graph.raw_cuda_graph)
        refused("CUDA graphs must be captured on a non-default stream", graph.capture_begin)
        refused("The current stream is not currently capturing.", torch.cuda.CUDAGraph.get_currently_capturing_graph)
        refused("must be called before begin_capture_to_if_node", graph.begin_capture_to_if_node, x[0] > 0)
        refused("called before begin_capture_to_if_node", graph.end_capture_to_conditional_node)

        with torch.cuda.stream(torch.cuda.Stream()):
            graph.capture_begin()
            assert torch.cuda.CUDAGraph.get_currently_capturing_graph() is graph
            x.add_(1)
            with torch.cuda.stream(torch.cuda.Stream()):
                refused("Capture must end on the same stream it began on.", graph.capture_end)
            graph.capture_end()
            refused("This CUDAGraph instance already owns a captured graph.", graph.capture_begin)
        refused("intended to be called by the user only when keep_graph=true", graph.instantiate)
        graph.reset()
        refused(REPLAYED_TOO_EARLY, graph.replay)
        """
    )


def test_a_kept_graph_is_instantiated_later_and_written_to_a_file(run_python: Run) -> None:
    program = """
    x = torch.ones(2, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        x.add_(1)
    assert graph.raw_cuda_graph() != 0
    refused(r"until instantiate\\(\\) has been called", graph.raw_cuda_graph_exec)
    graph.instantiate()
    graph.instantiate()
    assert graph.raw_cuda_graph_exec() != 0
    graph.replay()
    assert x.tolist() == [2, 2]
    graph.debug_dump("kept.dot")
    graph.debug_dump("kept.dot")  # as often as the program wants

    graph = torch.cuda.CUDAGraph()
    graph.enable_debug_mode()
    with torch.cuda.graph(graph):
        x.mul_(2)
    graph.debug_dump("debug.dot")
    assert "aten::add_" in open("kept.dot").read() and "aten::mul_" in open("debug.dot").read()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pass
    graph.debug_dump("/nonsense/x")
    """
    result = run_python(START + textwrap.dedent(program), TORCH_OPENREG_AS="cuda", status=0, errors=None)
    assert re.findall(r"UserWarning: (.*) \(Triggered", result.stderr) == [
        "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device or "
        "stream.",
        "CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()",
    ]


def test_graphs_share_the_pool_of_a_handle(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        x, pool = torch.ones(1 << 20, device="cuda"), torch.cuda.graph_pool_handle()
        first, second, own = (torch.cuda.CUDAGraph() for _ in range(3))
        with torch.cuda.graph(first, pool=pool):
            y = x + 1
        address = y.data_ptr()
        del y
        with torch.cuda.graph(second, pool=first.pool()):
            z = x + 2
        with torch.cuda.graph(own):
            x + 3
        assert z.data_ptr() == address and first.pool() == second.pool() == pool != own.pool()
        first.reset()
        second.replay()
        assert z[0].item() == 3
        """
    )


def test_a_registered_generator_goes_on_from_replay_to_replay(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        def eager():
            generator = torch.Generator("cuda").manual_seed(3)
            return [torch.rand(8, device="cuda", generator=generator) for _ in range(3)]

        generator, out = torch.Generator("cuda").manual_seed(3), torch.empty(8, device="cuda")
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            out.copy_(torch.rand(8, device="cuda", generator=generator))
        for expected in eager():
            graph.replay()
            assert torch.equal(out, expected)

        def capture_unregistered():
            with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.graph(torch.cuda.CUDAGraph()):
                out.add_(1)
                torch.rand(8, device="cuda", generator=generator)

        if torch.__version__ >= "2.14":  # a generator takes part by itself
            capture_unregistered()
        else:
            refused("RNG op during graph capture but generator is not registered", capture_unregistered)
        refused("Expected a 'cuda' device type for generator", graph.register_generator_state, torch.Generator())
        """
    )


def test_a_captured_generator_has_two_blocks_of_memory_until_the_graph_is_reset(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        def blocks():
            stats = torch.cuda.memory_stats()
            return stats["active.all.current"], stats["active_bytes.all.current"]

        generator, out = torch.Generator("cuda"), torch.empty(8, device="cuda")
        before = blocks()
        graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
        for graph in graphs:
            graph.register_generator_state(generator)
            with torch.cuda.graph(graph):
                out.uniform_().uniform_(generator=generator)
        assert blocks() == (before[0] + 8, before[1] + 8 * 512)
        graphs[0].reset()
        assert blocks() == (before[0] + 4, before[1] + 4 * 512)
        del graph, graphs
        assert blocks() == before
        """
    )


def test_a_graph_retains_a_pool_that_its_capture_uses(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        pool, graph, kept = torch.cuda.MemPool(), torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(graph):
            with torch.cuda.use_mem_pool(pool):
                kept.append(torch.zeros(1 << 20, device="cuda"))
            if torch.__version__ < "2.14":  # use_mem_pool() does it
                super(torch.cuda.CUDAGraph, graph)._retain_pool(pool.id)
            kept[0].add_(1)
        assert list(super(torch.cuda.CUDAGraph, graph).pools()) == [graph.pool(), pool.id]
        assert pool.use_count() == 2
        graph.replay()
        assert kept[0][0].item() == 1
        graph.reset()
        assert pool.use_count() == 1
        """
    )


def test_graphed_callables_compute_and_train_as_the_callables_do(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        import copy

        # The parameters were made on another stream than that of their gradients, as on CUDA.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)

        def trains_equally(plain, graphed, inputs):
            for x in inputs:
                outputs = []
                for model in (plain, graphed):
                    model.zero_grad()
                    outputs.append(model(x))
                    outputs[-1].square().sum().backward()
                assert torch.equal(*outputs)
                assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), graphed.parameters()))

        inputs = [torch.randn(4, 6, device="cuda") for _ in range(3)]
        def make():
            return nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 5)).cuda()

        plain = make()
        trains_equally(plain, torch.cuda.make_graphed_callables(copy.deepcopy(plain), (inputs[0].clone(),)), inputs)

        # several callables, in the order of their calls
        graphed = copy.deepcopy(plain)
        samples = ((torch.randn(4, 6, device="cuda"),), (torch.randn(4, 5, device="cuda", requires_grad=True),))
        parts = (nn.Sequential(graphed[0], graphed[1]), graphed[2])
        trains_equally(plain, nn.Sequential(*torch.cuda.make_graphed_callables(parts, samples)), inputs)

        # an input that does not take part in the result
        a, b = (torch.randn(3, device="cuda", requires_grad=True) for _ in range(2))
        refused("appears to not have been used", torch.cuda.make_graphed_callables, lambda a, b: a * 2, (a, b))
        twice = torch.cuda.make_graphed_callables(lambda a, b: a * 2, (a, b), allow_unused_input=True)
        twice(a, b).sum().backward()
        assert a.grad.tolist() == [2] * 3 and b.grad is None

        # with mixed precision, without its cache
        with torch.autocast("cuda", torch.bfloat16):
            refused("does not support the autocast caching", torch.cuda.make_graphed_callables, plain, (inputs[0],))
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            graphed = torch.cuda.make_graphed_callables(copy.deepcopy(plain), (inputs[0].clone(),))
            trains_equally(plain, graphed, inputs)
        """
    )


@MODES
def test_a_captured_step_with_a_scaler_and_dropout_trains_as_the_uncaptured_one(
    succeeds: Callable[..., None], mode: str
) -> None:
    succeeds(
        """
        def train(captures):
            torch.manual_seed(0)
            layers = [nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(16), nn.Linear(16, 3)]
            model = nn.Sequential(*layers).cuda()
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True)
            scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
            batches = [(torch.randn(4, 8, device="cuda"), torch.randn(4, 3, device="cuda")) for _ in range(7)]
            x, target = batches[0][0].clone(), batches[0][1].clone()

            def step():
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda", torch.float16, cache_enabled=False):
                    loss = nn.functional.mse_loss(model(x).float(), target)
                scaler.scale(loss).backward()
                return loss

            graph, losses = torch.cuda.CUDAGraph(), []
            torch.cuda.synchronize()
            with torch.cuda.stream(torch.cuda.Stream()):
                for i, (new_x, new_target) in enumerate(batches):
                    x.copy_(new_x)
                    target.copy_(new_target)
                    if captures and i == 3:
                        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                            loss = step()
                    if captures and i >= 3:
                        graph.replay()
                    else:
                        loss = step()
                    scaler.step(optimizer)
                    scaler.update()
                    losses.append(loss.item())
            return losses, [parameter.detach().cpu() for parameter in model.parameters()], scaler.get_scale()

        (losses, eager, scale), (others, captured, other_scale) = train(False), train(True)
        assert losses == others and scale == other_scale
        assert all(torch.equal(a, b) for a, b in zip(eager, captured))
        """,
        OPENREG_EXECUTION=mode,
    )


@pytest.mark.parametrize("generator", ["cpu", "philox"])
@pytest.mark.parametrize("name", ["cuda", "openreg"])
def test_a_captured_step_of_a_language_model_trains_as_the_uncaptured_one(
    succeeds: Callable[..., None], name: str, generator: str
) -> None:
    succeeds(
        """
        import math
        F = nn.functional
        DEVICE = torch.accelerator.current_accelerator().type

        class Block(nn.Module):
            def __init__(self, width, heads):
                super().__init__()
                self.heads = heads
                self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
                self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                self.drop = nn.Dropout(0.1)

            def forward(self, x):
                parts = [each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                         for each in self.attend(self.before(x)).chunk(3, -1)]
                scores = parts[0] @ parts[1].transpose(-2, -1) / math.sqrt(parts[0].size(-1))
                mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()
                weights = self.drop(scores.masked_fill(~mask, -math.inf).softmax(-1))
                x = x + self.drop(self.project((weights @ parts[2]).transpose(1, 2).flatten(-2)))
                return x + self.drop(self.mlp(self.after(x)))

        class Model(nn.Module):
            def __init__(self, words=17, width=16, length=8):
                super().__init__()
                self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
                self.blocks = nn.Sequential(Block(width, 2), Block(width, 2))
                self.head = nn.Linear(width, words, bias=False)
                self.head.weight = self.tokens.weight

            def forward(self, words):
                places = torch.arange(words.size(1), device=words.device)
                return self.head(self.blocks(self.tokens(words) + self.places(places)))

        def train(captures):
            torch.manual_seed(0)
            model = Model().to(DEVICE)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True, capturable=True)
            scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**10, growth_interval=3)
            batches = torch.randint(17, (8, 4, 9), device=DEVICE)
            words, losses = batches[0].clone(), []

            def step():
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast(DEVICE, torch.float16, cache_enabled=False):
                    logits = model(words[:, :-1])
                loss = F.cross_entropy(logits.float().flatten(0, 1), words[:, 1:].flatten())
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                return loss

            torch.accelerator.synchronize()
            graph = torch.accelerator.Graph()
            with torch.Stream(device=DEVICE):
                for i, batch in enumerate(batches):
                    words.copy_(batch)
                    if captures and i == 3:
                        with graph:
                            loss = step()
                    if captures and i >= 3:
                        graph.replay()
                    else:
                        loss = step()
                    losses.append(loss.item())
            return losses, [parameter.detach().cpu() for parameter in model.parameters()], scaler.get_scale()

        (losses, eager, scale), (others, captured, other_scale) = train(False), train(True)
        assert losses == others and scale == other_scale > 2.0**10 and losses[-1] < losses[0]
        assert all(torch.equal(a, b) for a, b in zip(eager, captured))
        """,
        OPENREG_RNG=generator,
        TORCH_OPENREG_AS="cuda" if name == "cuda" else "",
    )


@MODES
def test_a_replay_runs_the_body_of_a_conditional_node_only_if_its_predicate_is_true(
    succeeds: Callable[..., None], mode: str
) -> None:
    succeeds(
        """
        from torch._higher_order_ops.cudagraph_conditional_nodes import CUDAGraphCaptureControlFlowOpDispatchMode

        x, total, count = (torch.zeros(3, device="cuda") for _ in range(3))
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph):
            positive = x.sum() > 0
            graph.begin_capture_to_if_node(positive)
            doubled = x * 2
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                count.add_(1)
            torch.cuda.current_stream().wait_stream(side)
            graph.begin_capture_to_if_node(x.sum() > 10)
            doubled.add_(100)
            graph.end_capture_to_conditional_node()
            total.add_(doubled)
            graph.end_capture_to_conditional_node()
            total.add_(1)
        for value, expected in ((-1.0, 1), (1.0, 4), (0.0, 5), (5.0, 116)):
            x.fill_(value)
            graph.replay()
            assert total.tolist() == [expected] * 3
        assert count.tolist() == [2] * 3

        # torch.cond
        def branch(x):
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

        graph = torch.cuda.CUDAGraph()
        with CUDAGraphCaptureControlFlowOpDispatchMode(), torch.cuda.graph(graph):
            result = torch.ops.higher_order.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        result = result[0] if isinstance(result, tuple) else result
        for value, expected in ((3.0, 6), (-3.0, -4), (4.0, 8)):
            x.fill_(value)
            graph.replay()
            assert result.tolist() == [expected] * 3
        """,
        OPENREG_EXECUTION=mode,
    )


def test_what_the_body_of_a_conditional_node_refuses(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        x = torch.ones(2, device="cuda")
        def in_body(compute, predicate=x[0] > 0):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                x.add_(1)
                graph.begin_capture_to_if_node(predicate)
                try:
                    compute()
                finally:
                    graph.end_capture_to_conditional_node()

        refused("RNG within data-dependent conditional nodes is not supported yet.", in_body, lambda: torch.rand_like(x))
        refused("expected scalar type Bool but found Float", in_body, lambda: None, x[0])
        refused("must be a tensor of one element on cuda:0", in_body, lambda: None, torch.tensor(True))
        event = torch.cuda.Event(external=True)
        refused("takes kernels, copies and fills only", in_body, event.record)
        in_body(lambda: x.add_(1))
        """
    )


@MODES
def test_each_replay_records_an_external_event_and_waits_for_one(succeeds: Callable[..., None], mode: str) -> None:
    succeeds(
        """
        x, side = torch.ones(4, device="cuda"), torch.cuda.Stream()
        start, end = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
        gate, graph, waits = torch.cuda.Event(external=True), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            start.record()
            y = x * 2
            end.record()
        gate.record()
        with torch.cuda.graph(waits):
            gate.wait()
            z = x * 3
        for _ in range(2):
            graph.replay()
            side.wait_event(end)
            with torch.cuda.stream(side):
                sum = y + 1
            end.synchronize()
            assert end.query() and start.elapsed_time(end) >= 0
            side.synchronize()
            assert sum.tolist() == [3] * 4
        for value in (5, 7):
            with torch.cuda.stream(side):
                torch.cuda._sleep(1000000)
                x.fill_(value)
                gate.record()
            waits.replay()
            assert z.tolist() == [3 * value] * 4
        """,
        OPENREG_EXECUTION=mode,
    )


@MODES
def test_pinned_memory_of_a_capture_belongs_to_the_graph(succeeds: Callable[..., None], mode: str) -> None:
    succeeds(
        """
        x, graph = torch.zeros(4, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            pinned = torch.arange(4.0).pin_memory()
            x.copy_(pinned, non_blocking=True)
            result = (x + 1).to("cpu", non_blocking=True)
        assert result.is_pinned()
        del pinned  # the graph reads the memory at each replay, so nobody else gets it
        others = [torch.full((4,), 9.0).pin_memory() for _ in range(8)]
        for _ in range(2):
            x.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert x.tolist() == [0, 1, 2, 3] and result.tolist() == [1, 2, 3, 4]
        graph.reset()
        torch.ones(4).pin_memory()
        """,
        OPENREG_EXECUTION=mode,
    )


@MODES
def test_a_storage_that_pytorch_made_is_captured(succeeds: Callable[..., None], mode: str) -> None:
    succeeds(
        """
        import copy
        x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
        plain = torch.tensor([], device="cuda").set_(torch.UntypedStorage(16, device="cuda")).view(torch.float32)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = copy.deepcopy(x * 2)
            plain.copy_(y)
            plain.add_(1)
            z = plain.sum() + plain.cumsum(0)
        for value in (1, 5):
            x.fill_(value)
            graph.replay()
            assert y.tolist() == [2 * value] * 4 and plain.tolist() == [2 * value + 1] * 4
            assert z.tolist() == [(4 + n) * (2 * value + 1) for n in (1, 2, 3, 4)]
        """,
        OPENREG_EXECUTION=mode,
    )


def test_an_input_that_is_freed_before_a_replay_is_reported_if_the_program_asks(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, check_input_liveness=True):
            y = x + 1
        graph.replay()
        del x
        refused("CUDA graph replay detected 1 dead tensor", graph.replay)
        """
    )
