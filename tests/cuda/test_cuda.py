"""The device under the name cuda, through torch.cuda: TORCH_OPENREG_AS=cuda, each test in a process of its own.

If a test expects the same as on CUDA, a comment names the file of PyTorch 2.13 that says so. Tests of single names are
in tests/cuda/cuda_rows.py.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import programs
import pytest
from cuda_builds import AS_CUDA
from programs import COMPILER, DISTRIBUTED, Run

pytestmark = AS_CUDA


@pytest.fixture
def cuda(run_python: Run) -> Callable[..., list[str]]:
    """A function that runs code on the type cuda and returns the lines that the code printed.

    The test fails if the code fails or writes to stderr.
    """

    def run(code: str, **settings: Any) -> list[str]:
        result = run_python(HELPERS + textwrap.dedent(code), TORCH_OPENREG_AS="cuda", **settings, status=0, errors="")
        return result.stdout.splitlines()

    return run


HELPERS = """
import json, os, sys, torch
def raised(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""

Cuda = Callable[..., list[str]]

# ---- devices


def test_properties_are_those_of_an_a100_that_says_it_is_simulated(cuda: Cuda) -> None:
    code = """
    p = torch.cuda.get_device_properties(1)
    print(p)
    print(type(p) is torch._C._CudaDeviceProperties, torch.cuda.get_device_name() == p.name == p.gcnArchName)
    print(json.dumps({n: getattr(p, n) for n in dir(p) if n[0] != "_" and isinstance(getattr(p, n), int)}))
    print(p.uuid, bytes(p.uuid.bytes)[:7])
    print(raised(torch.cuda.get_device_properties, 2))
    print(torch.version.cuda, [p.name for p in map(torch.cuda.get_device_properties, range(2))])
    """
    lines = cuda(code, OPENREG_DEVICE_MEMORY="1G")
    # torch/csrc/cuda/Module.cpp, registerCudaDeviceProperties
    assert lines[0] == (
        "_CudaDeviceProperties(name='OpenReg simulated accelerator', major=8, minor=0, total_memory=1024MB, "
        "multi_processor_count=108, uuid=4f70656e-5265-6700-0000-000000000001, pci_bus_id=2, pci_device_id=0, "
        "pci_domain_id=0, L2_cache_size=40MB)"
    )
    assert lines[1] == "True True"
    assert json.loads(lines[2]) == {
        "L2_cache_size": 41943040,
        "clock_rate": 1410000,
        "is_integrated": 0,
        "is_multi_gpu_board": 0,
        "major": 8,
        "max_threads_per_block": 1024,
        "max_threads_per_multi_processor": 2048,
        "memory_bus_width": 5120,
        "memory_clock_rate": 1215000,
        "minor": 0,
        "multi_processor_count": 108,
        "pci_bus_id": 2,
        "pci_device_id": 0,
        "pci_domain_id": 0,
        "regs_per_multiprocessor": 65536,
        "shared_memory_per_block": 49152,
        "shared_memory_per_block_optin": 166912,
        "shared_memory_per_multiprocessor": 167936,
        "total_memory": 1 << 30,
        "warp_size": 32,
    }
    assert lines[3] == "4f70656e-5265-6700-0000-000000000001 b'OpenReg'"
    assert lines[4] == "AssertionError: Invalid device id"  # torch/cuda/__init__.py, get_device_properties
    assert lines[5] == "None ['OpenReg simulated accelerator', 'OpenReg simulated accelerator']"


def test_without_a_device_cuda_is_not_available(cuda: Cuda) -> None:
    code = """
    print(torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.get_arch_list())
    print(raised(torch.cuda.init))
    print(raised(torch.ones, 2, device="cuda"))
    """
    # c10/cuda/CUDAFunctions.cpp, device_count_ensure_non_zero
    sentence = "RuntimeError: No CUDA GPUs are available"
    assert cuda(code, OPENREG_VISIBLE_DEVICES="") == ["False 0 []", sentence, sentence]


def test_without_a_device_statistics_refuse_the_missing_index(cuda: Cuda) -> None:
    """torch.cuda passes None to the functions of torch/csrc/cuda/Module.cpp, which have these words."""
    code = """
    print(raised(torch.cuda.reset_peak_memory_stats))
    print(raised(torch.cuda.reset_accumulated_memory_stats))
    print(raised(torch.cuda.ExternalStream, 0))
    print(torch.cuda.memory_stats(), torch.cuda.memory_allocated())
    """
    assert cuda(code, CUDA_VISIBLE_DEVICES="") == [
        "RuntimeError: invalid argument to reset_peak_memory_stats",
        "RuntimeError: invalid argument to reset_accumulated_memory_stats",
        "RuntimeError: invalid argument to exchangeDevice",
        "OrderedDict() 0",
    ]


def test_a_setting_that_makes_no_sense_is_named_at_the_start(run_python: Run) -> None:
    code = HELPERS + "print(torch.cuda.is_available())\nprint(raised(torch.cuda.init))"
    result = run_python(code, TORCH_OPENREG_AS="cuda", OPENREG_DEVICE_COUNT="many")
    lines = result.stdout.splitlines()
    assert (result.returncode, lines[0]) == (0, "False")
    assert lines[1].startswith("RuntimeError:") and 'OPENREG_DEVICE_COUNT="many" is not valid' in lines[1]


def test_asking_for_devices_starts_none_so_that_a_child_may_use_them(cuda: Cuda) -> None:
    code = """
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2 and torch.cuda.is_bf16_supported
    torch.cuda.manual_seed_all(3)  # queued: torch/cuda/random.py
    torch.accelerator.is_available(), torch.accelerator.device_count()
    assert not torch.cuda.is_initialized() and not torch._C._cuda_hasPrimaryContext(0)
    pid = os.fork()
    if not pid:
        print(torch.rand(1, device="cuda").is_cuda, torch.cuda.initial_seed(), torch._C._cuda_hasPrimaryContext(0))
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    """
    assert cuda(code) == ["True 3 True"]
    assert cuda(code, PYTORCH_NVML_BASED_CUDA_CHECK="1") == ["True 3 True"]


@pytest.mark.parametrize("call", ["set_device(1)", "device(1).__enter__()", "current_device()", "synchronize()"])
def test_what_starts_cuda_starts_the_device(call: str, cuda: Cuda) -> None:
    # torch/csrc/cuda/Module.cpp, THCPModule_setDevice_wrap and THCPModule_exchangeDevice call device_lazy_init
    assert cuda(f"torch.cuda.{call}; print(torch.cuda.is_initialized())") == ["True"]


def test_a_forked_child_is_told_in_cudas_words(cuda: Cuda) -> None:
    code = """
    x = torch.ones(2, device="cuda")
    pid = os.fork()
    if not pid:
        print(torch.cuda.is_initialized())
        print(raised(torch.cuda.init))  # raised in torch/cuda/__init__.py, _lazy_init
        print(raised(lambda: x + 1))  # raised in C++
        print(raised(torch.cuda.Stream().synchronize) if not raised(torch.cuda.Stream) else raised(torch.cuda.Stream))
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    """
    sentence = (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
        "the 'spawn' start method"
    )
    assert cuda(code) == ["False", sentence, sentence, sentence]


def test_queued_calls_run_at_the_start_in_their_order(cuda: Cuda) -> None:
    code = """
    seen = []
    torch.cuda._lazy_call(lambda: seen.append("first"))
    torch.manual_seed(7)
    print(seen, torch.cuda.is_initialized())
    print(torch.rand(1, device="cuda:1").item() == torch.rand(1).item(), seen)
    print([g.initial_seed() for g in torch.cuda.default_generators])
    with torch.random.fork_rng(devices=range(2)):
        a = torch.rand(2, device="cuda")
    print(torch.equal(a, torch.rand(2, device="cuda")))
    """
    assert cuda(code) == ["[] False", "True ['first']", "[7, 7]", "True"]
    code = """
    def fail():
        raise KeyError("no")
    torch.cuda._lazy_call(fail)
    print(raised(torch.cuda.init).splitlines()[0])
    from torch_openreg import openreg
    print(openreg.DeferredOpenRegCallError is torch.cuda.DeferredCudaCallError)
    """
    sentence = "DeferredCudaCallError: CUDA call failed lazily at initialization with error: 'no'"
    assert cuda(code) == [sentence, "True"]


@pytest.mark.slow
def test_real_gpus_of_the_machine_are_not_these(tmp_path: Path, cuda: Cuda) -> None:
    """Before the start torch.cuda counts the GPUs that NVML knows: torch/cuda/__init__.py, _raw_device_count_nvml."""
    source = tmp_path / "nvml.c"
    source.write_text(
        "int nvmlInit(void) { return 0; }\\nint nvmlDeviceGetCount_v2(int* count) { *count = 7; return 0; }\\n".replace(
            "\\n", "\n"
        )
    )
    programs.run("cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", source, status=0)
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError_DriverNotLoaded(Exception): pass\n"
        "def nvmlInit(): pass\n"
        "def nvmlDeviceGetHandleByIndex(index): return index\n"
        "def nvmlDeviceGetComputeRunningProcesses(handle): return []\n"
        "def nvmlDeviceGetTemperature(handle, sensor): return 42\n"
    )
    code = """
    import ctypes, pynvml
    ctypes.CDLL("libnvidia-ml.so.1").nvmlInit()
    print(torch.cuda.device_count(), torch.cuda.is_available(), torch.cuda.is_initialized())
    print(raised(torch.cuda.temperature))
    print(torch.cuda.list_gpu_processes() == torch.cuda.memory.list_gpu_processes())
    """
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert cuda(code, LD_LIBRARY_PATH=str(tmp_path), PYTHONPATH=path) == [
        "2 True False",
        "ModuleNotFoundError: nvidia-ml-py does not seem to be installed or it can't be imported.",
        "True",
    ]


@pytest.mark.slow
def test_torch_accelerator_and_reports_answer_cuda(cuda: Cuda) -> None:
    code = """
    print(torch.accelerator.current_accelerator(), torch.accelerator.device_count())
    print("Simulated CUDA devices of torch_openreg" in torch.__config__.show())
    from torch.utils import collect_env
    report = collect_env.get_pretty_env_info()
    print("Is CUDA available: True" in report, "CUDA used to build PyTorch: Could not collect" in report)
    """
    assert cuda(code) == ["cuda 2", "True", "True True"]


@pytest.mark.slow
def test_launch_blocking_runs_each_launch_in_its_call(cuda: Cuda) -> None:
    code = """
    from torch_openreg import openreg
    torch.cuda.init()
    print(openreg.get_execution_mode())
    """
    assert cuda(code, OPENREG_EXECUTION="async", CUDA_LAUNCH_BLOCKING="1") == ["inline"]
    assert cuda(code, OPENREG_EXECUTION="async", CUDA_LAUNCH_BLOCKING="0") == ["async"]


def test_an_error_of_the_device_has_cudas_type_and_code(cuda: Cuda) -> None:
    code = """
    from torch_openreg import _C
    try:
        _C._caching_allocator_delete(1)
    except RuntimeError as error:
        print(type(error).__name__)
    import ctypes
    e = torch.cuda.Event(enable_timing=True)
    e.record()
    plain = torch.cuda.Event()
    plain.record()
    print(raised(e.elapsed_time, plain))
    print(raised(e.elapsed_time, torch.cuda.Event(enable_timing=True)))
    other = torch.cuda.Event(enable_timing=True)
    other.record(torch.cuda.current_stream(1))
    torch.cuda.synchronize(1)
    try:
        e.elapsed_time(other)
    except torch.AcceleratorError as error:
        print(error.error_code, str(error).partition(" (orError")[0])
    try:
        torch.cuda.set_device(9)
    except torch.AcceleratorError as error:
        print(error.error_code)
    print([torch.cuda.Stream(priority=number).priority for number in (-100, -3, -1, 0, 1, 100)])
    import warnings
    warnings.simplefilter("ignore")  # the notice that the mode is a prototype
    print(raised(torch.cuda.set_sync_debug_mode, 3))
    print(raised(torch.cuda.check_error, 700))
    print(raised(other.record, torch.cuda.current_stream(0)))
    for name in ("memory_allocated", "reset_peak_memory_stats", "reset_accumulated_memory_stats"):
        print(raised(getattr(torch.cuda, name), 9))
    """
    assert cuda(code) == [
        "RuntimeError",
        # c10/cuda/CUDAEvent.h, elapsed_time
        "ValueError: Both events must be created with argument 'enable_timing=True'.",
        "ValueError: Both events must be recorded before calculating elapsed time.",
        "400 CUDA error: orEventElapsedTime: start belongs to device 0, and end to device 1; record both events on one "
        "device",
        "101",
        "[-3, -3, -1, 0, 0, 0]",  # c10/cuda/CUDAStream.cpp, getStreamFromPool
        # torch/csrc/cuda/Module.cpp, THCPModule_cudaSetSyncDebugMode
        "RuntimeError: invalid value of debug_mode, expected one of 0,1,2",
        "CudaError: an illegal memory access was encountered (700)",
        "RuntimeError: Event device 1 does not match recording stream's device 0.",  # c10/cuda/CUDAEvent.h
        # c10/cuda/CUDACachingAllocator.cpp, assertValidDevice
        *["RuntimeError: Invalid device argument 9: did you call init?"] * 3,
    ]


def test_the_first_call_of_set_sync_debug_mode_says_that_the_mode_is_a_prototype(cuda: Cuda) -> None:
    code = """
    import warnings
    def heard(mode):
        with warnings.catch_warnings(record=True, action="always") as seen:
            torch.cuda.set_sync_debug_mode(mode)
        return [f"{each.category.__name__}: {each.message}" for each in seen]
    print(*heard("warn"), heard("default"))
    torch.set_warn_always(True)
    print(len(heard("default")))
    torch.set_warn_always(False)
    warnings.simplefilter("error")
    torch.cuda.set_sync_debug_mode("error")
    print(torch.cuda.get_sync_debug_mode(), raised(torch.ones(1, device="cuda").item))
    """
    # torch/csrc/cuda/Module.cpp, THCPModule_cudaSetSyncDebugMode
    notice = "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
    assert cuda(code) == [
        f"UserWarning: {notice} []",
        "1",
        "2 RuntimeError: called a synchronizing CUDA operation",
    ]


def test_the_random_state_of_a_gpus_checkpoint_is_taken_before_the_start(cuda: Cuda) -> None:
    code = """
    # aten/src/ATen/cuda/CUDAGeneratorImpl.cpp, get_state(): the seed, then the offset
    states = [torch.tensor([seed, 0]).view(torch.uint8) for seed in (42, 43)]
    torch.cuda.set_rng_state_all(states)
    print(torch.cuda.is_initialized())
    for device, seed in (("cuda:0", 42), ("cuda:1", 43)):
        drawn = torch.rand(3, device=device).tolist()
        print(drawn == torch.rand(3, generator=torch.Generator().manual_seed(seed)).tolist())
    """
    assert cuda(code) == ["False", "True", "True"]


@pytest.mark.slow
def test_recurrent_networks_do_not_advise_to_rebuild_pytorch(cuda: Cuda) -> None:
    code = """
    import warnings
    warnings.simplefilter("error")
    lstm = torch.nn.LSTM(3, 4, bidirectional=True).cuda()
    print(lstm(torch.ones(2, 1, 3, device="cuda"))[0].shape)
    """
    assert cuda(code) == ["torch.Size([2, 1, 8])"]


def test_each_replaced_function_of_pytorch_has_a_reason_of_a_known_kind(cuda: Cuda) -> None:
    code = """
    import collections
    from torch_openreg._cuda._upstream import KINDS, ROWS
    count = collections.Counter(row.why.partition(": ")[0] for row in ROWS)
    print(count.keys() == set(KINDS), len({row[:2] for row in ROWS}) == len(ROWS) < 45)
    """
    assert cuda(code) == ["True True"]


# ---- the compiler


@pytest.mark.slow
def test_dynamo_calls_streams_and_ranges_and_does_not_trace_into_them(cuda: Cuda) -> None:
    code = """
    import logging, warnings
    logging.disable()
    warnings.simplefilter("ignore")
    s = torch.cuda.Stream()
    def breaks_in_a_stream(x):
        with torch.cuda.stream(s):
            y = x * 2
            torch._dynamo.graph_break()
            return y + 1
    def has_a_range(x):
        with torch.cuda.nvtx.range("a"):
            return x * 2
    def pushes_a_range(x):
        torch.cuda.nvtx.range_push("a")
        y = x * 2
        torch.cuda.nvtx.range_pop()
        return y
    for function in (breaks_in_a_stream, has_a_range, pushes_a_range):
        compiled = torch.compile(function, backend="aot_eager")
        print(*[compiled(torch.ones(2, device="cuda")).tolist() for _ in range(2)])
    """
    lines = cuda(code, imports=COMPILER)
    assert lines == ["[3.0, 3.0] [3.0, 3.0]", *["[2.0, 2.0] [2.0, 2.0]"] * 2]


# ---- the profiler


@pytest.mark.slow
def test_emit_nvtx_within_a_marked_part_and_around_it(cuda: Cuda, tmp_path: Path) -> None:
    code = """
    import json, os
    x = torch.ones(10, device="cuda")
    def operators():
        with open(os.environ["TORCH_OPENREG_TRACE"]) as file:
            return [event["name"] for event in json.load(file)["traceEvents"] if event.get("cat") == "cpu_op"]
    with torch.cuda.profiler.profile():
        x + x
        with torch.autograd.profiler.emit_nvtx():
            x * x
    print(operators())
    with torch.autograd.profiler.emit_nvtx(record_shapes=True) as nvtx:
        with torch.cuda.profiler.profile():
            x - x
        print(raised(nvtx.__enter__))
    print(operators())
    with torch.autograd.profiler.emit_nvtx(enabled=False) as nvtx:
        print(nvtx)
    """
    assert cuda(code, TORCH_OPENREG_TRACE=str(tmp_path / "part.json"), KINETO_LOG_LEVEL="10") == [
        "['aten::add', 'aten::mul']",
        "RuntimeError: NVTX annotation context manager is not reentrant",
        "['aten::sub']",
        "None",
    ]


# ---- streams and events


def test_streams_have_cudas_attributes(cuda: Cuda) -> None:
    code = """
    s, urgent, default = torch.cuda.Stream(), torch.cuda.Stream(1, priority=-9), torch.cuda.default_stream()
    print(s.priority, urgent.priority, default.priority, torch.cuda.Stream.priority_range())
    print(s.device, urgent.device, s.stream_id > 0, s.device_index, s.device_type)
    print(default.cuda_stream, default, torch._C._cuda_getCurrentRawStream(0))
    print(s == torch.cuda.Stream(stream_id=s.stream_id, device_index=0, device_type=1), s == urgent, s == 1)
    print(len({s, s, urgent}), s._as_parameter_.value == s.cuda_stream == s.__cuda_stream__()[1])
    print(repr(s) == f"<torch.cuda.Stream device=cuda:0 cuda_stream={s.cuda_stream:#x}>")
    print(isinstance(s, torch.Stream), type(torch.cuda.current_stream()) is torch.cuda.Stream)
    with torch.cuda.stream(urgent):
        print(torch.cuda.current_device(), torch.cuda.current_stream() == urgent)
        print(torch.accelerator.current_stream().stream_id == urgent.stream_id)
        print(torch._C._cuda_getCurrentRawStream(1) == urgent.cuda_stream)
    print(torch.cuda.current_device(), torch.cuda.current_stream() == default)
    with s:
        print(torch.cuda.current_stream() == s)
    x = torch.ones(3, device="cuda")
    x.record_stream(s)
    print(torch.cuda.ExternalStream(s.cuda_stream) == s, raised(torch.cuda.ExternalStream, s.cuda_stream, priority=-1))
    print(raised(torch.cuda.ExternalStream, 0x1234))
    print(raised(torch.cuda.get_stream_from_external, s.cuda_stream, 1) is None)
    """
    assert cuda(code) == [
        "0 -3 0 (0, -3)",  # c10/cuda/CUDAStream.h, priority_range: PyTorch supports at most four levels
        "cuda:0 cuda:1 True 0 1",
        "0 <torch.cuda.Stream device=cuda:0 cuda_stream=0x0> 0",
        "True False False",
        "2 True",
        "True",
        "True True",
        "1 True",
        "True",
        "True",
        "0 True",
        "True",
        "True RuntimeError: Priority was explicitly set for a external stream",
        "RuntimeError: Expected a stream that PyTorch made on device 0, but got the address 0x1234.",
        "False",
    ]


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_streams_wait_for_events_and_events_measure(mode: str, cuda: Cuda) -> None:
    code = """
    import time
    s, t = torch.cuda.Stream(), torch.cuda.Stream()
    event = torch.cuda.Event()
    print(event, event.cuda_event, event.device, event.query())  # torch/cuda/streams.py: record() creates it
    with torch.cuda.stream(s):
        torch.cuda._sleep(14_100_000)  # 10 ms
        x = torch.full((1000,), 3.0, device="cuda")
        event.record()
    print(repr(event) == f"<torch.cuda.Event {event.cuda_event:#x}>", event.device, event.cuda_event == event.event_id)
    event.wait(t)
    with torch.cuda.stream(t):
        y = x + 1
    torch.cuda.current_stream().wait_stream(t)
    torch.cuda.current_stream().wait_event(t.record_event())
    print((y * 2).sum().item(), event.query(), s.query())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin = time.perf_counter()
    start.record(s)
    with torch.cuda.stream(s):
        torch.cuda._sleep(14_100_000)
    s.record_event(end)
    end.synchronize()
    print(9 < start.elapsed_time(end) <= (time.perf_counter() - begin) * 1000, end.query())
    generic = torch.accelerator.current_stream()
    generic.wait_event(end)
    generic.wait_stream(s)
    start.record(generic)
    """
    assert cuda(code, OPENREG_EXECUTION=mode) == [
        "<torch.cuda.Event uninitialized> 0 None True",
        "True cuda:0 True",
        "8000.0 True True",
        "True True",
    ]


@pytest.mark.slow
def test_cudas_sanitizer_finds_a_race_and_accepts_the_repaired_program(run_python: Run) -> None:
    code = """
import torch, torch.cuda._sanitizer as sanitizer
sanitizer.enable_cuda_sanitizer()
a = torch.rand(1000, device="cuda")
side = torch.cuda.Stream()
WAIT
with torch.cuda.stream(side):
    torch.mul(a, 5, out=a)
torch.cuda.synchronize()
print("done")
"""
    race = run_python(code.replace("WAIT", ""), TORCH_OPENREG_AS="cuda")
    assert race.returncode == 1 and "CSAN detected a possible data race on tensor with data pointer" in race.stderr
    assert "Previous access by stream 0 during kernel:\naten::rand" in race.stderr  # the default stream is 0
    wait = "side.wait_stream(torch.cuda.current_stream())"
    run_python(code.replace("WAIT", wait), TORCH_OPENREG_AS="cuda", status=0, output="done\n", errors="")


# ---- memory


def test_out_of_memory_is_said_in_cudas_words(cuda: Cuda) -> None:
    code = """
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *args: seen.append(args))
    x = torch.ones(1 << 18, device="cuda:1")
    try:
        torch.empty(2 << 30, dtype=torch.uint8, device="cuda:1")
    except torch.cuda.OutOfMemoryError as error:
        print(error)
    print(torch.cuda.OutOfMemoryError is torch.OutOfMemoryError, torch.cuda.memory_stats(1)["num_ooms"])
    print(seen)
    torch.cuda.set_per_process_memory_fraction(0.5, 0)
    print(raised(torch.empty, 700 << 20, dtype=torch.uint8, device="cuda")[:80])
    """
    lines = cuda(code, OPENREG_DEVICE_MEMORY="1G")
    # c10/cuda/CUDACachingAllocator.cpp, DeviceCachingAllocator::malloc
    assert lines[0].startswith(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 1.00 GiB of which 1022.00 MiB "
        "is free. "
    )
    assert lines[0].endswith(
        "Including non-PyTorch memory, this process has 2.00 MiB memory in use. Of the allocated memory 1.00 MiB is "
        "allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory "
        "is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
        "documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-"
        "usage-with-pytorch-cuda-alloc-conf) The GPU is simulated: OPENREG_DEVICE_MEMORY sets its capacity."
    )
    assert lines[1] == "True 1"
    assert lines[2] == f"[(1, {2 << 30}, {1 << 30}, {1022 << 20})]"
    assert lines[3].startswith("OutOfMemoryError: CUDA out of memory. Tried to allocate 700.00 MiB. GPU 0")


def test_the_allocator_of_pinned_memory_has_an_address(cuda: Cuda) -> None:
    code = """
    storage = torch._C.StorageBase.__new__(torch.UntypedStorage, 100, allocator=torch.cuda.memory._host_allocator())
    print(storage.device, storage.nbytes(), storage.is_pinned())
    """
    assert cuda(code) == ["cpu 100 True"]


@pytest.mark.slow
def test_the_settings_of_cudas_allocator_are_read(cuda: Cuda) -> None:
    code = """
    x = torch.empty(300_000, device="cuda")
    print(torch.cuda.memory_allocated(), torch.cuda.memory_snapshot()[0]["blocks"][0]["requested_size"])
    print(torch.cuda.memory._snapshot()["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"])
    """
    rounded = "roundup_power2_divisions:4"
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        assert cuda(code, **{name: rounded}) == ["1310720 1200000", rounded]
    # c10/cuda/CUDAAllocatorConfig.h, getKeys
    settings = (
        "backend:native,pinned_use_cuda_host_register:True,pinned_num_register_threads:8,"
        "release_lock_on_cudamalloc:True,release_lock_on_hipmalloc:True,pinned_use_hip_host_register:True,"
        "graph_capture_record_stream_reuse:False,pinned_reserve_segment_size_mb:1,"
        "pinned_free_catch_all:True,throw_on_cudamalloc_oom:True"
    )
    assert cuda(code, PYTORCH_CUDA_ALLOC_CONF=settings) == ["1200128 1200000", settings]
    code = """
    settings = torch.cuda.memory._snapshot()["allocator_settings"]
    print(*(settings[name] for name in ("pinned_num_register_threads", "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register", "graph_capture_record_stream_reuse")))
    """
    # torch/csrc/cuda/Module.cpp, THCPModule_memorySnapshot
    assert cuda(code, PYTORCH_CUDA_ALLOC_CONF=settings) == ["8 True True False"]
    assert cuda(code, PYTORCH_CUDA_ALLOC_CONF="graph_capture_record_stream_reuse: True") == ["1 False False True"]
    settings = "release_lock_on_hipmalloc:True,pinned_num_register_threads:08"
    assert cuda(code, PYTORCH_CUDA_ALLOC_CONF=settings) == ["8 True False False"]
    code = """
    fraction = torch.cuda.get_per_process_memory_fraction(1)
    print(fraction, raised(torch.empty, 768 << 20, dtype=torch.uint8, device="cuda"))
    """
    (line,) = cuda(code, PYTORCH_CUDA_ALLOC_CONF="per_process_memory_fraction:0.5", OPENREG_DEVICE_MEMORY="1G")
    assert line.startswith("0.5 OutOfMemoryError: CUDA out of memory. Tried to allocate 768.00 MiB.")


@pytest.mark.slow
def test_shared_memory_is_registered_as_pinned_memory(cuda: Cuda) -> None:
    code = """
    import warnings
    warnings.simplefilter("ignore")
    x = torch.arange(1000.0).share_memory_()
    cudart = torch.cuda.cudart()
    print(x.is_pinned(), cudart.cudaHostRegister(x.data_ptr(), x.nbytes, 1), x.is_pinned(), x.is_shared())
    print(torch.equal(x.to("cuda", non_blocking=True).cpu(), x))
    print(raised(torch.cuda.check_error, cudart.cudaHostRegister(x.data_ptr(), x.nbytes, 0)))
    print(cudart.cudaHostUnregister(x.data_ptr()), x.is_pinned())
    print(raised(torch.cuda.check_error, cudart.cudaHostUnregister(x.data_ptr())))
    from torch.distributed._state_dict_utils import _create_cpu_state_dict
    kept = _create_cpu_state_dict({"x": x.cuda()}, pin_memory=True, share_memory=True)["x"]
    print(kept.is_pinned(), kept.is_shared(), kept.shape)
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    stager = DefaultStager(StagingOptions(use_async_staging=False))
    print(torch.equal(stager.stage({"x": x.cuda()})["x"], x))
    stager.close()
    """
    assert cuda(code, imports=DISTRIBUTED) == [
        "False cudaError.success True True",
        "True",
        # the texts of cudaErrorHostMemoryAlreadyRegistered and cudaErrorHostMemoryNotRegistered
        "CudaError: part or all of the requested memory range is already mapped (712)",
        "cudaError.success False",
        "CudaError: pointer does not correspond to a registered memory region (713)",
        "True True torch.Size([1000])",
        "True",
    ]


@pytest.mark.slow
def test_the_history_of_allocations_is_recorded_and_dumped(tmp_path: Path, cuda: Cuda) -> None:
    code = """
    import pickle
    torch.cuda.memory._record_memory_history(max_entries=100, stacks="python")
    torch.cuda.memory._set_memory_metadata("step 1")
    def here():
        return torch.ones(1000, device="cuda")
    x = here()
    print(any(f["name"] == "here" for f in torch.cuda.memory._allocation_traceback(x.data_ptr())))
    torch.cuda.memory._dump_snapshot("dump.pickle")
    dump = pickle.load(open("dump.pickle", "rb"))
    (entry,) = [e for e in dump["device_traces"][0] if e["action"] == "alloc"]
    print(entry["size"], entry["user_metadata"], entry["addr"] == x.data_ptr(), torch._C._cuda_isHistoryEnabled())
    torch.cuda.memory._record_memory_history(None)
    print(torch._C._cuda_isHistoryEnabled(), torch.cuda.memory._get_memory_metadata())
    from torch.cuda import _memory_viz
    print("<html" in _memory_viz.trace_plot(dump) or "<script" in _memory_viz.trace_plot(dump))
    torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=10)  # the older form
    y = here()
    print([entry["action"] for entry in torch.cuda.memory._snapshot()["device_traces"][0]].count("alloc"))
    torch.cuda.memory._record_memory_history(False)
    """
    assert cuda(code) == ["True", "4000 step 1 True True", "False step 1", "True", "2"]


@pytest.mark.slow
def test_a_snapshot_names_a_stream_by_its_handle(cuda: Cuda) -> None:
    code = """
    from torch_openreg import openreg
    torch.cuda.memory._record_memory_history(max_entries=100)
    s = torch.cuda.Stream(1)
    with torch.cuda.stream(s):
        x = torch.ones(10, device="cuda:1")
    y = torch.ones(10, device="cuda:0")
    names = {0: "default", s.cuda_stream: "s"}
    snapshot = torch.cuda.memory._snapshot()
    print(*(names[segment["stream"]] for segment in snapshot["segments"]))
    for trace in snapshot["device_traces"]:
        print({(entry["action"], names[entry["stream"]]) for entry in trace if entry["action"] == "alloc"})
    print([segment["stream"] == s.stream_id for segment in openreg.memory.memory_snapshot()])
    """
    # torch/csrc/cuda/Module.cpp, THCPModule_memorySnapshot: int64_t(segmentInfo.stream), which is a cudaStream_t
    assert cuda(code) == ["default s", "{('alloc', 'default')}", "{('alloc', 's')}", "[False, True]"]


def test_a_pool_keeps_its_memory_apart(cuda: Cuda) -> None:
    code = """
    pool = torch.cuda.MemPool(use_on_oom=False, no_split=True)
    print(pool.allocator, pool.use_count(), pool.id[0])
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(1000, device="cuda")
    y = torch.ones(1000, device="cuda")
    key = "_".join(map(str, pool.id))
    print([s["address"] == x.data_ptr() for s in pool.snapshot()], len(torch.cuda.memory_snapshot()) == 2)
    print(torch.cuda.memory_stats()[f"reserved_bytes_by_private_pools.{key}.all.current"])
    print(raised(torch.cuda.MemPool, object()))
    print(pool.id != torch.cuda.graph_pool_handle() != torch.cuda.MemPool().id)
    """
    assert cuda(code) == [
        "None 1 0",
        "[True] True",
        "2097152",
        "NotImplementedError: torch.cuda.CUDAPluggableAllocator is not available: "
        "the simulated device has one allocator, its own.",
        "True",
    ]


def test_another_library_may_allocate_on_a_stream(cuda: Cuda) -> None:
    code = """
    s = torch.cuda.Stream(1)
    p = torch.cuda.caching_allocator_alloc(1000, "cuda:1", s)
    q = torch.cuda.caching_allocator_alloc(1000, 1, s.cuda_stream)
    print(torch.cuda.memory_allocated(1), torch.cuda.memory_allocated(0))
    print([segment["stream"] == s.cuda_stream for segment in torch.cuda.memory_snapshot()])
    torch.cuda.caching_allocator_delete(p), torch.cuda.caching_allocator_delete(q)
    print(torch.cuda.memory_allocated(1))
    with torch.cuda.device(1):
        print(torch.cuda.current_stream() == torch.cuda.default_stream())
    """
    assert cuda(code) == ["2048 0", "[True]", "0", "True"]


# ---- the profiler


@pytest.mark.slow
def test_the_profiler_shows_the_device_as_cuda(run_python: Run, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    code = f"""
    import torch
    from torch.profiler import ProfilerActivity, profile
    from torch_openreg import openreg
    print(sorted(map(str, torch.profiler.supported_activities())))
    x = torch.ones(200, 200, device="cuda")
    with openreg.execution_mode("async"), profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        torch.cuda.nvtx.range_push("mine")
        x @ x
        torch.cuda.nvtx.range_pop()
        torch.cuda.synchronize()
    mm = next(e for e in p.key_averages() if e.key == "aten::mm")
    print(mm.self_device_time_total > 0, "Self CUDA" in p.key_averages().table(sort_by="self_cuda_time_total"))
    p.export_chrome_trace({str(file)!r})
    """
    result = run_python(textwrap.dedent(code), TORCH_OPENREG_AS="cuda")
    assert result.stdout.splitlines() == ["['ProfilerActivity.CPU', 'ProfilerActivity.CUDA']", "True True"]
    entries = json.loads(file.read_text())["traceEvents"]
    found = {(entry.get("cat"), entry["name"]) for entry in entries}
    assert found >= {("kernel", "openreg::mm"), ("cuda_runtime", "orLaunch"), ("gpu_user_annotation", "mine")}
    assert "cuda:0" in {entry["args"]["labels"] for entry in entries if entry["name"] == "process_labels"}


def test_softmax_is_computed_in_float32_under_autocast(cuda: Cuda) -> None:
    program = """
    x = torch.arange(12, dtype=torch.float16).view(3, 4).div(7)
    grad = torch.arange(12).view(3, 4).cos()
    for name in ("softmax", "log_softmax"):
        leaf = x.cuda().requires_grad_()
        with torch.autocast("cuda", torch.float16):
            result = getattr(leaf, name)(1)
        result.backward(grad.cuda())
        expected = x.clone().requires_grad_()
        getattr(expected, name)(1, dtype=torch.float32).backward(grad)
        print(result.dtype, torch.equal(leaf.grad.cpu(), expected.grad))
    """
    assert cuda(program) == ["torch.float32 True"] * 2
