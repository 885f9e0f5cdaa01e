"""Collectives on the device beside gloo on CPU tensors, as ratios of times.

python -m benchmarks.distributed [--ranks 2] [--hosts 1] [--operators "all_reduce;send, recv"]
python -m benchmarks.distributed [--growth 2,8,32,64] [--training 1,2,4]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from torch_openreg import openreg

SIZES = {"4 KB": 4 << 10, "1 MB": 1 << 20, "64 MB": 64 << 20}
REPEATS = {"4 KB": 300, "1 MB": 50, "64 MB": 5}


def _operations(device: torch.device, size: int, group: Any) -> dict[str, Callable[[], Any]]:
    world = dist.get_world_size()
    numel = size // 4 // world * world
    x, part = torch.ones(numel, device=device), torch.ones(numel // world, device=device)
    parts, is_root = [torch.empty_like(part) for _ in range(world)], dist.get_rank() == 0
    right, left = (dist.get_rank() + 1) % world, (dist.get_rank() - 1) % world

    def ping_pong() -> None:
        """Rank 0 sends to rank 1, and rank 1 sends back. Other ranks do nothing."""
        if dist.get_rank() == 0:
            dist.send(x, 1, group=group)
            dist.recv(x, 1, group=group)
        elif dist.get_rank() == 1:
            dist.recv(x, 0, group=group)
            dist.send(x, 0, group=group)

    def ring() -> None:
        received = torch.empty_like(x)
        for work in (dist.isend(x, right, group=group), dist.irecv(received, left, group=group)):
            work.wait()  # type: ignore[union-attr]

    return {
        "all_reduce": lambda: dist.all_reduce(x, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(x, part, group=group),
        "all_gather of a list": lambda: dist.all_gather(parts, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, x, group=group),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(x), x, group=group),
        "broadcast": lambda: dist.broadcast(x, 0, group=group),
        "reduce": lambda: dist.reduce(x, 0, group=group),
        "gather": lambda: dist.gather(part, parts if is_root else None, 0, group=group),
        "scatter": lambda: dist.scatter(part, parts if is_root else None, 0, group=group),
        "barrier": lambda: dist.barrier(group=group),
        "send, recv": ping_pong,
        "isend, irecv": ring,
    }


def _enter(rank: int, world: int, port: int, hosts: int = 1) -> None:
    os.environ["OCCL_HOSTID"] = str(rank * hosts // world)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)


def _measure(rank: int, world: int, port: int, results: Any, hosts: int, operators: list[str]) -> None:
    _enter(rank, world, port, hosts)
    dist.init_process_group("cpu:gloo,openreg:occl")
    groups = {"cpu": (torch.device("cpu"), None)}
    for transport in ("auto", "gloo"):
        os.environ["OCCL_TRANSPORT"] = transport
        group = dist.new_group(range(world), backend="occl")
        groups[transport] = (torch.device("openreg", torch.openreg.current_device()), group)  # type: ignore[attr-defined]
    for name, size in SIZES.items():
        kinds = {kind: _operations(device, size, group) for kind, (device, group) in groups.items()}
        for operator in operators or kinds["cpu"]:
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            for repeat in range(REPEATS[name] + 3):
                for kind, operations in kinds.items():  # by turns, so that other load of the machine slows all
                    dist.barrier(device_ids=[0])
                    begin = time.perf_counter()
                    operations[operator]()
                    if repeat >= 3:
                        times[kind].append(time.perf_counter() - begin)
            medians = {kind: statistics.median(values) for kind, values in times.items()}
            if rank == 0:
                results.put((operator, name, medians))
    dist.destroy_process_group()


def _grow(rank: int, world: int, port: int, results: Any) -> None:
    _enter(rank, world, port)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    dist.init_process_group("occl")
    connected = time.perf_counter() - begin
    x = torch.ones(1000, device="openreg")
    dist.all_reduce(x)
    begin = time.perf_counter()
    for _ in range(10):
        dist.all_reduce(x)
    each = (time.perf_counter() - begin) / 10
    sockets = sum(link.startswith("socket:") for link in _descriptors())
    if rank == 0:
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        results.put((world, connected, sockets, grown / 1024, each))
    dist.barrier()
    dist.destroy_process_group()


def _train(rank: int, world: int, port: int, results: Any) -> None:
    """Measures a step of DDP, and its two parts alone: the computation, and the all_reduce of the gradients.

    Every rank has a batch of the same size.
    """
    _enter(rank, world, port)
    device = torch.device("openreg", rank % torch.accelerator.device_count())
    torch.accelerator.set_device_index(device.index)
    dist.init_process_group("occl", device_id=device)
    layers = [module for _ in range(6) for module in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device), bucket_cap_mb=5)
    x = torch.ones(64, 1024, device=device)
    gradients = torch.ones(sum(parameter.numel() for parameter in model.parameters()), device=device)

    def step() -> None:
        model(x).sum().backward()

    def compute() -> None:
        with model.no_sync():
            model(x).sum().backward()

    def communicate() -> None:
        for bucket in gradients.split(5 << 18):
            dist.all_reduce(bucket)

    parts: dict[str, Callable[[], None]] = {"step": step, "compute": compute, "communicate": communicate}
    times: dict[str, list[float]] = {name: [] for name in parts}
    openreg.execution_mode("async")  # a collective overlaps with kernels only if the host does not wait for it
    for repeat in range(23):
        for name, part in parts.items():
            model.zero_grad()
            torch.accelerator.synchronize()
            dist.barrier(device_ids=[device.index])
            begin = time.perf_counter()
            part()
            torch.accelerator.synchronize()
            if repeat >= 3:
                times[name].append(time.perf_counter() - begin)
    if rank == 0:
        results.put((world, *(statistics.median(times[name]) for name in parts)))
    dist.destroy_process_group()


def _descriptors() -> list[str]:
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the folder's own descriptor, closed since
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return links


def _start(function: Callable[..., None], world: int, *arguments: Any) -> Any:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    results = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(function, (world, port, results, *arguments), nprocs=world)
    found = []
    while not results.empty():
        found.append(results.get())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=1, help="the ranks count as ranks of so many hosts")
    parser.add_argument("--operators", default="", help="names from the table, separated by semicolons: only these")
    parser.add_argument("--growth", default="", help="numbers of ranks, separated by commas: what grows with them")
    parser.add_argument("--training", default="", help="numbers of ranks, separated by commas: a step of DDP")
    options = parser.parse_args()
    if options.training:
        print("| ranks | step, ms | computation alone | all_reduce alone | hidden | samples a second |")
        print("|---|---|---|---|---|---|")
        for world in map(int, options.training.split(",")):
            for ranks, step, compute, communicate in _start(_train, world):
                hidden = f"{(compute + communicate - step) / communicate:.0%}" if ranks > 1 else ""
                row = " | ".join(f"{1e3 * seconds:.1f}" for seconds in (step, compute, communicate))
                print(f"| {ranks} | {row} | {hidden} | {64 * ranks / step:.0f} |", flush=True)
        return
    if options.growth:
        print("| ranks | init_process_group, s | sockets of a rank | memory of a rank, MB | all_reduce of 4 KB, ms |")
        print("|---|---|---|---|---|")
        for world in map(int, options.growth.split(",")):
            for ranks, connected, sockets, memory, each in _start(_grow, world):
                print(f"| {ranks} | {connected:.2f} | {sockets} | {memory:.0f} | {each * 1e3:.2f} |", flush=True)
        return
    operators = options.operators.split(";") if options.operators else []
    print("| collective | size | gloo on CPU tensors, ms | device, auto | device, gloo |")
    print("|---|---|---|---|---|")
    for operator, name, medians in _start(_measure, options.ranks, options.hosts, operators):
        base = medians["cpu"]
        print(
            f"| {operator} | {name} | {base * 1e3:.3f} | {medians['auto'] / base:.2f} | {medians['gloo'] / base:.2f} |"
        )


if __name__ == "__main__":
    main()
