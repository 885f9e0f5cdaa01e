"""One rank of a simulated world, in dry execution: no other process exists, and the program does not notice.

`import torch` imports this module if OPENREG_DRY_WORLD says how many ranks the world has. RANK says which of them this
process is. The device's process groups are made as always, but dry execution answers their collectives. PyTorch's process
group ``fake`` takes the place of gloo. The functions here take the place of those that would wait for another rank, or
need an object that only another rank has: rows of torch_openreg.simulator._upstream.
"""

from __future__ import annotations

import atexit
import copy
import functools
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # registers the backend "fake", as start() does
from torch._C._distributed_c10d import FakeProcessGroup
from torch.distributed import distributed_c10d

from torch_openreg import _C, _upstream
from torch_openreg._identity import device_type
from torch_openreg._loader import when_imported
from torch_openreg.simulator import _upstream as rows

# Internal: the file in which a process that this module starts tells the shapes of a stage's inputs.
TOLD = "_TORCH_OPENREG_DRY_TOLD"


def start(size: int, rank: int) -> None:
    """Makes this process the rank ``rank`` of ``size``. Sets the variables that torchrun sets."""
    if not 0 <= rank < size:
        raise ValueError(f"RANK is {rank}, but OPENREG_DRY_WORLD is {size}. Set RANK to a number from 0 to {size - 1}.")
    local_size = min(_C._get_device_count(), size)
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": rank % local_size,
        "LOCAL_WORLD_SIZE": local_size,
        "GROUP_RANK": rank // local_size,
        "GROUP_WORLD_SIZE": -(-size // local_size),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }
    os.environ |= {name: str(number) for name, number in numbers.items()}
    os.environ |= {"ROLE_NAME": "default", "TORCHELASTIC_RUN_ID": "none"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    # The group stands for gloo, which refuses the device's tensors.
    devices = [each for each in dist.Backend.backend_capability[dist.Backend.FAKE] if each != device_type]
    dist.Backend.register_backend(dist.Backend.FAKE, make_fake, extended_api=True, devices=devices)
    _C._dry_start_world(local_size)  # type: ignore[attr-defined]
    _upstream.apply(rows.WORLD)
    when_imported(
        [
            ("torch.distributed.checkpoint.utils", f"{__name__}:plan_alone"),
            ("torch.distributed.pipelining.stage", f"{__name__}:know_stages"),
        ]
    )


# ---- Groups


def make_store(original: Callable[..., dist.Store], *args: Any, **kwargs: Any) -> dist.Store:
    """A store that other processes do not see, in place of one on MASTER_ADDR."""
    return dist.HashStore()


def make_group(
    original: Callable[..., Any], size: int, rank: int, ranks: list[int], backend: str, *args: Any, **kwargs: Any
) -> Any:
    """As PyTorch's function, with the group ``fake`` for the devices that have gloo. The group keeps its own name."""
    _C._dry_set_ranks_of_next_group(list(ranks))  # type: ignore[attr-defined]
    asked = distributed_c10d.BackendConfig(dist.Backend(backend))
    devices = asked.get_device_backend_map()
    if dist.Backend.GLOO not in devices.values():
        return original(size, rank, ranks, backend, *args, **kwargs)
    own = dist.Backend.default_device_backend_map[device_type]
    taken = {
        device: name if name != dist.Backend.GLOO else own if device == device_type else dist.Backend.FAKE
        for device, name in devices.items()
    }
    only_fake = {*taken.values()} == {dist.Backend.FAKE}
    names = dist.Backend.FAKE if only_fake else ",".join(map(":".join, taken.items()))
    group, store = original(size, rank, ranks, names, *args, **kwargs)
    if group is not dist.GroupMember.NON_GROUP_MEMBER:
        if only_fake:
            group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        distributed_c10d._world.pg_map[group] = (dist.Backend(backend), store)
        distributed_c10d._world.pg_backend_config[group] = str(asked)
    return group, store


def make_fake(options: Any, pg_options: Any) -> FakeProcessGroup:
    """As PyTorch's function, but accepts the options of another backend of the same group, as gloo does."""
    own = (pg_options,) if isinstance(pg_options, FakeProcessGroup.Options) else ()
    return FakeProcessGroup._create_internal(options.group_rank, options.group_size, *own)


def register_backend(
    original: Callable[..., None], group: dist.ProcessGroup, device: torch.device, kind: Any, backend: Any = None
) -> None:
    """As PyTorch's method. A group ``fake`` counts as gloo: a group has one backend of the kind CUSTOM, and that is occl."""
    original(
        group, device, dist.ProcessGroup.BackendType.GLOO if isinstance(backend, FakeProcessGroup) else kind, backend
    )


def split_group(original: Callable[..., Any], parent: dist.ProcessGroup, ranks: Sequence[int], **kwargs: Any) -> Any:
    """As PyTorch's method. The new group has a new group ``fake`` for the CPU: such a group cannot be split."""
    cpu = torch.device("cpu")
    of_world = dist.get_process_group_ranks(parent)
    _C._dry_set_ranks_of_next_group([of_world[each] for each in ranks])  # type: ignore[attr-defined]
    devices = kwargs.pop("device_types", None) or parent._device_types
    group = original(parent, ranks, device_types=[each for each in devices if each != cpu], **kwargs)
    if group is not None and cpu in devices:
        name, description = group.group_name, group.group_desc  # PyTorch asks the backend of the first device for them
        of_cpu = FakeProcessGroup._create_internal(group.rank(), group.size())
        group._register_backend(cpu, dist.ProcessGroup.BackendType.GLOO, of_cpu)
        group._set_group_name(name)
        group._set_group_desc(description)
    return group


def monitored_barrier(original: Callable[..., None], group: dist.ProcessGroup, *args: Any, **kwargs: Any) -> None:
    """Waits for nobody."""


# ---- Objects


def all_gather_object(original: Callable[..., None], object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Every rank has given this rank's object."""
    for index in range(dist.get_world_size(group)):
        object_list[index] = copy.deepcopy(obj)


def gather_object(
    original: Callable[..., None], obj: Any, object_gather_list: list[Any] | None = None, *args: Any, **kwargs: Any
) -> None:
    """Every rank has given this rank's object."""
    for index in range(len(object_gather_list or ())):
        object_gather_list[index] = copy.deepcopy(obj)  # type: ignore[index]


def broadcast_object_list(original: Callable[..., None], object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    """The source has sent this rank's objects."""


def scatter_object_list(
    original: Callable[..., None],
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """The source has sent what this rank would send to itself. Without that, the output stays."""
    if scatter_object_input_list:
        scatter_object_output_list[0] = scatter_object_input_list[dist.get_rank(group)]


def recv_object_list(
    original: Callable[..., int], object_list: list[Any], src: int | None = None, *args: Any, **kwargs: Any
) -> int:
    """The source has sent this rank's objects."""
    return src or 0


# ---- Checkpoints and pipelines


def plan_alone(_: ModuleType) -> None:
    _upstream.apply(rows.WORLD_CHECKPOINTS)


def make_wrapper(
    original: Callable[..., None], wrapper: Any, group: Any, use_dist: bool, coordinator_rank: int
) -> None:
    """As PyTorch's method. Each rank plans and writes its own part alone, as without process groups."""
    original(wrapper, group, False, coordinator_rank)


def know_stages(_: ModuleType) -> None:
    _upstream.apply(rows.WORLD_PIPELINES)


def vote(
    original: Callable[..., Any], stage: Any, has_backward: bool, received_acc: torch.Tensor | None = None
) -> torch.Tensor:
    """This rank's vote whether all shapes are known before the first step. The other ranks agree."""
    from torch.distributed.pipelining._utils import InferenceMode

    is_known = not InferenceMode.needs_dynamic(stage._user_meta, has_backward)
    own = torch.tensor([int(is_known)], dtype=torch.int32, device=stage.device)
    return own if received_acc is None else received_acc * own


def result_of_vote(original: Callable[..., Any], stage: Any, received_result: torch.Tensor) -> torch.Tensor:
    return received_result


def shapes_from(original: Callable[..., Any], stage: Any, other: int) -> Any:
    """What another rank's stage would tell: the shapes of this stage's inputs, or of the gradients of its outputs."""
    from torch.distributed.pipelining import _utils

    if other > stage.stage_index:
        return _utils._StageBackwardMeta(_utils._derive_grad_metas(stage._stage_meta.outputs))
    if stage._user_meta.inputs is not None:
        return _utils._StageForwardMeta(stage._user_meta.inputs)
    told = _shapes().joinpath(str(stage.stage_index))
    if not told.exists():
        _run_until_told(told, stage._resolve_peer_global_rank(other))
    return pickle.loads(told.read_bytes())


def tell_shapes(original: Callable[..., None], stage: Any, meta: Any, other: int) -> None:
    """Writes the shapes of this stage's outputs. Ends a process that was started for them."""
    if other > stage.stage_index:
        told = _shapes().joinpath(str(other))
        told.write_bytes(pickle.dumps(meta))
        if os.environ.get(TOLD) == str(told):
            os._exit(0)


@functools.cache
def _shapes() -> Path:
    """The folder with a file for each stage, which has the shapes of the stage's inputs."""
    if told := os.environ.get(TOLD):
        return Path(told).parent
    folder = tempfile.TemporaryDirectory(prefix="openreg-dry-shapes-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def _run_until_told(told: Path, rank: int) -> None:
    """Runs the program as the rank that has the stage before, until that stage knows the shapes of its outputs."""
    environment = os.environ | {"RANK": str(rank), TOLD: str(told)}
    done = subprocess.run(
        [sys.executable, *sys.orig_argv[1:]],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if not told.exists():
        raise RuntimeError(
            f"The shapes of the inputs of stage {told.name} come from rank {rank}, which ended with status "
            f"{done.returncode} and did not tell them. Give PipelineStage the argument input_args, or see what the rank "
            f"printed:\n{done.stderr}"
        )


if _size := os.environ.get("OPENREG_DRY_WORLD", "").strip():
    start(int(_size), int(os.environ.get("RANK", "0")))
