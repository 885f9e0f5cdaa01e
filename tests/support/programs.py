"""Runs Python programs in processes of their own, and pays for `import torch` only once.

A program is a child of a server that has imported torch, but no backend. In the child the first `import torch` gives
the server's module and then loads the backends, which is what a new interpreter does in this order. So a program
starts in tens of milliseconds and not in a second.
"""

from __future__ import annotations

import contextlib
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
import textwrap
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
INT = struct.Struct("i")
# PYTHONSAFEPATH, since Python 3.11: sys.path does not begin with the program's folder.
SAFE_PATH = getattr(sys.flags, "safe_path", False)

_TORCH = importlib.util.find_spec("torch")
assert _TORCH is not None and _TORCH.origin is not None
HAS_CUDA = Path(_TORCH.origin).with_name("lib").joinpath("libtorch_cuda.so").exists()  # a build of PyTorch with CUDA
# Variables that Python and torch do not read while they start.
LATE = re.compile(
    "OPENREG|OCCL_|MASTER_|PYTEST_|BACKEND_AUTOLOAD"
    "|^(ARTIFACTS?|CUDA_VISIBLE_DEVICES|HOME|LOADS|PY_COLORS|PYTHONPATH|TEST_DEVICE|TORCHINDUCTOR_CACHE_DIR|USERPROFILE)$"
)

# What the backend reads when it is loaded. It reads the other variables of the device when the device starts.
LOADING = ("TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_OPENREG_AS", "TORCH_OPENREG_AUTOLOAD")
# The modules of torch.compile. They take three times as long as torch.
COMPILER = ("torch", "torch._inductor.compile_fx")


def read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a program can only have if its server has them."""
    # In a build with CUDA, the type decides which libraries `import torch` opens.
    return {
        name: value
        for name, value in environment.items()
        if not LATE.search(name) or (HAS_CUDA and name == "TORCH_OPENREG_AS")
    }


# ---- The server, in which this file is the program -------------------------------------------------------------------


class Torch(MetaPathFinder, Loader):
    """Imports torch a second time: from the modules that the server has imported."""

    def __init__(self) -> None:
        names = [name for name in sys.modules if name == "torch" or name.startswith("torch.")]
        self._modules = {name: sys.modules.pop(name) for name in names}
        spec = self._modules["torch"].__spec__
        assert spec is not None
        self._spec = spec

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self, origin=self._spec.origin) if fullname == "torch" else None

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
                os.setsid()  # a process group, which kill() ends
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
    connection, *imports = sys.argv[1:]
    if not imports:
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    for name in imports or ["torch"]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    request = next_program(socket.socket(fileno=int(connection)))
    if not imports:
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

LIMIT = 600
"""The time limit of a program, in seconds. It only ends a hang."""
SUPPORT = str(Path(__file__).parent)  # for the PYTHONPATH of a program that imports modules of this folder

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


def importing(file: str) -> str:
    """The PYTHONPATH of a program that imports modules of this folder, and of the folder of ``file``."""
    return os.pathsep.join([SUPPORT, str(Path(file).parent)])


class Program:
    """A program that the server has started; the names are those of subprocess.Popen."""

    def __init__(self, command: list[str], status: int) -> None:
        self.args = command
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
    def __init__(self, python: str, environment: dict[str, str], imports: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [python, __file__, str(theirs.fileno()), *imports],
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

    def end(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


served = {sys.executable}
"""The interpreters whose programs a server starts."""
Key = tuple[str, frozenset[tuple[str, str]], tuple[str, ...]]
_servers: dict[Key, Server] = {}
_making = threading.Lock()


def server(python: str, environment: Mapping[str, str], imports: tuple[str, ...]) -> Server:
    key = (python, frozenset(environment.items()), imports)
    with _making:
        if key not in _servers:
            _servers[key] = Server(python, dict(environment), imports)
        return _servers[key]


def end_servers(python: str) -> None:
    """Ends the servers of an interpreter, which is removed from ``served``. The other ones end with the tests."""
    served.discard(python)
    for key in [key for key in _servers if key[0] == python]:
        _servers.pop(key).end()


def start(
    *command: str | Path,
    cwd: str | Path | None = None,
    clean: bool = False,
    new_interpreter: bool = False,
    imports: tuple[str, ...] = (),
    stdin: int | None = None,
    stdout: int = 1,
    stderr: int = 2,
    **variables: str | None,
) -> Program | subprocess.Popen[str]:
    """Starts a program as the leader of a new process group, with this environment and ``variables``.

    ``clean``: without the variables that the device or this package reads. A variable that is None is not set.

    The server of an interpreter in ``served`` starts [python, "-c", code, ...], [python, "-m", module, ...] and
    [python, file, ...]. A command with options of Python, or with an environment that differs from os.environ in what
    Python or torch may read while they start, runs in a new interpreter, and so does a program with a stdin.

    ``imports``: modules that the server has imported, after torch and its backends, such as COMPILER.
    """
    words = [str(word) for word in command]
    inherited = {name: value for name, value in os.environ.items() if not (clean and "OPENREG" in name)}
    environment = {name: value for name, value in (inherited | variables).items() if value is not None}
    new_interpreter |= "TEST_INTERPRETERS" in os.environ  # set by a developer, or by a tool, who wants no server
    is_plain = words[0] in served and (words[1] in ("-c", "-m") or words[1].endswith(".py")) and stdin is None
    early = read_early(environment)
    if new_interpreter or not is_plain or early != read_early(os.environ):
        return subprocess.Popen(
            words, env=environment, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, text=True,
            start_new_session=True,
        )  # fmt: skip
    if imports:  # the server has the backend, so it has what the backend reads when it is loaded
        early |= {name: value for name, value in environment.items() if name in LOADING}
    # Libraries set variables for the whole process when they are imported: then later programs have another server.
    folder = str(cwd or os.getcwd())
    return server(words[0], early, imports).start(words, environment, folder, stdout, stderr)


def kill(program: Program | subprocess.Popen[str]) -> None:
    """Ends a program and the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()


def run(
    *command: str | Path,
    timeout: float | None = LIMIT,
    status: int | None = None,
    output: str | None = None,
    errors: str | None = None,
    merged: bool = False,
    **settings: Any,
) -> Done:
    """Runs a program as start() does, and returns its exit status, its output and its errors as text.

    Fails if the program does not end with ``status``, ``output`` or ``errors``, where these are given, and if it takes
    longer than ``timeout`` seconds: then it is killed. ``merged``: the errors are part of the output.
    """
    with tempfile.TemporaryFile("w+") as written, tempfile.TemporaryFile("w+") as complaints:
        stderr = written if merged else complaints
        program = start(*command, stdout=written.fileno(), stderr=stderr.fileno(), **settings)
        late = False
        try:
            program.wait(timeout)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            if program.returncode is None:
                kill(program)
        written.seek(0)
        complaints.seek(0)
        assert program.returncode is not None
        result = subprocess.CompletedProcess(program.args, program.returncode, written.read(), complaints.read())
    said = f"{program.args}\n{result.stdout}{result.stderr}"
    assert not late, f"still running after {timeout} s: {said}"
    assert status in (None, result.returncode), f"exit status {result.returncode}, not {status}: {said}"
    assert output in (None, result.stdout), said
    assert errors in (None, result.stderr), said
    return result


def python(code: str, *arguments: str | Path, options: Sequence[str] = (), **settings: Any) -> Done:
    """As run(), for code in Python, whose lines may be indented."""
    return run(sys.executable, *options, "-c", textwrap.dedent(code), *arguments, **settings)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def variables_of_ranks(size: int) -> list[dict[str, str]]:
    """What torch.distributed reads in the environment of each rank."""
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
    return [group | {"RANK": str(rank)} for rank in range(size)]


def at_once(*runs: Callable[[], T], most: int = 2) -> list[T]:
    """Calls functions that wait for programs, two at a time: `import torch` takes most of the time, on one core."""
    with ThreadPoolExecutor(most) as pool:
        return [future.result() for future in [pool.submit(function) for function in runs]]


def ranks(size: int, code: str, **settings: Any) -> list[Done]:
    """As python(), for all ranks of a group at once."""
    return at_once(*(partial(python, code, **each, **settings) for each in variables_of_ranks(size)), most=size)


class Peer:
    """A program with which a test exchanges lines. It is killed at the end of the ``with`` block, or by close()."""

    def __init__(self, *command: str | Path, **settings: Any) -> None:
        process = start(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **settings)
        assert isinstance(process, subprocess.Popen)
        self.process = process

    def read(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def write(self, line: str = "") -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line: str = "") -> str:
        self.write(line)
        return self.read()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        with self.process:  # closes the pipes
            kill(self.process)


if __name__ == "__main__":
    serve()
