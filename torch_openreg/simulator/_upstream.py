"""Functions of PyTorch that this folder replaces: rows of torch_openreg._upstream."""

from __future__ import annotations

from torch_openreg._upstream import Replaced

# From the choice of a device model without float64.
WITHOUT_FLOAT64 = (
    Replaced(
        "torch._tensor_str",
        "tensor_totype",
        "torch_openreg.openreg.models:print_in_float32",
        "PyTorch prints in float64, except on devices that it knows by name. A device model may lack float64.",
        "the device's capabilities say whether it has float64",
    ),
    Replaced(
        "torch.amp.grad_scaler:GradScaler",
        "unscale_",
        "torch_openreg.openreg.models:unscale_in_float32",
        "PyTorch computes the reciprocal of the scale in float64, except on a device named mps.",
        "the device's capabilities say whether it has float64",
    ),
)
# While the sanitizer runs.
READERS = tuple(
    Replaced(
        "torch:Tensor",
        name,
        "torch_openreg.openreg.sanitizer:_telling",
        "This method gives the bytes of a CPU tensor to code that calls no operator: the sanitizer must see the read.",
        "a callback for accesses of the host",
    )
    for name in ("numpy", "tolist", "__reduce_ex__")
)
_OTHER_RANKS = "a way to run one rank alone: the process group `fake` has it for tensors only"


def _world_row(owner: str, name: str, ours: str, why: str) -> Replaced:
    return Replaced(owner, name, f"torch_openreg.openreg._dry_world:{ours}", why, _OTHER_RANKS)


# While dry execution simulates one rank of a world.
WORLD = (
    _world_row(
        "torch.distributed.rendezvous",
        "_create_c10d_store",
        "make_store",
        "The store on MASTER_ADDR would wait for the process of rank 0.",
    ),
    _world_row(
        "torch.distributed.distributed_c10d",
        "_new_process_group_helper",
        "make_group",
        "A group of gloo would wait for the other ranks.",
    ),
    _world_row(
        "torch.distributed:ProcessGroup",
        "_register_backend",
        "register_backend",
        "A group has one backend of the kind CUSTOM, and would use `fake` for the device too.",
    ),
    _world_row("torch.distributed:ProcessGroup", "split_group", "split_group", "A group `fake` cannot be split."),
    _world_row(
        "torch.distributed:ProcessGroup",
        "monitored_barrier",
        "monitored_barrier",
        "A group `fake` has no such barrier.",
    ),
    *(
        _world_row(owner, name, name, "The bytes of another rank's object do not exist, so they cannot be unpickled.")
        for name in (
            "all_gather_object",
            "gather_object",
            "broadcast_object_list",
            "scatter_object_list",
            "recv_object_list",
        )
        for owner in ("torch.distributed", "torch.distributed.distributed_c10d")
    ),
)
WORLD_CHECKPOINTS = (
    _world_row(
        "torch.distributed.checkpoint.utils:_DistWrapper",
        "__init__",
        "make_wrapper",
        "The plan of a checkpoint is made from the plans of all ranks, which must cover each tensor.",
    ),
)
WORLD_PIPELINES = tuple(
    _world_row(
        "torch.distributed.pipelining.stage:PipelineStage",
        name,
        ours,
        "The stages of other ranks tell this stage the shapes of what it receives.",
    )
    for name, ours in (
        ("_warmup_forward_vote", "vote"),
        ("_warmup_backward_result", "result_of_vote"),
        ("_recv_meta", "shapes_from"),
        ("_send_meta", "tell_shapes"),
    )
)
# In dry execution. The functions are of libraries that load weights.
WEIGHTS = (
    Replaced(
        "safetensors",
        "safe_open",
        "torch_openreg.openreg._dry_weights:safe_open",
        "safetensors refuses a file that ends after its header. In dry execution, the header has all that is needed.",
        "a way to read a header alone",
    ),
)
MODELS = (
    Replaced(
        "transformers.modeling_utils",
        "_get_resolved_checkpoint_files",
        "torch_openreg.openreg._dry_weights:checkpoint_files",
        "transformers refuses a folder without weights. In dry execution, the shapes of config.json are enough.",
        "from_pretrained() for a config",
    ),
)
_HOLES = "In dry execution weights are zeros of any size, which would fill the disk. Here they are holes of the file."
SAVES = (
    Replaced(
        "torch.serialization",
        "_open_zipfile_writer",
        "torch_openreg.openreg._dry_saves:open_writer",
        _HOLES,
        "a storage without bytes that is written as a hole",
    ),
)
SAVES_OF_CHECKPOINTS = (
    Replaced(
        "torch.distributed.checkpoint.filesystem:FileSystem",
        "create_stream",
        "torch_openreg.openreg._dry_saves:create_stream",
        _HOLES,
        "a storage without bytes that is written as a hole",
    ),
)
SAVES_OF_SAFETENSORS = (
    Replaced(
        "safetensors.torch",
        "save_file",
        "torch_openreg.openreg._dry_saves:save_file",
        _HOLES,
        "a tensor without bytes that is written as a hole",
    ),
)
ROWS = (
    WITHOUT_FLOAT64
    + READERS
    + WORLD
    + WORLD_CHECKPOINTS
    + WORLD_PIPELINES
    + WEIGHTS
    + MODELS
    + SAVES
    + SAVES_OF_CHECKPOINTS
    + SAVES_OF_SAFETENSORS
)
