"""Level 4: device memory is counted, limited, reused, and shown in snapshots."""

import gc

import torch

from ..kit import NotOffered, busy, capture, device_module, equal, python, raises, same, start_python, usable
from ..registry import Topic

statistics = Topic(
    "memory/statistics",
    why="Users choose the batch size by these numbers, and only these numbers show a leak.",
    defined="c10::DeviceAllocator: getDeviceStats, resetPeakStats; torch/accelerator/memory.py",
    chapter="memory",
    needs=("statistics",),
    issue="pytorch/pytorch#138222",
)
MB = 1 << 20


@statistics.check()
def an_allocation_is_counted(device):
    """memory_allocated grows by 8 to 12 MiB for a tensor of 8 MiB, and falls again when the tensor is destroyed."""
    gc.collect()
    before = torch.accelerator.memory_allocated(device)
    x = torch.empty(8 << 20, dtype=torch.uint8, device=device)
    grown = torch.accelerator.memory_allocated(device) - before
    assert 8 << 20 <= grown <= 12 << 20, grown
    del x
    equal(torch.accelerator.memory_allocated(device), before)


@statistics.check()
def the_peak_is_remembered(device):
    """max_memory_allocated keeps the highest value until reset_peak_memory_stats."""
    torch.accelerator.reset_peak_memory_stats(device)
    before = torch.accelerator.memory_allocated(device)
    x = torch.empty(8 << 20, dtype=torch.uint8, device=device)
    del x
    assert torch.accelerator.max_memory_allocated(device) >= before + (8 << 20)
    torch.accelerator.reset_peak_memory_stats(device)
    assert torch.accelerator.max_memory_allocated(device) < before + (8 << 20)


@statistics.check()
def reserved_covers_allocated(device):
    """memory_reserved is at least memory_allocated, and max_memory_reserved is at least memory_reserved."""
    x = torch.empty(3 << 20, dtype=torch.uint8, device=device)
    assert torch.accelerator.memory_reserved(device) >= torch.accelerator.memory_allocated(device) >= x.nbytes
    assert torch.accelerator.max_memory_reserved(device) >= torch.accelerator.memory_reserved(device)


@statistics.check()
def emptying_the_cache_gives_back(device):
    """empty_cache lowers memory_reserved after a large tensor was destroyed. Live tensors keep their values."""
    keep = torch.arange(5.0).to(device)
    x = torch.empty(64 << 20, dtype=torch.uint8, device=device)
    before = torch.accelerator.memory_reserved(device)
    del x  # a device without a cache gives the memory back here
    torch.accelerator.synchronize(device)
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved(device) < before
    same(keep, torch.arange(5.0))


@statistics.check()
def freed_memory_is_reused(device):
    """A hundred allocations of one size, each freed before the next one, reserve at most 8 MiB more."""
    x = torch.empty(4 << 20, dtype=torch.uint8, device=device)
    del x
    before = torch.accelerator.memory_reserved(device)
    for _ in range(100):
        torch.empty(4 << 20, dtype=torch.uint8, device=device)
    assert torch.accelerator.memory_reserved(device) <= before + (8 << 20)


@statistics.check()
def the_counts_are_kept(device):
    """memory_stats counts allocations made and freed: allocation.all.allocated and .freed."""
    gc.collect()
    before = torch.accelerator.memory_stats(device)
    xs = [torch.empty(100, device=device) for _ in range(5)]
    del xs
    after = torch.accelerator.memory_stats(device)
    assert after["allocation.all.allocated"] >= before["allocation.all.allocated"] + 5
    assert after["allocation.all.freed"] >= before["allocation.all.freed"] + 5
    equal(after["allocation.all.current"], before["allocation.all.current"])


@statistics.check()
def accumulated_counts_can_be_reset(device):
    """reset_accumulated_memory_stats sets the counts of allocations and of frees back to zero."""
    torch.empty(100, device=device)
    torch.accelerator.reset_accumulated_memory_stats(device)
    stats = torch.accelerator.memory_stats(device)
    equal((stats["allocation.all.allocated"], stats["allocation.all.freed"]), (0, 0))


@statistics.check("two_devices")
def devices_are_counted_apart(device):
    """An allocation on device 1 is not counted for device 0."""
    type = torch.device(device).type
    gc.collect()
    before = [torch.accelerator.memory_allocated(i) for i in (0, 1)]
    x = torch.empty(5 << 20, dtype=torch.uint8, device=f"{type}:1")
    grown = [torch.accelerator.memory_allocated(i) - b for i, b in zip((0, 1), before, strict=True)]
    assert grown[0] == 0 and grown[1] >= x.nbytes, grown


@statistics.check()
def an_error_frees_its_temporaries(device):
    """After an operator raised, memory_allocated is the same as before the call."""
    x = torch.ones(300, 400, device=device)
    gc.collect()  # frees what other checks left behind
    torch.accelerator.synchronize(device)
    before = torch.accelerator.memory_allocated(device)
    for _ in range(5):
        try:
            x @ x
        except RuntimeError:
            pass
    gc.collect()
    equal(torch.accelerator.memory_allocated(device), before)


@statistics.check()
def a_training_step_leaks_nothing(device):
    """memory_allocated is the same after the fifth and after the fifteenth training step."""
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.ones(8, 20, device=device)
    found = []
    for _ in range(15):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        torch.accelerator.synchronize(device)
        found.append(torch.accelerator.memory_allocated(device))
    equal(found[-1], found[4])


limits = Topic(
    "memory/limits",
    why="Programs catch torch.OutOfMemoryError and try a smaller batch. Any other error ends the program, and so does "
    "a device that does not work any more.",
    defined="c10::OutOfMemoryError; torch.OutOfMemoryError",
    chapter="memory",
    needs=("memory_info",),
    issue="pytorch/pytorch#177714",
)


@limits.check()
def free_and_total_are_told(device):
    """get_memory_info gives 0 < free <= total. The free memory falls by at least the size of a large tensor."""
    falls = 0
    for _ in range(5):  # another process that uses the device may free its memory at the same time
        torch.accelerator.empty_cache()
        free, total = torch.accelerator.get_memory_info(device)
        assert 0 < free <= total
        x = torch.zeros(64 << 20, dtype=torch.uint8, device=device)
        falls += torch.accelerator.get_memory_info(device)[0] <= free - x.nbytes
        equal(torch.accelerator.get_memory_info(device)[1], total)
        del x
    assert falls >= 3, f"the free memory fell in {falls} of 5 tries"


@limits.check()
def out_of_memory_has_its_type(device):
    """A request for more memory than the device has raises torch.OutOfMemoryError, and the device works afterwards."""
    total = torch.accelerator.get_memory_info(device)[1]
    with raises(torch.OutOfMemoryError, "(?i)out of memory"):
        torch.empty(2 * total, dtype=torch.uint8, device=device)
    usable(device)


@limits.check("memory_fraction")
def a_fraction_limits(device):
    """set_per_process_memory_fraction limits the memory that can be allocated. The fraction 1.0 removes the limit."""
    module = device_module(device)
    total = torch.accelerator.get_memory_info(device)[1]
    torch.accelerator.empty_cache()
    module.set_per_process_memory_fraction(min(1.0, (256 << 20) / total))
    try:
        with raises(torch.OutOfMemoryError):
            torch.empty(512 << 20, dtype=torch.uint8, device=device)
    finally:
        module.set_per_process_memory_fraction(1.0)
    torch.empty(512 << 20, dtype=torch.uint8, device=device)


@limits.check("memory_fraction")
def cached_memory_is_given_up_first(device):
    """If an allocation fits only without the cached memory, the allocator frees its cache and gives the memory."""
    module = device_module(device)
    total = torch.accelerator.get_memory_info(device)[1]
    torch.accelerator.empty_cache()
    module.set_per_process_memory_fraction(min(1.0, (torch.accelerator.memory_reserved(device) + (256 << 20)) / total))
    try:
        x = [torch.empty(60 << 20, dtype=torch.uint8, device=device) for _ in range(3)]
        del x
        torch.empty(200 << 20, dtype=torch.uint8, device=device)
    finally:
        module.set_per_process_memory_fraction(1.0)


@limits.check(
    "statistics",
    why="PYTORCH_ALLOC_CONF configures every caching allocator. If an allocator ignores it, a user's setting has no "
    "effect.",
    defined="c10/core/AllocatorConfig.h: PYTORCH_ALLOC_CONF",
)
def the_shared_settings_are_read(device):
    """The allocator reads PYTORCH_ALLOC_CONF, and refuses an unknown setting with an error that names the setting."""
    code = f"import torch; torch.empty(1, device={device!r})"
    python(code)
    result = start_python(code, PYTORCH_ALLOC_CONF="nonsense:3")
    if result.returncode == 0:
        raise NotOffered("the device's allocator does not read PYTORCH_ALLOC_CONF")
    assert "nonsense" in result.stderr, result.stderr


@limits.check("memory_fraction")
def the_fraction_can_be_read(device):
    """get_per_process_memory_fraction returns the fraction that was set. A fraction above 1 is refused."""
    module = device_module(device)
    if not hasattr(module, "get_per_process_memory_fraction"):
        raise NotOffered("no get_per_process_memory_fraction")
    module.set_per_process_memory_fraction(0.5)
    try:
        equal(module.get_per_process_memory_fraction(), 0.5)
        with raises((ValueError, RuntimeError)):
            module.set_per_process_memory_fraction(1.5)
    finally:
        module.set_per_process_memory_fraction(1.0)


reuse = Topic(
    "memory/streams",
    why="If memory that a second stream still reads is handed out again, that stream reads wrong data. This race is a "
    "frequent bug of caching allocators.",
    defined="c10::DeviceAllocator::recordStream; Tensor.record_stream; c10/core/impl/DeviceGuardImplInterface.h",
    chapter="memory",
    needs=("streams", "events", "storage"),
    issue="meta-pytorch/torchrec#4231",
)


@reuse.check()
def record_stream_delays_reuse(device):
    """Memory that record_stream marked for a busy stream is not reused before that stream is done."""
    side = torch.Stream(device=device)
    x = torch.full((1 << 20,), 1.0, device=device)
    address = x.data_ptr()
    torch.accelerator.synchronize(device)
    with side:
        busy(device, 0.3)
        y = x + 0
    x.record_stream(side)
    del x
    done = side.query()
    z = torch.full((1 << 20,), 2.0, device=device)
    assert done or side.query() or z.data_ptr() != address, (
        "the memory was handed out again while a stream still used it"
    )
    torch.accelerator.synchronize(device)
    equal((y.min().item(), y.max().item()), (1.0, 1.0))


@reuse.check()
def marked_memory_comes_back(device):
    """Memory that record_stream marked is reused after the stream is done."""
    side = torch.Stream(device=device)
    x = torch.empty(7 << 20, dtype=torch.uint8, device=device)
    x.record_stream(side)
    del x
    torch.accelerator.synchronize(device)
    torch.empty(7 << 20, dtype=torch.uint8, device=device)
    before = torch.accelerator.memory_reserved(device)
    torch.empty(7 << 20, dtype=torch.uint8, device=device)
    assert torch.accelerator.memory_reserved(device) <= before


@reuse.check()
def the_same_stream_reuses_at_once(device):
    """All results are right, also if the allocator gives freed memory to the next tensor of the stream at once."""
    found = []
    for n in range(20):
        x = torch.full((1 << 18,), float(n), device=device)
        y = x + 1
        del x
        found.append(y.sum() / (1 << 18))
    equal([float(f) for f in found], [n + 1.0 for n in range(20)])


pools = Topic(
    "memory/pools",
    why="Inference servers separate memory by pools. Memory that a destroyed pool does not give back is lost to the "
    "process.",
    defined="torch/cuda/memory.py: MemPool, use_mem_pool; c10/core/CachingDeviceAllocator.h",
    chapter="memory",
    needs=("pools", "snapshot"),
    issue="pytorch/pytorch#152861",
)


@pools.check()
def a_pool_keeps_its_memory_apart(device):
    """Memory that is allocated within use_mem_pool is in a segment of that pool. Other memory is not."""
    module = device_module(device)
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        x = torch.empty(4 << 20, dtype=torch.uint8, device=device)
    y = torch.empty(4 << 20, dtype=torch.uint8, device=device)
    owners = {}
    for segment in module.memory_snapshot():
        for t, name in ((x, "inside"), (y, "outside")):
            if segment["address"] <= t.data_ptr() < segment["address"] + segment["total_size"]:
                owners[name] = tuple(segment["segment_pool_id"])
    equal(owners["inside"], tuple(pool.id))
    assert owners["outside"] != tuple(pool.id)


@pools.check()
def a_pool_gives_its_memory_back(device):
    """After a pool and its tensors were destroyed, empty_cache gives the memory of the pool back."""
    module = device_module(device)
    torch.accelerator.empty_cache()
    before = torch.accelerator.memory_reserved(device)
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        x = torch.empty(40 << 20, dtype=torch.uint8, device=device)
    assert torch.accelerator.memory_reserved(device) >= before + (40 << 20)
    del x, pool
    torch.accelerator.synchronize(device)
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved(device) <= before


@pools.check()
def a_pool_counts_its_uses(device):
    """MemPool.use_count() is higher by one within use_mem_pool, and falls again afterwards."""
    module = device_module(device)
    pool = module.MemPool()
    first = pool.use_count()
    with module.use_mem_pool(pool):
        equal(pool.use_count(), first + 1)
    equal(pool.use_count(), first)


@pools.check()
def freed_memory_of_a_pool_stays_there(device):
    """Memory that was freed in a pool is not used for a tensor outside of the pool."""
    module = device_module(device)
    pool = module.MemPool()
    with module.use_mem_pool(pool):
        x = torch.empty(6 << 20, dtype=torch.uint8, device=device)
        address = x.data_ptr()
        del x
    y = torch.empty(6 << 20, dtype=torch.uint8, device=device)
    assert y.data_ptr() != address


@pools.check("memory_fraction", "memory_info")
def a_pool_helps_out_if_it_may(device):
    """If memory runs out, an allocation outside of a MemPool(use_on_oom=True) may use the free memory of that pool."""
    module = device_module(device)
    torch.accelerator.empty_cache()
    pool = module.MemPool(use_on_oom=True)
    with module.use_mem_pool(pool):
        x = torch.empty(200 << 20, dtype=torch.uint8, device=device)
    del x
    total = torch.accelerator.get_memory_info(device)[1]
    module.set_per_process_memory_fraction((torch.accelerator.memory_reserved(device) + (32 << 20)) / total)
    try:
        torch.empty(150 << 20, dtype=torch.uint8, device=device)
    finally:
        module.set_per_process_memory_fraction(1.0)


@pools.check(defined="PYTORCH_ALLOC_CONF; torch/cuda/memory.py: MemPool(use_on_oom, no_split)")
def a_pool_takes_its_options(device):
    """MemPool(use_on_oom=True) and MemPool(no_split=True) can be made and used."""
    module = device_module(device)
    for options in ({"use_on_oom": True}, {"no_split": True}):
        with module.use_mem_pool(module.MemPool(**options)):
            x = torch.ones(1 << 18, device=device)
        equal(x.sum().item(), float(1 << 18))


snapshots = Topic(
    "memory/snapshots",
    why="With a snapshot, users find out which allocations fill the memory.",
    defined="torch/cuda/memory.py: memory_snapshot, _record_memory_history; torch/cuda/_memory_viz.py",
    chapter="memory",
    needs=("snapshot",),
)


@snapshots.check()
def a_snapshot_shows_live_blocks(device):
    """memory_snapshot has a block for a live tensor: at least as large as the tensor, and marked as active."""
    x = torch.empty(5 << 20, dtype=torch.uint8, device=device)
    module = device_module(device)
    found = [
        block
        for segment in module.memory_snapshot()
        for block in segment["blocks"]
        if block.get("address") == x.data_ptr()
    ]
    assert found and found[0]["size"] >= x.nbytes and found[0]["state"] == "active_allocated", found


@snapshots.check()
def blocks_add_up_to_segments(device):
    """In each segment of a snapshot, the sizes of the blocks add up to the total size of the segment."""
    x = [torch.empty(n << 16, dtype=torch.uint8, device=device) for n in (1, 5, 9, 80)]
    for segment in device_module(device).memory_snapshot():
        equal(sum(block["size"] for block in segment["blocks"]), segment["total_size"])
        assert segment["allocated_size"] <= segment["total_size"]
    del x


@snapshots.check("history")
def history_has_the_stack(device):
    """While the history is recorded, the frames of a block name the function that allocated the block."""
    memory = device_module(device).memory
    memory._record_memory_history(stacks="python")

    def allocate_here():
        return torch.empty(3 << 20, dtype=torch.uint8, device=device)

    try:
        x = allocate_here()
        snapshot = memory._snapshot()
    finally:
        memory._record_memory_history(enabled=None)
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b.get("address") == x.data_ptr()]
    assert any(frame["name"] == "allocate_here" for frame in blocks[0]["frames"]), blocks


@snapshots.check("history", why="CUDA graph trees and debuggers ask which line of the program allocated a tensor.")
def an_address_has_its_stack(device):
    """If the module has memory._allocation_traceback, that function names the function that allocated a live tensor."""
    memory = device_module(device).memory
    if not hasattr(memory, "_allocation_traceback"):
        raise NotOffered("the module's memory has no _allocation_traceback")
    memory._record_memory_history(stacks="python")

    def allocate_there():
        return torch.empty(3 << 20, dtype=torch.uint8, device=device)

    try:
        x = allocate_there()
        frames = memory._allocation_traceback(x.data_ptr())
    finally:
        memory._record_memory_history(enabled=None)
    assert any(frame["name"] == "allocate_there" for frame in frames or ()), frames


@snapshots.check(
    "memory_info", why="A snapshot taken by an observer at the moment of the failure shows what filled the memory."
)
def running_out_of_memory_is_observed(device):
    """When memory runs out, the call raises. An observer's second argument is at least the requested size in bytes."""
    import torch._C

    attach = getattr(getattr(device_module(device), "memory", None), "_attach_out_of_memory_observer", None)
    attach = attach or getattr(torch._C, f"_{torch.device(device).type}_attach_out_of_memory_observer", None)
    if attach is None:
        raise NotOffered("out of memory cannot be observed")
    seen, size = [], 2 * torch.accelerator.get_memory_info(device)[1]
    attach(lambda *told: seen.append(told))
    with raises(torch.OutOfMemoryError):
        torch.empty(size, dtype=torch.uint8, device=device)
    assert seen and seen[0][1] >= size, seen


@snapshots.check("history")
def history_lists_allocations_in_order(device):
    """For a tensor that was made and destroyed, the history has an alloc entry and then a free_completed entry."""
    memory = device_module(device).memory
    memory._record_memory_history()
    try:
        x = torch.empty(3 << 20, dtype=torch.uint8, device=device)
        address = x.data_ptr()
        del x
        traces = memory._snapshot()["device_traces"]
    finally:
        memory._record_memory_history(enabled=None)
    actions = [entry["action"] for trace in traces for entry in trace if entry["addr"] == address]
    equal([action for action in actions if action in ("alloc", "free_completed")], ["alloc", "free_completed"])


graphs = Topic(
    "memory/graphs",
    why="A graph writes to the same addresses at each replay. If their memory is given to another tensor, a replay "
    "overwrites it.",
    defined="ATen/accelerator/Graph.h; c10/core/CachingDeviceAllocator.h: beginAllocateToPool, releasePool",
    chapter="graphs",
    needs=("streams", "graphs"),
)


@graphs.check()
def memory_of_a_graph_is_its_own(device):
    """A replay overwrites no tensor that was made after the capture, though the graph's own tensors were destroyed."""
    x = torch.ones(1 << 16, device=device)
    graph, y = capture(device, lambda: ((x + 1) * 2).sum())
    others = [torch.full((1 << 16,), float(n), device=device) for n in range(8)]
    graph.replay()
    same(y, torch.tensor(4.0 * (1 << 16)))
    for n, each in enumerate(others):
        same(each, torch.full((1 << 16,), float(n)))


@graphs.check("pinned")
def pinned_memory_of_a_graph_is_its_own(device):
    """A replay copies from memory that the capture has pinned. The memory is not reused, though its tensor was destroyed."""
    x = torch.zeros(1 << 10, device=device)
    graph, _ = capture(device, lambda: x.copy_(torch.ones(1 << 10).pin_memory(), non_blocking=True))
    others = [torch.full((1 << 10,), float(n)).pin_memory() for n in range(2, 10)]
    graph.replay()
    same(x, torch.ones(1 << 10))
    del others


@graphs.check("statistics")
def a_replay_allocates_nothing(device):
    """A replay makes no allocation."""
    x = torch.ones(1 << 16, device=device)
    graph, _ = capture(device, lambda: ((x + 1) * 2).sum())
    before = torch.accelerator.memory_stats(device)["allocation.all.allocated"]
    graph.replay()
    torch.accelerator.synchronize(device)
    equal(torch.accelerator.memory_stats(device)["allocation.all.allocated"], before)


@graphs.check()
def graphs_share_a_pool(device):
    """A graph that is given the pool of another one has the same pool, and both replay in the order of their captures."""
    x = torch.ones(1 << 10, device=device)
    first, y = capture(device, lambda: x + 1)
    second, z = capture(device, lambda: y * 2, pool=first.pool())
    equal(first.pool(), second.pool())
    assert first.pool() != (0, 0), "(0, 0) stands for no pool"
    x.fill_(4)
    first.replay()
    second.replay()
    same(z, torch.full((1 << 10,), 10.0))


@graphs.check("statistics")
def a_graph_gives_its_memory_back(device):
    """When a graph and its tensors are destroyed, empty_cache() returns the memory of its pool."""
    x = torch.ones(1 << 22, device=device)
    torch.accelerator.empty_cache()
    before = torch.accelerator.memory_reserved(device)
    graph, y = capture(device, lambda: x + 1)
    assert torch.accelerator.memory_reserved(device) > before
    del graph, y
    torch.accelerator.synchronize(device)
    torch.accelerator.empty_cache()
    equal(torch.accelerator.memory_reserved(device), before)


pinned = Topic(
    "memory/pinned",
    why="If pinned memory is handed out again while a copy still reads it, the copy sends wrong data without an error.",
    defined="ATen/core/CachingHostAllocator.h; torch/accelerator: host memory statistics",
    chapter="memory",
    needs=("pinned",),
)


@pinned.check("events")
def pinned_memory_waits_for_its_copy(device):
    """If a pinned tensor is destroyed during a non_blocking copy, its memory is not reused before the copy is done."""
    busy(device, 0.2)
    x = torch.full((1 << 18,), 1.0).pin_memory()
    y = x.to(device, non_blocking=True)
    del x
    z = torch.empty(1 << 18, pin_memory=True).fill_(2.0)
    equal((y.min().item(), y.max().item(), z[0].item()), (1.0, 1.0, 2.0))


@pinned.check("host_cache")
def pinned_memory_is_cached(device):
    """If a pinned tensor is destroyed and a pinned tensor of the same size is made, the address is the same."""
    x = torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
    address = x.data_ptr()
    del x
    equal(torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True).data_ptr(), address)


@pinned.check("host_cache", "events")
def pinned_memory_comes_back_after_its_copy(device):
    """Pinned memory that a non_blocking copy used is reused after the copy."""
    x = torch.ones(5 << 20, dtype=torch.uint8).pin_memory()
    address = x.data_ptr()
    y = x.to(device, non_blocking=True)
    torch.accelerator.synchronize(device)
    del x
    found = [torch.empty(5 << 20, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    assert address in [z.data_ptr() for z in found], "the block is lost"
    equal(y.sum().item(), 5 << 20)


@pinned.check(
    "host_cache", defined="torch/accelerator/memory.py: empty_host_cache; CachingHostAllocatorImpl::free_block"
)
def emptying_the_host_cache_gives_back(device):
    """After empty_host_cache, the memory of a destroyed tensor is not pinned any more. Live tensors stay pinned."""
    import ctypes

    keep, x = torch.ones(9).pin_memory(), torch.empty(11 << 20, dtype=torch.uint8, pin_memory=True)
    address = x.data_ptr()
    # This tensor does not own the memory at the address, and is_pinned() does not read the memory.
    there = torch.frombuffer((ctypes.c_char * 16).from_address(address), dtype=torch.uint8)
    assert there.is_pinned()
    del x
    torch.accelerator.synchronize(device)
    torch.accelerator.empty_host_cache()
    assert not there.is_pinned(), "the block is still pinned"
    assert keep.is_pinned()
    same(keep, torch.ones(9))


@pinned.check("module")
def pinned_memory_is_counted(device):
    """host_memory_stats of the module counts pinned memory. The peaks and the accumulated counts can be reset."""
    module = device_module(device)
    if not hasattr(module, "host_memory_stats"):
        raise NotOffered("the module has no host_memory_stats")
    before = module.host_memory_stats()
    x = torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
    after = module.host_memory_stats()
    assert after["active_bytes.current"] >= before["active_bytes.current"] + x.nbytes, (before, after)
    del x
    module.reset_peak_host_memory_stats()
    equal(module.host_memory_stats()["active_bytes.peak"], module.host_memory_stats()["active_bytes.current"])
    module.reset_accumulated_host_memory_stats()
    equal(module.host_memory_stats()["allocations.allocated"], 0)
