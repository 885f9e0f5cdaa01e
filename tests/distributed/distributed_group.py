"""Ranks for tests of torch.distributed: processes that serve many tests and run one function after the other."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection
from typing import Any

import programs
from programs import free_port, importing

TIMEOUT = 300


def serve(rank: int, size: int, port: int, backend: str | None, address: bytes) -> None:
    """The program of a rank, which connects to `address`, a socket of its Group."""
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank)
    )
    pipe = Client(address)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.accelerator.set_device_index(rank % torch.accelerator.device_count())
    if backend != "none":
        device = torch.device("openreg", torch.accelerator.current_device_index())
        dist.init_process_group(backend, timeout=datetime.timedelta(seconds=TIMEOUT), device_id=device)
    pipe.send(None)
    while (task := pipe.recv()) is not None:
        module, name, arguments, mode = task
        try:
            torch.openreg.execution_mode(mode)  # type: ignore[attr-defined]
            result = getattr(importlib.import_module(module), name)(*arguments)
            torch.accelerator.synchronize()
            pipe.send((True, result))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    if backend != "none" and dist.is_initialized():
        dist.destroy_process_group()


class Group:
    """`size` ranks, in a process group unless `backend` is "none". The ranks behave as if they ran on `hosts` hosts.

    `imports`: as in programs.start().
    """

    def __init__(
        self,
        size: int,
        backend: str | None = None,
        environment: dict[str, str] | None = None,
        hosts: int = 1,
        imports: tuple[str, ...] = programs.DISTRIBUTED,
    ) -> None:
        port = free_port()
        self.size = size
        self.pipes: list[Connection] = []
        self.processes: list[programs.Program | subprocess.Popen[str]] = []
        for rank in range(size):
            variables = {
                "PYTHONPATH": importing(__file__),
                "OCCL_HOSTID": str(rank * hosts // size),
                "OPENREG_DEVICE_COUNT": str(max(size, 2)),
            }
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind("")  # the kernel chooses an address
                listener.listen()
                listener.settimeout(1)
                arguments = (rank, size, port, backend, listener.getsockname())
                code = f"import {__name__}; {__name__}.serve{arguments}"
                variables |= environment or {}
                self.processes.append(programs.start(sys.executable, "-c", code, imports=imports, **variables))
                self.pipes.append(self._accept(rank, listener))
        for rank in range(size):
            self._receive(rank, 600)

    def _accept(self, rank: int, listener: socket.socket) -> Connection:
        while True:
            with contextlib.suppress(TimeoutError):
                return Connection(listener.accept()[0].detach())
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.processes[rank].wait(0)
                raise AssertionError(f"rank {rank} ended with the status {status} before it connected")

    def _receive(self, rank: int, seconds: float) -> Any:
        assert self.pipes[rank].poll(seconds), f"rank {rank} gave no answer in {seconds} s"
        return self.pipes[rank].recv()

    def start(self, module: str, name: str, *arguments: Any, mode: str = "inline", ranks: Sequence[int] = ()) -> None:
        for rank in ranks or range(self.size):
            self.pipes[rank].send((module, name, arguments, mode))

    def results(self, *, seconds: float = 600, ranks: Sequence[int] = ()) -> list[Any]:
        """What the ranks returned; fails with the traceback of every rank that raised."""
        answers = {rank: self._receive(rank, seconds) for rank in ranks or range(self.size)}
        failures = [f"rank {rank}:\n{text}" for rank, (succeeded, text) in answers.items() if not succeeded]
        assert not failures, "\n".join(failures)
        return [result for _, result in answers.values()]

    def run(self, module: str, name: str, *arguments: Any, mode: str = "inline", seconds: float = 600) -> list[Any]:
        self.start(module, name, *arguments, mode=mode)
        return self.results(seconds=seconds)

    def close(self) -> None:
        for pipe in self.pipes:
            with contextlib.suppress(OSError):  # the rank was killed
                pipe.send(None)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            programs.kill(process)
