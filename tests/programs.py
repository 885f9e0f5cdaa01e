"""Runs Python programs in processes of their own, and pays for `import torch` only once.

A program is a child of a server that has imported torch, but no backend. In the child the first `import torch` gives
the server's module and then loads the backends, which is what a new interpreter does in this order. So a program
starts in tens of milliseconds and not in a second.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
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


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables without those that only a backend, a compiler, pytest or this file reads."""
    late = (
        "OPENREG|CUDA_VISIBLE_DEVICES|MASTER_|PYTEST_|PYTHONPATH|TEST_DEVICE|TORCHINDUCTOR_CACHE_DIR|BACKEND_AUTOLOAD"
    )
    return {name: value for name, value in environment.items() if not re.search(late, name)}


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
    text = b""
    while len(text) < INT.unpack(size)[0]:
        text += connection.recv(1 << 16)
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
                os.setsid()
                return request
            os.write(status, INT.pack(program))
            os.write(status, INT.pack(os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])))
            os._exit(0)
        for file in (output, errors, status):
            os.close(file)


def code_of(arguments: list[str], main: types.ModuleType) -> tuple[types.CodeType, list[str]]:
    """The code that Python would run as `main`, and its sys.argv. Also sets sys.path[0]."""
    kind, *rest = arguments
    if kind == "-c":
        sys.path[0] = ""
        return compile(rest[0], "<string>", "exec"), ["-c", *rest[1:]]
    if kind == "-m":
        sys.path[0] = os.getcwd()
        spec = importlib.util.find_spec(rest[0])
        if spec and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{rest[0]}.__main__")
        assert spec and spec.origin, f"no module {rest[0]}"
        file, arguments = spec.origin, [spec.origin, *rest[1:]]
        main.__spec__, main.__package__ = spec, spec.parent
    else:
        file = str(Path(kind).absolute())
        sys.path[0] = str(Path(file).parent)
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
    os.environ.clear()
    os.environ.update(request["environment"])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    try:
        code, sys.argv = code_of(request["arguments"], main)
        sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        assert error.__traceback__ is not None
        error.__traceback__ = error.__traceback__.tb_next  # without the frame of this function
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


# ---- The tests' side -------------------------------------------------------------------------------------------------


class _Server:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair()
        self._environment = _read_early(os.environ)
        command = [sys.executable, __file__, str(theirs.fileno())]
        files = {"stdin": subprocess.DEVNULL, "pass_fds": [theirs.fileno()]}
        self._process = subprocess.Popen(command, env=self._environment, **files)
        theirs.close()

    def accepts(self, python: str, arguments: list[str], environment: Mapping[str, str]) -> bool:
        plain = arguments[0] in ("-c", "-m") or arguments[0].endswith(".py")
        return python == sys.executable and plain and _read_early(environment) == self._environment

    def wait(self, request: dict[str, Any], files: list[int], timeout: float) -> int:
        """Starts a program, and returns its exit status, or the negative number of the signal that ended it."""
        status, theirs = os.pipe()
        text = json.dumps(request).encode()
        try:
            with self._lock:
                socket.send_fds(self._connection, [INT.pack(len(text))], [*files, theirs])
                self._connection.sendall(text)
            os.close(theirs)
            (program,) = INT.unpack(os.read(status, INT.size))
            if not select.select([status], [], [], timeout)[0]:
                os.killpg(program, signal.SIGKILL)
                raise subprocess.TimeoutExpired(request["arguments"], timeout)
            return int(*INT.unpack(os.read(status, INT.size)))
        finally:
            os.close(status)


@functools.cache
def _server() -> _Server:
    return _Server()


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float = 300,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run() for a new process of Python, with the output and the errors as text.

    The server starts [sys.executable, "-c", code, ...], [sys.executable, "-m", module, ...] and [sys.executable,
    file, ...]. A command with options of Python, or with an environment that differs from that of the first call in
    what Python or torch may read while they start, runs in a new interpreter, and so does any other program.
    """
    environment = dict(os.environ if env is None else env)
    python, *arguments = [str(word) for word in command]
    if not _server().accepts(python, arguments, environment):
        return subprocess.run(
            command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=check
        )
    request = {"arguments": arguments, "environment": environment, "folder": str(cwd or os.getcwd())}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        status = _server().wait(request, [output.fileno(), errors.fileno()], timeout)
        output.seek(0)
        errors.seek(0)
        result = subprocess.CompletedProcess(command, status, output.read(), errors.read())
    if check:
        result.check_returncode()
    return result


if __name__ == "__main__":
    serve()
