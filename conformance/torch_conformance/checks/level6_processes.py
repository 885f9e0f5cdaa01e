"""Level 6: several processes: fork, spawn, sharing, torch.distributed. Each check starts its own processes."""

import torch

from ..kit import NotOffered, device_count, device_module, equal, in_threads, python, wording
from ..registry import Topic

forks = Topic(
    "processes/fork",
    why="Data loaders fork. A forked child that waits for a lock of the device hangs. So a child that uses the device "
    "must get an error.",
    defined="torch/random.py asks torch.TYPE._is_in_bad_fork; torch/cuda/__init__.py: _is_in_bad_fork, _lazy_init",
    chapter="sharing",
    needs=("module", "storage", "not_the_host"),
)


@forks.check()
def an_unused_device_survives_a_fork(device):
    """A child forked before the parent used the device can use it."""
    code = f"""
    import os, torch
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.ones(2, device={device!r}).sum().item() == 2 else 1)
    status = os.waitpid(child, 0)[1]
    assert status == 0, status
    assert torch.ones(2, device={device!r}).sum().item() == 2
    """
    python(code)


@forks.check()
def a_used_device_refuses_in_the_child(device):
    """A child forked after the parent used the device gets a RuntimeError that names spawn or fork, or a right result.

    It never hangs, and the parent can still use the device.
    """
    code = f"""
    import os, signal, sys, torch
    x = torch.ones(2, device={device!r})
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            right = torch.ones(2, device={device!r}).sum().item() == 2 and x.sum().item() == 2
        except RuntimeError as error:
            os._exit(0 if "spawn" in str(error) or "fork" in str(error) else 3)
        os._exit(0 if right else 4)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 3), "a wrong result" if status == 4 else status
    assert x.sum().item() == 2
    print(status)
    """
    if python(code) == "3\n":
        wording("the error of the child does not say spawn or fork")


@forks.check()
def the_child_knows_that_it_is_one(device):
    """torch.TYPE._is_in_bad_fork() is false in the parent, and true in a child in which the device does not work."""
    type = torch.device(device).type
    device_module(device)._is_in_bad_fork  # noqa: B018 (a module without it is not asked)
    code = f"""
    import os, signal, torch
    torch.ones(2, device={device!r})
    assert not torch.{type}._is_in_bad_fork()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        said = torch.{type}._is_in_bad_fork()
        try:
            works = torch.ones(2, device={device!r}).sum().item() == 2
        except RuntimeError:
            works = False
        os._exit(0 if said != works else 1)
    assert os.waitpid(child, 0)[1] == 0
    """
    python(code)


@forks.check()
def the_child_may_compute_on_the_cpu(device):
    """A child forked after the parent used the device can seed, compute on the CPU, drop the tensors, and end."""
    code = f"""
    import os, signal, torch
    x = torch.ones(2, device={device!r}); p = [x + 1]
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        torch.manual_seed(1)
        ok = torch.ones(2).sum().item() == 2
        del x, p
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    """
    python(code)


@forks.check("pinned")
def the_child_may_read_pinned_memory(device):
    """A forked child reads and drops a pinned tensor of its parent."""
    code = f"""
    import os, signal, torch
    torch.ones(2, device={device!r})
    x = torch.full((1000,), 3.0).pin_memory()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        ok = x.sum().item() == 3000
        del x
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    """
    python(code)


@forks.check()
def a_loader_forks_while_the_device_works(device):
    """A DataLoader with forked workers feeds a device that is in use."""
    code = f"""
    import torch
    x = torch.ones(100, 100, device={device!r}) @ torch.ones(100, 100, device={device!r})
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context="fork")
    print(sum(b.to({device!r}).sum().item() for (b,) in loader))
    """
    equal(python(code), "28.0\n")


_SHARE = """
import sys, torch, torch.multiprocessing as mp

def child(x, queue, done):
    x.add_(1)
    getattr(torch, x.device.type).synchronize()
    queue.put(x.sum().item())
    done.wait(60)

if __name__ == "__main__":
    mp.set_start_method("spawn")
    x = torch.zeros(4, device=DEVICE)
    queue, done = mp.Queue(), mp.Event()
    process = mp.Process(target=child, args=(x, queue, done))
    process.start()
    print(queue.get(timeout=100), x.sum().item())
    done.set()
    process.join(60)
    print(process.exitcode)
"""

shares = Topic(
    "processes/sharing",
    why="torch.multiprocessing passes tensors between workers. If a child gets a copy, the parent does not see its "
    "writes.",
    defined="torch/multiprocessing/reductions.py; torch/csrc/StorageSharing.cpp",
    chapter="sharing",
    needs=("sharing",),
    issue="pytorch/pytorch#124902",
)


def _file(source):
    """Runs ``source`` in a new Python process as a file, because a spawned child imports its parent's file."""
    import os
    import subprocess
    import sys
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w") as file:
            file.write(source)
        return subprocess.run([sys.executable, path], capture_output=True, text=True)


@shares.check("not_the_host")
def a_spawned_child_shares_a_tensor(device):
    """A tensor that is sent to a spawned process is not copied: the parent sees what the child wrote to it."""
    result = _file(_SHARE.replace("DEVICE", repr(device)))
    equal((result.returncode, result.stdout), (0, "4.0 4.0\n0\n")) if result.returncode == 0 else equal(
        result.stderr[-800:], ""
    )


_RELEASE = """
import torch, torch.multiprocessing as mp

def child(queue, answers):
    x = queue.get()
    answers.put("has it")
    queue.get()
    del x
    answers.put("has dropped it")
    queue.get()

if __name__ == "__main__":
    mp.set_start_method("spawn")
    module = getattr(torch, TYPE)
    queue, answers = mp.Queue(), mp.Queue()
    process = mp.Process(target=child, args=(queue, answers), daemon=True)  # ends with its parent
    process.start()
    torch.empty(1, device=DEVICE)
    x = torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
    free, total = torch.accelerator.get_memory_info(DEVICE)
    reserved = torch.accelerator.memory_stats(DEVICE)["reserved_bytes.all.current"]
    module.set_per_process_memory_fraction((reserved + (32 << 20)) / total)
    queue.put(x)
    answers.get(timeout=100)
    del x
    queue.put(None)
    answers.get(timeout=100)
    torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
    queue.put(None)
    process.join(60)
"""


@shares.check("not_the_host", "memory_info", "memory_fraction", "statistics", 
              why="A loader that sends its batches through a queue keeps the memory that its readers have released, "
              "unless the allocator asks for it before it fails.",
              defined="c10/core/Allocator.h: FreeMemoryCallback; torch/csrc/CudaIPCTypes.h: CudaIPCCollect")  # fmt: skip
def released_memory_is_collected_before_an_allocation_fails(device):
    """Memory that was sent to another process, and that nobody uses any more, does not make an allocation fail."""
    type = torch.device(device).type
    result = _file(_RELEASE.replace("DEVICE", repr(device)).replace("TYPE", repr(type)))
    assert result.returncode == 0, result.stderr.strip()[-800:]


spawns = Topic(
    "processes/spawn",
    why="Every launcher starts new processes that import torch.",
    defined="torch/multiprocessing/spawn.py",
    chapter="autoload",
    needs=("not_the_host",),
)


@spawns.check()
def a_spawned_child_has_the_device(device):
    """A process that starts while its parent uses the device can use the same device."""
    code = f"""
    import subprocess, sys, torch
    x = torch.ones(2, device={device!r})
    child = subprocess.run([sys.executable, "-c", "import torch; print(torch.ones(2, device={device!r}).sum().item())"],
                           capture_output=True, text=True)
    assert (child.returncode, child.stdout) == (0, "2.0\\n"), child
    """
    python(code)


@spawns.check()
def two_processes_use_it_at_once(device):
    """Two processes compute on the device at the same time."""
    code = f"""
    import torch
    x = torch.ones(200, 200, device={device!r})
    for _ in range(50):
        x = (x @ x) / 200
    print(x.sum().item())
    """
    equal(in_threads(*[lambda: python(code)] * 2), ["40000.0\n"] * 2)


groups = Topic(
    "processes/distributed",
    why="Most accelerators are bought for training on several devices, which needs torch.distributed.",
    defined="torch/distributed/distributed_c10d.py: Backend.register_backend, default_device_backend_map",
    chapter="distributed",
    needs=("distributed", "storage", "not_the_host"),
)

_GROUP = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    device = torch.device(TYPE, rank % getattr(torch, TYPE).device_count())
    getattr(torch, TYPE).set_device(device)
    dist.init_process_group(dist.get_default_backend_for_device(TYPE))
BODY
    dist.destroy_process_group()

if __name__ == "__main__":
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (port,), nprocs=2)
"""


def _run_group(device, body):
    import re
    import textwrap

    source = _GROUP.replace("TYPE", repr(torch.device(device).type))
    source = source.replace("BODY", textwrap.indent(textwrap.dedent(body).strip(), "    "))
    result = _file(source)
    if re.search(r"Duplicate \w+ detected", result.stderr) and device_count(device) == 1:
        raise NotOffered("NCCL gives no two processes the same device, and there is one device")
    assert result.returncode == 0, result.stderr[-1500:]
    return result.stdout


@groups.check()
def collectives_give_their_results(device):
    """all_reduce, broadcast, all_gather, reduce_scatter and barrier give both of two processes the right results."""
    _run_group(
        device,
        """
        x = torch.full((4,), float(rank + 1), device=device)
        dist.all_reduce(x)
        assert x.tolist() == [3.0] * 4
        y = torch.full((2,), float(rank), device=device)
        dist.broadcast(y, 1)
        assert y.tolist() == [1.0] * 2
        parts = [torch.empty(2, device=device) for _ in range(2)]
        dist.all_gather(parts, torch.full((2,), float(rank), device=device))
        assert [p.tolist() for p in parts] == [[0.0, 0.0], [1.0, 1.0]]
        out = torch.empty(1, device=device)
        dist.reduce_scatter_tensor(out, torch.arange(2.0, device=device))
        assert out.tolist() == [2.0 * rank]
        dist.barrier()
        """,
    )


@groups.check(quick=False)
def data_parallel_training_averages_gradients(device):
    """With DistributedDataParallel, each of two processes has the mean of the gradients of both."""
    _run_group(
        device,
        """
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1, bias=False).to(device))
        model(torch.full((1, 3), float(rank + 1), device=device)).sum().backward()
        assert model.module.weight.grad.tolist() == [[1.5, 1.5, 1.5]]
        """,
    )


@groups.check(why="DistributedDataParallel logs how long the parts of a step take, as torch.distributed's tools show.",
              defined="torch/csrc/distributed/c10d/reducer_timer.hpp: TimerRegistry")  # fmt: skip
def the_parts_of_a_step_are_timed(device):
    """DistributedDataParallel's log has the times of forward and backward, which the backend's timer measures."""
    said = _run_group(
        device,
        """
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300).to(device))
        for _ in range(4):
            model(torch.ones(300, 300, device=device)).sum().backward()
        log = model._get_ddp_logging_data()
        times = [log.get(f"avg_{part}_compute_time", 0) for part in ("forward", "backward")]
        if rank == 0:
            print(*times)
        """,
    )
    times = [int(time) for time in said.split()]
    if times == [0, 0]:
        raise NotOffered("the backend has no timer in c10d's TimerRegistry")
    assert all(time > 0 for time in times), f"forward and backward take {times} nanoseconds"


@groups.check(quick=False)
def messages_arrive(device):
    """send and recv between two processes carry a tensor."""
    _run_group(
        device,
        """
        x = torch.full((3,), 7.0, device=device)
        if rank == 0:
            dist.send(x, 1)
        else:
            y = torch.zeros(3, device=device)
            dist.recv(y, 0)
            assert y.tolist() == [7.0] * 3
        dist.barrier()
        """,
    )
