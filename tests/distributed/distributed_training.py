"""What each rank does in test_distributed_training.py: compares parallel training with training on one device."""

from __future__ import annotations

import copy
import functools
import math
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from distributed_collectives import device, rank, size
from openreg_work import forced_count
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

BATCH = 8


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)).to(device())


def batches(steps: int = 4) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    return [
        (
            torch.randn(BATCH, 16, generator=generator).to(device()),
            torch.randn(BATCH, 4, generator=generator).to(device()),
        )
        for _ in range(steps)
    ]


def mine(batch: Tensor) -> Tensor:
    return batch.chunk(size())[rank()]


def train_alone(
    model: nn.Module, make_optimizer: Callable[..., Any] | None = None, clip: float | None = None
) -> nn.Module:
    optimizer = (make_optimizer or functools.partial(torch.optim.SGD, lr=0.1))(model.parameters())
    for x, y in batches():
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return model


def train_together(model: nn.Module, optimizer: Any, clip: float | None = None) -> None:
    for x, y in batches():
        optimizer.zero_grad()
        functional.mse_loss(model(mine(x)), mine(y)).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


def same_parameters(actual: Any, expected: nn.Module, tolerance: float = 1e-5) -> None:
    expected_state = expected.state_dict()
    state = actual if isinstance(actual, dict) else actual.state_dict()
    assert list(state) == list(expected_state)
    for name, value in state.items():
        torch.testing.assert_close(
            value.to(device()), expected_state[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def same_on_all_ranks(tensors: Iterable[Tensor], source: int = 0) -> None:
    for tensor in tensors:
        expected = tensor.detach().clone()
        dist.broadcast(expected, source)
        torch.testing.assert_close(tensor.detach(), expected, rtol=0, atol=0)


# ---- DistributedDataParallel


def ddp(**options: Any) -> None:
    model = DistributedDataParallel(make_model(), **options)
    train_together(model, torch.optim.SGD(model.parameters(), lr=0.1))
    same_parameters(model.module, train_alone(make_model()))


def without_force(stack: str) -> None:
    """In the mode chaos no item of the device's work begins because of the time."""
    before = forced_count()
    globals()[stack]()
    torch.accelerator.synchronize()
    assert forced_count() == before


def ddp_options() -> None:
    ddp()
    ddp(bucket_cap_mb=0.001)
    ddp(gradient_as_bucket_view=True)
    ddp(static_graph=True)
    ddp(find_unused_parameters=True)
    ddp(device_ids=[device().index])


def ddp_no_sync() -> None:
    model = DistributedDataParallel(make_model())
    alone = make_model()
    for x, y in batches():
        with model.no_sync():
            functional.mse_loss(model(mine(x)), mine(y)).backward()
        functional.mse_loss(model(mine(x)), mine(y)).backward()
        functional.mse_loss(alone(x), y).backward()
        functional.mse_loss(alone(x), y).backward()
    for actual, expected in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-5, atol=1e-5)


def ddp_gradients_have_the_bits_of_two_backwards() -> None:
    """With two ranks, one order of summation is possible."""
    model, alone = DistributedDataParallel(make_model()), make_model()
    for x, y in batches():
        model.zero_grad()
        functional.mse_loss(model(mine(x)), mine(y)).backward()
        first, second = (
            torch.autograd.grad(functional.mse_loss(alone(part), target), list(alone.parameters()))
            for part, target in zip(x.chunk(2), y.chunk(2), strict=True)
        )
        for parameter, a, b in zip(model.parameters(), first, second, strict=True):
            assert torch.equal(parameter.grad, a * 0.5 + b * 0.5)


def ddp_captured_has_the_bits_of_ddp() -> None:
    def train(captures: bool) -> list[Tensor]:
        stream = torch.Stream(device())
        x, y = (torch.empty_like(mine(part)) for part in batches(1)[0])
        graph = torch.accelerator.Graph()
        torch.accelerator.synchronize()
        with stream:
            layers = [make_model(), nn.Dropout(0.3), nn.Linear(4, 4).to(device())]
            model = DistributedDataParallel(nn.Sequential(*layers))
            torch.manual_seed(3 + rank())  # each rank drops other elements
            optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=True)
            scaler = torch.amp.GradScaler(device().type, init_scale=2.0**8)

            def step() -> None:
                optimizer.zero_grad()
                with torch.autocast(device().type, torch.float16, cache_enabled=False):
                    result = model(x)
                scaler.scale(functional.mse_loss(result.float(), y)).backward()
                scaler.step(optimizer)
                scaler.update()

            for number, (new_x, new_y) in enumerate(batches(16)):
                x.copy_(mine(new_x))
                y.copy_(mine(new_y))
                if not captures or number < 12:  # as on CUDA, DDP needs eleven steps before it is captured
                    step()
                else:
                    if number == 12:
                        torch.accelerator.synchronize()
                        with graph:
                            step()
                    graph.replay()
        torch.accelerator.synchronize()
        return [parameter.detach().cpu() for parameter in model.parameters()]

    for expected, actual in zip(train(captures=False), train(captures=True), strict=True):
        assert torch.equal(actual, expected)


class Unused(nn.Module):
    """Only rank 0 uses `partly`."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.partly, self.unused = (nn.Linear(16, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x) + self.partly(x) if rank() == 0 else self.used(x)


def ddp_unused_parameters() -> None:
    torch.manual_seed(0)
    alone = Unused().to(device())
    model = DistributedDataParallel(copy.deepcopy(alone), find_unused_parameters=True)
    for x, _ in batches():
        model(mine(x)).sum().backward()
        ((alone.used(x).sum() + alone.partly(x.chunk(size())[0]).sum()) / size()).backward()
    assert model.module.unused.weight.grad is None
    for name in ("used", "partly"):
        actual, expected = getattr(model.module, name).weight.grad, getattr(alone, name).weight.grad
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def ddp_comm_hooks() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook, quantization_hooks

    for hook, tolerance in (
        (default_hooks.allreduce_hook, 1e-5),
        (default_hooks.fp16_compress_hook, 1e-2),
        (quantization_hooks.quantization_pertensor_hook, 5e-2),
        (quantization_hooks.quantization_perchannel_hook, 5e-2),
    ):
        model = DistributedDataParallel(make_model())
        model.register_comm_hook(None, hook)
        train_together(model, torch.optim.SGD(model.parameters(), lr=0.1))
        same_parameters(model.module, train_alone(make_model()), tolerance)
    model = DistributedDataParallel(make_model())
    model.register_comm_hook(
        powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
        powerSGD_hook.powerSGD_hook,
    )
    train_together(model, torch.optim.SGD(model.parameters(), lr=0.1))
    same_on_all_ranks(model.parameters())
    same_parameters(model.module, train_alone(make_model()), 5e-3)
    model = DistributedDataParallel(make_model())
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    train_together(model, torch.optim.SGD(model.parameters(), lr=0.1))
    same_parameters(model.module, train_alone(make_model()))


def ddp_statistics() -> None:
    model = DistributedDataParallel(make_model())
    model.reducer._set_ddp_runtime_logging_sample_rate(1)
    train_together(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = model._get_ddp_logging_data()
    assert data["avg_forward_compute_time"] > 0
    assert data["avg_backward_compute_time"] > 0
    assert data["avg_backward_comm_time"] > 0


def ddp_optimizer_in_backward() -> None:
    from torch.distributed.optim import _apply_optimizer_in_backward

    module = make_model()
    _apply_optimizer_in_backward(torch.optim.SGD, module.parameters(), {"lr": 0.1})
    model = DistributedDataParallel(module, bucket_cap_mb=0.001)
    for x, y in batches():
        functional.mse_loss(model(mine(x)), mine(y)).backward()
    same_parameters(module, train_alone(make_model()))


def ddp_buffers() -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)).to(device()))
    train_together(model, torch.optim.AdamW(model.parameters()))
    model.eval()(batches(1)[0][0])  # before a forward pass the other ranks take the buffers of rank 0
    same_on_all_ranks(model.buffers())


def sync_batch_norm() -> None:
    for shape, dtype in (
        ((BATCH, 6), torch.float32),
        ((BATCH, 6, 5, 5), torch.float32),
        ((BATCH, 6, 5), torch.float64),
    ):
        torch.manual_seed(3)
        alone = (nn.BatchNorm1d if len(shape) < 4 else nn.BatchNorm2d)(6).to(device(), dtype)
        nn.init.uniform_(alone.weight)
        nn.init.uniform_(alone.bias)
        together = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(alone))
        for _ in range(3):
            x = torch.randn(shape, dtype=dtype).to(device()) * 3 + 1
            a, b = x.clone().requires_grad_(), mine(x).clone().requires_grad_()
            expected, actual = alone(a), together(b)
            torch.testing.assert_close(actual, mine(expected), rtol=1e-5, atol=1e-5)
            factor = torch.randn(shape, dtype=dtype).to(device())
            (expected * factor).sum().backward()
            (actual * mine(factor)).sum().backward()
            assert a.grad is not None
            torch.testing.assert_close(b.grad, mine(a.grad), rtol=1e-4, atol=1e-5)
        same_parameters(together, alone)
        for name in ("weight", "bias"):
            gradient = getattr(together, name).grad
            dist.all_reduce(gradient)
            torch.testing.assert_close(gradient, getattr(alone, name).grad, rtol=1e-4, atol=1e-4)


def join() -> None:
    """Ranks with different numbers of batches: a step uses the gradients of the ranks that still have batches."""
    from torch.distributed.algorithms.join import Join

    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Join([model]):
        for x, y in batches(2 + rank()):
            optimizer.zero_grad()
            functional.mse_loss(model(mine(x)), mine(y)).backward()
            optimizer.step()
    same_on_all_ranks(model.parameters(), size() - 1)
    alone = make_model()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step, (x, y) in enumerate(batches(1 + size())):
        optimizer.zero_grad()
        for of, (part, target) in enumerate(zip(x.chunk(size()), y.chunk(size()), strict=True)):
            if step < 2 + of:
                (functional.mse_loss(alone(part), target) / size()).backward()
        optimizer.step()
    same_parameters(model.module, alone)


def zero_redundancy_optimizer() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(make_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    train_together(model, optimizer)
    same_parameters(model.module, train_alone(make_model(), functools.partial(torch.optim.Adam, lr=0.01)))
    optimizer.consolidate_state_dict(0)
    if rank() == 0:
        assert len(optimizer.state_dict()["state"]) == 6


def post_local_sgd() -> None:
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    model = make_model()
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), PeriodicModelAverager(period=2))
    train_together(model, optimizer)

    # The same with the models of all ranks on this rank. They are averaged after the steps 0 and 2.
    models = [make_model() for _ in range(size())]
    for step, (x, y) in enumerate(batches()):
        for each, part, target in zip(models, x.chunk(size()), y.chunk(size()), strict=True):
            each.zero_grad()
            functional.mse_loss(each(part), target).backward()
            torch.optim.SGD(each.parameters(), lr=0.1).step()
        if step % 2 == 0:
            with torch.no_grad():
                for copies in zip(*(each.parameters() for each in models), strict=True):
                    mean = torch.stack(copies).mean(0)
                    for parameter in copies:
                        parameter.copy_(mean)
    same_parameters(model, models[rank()])


# ---- FSDP


def fsdp1() -> None:
    from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        for use_orig_params in (False, True):
            model = FSDP(
                make_model(),
                sharding_strategy=strategy,
                device_id=device(),
                use_orig_params=use_orig_params,
                auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=500),
            )
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in batches():
                optimizer.zero_grad()
                functional.mse_loss(model(mine(x)), mine(y)).backward()
                model.clip_grad_norm_(1e6)
                optimizer.step()
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True)):
                same_parameters(model.state_dict(), train_alone(make_model()))


def full(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value
        for name, value in model.state_dict().items()
    }


def fsdp2() -> None:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device().type, (size(),))
    for reshard in (True, False):
        model = make_model()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
        train_together(model, torch.optim.Adam(model.parameters(), lr=0.01), clip=0.5)
        alone = train_alone(make_model(), functools.partial(torch.optim.Adam, lr=0.01), clip=0.5)
        same_parameters(full(model), alone)


def fsdp2_mixed_precision_and_offload() -> None:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(device().type, (size(),))
    model = fully_shard(
        make_model(), mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches():
        optimizer.zero_grad()
        functional.mse_loss(model(mine(x)).float(), mine(y)).backward()
        optimizer.step()
    same_parameters(full(model), train_alone(make_model()), 2e-2)

    model = fully_shard(make_model(), mesh=mesh, offload_policy=CPUOffloadPolicy())
    train_together(model, torch.optim.SGD(model.parameters(), lr=0.1))
    state = {name: value.to(device()).full_tensor() for name, value in model.state_dict().items()}
    same_parameters(state, train_alone(make_model()))


def hybrid_sharding() -> None:
    """4 ranks: sharded over pairs, replicated over the two pairs."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device().type, (2, size() // 2), mesh_dim_names=("replicate", "shard"))
    model = fully_shard(make_model(), mesh=mesh)
    train_together(model, torch.optim.SGD(model.parameters(), lr=0.1))
    same_parameters(full(model), train_alone(make_model()))


# ---- DTensor


def dtensor() -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh = init_device_mesh(device().type, (size(),))
    torch.manual_seed(5)
    a, b = torch.randn(8, 12, device=device()), torch.randn(12, 8, device=device())
    dist.broadcast(a, 0)
    dist.broadcast(b, 0)
    for left in (Shard(0), Shard(1), Replicate()):
        for right in (Shard(0), Shard(1), Replicate()):
            product = distribute_tensor(a, mesh, [left]) @ distribute_tensor(b, mesh, [right])
            torch.testing.assert_close(product.full_tensor(), a @ b, rtol=1e-5, atol=1e-5)
    sharded = distribute_tensor(a, mesh, [Shard(0)])
    for placement in (Shard(1), Replicate(), Shard(0)):
        sharded = sharded.redistribute(mesh, [placement])
        torch.testing.assert_close(sharded.full_tensor(), a, rtol=0, atol=0)
    partial = DTensor.from_local(a, mesh, [Partial()])
    torch.testing.assert_close(partial.redistribute(mesh, [Shard(0)]).full_tensor(), a * size(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(partial.full_tensor(), a * size(), rtol=1e-6, atol=1e-6)
    for op, expected in (
        ("avg", a * (1 + size()) / 2),
        ("max", torch.maximum(a, a * size())),
        ("min", torch.minimum(a, a * size())),
        ("product", a ** size() * math.factorial(size())),
    ):
        partial = DTensor.from_local(a * (1 + rank()), mesh, [Partial(op)])
        torch.testing.assert_close(partial.full_tensor(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(partial.redistribute(mesh, [Shard(0)]).full_tensor(), expected, rtol=1e-5, atol=1e-5)
    strided = distribute_tensor(a, mesh, [_StridedShard(0, split_factor=2)])
    torch.testing.assert_close(strided.full_tensor(), a, rtol=0, atol=0)
    uneven = distribute_tensor(a[:7], mesh, [Shard(0)])
    torch.testing.assert_close((uneven * 2).sum().full_tensor(), (a[:7] * 2).sum(), rtol=1e-5, atol=1e-5)


def dtensor_random_numbers() -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, rand

    mesh = init_device_mesh(device().type, (size(),))

    def drawn(placement: Replicate | Shard, seed: int = 5, generator: torch.Generator | None = None) -> torch.Tensor:
        torch.manual_seed(seed)
        x = distribute_tensor(torch.zeros(64, 64, device=device()), mesh, [placement])
        return x.uniform_(generator=generator).full_tensor()

    def on_all_ranks(x: torch.Tensor) -> list[torch.Tensor]:
        out = [torch.empty_like(x) for _ in range(size())]
        dist.all_gather(out, x)
        return out

    for placement in (Replicate(), Shard(0), Shard(1)):
        whole = drawn(placement)
        assert whole.unique().numel() > 4000  # no shard repeats another one's numbers
        assert torch.equal(whole, drawn(placement)) and not torch.equal(whole, drawn(placement, seed=6))
        assert all(torch.equal(whole, each) for each in on_all_ranks(whole))
        following = on_all_ranks(torch.rand(8, device=device()))
        assert all(torch.equal(following[0], each) for each in following)
    generators = [torch.Generator(device()).manual_seed(3) for _ in range(2)]
    first = [drawn(Shard(0), generator=generators[0]) for _ in range(2)]
    assert not torch.equal(*first) and torch.equal(first[0], drawn(Shard(0), 6, generators[1]))
    made = rand(64, 64, device_mesh=mesh, placements=[Shard(0)]).full_tensor()
    assert made.unique().numel() > 4000
    kept = torch.nn.functional.dropout(distribute_tensor(torch.ones(64, 64, device=device()), mesh, [Shard(0)]), 0.5)
    halves = kept.full_tensor().chunk(size())
    assert not torch.equal(halves[0], halves[1]) and all(800 < half.count_nonzero().item() < 1250 for half in halves)


def dtensor_attention() -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh(device().type, (size(),))
    torch.manual_seed(2)
    whole = [torch.randn(size(), 2 * size(), 16, 8, device=device()) for _ in range(3)]
    for each in whole:
        dist.broadcast(each, 0)
    mask = torch.ones(16, 16, device=device()).tril().log()
    for placement in (Shard(0), Shard(1), Replicate()):
        for options in ({"is_causal": True}, {"attn_mask": mask}):
            alone = [each.clone().requires_grad_() for each in whole]
            shards = [distribute_tensor(each, mesh, [placement]).requires_grad_() for each in whole]
            named = dict(options)
            if "attn_mask" in named:
                named["attn_mask"] = distribute_tensor(mask, mesh, [Replicate()])
            actual = functional.scaled_dot_product_attention(*shards, **named)
            expected = functional.scaled_dot_product_attention(*alone, **options)
            assert actual.placements == (placement,)
            torch.testing.assert_close(actual.full_tensor(), expected)
            actual.square().sum().backward()
            expected.square().sum().backward()
            for shard, tensor in zip(shards, alone, strict=True):
                torch.testing.assert_close(shard.grad.full_tensor(), tensor.grad)


def tensor_parallel() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(device().type, (size(),))
    model = parallelize_module(make_model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for x, y in batches():
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        optimizer.step()
    same_parameters(full(model), train_alone(make_model()))


def embedding_by_rows_and_loss_parallel() -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import RowwiseParallel, loss_parallel, parallelize_module

    mesh = init_device_mesh(device().type, (size(),))
    torch.manual_seed(1)
    alone = nn.Embedding(10, 8).to(device())
    embedding = parallelize_module(copy.deepcopy(alone), mesh, RowwiseParallel(input_layouts=Replicate()))
    tokens = torch.tensor([0, 9, 4, 5, 4], device=device())
    actual, expected = embedding(tokens), alone(tokens)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    actual.sum().backward()
    expected.sum().backward()
    assert embedding.weight.grad is not None
    torch.testing.assert_close(embedding.weight.grad.full_tensor(), alone.weight.grad, rtol=0, atol=0)

    logits = expected.detach().requires_grad_()
    parts = distribute_tensor(expected.detach(), mesh, [Shard(1)]).requires_grad_()
    target = torch.tensor([0, 7, 3, 4, 1], device=device())
    loss = functional.cross_entropy(logits, target)
    loss.backward()
    with loss_parallel():
        sharded_loss = functional.cross_entropy(parts, target)
        sharded_loss.backward()
    torch.testing.assert_close(sharded_loss.full_tensor(), loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(parts.grad.full_tensor(), logits.grad, rtol=1e-5, atol=1e-5)


def sequence_parallel() -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    def make() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)).to(device())

    mesh = init_device_mesh(device().type, (size(),))
    alone = make()
    model = parallelize_module(
        make(),
        mesh,
        {
            "0": SequenceParallel(sequence_dim=1),
            "1": ColwiseParallel(input_layouts=Shard(1)),
            "3": RowwiseParallel(output_layouts=Replicate()),
        },
    )
    x = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(0)).to(device())
    part = x.chunk(size(), 1)[rank()]
    torch.testing.assert_close(model(part), alone(x), rtol=1e-5, atol=1e-5)


# ---- pipelines


def pipeline(schedule_name: str) -> None:
    from torch.distributed.pipelining import PipelineStage, schedules

    schedule_class = getattr(schedules, schedule_name)
    virtual = (
        2 if schedule_name in ("ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "ScheduleInterleavedZeroBubble") else 1
    )
    torch.manual_seed(4)
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()).to(device()) for _ in range(size() * virtual)]
    alone = copy.deepcopy(nn.Sequential(*layers))
    stages = [
        PipelineStage(layers[index], index, len(layers), device()) for index in range(rank(), len(layers), size())
    ]
    schedule = schedule_class(stages if virtual > 1 else stages[0], 4, loss_fn=functional.mse_loss)
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(BATCH, 16, generator=generator).to(device()) for _ in range(2))
    losses: list[Tensor] = []
    if rank() == 0:
        schedule.step(x)
    elif rank() == size() - 1:
        output = schedule.step(target=y, losses=losses)
        torch.testing.assert_close(output, alone(x), rtol=1e-5, atol=1e-5)
    else:
        schedule.step()
    for chunk_x, chunk_y in zip(x.chunk(4), y.chunk(4), strict=True):
        (functional.mse_loss(alone(chunk_x), chunk_y) / 4).backward()
    for index, stage in zip(range(rank(), len(layers), size()), stages, strict=True):
        for actual, expected in zip(stage.submod.parameters(), alone[index].parameters(), strict=True):
            torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-5, atol=1e-5)


# ---- checkpoints


def checkpoint(folder: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device().type, (size(),))
    model = fully_shard(make_model(), mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train_together(model, optimizer)
    expected = full(model)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder + "/one")
    dcp.async_save({"model": model_state}, checkpoint_id=folder + "/two").result()

    other = fully_shard(make_model(), mesh=mesh)
    other_optimizer = torch.optim.Adam(other.parameters(), lr=0.01)
    model_state, optimizer_state = get_state_dict(other, other_optimizer)
    dcp.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=folder + "/one")
    set_state_dict(other, other_optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    for name, value in full(other).items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)

    # Resharding: what was saved in shards is loaded whole.
    whole = make_model()
    state = {"model": whole.state_dict()}
    dcp.load(state, checkpoint_id=folder + "/two")
    for name, value in state["model"].items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


def checkpoints() -> None:
    folder: list[Any] = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(folder, 0)
    checkpoint(folder[0])


def device_mesh() -> None:
    mesh = init_device_mesh(device().type, (2, size() // 2), mesh_dim_names=("a", "b"))
    assert mesh["a"].size() == 2
    x = torch.ones(3, device=device())
    dist.all_reduce(x, group=mesh.get_group("a"))
    assert x.tolist() == [2.0] * 3
    flat = mesh._flatten("ab")
    dist.all_reduce(x, group=flat.get_group())
    assert x.tolist() == [2.0 * size()] * 3
