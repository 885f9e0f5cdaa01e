"""Runs within the program of the command dry: makes one change to the program, for the option --try.

`import torch` imports this module if the command has set its variable. Each change uses a hook of PyTorch's for all
modules or all optimizers, so the program and PyTorch stay as they are.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from torch_openreg.simulator._dry_changes import checked

changed: Counter[str] = Counter()
"""What has been changed: the names of types, and how many objects."""

_seen: weakref.WeakSet[nn.Module] = weakref.WeakSet()


# ---- Modules


def _before_first_call(change: Callable[[nn.Module], None]) -> None:
    """Calls ``change`` with each module that is called and is no part of one that was called before."""

    def hook(module: nn.Module, _: object) -> None:
        if torch.compiler.is_compiling() or module in _seen:
            return
        _seen.update(module.modules())
        change(module)

    register_module_forward_pre_hook(hook)


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(forward, *args, use_reentrant=False, **kwargs)


def _checkpoint_blocks(module: nn.Module) -> None:
    """Checkpoints the outermost repeated blocks. A model of transformers does this itself."""
    if getattr(module, "supports_gradient_checkpointing", False):
        module.gradient_checkpointing_enable()  # type: ignore[operator]
        changed[type(module).__name__] += 1
        return
    is_container = isinstance(module, (nn.ModuleDict, nn.ModuleList, nn.Sequential))
    of_type = Counter(type(child) for child in module.children())
    for child in module.children():
        if getattr(child.forward, "func", None) is _recomputed:  # by the call of a part of the model
            continue
        if is_container and of_type[type(child)] > 1 and any(child.children()):
            child.forward = functools.partial(_recomputed, child.forward)
            changed[type(child).__name__] += 1
        else:
            _checkpoint_blocks(child)


def _keep_unsharded(module: nn.Module) -> None:
    """Lets the modules of FSDP2 keep their whole parameters from forward to backward."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # a program without FSDP has not imported it
    for each in module.modules() if fsdp else ():
        if isinstance(each, fsdp.FSDPModule):  # type: ignore[union-attr]
            each.set_reshard_after_forward(False, recurse=False)
            changed[type(each).__name__] += 1


# ---- Optimizers


def _let_optimizers(name: str, value: bool) -> None:
    """Sets ``fused`` or ``foreach`` before an optimizer's first step, as its constructor would. If the program chose one
    of the two itself, or the optimizer has state already, nothing is changed."""

    def hook(optimizer: torch.optim.Optimizer, *_: object) -> None:
        groups = [group for group in optimizer.param_groups if name in group]
        is_chosen = any(group.get(each) is not None for group in groups for each in ("fused", "foreach"))
        if not groups or is_chosen or optimizer.state:
            return
        for group in groups:
            group[name] = value
        if name == "fused":
            optimizer._step_supports_amp_scaling = value  # type: ignore[attr-defined]
        changed[type(optimizer).__name__] += 1

    register_optimizer_step_pre_hook(hook)


_START: dict[str, Callable[[], None]] = {
    "checkpoint": lambda: _before_first_call(_checkpoint_blocks),
    "fused=True": lambda: _let_optimizers("fused", True),
    "foreach=False": lambda: _let_optimizers("foreach", False),
    "reshard_after_forward=False": lambda: _before_first_call(_keep_unsharded),
}

if _change := os.environ.get("OPENREG_DRY_CHANGE", "").strip():
    del os.environ["OPENREG_DRY_CHANGE"]  # not for the processes that the program starts
    _START[checked(_change)]()
