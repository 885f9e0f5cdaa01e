"""torchrun on the device: a rank for each device, a restart after a rank has died, and two hosts."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import programs
import pytest
from programs import Done, at_once

pytestmark = pytest.mark.slow

TRAIN = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

device = torch.device("openreg", int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count())
dist.init_process_group(device_id=device)
rank = dist.get_rank()
torch.accelerator.set_device_index(device.index)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model(torch.full((2, 4), float(rank), device=device)).sum().backward()
    optimizer.step()
    if step == 1 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] < os.environ.get("DIES_UNTIL", "0"):
        os._exit(1)
total = torch.tensor(float(rank), device=device)
dist.all_reduce(total)
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
line = f"rank {rank} of {dist.get_world_size()} attempt {attempt} total {total.item()}\\n"
print(line, end="", flush=True)  # one write, because the ranks share one pipe
dist.destroy_process_group()
"""


SUM = """
import os, torch, torch.distributed as dist

torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("occl")
rank = dist.get_rank()
counter = f"/sys/class/net/{os.environ['GLOO_SOCKET_IFNAME']}/statistics/tx_bytes"
x = torch.ones(1 << 20, device="openreg")
dist.all_reduce(x)
dist.barrier()
before = int(open(counter).read())
for _ in range(5):
    dist.all_reduce(x)
dist.barrier()
sent = (int(open(counter).read()) - before) / (5 * x.nbytes)
assert torch.equal(x.cpu(), torch.full((1 << 20,), 4.0**6)), x
print(f"rank {rank} sent {sent:.2f}\\n", end="", flush=True)
dist.destroy_process_group()
"""


def torchrun(folder: Path, *options: str, **variables: str) -> Done:
    program = folder / "train.py"
    program.write_text(textwrap.dedent(TRAIN))
    return programs.run(sys.executable, "-m", "torch.distributed.run", *options, program, **variables)


def test_torchrun_starts_a_rank_for_each_device(tmp_path: Path) -> None:
    result = torchrun(tmp_path, "--standalone", "--nproc-per-node", "openreg", OPENREG_DEVICE_COUNT="2")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"rank {rank} of 2 attempt 0 total 1.0" for rank in range(2)]


def test_torchrun_starts_again_when_a_rank_dies(tmp_path: Path) -> None:
    options = ("--standalone", "--nproc-per-node", "2", "--max-restarts", "1")
    result = torchrun(tmp_path, *options, DIES_UNTIL="1")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"rank {rank} of 2 attempt 1 total 1.0" for rank in range(2)]


def ip(*arguments: str) -> None:
    programs.run("ip", *arguments, status=0)


@pytest.fixture
def hosts() -> Iterator[list[tuple[str, str, str]]]:
    """Name, network interface and address of two network namespaces, which have one wire between them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip and the rights of root")
    made = [(f"openreg{os.getpid()}{side}", f"wire{side}", f"10.213.77.{side + 1}") for side in range(2)]
    names = [name for name, _, _ in made]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "wire0", "netns", names[0], "type", "veth", "peer", "name", "wire1", "netns", names[1])
        for name, interface, address in made:
            ip("-n", name, "address", "add", f"{address}/24", "dev", interface)
            ip("-n", name, "link", "set", interface, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield made
    finally:
        for name in names:
            programs.run("ip", "netns", "delete", name)


def run_on(hosts: list[tuple[str, str, str]], program: Path, transport: str) -> list[str]:
    """The lines that two ranks on each host print. A host sees only its own processes."""
    processes = [
        partial(
            programs.run,
            *("ip", "netns", "exec", name, "unshare", "--pid", "--fork", "--mount-proc"),
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number)),
            *("--nproc-per-node", "2", "--master-addr", hosts[0][2], "--master-port", "29400", program),
            **{"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface, "OCCL_TRANSPORT": transport},
            status=0,
        )
        for number, (name, interface, _) in enumerate(hosts)
    ]
    return sorted(line for result in at_once(*processes) for line in result.stdout.splitlines())


@pytest.mark.parametrize("transport", ["auto", "gloo"])
def test_two_hosts_train_together(tmp_path: Path, hosts: list[tuple[str, str, str]], transport: str) -> None:
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(TRAIN))
    assert run_on(hosts, program, transport) == [f"rank {rank} of 4 attempt 0 total 6.0" for rank in range(4)]


def test_a_host_sends_a_large_sum_once(tmp_path: Path, hosts: list[tuple[str, str, str]]) -> None:
    """A host sends the bytes of the sum about once. A ring of all four ranks would send them 1.5 times."""
    program = tmp_path / "sum.py"
    program.write_text(textwrap.dedent(SUM))
    for line in run_on(hosts, program, "auto"):
        assert 0.9 < float(line.split()[-1]) < 1.25, line
