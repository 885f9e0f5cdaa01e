"""Files of tensors that nobody computed: in dry execution, their zeros are holes of the file.

torch.save(), distributed checkpoints and save_file() of safetensors would write a copy of every weight. Here a large run of zeros takes no space
on the disk, so that a program that saves a model of any size leaves a small file, which loads as always. A warning says
that the file has no weights, and so does the metadata of a file of safetensors.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from torch_openreg import _upstream
from torch_openreg._loader import when_imported
from torch_openreg.openreg import _dry_weights  # type: ignore[attr-defined]
from torch_openreg.simulator import _upstream as rows

_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
MARK = {"torch_openreg": "saved in dry execution: the weights are zeros"}


def start() -> None:
    _upstream.apply(rows.SAVES)
    when_imported(
        [
            ("safetensors.torch", f"{__name__}:know_safetensors"),
            ("torch.distributed.checkpoint.filesystem", f"{__name__}:know_checkpoints"),
        ]
    )


def know_safetensors(_: ModuleType) -> None:
    _upstream.apply(rows.SAVES_OF_SAFETENSORS)


def know_checkpoints(_: ModuleType) -> None:
    _upstream.apply(rows.SAVES_OF_CHECKPOINTS)


class SparseFile(io.FileIO):
    """A new file, in which large runs of zeros are holes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, "wb")
        self.has_holes = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for begin in range(0, len(view), _CHUNK):
            chunk = view[begin : begin + _CHUNK]
            if len(chunk) == _CHUNK and bytes(chunk) == _ZEROS:
                self.seek(_CHUNK, os.SEEK_CUR)
                self.has_holes = True
            else:
                super().write(chunk)
        return len(view)

    def close(self) -> None:
        """The file may end within a hole."""
        if not self.closed:
            self.truncate(self.tell())
        super().close()

    def end(self) -> None:
        """Closes the file, and says what it lacks."""
        self.close()
        if self.has_holes:
            warnings.warn(
                f"{self.name} has zeros in place of tensors that dry execution did not compute.", stacklevel=2
            )


class _WriterFile(SparseFile):
    """PyTorch flushes a buffer when it has written all, and does not close it."""

    is_whole = False

    def flush(self) -> None:
        if not self.is_whole:
            self.is_whole = True
            self.end()


def open_writer(original: Callable[[Any], Any], name_or_buffer: Any) -> Any:
    """As the function of PyTorch, but a file that it names becomes sparse."""
    if not isinstance(name_or_buffer, (str, os.PathLike)):
        return original(name_or_buffer)
    return original(_WriterFile(name_or_buffer))


@contextlib.contextmanager
def create_stream(
    original: Callable[..., Any], system: Any, path: str | os.PathLike[str], mode: str
) -> Iterator[io.IOBase]:
    """As the method of PyTorch, but a file that is written becomes sparse."""
    if mode != "wb":
        with original(system, path, mode) as stream:
            yield stream
        return
    file = SparseFile(path)
    try:
        yield file
    finally:
        file.end()


def save_file(
    original: Callable[..., None],
    tensors: dict[str, torch.Tensor],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
) -> None:
    """As the function of safetensors, but the file is sparse. Small files, and files of rare dtypes, are as always."""
    size = sum(tensor.nbytes for tensor in tensors.values())
    is_known = all(tensor.dtype in _dry_weights.NAMES and tensor.is_contiguous() for tensor in tensors.values())
    if size < _CHUNK or not is_known:
        return original(tensors, filename, metadata)
    sys.modules["safetensors.torch"]._evaluate_tensors_for_save(tensors)
    header: dict[str, Any] = {"__metadata__": (metadata or {}) | MARK}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        dtype = _dry_weights.NAMES[tensor.dtype]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file = SparseFile(filename)
    file.write(len(text).to_bytes(8, "little") + text)
    for tensor in tensors.values():
        on_host = tensor.detach().cpu()
        file.write((ctypes.c_char * on_host.nbytes).from_address(on_host.data_ptr()))
    file.end()
