"""The client of _zygote.py, for `check` and for the tests of this project (tests/support/programs.py).

This file needs nothing of the package: the tests load it without the package.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

INT = struct.Struct("i")


class Program:
    """A program that the server has started; the names are those of subprocess.Popen."""

    def __init__(self, words: Sequence[str], status: int) -> None:
        self.args = words
        self.returncode: int | None = None
        self._status = status
        (self.pid,) = INT.unpack(os.read(status, INT.size))

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            (self.returncode,) = INT.unpack(os.read(self._status, INT.size))
            os.close(self._status)
        return self.returncode


class Server:
    """The program _zygote.py. It ends with end(), or when this process ends."""

    def __init__(
        self, python: str = sys.executable, environment: Mapping[str, str] | None = None, imports: Sequence[str] = ()
    ) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [python, Path(__file__).with_name("_zygote.py"), str(theirs.fileno()), *imports],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for this process
        )
        theirs.close()

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], folder: str, output: int, errors: int
    ) -> Program:
        """Starts ``python WORDS`` in a folder, as the leader of a new process group."""
        request = json.dumps({"words": words, "environment": dict(environment), "folder": folder}).encode()
        status, theirs = os.pipe()
        with self._lock:
            socket.send_fds(self._connection, [INT.pack(len(request))], [output, errors, theirs])
            self._connection.sendall(request)
        os.close(theirs)
        return Program(words, status)

    def end(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()
