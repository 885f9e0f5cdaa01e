"""``torch.profiler``'s events of the device: the chrome trace, checked against its rules, and the tables."""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1
from openreg_work import Gate, launch
from programs import Done, Run
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from trace_rules import ROUNDING, RUNTIME, Trace, is_older, violations

from torch_openreg import openreg


def mlp() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        with record_function("step"):
            loss = model(torch.ones(16, 64, device=DEVICE)).square().mean()
            with record_function("backward"):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    loss.item()


def transformer_with_a_side_stream() -> None:
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, device=DEVICE)
    side = torch.Stream(DEVICE)
    x = torch.ones(4, 10, 32, device=DEVICE)
    y = layer(x)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        z = (y * 2).sum()
    torch.accelerator.current_stream().wait_stream(side)
    (z + layer(y).sum()).backward()
    torch.accelerator.synchronize()


def two_devices() -> None:
    x = torch.ones(100, 100, device=DEVICE_0)
    y = (x @ x).to(DEVICE_1)
    (y @ y).to(DEVICE_0).sum().item()


def copies_of_a_loader() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(64, 256))
    total = torch.zeros((), device=DEVICE)
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True):
        total += batch.to(DEVICE, non_blocking=True).sum()
    total.cpu()


PROGRAMS: tuple[Callable[[], None], ...] = (mlp, transformer_with_a_side_stream, two_devices, copies_of_a_loader)


@pytest.fixture(params=["inline", "async", "chaos"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    with openreg.execution_mode(request.param):
        yield request.param


def trace_of(profiled: profile, folder: Path) -> Trace:
    file = folder / "trace.json"
    profiled.export_chrome_trace(str(file))
    return Trace.read(file)


def run_profiled(program: Callable[[], None], folder: Path) -> Trace:
    with profile() as profiled:
        program()
    return trace_of(profiled, folder)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_trace_obeys_the_rules(program: Callable[[], None], mode: str, tmp_path: Path) -> None:
    trace = run_profiled(program, tmp_path)
    assert violations(trace) == []
    assert trace.content["openreg_execution"] == mode
    assert len(trace.device) > 5
    launched = [each for each in trace.device if each["cat"] == "kernel" and each["args"]["correlation"]]
    if mode == "inline":
        assert launched == []
    else:
        assert len(launched) >= 4


def test_the_check_of_the_rules_finds_each_violation(tmp_path: Path) -> None:
    with openreg.execution_mode("async"):
        good = run_profiled(mlp, tmp_path)
    content = {key: value for key, value in good.content.items() if key != "traceEvents"}

    def broken(change: Callable[[list[dict[str, Any]]], None]) -> str:
        entries = json.loads(json.dumps(good.entries))
        change(entries)
        return " ".join(violations(Trace({**content, "traceEvents": entries})))

    def first(entries: list[dict[str, Any]], category: str, phase: str = "X") -> dict[str, Any]:
        return next(each for each in entries if each.get("cat") == category and each["ph"] == phase)

    kernel = next(each for each in good.device if each["cat"] == "kernel" and each["args"]["correlation"])

    def end_within_an_operator(entries: list[dict[str, Any]]) -> None:
        backward = next(each for each in entries if each.get("cat") == "user_annotation" and each["name"] == "backward")
        inner = [
            each
            for each in entries
            if each.get("cat") == "cpu_op"
            and each["tid"] == backward["tid"]
            and backward["ts"] < each["ts"] < backward["ts"] + backward["dur"]
        ]
        longest = max(inner, key=lambda each: each["dur"])
        backward["dur"] = longest["ts"] + longest["dur"] / 2 - backward["ts"]

    def same(entries: list[dict[str, Any]]) -> dict[str, Any]:
        return next(each for each in entries if each["ph"] == "X" and each["ts"] == kernel["ts"])

    assert "1 starts and 0 ends" in broken(lambda entries: entries.remove(first(entries, "ac2g", "f")))
    assert "dur is -1" in broken(lambda entries: first(entries, "cpu_op").update(dur=-1))
    assert "overlap" in broken(lambda entries: same(entries).update(dur=1e6))
    assert "before its operator" in broken(lambda entries: same(entries).update(ts=good.host[0]["ts"] - 10))
    assert "no operator started" in broken(lambda entries: same(entries)["args"].pop("External id"))
    assert "ends after" in broken(end_within_an_operator)
    assert "is called None" in broken(
        lambda entries: entries.remove(
            next(each for each in entries if each["name"] == "process_labels" and each["pid"] == 0)
        )
    )


def test_three_cycles_of_a_schedule_are_three_traces(mode: str, tmp_path: Path) -> None:
    traces: list[Trace] = []

    def ready(profiled: profile) -> None:
        traces.append(trace_of(profiled, tmp_path))

    x = torch.ones(32, 32, device=DEVICE)
    cycles = schedule(wait=1, warmup=1, active=2, repeat=3)
    with profile(schedule=cycles, on_trace_ready=ready, profile_memory=True, with_stack=True) as profiled:
        for _ in range(12):
            (x @ x).sum().item()
            profiled.step()
    assert len(traces) == 3
    for cycle, trace in enumerate(traces):
        assert violations(trace) == []
        assert len(trace.named("openreg::mm")) == 2
        steps = sorted({each["name"] for each in trace.ranges})
        assert steps == [f"ProfilerStep#{4 * cycle + 2}", f"ProfilerStep#{4 * cycle + 3}"]


@pytest.mark.parametrize("queued", ["async", "chaos"])
def test_work_that_was_launched_before_the_recording_says_so(queued: str, tmp_path: Path) -> None:
    traces: list[Trace] = []
    x = torch.ones(300, 300, device=DEVICE)

    def ready(profiled: profile) -> None:
        traces.append(trace_of(profiled, tmp_path))

    with (
        openreg.execution_mode(queued),
        profile(schedule=schedule(wait=0, warmup=1, active=1), on_trace_ready=ready) as profiled,
    ):
        with Gate(torch.accelerator.current_stream().native_handle):  # no step waits for the stream
            for _ in range(20):
                x @ x
            profiled.step()
        x.neg()
        torch.accelerator.synchronize()
        profiled.step()
    (trace,) = traces
    assert violations(trace) == []
    older = [each["name"] for each in trace.device if is_older(each)]
    assert older == ["openreg::mm"] * 20
    assert [each["name"] for each in trace.device if not is_older(each)] == ["openreg::neg"]
    words = command(tmp_path / "trace.json").stdout
    assert f"The trace does not show which operators launched {len(older)} of the kernels, copies and fills," in words


def test_a_copy_says_where_from_where_to_and_how_fast(tmp_path: Path) -> None:
    def program() -> None:
        pageable, pinned = torch.ones(1000), torch.ones(1000).pin_memory()
        device = pageable.to(DEVICE_0)
        device.copy_(pinned, non_blocking=True)
        device.cpu()
        device.clone()
        device.to(DEVICE_1)

    trace = run_profiled(program, tmp_path)
    copies = {each["name"]: each for each in trace.device if each["cat"] == "gpu_memcpy"}
    assert copies.keys() >= {
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy DtoH (Device -> Pageable)",
        "Memcpy PtoP (Device -> Device)",
    }
    for copy in copies.values():
        assert copy["args"]["bytes"] == 4000
        speed = 4000 / max(copy["dur"] * 1000, 1)
        assert copy["args"]["memory bandwidth (GB/s)"] == pytest.approx(speed, rel=0.01)
    peer = copies["Memcpy PtoP (Device -> Device)"]["args"]
    assert (peer["fromDevice"], peer["toDevice"]) == (0, 1)


def test_the_host_is_shown_where_it_waits(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.ones(10, device=DEVICE)
        event = torch.Event(DEVICE)
        event.record()
        side = torch.Stream(DEVICE)
        side.wait_event(event)
        event.synchronize()
        side.synchronize()
        torch.accelerator.synchronize()
        x.add_(1)

    with openreg.execution_mode("async"):
        trace = run_profiled(program, tmp_path)
    names = {call["name"] for call in trace.calls.values()}
    assert names >= {
        "orLaunch",
        "orEventRecord",
        "orStreamWaitEvent",
        "orEventSynchronize",
        "orStreamSynchronize",
        "orDeviceSynchronize",
    }


def test_a_kernel_that_waits_for_the_queue_shows_the_wait_before_it(tmp_path: Path) -> None:
    # nonzero runs on this thread: how many results it has is known only when it has run, so it cannot be queued.
    def program(seconds: float) -> None:
        x = torch.ones(8, device=DEVICE)
        launch(None, lambda: time.sleep(seconds))
        torch.nonzero(x)

    seconds, waits = 0.005, []
    while not waits:  # on a busy machine this thread may come to nonzero when the queue is empty
        seconds *= 4
        with openreg.execution_mode("async"):
            trace = run_profiled(partial(program, seconds), tmp_path)
        waits = [each for each in trace.named("orKernelBegin") if trace.operator_of(each) == "aten::nonzero"]
    (kernel,) = trace.named("openreg::nonzero")
    (wait,) = waits
    assert kernel["args"]["correlation"] == 0
    assert wait["end"] <= kernel["ts"]


def test_queued_work_says_how_long_it_waited(tmp_path: Path) -> None:
    def program() -> None:
        x = torch.ones(200, 200, device=DEVICE)
        for _ in range(20):
            x = x @ x
        torch.accelerator.synchronize()

    with openreg.execution_mode("async"):
        trace = run_profiled(program, tmp_path)
    for kernel in trace.named("openreg::mm"):
        call = trace.calls[kernel["args"]["correlation"]]
        assert call["name"] == "orLaunch"
        assert kernel["args"]["queued (us)"] == pytest.approx(kernel["ts"] - call["ts"], abs=0.01)


def test_a_range_covers_its_kernels_on_the_device(mode: str, tmp_path: Path) -> None:
    trace = run_profiled(mlp, tmp_path)
    outer = [each for each in trace.ranges if each["name"] == "step"]
    inner = [each for each in trace.ranges if each["name"] == "backward"]
    assert (len(outer), len(inner)) == (3, 3)
    for around, within in zip(outer, inner, strict=True):
        assert around["ts"] <= within["ts"]
        assert within["end"] <= around["end"]
    kernels = [each for each in trace.device if trace.operator_of(each) == "aten::addmm"]
    assert kernels
    assert all(any(each["ts"] <= kernel["ts"] <= each["end"] for each in outer) for kernel in kernels)


def test_the_trace_describes_the_devices(tmp_path: Path) -> None:
    devices = run_profiled(two_devices, tmp_path).content["deviceProperties"]
    for index, device in enumerate(devices):
        properties = openreg.get_device_properties(index)
        assert (device["id"], device["name"]) == (index, properties.name)
        assert device["totalGlobalMem"] == properties.total_memory
    assert len(devices) == openreg.device_count()


def test_the_table_has_the_device_times_of_each_operator(mode: str) -> None:
    x = torch.ones(300, 300, device=DEVICE)
    with profile() as profiled:
        for _ in range(3):
            y = x @ x
        y.sum()
        torch.accelerator.synchronize()
    averages = {each.key: each for each in profiled.key_averages()}
    mm = averages["aten::mm"]
    assert mm.count == 3
    assert mm.self_device_time_total > 3 * 20  # 27 million multiplications each
    assert mm.self_device_time_total == pytest.approx(averages["openreg::mm"].self_device_time_total, rel=1e-3)
    # Matrix products contain their kernels, and no other operator's.
    assert averages["aten::matmul"].device_time_total == pytest.approx(mm.device_time_total, rel=1e-3)
    assert averages["aten::matmul"].self_device_time_total == 0
    table = profiled.key_averages().table(sort_by=f"self_{DEVICE}_time_total", row_limit=3)
    assert f"Self {DEVICE.upper()}" in table
    assert f"{DEVICE.upper()} total" in table
    first = next(line for line in table.splitlines() if "::" in line)
    longest = max(averages.values(), key=lambda each: each.self_device_time_total)
    assert longest.key in first


def test_the_operators_have_all_the_time_of_the_device(mode: str) -> None:
    x = torch.rand(100, 100, device=DEVICE)
    torch.accelerator.synchronize()  # otherwise the profile has the end of rand, and not its operator
    with profile() as profiled:
        for call in (x.sum, x.mean, x.var, x.norm, x.max, x.prod, lambda: x.softmax(0), lambda: 2**x, lambda: 2 - x):
            call()
        torch.accelerator.synchronize()
    times = {each.key: each.self_device_time_total for each in profiled.key_averages()}
    assert times["aten::sum"] > 0 and times["aten::mean"] > 0
    # PyTorch rounds the time of each operator.
    operators, kernels = (
        sum(time for name, time in times.items() if name.startswith(prefix)) for prefix in ("aten::", "openreg::")
    )
    assert operators == pytest.approx(kernels, rel=1e-3)


def test_memory_columns_stacks_shapes_and_flops(tmp_path: Path) -> None:
    with profile(profile_memory=True, with_stack=True, record_shapes=True, with_flops=True) as profiled:
        x = torch.ones(256, 256, device=DEVICE)
        x @ x
    averages = {each.key: each for each in profiled.key_averages(group_by_input_shape=True)}
    assert averages["aten::mm"].self_device_memory_usage == 256 * 256 * 4
    assert averages["aten::mm"].input_shapes == [[256, 256], [256, 256]]
    assert averages["aten::mm"].flops == 2 * 256**3
    assert f"{DEVICE.upper()} Mem" in profiled.key_averages().table()
    trace = trace_of(profiled, tmp_path)
    (kernel,) = trace.named("openreg::mm")
    around = [
        each["name"]
        for each in trace.complete
        if each["cat"] == "python_function" and each["ts"] <= kernel["ts"] <= each["end"]
    ]
    assert any("test_memory_columns_stacks_shapes_and_flops" in name for name in around)


def test_the_other_ways_to_export(tmp_path: Path) -> None:
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "execution.json"))
    handler = torch.profiler.tensorboard_trace_handler(str(tmp_path / "board"), "worker")
    with profile(
        profile_memory=True,
        with_stack=True,
        record_shapes=True,
        on_trace_ready=handler,
        execution_trace_observer=observer,
    ) as profiled:
        model = torch.nn.Linear(16, 16).to(DEVICE)
        model(torch.ones(4, 16, device=DEVICE)).sum().backward()
    profiled.export_memory_timeline(str(tmp_path / "timeline.json"), device=DEVICE_0)
    (board,) = (tmp_path / "board").iterdir()
    assert violations(Trace.read(board)) == []
    nodes = json.loads((tmp_path / "execution.json").read_text())["nodes"]
    assert "aten::addmm" in {node["name"] for node in nodes}
    times, sizes = json.loads((tmp_path / "timeline.json").read_text())
    assert max(sum(at) for at in sizes) >= (16 * 16 + 16) * 4
    assert len(times) == len(sizes)


def test_stacks_are_exported_with_the_times_of_the_device(tmp_path: Path) -> None:
    verbose = torch._C._profiler._ExperimentalConfig(verbose=True)
    with profile(with_stack=True, experimental_config=verbose) as profiled:
        torch.ones(300, 300, device=DEVICE).cos()
    file = tmp_path / "stacks.txt"
    metric = "self_cuda_time_total" if DEVICE == "cuda" else "self_privateuse1_time_total"
    profiled.export_stacks(str(file), metric)
    stacks = file.read_text().splitlines()
    assert any("test_stacks_are_exported_with_the_times_of_the_device" in stack for stack in stacks)
    assert all(int(stack.rpartition(" ")[2]) > 0 for stack in stacks)


def test_a_profile_of_the_host_alone_has_no_device_events(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        torch.ones(10, device=DEVICE).add(1)
    trace = trace_of(profiled, tmp_path)
    assert trace.device == []
    assert trace.calls == {}


def test_threads_that_end_and_begin_are_recorded(tmp_path: Path) -> None:
    import threading

    def program() -> None:
        def compute() -> None:
            (torch.ones(50, 50, device=DEVICE) @ torch.ones(50, 50, device=DEVICE)).sum().item()

        for _ in range(4):
            thread = threading.Thread(target=compute)
            thread.start()
            thread.join()

    # PyTorch profiles only the operators of the thread that began the profile. The trace has all threads' kernels.
    trace = run_profiled(program, tmp_path)
    assert violations(trace, all_linked=False) == []
    assert len(trace.named("openreg::mm")) == 4


def test_a_call_on_another_thread_counts_no_work_again(tmp_path: Path) -> None:
    # The calls of the thread have no operator. PyTorch puts such calls into the operator that the main thread is in.
    import threading

    from openreg_c import call, get_pointer

    memory = get_pointer("orMalloc", 4096)

    def fill(x: torch.Tensor) -> None:
        call("orMemset", memory, 1, 4096)
        thread = threading.Thread(target=lambda: call("orFree", get_pointer("orMalloc", 4096)))
        thread.start()
        thread.join()

    with torch.library._scoped_library("profiler_test", "FRAGMENT") as library:
        library.define("fill(Tensor x) -> ()")
        library.impl("fill", fill, "CompositeExplicitAutograd")
        with profile() as profiled:
            torch.ops.profiler_test.fill(torch.ones(1))
    call("orFree", memory)
    times = {each.key: each.self_device_time_total for each in profiled.key_averages()}
    assert times["Memset (Device)"] == times["profiler_test::fill"] > 0
    assert times["orMalloc"] == times["orFree"] == 0
    trace = trace_of(profiled, tmp_path)
    assert violations(trace) == []
    (allocation,) = trace.named("orMalloc")
    assert "External id" not in allocation["args"]


def test_observers_of_all_threads_see_an_operator_of_a_queued_kernel_once(tmp_path: Path) -> None:
    every_thread = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "execution.json"))
    with (
        openreg.execution_mode("async"),
        profile(experimental_config=every_thread, execution_trace_observer=observer) as profiled,
    ):
        x = torch.ones(1, 1, 8, 8, device=DEVICE)
        torch.conv2d(x, torch.ones(1, 1, 3, 3, device=DEVICE)).relu().sum()
        torch.accelerator.synchronize()
    trace = trace_of(profiled, tmp_path)
    assert violations(trace) == []
    launched = {trace.operator_of(each) for each in trace.device if each["args"]["correlation"]}
    assert launched >= {"aten::clamp_min", "aten::sum"}  # relu calls clamp_min, which launches, as on CUDA
    assert len({each["tid"] for each in trace.operators.values()}) == 1
    nodes = [node["name"] for node in json.loads((tmp_path / "execution.json").read_text())["nodes"]]
    assert nodes.count("[pytorch|profiler|execution_trace|thread]") == 1
    assert nodes.count("aten::relu") == 1


def test_nothing_is_kept_of_what_ran_without_a_profiler(tmp_path: Path) -> None:
    x = torch.ones(10, device=DEVICE)
    with profile():
        x.add(1)
    x.mul(2)
    trace = run_profiled(lambda: x.sub(1), tmp_path)
    assert [each["name"] for each in trace.device] == ["openreg::sub.Tensor"]


def test_what_a_raw_thread_of_the_c_api_launches_is_shown(tmp_path: Path) -> None:
    import ctypes

    from openreg_c import call, get_pointer

    def program() -> None:
        stream = get_pointer("orStreamCreate")
        memory = get_pointer("orMalloc", 4096)
        call("orMemsetAsync", memory, 1, 4096, stream)
        call("orStreamSynchronize", stream)
        call("orFree", memory)
        call("orStreamDestroy", stream)
        assert ctypes.c_void_p(memory).value == memory

    trace = run_profiled(program, tmp_path)
    assert violations(trace, all_linked=False) == []
    (fill,) = [each for each in trace.device if each["cat"] == "gpu_memset"]
    assert fill["tid"] >= 1000  # a stream that PyTorch did not make
    calls = [each["name"] for each in trace.complete if each["cat"] == RUNTIME]
    assert calls[:4] == ["orMalloc", "orMemsetAsync", "orStreamSynchronize", "orFree"]
    assert set(calls[4:]) <= {"orDeviceSynchronize"}  # the profiler's own calls, if they end before the trace does


def test_the_memory_check_of_the_sanitizer_does_not_appear(run_python: Run, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    program = f"""
import torch
x = torch.ones(10, device="{DEVICE}")
with torch.profiler.profile() as profiled:
    (x + 1).cpu()
profiled.export_chrome_trace({str(file)!r})
"""
    run_python(program, OPENREG_SANITIZER="memory", OPENREG_EXECUTION="async", status=0)
    trace = Trace.read(file)
    assert violations(trace) == []
    assert [each["cat"] for each in trace.device if each["cat"] == "gpu_memset"] == []


# ---- nvtx, and the profiler outside -------------------------------------------------------------------------------


def test_ranges_of_nvtx_are_in_the_trace(tmp_path: Path) -> None:
    @openreg.nvtx.range("decorated {}", 1)
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def program() -> None:
        x = torch.ones(10, device=DEVICE)
        assert openreg.nvtx.range_push("outer") == 0
        assert openreg.nvtx.range_push("inner") == 1
        decorated(x)
        assert openreg.nvtx.range_pop() == 1
        assert openreg.nvtx.range_pop() == 0
        assert openreg.nvtx.range_pop() == -1
        handle = openreg.nvtx.range_start("free")
        x.mul(2)
        openreg.nvtx.range_end(handle)
        openreg.nvtx.range_end(handle)
        openreg.nvtx.mark("mark")

    trace = run_profiled(program, tmp_path)
    assert violations(trace) == []
    host = {each["name"] for each in trace.complete if each["cat"] == "user_annotation"}
    assert host == {"outer", "inner", "decorated 1", "free", "mark"}
    assert {each["name"] for each in trace.ranges} == {"outer", "inner", "decorated 1", "free"}


def kernels_of_ranges(trace: Trace) -> dict[str, list[str]]:
    """For each range of the user on a lane of the device: the kernels that are drawn within the range."""
    return {
        each["name"]: [
            kernel["name"].removeprefix("openreg::")
            for kernel in trace.device
            if each["ts"] <= kernel["ts"] and kernel["end"] <= each["end"] + ROUNDING
        ]
        for each in trace.ranges
    }


def test_ranges_that_do_not_nest_have_their_own_kernels(mode: str, tmp_path: Path) -> None:
    nvtx = openreg.nvtx

    def program() -> None:
        x = torch.ones(10, device=DEVICE)
        first = nvtx.range_start("first")
        x.add(1)
        second = nvtx.range_start("second")
        x.mul(2)
        nvtx.range_end(first)
        x.sub(1)
        nvtx.range_end(second)
        x.div(2)
        nvtx.range_start("without an end")
        x.neg()
        torch.accelerator.synchronize()

    assert kernels_of_ranges(run_profiled(program, tmp_path)) == {
        "first": ["add.Tensor", "mul.Tensor"],
        "second": ["mul.Tensor", "sub.Tensor"],
        "without an end": ["neg"],
    }


def test_a_range_that_another_thread_ends_ends_there(mode: str, tmp_path: Path) -> None:
    import threading

    x = torch.ones(10, device=DEVICE)
    every_thread = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profile(experimental_config=every_thread) as profiled:
        handle = openreg.nvtx.range_start("range")
        x.add(1)
        thread = threading.Thread(target=openreg.nvtx.range_end, args=(handle,))
        thread.start()
        thread.join()
        x.sub(1)
        torch.accelerator.synchronize()
    assert kernels_of_ranges(trace_of(profiled, tmp_path)) == {"range": ["add.Tensor"]}


@pytest.mark.slow
def test_a_profiler_outside_records_the_marked_part(run_python: Run, tmp_path: Path) -> None:
    program = f"""
import torch
profiler = torch.{DEVICE}.profiler
x = torch.ones(10, device="{DEVICE}")
x.mul(2)
with profiler.profile():
    profiler.start()
    x.add(1)
x.sub(1)
profiler.stop()
"""
    file = tmp_path / "part.json"
    assert run_python(program).returncode == 0
    assert not file.exists()
    assert run_python(program, TORCH_OPENREG_TRACE=str(file)).returncode == 0
    assert [each["name"] for each in Trace.read(file).device] == ["openreg::add.Tensor"]


BEGIN = f"""
import os, threading, torch
profiler = torch.{DEVICE}.profiler
x = torch.ones(10, device="{DEVICE}")
"""


def test_a_part_without_an_end_is_written_when_the_program_ends(run_python: Run, tmp_path: Path) -> None:
    program = """
profiler.start()
x.add(1)
del os.environ["TORCH_OPENREG_TRACE"]  # the path is that of start()
x.sub(1)
"""
    file = tmp_path / "part.json"
    result = run_python(BEGIN + program, TORCH_OPENREG_TRACE=str(file))
    assert (result.returncode, "Traceback" in result.stderr) == (0, False)
    assert [each["name"] for each in Trace.read(file).device] == ["openreg::add.Tensor", "openreg::sub.Tensor"]


@pytest.mark.slow
def test_a_part_has_the_work_of_all_threads_and_ends_on_any(run_python: Run, tmp_path: Path) -> None:
    program = """
def on_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()

on_thread(profiler.start)
x.add(1)
on_thread(lambda: x.sub(1))
on_thread(profiler.stop)
x.mul(2)
"""
    file = tmp_path / "part.json"
    run_python(BEGIN + program, TORCH_OPENREG_TRACE=str(file), status=0)
    trace = Trace.read(file)
    assert violations(trace) == []
    assert [each["name"] for each in trace.device] == ["openreg::add.Tensor", "openreg::sub.Tensor"]


def test_a_part_of_a_thread_that_ended_is_written_when_the_program_ends(run_python: Run, tmp_path: Path) -> None:
    program = """
thread = threading.Thread(target=lambda: (profiler.start(), x.add(1)))
thread.start()
thread.join()
"""
    file = tmp_path / "part.json"
    result = run_python(BEGIN + program, TORCH_OPENREG_TRACE=str(file))
    assert (result.returncode, "Traceback" in result.stderr) == (0, False)
    assert [each["name"] for each in Trace.read(file).device] == ["openreg::add.Tensor"]


def test_a_schedule_may_be_left_in_its_warm_up(run_python: Run) -> None:
    program = """
schedule = torch.profiler.schedule(wait=0, warmup=2, active=1)
thread = threading.Thread(target=lambda: (torch.profiler.profile(schedule=schedule).start(), x.add(1)))
thread.start()
thread.join()
left = torch.profiler.profile(schedule=schedule)
left.start()
x.add(1)
left.step()
"""
    result = run_python(BEGIN + program)
    assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr


def test_a_part_says_that_another_profile_has_ended_it(run_python: Run, tmp_path: Path) -> None:
    program = """
profiler.start()
with torch.profiler.profile() as profile:
    x.add(1)
try:
    profiler.stop()
except RuntimeError as error:
    print(error)
print("aten::add" in {event.key for event in profile.key_averages()})
profiler.start()
x.sub(1)
profiler.stop()
"""
    file = tmp_path / "part.json"
    result = run_python(BEGIN + program, TORCH_OPENREG_TRACE=str(file), status=0)
    assert result.stdout.splitlines() == [
        "torch.openreg.profiler.stop(): a torch.profiler.profile within the part has ended the recording, because "
        "there is one recording at a time. Unset TORCH_OPENREG_TRACE, or profile outside of the part",
        "True",
    ]
    assert [each["name"] for each in Trace.read(file).device] == ["openreg::sub.Tensor"]


@pytest.mark.parametrize("name", ["missing/part.json", ".", "program.py/part.json"])
def test_a_part_does_not_begin_if_its_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "program.py").touch()
    file = str(tmp_path / name)
    monkeypatch.setenv("TORCH_OPENREG_TRACE", file)
    with pytest.raises(ValueError) as caught:
        openreg.profiler.start()
    assert str(caught.value) == (
        f"TORCH_OPENREG_TRACE is {file!r}, and no file can be written there. Set it to a file in a folder that exists "
        "and is writable, or unset it."
    )
    openreg.profiler.stop()  # no part has begun


def test_a_part_does_not_begin_within_another_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_OPENREG_TRACE", str(tmp_path / "part.json"))
    x = torch.ones(10, device=DEVICE)

    def program() -> None:
        with pytest.raises(RuntimeError) as caught:
            openreg.profiler.start()
        assert str(caught.value) == (
            "torch.openreg.profiler.start() was called while torch.profiler records, and there is one recording at a "
            "time. Unset TORCH_OPENREG_TRACE, or end the other profile first"
        )
        x.add(1)
        openreg.profiler.stop()

    assert [each["name"] for each in run_profiled(program, tmp_path).device] == ["openreg::add.Tensor"]


# ---- python -m torch_openreg trace --------------------------------------------------------------------------------


def command(*arguments: str | Path) -> Done:
    return programs.run(sys.executable, "-m", "torch_openreg", "trace", *arguments)


# Stream 0 of device 0 has two kernels with 60 us between them. Of these 60 us the host spends 30 us in a call within
# aten::slow that waits, 10 us in the rest of aten::slow, 4 us in aten::two, and 16 us outside of operators. Stream 3 of
# device 1 has a fill of 8000 bytes that was launched before the recording, and a copy of 4000 bytes.
MADE_UP: list[dict[str, Any]] = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::one", "pid": 9, "tid": 9, "ts": 0, "dur": 10,
     "args": {"External id": 1}},
    {"ph": "X", "cat": "privateuse1_runtime", "name": "orLaunch", "pid": 9, "tid": 9, "ts": 5, "dur": 2,
     "args": {"External id": 1, "correlation": 11}},
    {"ph": "X", "cat": "kernel", "name": "openreg::one", "pid": 0, "tid": 0, "ts": 20, "dur": 20,
     "args": {"External id": 1, "correlation": 11, "queued (us)": 15}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::slow", "pid": 9, "tid": 9, "ts": 50, "dur": 40,
     "args": {"External id": 2}},
    {"ph": "X", "cat": "privateuse1_runtime", "name": "orDeviceSynchronize", "pid": 9, "tid": 9, "ts": 55, "dur": 30,
     "args": {"External id": 2, "correlation": 12}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::two", "pid": 9, "tid": 9, "ts": 95, "dur": 4,
     "args": {"External id": 3}},
    {"ph": "X", "cat": "kernel", "name": "openreg::two", "pid": 0, "tid": 0, "ts": 100, "dur": 5,
     "args": {"External id": 3, "correlation": 0}},
    {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 1, "tid": 3, "ts": 109, "dur": 1,
     "args": {"correlation": 0, "bytes": 8000, "launched before the recording": True}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 1, "tid": 3, "ts": 110, "dur": 2,
     "args": {"External id": 3, "correlation": 0, "bytes": 4000}},
]  # fmt: skip


def test_the_command_measures_a_trace_of_known_numbers(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": MADE_UP, "openreg_execution": "async"}))
    result = command(file, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "execution": "async",
        "duration": 112.0,
        "streams": [
            {"device": 0, "stream": 0, "busy": 25.0, "idle": 60.0, "kernels": 2, "copies": 0, "fills": 0},
            {"device": 1, "stream": 3, "busy": 3.0, "idle": 0.0, "kernels": 0, "copies": 1, "fills": 1},
        ],
        "gaps": [
            {
                "device": 0,
                "stream": 0,
                "begin": 40.0,
                "duration": 60.0,
                "before": "openreg::two",
                "host": [
                    {"name": "orDeviceSynchronize", "time": 30.0},
                    {"name": "no operator", "time": 16.0},
                    {"name": "aten::slow", "time": 10.0},
                    {"name": "aten::two", "time": 4.0},
                ],
            }
        ],
        "kernels": [
            {"name": "openreg::one", "count": 1, "time": 20.0, "bytes": 0, "operators": {"aten::one": 1}},
            {"name": "openreg::two", "count": 1, "time": 5.0, "bytes": 0, "operators": {"aten::two": 1}},
        ],
        "copies": [
            {
                "name": "Memcpy HtoD (Pinned -> Device)",
                "count": 1,
                "time": 2.0,
                "bytes": 4000,
                "operators": {"aten::two": 1},
            }
        ],
        "fills": [
            {"name": "Memset (Device)", "count": 1, "time": 1.0, "bytes": 8000, "operators": {"no operator": 1}},
        ],
        "waits": [
            {"name": "orDeviceSynchronize", "count": 1, "time": 30.0, "bytes": 0, "operators": {"aten::slow": 1}}
        ],
        "stream_waits": 0,
        "queue_delay": {"count": 1, "mean": 15.0, "longest": 15.0},
        "launched_before": 1,
    }
    words = command(file).stdout
    assert "Device 0, stream 0: busy 25.0 us (22 % of the trace), idle 60.0 us" in words
    assert (
        "60.0 us on device 0, stream 0, at 40.0 us, before openreg::two. The host meanwhile: "
        "orDeviceSynchronize 30.0 us, no operator 16.0 us, aten::slow 10.0 us." in words
    )
    assert "Memcpy HtoD (Pinned -> Device): 1 times, 2.0 us, 4.0 KB, 2.0 GB/s; from aten::two" in words
    assert "Fills:\n  Memset (Device): 1 times, 1.0 us, 8.0 KB, 8.0 GB/s; from no operator\n" in words
    assert "Work waited 15.0 us on average between its launch and its begin, and 15.0 us at most." in words


def test_the_command_says_that_inline_kernels_were_not_queued(tmp_path: Path) -> None:
    copy = {**MADE_UP[-1], "args": {"correlation": 0, "queued (us)": 2, "bytes": 4000}}
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": [MADE_UP[6], copy], "openreg_execution": "inline"}))
    words = command(file).stdout
    assert "Execution was inline: kernels ran on the threads that called them, and were not queued.\n" in words
    assert "Copies and fills waited 2.0 us on average between their launch and their begin, and 2.0 us" in words


def test_the_command_reads_what_the_profiler_wrote(tmp_path: Path) -> None:
    with openreg.execution_mode("async"), profile() as profiled:
        transformer_with_a_side_stream()
    file = tmp_path / "trace.json.gz"
    profiled.export_chrome_trace(str(file))
    summary = json.loads(command(file, "--json").stdout)
    assert {(lane["device"], lane["stream"]) for lane in summary["streams"]} > {(0, 0)}
    assert summary["execution"] == "async"
    assert len(summary["gaps"]) == 5
    waits = sum(event.name == "orStreamWaitEvent" for event in profiled.events())
    assert summary["stream_waits"] == waits >= 2
    assert f"A stream was made to wait for another stream {waits} times.\n" in command(file).stdout
    assert {"orDeviceSynchronize"} <= {wait["name"] for wait in summary["waits"]}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{}", "KeyError('traceEvents')"),
        (b"[1, 2]", "ValueError('the events are not a list of objects')"),
        (b'{"traceEvents": 1}', "ValueError('the events are not a list of objects')"),
        (gzip.compress(b"[]")[:-9], "EOFError('Compressed file ended before the end-of-stream marker was reached')"),
        (
            json.dumps([{**MADE_UP[0], "args": 3}]).encode(),
            "TypeError('the \"args\" of an event are not a JSON object: 3')",
        ),
    ],
    # Names instead of the contents: gzip writes the time of day, but all workers of a test run must collect the same.
    ids=["no-events", "a-list-of-numbers", "events-that-are-a-number", "a-cut-gzip", "arguments-that-are-a-number"],
)
def test_the_command_says_what_it_cannot_read(content: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "nothing.json"
    file.write_bytes(content)
    result = command(file)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"torch-openreg trace: cannot read {file} as a trace: {problem}\n"


def test_the_command_reads_an_event_without_arguments(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps([{**MADE_UP[2], "args": None}]))
    result = command(file)
    assert (result.returncode, result.stderr) == (0, "")
    assert "openreg::one: 1 times, 20.0 us; from no operator" in result.stdout
