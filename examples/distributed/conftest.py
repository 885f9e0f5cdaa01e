"""The fixture `ranks`: runs a function in several processes, which form a process group on the device."""

from __future__ import annotations

import contextlib
import datetime
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
import torch.distributed as dist


def _run(
    variables: dict[str, str], rank: int, function: Callable[..., Any], arguments: tuple[Any, ...], answer: Connection
) -> None:
    os.environ.update(variables)
    device = torch.device(torch.accelerator.current_accelerator().type, rank)
    torch.accelerator.set_device_index(device.index)
    dist.init_process_group(timeout=datetime.timedelta(seconds=60), device_id=device)
    try:
        result = function(device, *arguments)
        torch.accelerator.synchronize()  # a queued failure is raised here at the latest
        answer.send((result, None))
    except Exception:
        answer.send((None, traceback.format_exc()))


@pytest.fixture
def ranks() -> Callable[..., dict[int, tuple[Any, str | None]]]:
    """`ranks(size, function, *arguments)` gives (result, traceback) of each rank; a rank that died is missing."""

    def run(size: int, function: Callable[..., Any], *arguments: Any) -> dict[int, tuple[Any, str | None]]:
        # The ranks are forks of a process that has imported torch, and what DDP and optimizers import, which takes
        # seconds, and has not used the device.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "torch._dynamo"])
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
        group["OPENREG_DEVICE_COUNT"] = str(size)
        readers, processes = [], []
        for rank in range(size):
            reader, writer = context.Pipe(duplex=False)
            variables = os.environ | group | {"RANK": str(rank)}
            process = context.Process(target=_run, args=(variables, rank, function, arguments, writer))
            process.start()
            writer.close()  # the rank has the only open end, so its death ends the pipe
            readers.append(reader)
            processes.append(process)
        results = {}
        for rank, (reader, process) in enumerate(zip(readers, processes, strict=True)):
            assert reader.poll(300), f"rank {rank} hangs"
            with contextlib.suppress(EOFError):  # the rank died
                results[rank] = reader.recv()
            process.join(300)
            assert process.exitcode is not None, f"rank {rank} hangs"
            if process.exitcode != 0:
                results.pop(rank, None)
        return results

    return run
