"""Writes docs/bring-up/device-module.md: `python -m tests.book.device_module`, or `make device-module`.

For each name of the device's module that PyTorch asks for, a child process hides that name and runs the programs
below. The first child hides nothing, and records which file of PyTorch asks for which name.
"""

from __future__ import annotations

import io
import multiprocessing
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed._tools.memory_tracker import MemoryTracker
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor import rand as distributed_rand
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

DOCUMENT = Path(__file__).parents[2] / "docs" / "bring-up" / "device-module.md"
PACKAGES = f"{Path(torch.__file__).parents[1]}/"
LAZY_INIT = "torch/csrc/utils/device_lazy_init.h"

ALL = "no names at all"

PROGRAMS: dict[str, Callable[[str], object]] = {}


def program(name: str) -> Callable[[Callable[[str], object]], None]:
    """Adds a program. It gets the device's name, and raises if the device cannot do what `name` says."""

    def add(run: Callable[[str], object]) -> None:
        PROGRAMS[name] = run

    return add


@program("the first tensor")
def _(device: str) -> None:
    assert torch.ones(2, device=device).tolist() == [1, 1]


@program("`torch.accelerator.is_available()`, `device_count()`")
def _(device: str) -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() > 0


@program("`torch.manual_seed()`, `torch.seed()`")
def _(device: str) -> None:
    drawn = []
    with warnings.catch_warnings(action="error"):
        for _ in range(2):
            torch.manual_seed(3)
            drawn.append(torch.rand(2, device=device).tolist())
        torch.seed()
    assert drawn[0] == drawn[1], "other numbers after the same seed"


@program("`torch.random.fork_rng()`")
def _(device: str) -> None:
    with warnings.catch_warnings(action="ignore"), torch.random.fork_rng(device_type=device):
        first = torch.rand(2, device=device).tolist()
    assert first == torch.rand(2, device=device).tolist(), "other numbers after the block"


@program("`torch.autocast`")
def _(device: str) -> None:
    with torch.autocast(device, dtype=torch.bfloat16):
        x = torch.ones(2, 2, device=device)
        assert (x @ x).dtype == torch.bfloat16


@program("`torch.load` of a tensor of the device")
def _(device: str) -> None:
    file = io.BytesIO()
    torch.save(torch.ones(2, device=device), file)
    file.seek(0)
    assert torch.load(file).device.type == device


@program('`torch.load(map_location="NAME:1")`')
def _(device: str) -> None:
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    assert torch.load(file, map_location=f"{device}:1").device.index == 1
    file.seek(0)
    try:
        torch.load(file, map_location=f"{device}:99")
    except RuntimeError:
        pass
    else:
        raise AssertionError("device 99 exists")


@program("`x.NAME()`, `module.NAME()`, `x.is_NAME`")
def _(device: str) -> None:
    assert getattr(getattr(torch.ones(2), device)(), f"is_{device}")
    assert next(getattr(nn.Linear(2, 2), device)().parameters()).device.type == device


@program("storages: `x.storage()`, `storage.NAME()`, `pickle_storage_type()`")
def _(device: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        storage = torch.ones(2).storage()
        assert getattr(storage, device)().device.type == device
        assert torch.ones(2, device=device).storage().pickle_storage_type() == "FloatStorage"
        assert torch.ones(2, device=device).type() == f"torch.{device}.FloatTensor"


@program("`torch.utils.checkpoint` with dropout")
def _(device: str) -> None:
    for reentrant in (False, True):
        x = torch.ones(64, device=device, requires_grad=True)
        y = checkpoint(nn.functional.dropout, x, use_reentrant=reentrant)
        y.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad.cpu(), y.detach().cpu()), "the recomputation drew other numbers"


@program("`save_on_cpu(pin_memory=True)`")
def _(device: str) -> None:
    x = torch.ones(2, device=device, requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True, device_type=device):
        y = (x * x).sum()
    y.backward()


@program("fake tensors")
def _(device: str) -> None:
    with torch._subclasses.FakeTensorMode():
        assert torch.empty(2, device=device).device.index == 0


@program("replayed random operators of compiled graphs")
def _(device: str) -> None:
    from torch._functorch._aot_autograd import utils
    from torch._prims.rng_prims import graphsafe_run_with_rng_state

    generator = utils.get_default_generator(torch.device(device, 0))
    x = torch.ones(4, device=device)
    graphsafe_run_with_rng_state(torch.ops.aten.bernoulli.p, x, 0.5, rng_state=generator.clone_state())
    utils.get_device_rng_state(torch.device(device, 0))


@program("`torch.autograd.profiler.profile`")
def _(device: str) -> None:
    with torch.autograd.profiler.profile(use_device=device):
        torch.ones(2, device=device)


@program("`nn.DataParallel` with all devices")
def _(device: str) -> None:
    assert len(nn.DataParallel(nn.Linear(2, 2).to(device)).device_ids) == torch.accelerator.device_count()


@program("`init_process_group`")
def _(device: str) -> None:
    dist.init_process_group(f"cpu:gloo,{device}:occl", store=dist.HashStore(), rank=0, world_size=1)


@program("`init_device_mesh`")
def _(device: str) -> None:
    assert dist.init_device_mesh(device, (1,)).size() == 1


@program("DTensor: sharding, random numbers")
def _(device: str) -> None:
    mesh = dist.init_device_mesh(device, (1,))
    assert distribute_tensor(torch.ones(4), mesh).device.type == device
    assert distributed_rand(4, device_mesh=mesh).device.type == device


def _train(model: nn.Module, device: str) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.ones(2, 4, device=device)).sum().backward()
    optimizer.step()


@program("DDP")
def _(device: str) -> None:
    _train(DistributedDataParallel(nn.Linear(4, 4).to(device)), device)


@program("FSDP2: `fully_shard`")
def _(device: str) -> None:
    model = nn.Linear(4, 4)
    fully_shard(model, mesh=dist.init_device_mesh(device, (1,)))
    _train(model, device)


@program("FSDP1: `FullyShardedDataParallel`")
def _(device: str) -> None:
    with warnings.catch_warnings(action="ignore"):
        _train(FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device(device, 0)), device)


@program("`torch.distributed.checkpoint`")
def _(device: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = {"x": torch.ones(2, device=device), "y": torch.ones(3, device=device)}
        with warnings.catch_warnings(action="ignore"):
            dcp.save(state, checkpoint_id=folder)
            dcp.load(state, checkpoint_id=folder)


@program("`MemoryTracker`")
def _(device: str) -> None:
    # The last program: if it fails, the tracker's hooks stay.
    tracker, model = MemoryTracker(), nn.Linear(2, 2).to(device)
    tracker.start_monitor(model)
    model(torch.ones(1, 2, device=device))
    tracker.stop()


class Hiding(ModuleType):
    """A device's module without the name `hidden`, or ALL. `_asked` gets each name that PyTorch asks for, and the file."""

    def __init__(self, module: ModuleType, hidden: str) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(_module=module, _hidden=hidden, _asked=set())

    def __getattr__(self, name: str) -> Any:
        if self._hidden in (name, ALL):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(self._module, name)  # the real module's AttributeError, if it has no such name
        file = sys._getframe(1).f_code.co_filename
        if file.startswith(f"{PACKAGES}torch/"):
            self._asked.add((name, file.removeprefix(PACKAGES)))
        elif name == "_lazy_init":  # from C++: the frame is that of the caller of an operator
            self._asked.add((name, LAZY_INIT))
        return value


def without(hidden: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """What a device without the name `hidden`, or ALL, cannot do: program -> error; and who asked for which name.

    Runs in a child of this process, which must not have started the device.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(_run, hidden).result()


def _run(hidden: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    device = str(torch.accelerator.current_accelerator())
    module = Hiding(getattr(torch, device), hidden)
    setattr(torch, device, module)
    sys.modules[f"torch.{device}"] = module
    torch.get_device_module.cache_clear()
    broken = {}
    for name, run in PROGRAMS.items():
        try:
            run(device)
        except BaseException as error:  # the CheckpointException of torch.distributed is no Exception
            broken[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return broken, sorted(module._asked)


HEAD = """# The Python device module, name by name

`torch._register_device_module(NAME, module)` makes a module the attribute torch.NAME. PyTorch finds a device's functions there by their names, with
`getattr`. A name that is missing is found out late: the code that needs the name raises, or takes another way without a word. This page says which names
PyTorch asks for, which of its files ask, and what breaks if one name is missing.

The page is written by a program, `tests/book/device_module.py`. A child process replaces the module of this device by one that hides a single name, and runs
{count} programs. Each program checks its own results. The first child hides nothing, and records who asks. `make device-module` writes the page again. The
results are for PyTorch 2.13.

"""

TABLE = """## The names

A program of `tests/book/device_module.py` is named by what it uses. All other names of `torch.cuda`, such as
`get_device_name` or `max_memory_allocated`, are for programs: the ones here reach no code of PyTorch that asks for
them. `torch.accelerator` needs only two names of the module, because its other functions ask the device guard
([](device.md)) and the allocator ([](memory.md)). PyTorch calls `_lazy_init` before the first tensor if there is one;
this device also starts without it, at its first allocation.

| name | asked by | without it |
|---|---|---|"""

ERRORS = """## What the user sees

Most failures are an AttributeError that has the missing name. These are the others, each with the missing name, the program and the error:
"""

CODE = """## The code

The functions that are defined in the module itself are in `torch_openreg/openreg/__init__.py`; the others are in modules beside it, and are loaded at their
first use. `examples/minimal_backend/src/torch_abacus/abacus.py` has the few that a first network needs ([](from-minimal.md)).

## How to check that it works

The module of a device is the same object under each of its names:

```python
>>> import torch
>>> torch.get_device_module("openreg") is torch.get_device_module() is torch.openreg
True

```

## Common mistakes

Each entry names a mistake first, and then its consequence or the remedy.

- **The module has no context manager `device`.** Tensors can be made and saved, and `torch.load` raises.
- **The module has no `_is_in_bad_fork` or no `manual_seed_all`.** `torch.manual_seed` warns and leaves the device's generator alone, so each run draws other
  numbers.
- **`get_amp_supported_dtype` is missing.** Programs that never use autocast fail too: `torch.utils.checkpoint` opens autocast for the device.
- **`is_available` starts the device.** `torch.accelerator.is_available()` calls it in processes that fork later.
- **`_initialized` is missing.** Checkpoints of activations ask for this variable before they keep the generator's state. Without it, dropout draws other numbers
  in the recomputation, and the gradients are wrong without an error.
"""


def document() -> str:
    """Hides name after name, and returns the text of the page."""
    nothing, asked = without("")
    assert not nothing, nothing
    askers: dict[str, list[str]] = {}
    for name, file in asked:
        askers.setdefault(name, []).append(file)
    found = {name: without(name)[0] for name in (*sorted(askers), ALL)}
    lines = [HEAD.format(count=len(PROGRAMS)) + TABLE]
    for name, files in askers.items():
        shown = ", ".join(f"`{file}`" for file in files[:2]) + (f" and {len(files) - 2} more" if files[2:] else "")
        lines.append(f"| `{name}` | {shown} | {'; '.join(found[name]) or 'nothing that these programs do'} |")
    lines.append(f"| {ALL} | - | {len(found[ALL])} of the {len(PROGRAMS)} programs |")
    lines += ["", ERRORS]
    for name in askers:
        for program_name, error in found[name].items():
            if "AttributeError: module " not in error:
                text = f"- `{name}`, {program_name}: {error}"
                lines.append(textwrap.shorten(text, 450, placeholder=" ..."))
    lines += ["", CODE]
    return "\n".join(lines)


def main() -> None:
    """Writes the page."""
    DOCUMENT.write_text(document())


if __name__ == "__main__":
    main()
