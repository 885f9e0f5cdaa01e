"""Weights that are not on this machine: in dry execution, their names, shapes and dtypes are enough.

A file of safetensors begins with a header, which names each tensor. If the file ends before its tensors do, a file with
the same header takes its place, whose tensors are zeros. If a model of transformers has no weights at all, its
config.json says what the header would be. Such a file is sparse: its zeros take no space on the disk, and no memory
until somebody reads them.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from torch_openreg import _upstream
from torch_openreg._loader import when_imported
from torch_openreg.simulator import _upstream as rows

# The dtypes of models, by their names in a header.
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}
NAMES |= {torch.int64: "I64", torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
# The start of a file: the length of the header.
_LENGTH = 8


def start() -> None:
    here = __name__
    when_imported([("safetensors", f"{here}:know_safetensors"), ("transformers.modeling_utils", f"{here}:know_models")])


def know_safetensors(_: ModuleType) -> None:
    _upstream.apply(rows.WEIGHTS)


def know_models(_: ModuleType) -> None:
    _upstream.apply(rows.MODELS)


@functools.cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="openreg-dry-weights-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def _sparse(header: bytes, end: int) -> str:
    """A file with this header, and ``end`` bytes of zeros."""
    path = _folder() / f"{len(list(_folder().iterdir()))}.safetensors"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(_LENGTH, "little") + header)
        file.truncate(file.tell() + end)
    return str(path)


@functools.cache
def _whole(path: str, written: int) -> str:
    """The path itself, or that of a sparse file if the file ends before its tensors do. ``written``: the file's time."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            header = file.read(length)
        tensors = [value for name, value in json.loads(header).items() if name != "__metadata__"]
        end = max(value["data_offsets"][1] for value in tensors)
        if len(header) < length or os.path.getsize(path) >= _LENGTH + length + end:
            return path
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return path  # not such a file: safetensors says what is wrong
    warnings.warn(f"{path} ends before its tensors do. In dry execution, they are zeros.", stacklevel=4)
    return _sparse(header, end)


def safe_open(original: Callable[..., Any], filename: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
    """As the function of safetensors, but the file may have nothing besides its header."""
    if os.path.isfile(filename):
        filename = _whole(os.fspath(filename), os.stat(filename).st_mtime_ns)
    return original(filename, *args, **kwargs)


def _model_of(folder: Path) -> Any:
    """The model of config.json in this folder, without memory. None: transformers has no such model."""
    transformers = importlib.import_module("transformers")
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, (config.architectures or [""])[0], None)
    with torch.device("meta"):
        return kind and kind(config)


def _like(model: Any) -> str:
    """A sparse file of this model's parameters and buffers."""
    dtype = getattr(model.config, "dtype", None) or torch.float32
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in model.state_dict().items():
        in_file = dtype if tensor.is_floating_point() else tensor.dtype
        begin, end = end, end + tensor.numel() * in_file.itemsize
        header[name] = {"dtype": NAMES[in_file], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    return _sparse(json.dumps(header).encode(), end)


def checkpoint_files(
    original: Callable[..., tuple[list[str], Any]], pretrained_model_name_or_path: str, *args: Any, **kwargs: Any
) -> tuple[list[str], Any]:
    """As the function of transformers. For a local folder without weights, gives a sparse file of its model's shapes."""
    files, of_shards, error = [""], None, None
    try:
        files, of_shards = original(pretrained_model_name_or_path, *args, **kwargs)
    except OSError as raised:  # no file has a name that transformers knows
        error = raised
    named = kwargs.get("download_kwargs") or kwargs  # of transformers 5, or 4
    folder = Path(pretrained_model_name_or_path or "", named.get("subfolder") or "")
    lacks_weights = files and not all(map(os.path.exists, files))
    if lacks_weights and (folder / "config.json").exists() and (model := _model_of(folder)):
        text = f"{folder} lacks weights. In dry execution, they are zeros, with the shapes of config.json."
        warnings.warn(text, stacklevel=3)
        return [_like(model)], None
    if error:
        raise error
    return files, of_shards
