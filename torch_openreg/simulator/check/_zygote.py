"""The program that starts other programs: it imports torch once, and forks a process for each of them.

    python _zygote.py CONNECTION LISTENER [MODULE...]

The two numbers are those of open sockets. One has the requests of the client, with which this program ends. The other
has the requests of programs that start programs, if it listens.

It has loaded no backend. In the fork, the first `import torch` of the program gives the module that is there already,
and then loads the backends: what a new interpreter does, in this order, and without the seconds. If modules are given,
it has imported these instead, as a program does. `check` and the tests of this project (tests/support/programs.py)
start their programs so, with _server.py. This file is a program, which needs nothing of the package.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
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
import types
from collections.abc import Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

INT = struct.Struct("i")
# PYTHONSAFEPATH, since Python 3.11: sys.path does not begin with the program's folder.
SAFE_PATH = getattr(sys.flags, "safe_path", False)
# What Python and the libraries of torch read only when they start.
EARLY = re.compile("PYTHON(?!PATH$|_EXEC$)|LD_|OMP_|GOMP_|KMP_|MKL_")
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
MOST_FILES = 253  # of one message of a socket
LOW_FILES = 512  # more than this process ever has open


class Torch(MetaPathFinder, Loader):
    """Imports torch a second time, from the modules that are imported already."""

    def __init__(self) -> None:
        names = [name for name in sys.modules if name == "torch" or name.startswith("torch.")]
        self._modules = {name: sys.modules.pop(name) for name in names}
        spec = self._modules["torch"].__spec__
        assert spec is not None
        self._spec, self._loader = spec, spec.loader

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        self._spec.loader = self  # for this import: the module keeps its spec
        return self._spec

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        sys.meta_path.remove(self)
        sys.modules.update(self._modules)
        return self._modules["torch"]

    def exec_module(self, torch: types.ModuleType) -> None:
        self._spec.loader = self._loader
        if torch._is_device_backend_autoload_enabled():
            torch._import_device_backends()
        torch._logging._init_logs()  # these two calls end the import of torch in a new interpreter


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next request, the files in which the program leaves its output, its errors and its exit status, and others.

    Raises EOFError if the client has ended.
    """
    size, files, _, _ = socket.recv_fds(connection, INT.size, MOST_FILES)
    if not size:
        raise EOFError
    (left,), text = INT.unpack(size), b""
    while left > len(text):
        part = connection.recv(left - len(text))  # not more: the next request may be there already
        if not part:
            raise EOFError
        text += part
    return json.loads(text), files


def next_program(connection: socket.socket, listener: socket.socket) -> dict[str, Any]:
    """Returns in a new process for each request.

    The third file gets the process id when the process leads a group, and later its exit status: each is an INT.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes that wait for the programs
    sockets = [connection]
    if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sockets.append(listener)
    while True:
        try:
            if connection in select.select(sockets, [], [])[0]:
                request, (output, errors, status, *others) = receive(connection)
            else:
                with listener.accept()[0] as other:
                    request, (output, errors, status, *others) = receive(other)
        except EOFError:
            if connection in select.select([connection], [], [], 0)[0]:
                sys.exit()
            continue  # a launcher has ended
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in sockets:
                each.close()
            program = os.fork()
            if program == 0:
                os.setsid()  # a process group, which the client can end
                os.write(status, INT.pack(os.getpid()))
                os.dup2(output, 1)
                os.dup2(errors, 2)
                files = [fcntl.fcntl(file, fcntl.F_DUPFD, LOW_FILES) for file in others]
                os.closerange(3, LOW_FILES)
                for file, number in zip(files, request["files"], strict=True):
                    os.dup2(file, number)
                    os.close(file)
                return request
            for file in (output, errors, *others):
                os.close(file)
            ended = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
            with contextlib.suppress(BrokenPipeError):  # the client waits no longer
                os.write(status, INT.pack(ended))
            os._exit(0)
        for file in (output, errors, status, *others):
            os.close(file)


def put_first(folder: str) -> None:
    if not SAFE_PATH:
        sys.path[0] = folder


def code_of(words: list[str], main: types.ModuleType) -> tuple[types.CodeType, list[str]]:
    """The code that `python WORDS` runs as `main`, and its sys.argv. Also calls put_first()."""
    kind, *rest = words
    if kind == "-c":
        put_first("")
        return compile(rest[0], "<string>", "exec"), ["-c", *rest[1:]]
    if kind == "-m":
        put_first(os.getcwd())
        spec = importlib.util.find_spec(rest[0])
        if spec and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{rest[0]}.__main__")
        if not spec or not spec.origin:
            sys.exit(f"{sys.executable}: No module named {rest[0]}")
        main.__spec__, main.__package__, file = spec, spec.parent, spec.origin
        words = [file, *rest[1:]]
    else:
        file = os.path.abspath(kind)
        put_first(os.path.dirname(file))
    main.__file__ = file
    with open(file, "rb") as source:
        return compile(source.read(), file, "exec"), words


def early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if EARLY.match(name)}


def import_torch() -> types.ModuleType:
    """Imports torch without its backends. Then a process ends without the C++ destructors of torch, which take 0.1 s.

    At the exit the destructors of libraries run that are loaded later, such as a backend's.
    """
    os.environ[AUTOLOAD] = "0"
    torch = importlib.import_module("torch")
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # functions that are registered later run earlier; it gets the exit status
    libc.on_exit(libc.fcloseall, None)  # writes what C still has in buffers
    return torch


def serve() -> None:
    connection, listener, *modules = sys.argv[1:]
    environment = early(os.environ)
    variables = dict(os.environ)
    torch = import_torch()
    if modules:
        os.environ.clear()
        os.environ.update(variables)
        if torch._is_device_backend_autoload_enabled():
            torch._import_device_backends()
    for name in modules or ["sympy"]:  # sympy is a third of what an optimizer imports
        importlib.import_module(name)
    # In an interpreter of its own, the program would have what these imports set.
    imported = {name: value for name, value in os.environ.items() if name not in {*variables, AUTOLOAD}}
    gc.collect()
    gc.freeze()
    request = next_program(socket.socket(fileno=int(connection)), socket.socket(fileno=int(listener)))
    os.chdir(request["folder"])
    options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # multiprocessing repeats them
    words = request["words"][len(options) if request["words"][: len(options)] == options else 0 :]
    is_unbuffered = words[0] == "-u"  # as torchrun starts a rank
    words = words[is_unbuffered:]
    if early(request["environment"]) != environment or (words[0].startswith("-") and words[0] not in ("-m", "-c")):
        os.execve(sys.executable, [sys.executable, *request["words"]], request["environment"])
    if is_unbuffered:
        for file in (sys.stdout, sys.stderr):
            file.reconfigure(write_through=True)  # type: ignore[union-attr]
    if not modules:
        sys.meta_path.insert(0, Torch())
    if "triton" in sys.modules:
        atexit.register(gc.unfreeze)  # else nanobind prints the objects of Triton that the collector does not free
    multiprocessing.process.ORIGINAL_DIR = request["folder"]  # type: ignore[attr-defined]  # of spawned processes
    os.environ.clear()
    os.environ.update(imported | request["environment"])
    sys.orig_argv = [sys.executable, *request["words"]]  # with which a program may start itself again
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if obey := getattr(sys.modules.get("torch_openreg.openreg"), "_obey_variables", None):
        obey()  # the backend was loaded before the program's variables were there
    try:
        own = 0 if SAFE_PATH else 1  # the entry of put_first()
        sys.path[own:own] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        code, sys.argv = code_of(words, main)
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        # Without the frame of this function.
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    serve()
