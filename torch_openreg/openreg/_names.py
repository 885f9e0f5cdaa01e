"""The submodule of each public name of ``torch.openreg`` that ``__init__.py`` does not define.

With SUBMODULES, ``torch.openreg`` loads a submodule at the first use of one of its names. To load all submodules at
once would make `import torch` slower. Type checkers cannot follow such loading: they read _names.pyi, which imports all
names. tests/package/test_typing.py compares SUBMODULES with these imports and with the ``__all__`` of each submodule.
A sub-package adds its own names, in the files _public_names.py and _public_names.pyi.
"""

from __future__ import annotations

from torch_openreg._environment import modules_of_parts

SUBMODULES = {
    "_reductions": ("ipc_collect",),
    "_tensor_types": (
        "BFloat16Storage",
        "BFloat16Tensor",
        "BoolStorage",
        "BoolTensor",
        "ByteStorage",
        "ByteTensor",
        "CharStorage",
        "CharTensor",
        "ComplexDoubleStorage",
        "ComplexFloatStorage",
        "DoubleStorage",
        "DoubleTensor",
        "FloatStorage",
        "FloatTensor",
        "HalfStorage",
        "HalfTensor",
        "IntStorage",
        "IntTensor",
        "LongStorage",
        "LongTensor",
        "ShortStorage",
        "ShortTensor",
    ),
    "amp": ("get_amp_supported_dtype",),
    "execution": (
        "execution_mode",
        "get_execution_mode",
        "get_sync_debug_mode",
        "record_launch_sites",
        "set_sync_debug_mode",
    ),
    "fallback": (),
    "memory": (
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
    ),
    "nvtx": (),
    "profiler": (),
    "random": (
        "get_rng_state",
        "get_rng_state_all",
        "initial_seed",
        "manual_seed",
        "manual_seed_all",
        "seed",
        "seed_all",
        "set_rng_state",
        "set_rng_state_all",
    ),
    "streams": (
        "Event",
        "Stream",
        "StreamContext",
        "current_stream",
        "default_stream",
        "set_stream",
        "stream",
    ),
}

for _module in modules_of_parts("_public_names"):
    SUBMODULES |= _module.SUBMODULES

HOMES = {name: submodule for submodule, names in SUBMODULES.items() for name in names}
