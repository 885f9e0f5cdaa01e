"""Device memory, as ``torch.cuda.memory``. Sizes are in bytes; the default device is the current device.

``torch.accelerator.memory`` asks the backend's allocator for its counts; the functions here give them CUDA's names.
Before the device has started, all counts are 0. Names that CUDA documents with a leading underscore have the underscore
here too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torch_openreg import _C

from . import _lazy_init
from ._utils import DeviceLike, existing_device

__all__ = [
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "device_memory_used",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "list_gpu_processes",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]

# ---- Allocating and freeing


def empty_cache() -> None:
    """Returns cached memory, which no tensor uses, to the device. As ``torch.cuda.empty_cache``.

    Waits for all devices. ``torch.accelerator.empty_host_cache`` does the same for pinned memory.
    """
    torch.accelerator.empty_cache()


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """The free bytes and the total bytes of a device. Starts the device. As ``torch.cuda.mem_get_info``."""
    _lazy_init()
    return torch.accelerator.get_memory_info(existing_device(device))


def device_memory_used(device: DeviceLike | None = None) -> int:
    """The bytes of a device's memory that are in use or cached. Default: the current device.

    As ``torch.cuda.device_memory_used``.
    """
    free, total = mem_get_info(device)
    return total - free


def set_per_process_memory_fraction(fraction: float, device: DeviceLike | None = None) -> None:
    """Limits the memory that this process may reserve of a device to ``fraction`` (0 to 1) of the device's memory.

    A later allocation beyond the limit raises ``torch.OutOfMemoryError``. Raises TypeError unless ``fraction`` is a
    float, and ValueError unless it is from 0 to 1. As ``torch.cuda.set_per_process_memory_fraction``.
    """
    _lazy_init()
    index = existing_device(device)
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if fraction < 0 or fraction > 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _C._set_memory_fraction(fraction, index)


def get_per_process_memory_fraction(device: DeviceLike | None = None) -> float:
    """The limit that ``set_per_process_memory_fraction`` has set; 1.0 at the start.

    As ``torch.cuda.get_per_process_memory_fraction``.
    """
    _lazy_init()
    return _C._get_memory_fraction(existing_device(device))


def caching_allocator_alloc(size: int, device: DeviceLike | None = None, stream: torch.Stream | None = None) -> int:
    """Allocates ``size`` bytes for another library, on a device's ``stream`` (default: the device's current stream).

    Returns a device address. Kernels convert it with ``orGetKernelPointer``. Raises ``torch.OutOfMemoryError``. As
    ``torch.cuda.caching_allocator_alloc``.
    """
    with torch.accelerator.device_index(existing_device(device)), stream or contextlib.nullcontext():
        return _C._caching_allocator_alloc(size)


def caching_allocator_delete(mem_ptr: int) -> None:
    """Frees all bytes of the allocation at ``mem_ptr``, an address that ``caching_allocator_alloc`` returned.

    Raises RuntimeError for another address. As ``torch.cuda.caching_allocator_delete``.
    """
    _C._caching_allocator_delete(mem_ptr)


def get_allocator_backend() -> str:
    """Returns ``"native"``, because there is no other allocator. As ``torch.cuda.get_allocator_backend``."""
    return "native"


# ---- Counts


def memory_allocated(device: DeviceLike | None = None) -> int:
    """The bytes that tensors occupy now. As ``torch.cuda.memory_allocated``."""
    return torch.accelerator.memory_allocated(existing_device(device))


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The largest number of bytes that tensors occupied since the start or ``reset_peak_memory_stats``.

    As ``torch.cuda.max_memory_allocated``.
    """
    return torch.accelerator.max_memory_allocated(existing_device(device))


def memory_reserved(device: DeviceLike | None = None) -> int:
    """The bytes that the allocator holds now, in use or cached. As ``torch.cuda.memory_reserved``."""
    return torch.accelerator.memory_reserved(existing_device(device))


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The largest number of bytes that the allocator held since the start or ``reset_peak_memory_stats``.

    As ``torch.cuda.max_memory_reserved``.
    """
    return torch.accelerator.max_memory_reserved(existing_device(device))


def memory_stats(device: DeviceLike | None = None) -> OrderedDict[str, Any]:
    """The allocator's counters with CUDA's keys, sizes in bytes. Empty before the allocator's first use.

    As ``torch.cuda.memory_stats``.
    """
    return _flat(memory_stats_as_nested_dict(device))


def memory_stats_as_nested_dict(device: DeviceLike | None = None) -> dict[str, Any]:
    """The counters of ``memory_stats`` as nested dicts, sizes in bytes. Empty before the allocator's first use.

    As ``torch.cuda.memory_stats_as_nested_dict``.
    """
    index = existing_device(device)
    if not torch._C._accelerator_isAllocatorInitialized():
        return {}
    return torch._C._accelerator_getDeviceStats(index) | _C._more_memory_stats(index)


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Sets each peak to the current value. As ``torch.cuda.reset_peak_memory_stats``."""
    torch.accelerator.reset_peak_memory_stats(existing_device(device))


def reset_accumulated_memory_stats(device: DeviceLike | None = None) -> None:
    """Sets the historical totals (the keys ``allocated`` and ``freed``) to 0.

    As ``torch.cuda.reset_accumulated_memory_stats``.
    """
    torch.accelerator.reset_accumulated_memory_stats(existing_device(device))


def host_memory_stats() -> OrderedDict[str, Any]:
    """The counters of the allocator of pinned memory with CUDA's keys, sizes in bytes and times in microseconds.

    The allocator rounds sizes up to powers of two. As ``torch.cuda.host_memory_stats``.
    """
    return _flat(host_memory_stats_as_nested_dict())


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """The counters of ``host_memory_stats`` as nested dicts, sizes in bytes and times in microseconds.

    As ``torch.cuda.host_memory_stats_as_nested_dict``.
    """
    return _C._host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Sets the historical totals of pinned memory to 0. As ``torch.cuda.reset_accumulated_host_memory_stats``."""
    _C._reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Sets the peaks of pinned memory to the current values. As ``torch.cuda.reset_peak_host_memory_stats``."""
    _C._reset_peak_host_memory_stats()


def list_gpu_processes(device: DeviceLike | None = None) -> str:
    """Text that lists the processes on a device (default: the current device), with the megabytes of each.

    The device library does not know what other processes have on the device, so the list has only this process. As
    ``torch.cuda.list_gpu_processes``.
    """
    index = existing_device(device)
    used = memory_reserved(index)
    process = f"process {os.getpid():>10d} uses {used / 2**20:>12.3f} MB GPU memory"
    return f"GPU:{index}\n{process if used else 'no processes are running'}"


def _flat(stats: dict[str, Any]) -> OrderedDict[str, Any]:
    """Joins nested keys with dots. A pool's id (0, 1) becomes ``"0_1"``."""

    def walk(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                name = "_".join(map(str, key)) if isinstance(key, tuple) else key
                yield from walk(f"{prefix}.{name}" if prefix else name, inner)
        else:
            yield prefix, value

    return OrderedDict(sorted(walk("", stats)))


_SUMMARY_ROWS = (
    ("allocated_bytes", "Allocated memory"),
    ("active_bytes", "Active memory"),
    ("requested_bytes", "Requested memory"),
    ("reserved_bytes", "GPU reserved memory"),
    ("inactive_split_bytes", "Non-releasable memory"),
    ("allocation", "Allocations"),
    ("active", "Active allocs"),
    ("segment", "GPU reserved segments"),
    ("inactive_split", "Non-releasable allocs"),
)
_OVERSIZE_ROWS = (
    ("oversize_allocations", "Oversize allocations"),
    ("oversize_segments", "Oversize GPU segments"),
)
_POOL_ROWS = (("large_pool", "      from large pool"), ("small_pool", "      from small pool"))
_METRICS = ("current", "peak", "allocated", "freed")


def memory_summary(device: DeviceLike | None = None, abbreviated: bool = False) -> str:
    """The counters as a table to print. ``abbreviated`` (default False) leaves out the large and the small pool.

    As ``torch.cuda.memory_summary``.
    """
    index = existing_device(device)
    stats = memory_stats(index)

    def row(key: str, label: str, units_of: str) -> str:
        # The pools are shown in the unit of their sum.
        cells = (
            (_format_bytes if "bytes" in key else _format_count)(
                stats.get(f"{key}.{metric}", 0), stats.get(f"{units_of}.{metric}", 0)
            )
            for metric in _METRICS
        )
        return f" {label:<21} | " + " | ".join(cells) + " "

    line, double = "-" * 75, "=" * 75
    ooms, retries = stats.get("num_ooms", 0), stats.get("num_alloc_retries", 0)
    lines = [
        double,
        f"{'':18}PyTorch OpenReg memory summary, device ID {index}".ljust(75),
        line,
        f"{'':10}OpenReg OOMs: {ooms}".ljust(36) + "|" + f"{'':8}orMalloc retries: {retries}".ljust(38),
        double,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
    ]
    for key, label in _SUMMARY_ROWS:
        lines += [line, row(f"{key}.all", label, f"{key}.all")]
        if not abbreviated:
            lines += [row(f"{key}.{pool}", pool_label, f"{key}.all") for pool, pool_label in _POOL_ROWS]
    for key, label in _OVERSIZE_ROWS:
        lines += [line, row(key, label, key)]
    lines.append(double)
    return "".join(f"|{text}|\n" for text in lines)


def _format_bytes(value: int, reference: int) -> str:
    unit = "B  "
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if reference < 768 * 1024:
            break
        unit, value, reference = larger, value // 1024, reference // 1024
    return f"{value:6d} {unit}"


def _format_count(value: int, reference: int) -> str:
    unit = " "
    for larger in ("K", "M"):
        if reference < 750 * 1000:
            break
        unit, value, reference = larger, value // 1000, reference // 1000
    return f"{value:7d} {unit} "


# ---- Snapshots


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The segments that the allocator holds, and the blocks in them, in CUDA's format. Sizes are in bytes.

    Each block has the place where it was allocated, if ``_record_memory_history`` has recorded the place. As
    ``torch.cuda.memory_snapshot``.

    Args:
        mempool_id: the id of a ``MemPool``; only its segments are returned. Default: all segments of all devices.
        include_traces: accepted because CUDA's function has it; no effect, because the result has no history.
    """
    return _C._memory_snapshot(mempool_id, include_traces)["segments"]


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: DeviceLike | None = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    """Records where memory is allocated and freed, on all devices, for ``_snapshot``.

    As ``torch.cuda.memory._record_memory_history``. Raises RuntimeError for an unknown word.

    Args:
        enabled: None stops the recording. ``"state"`` records where memory in use was allocated. ``"all"`` also keeps a
            history of all allocations and frees.
        context: the events whose stack trace is kept. None: no event. ``"state"``: memory in use. ``"alloc"``: also
            allocations in the history. ``"all"``: also frees.
        stacks: ``"python"`` for Python frames only. ``"all"`` for C++ frames too, which makes ``_snapshot`` slow.
        max_entries: the length of the history of each device. Older entries are forgotten.
        clear_history: whether to start with an empty history.
        skip_actions: actions that are not recorded, such as ``["free_requested"]``.
        device: accepted because CUDA's function has it; no effect.
        compile_context: likewise.
        global_record_annotations: likewise.
        record_pinned_host_memory: likewise. CUDA's function has it and the next argument since PyTorch 2.14.
        record_cuda: False stops the recording.
    """
    enabled = enabled if record_cuda else None
    _C._record_memory_history(enabled, context, stacks, max_entries, clear_history, list(skip_actions or ()))


def _snapshot(device: DeviceLike | None = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """The state of the allocator on all devices: its segments and, with ``_record_memory_history``, its history.

    The format is that of ``torch.cuda.memory._snapshot``, so ``python -m torch.cuda._memory_viz`` and
    pytorch.org/memory_viz can draw it. Addresses are device addresses, ``stream`` is the ``stream_id`` of a
    ``torch.Stream``, and sizes are in bytes. ``augment_with_fx_traces`` (default False) adds the nodes of compiled
    graphs to stack traces. ``device`` is accepted and has no effect.
    """
    snapshot = _C._memory_snapshot(None, True)
    if augment_with_fx_traces:
        snapshot = torch._utils._augment_memory_snapshot_stack_traces(snapshot)  # type: ignore[arg-type, assignment]
    return snapshot


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Pickles ``_snapshot()`` to the file ``filename``; for ``augment_with_fx_traces`` see ``_snapshot``.

    As ``torch.cuda.memory._dump_snapshot``.
    """
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """The stack frames that allocated the storage at ``data_ptr``; None if they were not recorded.

    As ``torch.cuda.memory._allocation_traceback``.
    """
    return _C._allocation_traceback(data_ptr)


def _set_memory_metadata(metadata: str) -> None:
    """Adds the text ``metadata`` to all later entries of this thread in the history.

    As ``torch.cuda.memory._set_memory_metadata``.
    """
    _C._set_memory_metadata(metadata)


def _get_memory_metadata() -> str:
    """The text that ``_set_memory_metadata`` has set; ``""`` at the start.

    As ``torch.cuda.memory._get_memory_metadata``.
    """
    return _C._get_memory_metadata()


def _attach_out_of_memory_observer(observer: Callable[[int, int, int, int], None]) -> None:
    """Calls ``observer(device, size, total, free)`` before each ``torch.OutOfMemoryError``, until the process ends.

    ``observer`` gets the device's index, and three numbers of bytes: the size of the request, the device's total memory
    (or the limit that ``set_per_process_memory_fraction`` has set), and the device's free memory. ``observer`` can
    call ``_dump_snapshot``. As ``torch._C._cuda_attach_out_of_memory_observer``.
    """
    _C._attach_out_of_memory_observer(observer)


# ---- Memory pools


class MemPool(_C._MemPool):
    """Memory that is kept apart from all other memory; ``use_mem_pool`` allocates from it. As ``torch.cuda.MemPool``.

    A pool belongs to the device that was current when the pool was made. When the pool is destroyed, its free memory
    returns to the device. The rest returns when the pool's tensors are destroyed and the cache is emptied.

    Args:
        allocator: must be None, because the device has only one allocator. Raises NotImplementedError otherwise.
        use_on_oom: whether allocations outside the pool may use the pool's free memory before they fail.
        no_split: whether a segment of the pool holds one tensor only.
    """

    def __init__(self, allocator: None = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None:
            raise NotImplementedError("torch.openreg.MemPool takes no allocator: the device has only one.")
        super().__init__(use_on_oom, no_split)

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """The segments of this pool, with sizes in bytes; ``include_traces`` as in ``memory_snapshot``.

        As ``torch.cuda.MemPool.snapshot``.
        """
        return memory_snapshot(self.id, include_traces)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike | None = None) -> Iterator[None]:
    """Context manager in which this thread allocates from ``pool``. As ``torch.cuda.use_mem_pool``.

    Only allocations on ``device`` (default: the current device) come from the pool. Raises RuntimeError if another
    ``with`` statement uses the pool on this device already.
    """
    index = existing_device(device)
    _C._begin_allocate_current_thread_to_pool(index, pool.id)
    try:
        yield
    finally:
        _C._end_allocate_to_pool(index, pool.id)
        _C._release_pool(index, pool.id)
