"""The public names of ``torch.cuda``. ``python tests/cuda/cuda_surface.py`` prints the page of the book about them.

A name is in ``torch.openreg`` too, or it has an entry in INSTEAD (what to call) or in ABSENT (why there is none).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, NamedTuple

import torch

# These names begin with an underscore, but PyTorch documents them.
DOCUMENTED = ("memory._dump_snapshot", "memory._record_memory_history", "memory._snapshot")

# A name, or its last part if several modules have it ("*" stands for any text) -> what to call instead
INSTEAD = {
    "DeferredCudaCallError": "torch.openreg.DeferredOpenRegCallError",
    "max_memory_cached": "torch.openreg.max_memory_reserved",
    "memory_cached": "torch.openreg.memory_reserved",
    "reset_max_memory_*": "torch.openreg.reset_peak_memory_stats",
    "sparse*": "torch.sparse_coo_tensor",
}

_ALLOCATOR = "the allocator is a `c10::DeviceAllocator`: another one is another backend"
_ARCHITECTURE = "nothing is compiled for an architecture of the device"
_CACHE = "there is no allocator without a cache"
_COLLECTIVES = "one process drives several devices with it, on CUDA only, as `nn.DataParallel` does"
_FOREIGN = "no other library makes streams of this device"
_GRAPH = "the name for any device is `torch.accelerator.Graph`"
_GREEN = "a device has no multiprocessors to divide"
_LIBRARY = "the kernels are the CPU's: no library of CUDA's is behind them"
_RUNTIME = "the device library's C API is `openreg.h`; its errors arrive as `RuntimeError`, with the code's name"
_SENSOR = "a simulated device has no sensors"

# A name that nothing replaces, written in the same way -> the reason
ABSENT = {
    "CUDAGraph": _GRAPH,
    "CUDAPluggableAllocator": _ALLOCATOR,
    "CudaError": _RUNTIME,
    "ExternalStream": _FOREIGN,
    "GreenContext": _GREEN,
    "amp_definitely_not_available": "mixed precision is always there",
    "caching_allocator_disabled": _CACHE,
    "caching_allocator_enable": _CACHE,
    "change_current_allocator": _ALLOCATOR,
    "check_error": _RUNTIME,
    "clock_rate": _SENSOR,
    "comm*": _COLLECTIVES,
    "cudaStatus": _RUNTIME,
    "cudart": _RUNTIME,
    "current_*_handle": _LIBRARY,
    "export_*": _GRAPH,
    "gds*": "GPUDirect Storage is hardware",
    "get_arch_list": _ARCHITECTURE,
    "get_gencode_flags": _ARCHITECTURE,
    "get_stream_from_external": _FOREIGN,
    "graph*": _GRAPH,
    "green_contexts*": _GREEN,
    "has_half": "a constant from the time before every device had float16",
    "has_magma": _LIBRARY,
    "is_current_stream_capturing": _GRAPH,
    "jiterator": "it compiles CUDA source at run time",
    "make_graphed_callables": _GRAPH,
    "nccl*": _COLLECTIVES,
    "power_draw": _SENSOR,
    "temperature": _SENSOR,
    "tunable*": _LIBRARY,
}

# The keys above whose names PyTorch 2.13 does not have yet.
LATER = {"export_*"}


class Row(NamedTuple):
    """One name: ``status`` is "same", "instead" or "absent"; ``text`` says what to call, or why there is nothing."""

    name: str
    status: str
    text: str


def modules() -> list[str]:
    """The public submodules of ``torch.cuda``."""
    return [info.name for info in pkgutil.iter_modules(torch.cuda.__path__) if not info.name.startswith("_")]


def names() -> list[str]:
    """The public names of ``torch.cuda``, and those of its public submodules in the form "submodule.name"."""
    result = {*modules(), *DOCUMENTED, *torch.cuda.__all__}
    for module in modules():
        found = importlib.import_module(f"torch.cuda.{module}")
        result.update(f"{module}.{name}" for name in getattr(found, "__all__", None) or _own_names(found))
    return sorted(result, key=lambda name: ("." in name, name))


def public_names() -> list[str]:
    """``names()``, and those of ``torch.backends.cuda`` and ``torch.backends.cudnn``, which begin with "backends."."""
    cudnn: Any = torch.backends.cudnn  # PyTorch replaced this module by an object; its class has the settings
    settings = [name for name in vars(type(cudnn)) if not name.startswith("_")]
    functions = [name for name in _own_names(cudnn.m) if name != type(cudnn).__name__]
    return [
        *names(),
        *(f"backends.cuda.{name}" for name in torch.backends.cuda.__all__),
        *(f"backends.cudnn.{name}" for name in functions + settings),
    ]


def _own_names(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def find(root: object, name: str) -> object | None:
    """The attribute at a dotted path, or None."""
    for part in name.split("."):
        root = getattr(root, part, None)
    return root


def answer(name: str) -> str:
    """The key of INSTEAD or ABSENT that answers for a name. Raises KeyError unless there is exactly one."""
    for part in (name, name.rpartition(".")[2]):
        keys = [key for key in (*INSTEAD, *ABSENT) if fnmatchcase(part, key)]
        if keys:
            break
    if len(keys) != 1:
        raise KeyError(f"torch.openreg has no {name}, and INSTEAD and ABSENT have {keys or 'nothing'} for it")
    return keys[0]


def rows() -> list[Row]:
    """One row for each name."""
    result = []
    for name in names():
        if find(torch.openreg, name) is not None:
            result.append(Row(name, "same", f"torch.openreg.{name}"))
        elif (key := answer(name)) in INSTEAD:
            result.append(Row(name, "instead", INSTEAD[key]))
        else:
            result.append(Row(name, "absent", ABSENT[key]))
    return result


def as_cuda(name: str) -> str:
    """What a name does if the device is called cuda: "works" or "refuses"."""
    import cuda_rows

    return "works" if cuda_rows.row_of(name) in cuda_rows.WORKS else "refuses"


def page() -> str:
    """The text of the page."""
    import cuda_rows

    table = rows()
    count = Counter(row.status for row in table)
    version = ".".join(torch.__version__.split(".")[:2])
    lines = [
        "# torch.cuda, name by name",
        "",
        f"This page lists all public names of `torch.cuda` and its public submodules in PyTorch {version}. It says",
        "which of them the device has under its own name, in `torch.openreg`. Under the name cuda",
        "(`TORCH_OPENREG_AS=cuda`) it has all of them.",
        "`tests/cuda/cuda_surface.py` writes this page from both modules.",
        "",
        "| | names |",
        "|---|---:|",
        f"| the same name in `torch.openreg`, with the same arguments | {count['same']} |",
        f"| another call does it | {count['instead']} |",
        f"| not there, for the reason given | {count['absent']} |",
        f"| together | {len(table)} |",
    ]
    works = sum(as_cuda(row.name) == "works" for row in table)
    lines += [
        "",
        "| | names |",
        "|---|---:|",
        f"| by the name cuda: works, with CUDA's meaning | {works} |",
        f"| raises what CUDA raises where a library is missing, or a sentence that says what is not there | "
        f"{len(table) - works} |",
    ]
    same = ", ".join(f"`{row.name}`" for row in table if row.status == "same")
    refused = [row.name for row in table if row.status == "same" and as_cuda(row.name) == "refuses"]
    lines += ["", "## The same name", "", f"{same}."]
    if refused:
        lines += ["", "By the name cuda these refuse: " + ", ".join(f"`{name}`" for name in refused) + "."]
    for status, title, head in (("instead", "Another call", "call"), ("absent", "Not there", "why")):
        lines += ["", f"## {title}", "", f"| torch.cuda | {head} | by the name cuda |", "|---|---|---|"]
        grouped: dict[tuple[str, str], list[str]] = {}
        for row in table:
            if row.status == status:
                text = f"`{row.text}`" if status == "instead" else row.text
                grouped.setdefault((text, as_cuda(row.name)), []).append(f"`{row.name}`")
        lines += [f"| {', '.join(group)} | {text} | {cuda} |" for (text, cuda), group in grouped.items()]
    lines += [
        "",
        "## What refuses by the name cuda",
        "",
        "These names of `torch.cuda`, `torch.backends.cuda` and `torch.backends.cudnn` raise an error. The calls",
        "that raise are in `tests/cuda/cuda_rows.py`.",
        "",
        "| name | raises |",
        "|---|---|",
    ]
    refusals: dict[str, list[str]] = {}
    for name in public_names():
        if as_cuda(name) == "refuses":
            refusals.setdefault(cuda_rows.REFUSES[cuda_rows.row_of(name)][1], []).append(f"`{name}`")
    lines += [f"| {', '.join(group)} | {text} |" for text, group in refusals.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
