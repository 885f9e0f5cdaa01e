"""Injected faults (torch.openreg.faults): each one happens at the call that the test names, in every execution mode."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import linecache
import re
import signal
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import programs
import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, NAME
from openreg_c import Fault, HostFn, OpenRegError, call, get_pointer
from openreg_process import output_of
from torch_openreg.openreg.faults import Count, FaultWarning, inject

from torch_openreg import openreg
from torch_openreg.simulator._faults import MANY, parse

MODES = ("inline", "async", "chaos")


@pytest.fixture(params=MODES, autouse=True)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    with openreg.execution_mode(request.param, seed=3):
        yield request.param
        torch.accelerator.synchronize()


# For tests of other processes, whose result does not depend on the mode of this process.
runs_once = pytest.mark.parametrize("mode", ["inline"], indirect=True)
run = programs.python

# ---- the language ----------------------------------------------------------------------------------------------------


def test_a_program_is_a_list_of_faults() -> None:
    faults = parse(
        "seed=7; malloc:3=oom ; copy~1.5ms;device1@kernel:40+=lost; * x2.5; segment:>64K=oom; kernel:p0.5=ecc!"
    )
    got = [(f.points, f.device, f.calls, f.min_size, f.chance, f.action, f.error, f.duration, f.amount) for f in faults]
    assert got == [
        (1, -1, (3, 3), 0, (1.0, 7), 0, 2, 0, 0.0),
        (16, -1, (1, MANY), 0, (1.0, 7), 1, 0, 0, 1.5e6),
        (8, 1, (40, MANY), 0, (1.0, 7), 0, 46, 1, 0.0),
        (56, -1, (1, MANY), 0, (1.0, 7), 2, 0, 0, 2.5),
        (2, -1, (1, MANY), 65537, (1.0, 7), 0, 2, 0, 0.0),
        (8, -1, (1, MANY), 0, (0.5, 7), 0, 214, 2, 0.0),
    ]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "maloc:1=oom",
            "The fault 'maloc:1=oom' has the unknown point 'maloc'. Did you mean 'malloc'? There are malloc, ",
        ),
        ("malloc=om", "The fault 'malloc=om' has the unknown effect 'om'. Did you mean 'oom'?"),
        (
            "copy~2m",
            "The fault 'copy~2m' has the unknown unit of time 'm'. Did you mean 'ms'? There are ns, us, ms, s.",
        ),
        ("copy~2.3.4ms", "The fault 'copy~2.3.4ms' has '2.3.4' where a time belongs."),
        ("malloc:0=oom", "The fault 'malloc:0=oom' does not say which calls: '0' is none of * (all), 3 (the third), "),
        ("seed=100000000000000000000000; malloc=oom", "The part 'seed=100000000000000000000000' has a seed above "),
        (
            "seed=x; malloc=oom",
            "The part 'seed=x' has 'x' where a whole number from 0 to 18446744073709551615 belongs.",
        ),
        ("device99999999999@malloc=oom", "The fault 'device99999999999@malloc=oom' is for a device above 63."),
        ("malloc:5-3=oom", "The fault 'malloc:5-3=oom' does not say which calls: '5-3' is none of * (all), "),
        ("malloc:p1.5=oom", "The fault 'malloc:p1.5=oom' does not say which calls: 'p1.5' is none of * (all), "),
        (
            "stream x2",
            "The fault 'stream x2' makes no sense: kernels, copies and memsets can be slower, by a factor of ",
        ),
        (
            "kernel x0.5",
            "The fault 'kernel x0.5' makes no sense: kernels, copies and memsets can be slower, by a factor ",
        ),
        (
            "kernel=flip",
            "The fault 'kernel=flip' makes no sense: only a copy can have a flipped bit, and flip has no '!'.",
        ),
        (
            "malloc",
            "The fault 'malloc' cannot be read. It is written [rankN@][deviceN@]POINT[:WHICH]EFFECT, and EFFECT is ",
        ),
        ("dev1@malloc=oom", "The fault 'dev1@malloc=oom' cannot be read. Did you mean 'device'? It is written "),
        ("seeds=3; malloc=oom", "The fault 'seeds=3' has the unknown point 'seeds'. Did you mean 'seed'? There are "),
        ("kernel:>1K=ecc", "The fault 'kernel:>1K=ecc' makes no sense: the calls of 'kernel' have no size."),
        ("device1@start=driver", "The fault 'device1@start=driver' makes no sense: all devices start together."),
        ("copy=drop", "The fault 'copy=drop' makes no sense: only a message can be dropped, and drop has no '!'."),
        ("kernel=kill!", "The fault 'kernel=kill!' makes no sense: kill has no '!'."),
        (
            "rank1@copy=ecc",
            "The fault 'rank1@copy=ecc' is for one rank, but the variable RANK, the rank of this process, is ",
        ),
        (" ; ", "The program ' ; ' has no fault. An example: malloc:3=oom"),
    ],
)
def test_a_program_that_cannot_be_read_is_refused_with_the_way_out(program: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        inject(program)


def test_a_program_is_a_text() -> None:
    message = "A program of faults is a text, such as 'malloc:3=oom', but got ['malloc=oom']."
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        inject(["malloc=oom"])  # type: ignore[arg-type]


def test_a_fault_of_another_rank_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    texts = [
        fault.text for fault in parse("rank0@malloc=oom;rank01@device0@message:2=drop;copy~1ms;rank11@kernel=kill")
    ]
    assert texts == ["rank01@device0@message:2=drop", "copy~1ms"]
    assert parse("rank0@malloc=oom") == []
    with inject("rank0@malloc=oom"):
        torch.empty(8, device=DEVICE)


def test_a_process_is_killed(mode: str) -> None:
    program = f"""if True:
        import torch
        x = torch.ones(4, device="{DEVICE_0}").neg()
        print(x.tolist(), flush=True)
        x.neg().tolist()
    """
    result = run(program, OPENREG_EXECUTION=mode, OPENREG_FAULTS="copy:2=kill")
    assert (result.returncode, result.stdout) == (-signal.SIGKILL, "[-1.0, -1.0, -1.0, -1.0]\n"), result.stderr


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_the_third_allocation_fails_and_the_next_does_not() -> None:
    kept = [torch.empty(8, device=DEVICE) for _ in range(4)]  # malloc counts tensors, also if their memory is cached
    ooms = torch.accelerator.memory_stats()["num_ooms"] if NAME == "OpenReg" else None
    with inject("malloc:3=oom") as faults:
        kept.append(torch.empty(8, device=DEVICE))
        kept.append(torch.empty(8, device=DEVICE))
        with pytest.raises(torch.OutOfMemoryError, match=rf"^{NAME} out of memory\. Tried to allocate 32 bytes\."):
            torch.empty(8, device=DEVICE)
        kept.append(torch.empty(8, device=DEVICE))
    assert faults.counts == [Count("malloc:3=oom", 4, 1)]
    if ooms is not None:
        assert torch.accelerator.memory_stats()["num_ooms"] == ooms + 1


def test_an_allocation_above_a_size_fails() -> None:
    with inject("malloc:>1M=oom") as faults:
        torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty((1 << 20) + 1, dtype=torch.uint8, device=DEVICE)
    assert faults.counts == [Count("malloc:>1M=oom", 1, 1)]


def test_a_chance_gives_the_same_failures_for_the_same_seed() -> None:
    def failures(seed: int) -> list[int]:
        found = []
        with inject(f"seed={seed};malloc:p0.3=oom"):
            for i in range(100):
                try:
                    torch.empty(8, device=DEVICE)
                except torch.OutOfMemoryError:
                    found.append(i)
        return found

    first = failures(1)
    assert 15 < len(first) < 45
    assert failures(1) == first != failures(2)


def test_when_a_segment_fails_the_allocator_gives_back_its_cache_and_tries_again() -> None:
    torch.accelerator.empty_cache()
    retries = torch.accelerator.memory_stats()["num_alloc_retries"]
    with inject("segment:1=oom"):
        torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
    assert torch.accelerator.memory_stats()["num_alloc_retries"] == retries + 1


def test_a_fault_waits_for_one_device() -> None:
    with inject("device1@malloc=oom") as faults:
        torch.empty(8, device=DEVICE_0)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(8, device=DEVICE_1)
    assert faults.counts == [Count("device1@malloc=oom", 1, 1)]


def test_an_allocation_of_pinned_memory_fails_if_a_fault_says_so() -> None:
    with inject("pinned=oom"), pytest.raises(torch.OutOfMemoryError, match=r"out of memory \(injected by pinned=oom\)"):
        torch.empty(77 << 20, dtype=torch.uint8, pin_memory=True)


# ---- kernels and copies ----------------------------------------------------------------------------------------------


def test_a_kernel_that_fails_is_reported_like_cudas(mode: str) -> None:
    x = torch.ones(4, device=DEVICE)
    torch.accelerator.synchronize()
    message = rf"^{NAME} error: an illegal memory access was encountered \(injected by kernel:2=illegal\) "
    with inject("kernel:2=illegal") as faults, pytest.raises(torch.AcceleratorError, match=message) as caught:
        x.neg()
        y = x.abs()
        assert mode != "inline"  # inline, the call itself raises
        del y
        torch.accelerator.synchronize()
    assert caught.value.error_code == 700
    assert faults.counts == [Count("kernel:2=illegal", 2, 1)]
    assert x.add(1).tolist() == [2.0] * 4  # the device is usable


def test_nothing_is_lost_with_a_kernel_that_fails() -> None:
    x = torch.ones(1 << 20, device=DEVICE)
    torch.accelerator.synchronize()
    gc.collect()  # what other tests have left behind
    before = torch.accelerator.memory_allocated()
    with pytest.raises(torch.AcceleratorError), inject("kernel:1=failure"):
        x.neg()
        torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() == before


def test_a_failure_that_nobody_was_told_of_is_raised_at_the_end(mode: str) -> None:
    x = torch.ones(4, device=DEVICE)
    with pytest.raises(torch.AcceleratorError, match="device-side assert triggered"):  # noqa: SIM117
        with inject("kernel:1=assert"):
            x.neg()
            assert mode != "inline"


def test_a_copy_that_fails_is_reported() -> None:
    x = torch.ones(4, device=DEVICE)
    with inject("copy:1=ecc") as faults:
        with pytest.raises(torch.AcceleratorError, match="uncorrectable ECC error encountered"):
            x.cpu()
        assert x.cpu().tolist() == [1.0] * 4
    assert faults.counts == [Count("copy:1=ecc", 2, 1)]


def test_copies_are_the_transfers_between_devices_and_with_the_host(mode: str) -> None:
    x, y = torch.ones(4, device=DEVICE_0), torch.zeros(4, device=DEVICE_1)
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)
    with inject("copy~1ns;kernel~1ns") as faults:

        def counted(call: Callable[[], object]) -> tuple[int, ...]:
            before = [count.seen for count in faults.counts]
            call()
            torch.accelerator.synchronize(0)
            torch.accelerator.synchronize(1)
            return tuple(count.seen - old for count, old in zip(faults.counts, before, strict=True))

        copy, kernel = (1, 0), (0, 1)
        assert counted(x.cpu) == counted(lambda: x.copy_(torch.ones(4))) == counted(lambda: y.copy_(x)) == copy
        assert counted(x.clone) == counted(x.half) == counted(x[0].item) == kernel
        # A transfer that rearranges or converts elements counts as a kernel.
        matrix = torch.ones(2, 2)
        assert counted(lambda: matrix.t().to(DEVICE_0)) == counted(lambda: matrix.to(DEVICE_0, torch.half)) == kernel


def test_a_launch_that_fails_is_raised_by_the_launching_call() -> None:
    x = torch.ones(4, device=DEVICE)
    torch.accelerator.synchronize()
    message = rf"^{NAME} error: unspecified launch failure \(injected by launch:2=failure\) "
    with inject("launch:2=failure") as faults:
        y = x.neg()
        with pytest.raises(torch.AcceleratorError, match=message):
            x.abs()
        torch.accelerator.synchronize()  # raises nothing: the launch that failed has queued no kernel
    assert faults.counts == [Count("launch:2=failure", 2, 1)]
    assert y.tolist() == [-1.0] * 4


def test_a_queued_launch_leaves_its_stream_as_it_was(mode: str) -> None:
    x = torch.ones(1 << 16, device=DEVICE)
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    with inject("launch:1-3=busy"):
        for _ in range(3):
            with pytest.raises(torch.AcceleratorError, match="busy or unavailable"):
                x.neg()
            torch.accelerator.synchronize()
        assert torch.accelerator.memory_allocated() == before
        assert x.neg()[-1].item() == -1


def test_a_flipped_bit_is_one_bit() -> None:
    x = torch.zeros(1000, dtype=torch.uint8).random_(generator=torch.Generator().manual_seed(0))
    on_device = x.to(DEVICE)
    torch.accelerator.synchronize()
    with inject("copy:1=flip"):
        wrong = on_device.cpu()
    different = wrong ^ x
    assert sum(bin(value).count("1") for value in different.tolist()) == 1
    assert on_device.cpu().equal(x)


def test_a_delay_makes_work_late_and_its_results_stay_right(mode: str) -> None:
    x = torch.arange(4.0).to(DEVICE)
    torch.accelerator.synchronize()
    launched = 1.0
    for _ in range(1 if mode == "inline" else 100):
        with inject("kernel:1~200ms;copy:1~100ms"):
            start = time.perf_counter()
            y = x + 1
            launched = min(launched, time.perf_counter() - start)
            assert y.tolist() == [1.0, 2.0, 3.0, 4.0]
            assert time.perf_counter() - start >= 0.3
        if launched < 0.15:  # a busy machine can only make the time longer
            break
    assert (launched < 0.15) == (mode != "inline")  # the stream sleeps, not the host


def test_a_slow_device_takes_its_factor() -> None:
    kernel = HostFn(lambda _: time.sleep(0.02))

    def seconds(device: int) -> float:
        with torch.accelerator.device_index(device):
            start = time.perf_counter()
            call("orLaunch", None, kernel, None, 0)
            torch.accelerator.synchronize()
            return time.perf_counter() - start

    with inject("device0@kernel x20"):
        assert seconds(0) >= 20 * 0.02
        assert min(seconds(1) for _ in range(10)) < 20 * 0.02  # a busy machine can only make the time longer


# ---- streams, events, lost devices -----------------------------------------------------------------------------------


def test_a_lost_device_stays_lost_until_the_end_and_the_other_one_works(mode: str) -> None:
    lost, fine = torch.ones(4, device=DEVICE_1), torch.ones(4, device=DEVICE_0)
    for index in (0, 1):
        torch.accelerator.synchronize(index)
    message = "device(s) is/are busy or unavailable (injected by device1@kernel:2=lost)"
    with inject("device1@kernel:2=lost"):
        lost.neg()
        with pytest.raises(torch.AcceleratorError, match=re.escape(message)):
            lost.neg()
            torch.accelerator.synchronize(1)
        with pytest.raises(torch.AcceleratorError, match=re.escape(message)):
            torch.accelerator.synchronize(1)
        with pytest.raises(torch.AcceleratorError, match=re.escape(message)):
            torch.empty(4, device=DEVICE_1)
        with pytest.raises(torch.AcceleratorError, match=re.escape(message)):
            lost.cpu()
        with pytest.raises(torch.AcceleratorError, match=re.escape(message)):
            torch.accelerator.get_memory_info(1)
        assert torch.accelerator.get_memory_info(0)[1] > 0
        assert fine.neg().tolist() == [-1.0] * 4
    assert lost.neg().tolist() == [-1.0] * 4


def test_a_sticky_error_stays_for_the_process(mode: str) -> None:
    result = run(
        f"""if True:
        import torch
        from torch_openreg.openreg.faults import inject
        x = torch.ones(4, device="{DEVICE_0}")
        def tried(call):
            try:
                call()
                torch.accelerator.synchronize()
                print("fine")
            except torch.AcceleratorError as error:
                print(error.error_code)
        try:
            with inject("kernel:1=illegal!"):
                tried(lambda: x.neg())
        finally:
            tried(lambda: x.neg())
            tried(lambda: torch.empty(4, device="{DEVICE_1}"))
            tried(lambda: x.cpu())
        """,
        OPENREG_EXECUTION=mode,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["700"] * 4


@pytest.mark.parametrize("point", ["stream", "event"])
def test_streams_and_events_cannot_be_made(point: str) -> None:
    name = "orStreamCreate" if point == "stream" else "orEventCreate"
    with inject(f"{point}:2=failure"):
        made = get_pointer(name)
        with pytest.raises(OpenRegError, match=rf"unspecified launch failure \(injected by {point}:2=failure\)"):
            get_pointer(name)
        call(name.replace("Create", "Destroy"), made)


def test_each_stream_of_pytorch_meets_a_fault_when_it_is_taken_from_the_pool() -> None:
    with inject("stream:2=failure;stream:100=busy") as faults:
        for number in range(1, 201):  # more than the pool has
            error = {2: "unspecified launch failure", 100: "busy"}.get(number)
            expected = pytest.raises(torch.AcceleratorError, match=error) if error else contextlib.nullcontext()
            with expected:
                stream = torch.Stream(device=DEVICE_0)
            with stream:  # the stream of the call before, if this call failed
                assert torch.ones(1, device=DEVICE_0).item() == 1
    assert [(count.seen, count.fired) for count in faults.counts] == [(200, 1), (200, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["chaos"], indirect=True)  # a receiver is a new interpreter
def test_memory_of_another_process_cannot_be_opened(mode: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(f"""if True:
        import torch
        import torch.multiprocessing as mp
        from torch_openreg.openreg.faults import inject
        def receive(queue):
            with inject("ipc:1=failure") as faults:
                try:
                    queue.get()
                except torch.AcceleratorError as error:
                    print(error)
                print(queue.get().tolist(), faults.counts[0].fired, flush=True)
        if __name__ == "__main__":
            context = mp.get_context("spawn")
            queue = context.SimpleQueue()
            receiver = context.Process(target=receive, args=(queue,))
            receiver.start()
            x = torch.arange(3.0, device="{DEVICE_0}")
            queue.put(x)
            queue.put(x)
            receiver.join()
    """)
    result = programs.run(sys.executable, "program.py", cwd=tmp_path, OPENREG_EXECUTION=mode)
    failed, second = result.stdout.splitlines()
    assert failed.startswith(f"{NAME} error: unspecified launch failure (injected by ipc:1=failure) "), result.stderr
    assert second == "[0.0, 1.0, 2.0] 1"


@runs_once
def test_a_driver_that_fails_at_the_start_is_reported_at_the_first_use() -> None:
    program = f'import torch\ntry: torch.ones(2, device="{DEVICE_0}")\nexcept RuntimeError as error: print(error)'
    for effect, text in (("driver", "driver version is insufficient"), ("nodevice", "capable device is detected")):
        result = run(program, OPENREG_FAULTS=f"start={effect}")
        assert result.returncode == 0 and text in result.stdout, result.stderr
        counted = run("import torch; print(torch.accelerator.is_available())", OPENREG_FAULTS=f"start={effect}")
        assert counted.stdout.startswith("False") and text in counted.stderr


# ---- scopes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["copy:5=ecc", "malloc:1=oom;copy:5=ecc"])
def test_a_fault_that_never_fired_warns_if_the_block_raises(program: str) -> None:
    message = "^The fault 'copy:5=ecc' never fired: there were 0 calls of its kind.$"
    with pytest.warns(FaultWarning, match=message), pytest.raises(RuntimeError), inject(program):
        torch.empty(4, device=DEVICE).view(3)


def test_a_skipped_test_warns_of_no_fault() -> None:
    with warnings.catch_warnings(), pytest.raises(pytest.skip.Exception), inject("copy:5=ecc"):
        warnings.simplefilter("error")
        pytest.skip()


def test_a_fault_that_never_fired_warns() -> None:
    message = "^The fault 'malloc:100=oom' never fired: there were 1 calls of its kind.$"
    with pytest.warns(FaultWarning, match=message), inject("malloc:100=oom"):
        torch.empty(4, device=DEVICE)


def test_the_warning_names_the_line_that_injects() -> None:
    @inject("event=oom")  # the line of the second warning
    def decorated() -> None:
        pass

    with warnings.catch_warnings(record=True) as caught, contextlib.ExitStack() as stack:
        warnings.simplefilter("always")
        with inject("event=oom"):
            pass
        decorated()
        stack.enter_context(inject("event=oom"))
        stack.close()
    assert [each.filename for each in caught] == [__file__] * 3
    lines = [linecache.getline(__file__, each.lineno).strip() for each in caught]
    assert lines == [
        'with inject("event=oom"):',
        '@inject("event=oom")  # the line of the second warning',
        'stack.enter_context(inject("event=oom"))',
    ]


def test_a_body_that_runs_after_the_call_is_not_decorated() -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[None]:
        yield

    async def both() -> AsyncIterator[None]:
        yield

    for function in (coroutine, generator, both):
        with pytest.raises(
            TypeError, match=rf"^inject\(\) does not decorate .*{function.__name__}\(\): a call only makes "
        ):
            inject("malloc:1=oom")(function)


def test_a_class_is_not_decorated() -> None:
    message = (
        "inject() does not decorate the class Client: a call only makes an object, and the faults would be removed "
        "before its methods run. Decorate the methods."
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        inject("malloc:1=oom")(type("Client", (), {}))


def failing_allocations(count: int) -> list[int]:
    failed = []
    for number in range(1, count + 1):
        try:
            torch.empty(4, device=DEVICE)
        except torch.OutOfMemoryError:
            failed.append(number)
    return failed


def test_each_fault_counts_also_the_calls_that_another_fault_fails() -> None:
    with inject("malloc:1=oom;malloc:2=oom;malloc:2-3=oom") as faults:
        assert failing_allocations(4) == [1, 2, 3]
    assert [count[1:] for count in faults.counts] == [(4, 1), (4, 1), (4, 2)]


def test_blocks_may_be_nested() -> None:
    with inject("malloc:2=oom") as outer:
        assert failing_allocations(1) == []
        with inject("malloc:1=oom;malloc:3=oom") as inner:
            assert failing_allocations(3) == [1, 3]
        assert failing_allocations(1) == []
    assert [count.fired for count in (*outer.counts, *inner.counts)] == [1, 1, 1]


@runs_once
@pytest.mark.parametrize("environment", [{}, {"OPENREG_FAULTS": "malloc:100=oom"}], ids=["block", "process"])
def test_a_forked_child_leaves_the_faults_to_its_parent(environment: dict[str, str]) -> None:
    program = f"""if True:
        import os, sys, torch
        from torch_openreg.openreg.faults import inject
        torch.empty(4, device="{DEVICE_0}")
        with inject("malloc:1=oom") as faults:
            child = os.fork()
            if child == 0:
                sys.exit(faults.counts != [])
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            try:
                torch.empty(4, device="{DEVICE_0}")
            except torch.OutOfMemoryError:
                print("out of memory")
    """
    result = run(program, **environment)
    assert (result.returncode, result.stdout) == (0, "0\nout of memory\n"), result.stderr
    assert "Error" not in result.stderr
    assert result.stderr.count("never fired") == len(environment)  # only the parent warns


def test_a_function_is_decorated_and_gets_new_faults_in_each_call() -> None:
    @inject("malloc:2=oom")
    def first_then_none() -> bool:
        torch.empty(4, device=DEVICE)
        try:
            torch.empty(4, device=DEVICE)
        except torch.OutOfMemoryError:
            return True
        return False

    assert first_then_none() and first_then_none()


def test_after_the_block_no_fault_is_left() -> None:
    with inject("malloc:1=oom;kernel:1+~1us;copy:1+~1us"):
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(4, device=DEVICE)
        torch.ones(4, device=DEVICE).neg().cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.ones(4, device=DEVICE).neg().tolist() == [-1.0] * 4


@runs_once
def test_the_environment_injects_for_the_process_and_tells_at_exit_what_never_fired() -> None:
    program = f"""if True:
        import torch
        try:
            torch.empty(4, device="{DEVICE_0}")
        except torch.OutOfMemoryError:
            print("out of memory")
    """
    result = run(program, OPENREG_FAULTS="malloc:1=oom; kernel:1=illegal")
    assert result.stdout == "out of memory\n"
    notice = "OPENREG_FAULTS: the fault 'kernel:1=illegal' never fired: there were 0 calls of its kind."
    assert notice in result.stderr.splitlines()


@runs_once
def test_a_bad_environment_does_not_break_the_import() -> None:
    program = f'import torch\ntry: torch.ones(2, device="{DEVICE_0}")\nexcept Exception as error: print(error)'
    result = run(program, OPENREG_FAULTS="maloc:1=oom")
    assert result.returncode == 0, result.stderr
    assert "OPENREG_FAULTS cannot be obeyed. The fault 'maloc:1=oom' has the unknown point 'maloc'." in (
        result.stdout + result.stderr
    )


# ---- the C API -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("points", 0, "points is 0; join values of orFaultPoint, or pass orFaultAnywhere"),
        ("points", 1 << 20, "points is 1048576; join values of orFaultPoint, or pass orFaultAnywhere"),
        ("first", 0, "first is 0 and last is 1; calls are counted from 1"),
        ("probability", 0.0, "probability is 0; pass a number above 0, at most 1"),
        ("action", 6, "action is 6, which is no orFaultAction (0 to 5)"),
        ("duration", 3, "duration is 3, which is no orFaultDuration (0 to 2)"),
        ("error", 0, "error is orSuccess; pass the error that the call is to return"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(field: str, value: float, message: str) -> None:
    fault = Fault(points=1, device=-1, first=1, last=1, probability=1.0, error=2)
    setattr(fault, field, value)
    with pytest.raises(OpenRegError, match=re.escape(f"orErrorInvalidValue: orFaultInject: {message}")):
        get_pointer("orFaultInject", ctypes.byref(fault))


def test_a_fault_is_removed_once() -> None:
    handle = get_pointer(
        "orFaultInject", ctypes.byref(Fault(points=1, device=-1, first=1, last=1, probability=1, error=2))
    )
    call("orFaultRemove", handle)
    with pytest.raises(OpenRegError, match=f"fault {handle:#x} does not exist; it was removed, or is no fault"):
        call("orFaultRemove", handle)


REMOVED = """
from openreg_work import kernel
slow = Fault(points=8, device=-1, first=1, last=1, probability=1, action=2, amount=1e12)
fault = get_pointer("orFaultInject", ctypes.byref(slow))
fired = ctypes.c_uint64()
observer, twice = Observer(KERNEL), kernel(None)
with twice:
    call("orFaultCount", fault, None, ctypes.byref(fired))
    call("orFaultRemove", fault)
print(fired.value)
"""


@pytest.mark.parametrize(
    ("next_kernel", "told"),
    [
        ("with observer, twice: pass", "[(1, 0), (1, 1)]"),
        ("with twice: observer.__enter__()\nobserver.__exit__()", "[]"),
    ],
    ids=["observed", "observed at its end"],
)
def test_a_fault_that_is_removed_while_its_kernel_runs_does_not_meet_the_next_one(
    next_kernel: str, told: str, mode: str
) -> None:
    """The next kernel has the same scope. If it met the fault, it would take 10**12 times as long."""
    code = REMOVED + next_kernel + "\nprint([event[:2] for event in observer.events])"
    assert output_of(code, OPENREG_EXECUTION=mode) == f"1\n{told}"
