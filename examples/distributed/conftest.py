"""The fixture `ranks`: runs a function in several processes, which form a process group on the device."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist


def _run(
    rank: int, size: int, port: int, function: Callable[..., Any], arguments: tuple[Any, ...], answers: Any
) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = torch.device(torch.accelerator.current_accelerator().type, rank % torch.accelerator.device_count())
    torch.accelerator.set_device_index(device.index)
    dist.init_process_group(timeout=datetime.timedelta(seconds=10), device_id=device)
    try:
        result = function(device, *arguments)
        torch.accelerator.synchronize()  # a queued failure is raised here at the latest
        answers.put((rank, result, None))
    except Exception:
        answers.put((rank, None, traceback.format_exc()))
    answers.close()
    answers.join_thread()


@pytest.fixture
def ranks() -> Callable[..., dict[int, tuple[Any, str | None]]]:
    """`ranks(size, function, *arguments)` gives (result, traceback) of each rank; a rank that died is missing."""

    def run(size: int, function: Callable[..., Any], *arguments: Any) -> dict[int, tuple[Any, str | None]]:
        context = multiprocessing.get_context("spawn")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        answers = [context.Queue() for _ in range(size)]  # one for each rank: a rank that dies may break its queue
        processes = [
            context.Process(target=_run, args=(rank, size, port, function, arguments, answers[rank]))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        results = {}
        for rank, process in enumerate(processes):
            process.join(120)
            assert process.exitcode is not None, f"rank {rank} hangs"
            if process.exitcode == 0:
                _, result, error = answers[rank].get(timeout=10)
                results[rank] = (result, error)
        return results

    return run
