"""The client of _zygote.py, for `check` and for the tests of this project (tests/support/programs.py).

This file needs nothing of the package: the tests load it without the package.

    python _server.py PATH WORDS

does what `python WORDS` does: the server that listens at PATH starts the program. So torchrun and multiprocessing start
the ranks of a checked program (Server.launcher). This process passes signals on to the program, and ends as it does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

INT = struct.Struct("i")


class Program:
    """A program that the server has started; the names are those of subprocess.Popen."""

    def __init__(self, words: Sequence[str], status: int) -> None:
        """Raises EOFError if the server has ended."""
        self.args = words
        self.returncode: int | None = None
        self._status = status
        first = os.read(status, INT.size)
        if not first:
            os.close(status)
            raise EOFError("the server has ended")
        (self.pid,) = INT.unpack(first)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            (self.returncode,) = INT.unpack(os.read(self._status, INT.size))
            os.close(self._status)
        return self.returncode


def start(
    connection: socket.socket,
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    output: int,
    errors: int,
    files: Sequence[int] = (),
) -> Program:
    """Asks the server for ``python WORDS`` in a folder, as the leader of a new process group, with these open files."""
    parts = {"words": words, "environment": dict(environment), "folder": folder, "files": files}
    request = json.dumps(parts).encode()
    status, theirs = os.pipe()
    socket.send_fds(connection, [INT.pack(len(request))], [output, errors, theirs, *files])
    connection.sendall(request)
    os.close(theirs)
    return Program(words, status)


class Server:
    """The program _zygote.py. It ends with end(), or when this process ends.

    ``imports``: the modules that it has imported, which may print, unless ``is_quiet``.
    ``path``: it also listens there, and ``launcher`` is a file that a program can start in the place of Python.
    """

    def __init__(
        self,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        imports: Sequence[str] = (),
        path: Path | None = None,
        is_quiet: bool = False,
    ) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair()
        listener = socket.socket(socket.AF_UNIX)
        if path:
            listener.bind(str(path))
            listener.listen()
            self.launcher = path.with_suffix(".sh")
            words = shlex.join([sys.executable, "-IS", __file__, str(path)])
            self.launcher.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            self.launcher.chmod(0o700)
        files = [theirs.fileno(), listener.fileno()]
        output = subprocess.DEVNULL if is_quiet else None
        self._process = subprocess.Popen(
            [python, Path(__file__).with_name("_zygote.py"), *map(str, files), *imports],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=files,
            start_new_session=True,  # Ctrl-C is for this process
        )
        theirs.close()
        listener.close()

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], folder: str, output: int, errors: int
    ) -> Program:
        with self._lock:
            return start(self._connection, words, environment, folder, output, errors)

    def end(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _is_open(number: int) -> bool:
    """False for the file with which the list of open files was read: the list has it too."""
    with contextlib.suppress(OSError):
        os.fstat(number)
        return True
    return False


def launch() -> None:
    path, *words = sys.argv[1:]
    files = [number for number in map(int, os.listdir("/proc/self/fd")) if number > 2 and _is_open(number)]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        program = start(connection, words, os.environ, os.getcwd(), 1, 2, files)
    for number in files:  # a pipe ends when the program has closed it
        os.close(number)

    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, number)

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, pass_on)
    status = program.wait()
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    launch()
