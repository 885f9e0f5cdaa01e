"""Functions of PyTorch that this package replaces. Each replacement is a row of a table, and apply() applies the rows.

UPSTREAM.md shows all rows. A sub-package has its rows in a file _upstream.py. A row wraps or replaces a whole function,
method, class or value: it copies no code of PyTorch's, and changes nothing within PyTorch's function. What PyTorch has a
registration for is registered, and is no row.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from torch_openreg._identity import identity


class Replaced(NamedTuple):
    """One row.

    Args:
        owner: a module, ``module:class``, or ``module:dict``.
        name: the attribute of the owner; for a dict the path of the key.
        ours: the path of the replacement. A wrapper is called with PyTorch's function, and then with its arguments.
        why: what goes wrong without the row.
        hook: what PyTorch would need, so that the row could go.
        wraps: whether `ours` is a wrapper. Otherwise it is the new value.
    """

    owner: str
    name: str
    ours: str
    why: str
    hook: str
    wraps: bool = True


def apply(rows: Iterable[Replaced]) -> None:
    """Replaces what the rows name. A wrapper that is there already is not put there again."""
    for row in rows:
        owner = resolve_name(row.owner)
        if isinstance(owner, MutableMapping):
            key = resolve_name(row.name)
            owner[key] = _wrapped(owner[key], row.ours) if row.wraps else resolve_name(row.ours)
        else:
            value = _wrapped(getattr(owner, row.name), row.ours) if row.wraps else resolve_name(row.ours)
            setattr(owner, row.name, value)


def _wrapped(original: Callable[..., Any], path: str) -> Callable[..., Any]:
    if getattr(original, "_torch_openreg", None) == path:
        return original
    ours = functools.cache(lambda: resolve_name(path))  # imported at the first call

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return ours()(original, *args, **kwargs)

    call._torch_openreg = path  # type: ignore[attr-defined]
    return call


# What the entry point replaces, before there is a table (torch_openreg_autoload.py), and what a failed start replaces.
ELSEWHERE = (
    Replaced(
        "torch._logging",
        "_init_logs",
        "torch_openreg_autoload:_autoload",
        "PyTorch calls the backends in the order of the file system. PrivateUse1 has one owner, and most "
        "backends raise "
        "for a second one. Until the end of `import torch`, this function loads the backend first.",
        "an order or a priority in the group torch.backends, or a call after the last backend",
    ),
    Replaced(
        "torch._C",
        "_accelerator_getAccelerator",
        "torch_openreg._failure:stand_in",
        "A backend that could not start has claimed the device's name, so that a use of the device "
        "explains the failure. "
        "PyTorch would take it for an accelerator, in programs for the CPU too. Only after a failed start.",
        "a way to say that the device of PrivateUse1 is not available",
        wraps=False,
    ),
    Replaced(
        "torch.distributed:Backend",
        "_plugins",
        "torch_openreg._loader:register_distributed",
        "PyTorch 2.13 keeps the names of backends in capital letters, and looks for the default of "
        '"cpu:gloo,openreg:occl" '
        "in small letters. Without a default, the end of each such group prints a warning.",
        "one spelling of the names",
        wraps=False,
    ),
)
RNG_STATE = tuple(
    Replaced(
        owner,
        name,
        f"torch_openreg._dynamo:{ours}",
        "For factories, and for tracing, PyTorch chooses how to get the state of the generator by the device's name, "
        "from a list.",
        "the list is a registry, as register_graphsafe_rng_device_type is",
    )
    for owner, name, ours in (
        (
            "torch._prims.rng_prims:run_and_save_rng_state.py_kernels",
            "torch._C:DispatchKey.BackendSelect",
            "run_and_save",
        ),
        (
            "torch._prims.rng_prims:run_and_save_rng_state.python_key_table",
            "torch.fx.experimental.proxy_tensor:ProxyTorchDispatchMode",
            "trace_run_and_save",
        ),
        (
            "torch._higher_order_ops.utils:registered_hop_fake_fns",
            "torch._prims.rng_prims:run_and_save_rng_state",
            "run_and_save",
        ),
        ("torch._prims.rng_prims:run_with_rng_state.py_kernels", "torch._C:DispatchKey.BackendSelect", "run_with"),
    )
)
AT_START = (
    *(
        Replaced(
            "torch:Tensor",
            name,
            f"torch_openreg.openreg._tensor_methods:{name.strip('_')}",
            why,
            "the method asks the device's module, as it asks torch.cuda",
        )
        for name, why in (
            ("__dlpack__", "PyTorch orders the consumer's stream after the producer's for CUDA only."),
            ("__dlpack_device__", 'PyTorch knows the device as "privateuseone", and not by its name.'),
            ("__deepcopy__", "PyTorch does not copy the backend's metadata of a tensor."),
        )
    ),
    Replaced(
        "torch.amp",
        "custom_fwd",
        "torch_openreg.openreg.amp:custom_fwd_with_hint",
        'custom_fwd(device_type="cuda") silently does nothing while the autocast of another device is on.',
        "custom_fwd takes the type of its arguments, or warns",
    ),
)
DISTRIBUTED = (
    Replaced(
        "torch.distributed:ProcessGroup",
        "_register_backend",
        "torch_openreg.distributed:_register_backend_as_default",
        "Without a name of a backend and a device, PyTorch makes gloo the default backend of a group that has no gloo.",
        "the default is the backend that was registered for the accelerator",
    ),
)
OPTIMIZERS = (
    Replaced(
        "torch._dynamo.variables.optimizer:OptimizerVariable",
        "_set_capturable",
        "torch_openreg._dynamo:set_capturable",
        "Before dynamo traces an optimizer without state, it sets `capturable` in each group of parameters "
        "that are all on "
        "CUDA or XPU, by is_cuda and is_xpu.",
        "dynamo asks for the accelerator",
    ),
)
DTENSOR = (
    Replaced(
        "torch.distributed.tensor._random:OffsetBasedRNGTracker",
        "_distribute_region",
        "torch_openreg._dtensor:distribute_region",
        "PyTorch gives every shard a part of one sequence, by the offset of a Philox generator. This "
        "device's generator is a "
        "Mersenne twister, which cannot skip numbers.",
        "a registry of trackers, by the type of the device",
    ),
    Replaced(
        "torch._prims.rng_prims:run_dtensor_rng_op.py_kernels",
        "torch._C:DispatchKey.BackendSelect",
        "torch_openreg._dtensor:select",
        "Without a generator from the program, PyTorch calls this operator instead: up to 2.14 for CUDA "
        "only, since 2.15 for "
        "every accelerator. A call from a program goes to BackendSelect.",
        "the same registry",
    ),
    Replaced(
        "torch._prims.rng_prims:run_dtensor_rng_op.py_kernels",
        f"torch._C:DispatchKey.{identity.dispatch_key}",
        "torch_openreg._dtensor:run_as_shard",
        "A call after the choice of the backend goes to the device's key.",
        "the same registry",
        wraps=False,
    ),
)


def all_rows() -> dict[str, tuple[Replaced, ...]]:
    """The rows by the folder that has them."""
    rows = {"torch_openreg": ELSEWHERE + AT_START + RNG_STATE + DISTRIBUTED + OPTIMIZERS + DTENSOR}
    for path in sorted(Path(__file__).parent.glob("*/**/_upstream.py")):
        folder = path.parent.relative_to(Path(__file__).parents[1]).as_posix()
        rows[folder] = importlib.import_module(f"{folder.replace('/', '.')}._upstream").ROWS
    return rows
