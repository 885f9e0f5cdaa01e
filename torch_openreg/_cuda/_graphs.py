"""Graphs: the class and the functions of torch/csrc/cuda/Graph.cpp, and those of Module.cpp for graph trees."""

from __future__ import annotations

from typing import Any

import torch

from torch_openreg._cuda import _bindings as _C
from torch_openreg._cuda._missing import refusal


class _CUDAGraph(_C._CUDAGraph):
    begin_capture_to_while_node = refusal(
        "While nodes of CUDA graphs are not available: the simulated device's graphs run no node twice."
    )


def construct_storage(original: Any, address: int, device: torch.device, size: int) -> Any:
    """A storage over memory that others own, of the device's own class."""
    return (_C._construct_storage if device.type == "cuda" else original)(address, device, size)


def dump_graph_dot(graph: Any, path: str, *, verbose: bool = True) -> None:
    """Writes a captured graph in the format of Graphviz. ``verbose`` changes nothing."""
    _C._CUDAGraph.debug_dump(graph, path)


SUPPLIED: dict[str, Any] = {
    "_CUDAGraph": _CUDAGraph,
    "_cuda_isCurrentStreamCapturing": _C._is_current_stream_capturing,
    "_graph_pool_handle": _C._graph_pool_handle,
    # torch/_inductor/cudagraph_trees.py calls these functions.
    "_cuda_CUDAAllocator_AllocatorState": _C._AllocatorState,
    "_cuda_getCheckpointState": _C._get_checkpoint_state,
    "_cuda_setCheckpointPoolState": _C._set_checkpoint_pool_state,
    "_cuda_checkPoolLiveAllocations": _C._check_pool_live_allocations,
    "_has_Standard_Deleter": _C._has_standard_deleter,
    "_free_And_Remove_DeleterFn": _C._free_and_remove_deleter,
    "_construct_CUDA_Tensor_From_Storage_And_Metadata": _C._construct_tensor,
    "_tensors_data_ptrs_at_indices_equal": _C._have_addresses,
    "_set_storage_access_error_msg": _C._set_storage_error,
    "_set_storage_data_ptr_access_error_msg": _C._set_data_error,
    # cuDNN's benchmarks have no cache that they could empty.
    "_cuda_get_conv_benchmark_empty_cache": lambda: False,
    "_cudnn_set_conv_benchmark_empty_cache": lambda enabled: None,
}
