"""Parallel training that runs on real ranks, and on one rank of a simulated world; each program returns the peak of each
step. Usage: dry_world_programs.py NAME..."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from dry_programs import DEVICE, GPT, Step, peaks, squares, step_of
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def gpt() -> GPT:
    torch.manual_seed(0)
    return GPT().to(DEVICE)


def training(model: nn.Module, parameters: Any) -> Step:
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    tokens = torch.randint(512, (4, 65)).to(DEVICE)

    return step_of(
        model, optimizer, lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    )


def ddp(**options: Any) -> Step:
    model = DistributedDataParallel(gpt(), **options)
    return training(model, model.parameters())


def fsdp(*sizes: int) -> Step:
    """FSDP2, or HSDP for two sizes."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    names = ("replicate", "shard")[-len(sizes or (1,)) :]
    mesh = init_device_mesh(DEVICE.type, sizes or (dist.get_world_size(),), mesh_dim_names=names)
    model = gpt()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in list(model.blocks)[:-1]:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return training(model, model.parameters())


def fsdp1() -> Step:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = gpt()
    for index, block in enumerate(list(model.blocks)[:-1]):
        model.blocks[index] = FullyShardedDataParallel(
            block, device_id=torch.accelerator.current_device_index(), use_orig_params=True
        )
    model = FullyShardedDataParallel(model, device_id=torch.accelerator.current_device_index(), use_orig_params=True)
    return training(model, model.parameters())


def tensor_parallel(*, sequence: bool = False) -> Step:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor import parallel as tp

    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
    torch.manual_seed(0)
    layers = [
        ("norm", nn.LayerNorm(128)),
        ("up", nn.Linear(128, 512)),
        ("gelu", nn.GELU()),
        ("down", nn.Linear(512, 128)),
    ]
    model = nn.Sequential()
    for name, layer in layers:
        model.add_module(name, layer)
    model.to(DEVICE)
    plan: dict[str, Any] = {"up": tp.ColwiseParallel(), "down": tp.RowwiseParallel()}
    if sequence:
        plan = {
            "norm": tp.SequenceParallel(),
            "up": tp.ColwiseParallel(input_layouts=Shard(1)),
            "down": tp.RowwiseParallel(output_layouts=Shard(1)),
        }
    tp.parallelize_module(model, mesh, plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)  # only some parameters are DTensors
    inputs = torch.ones(4, 64 // (dist.get_world_size() if sequence else 1), 128, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        squares(model(inputs)).backward()
        optimizer.step()

    return step


def pipeline(schedule: str, *, tells_shapes: bool = True) -> Step:
    from torch.distributed.pipelining import PipelineStage, schedules

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    width = 128 << rank  # stages differ
    layers = (nn.Linear(width, width), nn.GELU(), nn.Linear(width, 2 * width))
    stage_module = nn.Sequential(*layers).to(DEVICE)
    shapes = {}
    if tells_shapes:
        shapes["input_args"] = torch.empty(4, width, device="meta", requires_grad=rank > 0)
        shapes["output_args"] = torch.empty(4, 2 * width, device="meta", requires_grad=True)
    stage = PipelineStage(stage_module, rank, size, DEVICE, **shapes)
    runner = getattr(schedules, schedule)(
        stage, n_microbatches=4, loss_fn=lambda output, target: F.mse_loss(output, target)
    )
    optimizer = torch.optim.AdamW(stage_module.parameters(), lr=1e-3)
    inputs, target = torch.ones(16, 128, device=DEVICE), torch.zeros(16, 128 << size, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        arguments = (inputs,) if rank == 0 else ()
        runner.step(*arguments, **({"target": target} if rank == size - 1 else {}))
        optimizer.step()

    return step


class MixtureOfExperts(nn.Module):
    """Each rank has some of the experts. Each token goes to 2 experts, and its output comes back."""

    def __init__(self, width: int, experts: int, count: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.ranks, self.count = dist.get_world_size(), count
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(experts // self.ranks)
        )
        # Token t goes to the experts t and t + 1, modulo their number: each of them gets as many tokens.
        with torch.no_grad():
            own = torch.eye(experts, width)
            self.gate.weight.copy_(4 * own + 2 * own.roll(1, 0))

    def forward(self, tokens: Tensor) -> Tensor:
        weights, routes = self.gate(tokens).softmax(-1).topk(2)
        order = routes.flatten().argsort(stable=True)
        to_experts = self.count(routes.flatten(), self.gate.out_features).view(self.ranks, -1)
        from_ranks = torch.empty_like(to_experts)
        dist.all_to_all_single(from_ranks, to_experts)
        sent, received = to_experts.sum(1).tolist(), from_ranks.sum(1).tolist()
        taken = all_to_all_single_autograd(tokens[order // 2], received, sent, dist.group.WORLD)
        parts = taken.split(from_ranks.flatten().tolist())
        of_experts = [expert(torch.cat(parts[i :: len(self.experts)])) for i, expert in enumerate(self.experts)]
        shares = [each.split(from_ranks[:, i].tolist()) for i, each in enumerate(of_experts)]
        made = torch.cat([share for of_rank in zip(*shares, strict=True) for share in of_rank])
        back = all_to_all_single_autograd(made, sent, received, dist.group.WORLD)
        return torch.zeros_like(tokens).index_add(0, order // 2, back * weights.flatten()[order, None])


def expert_parallel(count: Callable[[Tensor, int], Tensor]) -> Step:
    torch.manual_seed(0)
    experts, width = 8, 64
    model = MixtureOfExperts(width, experts, count).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.eye(experts, width).repeat(16, 1).to(DEVICE).requires_grad_()
    return step_of(model, optimizer, lambda: squares(tokens + model(tokens)))


PROGRAMS: dict[str, Callable[[], Step]] = {
    # The first one: the processes that tell the shapes run the same programs, and end in this one.
    "pipeline_unknown_shapes": lambda: pipeline("Schedule1F1B", tells_shapes=False),
    "ddp": ddp,
    "ddp_views": lambda: ddp(gradient_as_bucket_view=True, static_graph=True),
    "fsdp": fsdp,
    "fsdp1": fsdp1,
    "hsdp": lambda: fsdp(2, dist.get_world_size() // 2),
    "tensor_parallel": tensor_parallel,
    "sequence_parallel": lambda: tensor_parallel(sequence=True),
    "pipeline_gpipe": lambda: pipeline("ScheduleGPipe"),
    "pipeline_1f1b": lambda: pipeline("Schedule1F1B"),
    "experts_histc": lambda: expert_parallel(lambda routes, bins: routes.float().histc(bins, 0, bins - 1).long()),
    "experts_bincount": lambda: expert_parallel(lambda routes, bins: routes.bincount(minlength=bins)),
}


if __name__ == "__main__":
    device = torch.device(DEVICE.type, int(os.environ["RANK"]) % torch.accelerator.device_count())
    torch.accelerator.set_device_index(device.index)
    dist.init_process_group(device_id=device)
    print(json.dumps({name: peaks(PROGRAMS[name]) for name in sys.argv[1:]}))
    dist.destroy_process_group()
