"""Runs Python programs in processes of their own, and pays for `import torch` only once.

A program is a child of a server that has imported torch, but no backend: the server of the command `check`
(torch_openreg/simulator/check/_zygote.py). So a program starts in tens of milliseconds and not in a second. Without the
simulator there is no server, and each program has a new interpreter.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

_TORCH = importlib.util.find_spec("torch")
assert _TORCH is not None and _TORCH.origin is not None
HAS_CUDA = Path(_TORCH.origin).with_name("lib").joinpath("libtorch_cuda.so").exists()  # a build of PyTorch with CUDA
_PACKAGE = importlib.util.find_spec("torch_openreg")
_FOLDERS = _PACKAGE.submodule_search_locations or () if _PACKAGE else ()
SERVERS = [path for folder in _FOLDERS if (path := Path(folder, "simulator", "check", "_server.py")).exists()]
if TYPE_CHECKING:
    from torch_openreg.simulator.check._server import Program, Server
elif SERVERS:  # without an import of the package, which would load torch into the process of the tests
    Program, Server = map(runpy.run_path(str(SERVERS[0])).get, ("Program", "Server"))
# Variables that Python and torch do not read while they start.
LATE = re.compile(
    "OPENREG|OCCL_|MASTER_|PYTEST_|BACKEND_AUTOLOAD|ALLOC_CONF"
    "|^(ACCELERATE_TORCH_DEVICE|ARTIFACTS?|BACKEND|CLIENT_DEVICES|COLUMNS|CUDA_LAUNCH_BLOCKING|CUDA_VISIBLE_DEVICES|HOME"
    "|LOADS|(LOCAL_)?RANK|PY_COLORS|PYTHONPATH|PYTORCH_NVML_BASED_CUDA_CHECK|TEST_DEVICE|TORCHINDUCTOR_CACHE_DIR"
    "|USERPROFILE|WORLD_SIZE)$"
)

# What a build of PyTorch with CUDA reads while it starts: the type decides which libraries it opens.
OF_CUDA = ("TORCH_OPENREG_AS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# What the backend reads when it is loaded. It reads the other variables of the device when the device starts.
LOADING = ("TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_OPENREG_AS", "TORCH_OPENREG_AUTOLOAD", "OPENREG_RNG")
# What a module of torch_openreg.openreg reads: the backend imports the module, when it is loaded, if the variable is set.
IN_FRONT = re.compile("^(OPENREG_(CHECK|DRY.*|FAULTS|MODEL|SANITIZER)|TORCH_OPENREG_(FALLBACK|TRACE))$")
# The modules of torch.compile. They take three times as long as torch.
COMPILER = ("torch", "torch._inductor.compile_fx")
# What programs of several ranks import after torch: each rank would take a second for it. Not the modules of dynamo, whose
# import asks for the number of devices.
DISTRIBUTED = ("torch", "torch.distributed.fsdp", "torch.distributed.tensor.parallel")


def read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a program can only have if its server has them."""
    return {
        name: value for name, value in environment.items() if not LATE.search(name) or (HAS_CUDA and name in OF_CUDA)
    }


LIMIT = 600
"""The time limit of a program, in seconds. It only ends a hang."""
SUPPORT = str(Path(__file__).parent)  # for the PYTHONPATH of a program that imports modules of this folder

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


def importing(file: str) -> str:
    """The PYTHONPATH of a program that imports modules of this folder, and of the folder of ``file``."""
    return os.pathsep.join([SUPPORT, str(Path(file).parent)])


served = {sys.executable}
"""The interpreters whose programs a server starts."""
Key = tuple[str, frozenset[tuple[str, str]], tuple[str, ...]]
_servers: dict[Key, Server] = {}
_making = threading.Lock()


def server(python: str, environment: Mapping[str, str], imports: tuple[str, ...]) -> Server:
    key = (python, frozenset(environment.items()), imports)
    with _making:
        if key not in _servers:
            _servers[key] = Server(python, environment, imports)
        return _servers[key]


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

    ``imports``: modules that the server has imported, after torch and its backends, such as COMPILER. Not if the program
    has a variable of IN_FRONT, which the backend of the server would not have obeyed.
    """
    words = [str(word) for word in command]
    inherited = {name: value for name, value in os.environ.items() if not (clean and "OPENREG" in name)}
    if variables.get("TORCH_OPENREG_AS") == "cuda":  # most tests compare the device with the CPU
        variables = {"OPENREG_RNG": "cpu", **variables}
    environment = {name: value for name, value in (inherited | variables).items() if value is not None}
    # The variable is set by a developer, or by a tool, who wants no server.
    new_interpreter |= not SERVERS or "TEST_INTERPRETERS" in os.environ
    is_plain = words[0] in served and (words[1] in ("-c", "-m") or words[1].endswith(".py")) and stdin is None
    early = read_early(environment)
    # A build with CUDA has one server for each type of the device.
    differs = {name for name, _ in early.items() ^ read_early(os.environ).items()} - {"TORCH_OPENREG_AS"}
    if new_interpreter or not is_plain or differs:
        return subprocess.Popen(
            words, env=environment, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, text=True,
            start_new_session=True,
        )  # fmt: skip
    if any(map(IN_FRONT.match, environment)):
        imports = ()
    if imports:  # the server has the backend, so it has what the backend reads when it is loaded
        early |= {name: value for name, value in environment.items() if name in LOADING}
    # Libraries set variables for the whole process when they are imported: then later programs have another server.
    folder = str(cwd or os.getcwd())
    return server(words[0], early, imports).start(words[1:], environment, folder, stdout, stderr)


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


def resident() -> int:
    """The memory of this process that is in RAM, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
