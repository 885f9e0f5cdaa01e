"""A program of a library as two tests: it ends with exit status 0, as one process and as two ranks.

OPENREG_CLIENTS_FILE names the program.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(os.environ["OPENREG_CLIENTS_FILE"])


def variables_of(ranks: int) -> list[dict[str, str]]:
    """The environment variables of each rank, as torchrun sets them. A single process has none of them."""
    if ranks == 1:
        return [{}]
    with socket.create_server(("localhost", 0)) as server:
        port = str(server.getsockname()[1])
    size = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    return [{**size, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2], ids=f"{FILE.stem}-{{}}".format)
def test_a_program_ends_well(ranks: int, tmp_path: Path) -> None:
    processes = []
    for rank, variables in enumerate(variables_of(ranks)):
        with (tmp_path / f"stderr{rank}").open("w") as errors:
            processes.append(
                subprocess.Popen(
                    [sys.executable, str(FILE)],
                    cwd=tmp_path,
                    env={**os.environ, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
            )
    try:
        for rank, process in enumerate(processes):
            status = process.wait()
            said = (tmp_path / f"stderr{rank}").read_text(errors="replace").splitlines()
            words = [line for line in said if "Error" in line] or said or ["no words"]
            assert status == 0, f"rank {rank} ended with {status}: {words[-1]}"
    finally:
        for process in processes:
            process.kill()  # after a failure, the other rank may wait for this one
            process.wait()
