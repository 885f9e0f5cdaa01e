"""What each public name of torch.cuda, torch.backends.cuda and torch.backends.cudnn does on the type "cuda".

A name has a row in WORKS, with an expression that is true if the name has CUDA's meaning, or in REFUSES, with a call
and the error that the call raises. A submodule's name that is the same object as torch.cuda's needs no row of its own.

    python tests/cuda/cuda_rows.py        # all rows, with this type, as JSON
"""

from __future__ import annotations

import ctypes
import importlib
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.backends.cuda
from cuda_surface import find, modules, public_names

cuda = torch.cuda
backends = torch.backends
NAME = "OpenReg simulated accelerator"


def is_module(name: str) -> bool:
    return isinstance(importlib.import_module(name), ModuleType)


def x(device: int = 0, size: int = 4) -> torch.Tensor:
    return torch.arange(float(size), device=f"cuda:{device}")


def storage(name: str, dtype: torch.dtype) -> bool:
    made = getattr(cuda, name)(3)
    return made.dtype is dtype and made.device.type == "cuda" and len(made) == 3


def tensor(kind: Callable[..., torch.Tensor], dtype: torch.dtype) -> bool:
    made = kind([1, 2])
    return made.is_cuda and made.dtype is dtype and made.tolist() == [1, 2]


def sparse_tensor(kind: Callable[..., torch.Tensor], dtype: torch.dtype) -> bool:
    made = kind(2, 3)
    return made.is_cuda and made.is_sparse and made.dtype is dtype and made.shape == (2, 3)


def captured(context: Callable[[torch.cuda.CUDAGraph], Any]) -> float:
    """1, to which each of two replays has added 1.5."""
    total, graph = torch.ones(1, device="cuda"), cuda.CUDAGraph()
    with context(graph):
        total.add_(1.5)
    graph.replay()
    graph.replay()
    return total.item()


@contextmanager
def marked(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    with cuda.graph(graph), cuda.graph_annotations.mark_kernels("name"):
        yield


def is_called(when: str) -> bool:
    """Whether a hook for all graphs is called."""
    calls: list[object] = []
    handle = getattr(cuda.graphs, f"register_graph_{when}_hook")(lambda *given, **named: calls.append(given))
    captured(cuda.graph)
    handle.remove()
    return len(calls) >= 1


def measured() -> bool:
    begin = time.perf_counter()
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    cuda._sleep(14_100_000)  # 10 ms at 1.41 GHz
    end.record()
    end.synchronize()
    return 9 < start.elapsed_time(end) <= (time.perf_counter() - begin) * 1000


def external() -> cuda.Stream:
    handle = ctypes.c_void_p()
    cuda.check_error(cuda.cudart().cudaStreamCreate(ctypes.addressof(handle)))
    return cuda.ExternalStream(handle.value)


def in_pool() -> bool:
    pool = cuda.MemPool()
    with cuda.use_mem_pool(pool):
        kept = x()
    (segment,) = pool.snapshot()
    return segment["segment_pool_id"] == pool.id and segment["address"] == kept.data_ptr()


def raised(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def warned(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return [f"{w.category.__name__}: {w.message}" for w in seen]


@contextmanager
def kept(module: Any, name: str) -> Iterator[Any]:
    """Gives the value of a setting, and restores the setting at the end of the block."""
    value = getattr(module, name)
    yield value
    setattr(module, name, value)


def switch(enable: Callable[[bool], object], enabled: Callable[[], bool]) -> bool:
    before = enabled()
    enable(not before)
    changed = enabled() is not before
    enable(before)
    return changed and enabled() is before


def dumped() -> Any:
    import pickle

    with tempfile.NamedTemporaryFile() as file:
        cuda.memory._dump_snapshot(file.name)
        return pickle.load(file)


def attention() -> Any:
    q = torch.ones(1, 1, 2, 8, device="cuda")
    return backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False)


DTYPES = {
    "BFloat16": torch.bfloat16,
    "Bool": torch.bool,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "ComplexDouble": torch.cdouble,
    "ComplexFloat": torch.cfloat,
    "Double": torch.double,
    "Float": torch.float,
    "Half": torch.half,
    "Int": torch.int,
    "Long": torch.long,
    "Short": torch.short,
}

# The rows follow torch/cuda/*.py and torch/csrc/cuda/*.cpp of PyTorch 2.13, unless a comment says otherwise.
WORKS: dict[str, str] = {
    # ---- devices
    "is_available": "cuda.is_available() is True",
    "is_initialized": "(cuda.init(), cuda.is_initialized())[1] is True",
    "init": "cuda.init() is None",
    "device_count": "cuda.device_count() == 2",
    "current_device": "cuda.current_device() == 0",
    "set_device": "(cuda.set_device(1), cuda.current_device(), cuda.set_device(0))[1] == 1",
    "device": "[(cuda.current_device(), d) for d in [cuda.device(1)] for _ in [d.__enter__()] if cuda.current_device() "
    "== 1 and not d.__exit__(None, None, None)][0][0] == 0",
    "device_of": "cuda.device_of(x(1)).idx == 1 and cuda.device_of(torch.ones(1)).idx == -1",
    "synchronize": "cuda.synchronize() is None and cuda.synchronize('cuda:1') is None",
    "get_device_name": "cuda.get_device_name() == cuda.get_device_name('cuda:1') == NAME",
    "get_device_capability": "cuda.get_device_capability(1) == (8, 0)",
    "get_device_properties": "cuda.get_device_properties(0).multi_processor_count == 108",
    "get_arch_list": "cuda.get_arch_list() == ['sm_80']",
    "get_gencode_flags": "cuda.get_gencode_flags() == '-gencode compute=compute_80,code=sm_80'",
    "can_device_access_peer": "cuda.can_device_access_peer(0, 1) is True",
    "is_bf16_supported": "cuda.is_bf16_supported() and cuda.is_bf16_supported(including_emulation=False)",
    "is_tf32_supported": "cuda.is_tf32_supported() is True",
    "set_sync_debug_mode": "warned(lambda: (cuda.set_sync_debug_mode('warn'), x()[0].item(), "
    "cuda.set_sync_debug_mode(0)))[1].startswith('UserWarning: called a synchronizing CUDA operation')",
    "get_sync_debug_mode": "cuda.get_sync_debug_mode() == 0",
    "cudart": "cuda.cudart().cudaMemGetInfo(0) == cuda.mem_get_info(0) and cuda.cudart().cudaError.success == 0",
    "check_error": "cuda.check_error(0) is None and "
    "raised(lambda: cuda.check_error(2)) == 'CudaError: out of memory (2)'",
    "CudaError": "str(cuda.CudaError(801)) == 'operation not supported (801)'",
    "cudaStatus": "(cuda.cudaStatus.SUCCESS, cuda.cudaStatus.ERROR_NOT_READY) == (0, 34)",
    "DeferredCudaCallError": "issubclass(cuda.DeferredCudaCallError, Exception)",
    "has_half": "cuda.has_half is True",
    "has_magma": "cuda.has_magma is torch._C._has_magma",
    "ipc_collect": "cuda.ipc_collect() is None",
    "list_gpu_processes": "(lambda kept: 'MB GPU memory' in cuda.list_gpu_processes())(x())",
    "memory_usage": "0 <= cuda.memory_usage() <= 100",
    "utilization": "0 <= cuda.utilization() <= 100",
    "device_memory_used": "(lambda kept: cuda.device_memory_used() > 0)(x())",
    # ---- streams and events
    "Stream": "isinstance(cuda.Stream(), torch.Stream) and cuda.Stream().cuda_stream > 0",
    "Event": "measured()",
    "ExternalStream": "external().query() and isinstance(external(), cuda.Stream)",
    "get_stream_from_external": "(lambda s: cuda.get_stream_from_external(s.cuda_stream) == s)(cuda.Stream())",
    "StreamContext": "isinstance(cuda.stream(None), cuda.StreamContext)",
    "current_stream": "cuda.current_stream() == cuda.default_stream() and cuda.current_stream(1).device.index == 1",
    "default_stream": "cuda.default_stream().cuda_stream == 0 and cuda.default_stream() == cuda.current_stream()",
    "stream": "(lambda s: (cuda.stream(s).__enter__(), cuda.current_stream() == s, "
    "cuda.set_stream(cuda.default_stream()))[1])(cuda.Stream())",
    "set_stream": "(lambda s: (cuda.set_stream(s), cuda.current_stream() == s, "
    "cuda.set_stream(cuda.default_stream()))[1])(cuda.Stream())",
    # ---- memory
    "empty_cache": "cuda.empty_cache() is None",
    "mem_get_info": "0 < cuda.mem_get_info()[0] <= cuda.mem_get_info()[1] == "
    "cuda.get_device_properties(0).total_memory",
    "memory_allocated": "(lambda before, t: cuda.memory_allocated() - before == 512)(cuda.memory_allocated(), x())",
    "memory_reserved": "x().is_cuda and cuda.memory_reserved() >= 2 << 20",
    "max_memory_allocated": "cuda.max_memory_allocated() >= cuda.memory_allocated()",
    "max_memory_reserved": "cuda.max_memory_reserved() >= cuda.memory_reserved()",
    "memory_cached": "cuda.memory_cached() == cuda.memory_reserved()",
    "max_memory_cached": "cuda.max_memory_cached() == cuda.max_memory_reserved()",
    "memory_stats": "cuda.memory_stats()['allocation.all.current'] >= 0 and cuda.memory_stats()['num_ooms'] == 0",
    "memory_stats_as_nested_dict": "set(cuda.memory_stats_as_nested_dict()['reserved_bytes']) == "
    "{'all', 'small_pool', 'large_pool'}",
    "memory_snapshot": "cuda.memory_snapshot()[0]['segment_type'] in ('small', 'large')",
    "memory_summary": "'PyTorch CUDA memory summary, device ID 1' in cuda.memory_summary(1)",
    "reset_accumulated_memory_stats": "cuda.reset_accumulated_memory_stats() is None and "
    "cuda.memory_stats()['allocation.all.freed'] == 0",
    "reset_peak_memory_stats": "cuda.reset_peak_memory_stats() is None and "
    "cuda.max_memory_allocated() == cuda.memory_allocated()",
    "reset_max_memory_allocated": "cuda.reset_max_memory_allocated() is None",
    "reset_max_memory_cached": "cuda.reset_max_memory_cached() is None",
    "host_memory_stats": "torch.ones(3).pin_memory().is_pinned() and cuda.host_memory_stats()['num_host_alloc'] >= 1",
    "host_memory_stats_as_nested_dict": "cuda.host_memory_stats_as_nested_dict()['allocations']['current'] >= 0",
    "reset_accumulated_host_memory_stats": "cuda.reset_accumulated_host_memory_stats() is None",
    "reset_peak_host_memory_stats": "cuda.reset_peak_host_memory_stats() is None",
    "caching_allocator_alloc": "(lambda p: (p > 0, cuda.caching_allocator_delete(p))[0])"
    "(cuda.caching_allocator_alloc(100, 1, cuda.Stream(1)))",
    "caching_allocator_delete": "cuda.caching_allocator_delete(cuda.caching_allocator_alloc(100)) is None",
    "caching_allocator_enable": "cuda.caching_allocator_enable() is None",
    "get_allocator_backend": "cuda.get_allocator_backend() == 'native'",
    "get_per_process_memory_fraction": "cuda.get_per_process_memory_fraction() == 1.0",
    "set_per_process_memory_fraction": "(cuda.set_per_process_memory_fraction(0.5, 1), "
    "cuda.get_per_process_memory_fraction(1), cuda.set_per_process_memory_fraction(1.0, 1))[1] == 0.5",
    "MemPool": "in_pool()",
    "use_mem_pool": "in_pool()",
    "memory._snapshot": "set(cuda.memory._snapshot()) >= {'segments', 'device_traces', 'allocator_settings'}",
    "memory._dump_snapshot": "set(dumped()) == set(cuda.memory._snapshot())",
    "memory._record_memory_history": "(cuda.memory._record_memory_history(), x(), 'alloc' in {entry['action'] "
    "for entry in cuda.memory._snapshot()['device_traces'][0]}, cuda.memory._record_memory_history(None))[2]",
    # ---- random numbers
    "default_generators": "[g.device for g in cuda.default_generators] == [torch.device('cuda', i) for i in (0, 1)]",
    "manual_seed": "cuda.manual_seed(5) is None and cuda.initial_seed() == 5",
    "manual_seed_all": "cuda.manual_seed_all(6) is None and "
    "[g.initial_seed() for g in cuda.default_generators] == [6, 6]",
    "seed": "cuda.seed() is None",
    "seed_all": "cuda.seed_all() is None and len({g.initial_seed() for g in cuda.default_generators}) == 1",
    "initial_seed": "cuda.initial_seed() == cuda.default_generators[0].initial_seed()",
    "get_rng_state": "cuda.get_rng_state().dtype is torch.uint8 and not cuda.get_rng_state('cuda:1').is_cuda",
    "set_rng_state": "(lambda s: (cuda.set_rng_state(s), torch.rand(3, device='cuda').tolist()) == "
    "(cuda.set_rng_state(s), torch.rand(3, device='cuda').tolist()))(cuda.get_rng_state())",
    "get_rng_state_all": "len(cuda.get_rng_state_all()) == 2",
    "set_rng_state_all": "cuda.set_rng_state_all(cuda.get_rng_state_all()) is None",
    # ---- graphs
    "CUDAGraph": "captured(lambda graph: cuda.graph(graph)) == 4",
    "graph": "captured(lambda graph: cuda.graph(graph, pool=cuda.graph_pool_handle())) == 4",
    "make_graphed_callables": "cuda.make_graphed_callables(lambda a: a * 2, (x(),))(x()).tolist() == [0, 2, 4, 6]",
    "is_current_stream_capturing": "cuda.is_current_stream_capturing() is False",
    "graph_pool_handle": "(lambda a, b: len(a) == 2 and a != b)(cuda.graph_pool_handle(), cuda.graph_pool_handle())",
    # ---- mixed precision
    "amp.autocast": "[a.dtype for _ in [0] for a in [torch.ones(2, 2, device='cuda')]] == [torch.float] and "
    "cuda.amp.autocast().device == 'cuda' and cuda.amp.autocast().fast_dtype is torch.float16",
    "amp.GradScaler": "cuda.amp.GradScaler().scale(x()).tolist() == [0.0, 65536.0, 131072.0, 196608.0]",
    "amp.custom_fwd": "callable(cuda.amp.custom_fwd(lambda ctx: ctx))",
    "amp.custom_bwd": "callable(cuda.amp.custom_bwd(lambda ctx: ctx))",
    "amp.amp_definitely_not_available": "cuda.amp.common.amp_definitely_not_available() is False",
    # ---- several devices from one process
    "comm.broadcast": "[t.device.index for t in cuda.comm.broadcast(x(), (0, 1))] == [0, 1]",
    "comm.broadcast_coalesced": "cuda.comm.broadcast_coalesced([x(), x()], (0, 1))[1][1].get_device() == 1",
    "comm.reduce_add": "cuda.comm.reduce_add([x(0), x(1)], 0).tolist() == [0, 2, 4, 6]",
    "comm.reduce_add_coalesced": "cuda.comm.reduce_add_coalesced([[x(0)], [x(1)]], 1)[0].tolist() == [0, 2, 4, 6]",
    "comm.scatter": "[t.tolist() for t in cuda.comm.scatter(x(), (0, 1))] == [[0, 1], [2, 3]]",
    "comm.gather": "cuda.comm.gather([x(0, 2), x(1, 2)], destination=1).tolist() == [0, 1, 0, 1]",
    # ---- profilers: what a trace shows of them is in test_cuda.py
    "nvtx.mark": "cuda.nvtx.mark('m') is None",
    "nvtx.range_push": "cuda.nvtx.range_push('r') + 1 == cuda.nvtx.range_push('s')",
    "nvtx.range_pop": "cuda.nvtx.range_push('r') == cuda.nvtx.range_pop()",
    "nvtx.range_start": "cuda.nvtx.range_start('r') < cuda.nvtx.range_start('r')",
    "nvtx.range_end": "cuda.nvtx.range_end(0) is None",
    "nvtx.range": "cuda.nvtx.range('{}', 1)(lambda: 7)() == 7",
    "profiler.start": "cuda.profiler.start() is None",
    "profiler.stop": "cuda.profiler.stop() is None",
    "profiler.profile": "cuda.profiler.profile().__enter__() is None",
    # ---- TunableOp is off by default; a call that leaves it off is accepted
    "tunable.is_enabled": "cuda.tunable.is_enabled() is False and cuda.tunable.enable(False) is None",
    "tunable.tuning_is_enabled": "cuda.tunable.tuning_is_enabled() is False",
    "tunable.record_untuned_is_enabled": "cuda.tunable.record_untuned_is_enabled() is False",
    # ---- torch.backends.cuda
    "backends.cuda.is_built": "backends.cuda.is_built() is True",
    "backends.cuda.matmul": "backends.cuda.matmul.allow_tf32 is False and "
    "backends.cuda.matmul.fp32_precision == 'none'",
    "backends.cuda.cuBLASModule": "isinstance(backends.cuda.matmul, backends.cuda.cuBLASModule)",
    "backends.cuda.cufft_plan_cache": "(lambda c: (setattr(c[1], 'max_size', 3), c[0].max_size, c[1].max_size, c.size, "
    "c.clear()))(backends.cuda.cufft_plan_cache) == (None, 4096, 3, 0, None)",
    "backends.cuda.cuFFTPlanCache": "isinstance(backends.cuda.cufft_plan_cache[0], backends.cuda.cuFFTPlanCache)",
    "backends.cuda.cuFFTPlanCacheManager": "isinstance(backends.cuda.cufft_plan_cache, "
    "backends.cuda.cuFFTPlanCacheManager)",
    "backends.cuda.cuFFTPlanCacheAttrContextProp": "isinstance(vars(backends.cuda.cuFFTPlanCache)['size'], "
    "backends.cuda.cuFFTPlanCacheAttrContextProp)",
    "backends.cuda.preferred_linalg_library": "backends.cuda.preferred_linalg_library('default') == "
    "backends.cuda.preferred_linalg_library() == torch._C._LinalgBackend.Default",
    "backends.cuda.preferred_blas_library": "backends.cuda.preferred_blas_library('cublas') == "
    "torch._C._BlasBackend.Cublas",
    "backends.cuda.preferred_rocm_fa_library": "backends.cuda.preferred_rocm_fa_library() == "
    "torch._C._ROCmFABackend.Default",
    "backends.cuda.is_ck_sdpa_available": "backends.cuda.is_ck_sdpa_available() is False",
    "backends.cuda.SDPAParams": "attention().query.is_cuda",
    "backends.cuda.is_flash_attention_available": "backends.cuda.is_flash_attention_available() is False",
    "backends.cuda.can_use_flash_attention": "backends.cuda.can_use_flash_attention(attention()) is False",
    "backends.cuda.can_use_efficient_attention": "backends.cuda.can_use_efficient_attention(attention()) is False",
    "backends.cuda.can_use_cudnn_attention": "backends.cuda.can_use_cudnn_attention(attention()) is False",
    **{
        f"backends.cuda.{enable}": f"switch(backends.cuda.{enable}, backends.cuda.{enabled})"
        for enable, enabled in (
            ("enable_cudnn_sdp", "cudnn_sdp_enabled"),
            ("enable_flash_sdp", "flash_sdp_enabled"),
            ("enable_math_sdp", "math_sdp_enabled"),
            ("enable_mem_efficient_sdp", "mem_efficient_sdp_enabled"),
            ("allow_fp16_bf16_reduction_math_sdp", "fp16_bf16_reduction_math_sdp_allowed"),
        )
    },
    "backends.cuda.cudnn_sdp_enabled": "backends.cuda.cudnn_sdp_enabled() is True",
    "backends.cuda.flash_sdp_enabled": "backends.cuda.flash_sdp_enabled() is True",
    "backends.cuda.math_sdp_enabled": "backends.cuda.math_sdp_enabled() is True",
    "backends.cuda.mem_efficient_sdp_enabled": "backends.cuda.mem_efficient_sdp_enabled() is True",
    "backends.cuda.fp16_bf16_reduction_math_sdp_allowed": "not backends.cuda.fp16_bf16_reduction_math_sdp_allowed()",
    "backends.cuda.sdp_kernel": "warned(lambda: backends.cuda.sdp_kernel(enable_flash=False))[0].startswith"
    "('FutureWarning: `torch.backends.cuda.sdp_kernel()` is deprecated.')",
    # ---- torch.backends.cudnn, as in a build without cuDNN
    "backends.cudnn.is_available": "backends.cudnn.is_available() is False",
    "backends.cudnn.version": "backends.cudnn.version() is None",
    "backends.cudnn.is_acceptable": "backends.cudnn.is_acceptable(x()) is False and "
    "warned(lambda: backends.cudnn.is_acceptable(x())) == []",
    "backends.cudnn.flags": "[backends.cudnn.benchmark for _ in [0] for f in "
    "[backends.cudnn.flags(benchmark=True)] for _ in [f.__enter__()]] == [True]",
    "backends.cudnn.set_flags": "len(backends.cudnn.set_flags(_benchmark=False)) == 7 and not backends.cudnn.benchmark",
    "backends.cudnn.enabled": "backends.cudnn.enabled in (True, False)",
    "backends.cudnn.benchmark": "backends.cudnn.benchmark is False",
    "backends.cudnn.benchmark_limit": "backends.cudnn.benchmark_limit is None",
    "backends.cudnn.deterministic": "backends.cudnn.deterministic is False",
    "backends.cudnn.allow_tf32": "backends.cudnn.allow_tf32 is True",
    "backends.cudnn.fp32_precision": "backends.cudnn.fp32_precision == 'none'",
    "backends.cudnn.conv": "backends.cudnn.conv.fp32_precision in ('none', 'tf32')",
    "backends.cudnn.depthwise_kernel": "backends.cudnn.depthwise_kernel == 'auto'",
}
WORKS.update({f"{name}Storage": f"storage('{name}Storage', {dtype})" for name, dtype in DTYPES.items()})
WORKS.update(
    {
        f"{name}Tensor": f"tensor(cuda.{name}Tensor, {dtype})"
        for name, dtype in DTYPES.items()
        if not name.startswith("Complex")
    }
)
WORKS["BoolTensor"] = "cuda.BoolTensor([True, False]).tolist() == [True, False]"
WORKS.update(
    {
        f"sparse.{name}Tensor": f"sparse_tensor(cuda.sparse.{name}Tensor, {dtype})"
        for name, dtype in DTYPES.items()
        if not name.startswith(("Complex", "Bool"))
    }
)
# The row of a submodule says that it can be imported. Its names have rows of their own.
WORKS.update({name: f"is_module('torch.cuda.{name}')" for name in modules()})

_NO_PYNVML = "ModuleNotFoundError: nvidia-ml-py does not seem to be installed or it can't be imported."
_NO_BLAS = "is not available: the simulated device computes with the CPU's kernels, without cuBLAS."
_NO_TUNABLE = (
    "NotImplementedError: torch.cuda.tunable is not available: it chooses among the GEMMs of cuBLAS, "
    "which the simulated device does not have."
)
_NO_ALLOCATOR = (
    "NotImplementedError: torch.cuda.CUDAPluggableAllocator is not available: "
    "the simulated device has one allocator, its own."
)
_NO_GREEN = (
    "RuntimeError: PyTorch was not built with Green Context support!"
    if find(cuda, "green_contexts._ensure_supported") is None
    else "RuntimeError: Green Context is only supported on Nvidia CUDA"
)

REFUSES: dict[str, tuple[str, str]] = {
    # what PyTorch raises where nvidia-ml-py is missing
    "clock_rate": ("cuda.clock_rate()", _NO_PYNVML),
    "power_draw": ("cuda.power_draw()", _NO_PYNVML),
    "temperature": ("cuda.temperature()", _NO_PYNVML),
    "current_blas_handle": (
        "cuda.current_blas_handle()",
        f"NotImplementedError: torch.cuda.current_blas_handle() {_NO_BLAS}",
    ),
    "current_solver_handle": (
        "cuda.current_solver_handle()",
        f"NotImplementedError: torch.cuda.current_solver_handle() {_NO_BLAS.replace('cuBLAS', 'cuSOLVER')}",
    ),
    "backends.cuda.cublas_workspace_size": (
        "backends.cuda.cublas_workspace_size()",
        f"NotImplementedError: The workspace of Cublas {_NO_BLAS}",
    ),
    "backends.cuda.cublaslt_workspace_size": (
        "backends.cuda.cublaslt_workspace_size()",
        f"NotImplementedError: The workspace of CublasLt {_NO_BLAS}",
    ),
    "backends.cuda.blas_workspace_size": (
        "backends.cuda.blas_workspace_size()",
        f"NotImplementedError: The workspace of Cublas {_NO_BLAS}",
    ),
    "CUDAPluggableAllocator": ("cuda.CUDAPluggableAllocator(None, 'malloc', 'free')", _NO_ALLOCATOR),
    "change_current_allocator": (
        "cuda.change_current_allocator(cuda.memory._get_current_allocator())",
        _NO_ALLOCATOR,
    ),
    # torch/cuda/tunable.py
    "tunable.tune_gemm_in_file": ("cuda.tunable.tune_gemm_in_file('f')", "AssertionError: TunableOp is not enabled"),
    "caching_allocator_disabled": (
        "cuda.caching_allocator_disabled().__enter__()",
        "NotImplementedError: torch.cuda.caching_allocator_enable(False) is not available: "
        "the simulated device has no allocator without a cache.",
    ),
    # what PyTorch raises in a build without green contexts and without GPUDirect Storage (gds)
    "GreenContext": ("cuda.GreenContext.create(num_sms=8)", _NO_GREEN),
    "gds.gds_register_buffer": (
        "cuda.gds.gds_register_buffer(x().untyped_storage())",
        "RuntimeError: torch._C._gds_register_buffer is not supported on this platform",
    ),
    "gds.gds_deregister_buffer": (
        "cuda.gds.gds_deregister_buffer(x().untyped_storage())",
        "RuntimeError: torch._C._gds_deregister_buffer is not supported on this platform",
    ),
    "gds.GdsFile": (
        "cuda.gds.GdsFile(tempfile.mktemp(), 64 | 2)",  # O_CREAT | O_RDWR
        "RuntimeError: torch._C._gds_register_handle is not supported on this platform",
    ),
    **{
        f"nccl.{name}": (
            f"cuda.nccl.{call}",
            f"NotImplementedError: torch.cuda.nccl.{name}() is not available: the simulated device has no NCCL. Use a "
            'process group of torch.distributed, whose backend "nccl" is the device\'s own.',
        )
        for name, call in (
            ("all_reduce", "all_reduce([x()])"),
            ("reduce", "reduce([x()])"),
            ("broadcast", "broadcast([x()])"),
            ("all_gather", "all_gather([x()], [x()])"),
            ("reduce_scatter", "reduce_scatter([x()], [x()])"),
        )
    },
    **{
        f"tunable.{call.partition('(')[0]}": (f"cuda.tunable.{call}", _NO_TUNABLE)
        for call in (
            "enable()",
            "tuning_enable()",
            "record_untuned_enable()",
            "get_filename()",
            "get_max_tuning_duration()",
            "get_max_tuning_iterations()",
            "get_results()",
            "get_rotating_buffer_size()",
            "get_validators()",
            "read_file()",
            "set_filename('f')",
            "set_max_tuning_duration(1)",
            "set_max_tuning_iterations(1)",
            "set_numerical_check_tolerances(True)",
            "set_rotating_buffer_size(1)",
            "mgpu_tune_gemm_in_file('f', 1)",
        )
    },
}

# What only newer versions of PyTorch have.
NEWER: dict[str, str] = {
    "export_dot": "callable(cuda.export_dot('f'))",
    "export_graph_data": "callable(cuda.export_graph_data('f'))",
    "gds.is_available": "cuda.gds.is_available() is False",
    "graph_annotations.clear_kernel_annotations": "cuda.graph_annotations.clear_kernel_annotations() is None",
    "graph_annotations.dump_kernel_py_stacks": "cuda.graph_annotations.dump_kernel_py_stacks(tempfile.mktemp()) is None",
    "graph_annotations.get_kernel_annotations": "cuda.graph_annotations.get_kernel_annotations() == {}",
    "graph_annotations.get_kernel_py_stacks": "dict(cuda.graph_annotations.get_kernel_py_stacks()) == {}",
    "graph_annotations.is_available": "cuda.graph_annotations.is_available() is False",
    "graph_annotations.mark_kernels": "captured(lambda graph: marked(graph)) == 4",
    **{
        f"graphs.register_graph_{when}_hook": f"is_called('{when}')"
        for when in ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end", "destroy")
    },
    "green_contexts.SMPartition": "isinstance(cuda.green_contexts.SMPartition, type)",
    "green_contexts.get_num_locality_domains": "cuda.green_contexts.get_num_locality_domains() == 1",
    "green_contexts.is_localization_supported": "cuda.green_contexts.is_localization_supported() is False",
    "tunable.wildcard_fallback_is_enabled": "cuda.tunable.wildcard_fallback_is_enabled() is False",
}
NEWER_REFUSES: dict[str, tuple[str, str]] = {
    f"tunable.{call.partition('(')[0]}": (f"cuda.tunable.{call}", _NO_TUNABLE)
    for call in (
        "wildcard_fallback_enable()",
        "get_cublaslt_requested_algo_count()",
        "set_cublaslt_requested_algo_count(1)",
        "dynamic_dims_mask().__enter__()",
    )
}
WORKS.update({name: row for name, row in NEWER.items() if find(cuda, name) is not None})
REFUSES.update({name: row for name, row in NEWER_REFUSES.items() if find(cuda, name) is not None})


def row_of(name: str) -> str:
    """The name whose row answers for ``name``. Raises KeyError if there is none."""
    for key in (name, name.rpartition(".")[2]):
        same = key == name or find(cuda, key) is find(cuda, name)
        if same and (key in WORKS or key in REFUSES):
            return key
    raise KeyError(f"{name} has a row neither in WORKS nor in REFUSES")


def answers() -> dict[str, str]:
    """Evaluates every row. Row -> "" if the result is what the row says, otherwise the result in words."""
    result = {}
    for name, expression in WORKS.items():
        code = compile(expression, name, "eval")
        try:
            found = eval(code, globals())
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        result[name] = "" if found is True else f"{expression} is {found}"
    for name, (call, expected) in REFUSES.items():
        code = compile(call, name, "eval")
        error = raised(lambda code=code: eval(code, globals()))
        result[name] = "" if error == expected else f"{call}: {error}"
    return result


if __name__ == "__main__":
    rows = {name: row_of(name) for name in public_names()}
    print(json.dumps({"rows": rows, "answers": answers()}))
