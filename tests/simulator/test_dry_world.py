"""Dry execution of one rank of many, without the other ranks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import dry_world_programs
import programs
import pytest
from programs import DISTRIBUTED

LIMIT = "4K"


def rank(number: int, size: int, code: str, **variables: str) -> str:
    """The output of a program as one rank; D is its device."""
    variables = {"OPENREG_DRY": LIMIT, "OPENREG_DRY_WORLD": str(size), "RANK": str(number)} | variables
    start = "import torch, torch.distributed as dist\nD = torch.accelerator.current_accelerator()\n"
    return programs.python(start + code, status=0, **variables).stdout


def test_the_environment_is_that_of_torchrun() -> None:
    code = """
import os
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
print(*(os.environ[name] for name in names), dist.is_torchelastic_launched())
dist.init_process_group()
print(dist.get_rank(), dist.get_world_size(), dist.get_backend_config())
"""
    assert rank(5, 7, code, OPENREG_DEVICE_COUNT="2") == "5 7 1 2 2 4 True\n5 7 openreg:occl\n"


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            {"OPENREG_DRY": "1M", "OPENREG_DRY_WORLD": "many"},
            "OPENREG_DRY_WORLD is 'many'. Set it to a number of ranks",
        ),
        ({"OPENREG_DRY_WORLD": "2"}, "OPENREG_DRY_WORLD is for dry execution. Set OPENREG_DRY too"),
        ({"OPENREG_DRY": "1M", "OPENREG_DRY_WORLD": "2", "RANK": "2"}, "RANK is 2, but OPENREG_DRY_WORLD is 2."),
    ],
)
def test_a_world_that_cannot_be_is_refused(variables: dict[str, str], text: str) -> None:
    done = programs.python("import torch; torch.ones(1, device='openreg')", status=1, **variables)
    assert text in done.stderr


COLLECTIVES = """
dist.init_process_group()
size, own = dist.get_world_size(), dist.get_rank()
small = torch.full((4,), 3.0, device=D)
dist.all_reduce(small)
gathered = [torch.empty(4, device=D) for _ in range(size)]
dist.all_gather(gathered, small)
print(small.tolist(), [each[0].item() for each in gathered])
scattered = torch.ones(2, device=D)
dist.reduce_scatter_tensor(scattered, torch.arange(2.0 * size, device=D))
received = torch.ones(2, device=D)
dist.recv(received, src=(own + 1) % size)
dist.send(received, dst=(own + 1) % size)
print(scattered.tolist(), received.tolist())
counts, sizes = torch.arange(size, device=D), torch.empty(size, dtype=torch.long, device=D)
dist.all_to_all_single(sizes, counts)
large = torch.ones(100, 100, device=D)
out = torch.empty(size * 100, 100, device=D)
dist.all_reduce(large)
dist.all_gather_into_tensor(out, large)
works = [dist.all_reduce(large, async_op=True) for _ in range(3)]
for work in works:
    work.wait()
dist.barrier()
print(sizes.tolist(), out.sum().item(), sorted({read.how for read in torch.openreg.dry.assumed_reads()}))
dist.destroy_process_group()
"""


def test_collectives_are_answered_with_the_values_of_this_rank() -> None:
    output = rank(1, 3, COLLECTIVES)
    assert output == (
        "[3.0, 3.0, 3.0, 3.0] [3.0, 3.0, 3.0]\n[2.0, 3.0] [0.0, 0.0]\n[0, 1, 2] 0.0 ['a copy to the host', 'item()']\n"
    )


def test_objects_are_those_of_this_rank() -> None:
    code = """
dist.init_process_group("occl")
own = {"rank": dist.get_rank()}
gathered, on_destination, sent, scattered = [None] * 3, [None] * 3, [own], [None]
dist.all_gather_object(gathered, own)
dist.gather_object(own, on_destination, dst=1)
dist.broadcast_object_list(sent, src=0)
dist.scatter_object_list(scattered, [0, 10, 20], src=1)
print(gathered, on_destination, sent, scattered, dist.recv_object_list([None], src=2))
print(gathered[0] is own)
"""
    of_rank = "{'rank': 1}"
    rows = f"[{of_rank}, {of_rank}, {of_rank}]"
    assert rank(1, 3, code) == f"{rows} {rows} [{of_rank}] [10] 2\nFalse\n"


@pytest.mark.parametrize(
    ("backend", "config"),
    [
        ("gloo", "cpu:gloo,cuda:gloo"),
        ("occl", "openreg:occl"),
        ("cpu:gloo,openreg:occl", "cpu:gloo,openreg:occl"),
    ],
)
def test_groups_keep_their_names_and_wait_for_nobody(backend: str, config: str) -> None:
    code = f"""
dist.init_process_group({backend!r})
pair, other = dist.new_group([1, 3]), dist.new_group([0, 2])
gloo = dist.new_group([0, 1], backend="gloo")
print(dist.get_backend(), dist.get_backend_config(), dist.get_backend(gloo), dist.get_rank(pair), dist.get_world_size(pair))
print(other is dist.GroupMember.NON_GROUP_MEMBER)
dist.barrier(gloo)
dist.monitored_barrier(gloo)
x = torch.ones(3)
dist.all_reduce(x, group=gloo)
dist.barrier()
dist.destroy_process_group()
"""
    assert rank(1, 4, code) == f"{backend} {config} gloo 0 2\nTrue\n"


@pytest.mark.parametrize("backend", ["occl", "cpu:gloo,openreg:occl"])
def test_a_group_is_split(backend: str) -> None:
    code = f"""
dist.init_process_group({backend!r}, device_id=torch.device(D.type, 1))
split = dist.split_group(split_ranks=[[0, 1], [2, 3]])
x = torch.ones(3, device=D)
dist.all_reduce(x, group=split)
if "gloo" in {backend!r}:
    dist.all_reduce(torch.ones(3), group=split)
print(dist.get_rank(split), dist.get_world_size(split), x.tolist())
dist.destroy_process_group()
"""
    assert rank(1, 4, code) == "1 2 [1.0, 1.0, 1.0]\n"


@pytest.mark.parametrize("device_type", ["openreg", "cuda"])
def test_a_sharded_model_on_a_mesh_is_trained_saved_and_loaded(tmp_path: Path, device_type: str) -> None:
    names = {"openreg": "cpu:gloo,openreg:occl", "cuda": "cuda:nccl,cpu:gloo"}
    code = f"""
import os
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
device = torch.device(D.type, int(os.environ["LOCAL_RANK"]))
torch.accelerator.set_device_index(device.index)
dist.init_process_group({names[device_type]!r}, device_id=device)
mesh = init_device_mesh(D.type, (2, 2), mesh_dim_names=("replicate", "shard"))
model = torch.nn.Linear(64, 64, device=device)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(4, 64, device=device)).sum().backward()
optimizer.step()
dcp.save({{"model": model.state_dict()}}, checkpoint_id={str(tmp_path)!r})
dcp.load({{"model": model.state_dict()}}, checkpoint_id={str(tmp_path)!r})
print(model.weight.to_local().shape, *mesh.get_coordinate(), dist.get_backend_config())
dist.destroy_process_group()
"""
    output = rank(3, 4, code, TORCH_OPENREG_AS=device_type)
    assert output == f"torch.Size([32, 64]) 1 1 {names[device_type]}\n"


def test_the_counts_of_assumed_routes_are_equal() -> None:
    code = """
routes = torch.ones(100, 150, device=D).sum(0).view(50, 3).topk(2, 1).indices.flatten()
large = torch.zeros(10000, dtype=torch.long, device=D) + torch.ones(10000, device=D).long()
print(torch.bincount(routes, minlength=4).tolist(), torch.histc(large.float(), 4, 0, 3).tolist())
print(torch.bincount(large, minlength=3).tolist(), torch.bincount(torch.tensor([1, 1], device=D)).tolist())
print(sorted((each.how, each.count) for each in torch.openreg.dry.assumed_reads() if "counts" in each.how))
"""
    *counts, reads = rank(0, 2, code).splitlines()
    assert counts == ["[25, 25, 25, 25] [2500.0, 2500.0, 2500.0, 2500.0]", "[3334, 3333, 3333] [0, 2]"]
    how = "counts of {}(), assumed to be equal"
    assert reads == str([(how.format("bincount"), 1), (how.format("bincount"), 1), (how.format("histc"), 1)])


@pytest.mark.parametrize("tokens", [50, 4000])  # whose scores are assumed, or absent
def test_routes_that_nobody_computed_are_spread_equally(tokens: int) -> None:
    code = f"""
scores = torch.ones(100, {tokens} * 4, device=D).sum(0).view(-1, 4)
routes = scores.topk(2).indices
mask = torch.nn.functional.one_hot(routes, num_classes=5).permute(2, 1, 0)
hit = mask.sum((1, 2)).greater(0).nonzero().flatten()
print(routes[:3].tolist(), hit.tolist(), [torch.where(mask[each])[1].numel() for each in hit])
print(torch.tensor([1.0, 3.0, 2.0], device=D).topk(2).indices.tolist())
print([(each.how, each.count) for each in torch.openreg.dry.assumed_reads() if "topk" in each.how])
"""
    share = tokens // 2
    assert rank(0, 2, code) == (
        f"[[0, 1], [2, 3], [0, 1]] [0, 1, 2, 3] {[share] * 4}\n[1, 2]\n"
        "[('choices of topk(), assumed to be spread equally', 1)]\n"
    )


def peaks(names: Sequence[str], *ranks: dict[str, str]) -> list[dict[str, list[int]]]:
    """The peaks of the programs on ranks with these variables."""
    path = {"PYTHONPATH": programs.importing(dry_world_programs.__file__)}
    program = (sys.executable, dry_world_programs.__file__, *names)
    run = partial(programs.run, *program, status=0, imports=DISTRIBUTED, **path)
    done = programs.at_once(*(partial(run, **each) for each in ranks), most=len(ranks))
    return [json.loads(each.stdout) for each in done]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "numbers", "names"),
    [
        (2, (0, 1), tuple(dry_world_programs.PROGRAMS)),
        (4, (2,), ("hsdp", "pipeline_unknown_shapes", "experts_histc", "experts_bincount")),
    ],
)
def test_peak_memory_equals_that_of_real_ranks_to_the_byte(
    size: int, numbers: tuple[int, ...], names: tuple[str, ...]
) -> None:
    devices = {"OPENREG_DEVICE_COUNT": str(size)}
    real = peaks(names, *(each | devices for each in programs.variables_of_ranks(size)))
    for number in numbers:
        world = devices | {"OPENREG_DRY": LIMIT, "OPENREG_DRY_WORLD": str(size), "RANK": str(number)}
        assert peaks(names, world) == [real[number]], number
        assert list(real[number]) == list(names) and all(min(steps) > 0 for steps in real[number].values())


TRAINING = """
import os, torch, torch.distributed as dist
device = torch.device("openreg", int(os.environ["LOCAL_RANK"]))
torch.accelerator.set_device_index(device.index)
dist.init_process_group(device_id=device)
model = torch.nn.Linear(512, 512 << dist.get_rank(), device=device)
model(torch.ones(4, 512, device=device)).sum().backward()
print("rank", dist.get_rank())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("which", ["1", "all", "worst"])
def test_the_command_answers_for_the_rank_that_needs_most(
    dry: Callable[..., tuple[int, str, str]], tmp_path: Path, which: str
) -> None:
    program, answer_file = tmp_path / "train.py", tmp_path / "answer.json"
    program.write_text(TRAINING)
    arguments = ("--world", "2", "--rank", which, "--json", answer_file, program)
    status, output, errors = dry(*arguments)
    assert (status, errors) == (0, "")
    assert ("rank 1\n" in output) == (which != "worst")
    assert "Fits on rank 1 of 2, device 1, which has 17.2 GB." in output
    answer = json.loads(answer_file.read_text())
    assert (answer["world"], answer["rank"], answer["fits"], answer["device"]) == (2, 1, True, 1)
    ranks = {row["rank"]: row["peak_allocated"] for row in answer["ranks"]}
    assert list(ranks) == ([1] if which == "1" else [0, 1])
    assert answer["peak_allocated"] == max(ranks.values()) >= 2 * 4 * 512 * 1024
    assert ("rank 0 of 2: " in output) == (which != "1")


GROUPS = """
import json
from torch_openreg.simulator import _bindings
dist.init_process_group()
pair, other = dist.new_group([0, 1]), dist.new_group([2, 3])
alone = dist.new_group([0])
free = [torch.accelerator.get_memory_info(0)[0]]
def note():
    free.append(torch.accelerator.get_memory_info(0)[0])
x = torch.ones(4, device=D)
note()
dist.all_reduce(x)
dist.all_reduce(x)
note()
dist.all_reduce(x, group=alone)
dist.broadcast(x, 0, group=pair)
note()
dist.all_to_all_single(torch.empty_like(x), x)
dist.all_to_all_single(torch.empty_like(x), x)
note()
print(json.dumps([[before - after for before, after in zip(free, free[1:])], _bindings._dry_communicators()]))
"""


@pytest.fixture
def card(tmp_path: Path) -> Callable[..., Path]:
    """Makes a device model of these sizes, in MiB."""

    def make(total: int, communicator: int, exchange: int = 0) -> Path:
        sizes = {"total_memory": total, "communicator_memory": communicator, "exchange_memory": exchange}
        rows = {name: {"value": value << 20, "source": "this test"} for name, value in sizes.items() if value}
        file = tmp_path / "card.json"
        file.write_text(json.dumps({"properties": rows}))
        return file

    return make


def test_each_group_takes_the_memory_of_a_communicator_at_its_first_collective(card: Callable[..., Path]) -> None:
    # Of the 4 ranks, 2 share a host: an all_to_all exchanges with one other rank of the host.
    variables = {"OPENREG_MODEL": str(card(1024, 10, 3)), "OPENREG_DEVICE_COUNT": "2"}
    (segment, *taken), communicators = json.loads(rank(0, 4, GROUPS, **variables))
    assert segment == 2 << 20  # of the allocator, for x
    assert taken == [10 << 20, 10 << 20, 3 << 20]
    assert communicators == {"0": [2, 23 << 20]}


REDUCING = """
import torch, torch.distributed as dist
dist.init_process_group()
x = torch.ones(4 << 20, device="openreg")
def step():
    try:
        dist.all_reduce(x)
    except torch.OutOfMemoryError as error:
        print(error)
step()
"""


def test_a_communicator_that_gets_no_memory_does_not_fit(
    dry: Callable[..., tuple[int, str, str]], card: Callable[..., Path], tmp_path: Path
) -> None:
    program, answer_file = tmp_path / "train.py", tmp_path / "answer.json"
    program.write_text(REDUCING)
    run = ("--world", "2", "--json", answer_file)
    status, output, errors = dry(*run, "--model", card(100, 20), program)
    assert (status, errors) == (0, "")
    assert "  communicators     21.0 MB of 1 group of ranks (NCCL), also not contained" in output
    answer = json.loads(answer_file.read_text())
    assert (answer["communicators"], answer["communicator_bytes"]) == (1, 20 << 20)
    assert answer["spare_bytes"] == (100 << 20) - answer["peak_reserved"] - (20 << 20)
    status, output, errors = dry(*run, "--model", card(100, 90), program)
    answer = json.loads(answer_file.read_text())
    assert (status, errors, answer["fits"]) == (1, "", False)
    assert output.startswith(
        f"The communicator of 2 ranks needs {90 << 20} bytes of device 0, but {84 << 20} bytes are free. "
        "NCCL allocates outside of PyTorch's allocator, whose cache it cannot use."
    )
    assert answer["out_of_memory_at"] == f"{program}:7 in step" and answer["spare_bytes"] == -6 << 20
