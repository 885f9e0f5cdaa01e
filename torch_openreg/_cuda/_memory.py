"""Memory: the functions of torch/csrc/cuda/Module.cpp and MemPool.cpp about the allocator."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from torch_openreg._cuda import _bindings as _C
from torch_openreg._cuda._missing import refusal


def _check_device(device: int | None, function: str) -> int:
    """The index. Raises as torch/csrc/cuda/Module.cpp, and as assertValidDevice() in c10/cuda/CUDACachingAllocator.cpp.

    torch.cuda passes None if no device is visible.
    """
    if device is None:
        raise RuntimeError(f"invalid argument to {function}")
    if not 0 <= device < _C._get_device_count():
        raise RuntimeError(f"Invalid device argument {device}: did you call init?")
    return device


def _memory_stats(device: int) -> dict[str, Any]:
    _check_device(device, "memory_allocated")
    return torch._C._accelerator_getDeviceStats(device) | _C._more_memory_stats(device)


def _reset_peak_memory_stats(device: int | None) -> None:
    torch._C._accelerator_resetPeakStats(_check_device(device, "reset_peak_memory_stats"))


def _reset_accumulated_memory_stats(device: int | None) -> None:
    torch._C._accelerator_resetAccumulatedStats(_check_device(device, "reset_accumulated_memory_stats"))


def _memory_snapshot(which: tuple[int, int, bool] | None) -> dict[str, Any]:
    """A snapshot. ``which`` is the two numbers of a pool's id, and whether the snapshot has the history.

    The id (0, 0) stands for all memory. None means (0, 0, True). As THCPModule_memorySnapshot, the snapshot names a
    stream by its handle, which is torch.cuda.Stream.cuda_stream. torch_openreg.openreg.memory names it by its id.
    """
    pool, with_traces = (which[:2], which[2]) if which else ((0, 0), True)
    snapshot = _C._memory_snapshot(pool, with_traces)
    handle = functools.cache(_handle_of_stream)
    for segment in snapshot["segments"]:
        segment["stream"] = handle(segment["stream"], segment["device"])
    for device, trace in enumerate(snapshot["device_traces"]):
        for entry in trace:
            entry["stream"] = handle(entry["stream"], device)
    settings = snapshot["allocator_settings"]
    given = settings["PYTORCH_CUDA_ALLOC_CONF"] = settings["PYTORCH_ALLOC_CONF"]
    # A name of ROCm, such as release_lock_on_hipmalloc, is another name of the same setting.
    values = dict(re.findall(r"(\w+):(True|False|\d+)", "".join(given.split()).replace("hip", "cuda")))
    for name, default in _SETTINGS_WITHOUT_EFFECT.items():
        value = values.get(name, str(default))
        settings[name] = value == "True" if isinstance(default, bool) else int(value)
    return snapshot


def _handle_of_stream(stream_id: int, device: int) -> int:
    cuda = 1  # the number of the device type
    return _C._stream_pointer(torch.Stream(stream_id=stream_id, device_index=device, device_type=cuda))


# Settings of CUDA's allocator that a snapshot lists, with their defaults. They have no effect on this device.
_SETTINGS_WITHOUT_EFFECT: dict[str, bool | int] = {
    "pinned_num_register_threads": 1,
    "release_lock_on_cudamalloc": False,
    "pinned_use_cuda_host_register": False,
    "graph_capture_record_stream_reuse": False,
}


def _record_memory_history(
    enabled: str | None,
    context: str | None,
    stacks: str,
    max_entries: int,
    clear_history: bool,
    compile_context: bool,
    global_record_annotations: bool,
    skip_actions: list[str],
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    """The last two arguments exist since PyTorch 2.14. ``record_pinned_host_memory``, ``compile_context`` (for
    torch.compile) and ``global_record_annotations`` (for the profiler) have no effect.
    """
    enabled = enabled if record_cuda else None
    _C._record_memory_history(enabled, context, stacks, max_entries, clear_history, skip_actions)


def _record_memory_history_legacy(
    enabled: bool,
    record_context: bool,
    max_entries: int,
    record_all_contexts: bool,
    with_cpp: bool,
    clear_history: bool,
    compile_context: bool,
    global_record_annotations: bool,
    skip_actions: list[str],
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    _C._record_memory_history(
        "all" if enabled and record_cuda else None,
        "all" if record_all_contexts else "state" if record_context else None,
        "all" if with_cpp else "python",
        max_entries,
        clear_history,
        skip_actions,
    )


class _MemPool(_C._MemPool):
    allocator = None

    def __init__(
        self, allocator: object = None, is_user_created: bool = True, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        if allocator is not None:
            _other_allocator()
        torch.cuda.init()
        super().__init__(use_on_oom, no_split)


class _CUDAAllocator:
    """The allocator, in the form that torch.cuda.memory._get_current_allocator() returns."""


_other_allocator = refusal(
    "torch.cuda.CUDAPluggableAllocator is not available: the simulated device has one allocator, its own."
)
_uncached = refusal(
    "torch.cuda.caching_allocator_enable(False) is not available: "
    "the simulated device has no allocator without a cache."
)


def _enable_cache(value: bool) -> None:
    if not value:
        _uncached()


SUPPLIED: dict[str, Any] = {
    "_cuda_emptyCache": torch._C._accelerator_emptyCache,
    "_cuda_cudaHostAllocator": _C._host_allocator_address,
    "_host_emptyCache": torch._C._accelerator_emptyHostCache,
    "_cuda_memoryStats": _memory_stats,
    "_cuda_resetPeakMemoryStats": _reset_peak_memory_stats,
    "_cuda_resetAccumulatedMemoryStats": _reset_accumulated_memory_stats,
    "_cuda_setMemoryFraction": _C._set_memory_fraction,
    "_cuda_getMemoryFraction": _C._get_memory_fraction,
    "_cuda_hostMemoryStats": _C._host_memory_stats,
    "_cuda_resetAccumulatedHostMemoryStats": _C._reset_accumulated_host_memory_stats,
    "_cuda_resetPeakHostMemoryStats": _C._reset_peak_host_memory_stats,
    "_cuda_memorySnapshot": _memory_snapshot,
    "_cuda_record_memory_history": _record_memory_history,
    "_cuda_record_memory_history_legacy": _record_memory_history_legacy,
    "_cuda_isHistoryEnabled": _C._is_memory_history_enabled,
    "_cuda_allocationTraceback": _C._allocation_traceback,
    "_cuda_setMemoryMetadata": _C._set_memory_metadata,
    "_cuda_getMemoryMetadata": _C._get_memory_metadata,
    "_cuda_attach_out_of_memory_observer": _C._attach_out_of_memory_observer,
    "_cuda_cudaCachingAllocator_raw_alloc": _C._allocate_on_stream,
    "_cuda_cudaCachingAllocator_raw_delete": _C._caching_allocator_delete,
    "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
    "_cuda_cudaCachingAllocator_enable": _enable_cache,
    "_MemPool": _MemPool,
    "_cuda_beginAllocateToPool": _C._begin_allocate_to_pool,
    "_cuda_beginAllocateCurrentThreadToPool": _C._begin_allocate_current_thread_to_pool,
    "_cuda_beginAllocateCurrentStreamToPool": _C._begin_allocate_current_stream_to_pool,
    "_cuda_endAllocateToPool": _C._end_allocate_to_pool,
    "_cuda_releasePool": _C._release_pool,
    "_cuda_getAllocatorBackend": lambda: "native",
    "_cuda_CUDAAllocator": _CUDAAllocator,
    "_cuda_getAllocator": _CUDAAllocator,
    "_cuda_customAllocator": _other_allocator,
    "_cuda_changeCurrentAllocator": _other_allocator,
}
