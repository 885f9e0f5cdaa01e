"""Runs Python programs in processes of their own, and pays for `import torch` only once.

A program is a child of a server that has imported torch, but no backend. In the child the first `import torch` gives
the server's module and then loads the backends, which is what a new interpreter does in this order. So a program
starts in tens of milliseconds and not in a second.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import json
import multiprocessing.process
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any

INT = struct.Struct("i")
# PYTHONSAFEPATH, since Python 3.11: sys.path does not begin with the program's folder.
SAFE_PATH = getattr(sys.flags, "safe_path", False)


# Variables that Python and torch do not read while they start.
LATE = re.compile(
    "OPENREG|OCCL_|MASTER_|PYTEST_|BACKEND_AUTOLOAD"
    "|^(CUDA_VISIBLE_DEVICES|HOME|PY_COLORS|PYTHONPATH|TEST_DEVICE|TORCHINDUCTOR_CACHE_DIR|USERPROFILE)$"
)


def read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a program can only have if its server has them."""
    return {name: value for name, value in environment.items() if not LATE.search(name)}


# ---- The server, in which this file is the program -------------------------------------------------------------------


class Torch(MetaPathFinder, Loader):
    """Imports torch a second time: from the modules that the server has imported."""

    def __init__(self) -> None:
        names = [name for name in sys.modules if name == "torch" or name.startswith("torch.")]
        self._modules = {name: sys.modules.pop(name) for name in names}
        self._spec = self._modules["torch"].__spec__

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname == "torch" else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        sys.meta_path.remove(self)
        sys.modules.update(self._modules)
        return self._modules["torch"]

    def exec_module(self, torch: types.ModuleType) -> None:
        torch.__spec__ = self._spec
        if torch._is_device_backend_autoload_enabled():
            torch._import_device_backends()


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next request, and the files in which the program leaves its output, its errors and its exit status."""
    size, files, _, _ = socket.recv_fds(connection, INT.size, 3)
    if not size:
        sys.exit()
    (left,), text = INT.unpack(size), b""
    while left > len(text):
        text += connection.recv(left - len(text))  # not more: the next request may be there already
    return json.loads(text), files


def next_program(connection: socket.socket) -> dict[str, Any]:
    """Returns in a new process for each request."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for the programs
    while True:
        request, (output, errors, status) = receive(connection)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            program = os.fork()
            if program == 0:
                os.dup2(output, 1)
                os.dup2(errors, 2)
                os.closerange(3, status + 1)
                return request
            os.write(status, INT.pack(program))
            os.write(status, INT.pack(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])))
            os._exit(0)
        for file in (output, errors, status):
            os.close(file)


def put_first(folder: str) -> None:
    if not SAFE_PATH:
        sys.path[0] = folder


def code_of(arguments: list[str], main: types.ModuleType) -> tuple[types.CodeType, list[str]]:
    """The code that Python would run as `main`, and its sys.argv. Also calls put_first()."""
    kind, *rest = arguments
    if kind == "-c":
        put_first("")
        return compile(rest[0], "<string>", "exec"), ["-c", *rest[1:]]
    if kind == "-m":
        put_first(os.getcwd())
        spec = importlib.util.find_spec(rest[0])
        if spec and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{rest[0]}.__main__")
        assert spec and spec.origin, f"no module {rest[0]}"
        file, arguments = spec.origin, [spec.origin, *rest[1:]]
        main.__spec__, main.__package__ = spec, spec.parent
    else:
        file = str(Path(kind).absolute())
        put_first(str(Path(file).parent))
    main.__file__ = file
    return compile(Path(file).read_bytes(), file, "exec"), arguments


def serve() -> None:
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch  # noqa: F401

    gc.collect()
    gc.freeze()
    request = next_program(socket.socket(fileno=int(sys.argv[1])))
    sys.meta_path.insert(0, Torch())
    os.chdir(request["folder"])
    multiprocessing.process.ORIGINAL_DIR = request["folder"]  # the folder of spawned processes
    os.environ.clear()
    os.environ.update(request["environment"])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    try:
        own = 0 if SAFE_PATH else 1  # the entry of put_first()
        sys.path[own:own] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        code, sys.argv = code_of(request["arguments"], main)
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next  # without the frame of this function
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


# ---- The tests' side -------------------------------------------------------------------------------------------------


class Program:
    """A program that the server has started; the names are those of subprocess.Popen."""

    def __init__(self, command: list[str], status: int) -> None:
        self.args = command
        self.returncode: int | None = None
        self._status = status
        (self.pid,) = INT.unpack(os.read(status, INT.size))

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            (self.returncode,) = INT.unpack(os.read(self._status, INT.size))
            os.close(self._status)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Server:
    def __init__(self, environment: dict[str, str]) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def start(self, command: list[str], environment: dict[str, str], folder: str, output: int, errors: int) -> Program:
        request = json.dumps({"arguments": command[1:], "environment": environment, "folder": folder}).encode()
        status, theirs = os.pipe()
        with self._lock:
            socket.send_fds(self._connection, [INT.pack(len(request))], [output, errors, theirs])
            self._connection.sendall(request)
        os.close(theirs)
        return Program(command, status)


@functools.cache
def server(environment: frozenset[tuple[str, str]]) -> Server:
    return Server(dict(environment))


def start(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdout: int = 1,
    stderr: int = 2,
) -> Program | subprocess.Popen[str]:
    """As subprocess.Popen(), for a new process.

    The server starts [sys.executable, "-c", code, ...], [sys.executable, "-m", module, ...] and [sys.executable,
    file, ...]. A command with options of Python, or with an environment that differs from os.environ in what Python or
    torch may read while they start, runs in a new interpreter, and so does any other program.
    """
    words, environment = [str(word) for word in command], dict(os.environ if env is None else env)
    is_plain = words[0] == sys.executable and (words[1] in ("-c", "-m") or words[1].endswith(".py"))
    is_plain &= "TEST_INTERPRETERS" not in os.environ  # set by a developer, or by a tool, who wants no server
    early = read_early(environment)
    if not is_plain or early != read_early(os.environ):
        return subprocess.Popen(words, env=environment, cwd=cwd, stdout=stdout, stderr=stderr, text=True)
    # Libraries set variables for the whole process when they are imported: then later programs have another server.
    return server(frozenset(early.items())).start(words, environment, str(cwd or os.getcwd()), stdout, stderr)


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 600,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run(), for start(), with the output and the errors as text."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        program = start(command, env=env, cwd=cwd, stdout=output.fileno(), stderr=errors.fileno())
        try:
            status = program.wait(timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            raise
        output.seek(0)
        errors.seek(0)
        result = subprocess.CompletedProcess(command, status, output.read(), errors.read())
    if check:
        result.check_returncode()
    return result


if __name__ == "__main__":
    serve()
