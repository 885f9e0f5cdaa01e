"""Graphs: the class and the functions of torch/csrc/cuda/Graph.cpp."""

from __future__ import annotations

from typing import Any

from torch_openreg._cuda import _bindings as _C
from torch_openreg._cuda._missing import refusal

_no_conditional_nodes = refusal(
    "Conditional nodes of CUDA graphs are not available: the simulated device's graphs run all of their nodes."
)


class _CUDAGraph(_C._CUDAGraph):
    # torch.cond calls the first function in a capture.
    get_currently_capturing_graph = staticmethod(_no_conditional_nodes)
    begin_capture_to_if_node = _no_conditional_nodes
    end_capture_to_conditional_node = _no_conditional_nodes


def _graph_pool_handle() -> tuple[int, int]:
    return _C._MemPool(False, False).id  # the pool ends at once, and no later pool gets its id


SUPPLIED: dict[str, Any] = {
    "_CUDAGraph": _CUDAGraph,
    "_cuda_isCurrentStreamCapturing": _C._is_current_stream_capturing,
    "_graph_pool_handle": _graph_pool_handle,
}
