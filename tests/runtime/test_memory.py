"""Device memory: statistics of torch.accelerator and of the device module, leaks, and errors when memory runs out."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import programs
import pytest
import torch
from comparison import DEVICE, DEVICE_1, NAME, OURS, PRELUDE, assert_same
from programs import resident

MODULE = torch.get_device_module(DEVICE)
MIB = 1 << 20
TWO_DEVICES = pytest.mark.skipif(MODULE.device_count() < 2, reason="needs two devices")


@pytest.fixture(autouse=True)
def _nothing_is_left_over() -> Iterator[None]:
    gc.collect()
    MODULE.synchronize()
    before = torch.accelerator.memory_allocated()
    yield
    gc.collect()
    MODULE.synchronize()
    assert torch.accelerator.memory_allocated() == before


def test_allocated_memory_rises_and_falls_with_tensors() -> None:
    before = torch.accelerator.memory_allocated()
    a = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)
    assert torch.accelerator.memory_allocated() - before == 3 * MIB
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    del a
    assert torch.accelerator.memory_allocated() == before


def test_small_sizes_are_rounded_up_to_512_bytes_as_on_cuda() -> None:
    before = torch.accelerator.memory_allocated()
    a = torch.empty(1, device=DEVICE)
    assert torch.accelerator.memory_allocated() - before == 512
    b = torch.empty(0, device=DEVICE)
    assert torch.accelerator.memory_allocated() - before == 512
    del a, b


def test_peaks_are_kept_and_reset() -> None:
    torch.accelerator.reset_peak_memory_stats()
    start = torch.accelerator.memory_allocated()
    a = torch.empty(8 * MIB, dtype=torch.uint8, device=DEVICE)
    del a
    assert torch.accelerator.max_memory_allocated() == start + 8 * MIB
    assert torch.accelerator.max_memory_reserved() >= start + 8 * MIB
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == start


@TWO_DEVICES
def test_each_device_has_its_own_count() -> None:
    first, second = torch.accelerator.memory_allocated(0), torch.accelerator.memory_allocated(1)
    a = torch.empty(MIB, dtype=torch.uint8, device=DEVICE_1)
    assert torch.accelerator.memory_allocated(0) == first
    assert torch.accelerator.memory_allocated(1) == second + MIB
    assert torch.accelerator.memory_allocated(DEVICE_1) == second + MIB
    del a


def test_the_statistics_have_cudas_keys() -> None:
    before = torch.accelerator.memory_stats()
    a = torch.empty(MIB, dtype=torch.uint8, device=DEVICE)
    stats = torch.accelerator.memory_stats()
    for group in (
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "requested_bytes",
        "allocation",
        "segment",
        "active",
    ):
        for pool in ("all", "small_pool", "large_pool"):
            for metric in ("current", "peak", "allocated", "freed"):
                assert f"{group}.{pool}.{metric}" in stats
    for counter in ("num_alloc_retries", "num_ooms"):
        assert counter in stats
    assert stats["allocated_bytes.all.current"] == torch.accelerator.memory_allocated()
    for metric in ("current", "allocated"):
        assert stats[f"allocation.all.{metric}"] == before.get(f"allocation.all.{metric}", 0) + 1
    del a


def test_memory_info_is_free_and_total() -> None:
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total
    assert (free, total) == tuple(MODULE.mem_get_info())
    torch.accelerator.empty_cache()
    free = torch.accelerator.get_memory_info()[0]
    a = torch.empty(64 * MIB, dtype=torch.uint8, device=DEVICE)
    assert free - torch.accelerator.get_memory_info()[0] >= 64 * MIB
    del a
    torch.accelerator.empty_cache()
    assert torch.accelerator.get_memory_info()[0] == free


def test_empty_cache_gives_back_what_no_tensor_holds() -> None:
    def unused() -> int:
        return torch.accelerator.memory_reserved() - torch.accelerator.memory_allocated()

    torch.accelerator.empty_cache()
    before = unused()  # beside tensors that other tests hold
    a = torch.empty(before + 32 * MIB, dtype=torch.uint8, device=DEVICE)
    del a
    assert unused() >= before + 32 * MIB
    torch.accelerator.empty_cache()
    assert unused() == before


def test_emptying_the_cache_gives_the_pages_back_to_the_system() -> None:
    torch.accelerator.empty_cache()
    before = resident()
    a = torch.ones(64 * MIB, dtype=torch.uint8, device=DEVICE)
    torch.accelerator.synchronize()
    assert resident() - before > 60 * MIB
    del a
    assert resident() - before > 60 * MIB  # cached
    torch.accelerator.empty_cache()
    assert resident() - before < 4 * MIB


@pytest.mark.skipif(not OURS, reason="the heading names the device")
def test_the_summary_is_cudas_table() -> None:
    a = torch.empty(3 * MIB, dtype=torch.uint8, device=DEVICE)
    lines = MODULE.memory_summary().splitlines()
    assert {len(line) for line in lines} == {77}
    assert lines[1].strip("| ") == f"PyTorch {NAME} memory summary, device ID {MODULE.current_device()}"
    rows = {line.split("|")[1].strip(): line.split("|")[2:6] for line in lines if line.count("|") == 6}
    assert rows["GPU reserved memory"][0].split()[1] in ("KiB", "MiB")
    assert len(rows) == 14  # 11 rows, the heading, and the rows of the two pools, which have the same labels
    abbreviated = MODULE.memory_summary(abbreviated=True).splitlines()
    assert len(lines) - len(abbreviated) == 18  # two pools of nine rows
    del a


def test_the_profiler_sees_allocations_and_frees() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        a = torch.empty(MIB, dtype=torch.uint8, device=DEVICE)
        del a
    memory = {event.key: event.self_device_memory_usage for event in profile.key_averages()}
    assert memory["aten::empty"] == MIB
    assert memory["[memory]"] == -MIB


TRACED = """
from torch.cuda import _gpu_trace as trace
seen = []
trace.register_callback_for_memory_allocation(lambda address: seen.append(("allocated", address)))
trace.register_callback_for_memory_deallocation(lambda address: seen.append(("freed", address)))
torch._C._activate_gpu_trace()
x = torch.empty(100, device=DEVICE)
address = x.data_ptr()
del x
print(seen == [("allocated", address), ("freed", address)])
"""


@pytest.mark.skipif(not OURS, reason="names the device")
def test_the_sanitizers_callbacks_see_allocations_and_frees() -> None:
    programs.python(PRELUDE + TRACED, status=0, output="True\n")


def test_the_device_module_and_torch_accelerator_give_the_same_figures() -> None:
    accelerator = torch.accelerator
    for index in range(MODULE.device_count()):
        a = torch.empty(MIB, dtype=torch.uint8, device=f"{DEVICE}:{index}")
        a = a[: MIB // 2].clone()  # the peak is higher than the memory in use
        assert MODULE.memory_allocated(index) == accelerator.memory_allocated(index)
        assert MODULE.max_memory_allocated(index) == accelerator.max_memory_allocated(index)
        assert MODULE.memory_reserved(index) == accelerator.memory_reserved(index)
        assert MODULE.max_memory_reserved(index) == accelerator.max_memory_reserved(index)
        assert MODULE.mem_get_info(index) == accelerator.get_memory_info(index)
        assert MODULE.memory_stats(index)["allocated_bytes.all.current"] == accelerator.memory_allocated(index)
        MODULE.reset_peak_memory_stats(index)
        assert MODULE.max_memory_allocated(index) == MODULE.memory_allocated(index)
    MODULE.empty_cache()
    assert_same(a.zero_(), torch.zeros(MIB // 2, dtype=torch.uint8))
    del a


def test_operators_leave_nothing_behind() -> None:
    def work() -> None:
        x = torch.randn(64, 64, device=DEVICE, requires_grad=True)
        y = torch.nn.functional.conv2d(x[None, None], torch.ones(4, 1, 3, 3, device=DEVICE), padding=1)
        y = torch.cat([y, y.sort(dim=-1).values]).softmax(-1)[:, :, torch.arange(5)]
        (y * torch.rand_like(y)).std().backward()
        (x.detach() > 0).nonzero(), x.detach().svd(), x.detach().t().reshape(-1).unique()

    work()
    gc.collect()
    before = torch.accelerator.memory_allocated()
    for _ in range(5):
        work()
    gc.collect()
    assert torch.accelerator.memory_allocated() == before


def test_a_tensor_keeps_its_values_while_its_neighbours_are_allocated_and_freed() -> None:
    torch.manual_seed(0)
    kept: list[tuple[torch.Tensor, float]] = []
    for number in range(300):
        size = int(torch.randint(1, 20_000, ()).item())
        kept.append((torch.full((size,), float(number), device=DEVICE), float(number)))
        if number % 3 == 0:
            kept.pop(int(torch.randint(len(kept), ()).item()))
    for tensor, value in kept:
        assert_same(tensor, torch.full(tensor.shape, value))


def test_a_loop_over_out_of_memory_recovers() -> None:
    # accelerate's find_executable_batch_size and Lightning's batch scaler retry with a smaller size in this way.
    total = torch.accelerator.get_memory_info()[1]
    size, tries = total * 2, 0
    while True:
        try:
            a = torch.empty(size, dtype=torch.uint8, device=DEVICE)
            break
        except torch.OutOfMemoryError:
            size, tries = size // 64, tries + 1
    assert tries == 1
    assert a.numel() == size
    del a


SMALL_DEVICE = """
held = [torch.ones(8 << 20, dtype=torch.uint8, device=DEVICE) for _ in range(6)]
torch.accelerator.reset_peak_memory_stats()
try:
    torch.ones(32 << 20, dtype=torch.uint8, device=DEVICE)
except torch.OutOfMemoryError as error:
    print(error)
print(torch.accelerator.memory_allocated() >> 20, torch.accelerator.memory_stats()["num_ooms"])
x = held.pop()
del x
print(torch.ones(8 << 20, dtype=torch.uint8, device=DEVICE)[-1].item(), all(t[0].item() == 1 for t in held))
print(torch.ones(40 << 20, dtype=torch.uint8, device=DEVICE_1)[-1].item())
"""


@pytest.mark.skipif(not OURS, reason="the capacity is set in this device's environment")
def test_a_full_device_says_so_and_stays_usable() -> None:
    result = programs.python(PRELUDE + SMALL_DEVICE, OPENREG_DEVICE_MEMORY="64M", cwd="/", status=0)
    error, *rest = result.stdout.splitlines()
    assert "out of memory. Tried to allocate 32.00 MiB." in error
    assert "total capacity of 64.00 MiB" in error
    assert "48.00 MiB is allocated by PyTorch" in error
    assert rest == ["48 1", "1 True", "1"]


def test_record_stream_keeps_memory_until_the_stream_is_done() -> None:
    stream = torch.Stream(DEVICE)
    a = torch.ones(MIB, device=DEVICE)
    stream.wait_stream(torch.accelerator.current_stream())
    with MODULE.stream(stream):
        b = a * 2
    a.record_stream(stream)
    del a
    c = torch.zeros(MIB, device=DEVICE)
    MODULE.synchronize()
    assert_same((b, c), (torch.full((MIB,), 2.0), torch.zeros(MIB)))
    del b, c
