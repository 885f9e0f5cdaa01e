"""torch.compile on the device: results equal those of eager mode and of the CPU; kernels report their operands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from comparison import DEVICE, PRELUDE
from compiled import (
    COMPILES_STANDALONE,
    MODES,
    PACKAGES,
    PRINTED_BY_PACKAGES,
    RECORDS_EVENTS,
    assert_all_agree,
    output_of,
    reports,
    runner,
)
from programs import SUPPORT, Done, Run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def python(inductor_cache: Path, tmp_path: Path) -> Run:
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(inductor_cache), "PYTHONPATH": SUPPORT}
    return runner(tmp_path / "program.py", f"{PRELUDE}\nDEVICE = {DEVICE!r}\n", **environment)


# ---- programs ------------------------------------------------------------------------------------------------------


NAMES = [
    *("embedding_cross_entropy", "in_place_through_views", "dropout"),
    *("input_mutation", "cpu_scalar", "custom_operator", "two_devices", "streams_and_events"),
]
"""One program of each kind. Under the name cuda, tests/cuda/test_cuda_compile.py has others. `make compiled` runs all."""


@pytest.mark.slow
def test_programs_agree_with_eager_and_with_the_compiled_cpu_bit_for_bit(inductor_cache: Path) -> None:
    found = reports(inductor_cache, "--dynamic", "false", "--against-compiled-cpu", *NAMES)
    assert_all_agree(found, NAMES)
    assert {
        report["name"]: report["bit_for_bit"] for report in found if report["bit_for_bit"] is not None
    } == dict.fromkeys(NAMES[:3], True)


@pytest.mark.slow
def test_programs_agree_with_eager_when_kernels_are_queued(inductor_cache: Path) -> None:
    assert_all_agree(reports(inductor_cache, "--dynamic", "false", "--mode", "chaos", *NAMES), NAMES)


@pytest.mark.slow
def test_programs_agree_with_eager_with_dynamic_shapes(inductor_cache: Path) -> None:
    assert_all_agree(reports(inductor_cache, "--dynamic", "true", "mlp_layer_norm"), ["mlp_layer_norm"])


@pytest.mark.slow
def test_several_threads_add_with_atens_kernel_and_not_atomically_as_on_the_cpu(python: Run) -> None:
    code = """
        from torch._inductor.utils import run_and_get_code

        torch._inductor.config.force_disable_caches = True
        torch.set_num_threads(2)
        operands = torch.zeros(7), torch.arange(100_000) % 7, torch.randn(100_000)
        results = []
        for device in ("cpu", DEVICE):
            torch._dynamo.reset()
            add = torch.compile(lambda to, index, values: to.scatter_add(0, index, values) * 2)
            result, (source,) = run_and_get_code(add, *(each.to(device) for each in operands))
            print("aten.scatter_reduce_" in source, "atomic_add" in source)
            results.append(result.cpu())
        assert torch.equal(*results)
    """
    assert output_of(python(code)) == "True False\nTrue False"


@pytest.mark.slow
def test_max_autotune_tries_the_templates_of_the_cpu(python: Run) -> None:
    code = """
        import torch._inductor.config as config
        from torch._dynamo.utils import counters

        a, b = torch.randn(3, 32, 48), torch.randn(3, 48, 32)
        for config.max_autotune_gemm_backends in ("CPP", "ATEN,CPP"):
            torch.compiler.reset()
            counters.clear()
            compute = torch.compile(lambda a, b: (a @ b).relu(), mode="max-autotune-no-cudagraphs")
            found = compute(a.to(DEVICE), b.to(DEVICE)).cpu()
            # With two backends, the time of each decides whether the template is used.
            torch.testing.assert_close(found, (a @ b).relu())
            print(counters["inductor"]["cpp_templated_kernel_counter"])
    """
    only_templates, fastest = output_of(python(code)).splitlines()
    assert only_templates == "1"
    assert fastest in ("0", "1")


@pytest.mark.slow
def test_the_template_of_a_matrix_product_declares_its_operands(python: Run) -> None:
    code = """
        import openreg_c as c
        import torch._inductor.config as config

        torch.set_num_threads(1)
        config.max_autotune_gemm_backends = "CPP"
        a, b = torch.randn(3, 32, 48, device=DEVICE), torch.randn(3, 48, 32, device=DEVICE)
        compute = torch.compile(lambda a, b: (a @ b).relu(), mode="max-autotune-no-cudagraphs")
        compute(a, b)
        with c.Observer(c.KERNEL) as observer:
            z = compute(a, b)
            openreg.synchronize()
        names = {a.data_ptr(): "a", b.data_ptr(): "b", z.data_ptr(): "z"}
        for event in observer.events:
            if event[1] == c.BEGIN:
                print(sorted((names[begin], end - begin, access) for begin, end, access in event[7]))
    """
    assert output_of(python(code)) == "[('a', 18432, 1), ('b', 18432, 1), ('z', 12288, 2)]"


# ---- what importing costs ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_device_without_a_code_generator_says_so(run_python: Run) -> None:
    code = f"""
        import sys, types
        sys.modules["torch_openreg.simulator._compiler"] = none = types.ModuleType("none")
        none.COMPILER = ()
        import torch
        try:
            torch.compile(lambda x: x + 1)(torch.ones(2, device={DEVICE!r}))
        except Exception as error:
            print(str(error).splitlines()[1])
    """
    sentence = f'torch.compile has no code generator for device "{DEVICE}": use torch.compile(backend="aot_eager").'
    run_python(code, status=0, output=f"RuntimeError: {sentence}\n")


def test_import_torch_imports_nothing_of_the_compiler(python: Run) -> None:
    code = """
        import sys
        compiler = ("torch._dynamo", "torch._inductor", "torch_openreg._dynamo", "torch_openreg.simulator.inductor")
        print([name for name in sys.modules if name.startswith(compiler)])
    """
    assert output_of(python(code, imports=())) == "[]"


# ---- what a compiled kernel promises -------------------------------------------------------------------------------


@pytest.mark.slow
@MODES
def test_compiled_kernels_run_in_a_kernel_scope_and_declare_what_they_write(python: Run, mode: str) -> None:
    code = f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from tests.compile.compile_programs import PROGRAMS
        from tests.runtime.kernel_scope.watch import native_handle, watch

        openreg.execution_mode({mode!r})
        stream = openreg.Stream()
        for name in ("softmax_layer_norm", "reductions", "scatter_index_add", "in_place_through_views"):
            function, arguments = PROGRAMS[name](DEVICE)
            arguments = [argument.detach() for argument in arguments]
            compiled = torch.compile(function, dynamic=name in ("reductions", "in_place_through_views"))
            with stream:
                compiled(*arguments)
                _, kernels, faults = watch(lambda: compiled(*arguments), native_handle(stream))
            print(name, kernels > 0, faults)
            torch.compiler.reset()
    """
    lines = output_of(python(code, OPENREG_DEVICE_MEMORY="1G")).splitlines()
    assert len(lines) == 4
    assert [line for line in lines if not line.endswith("True []")] == []


@pytest.mark.slow
def test_what_a_kernel_reads_and_writes_is_told_to_the_byte(python: Run) -> None:
    code = """
        import openreg_c as c

        x = torch.ones(7, 5, device=DEVICE)
        y = torch.ones(5, dtype=torch.bfloat16, device=DEVICE)
        compiled = torch.compile(lambda x, y: (x[::2] + y).sin())
        compiled(x, y)
        with c.Observer(c.KERNEL) as observer:
            z = compiled(x, y)
            openreg.synchronize()
        names = {x.data_ptr(): "x", y.data_ptr(): "y", z.data_ptr(): "z"}
        for event in observer.events:
            if event[1] == c.BEGIN:
                print(event[5], sorted((names[begin], end - begin, access) for begin, end, access in event[7]))
    """
    assert output_of(python(code)) == "graph_0_cpp_fused_add_sin_slice_0 [('x', 140, 1), ('y', 10, 1), ('z', 80, 2)]"


@pytest.mark.slow
def test_the_failure_of_a_kernel_names_the_graph_and_the_kernel(python: Run) -> None:
    code = """
        torch.set_num_threads(1)
        compiled = torch.compile(lambda x, y: x // y)
        x, y = torch.ones(4, dtype=torch.int32, device=DEVICE), torch.zeros(4, dtype=torch.int32, device=DEVICE)
        for mode in ("inline", "async"):
            with openreg.execution_mode(mode):
                try:
                    compiled(x, y)
                    torch.accelerator.synchronize()
                except RuntimeError as error:
                    print(mode, str(error).rpartition(", ")[2])  # the text before the comma names the file of the check
        print(compiled(x, y + 1).tolist())
    """
    assert output_of(python(code)).splitlines() == [
        "inline ZeroDivisionError (raised by the compiled kernel graph_0_cpp_fused_floor_divide_0)",
        "async ZeroDivisionError (raised by the compiled kernel graph_0_cpp_fused_floor_divide_0)",
        "[1, 1, 1, 1]",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "async"])
def test_an_index_out_of_bounds_names_the_graph_and_the_kernel(python: Run, mode: str) -> None:
    code = """
        torch.set_num_threads(1)
        compiled = torch.compile(lambda x, index: x[index] * 2)
        x = torch.ones(4, device=DEVICE)
        try:
            compiled(x, torch.full((4,), 9, device=DEVICE))
            torch.accelerator.synchronize()
        except RuntimeError as error:
            print(type(error).__name__, str(error).partition(", index ")[2])
    """
    assert output_of(python(code, OPENREG_EXECUTION=mode)) == (
        "RuntimeError out of bounds: 0 <= tmp10 < 4L (raised by the compiled kernel graph_0_cpp_fused_index_mul_0)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "async"])
def test_a_kernel_that_faults_names_the_graph_and_the_kernel(python: Run, mode: str) -> None:
    code = """
        import torch._inductor.config as config
        config.assert_indirect_indexing = False
        torch.set_num_threads(1)
        compiled = torch.compile(lambda x, index: x[index] * 2)
        x = torch.ones(4, device=DEVICE)
        compiled(x, torch.zeros(4, dtype=torch.int64, device=DEVICE))
        compiled(x, torch.full((4,), 1 << 31, device=DEVICE))
        torch.accelerator.synchronize()
    """
    result = python(code, OPENREG_EXECUTION=mode, status=-11)
    assert re.search(
        r"openreg: the kernel graph_0_cpp_fused_index_mul_0 accessed memory of device 0 at 0x\w+ that is not "
        r"allocated: it was freed before the kernel ran, or an index is out of bounds\.",
        result.stderr,
    )


@pytest.mark.slow
@MODES
def test_an_event_is_recorded_after_the_kernels_that_the_program_wrote_before_it(python: Run, mode: str) -> None:
    assert output_of(python(RECORDS_EVENTS, OPENREG_EXECUTION=mode)).splitlines() == ["True"] * 3


@pytest.mark.slow
@MODES
def test_the_value_of_a_pinned_cpu_scalar_is_read_at_the_call(python: Run, mode: str) -> None:
    code = """
        from torch_openreg.openreg import sanitizer

        compiled = torch.compile(lambda scale, x: scale * x)
        scale, x = torch.tensor(2.0).pin_memory(), torch.ones(1000, device=DEVICE)
        compiled(scale, x)
        torch.accelerator.synchronize()
        with sanitizer.enable("race"):  # no race: the call has read the scalar before it returns
            y = compiled(scale, x)
            scale.fill_(100)
            print(y.unique().tolist())
    """
    assert output_of(python(code, OPENREG_EXECUTION=mode)) == "[2.0]"


@pytest.mark.slow
def test_a_buffer_that_a_fused_kernel_makes_and_updates_is_not_read_unwritten(python: Run) -> None:
    code = """
        from torch_openreg.openreg import sanitizer

        x, target = torch.randn(128, 10, device=DEVICE, requires_grad=True), torch.zeros(128, dtype=torch.int64)
        loss = torch.compile(torch.nn.functional.cross_entropy)
        with sanitizer.enable("init"):
            loss(x, target.to(DEVICE)).backward()

        # With a size that varies, one kernel fills the buffer and adds to it. The symbolic sizes are of no interest.
        add = torch.compile(lambda x, i: torch.zeros(7, 5, device=x.device).index_add(0, i, x * 2), dynamic=True)
        with sanitizer.enable("init"):
            add(torch.ones(20, 5, device=DEVICE), torch.zeros(20, dtype=torch.int64, device=DEVICE))
    """
    result = python(code)
    assert output_of(result) == "" and "RecordFunction" not in result.stderr, result.stderr


@pytest.mark.slow
def test_streams_of_the_module_are_traced_and_the_current_device_is_guarded(python: Run) -> None:
    code = """
        from torch._dynamo.testing import CompileCounterWithBackend

        side = openreg.Stream()

        def compute(x):
            current = openreg.current_stream()
            with openreg.stream(side):
                y = x * 2
            other = openreg.Stream()
            other.wait_stream(side)
            with other, openreg.stream(None):
                z = y + torch.ones(3, device=torch.device(DEVICE, openreg.current_device()))
            current.wait_stream(other)
            return z + 1

        counter = CompileCounterWithBackend("inductor")
        compiled = torch.compile(compute, backend=counter, fullgraph=True)
        print(compiled(torch.ones(3, device=DEVICE_0)), compiled(torch.ones(3, device=DEVICE_0)), counter.frame_count)

        place = torch.compile(lambda: torch.ones(1, device=torch.device(DEVICE, openreg.current_device())) + 1)
        for index in (0, 1, 0):
            with openreg.device(index):
                print(place().device)
    """
    assert output_of(python(code)).splitlines() == [
        *(f"tensor([4., 4., 4.], device='{DEVICE}:0') tensor([4., 4., 4.], device='{DEVICE}:0') 1",),
        *(f"{DEVICE}:0", f"{DEVICE}:1", f"{DEVICE}:0"),
    ]


@pytest.mark.slow
def test_functions_about_devices_are_traced_as_those_of_cuda(python: Run) -> None:
    code = """
        from torch._dynamo.testing import EagerAndRecordGraphs

        module = torch.get_device_module(DEVICE)

        def compute(x):
            with module.device(1):
                y = torch.ones(1, device=torch.device(DEVICE, module.current_device())) + 1
                module.synchronize()
            with module.device(None):
                module.synchronize(x.device)
            known = module.is_available(), module.is_initialized(), module.get_device_properties(0).name
            return x + 1, y, known

        backend = EagerAndRecordGraphs()
        x, y, known = torch.compile(compute, backend=backend, fullgraph=True)(torch.ones(1, device=DEVICE_0))
        print(x.device, y.device, module.current_device(), known == (True, True, module.get_device_name(0)))
        waits = torch.ops.streams.synchronize_device
        print([node.args[1] for node in backend.graphs[0].graph.nodes if node.target is waits])
    """
    # For torch.cuda.synchronize() without a device, dynamo waits for device 0.
    waits_for = [0, 0] if DEVICE == "cuda" else [1, 0]
    assert output_of(python(code)).splitlines() == [f"{DEVICE}:0 {DEVICE}:1 0 True", str(waits_for)]


# ---- errors, caches ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "async"])
def test_a_compiled_kernel_refuses_memory_that_was_resized_to_0(python: Run, mode: str) -> None:
    result = python(
        """
        double = torch.compile(lambda x: x * 2 + 1)
        x = torch.ones(300, device="openreg")
        double(x)
        x.untyped_storage().resize_(0)
        try:
            double(x)
        except RuntimeError as error:
            print(str(error).splitlines()[0])
        print(torch.ones(2, device="openreg").sum().item())
        """,
        OPENREG_EXECUTION=mode,
    )
    first, last = output_of(result).splitlines()
    assert first == (
        "OpenReg error: an illegal memory access was encountered (orErrorIllegalAddress from "
        "graph_0_cpp_fused_add_mul_0: the storage of an operand with 1200 bytes was resized to 0 bytes)"
    )
    assert last == "2.0"


@pytest.mark.slow
def test_without_a_cpp_compiler_one_sentence_says_what_to_install(python: Run, tmp_path: Path) -> None:
    code = """
        try:
            torch.compile(lambda x: x + 1)(torch.ones(3, device=DEVICE))
        except Exception as error:
            print(str(error).splitlines()[0])
    """
    expected = (
        f'RuntimeError: torch.compile generates C++ for device "{DEVICE}" and found no C++ compiler: install g++, name '
        'one in the environment variable CXX, or use torch.compile(backend="aot_eager").'
    )
    variables = {"CXX": "/nowhere/c++", "PATH": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    assert output_of(python(code, **variables)) == expected


CACHED = """
    from torch._dynamo.utils import counters
    import torch._inductor.codegen.common
    from torch_openreg.simulator.inductor import _config

    torch._functorch.config.enable_autograd_cache = False
    SETTINGS
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    torch.compile(lambda x: (x * 3).sin())(x).sum().backward()
    print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"])
"""


@pytest.mark.slow
def test_a_second_process_finds_the_graph_in_the_cache_but_not_after_what_it_depends_on_has_changed(
    python: Run, tmp_path: Path
) -> None:
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    one = CACHED.replace("SETTINGS", "torch.set_num_threads(1)")
    two = CACHED.replace("SETTINGS", "torch.set_num_threads(2)")
    version = CACHED.replace("SETTINGS", 'torch.set_num_threads(1); _config.version = "another"')
    sources = CACHED.replace("SETTINGS", 'torch.set_num_threads(1); _config.sources = "another"')
    assert output_of(python(one, **cache)) == "0 2"
    assert output_of(python(one, **cache)) == "2 0"
    assert output_of(python(two, **cache)) == "0 2"
    assert output_of(python(version, **cache)) == "0 2"
    assert output_of(python(sources, **cache)) == "0 2"


ARTIFACTS = """
    import os
    from pathlib import Path
    from torch._dynamo.utils import counters

    artifacts = Path(os.environ["ARTIFACTS"])
    if artifacts.exists() and "LOADS" in os.environ:
        torch.compiler.load_cache_artifacts(artifacts.read_bytes())
    torch.set_num_threads(1)
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    torch.compile(lambda x: (x * 5).sin())(x).sum().backward()
    print(counters["aot_autograd"]["autograd_cache_hit"], counters["aot_autograd"]["autograd_cache_miss"])
    if not artifacts.exists():
        artifacts.write_bytes(torch.compiler.save_cache_artifacts()[0])
"""


@pytest.mark.slow
def test_a_second_process_finds_the_graph_of_autograd_in_the_cache_and_in_saved_artifacts(
    python: Run, tmp_path: Path
) -> None:
    def run(cache: str, **variables: str) -> Done:
        folder = str(tmp_path / cache)
        return python(ARTIFACTS, TORCHINDUCTOR_CACHE_DIR=folder, ARTIFACTS=str(tmp_path / "artifacts"), **variables)

    first = run("first", TORCH_LOGS="output_code")
    assert output_of(first) == "0 1"
    assert "openreg::launch(0, " in first.stderr  # TORCH_LOGS shows the device's code
    assert output_of(run("first")) == "1 0"
    assert output_of(run("empty", LOADS="1")) == "1 0"


@pytest.mark.slow
def test_a_checkpointed_region_draws_the_numbers_of_its_forward_again(python: Run) -> None:
    code = """
        from torch.utils.checkpoint import checkpoint
        import torch._inductor.config as config

        def region(x):
            return torch.nn.functional.dropout(x, 0.5) * x

        for backend in ("aot_eager", "inductor"):
            for config.fallback_random in (False, True):
                torch.compiler.reset()
                x = torch.ones(1000, device=DEVICE, requires_grad=True)
                y = torch.compile(lambda x: checkpoint(region, x, use_reentrant=False), backend=backend)(x)
                y.sum().backward()
                # The mask makes y 0 or 2. The gradient is 2 * y only if the backward draws the same mask again.
                print(backend, 400 < int((y == 0).sum()) < 600, torch.equal(x.grad, 2 * y.detach()))
    """
    assert output_of(python(code)).splitlines() == ["aot_eager True True"] * 2 + ["inductor True True"] * 2


@pytest.mark.slow
def test_the_backward_that_autograd_records_is_compiled_too(python: Run) -> None:
    code = """
        from torch._dynamo.utils import counters

        torch._dynamo.config.compiled_autograd = True
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).to(DEVICE)
        x = torch.randn(5, 8).to(DEVICE)
        torch.compile(lambda x: model(x).square().mean().backward())(x)
        found = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        model(x).square().mean().backward()
        torch.testing.assert_close(found, [parameter.grad for parameter in model.parameters()])
        print(counters["compiled_autograd"]["captures"])
    """
    assert output_of(python(code)) == "1"


NADAM = """
def train(device, compiled):
    torch.manual_seed(0)
    model, x = torch.nn.Linear(7, 5).to(device), torch.randn(4, 7).to(device)
    optimizer = torch.optim.NAdam(model.parameters())
    step = torch.compile(optimizer.step) if compiled else optimizer.step
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        step()
        optimizer.param_groups[0]["lr"] *= 0.5
    return [each.detach().cpu() for each in model.parameters()]
torch.testing.assert_close(train(DEVICE, True), train("cpu", False))
"""


@pytest.mark.slow
def test_a_compiled_optimizer_keeps_its_state_on_the_device(python: Run) -> None:
    output_of(python(NADAM))


MIXED = """
a, b = torch.ones(()), torch.full((), 2.0, device=DEVICE)
try: torch.compile(lambda a, b: torch._foreach_mul_([a], [b]))(a, b)
except Exception as error: print(str(error).splitlines()[0])
print((b + 1).item())
"""


def test_a_kernel_on_the_cpu_gets_no_device_memory(python: Run) -> None:
    assert output_of(python(MIXED)).splitlines() == [
        "RuntimeError: Expected all tensors to be on the same device, but a compiled kernel on the CPU would access a "
        f"tensor on {DEVICE}:0. Operators: _foreach_mul.",
        "3.0",
    ]


@pytest.mark.parametrize("settings", ['"cpp_wrapper": True', '"max_autotune": True, "cpp_wrapper": True'])
def test_a_cpp_wrapper_is_refused_in_one_sentence(python: Run, settings: str) -> None:
    code = f"""
        try:
            torch.compile(lambda x: x + 1, options={{{settings}}})(torch.ones(3, device=DEVICE))
        except Exception as error:
            print(str(error).splitlines()[0])
    """
    assert output_of(python(code)) == (
        f'NotImplementedError: torch._inductor.config.cpp_wrapper and torch._export.aot_compile are not supported for device "{DEVICE}": '
        "use torch.compile, or torch._inductor.aoti_compile_and_package for a file."
    )


@pytest.mark.slow
def test_a_package_of_aot_inductor_runs_on_the_device_in_python_and_in_a_program_in_cpp(
    python: Run, tmp_path: Path
) -> None:
    package = tmp_path / "model.pt2"
    printed = output_of(python(PACKAGES, PACKAGE=str(package), OPENREG_EXECUTION="chaos"))
    assert printed == PRINTED_BY_PACKAGES.format(device=DEVICE)
    (tmp_path / "program.cpp").write_text(LOADS_A_PACKAGE)
    code = f"""
        import subprocess, torch_openreg
        from torch.utils import cpp_extension

        include = [f"-I{{folder}}" for folder in cpp_extension.include_paths()]
        (libraries,) = cpp_extension.library_paths()
        names = ["-ltorch", "-ltorch_cpu", "-lc10"]
        command = ["c++", "-std=c++20", "program.cpp", "-o", "program", *include, f"-L{{libraries}}", *names]
        subprocess.run([*command, f"-Wl,-rpath,{{libraries}}"], cwd={str(tmp_path)!r}, check=True)
        backend = torch_openreg.library_paths()[0] + "/libtorch_openreg.so"
        subprocess.run([{str(tmp_path / "program")!r}, backend, {str(package)!r}], check=True)
    """
    assert output_of(python(code)) == "openreg:0 [5, 4]\nopenreg:0 [5]\nopenreg:0 [40]"


LOADS_A_PACKAGE = """
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <iostream>

int main(int, char** arguments) {
  if (dlopen(arguments[1], RTLD_NOW) == nullptr) return 2;
  c10::register_privateuse1_backend("openreg");
  torch::inductor::AOTIModelPackageLoader loader(arguments[2]);
  for (const at::Tensor& result : loader.run({at::ones({5, 8}, at::Device("openreg:0"))})) {
    std::cout << result.device() << " " << result.sizes() << std::endl;
  }
}
"""


def test_the_weights_of_a_package_are_the_hosts(python: Run, tmp_path: Path) -> None:
    code = """
        import os

        model, x = torch.nn.Linear(3, 2, bias=False).to(DEVICE), torch.ones(1, 3, device=DEVICE)
        before = torch.accelerator.memory_allocated()
        exported = torch.export.export(model, (x,))
        torch._inductor.aoti_compile_and_package(exported, package_path=os.environ["PACKAGE"])
        packaged = torch._inductor.aoti_load_package(os.environ["PACKAGE"])
        print(torch.accelerator.memory_allocated() - before)
        for place in ("cpu", DEVICE):
            try:
                packaged.load_constants({"weight": torch.full((2, 3), 2.0, device=place)}, check_full_update=True)
            except RuntimeError:
                print("refused")
            print(packaged(x).tolist())
    """
    assert output_of(python(code, PACKAGE=str(tmp_path / "model.pt2"))) == "0\n[[6.0, 6.0]]\nrefused\n[[6.0, 6.0]]"


def test_a_library_of_aot_inductor_without_a_package_is_refused_in_one_sentence(python: Run) -> None:
    code = """
        class Model(torch.nn.Module):
            def forward(self, x):
                return x.sin() + 1

        try:
            torch._export.aot_compile(Model(), (torch.ones(3, device=DEVICE),))
        except Exception as error:
            print(str(error).splitlines()[0])
    """
    sentence = (
        f'torch._inductor.config.cpp_wrapper and torch._export.aot_compile are not supported for device "{DEVICE}": '
        "use torch.compile, or torch._inductor.aoti_compile_and_package for a file."
    )
    assert output_of(python(code)).removeprefix("NotImplementedError: ") == sentence


@pytest.mark.slow
def test_what_standalone_compile_compiles_is_saved_and_loaded(python: Run, tmp_path: Path) -> None:
    assert output_of(python(COMPILES_STANDALONE, ARTIFACT=str(tmp_path / "artifact"))) == f"{DEVICE}:0"


# ---- torch.export --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_exported_program_is_saved_loaded_and_run_with_other_shapes(python: Run) -> None:
    code = """
        import io

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(4, 3)
                self.register_buffer("scale", torch.full((3,), 2.0))

            def forward(self, x):
                return torch.nn.functional.layer_norm(self.linear(x), (3,)) * self.scale

        torch.manual_seed(0)
        model, x = Model().to(DEVICE), torch.randn(5, 4).to(DEVICE)
        exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        for program in (exported, exported.run_decompositions()):
            file = io.BytesIO()
            torch.export.save(program, file)
            file.seek(0)
            loaded = torch.export.load(file).module()
            y = torch.randn(9, 4).to(DEVICE)
            torch.testing.assert_close(loaded(y), model(y))
            print(loaded(y).device.type, next(loaded.parameters()).device.type)
        torch.testing.assert_close(torch.compile(exported.module())(x), model(x))
    """
    assert output_of(python(code)).splitlines() == [f"{DEVICE} {DEVICE}"] * 2
