"""Kernels of Triton on the device, in Triton's own interpreter."""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path

import pytest
from compiled import output_of, runner
from cuda_builds import AS_CUDA
from programs import Run

APART = Path(sys.prefix) / "triton"
pytestmark = pytest.mark.skipif(not APART.exists(), reason="needs triton, which `make test-all` installs")

HEAD = """
import torch, triton, triton.language as tl

DEVICE = {device!r}

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask) + tl.load(y + i, mask), mask)

def sum_of(x, y, n=None):
    out = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 64),)](x, y, out, n or x.numel(), BLOCK=64)
    return out

def error(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
"""


def python_on(device: str, tmp_path: Path, inductor_cache: Path) -> Run:
    environment = {
        "TORCH_OPENREG_AS": device,
        "OPENREG_TRITON": "interpret",
        "PYTHONPATH": str(APART),
        "TORCHINDUCTOR_CACHE_DIR": str(inductor_cache),
    }
    return runner(tmp_path / "program.py", HEAD.format(device=device), **environment)


@pytest.fixture(params=["openreg", pytest.param("cuda", marks=AS_CUDA)])
def python(request: pytest.FixtureRequest, inductor_cache: Path, tmp_path: Path) -> Run:
    return python_on(request.param, tmp_path, inductor_cache)


@pytest.fixture
def cuda(inductor_cache: Path, tmp_path: Path) -> Run:
    return python_on("cuda", tmp_path, inductor_cache)


def test_torch_compile_does_not_ask_triton_for_a_gpu(python: Run) -> None:
    code = """
        x = torch.randn(4, 4)
        for device in (DEVICE, "cpu"):
            compute = torch.compile(lambda x: x.sin() + 1)
            print(torch.allclose(compute(x.to(device)).cpu(), x.sin() + 1, atol=1e-6))
        print(triton.runtime.driver.active.get_active_torch_device() == torch.device(DEVICE, 0))
    """
    assert output_of(python(code, OPENREG_TRITON="refuse")).splitlines() == ["True", "True", "True"]


def test_without_the_interpreter_a_launch_names_the_variable(python: Run) -> None:
    code = "print(error(sum_of, *torch.ones(2, 4, device=DEVICE)))"
    assert re.fullmatch(
        r"NotImplementedError: Kernels of Triton are not compiled for an? \w+ device\. Triton's interpreter runs them: "
        r"set TRITON_INTERPRET=1, or OPENREG_TRITON=interpret, before the program starts\.",
        output_of(python(code, OPENREG_TRITON="refuse")),
    )


@pytest.mark.parametrize("mode", ["inline", "chaos"])
def test_a_kernel_computes_on_device_memory_in_the_order_of_its_stream(python: Run, mode: str) -> None:
    code = """
        x, y = torch.rand(1000, device=DEVICE), torch.rand(1000, device=DEVICE)
        z = x @ y
        memory = torch.get_device_module(DEVICE)
        expected = ((x + y) * 2 + y).cpu()
        memory.synchronize()
        before = memory.memory_stats()["allocation.all.allocated"]
        out = sum_of((x + y) * 2, y)
        print(memory.memory_stats()["allocation.all.allocated"] - before, torch.equal(out.cpu(), expected))
    """
    assert output_of(python(code, OPENREG_EXECUTION=mode)) == "3 True"


def test_a_profile_has_the_kernel(cuda: Run) -> None:
    code = """
        x = torch.ones(10, device=DEVICE)
        with torch.profiler.profile() as profile:
            sum_of(x, x)
        print([event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA])
    """
    assert output_of(cuda(code)) == "['openreg::add']"


def test_autotune_takes_the_first_configuration_and_says_so(python: Run) -> None:
    code = """
        @triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
        @triton.jit
        def increment(x, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(x + i, tl.load(x + i, i < n) + 1, i < n)

        x = torch.zeros(100, device=DEVICE)
        for _ in range(2):
            increment[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, 100)
        print(increment.best_config.kwargs, x.unique().tolist())
        print(triton.testing.do_bench(lambda: x.add_(1), warmup=1, rep=1) > 0)
    """
    result = python(code)
    assert output_of(result).splitlines() == ["{'BLOCK': 32} [2.0]", "True"]
    assert result.stderr.count("Triton's autotune takes the first of 2 configurations of increment") == 1


def test_an_access_outside_of_the_tensors_names_the_kernel_and_its_line(python: Run) -> None:
    code = """
        x = torch.ones(100, device=DEVICE)
        print(error(sum_of, x, x, 101))
    """
    assert re.search(
        r"IndexError\(.the Triton kernel add reads 4 bytes outside of its tensors, 4 bytes past the end of the 400 bytes "
        r"of 'x', at \S+program\.py:10",
        output_of(python(code)).replace("\\", ""),
    )


def test_a_kernel_loads_addresses_from_memory(python: Run) -> None:
    code = """
        @triton.jit
        def first(pointers, out, COUNT: tl.constexpr):
            for i in range(COUNT):
                pointer = tl.load(pointers + i).to(tl.pointer_type(tl.float32))
                tl.store(out + i, tl.load(pointer))

        tensors = [torch.full((3,), float(i), device=DEVICE) for i in range(4)]
        pointers = torch.tensor([each.data_ptr() for each in tensors], device=DEVICE)
        out = torch.empty(4, device=DEVICE)
        first[(1,)](pointers, out, COUNT=4)
        print(out.tolist())
    """
    assert output_of(python(code)) == "[0.0, 1.0, 2.0, 3.0]"


def test_atomics_and_tensors_of_the_cpu(python: Run) -> None:
    code = """
        @triton.jit
        def count(x, out):
            tl.atomic_add(out + tl.load(x + tl.program_id(0)), 1)

        x = torch.tensor([0, 1, 1, 2, 1], device=DEVICE)
        out = torch.zeros(3, dtype=torch.int32, device=DEVICE)
        count[(5,)](x, out)
        print(out.tolist())
        print(error(sum_of, x, x.cpu()))
        on_cpu = torch.arange(4)
        print(sum_of(on_cpu, on_cpu).tolist())
    """
    assert output_of(python(code)).splitlines() == [
        "[1, 3, 1]",
        "ValueError: Pointer argument 'y' cannot be accessed from Triton (cpu tensor?)",
        "[0, 2, 4, 6]",
    ]


def test_the_sanitizer_knows_what_a_kernel_loads_and_stores(python: Run) -> None:
    code = """
        from torch_openreg.openreg import sanitizer

        @triton.jit
        def write(x, n):
            tl.store(x + tl.arange(0, 64), 0.0, tl.arange(0, 64) < n)

        x, y = torch.ones(64, device=DEVICE), torch.ones(64, device=DEVICE)
        for second in (lambda: sum_of(x, y), lambda: write[(1,)](x, 0), lambda: write[(1,)](x, 64)):
            torch.accelerator.synchronize()
            with sanitizer.enable("race,init,memory", mode="report") as session:
                kept = sum_of(x, y)
                with torch.Stream(DEVICE):
                    result = second()
            print([(each.kind, [part.operator for part in each.accesses]) for each in session.reports])
    """
    assert output_of(python(code)).splitlines() == ["[]", "[]", "[('race', ['write', 'add'])]"]


@AS_CUDA
def test_operators_made_of_kernels_run_in_eager_and_compiled_programs(cuda: Run) -> None:
    code = """
        from torch.library import triton_op, wrap_triton

        @triton_op("mine::add", mutates_args={})
        def mine(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            wrap_triton(add)[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
            return out

        opaque = torch.library.custom_op("mine::opaque", lambda x, y: sum_of(x, y), mutates_args=(),
                                         schema="(Tensor x, Tensor y) -> Tensor")
        opaque.register_fake(lambda x, y: torch.empty_like(x))
        x, y = torch.rand(100, device=DEVICE), torch.rand(100, device=DEVICE)
        print(torch.equal(mine(x, y), x + y))
        for operator in (opaque, sum_of):
            print(torch.allclose(torch.compile(lambda x, y: operator(x.sin(), y) @ y)(x, y), (x.sin() + y) @ y))
    """
    assert output_of(cuda(code)).splitlines() == ["True"] * 3


CAPTURE = """
import gc

def captured(compute):
    graph = torch.accelerator.Graph()
    with torch.Stream(DEVICE), graph:
        result = compute()
    return graph, result
"""


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_graph_replays_kernels_that_its_capture_did_not_run(python: Run, mode: str) -> None:
    code = """
        x, y = torch.rand(100, device=DEVICE), torch.rand(100, device=DEVICE)
        out = torch.zeros(100, device=DEVICE)
        graph, result = captured(lambda: add[(2,)](x * 2, y, out, 100, BLOCK=64))
        print(result, out.count_nonzero().item())
        for _ in range(2):
            x.copy_(torch.rand(100))
            graph.replay()
            print(torch.equal(out, x * 2 + y))
    """
    assert output_of(python(CAPTURE + textwrap.dedent(code), OPENREG_EXECUTION=mode)).splitlines() == [
        "None 0",
        "True",
        "True",
    ]


def test_a_graph_keeps_no_tensor_of_a_kernel_and_ends_with_it(python: Run) -> None:
    code = """
        x = torch.ones(100, device=DEVICE)
        memory = torch.get_device_module(DEVICE)
        y, kept = torch.ones(100, device=DEVICE), torch.empty(100, device=DEVICE)
        graph, _ = captured(lambda: add[(2,)](x, y, kept, 100, BLOCK=64))
        before = memory.memory_allocated()
        del y, kept
        print(before - memory.memory_allocated())
        del graph
        gc.collect()
        print(sum_of(x, x).sum().item())
    """
    assert output_of(python(CAPTURE + textwrap.dedent(code))).splitlines() == ["1024", "200.0"]


def test_the_error_of_a_replayed_kernel_is_that_of_the_replay(python: Run) -> None:
    code = """
        x, out = torch.ones(100, device=DEVICE), torch.zeros(100, device=DEVICE)
        graph, _ = captured(lambda: add[(2,)](x, x, out, 101, BLOCK=64))
        def replay():
            graph.replay()
            torch.accelerator.synchronize()
        print(error(replay))
        print(sum_of(x, x).sum().item())
    """
    first, second = output_of(python(CAPTURE + textwrap.dedent(code))).splitlines()
    assert "the Triton kernel add reads 4 bytes outside of its tensors" in first and second == "200.0"


@pytest.mark.parametrize("mode", ["async", "chaos"])
def test_a_replay_that_is_pending_at_the_exit_of_the_program_ends(python: Run, mode: str) -> None:
    code = """
        @triton.jit
        def tell(x):
            print("replayed")
            tl.store(x, tl.load(x) + 1)

        x = torch.ones(1, device=DEVICE)
        graph, _ = captured(lambda: tell[(1,)](x))
        for _ in range(3):
            graph.replay()
    """
    output = output_of(python(CAPTURE + textwrap.dedent(code), OPENREG_EXECUTION=mode))
    assert output.splitlines() == ["replayed"] * 3


def test_the_sanitizer_is_silent_about_a_captured_kernel(python: Run) -> None:
    code = """
        from torch_openreg.openreg import sanitizer

        x, y = torch.ones(100, device=DEVICE), torch.ones(100, device=DEVICE)
        with sanitizer.enable("race,init,memory", mode="report") as session:
            graph, out = captured(lambda: sum_of(x, y) * 2)
            graph.replay()
            print(out.sum().item(), [each.kind for each in session.reports])
    """
    assert output_of(python(CAPTURE + textwrap.dedent(code))) == "400.0 []"


SANITIZED = """
from torch_openreg.openreg import sanitizer

def found(program, fixed):
    with sanitizer.enable("race,init,memory,graph", mode="report") as session:
        program(fixed)
        torch.accelerator.synchronize()
    return [" ".join(each.text.split()[:7]) for each in session.reports]

def new(value=1.0):
    return torch.full((100,), value, device=DEVICE)

def add_to(x, y, out):
    add[(2,)](x, y, out, 100, BLOCK=64)
"""


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_the_sanitizer_knows_what_a_replay_loads_and_stores(python: Run, mode: str) -> None:
    code = """
        def races_with_another_stream(fixed):
            x, y, out = new(), new(), new()
            graph, _ = captured(lambda: add_to(x, y, out))
            graph.replay()
            side = torch.Stream(DEVICE)
            if fixed:
                side.wait_stream(torch.accelerator.current_stream())
            with side:
                x.add_(1)

        def only_loads_what_another_stream_loads(fixed):
            x, y, out = new(), new(), new()
            torch.accelerator.synchronize()
            graph, _ = captured(lambda: add_to(x, y, out))
            graph.replay()
            with torch.Stream(DEVICE):
                kept.append(y * 2)

        def reads_freed_memory(fixed):
            x, y, out = new(), new(), new()
            graph, _ = captured(lambda: add_to(x, y, out))
            if not fixed:
                del y
            graph.replay()

        def has_branches_that_race(fixed):
            x, y, out = new(), new(), new()
            side = torch.Stream(DEVICE)
            def compute():
                origin = torch.accelerator.current_stream()
                side.wait_stream(origin)
                add_to(x, y, out)
                if fixed:
                    side.wait_stream(origin)
                with side:
                    x.add_(1)
                origin.wait_stream(side)
            captured(compute)[0].replay()

        def reads_an_input_that_nobody_refreshes(fixed):
            x, y, out = new(), new(), new()
            graph, _ = captured(lambda: add_to(x, y, out))
            graph.replay()
            batch = new(2.0)
            if fixed:
                x.copy_(batch)
            graph.replay()

        kept = []
        for program in (races_with_another_stream, only_loads_what_another_stream_loads, reads_freed_memory,
                        has_branches_that_race, reads_an_input_that_nobody_refreshes):
            print(program.__name__, found(program, False), found(program, True))
    """
    output = output_of(python(CAPTURE + SANITIZED + textwrap.dedent(code), OPENREG_EXECUTION=mode))
    lines = dict(line.split(" ", 1) for line in output.splitlines())
    answers = {name: ast.literal_eval(f"[{found.replace('] [', '], [')}]") for name, found in lines.items()}
    assert {name: fixed for name, (_, fixed) in answers.items() if fixed} == {}
    assert {name: found for name, (found, _) in answers.items()} == {
        "races_with_another_stream": ["race: aten::add_.Tensor overwrites what add may still"],
        "only_loads_what_another_stream_loads": [],
        "reads_freed_memory": ["memory: a replay of add reads memory"],
        "has_branches_that_race": ["race: aten::add_.Tensor overwrites what add may still"],
        "reads_an_input_that_nobody_refreshes": ["graph: nobody has written an input of"],
    }


def test_a_rehearsed_kernel_stores_nothing_and_may_fail(python: Run) -> None:
    code = """
        @triton.jit
        def gather(table, index, out):
            i = tl.arange(0, 64)
            tl.store(out + i, tl.load(table + tl.load(index + i)))

        @triton.jit
        def take_lock_and_count(lock, count):
            while tl.atomic_cas(lock, 0, 1) == 1:
                pass
            tl.atomic_add(count, 1)
            tl.atomic_xchg(lock, 0)

        def gathers(fixed):
            table, out = torch.arange(64.0, device=DEVICE), torch.zeros(64, device=DEVICE)
            lock, count = torch.ones(1, dtype=torch.int32, device=DEVICE), torch.zeros(1, dtype=torch.int32, device=DEVICE)
            def compute():
                index = torch.arange(63, -1, -1, device=DEVICE)
                gather[(1,)](table, index, out)
                lock.zero_()
                take_lock_and_count[(1,)](lock, count)
            graph, _ = captured(compute)
            print(out.count_nonzero().item(), lock.item(), count.item())
            graph.replay()
            print(torch.equal(out, table.flip(0)), lock.item(), count.item())

        print(found(gathers, True))
    """
    output = output_of(python(CAPTURE + SANITIZED + textwrap.dedent(code)))
    assert output.splitlines() == ["0 1 0", "True 0 1", "[]"]
