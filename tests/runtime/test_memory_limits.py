"""Limits and divisions of device memory: fractions, pools, the allocator's settings; and OPENREG_POISON."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import programs
import pytest
import torch
from comparison import DEVICE, DEVICE_0, NAME, PRELUDE

from torch_openreg import openreg

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    gc.collect()
    openreg.empty_cache()
    yield


def bytes_of(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=DEVICE)


def output_of(code: str, **environment: str) -> list[str]:
    """The lines that `code` prints in a new process, whose allocator has allocated nothing yet."""
    result = programs.python(PRELUDE + code, **environment, status=0)
    return result.stdout.splitlines()


# ---- fractions


def test_a_process_cannot_reserve_more_than_its_fraction() -> None:
    assert openreg.get_per_process_memory_fraction() == 1.0
    total = openreg.mem_get_info()[1]
    cached = openreg.memory_reserved() - openreg.memory_allocated()  # beside what other tests have left behind
    try:
        openreg.set_per_process_memory_fraction((openreg.memory_reserved() + 64 * MIB) / total)
        kept = bytes_of(60 * MIB)
        with pytest.raises(torch.OutOfMemoryError, match=" allowed; Of the allocated memory "):
            bytes_of(20 * MIB + cached)
        assert openreg.mem_get_info()[0] > 20 * MIB  # the device itself had room
        del kept
        assert bytes_of(40 * MIB).nbytes == 40 * MIB  # the allocator gave back its cache first
        openreg.set_per_process_memory_fraction(0.0, openreg.device_count() - 1)
        assert openreg.get_per_process_memory_fraction(openreg.device_count() - 1) == 0.0
    finally:
        for device in range(openreg.device_count()):
            openreg.set_per_process_memory_fraction(1.0, device)


def test_a_fraction_is_a_float_from_0_to_1() -> None:
    with pytest.raises(TypeError, match=r"^Invalid type for fraction argument, must be `float`$"):
        openreg.set_per_process_memory_fraction(1)
    for fraction in (-0.5, 1.5):
        with pytest.raises(ValueError, match=rf"^Invalid fraction value: {fraction}\. Allowed range: 0~1$"):
            openreg.set_per_process_memory_fraction(fraction)


OBSERVED = """
from torch_openreg.openreg import memory
def observer(*arguments):
    print(*arguments, openreg.memory_stats()["num_ooms"])
    torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)  # an observer may allocate: no lock is held
memory._attach_out_of_memory_observer(observer)
for size in (4 << 30, 1 << 40):
    try:
        torch.empty(size, dtype=torch.uint8, device=DEVICE_1)
    except torch.OutOfMemoryError as error:
        print(error)
"""


def test_observers_see_the_failure_before_the_program_does() -> None:
    lines = output_of(OBSERVED, OPENREG_DEVICE_MEMORY="1G")
    assert lines[0] == f"1 {4 * GIB} {GIB} {GIB} 1"  # the failure is counted already
    # test_cuda.py has the rest of the message under the name cuda.
    device, process, advice = (
        ("GPU", "Including non-PyTorch memory, this process", "If reserved but unallocated memory is large ")
        if DEVICE == "cuda"
        else ("Device", "This process", "Free tensors, use a smaller batch, or set OPENREG_DEVICE_MEMORY higher.")
    )
    message = (
        f"{NAME} out of memory. Tried to allocate 4.00 GiB. {device} 1 has a total capacity of 1.00 GiB of which "
        f"1.00 GiB is free. {process} has 0 bytes memory in use. Of the allocated memory 0 bytes is allocated by "
        f"PyTorch, and 0 bytes is reserved by PyTorch but unallocated. {advice}"
    )
    assert lines[1].startswith(message) if DEVICE == "cuda" else lines[1] == message
    assert lines[2].startswith(f"1 {1 << 40} {GIB} {GIB}")


def test_more_than_an_exabyte_is_refused_before_anything_else() -> None:
    with pytest.raises(torch.OutOfMemoryError) as error:
        bytes_of(1 << 61)
    assert str(error.value) == f"{NAME} out of memory. Tried to allocate more than 1EB memory."


# ---- temporaries of kernels


@pytest.fixture
def full_device() -> Iterator[Callable[[], object]]:
    """A function that allocates all reserved memory that is free, and forbids the process to reserve more."""
    taken: list[torch.Tensor] = []

    def fill() -> None:
        torch.accelerator.synchronize()
        free, total = openreg.mem_get_info()
        openreg.set_per_process_memory_fraction((total - free) / total)
        size = 64 * MIB
        while size >= 512:
            try:
                taken.append(bytes_of(size))
            except torch.OutOfMemoryError:
                size //= 2

    yield fill
    openreg.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_full_device_has_room_for_what_a_kernel_writes_into(mode: str, full_device: Callable[[], object]) -> None:
    with openreg.execution_mode(mode):
        integers = torch.arange(1 << 20, dtype=torch.int32, device=DEVICE)
        single = torch.full((1 << 20,), 0.5, device=DEVICE)
        double = torch.full((1 << 20,), 0.25, dtype=torch.float64, device=DEVICE)
        sums, empty = torch.empty_like(single), torch.empty(0, device=DEVICE)
        full_device()
        refused = openreg.memory_stats()["num_ooms"]
        integers.add_(1).mul_(2).remainder_(1009)
        single.add_(double)  # computes in double precision, as the CPU does, with two temporaries of 8 MiB
        torch.add(single, double, out=sums)
        torch._foreach_mul_([single, sums], 2)
        assert openreg.memory_stats()["num_ooms"] == refused
        with pytest.raises(torch.OutOfMemoryError):  # `empty` would have to grow
            torch.add(single, double, out=empty)
        with pytest.raises(torch.OutOfMemoryError):
            integers + 1
    expected = torch.arange(1 << 20, dtype=torch.int32).add_(1).mul_(2).remainder_(1009)
    assert torch.equal(integers.cpu(), expected)
    assert single.cpu().unique().tolist() == [1.5] and sums.cpu().unique().tolist() == [2.0]


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_temporaries_of_kernels_are_no_device_memory(mode: str, full_device: Callable[[], object]) -> None:
    with openreg.execution_mode(mode):
        single = torch.zeros(1 << 21, device=DEVICE)
        double = torch.ones(1 << 21, dtype=torch.float64, device=DEVICE)
        mask = torch.ones(4 * MIB, dtype=torch.bool, device=DEVICE)
        torch.accelerator.synchronize()
        openreg.reset_peak_memory_stats()
        before = openreg.memory_allocated(), openreg.memory_reserved()
        for _ in range(6):
            single.add_(double)  # the CPU's kernel makes two temporaries of 16 MiB
        torch.accelerator.synchronize()
        assert (openreg.max_memory_allocated(), openreg.memory_reserved()) == before
        room = torch.empty(1, dtype=torch.int64, device=DEVICE)
        full_device()
        del room  # the result is all that needs memory
        assert mask.sum().item() == 4 * MIB
    assert single.unique().tolist() == [6.0]


# ---- memory pools


def test_a_pool_keeps_its_memory_apart() -> None:
    pool = openreg.MemPool()
    with openreg.use_mem_pool(pool):
        inside = bytes_of(3 * MIB)
        assert pool.use_count() == 2
    assert pool.use_count() == 1
    outside = bytes_of(3 * MIB)
    (segment,) = pool.snapshot()
    assert segment["segment_pool_id"] == pool.id
    assert segment["address"] == inside.data_ptr()
    assert not segment["address"] <= outside.data_ptr() < segment["address"] + segment["total_size"]
    key = "reserved_bytes_by_private_pools.{}_{}.all.current".format(*pool.id)
    assert openreg.memory_stats()[key] == segment["total_size"]

    address = inside.data_ptr()
    del inside
    openreg.empty_cache()  # the pool is in use: it keeps its memory
    assert bytes_of(3 * MIB).data_ptr() != address
    with openreg.use_mem_pool(pool):
        assert bytes_of(3 * MIB).data_ptr() == address
    del outside


def test_a_pools_memory_goes_back_with_the_pool_and_its_tensors() -> None:
    reserved = openreg.memory_reserved()
    pool = openreg.MemPool()
    with openreg.use_mem_pool(pool):
        tensor = bytes_of(30 * MIB)
    del pool
    openreg.empty_cache()
    assert openreg.memory_reserved() == reserved + 30 * MIB
    del tensor
    openreg.empty_cache()
    assert openreg.memory_reserved() == reserved

    pool = openreg.MemPool()
    with openreg.use_mem_pool(pool):
        bytes_of(30 * MIB)
    assert openreg.memory_reserved() == reserved + 30 * MIB
    del pool  # the pool gives back its free memory
    assert openreg.memory_reserved() == reserved


def test_a_pool_that_goes_waits_for_no_kernel_and_takes_no_failure() -> None:
    with openreg.execution_mode("async"):
        side, pool = torch.Stream(DEVICE_0), openreg.MemPool()
        x, index = torch.ones(3, device=DEVICE), torch.tensor([7]).to(DEVICE)
        reserved = openreg.memory_reserved()
        with openreg.use_mem_pool(pool):
            tensor = bytes_of(30 * MIB)
        tensor.record_stream(side)
        with side:
            torch.gather(x, 0, index)
        del tensor, pool
        with pytest.raises(RuntimeError, match="^index 7 is out of bounds for dimension 0 with size 3"):
            side.synchronize()
        openreg.empty_cache()
        assert openreg.memory_reserved() <= reserved


def test_only_this_thread_allocates_from_the_pool() -> None:
    from threading import Thread

    pool, elsewhere = openreg.MemPool(), []
    with openreg.use_mem_pool(pool):
        thread = Thread(target=lambda: elsewhere.append(bytes_of(3 * MIB)))
        thread.start()
        thread.join()
        assert pool.snapshot() == []
    assert elsewhere[0].nbytes == 3 * MIB


def test_kernels_allocate_their_results_from_the_pool() -> None:
    a = torch.ones(MIB, device=DEVICE)
    pool = openreg.MemPool()
    with openreg.use_mem_pool(pool):
        b = a * 2 + 1
    assert sum(segment["allocated_size"] for segment in pool.snapshot()) == b.nbytes
    assert b.sum().item() == 3 * MIB


def test_a_pool_is_not_entered_twice() -> None:
    pool = openreg.MemPool()
    with openreg.use_mem_pool(pool):
        again = openreg.use_mem_pool(pool)
        with pytest.raises(RuntimeError, match=r"^beginAllocateToPool: already recording to mempool_id"), again:
            pass
        assert pool.use_count() == 2
    with pytest.raises(NotImplementedError, match=r"^torch\.openreg\.MemPool takes no allocator"):
        openreg.MemPool(allocator=object())


def test_a_pool_without_splits_has_a_segment_for_each_tensor() -> None:
    pool = openreg.MemPool(no_split=True)
    with openreg.use_mem_pool(pool):
        kept = [bytes_of(1000) for _ in range(3)]
    assert [len(segment["blocks"]) for segment in pool.snapshot()] == [1, 1, 1]
    assert len(kept) == 3


LAST_RESORT = """
def empty(size): return torch.empty(size << 20, dtype=torch.uint8, device=DEVICE)
pool = openreg.MemPool(use_on_oom=%s)
with openreg.use_mem_pool(pool):
    empty(48)
try:
    print(empty(40).nbytes >> 20)
except torch.OutOfMemoryError as error:
    print(error)
"""


def test_a_pool_may_help_out_when_memory_runs_out() -> None:
    assert output_of(LAST_RESORT % True, OPENREG_DEVICE_MEMORY="64M") == ["40"]
    (line,) = output_of(LAST_RESORT % False, OPENREG_DEVICE_MEMORY="64M")
    pools = "allocated in private pools (e.g., CUDA Graphs)" if DEVICE == "cuda" else "reserved in private pools"
    assert f"0 bytes is allocated by PyTorch, with 48.00 MiB {pools}, and 48.00 MiB is" in line


# ---- PYTORCH_ALLOC_CONF and OPENREG_ALLOC_CONF

ROUNDED = """
for size in (1000, 1 << 20, 5 << 20, 100 << 20):
    before = openreg.memory_allocated()
    x = torch.empty(size + 1, dtype=torch.uint8, device=DEVICE)
    print(openreg.memory_allocated() - before)
    del x
print(openreg.memory_reserved() >> 20, torch._C._accelerator_getAllocatorSettings())
"""


@pytest.mark.slow
def test_the_shared_settings_apply_and_the_devices_own_go_first() -> None:
    assert output_of(ROUNDED) == ["1024", str(MIB + 512), str(5 * MIB + 512), str(100 * MIB + 512), "124 "]
    shared = output_of(ROUNDED, PYTORCH_ALLOC_CONF="roundup_power2_divisions:4")
    # A size is rounded up to the next of four steps between two powers of two.
    assert shared == ["1024", str(MIB * 5 // 4), str(6 * MIB), str(112 * MIB), "134 roundup_power2_divisions:4"]
    own = output_of(
        ROUNDED, PYTORCH_ALLOC_CONF="roundup_power2_divisions:4", OPENREG_ALLOC_CONF="roundup_power2_divisions:2"
    )
    assert own[:4] == ["1024", str(MIB * 3 // 2), str(6 * MIB), str(128 * MIB)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("nonsense:3", "Unrecognized key 'nonsense' in Accelerator allocator config."),
        ("max_split_size_mb:3", "CachingAllocator option max_split_size_mb too small, must be >= 20"),
        ("per_process_memory_fraction:2", "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"),
        ("garbage_collection_threshold:2", "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        torch._C._accelerator_setAllocatorSettings(settings)
    assert str(error.value) == message
    assert bytes_of(MIB).nbytes == MIB


REFUSED = """
for _ in range(2):
    try:
        torch.empty(1, device=DEVICE)
    except ValueError as error:
        print(error)
"""


def test_an_environment_that_makes_no_sense_fails_the_first_allocation() -> None:
    message = "Unrecognized key 'nonsense' in Accelerator allocator config."
    assert output_of(REFUSED, OPENREG_ALLOC_CONF="nonsense:3") == [message, message]


@pytest.mark.slow
def test_expandable_segments_are_taken_with_a_warning() -> None:
    code = PRELUDE + "torch.empty(1, device=DEVICE); torch.empty(1, device=DEVICE)"
    result = programs.python(code, PYTORCH_ALLOC_CONF="expandable_segments:True", status=0)
    assert result.stderr.count("expandable_segments not supported on this platform") == 1


# c10/cuda/CUDAAllocatorConfig.h, getKeys, lists these keys. Programs for CUDA set them.
@pytest.mark.slow
@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
@pytest.mark.parametrize(("backend", "warnings"), [("native", 0), ("cudaMallocAsync", 1)])
def test_keys_that_only_cuda_has_are_taken(variable: str, backend: str, warnings: int) -> None:
    code = f"import torch; torch.empty(1, device='{DEVICE}')"
    settings = f"pinned_use_cuda_host_register:True,backend:{backend},throw_on_cudamalloc_oom:False"
    result = programs.python(code, status=0, **{variable: settings})
    sentence = "the allocator backend cudaMallocAsync is not available; the device uses its own allocator, native"
    assert result.stderr.count(sentence) == result.stderr.count("Warning") == warnings


SPLITS = """
def empty(size): return torch.empty(size << 20, dtype=torch.uint8, device=DEVICE)
print(openreg.memory_stats().get("max_split_size"))
x = empty(60); address = x.data_ptr(); del x
small = empty(15); print(small.data_ptr() == address)       # 15 MiB would cut the block, so they get a new segment
near = empty(50); print(near.data_ptr() == address)         # 10 MiB are wasted: less than max_non_split_rounding_mb
stats = openreg.memory_stats()
print(stats["max_split_size"] >> 20, stats["oversize_allocations.current"], stats["oversize_segments.current"])
del near
far = empty(35); print(far.data_ptr() == address)
kept = [small, far, empty(60)]
del kept[2]
print(openreg.memory_stats()["num_alloc_retries"], openreg.memory_reserved() >> 20)
another = empty(65)                                          # the free oversize block goes, the rest of the cache stays
print(openreg.memory_stats()["num_alloc_retries"], openreg.memory_stats()["num_device_free"])
"""


@pytest.mark.slow
def test_blocks_above_max_split_size_are_not_cut() -> None:
    lines = output_of(SPLITS, PYTORCH_ALLOC_CONF="max_split_size_mb:20", OPENREG_DEVICE_MEMORY="160M")
    assert lines == ["None", "False", "True", "20 1 1", "False", "0 112", "0 1"]


COLLECTED = """
def empty(size): return torch.empty(size << 20, dtype=torch.uint8, device=DEVICE)
empty(30)
for _ in range(3): empty(40)
print(openreg.memory_reserved() >> 20)
x = empty(46)
print(openreg.memory_reserved() >> 20, openreg.memory_stats()["num_alloc_retries"])
"""


@pytest.mark.slow
def test_above_the_threshold_the_memory_that_is_free_for_longest_goes_back() -> None:
    assert output_of(COLLECTED, OPENREG_DEVICE_MEMORY="100M") == ["70", "46 1"]  # the whole cache was given back
    threshold = {"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.5"}
    assert output_of(COLLECTED, OPENREG_DEVICE_MEMORY="100M", **threshold) == ["70", "86 0"]


# ---- OPENREG_POISON

POISONED = """
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn):
    x = torch.empty(1000, dtype=dtype, device=DEVICE)
    print(x.float().isnan().all().item() if dtype == torch.float8_e4m3fn else x.isnan().all().item(), end=" ")
print(torch.empty(10, dtype=torch.int64, device=DEVICE).unique().tolist())
def settle():                       # an allocation checks which streams have passed; then the freed memory is filled
    openreg.synchronize(); torch.empty(1, device=DEVICE); openreg.synchronize()
x = torch.zeros(1 << 20, device=DEVICE); address = x.data_ptr(); del x; settle()
y = torch.empty(1 << 20, device=DEVICE); print(y.data_ptr() == address, y.isnan().all().item())
side = torch.Stream(DEVICE)
z = torch.zeros(1 << 20, device=DEVICE); address = z.data_ptr(); z.record_stream(side); del z; settle()
w = torch.empty(1 << 20, device=DEVICE); print(w.data_ptr() == address, w.isnan().all().item())
a, b = torch.randn(64, 64, device=DEVICE, requires_grad=True), torch.randn(64, 64)
c = torch.nn.functional.conv2d(a[None, None], b[None, None, :3, :3].to(DEVICE))
c.sort(dim=-1).values.cumsum(0).exp().sum().backward()
print(a.grad.isfinite().all().item())
"""


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_poisoned_memory_holds_nan_until_it_is_written(mode: str) -> None:
    lines = output_of(POISONED, OPENREG_POISON="1", OPENREG_EXECUTION=mode)
    assert lines == ["True True True True True True [-1]", "True True", "True True", "True"]


def test_without_poison_memory_is_left_alone() -> None:
    code = """
x = torch.full((1 << 20,), 7.0, device=DEVICE); del x
print(torch.empty(1 << 20, device=DEVICE).unique().tolist())
"""
    assert output_of(code, OPENREG_POISON="0") == ["[7.0]"]
