"""Copies to and from several devices: the functions of torch/csrc/cuda/python_comm.cpp and comm.cpp, without NCCL.

The error messages are those of comm.cpp. Copies between devices do not wait: streams order them as they order any copy.
A gather into host memory waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._utils import (
    _flatten_dense_tensors,
    _flatten_sparse_tensors,
    _reorder_tensors_as,
    _take_tensors,
    _unflatten_dense_tensors,
)

Streams: TypeAlias = "Sequence[torch.Stream | None] | None"


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    for device in devices:
        if device < 0:
            raise RuntimeError(f"Expected non-negative device index, but got {device}")
    home = tensor.get_device()

    def copy(device: int) -> Tensor:
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, layout=tensor.layout, device=f"cuda:{device}")
        return copy.copy_(tensor, non_blocking=True)

    return [tensor if device == home else copy(device) for device in devices]


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    for index, result in enumerate(out):
        _check_output_is_cuda(index, result)
        if result.shape != tensor.shape:
            raise RuntimeError(
                f"Expected all output tensors to have same shape as the source tensor {list(tensor.shape)}, but output "
                f"tensor at index {index} has shape {list(result.shape)}"
            )
    return [result.copy_(tensor, non_blocking=True) for result in out]


def _broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    if any(tensor.get_device() != devices[0] for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
    copies: list[list[Tensor]] = [[] for _ in devices[1:]]
    for chunk in _take_tensors(tensors, buffer_size):
        if chunk[0].is_sparse:
            indices, values = (_broadcast(flat, devices)[1:] for flat in _flatten_sparse_tensors(chunk))
            parts = [_unflatten_sparse(*flat, chunk) for flat in zip(indices, values, strict=True)]
        else:
            parts = [
                _unflatten_dense_tensors(flat, chunk) for flat in _broadcast(_flatten_dense_tensors(chunk), devices)[1:]
            ]
        for copies_there, part in zip(copies, parts, strict=True):
            # Views of one buffer share a version counter. These views share no bytes, so `.data` gives each of them a
            # version counter of its own.
            copies_there += [tensor.data for tensor in part]
    return [list(tensors), *(list(_reorder_tensors_as(copies_there, tensors)) for copies_there in copies)]


def _unflatten_sparse(indices: Tensor, values: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    # PyTorch's _unflatten_sparse_tensors() would make the copies on the device of `tensors`, not on that of `values`.
    return [
        torch.sparse_coo_tensor(i, v, tensor.shape, is_coalesced=tensor.is_coalesced(), check_invariants=False)
        for tensor, i, v in zip(
            tensors,
            _unflatten_dense_tensors(indices, [tensor._indices() for tensor in tensors]),
            _unflatten_dense_tensors(values, [tensor._values() for tensor in tensors]),
            strict=True,
        )
    ]


def _scatter(
    tensor: Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Streams
) -> list[Tensor]:
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is None:
        chunks = list(tensor.chunk(len(devices), dim))
    elif len(chunk_sizes) == len(devices):
        chunks = list(tensor.split_with_sizes(list(chunk_sizes), dim))
    else:
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(devices)} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    with contextlib.ExitStack() as entered:
        for index, chunk in enumerate(chunks):
            device = devices[index]
            if device != tensor.get_device():
                _enter(entered, streams, index, device)
                if device < 0:
                    raise RuntimeError(f"Expected non-negative device index, but got {device}")
                chunks[index] = chunk.to(f"cuda:{device}", non_blocking=True)
    return chunks


def _scatter_out(tensor: Tensor, out: Sequence[Tensor], dim: int, streams: Streams) -> list[Tensor]:
    if not out:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    tensor.size(dim)  # raises for a wrong dimension
    dim %= tensor.dim()
    for index, result in enumerate(out):
        _check_output_is_cuda(index, result)
        if result.dim() != tensor.dim() or any(
            size != expected
            for at, (size, expected) in enumerate(zip(result.shape, tensor.shape, strict=True))
            if at != dim
        ):
            raise RuntimeError(
                f"Output tensor at index {index} has incorrect shape: {list(result.shape)}. Expected same shape except "
                f"for scatter dim {dim} as the source tensor: {list(tensor.shape)}"
            )
    sizes = [result.size(dim) for result in out]
    if sum(sizes) != tensor.size(dim):
        raise RuntimeError(
            f"Total size for output tensors along scatter dim {dim} does not match the source tensor size at dim "
            f"{dim}. Expected {tensor.size(dim)}, but got total size {sum(sizes)}"
        )
    with contextlib.ExitStack() as entered:
        for index, (result, chunk) in enumerate(zip(out, tensor.split_with_sizes(sizes, dim), strict=True)):
            _enter(entered, streams, index, result.get_device())
            result.copy_(chunk, non_blocking=True)
    return list(out)


def _enter(entered: contextlib.ExitStack, streams: Streams, index: int, device: int) -> None:
    """Makes the stream of a chunk, if it has one, the current stream instead of the stream of an earlier chunk."""
    stream = streams[index] if streams and index < len(streams) else None
    if stream is None:
        return
    if not isinstance(stream, torch.Stream):
        raise RuntimeError("Unknown data type found in stream list. Need torch.cuda.Stream or None")
    if stream.device_index != device:
        raise RuntimeError(
            f"Expected the device associated with the stream at index {index} (was {stream.device_index}) to match the "
            f"device supplied at that index (expected {device})"
        )
    entered.close()
    entered.enter_context(stream)


def _gather(tensors: Sequence[Tensor], dim: int, destination_index: int | None) -> Tensor:
    size = _gathered_size(tensors, dim, "{}")
    formats = {torch._prims_common.suggest_memory_format(tensor) for tensor in tensors}
    result = torch.empty(
        size,
        dtype=tensors[0].dtype,
        device="cpu" if destination_index == -1 else torch.device("cuda", destination_index),  # type: ignore[arg-type]
        memory_format=formats.pop() if len(formats) == 1 else torch.contiguous_format,
    )
    return _copy_to_parts(tensors, result, dim)


def _gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    size = _gathered_size(tensors, dim, "'{}'")
    if list(out.shape) != size:
        raise RuntimeError(f"Expected out tensor to have shape {size}, but got {list(out.shape)}")
    return _copy_to_parts(tensors, out, dim)


def _copy_to_parts(tensors: Sequence[Tensor], result: Tensor, dim: int) -> Tensor:
    parts = result.split_with_sizes([tensor.size(dim) for tensor in tensors], dim)
    for part, tensor in zip(parts, tensors, strict=True):
        part.copy_(tensor, non_blocking=result.is_cuda)
    return result


def _gathered_size(tensors: Sequence[Tensor], dim: int, device_format: str) -> list[int]:
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    expected = list(tensors[0].shape)
    for index, tensor in enumerate(tensors):
        if not tensor.is_cuda:
            raise RuntimeError(
                f"Expected all input tensors to be CUDA tensors, but tensor at index {index} has device "
                + device_format.format(tensor.device)
            )
        if tensor.dim() != len(expected):
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but tensor at index "
                f"{index}has {tensor.dim()} dimensions, (expected {len(expected)})"
            )
        expected[dim] = tensor.size(dim)
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"Input tensor at index {index} has invalid shape {list(tensor.shape)}, but expected {expected}"
            )
    expected[dim] = sum(tensor.size(dim) for tensor in tensors)
    return expected


def _check_output_is_cuda(index: int, tensor: Tensor) -> None:
    if not tensor.is_cuda:
        raise RuntimeError(
            "Expected all output tensors to be CUDA tensors, but output tensor at index "
            f"{index} has device '{tensor.device}'"
        )


SUPPLIED: dict[str, Any] = {
    "_broadcast": _broadcast,
    "_broadcast_out": _broadcast_out,
    "_broadcast_coalesced": _broadcast_coalesced,
    "_scatter": _scatter,
    "_scatter_out": _scatter_out,
    "_gather": _gather,
    "_gather_out": _gather_out,
}
