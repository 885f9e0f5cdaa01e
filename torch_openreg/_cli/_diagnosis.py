"""The findings of the doctor. A separate process loads each backend. If the load fails, a sentence says why."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import pkgutil
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from torch_openreg import _build, _which

LEAVE_OUT = "or leave all backends out with TORCH_DEVICE_BACKEND_AUTOLOAD=0"
# The environment variables that the report shows.
REPORTED_VARIABLES = (
    r"TORCH_DEVICE_BACKEND_AUTOLOAD|CUDA_VISIBLE_DEVICES|PYTORCH_(CUDA_)?ALLOC_CONF|((TORCH_)?OPENREG|OCCL)_\w+|"
    r"LD_(LIBRARY_PATH|PRELOAD)"
)
# The remedy for an error whose message says what to do.
FOLLOW_MESSAGE = "Do what the message above says."
REPORT = f"Report the failure to the authors of {{0}}. Until it is repaired, uninstall {{0}}, {LEAVE_OUT}."

# Each row: a pattern for the message of the innermost exception, what the message means, and what to do.
# {0} and {1} are the groups of the pattern. {torch} is PyTorch's version, {distribution} the backend's distribution.
DIAGNOSES: tuple[tuple[str, str, str], ...] = (
    (
        r"(\S+): undefined symbol: (\w+)",
        "undefined symbol: {0} needs {1}, which no loaded library has",
        "{0} was built for another PyTorch than {torch}, or a library that {0} needs is missing: install a build of "
        "{distribution} for this PyTorch, or build {distribution} again.",
    ),
    (
        r"(\S+): cannot open shared object file",
        "missing library: {0}",
        "Install {distribution} again. If {0} belongs to a driver or toolkit, install the driver or toolkit, and put "
        "the folder of {0} into LD_LIBRARY_PATH.",
    ),
    (
        r"(\S+): (file too short|invalid ELF header|wrong ELF class\S*)",
        "damaged library: {0} ({1})",
        "Install {distribution} again, for this machine.",
    ),
    (
        r"has already been set! Current backend: (\w+)",
        "PrivateUse1 is taken: by {0}",
        f"A process has one PrivateUse1 device. Keep the two backends in separate environments, {LEAVE_OUT}.",
    ),
)


@dataclass
class Failure:
    """Why something did not work: a sentence, what to do about it, and the whole output."""

    cause: str
    remedy: str
    details: str = ""


@dataclass
class Backend:
    """One entry point, and the result of loading it alone."""

    name: str
    value: str
    distribution: str
    version: str
    result: str = "not tried"  # or "ok", "failed", "unavailable"
    seconds: float | None = None
    modules: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    privateuse1: str | None = None
    failure: Failure | None = None

    @property
    def label(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass
class Run:
    """The output of a probe, which is one run of ``_probe.py`` in a separate process."""

    events: list[dict[str, Any]]
    status: int | None
    """The exit status. It is -N if signal N ended the process, and None if the process did not end in time."""
    stack: str
    output: str

    def facts(self, step: str, backend: str | None = None) -> dict[str, Any]:
        """The facts that the probe wrote at a step; {} if the run did not reach the step."""
        found = [e for e in self.events if e["step"] == step and backend in (None, e.get("backend"))]
        return found[-1] if found else {}

    @property
    def complete(self) -> bool:
        return bool(self.facts("end"))

    @property
    def where(self) -> str:
        """The step at which the process ended, in words."""
        last = self.events[-1] if self.events else {"step": "the start of Python"}
        words = {"load": "while {backend} was imported", "call": "in the function that {backend} gave to PyTorch"}
        return words.get(last["step"], "in {step}").format(**last)


class Doctor:
    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.torch = find_torch()

    def probe(self, backends: Iterable[Backend] | None, first: str = "torch", **environment: str) -> Run:
        """Imports ``first``, then torch, with these backends only (None: all). Waits until the probe ends."""
        source = pkgutil.get_data("torch_openreg._cli", "_probe.py")
        assert source is not None
        with tempfile.TemporaryDirectory(prefix="doctor") as name:
            folder = Path(name)
            request = {
                "folder": name,
                "path": sys.path,
                "timeout": self.timeout,
                "first": first,
                "backends": None if backends is None else [(backend.name, backend.value) for backend in backends],
            }
            # The output goes to a file. A pipe would stay open as long as a process that a backend has started lives.
            with (folder / "output").open("w") as output:
                process = subprocess.Popen(
                    [sys.executable, "-c", source.decode(), json.dumps(request)],
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
                try:
                    # Each step of the probe has a limit of its own. This limit is for a probe that SIGSTOP suspends.
                    status: int | None = process.wait(self.timeout + 180)
                except subprocess.TimeoutExpired:
                    status = None
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            texts = {file: read_text(folder / file) for file in ("events", "stack", "output")}
        return Run(read_events(texts["events"]), status, texts["stack"], texts["output"])

    def examine(self, backend: Backend) -> None:
        """Loads a backend alone, as `import torch` does. If this works, loads it again after importing its package."""
        backend.result = "ok"
        run = self.probe([backend], TORCH_DEVICE_BACKEND_AUTOLOAD="1")
        loaded = run.facts("loaded")
        backend.seconds = loaded.get("seconds")
        backend.modules = loaded.get("modules", [])
        backend.libraries = loaded.get("libraries", [])
        backend.privateuse1 = loaded.get("privateuse1")
        if not run.complete:
            backend.result, backend.failure = "failed", self.explain(run, backend)
        elif run.facts("available").get("available", True) is False:
            backend.result, backend.failure = "unavailable", self.explain_unavailable(run, backend)
        elif package := importable([backend.name, re.split("[.:]", backend.value)[0]]):
            run = self.probe([backend], package, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
            if not run.complete:
                backend.result, backend.failure = "failed", self.explain(run, backend)
                backend.failure.cause = f"`import {package}` before `import torch`: {backend.failure.cause}"

    def conflict(self, pair: Sequence[Backend]) -> dict[str, Any]:
        """The result of `import torch` with two backends that both take PrivateUse1."""
        run = self.probe(pair, TORCH_DEVICE_BACKEND_AUTOLOAD="1")
        if run.complete:
            owner = run.facts("end")["privateuse1"]
            outcome = f"`import torch` works, and {owner!r} is the device"
        else:
            outcome = f"`import torch` fails: {self.explain(run, pair[-1]).cause}"
        return {
            "backends": [backend.label for backend in pair],
            "cause": f"both take PrivateUse1, but a process has one PrivateUse1 device; {outcome}",
            "remedy": "Uninstall one of the two, or keep them in separate environments, or set "
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want.",
        }

    def explain(self, run: Run, backend: Backend) -> Failure:
        details = "\n".join(filter(None, [run.stack.strip(), run.output.strip()]))
        if error := run.facts("error"):
            return self.explain_error(error, backend, run)
        remedy = REPORT.format(backend.distribution)
        where = run.where + self.frame(run.stack)
        if "Timeout" in run.stack or run.status is None:
            cause = f"hangs: no end after {self.timeout:g} s {where}"
        elif run.status < 0:
            said = re.search(r"what\(\): +(.+)", run.output)
            cause = f"kills the process with {signal.Signals(-run.status).name} {where}{': ' + said[1] if said else ''}"
        else:
            cause = f"ends the process with exit status {run.status} {run.where}"
        return Failure(cause, remedy, details)

    def frame(self, stack: str) -> str:
        """The innermost line of ``stack`` that is neither PyTorch's nor the standard library's; "" if there is none.

        ``stack`` is the text of faulthandler, which prints the innermost frame of a thread first.
        """
        standard = (str(self.torch["folder"]), "<", sysconfig.get_path("stdlib"))
        for file, line in re.findall(r'File "([^"]+)", line (\d+)', stack):
            if not file.startswith(standard) or re.search("(site|dist)-packages/(?!torch/)", file):
                return f", at {file}:{line}"
        return ""

    def explain_unavailable(self, run: Run, backend: Backend) -> Failure:
        if error := run.facts("unavailable"):
            failure = self.explain_error(error, backend, run)
        else:
            name = run.facts("is_available")["module"]
            failure = Failure(f"{name}.is_available() is False", "", run.output.strip())
        if failure.remedy != FOLLOW_MESSAGE:
            failure.remedy = f"Repair this cause. Check the hardware and the driver that {backend.distribution} needs."
        failure.cause = f"loads, but finds no device: {failure.cause}"
        return failure

    def explain_error(self, error: dict[str, Any], backend: Backend, run: Run) -> Failure:
        details = "\n".join(filter(None, [error["traceback"].strip(), run.output.strip()]))
        last = error["chain"][-1]
        message, kind, name = last["message"], last["type"], last["name"]
        names = {"torch": self.torch.get("version") or "the one installed", "distribution": backend.distribution}
        if partial := re.search(r"partially initialized module '([\w.]+)'", message):
            modules = [*error["importing"], partial[1]]
            cycle = " -> ".join(modules[modules.index(partial[1]) :])
            return Failure(
                f"circular import: {cycle}",
                f"Import torch first, {LEAVE_OUT}. The authors of {backend.distribution} can repair this: they give "
                "the entry point a module of its own, which imports nothing at its top.",
                details,
            )
        for pattern, cause, remedy in DIAGNOSES:
            if found := re.search(pattern, message):
                groups = [demangle(group) for group in found.groups()]
                return Failure(cause.format(*groups), remedy.format(*groups, **names), details)
        if kind == "ModuleNotFoundError" and name == "torch":
            return Failure("PyTorch is not installed", f"Install a CPU build: {_build.cpu_build(None)}", details)
        if kind == "ModuleNotFoundError" and name == re.split("[.:]", backend.value)[0]:
            return Failure(
                f"stale entry point: {backend.value!r} names the module {name!r}, which is not installed",
                f"Uninstall {backend.distribution}, or install it again.",
                details,
            )
        if kind == "ModuleNotFoundError" and name:
            return Failure(f"missing module: {name}", f"Install {name}, which {backend.distribution} needs.", details)
        # The message of torch_openreg itself says what to do.
        outer = error["chain"][0]
        if outer["type"] == "BackendLoadError":
            return Failure(outer["message"].partition(". `python -m")[0], FOLLOW_MESSAGE, details)
        return Failure(f"{kind}: {message}", REPORT.format(backend.distribution), details)

    def report(self) -> dict[str, Any]:
        """All findings, in the form of the option --json."""
        alone = self.probe([])
        torch = Backend("torch", "torch", "PyTorch", self.torch["version"] or "?")
        torch_failure = None if alone.complete else self.explain(alone, torch)
        backends = [describe(point) for point in entry_points(group="torch.backends")]
        conflicts, whole = [], alone
        others = [text for text in (_which.hidden() or _which.hiding(os.getcwd()), _which.replaced()) if text]
        if not torch_failure:
            with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
                together = pool.submit(self.probe, None)
                list(pool.map(self.examine, backends))
                owners = [backend for backend in backends if backend.privateuse1]
                conflicts = list(pool.map(self.conflict, itertools.combinations(owners, 2)))
                whole = together.result()
        return {
            "python": {"version": platform.python_version(), "executable": sys.executable},
            "torch": {
                **self.torch,
                "seconds": alone.facts("imported").get("seconds"),
                "failure": torch_failure and asdict(torch_failure),
            },
            "package": {"folder": _which.HERE, "others": others},
            "environment": {
                name: value for name, value in sorted(os.environ.items()) if re.fullmatch(REPORTED_VARIABLES, name)
            },
            "backends": [asdict(backend) for backend in backends],
            "conflicts": conflicts,
            "import_torch": {
                "seconds": whole.facts("imported").get("seconds"),
                "privateuse1": whole.facts("end").get("privateuse1"),
                "device": whole.facts("end").get("device"),
                "facts": whole.facts("end").get("facts", {}),
                "failure": None if whole.complete else asdict(self.explain(whole, guilty(whole, backends) or torch)),
            },
            "healthy": whole.complete
            and not conflicts
            and not others
            and all(backend.result == "ok" for backend in backends),
        }


def describe(point: EntryPoint) -> Backend:
    backend = Backend(point.name, point.value, "?", "?")
    if point.dist is not None:
        with contextlib.suppress(Exception):  # the metadata may be damaged
            backend.distribution = point.dist.metadata["Name"] or "?"
            backend.version = point.dist.version or "?"
    return backend


def guilty(run: Run, backends: Sequence[Backend]) -> Backend | None:
    """The backend that ``run`` loaded last, which is the cause if ``run`` failed. None if ``run`` loaded none."""
    name = run.facts("load").get("backend")
    return next((backend for backend in backends if backend.name == name), None)


def find_torch() -> dict[str, Any]:
    """The folder, version and build of PyTorch, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {"version": None, "build": None, "folder": None}
    folder = Path(spec.origin).parent
    text = read_text(folder / "version.py")
    found = {name: value for name, value in re.findall(r"^(\w+)(?:: [^=]+)? = '([^']+)'", text, re.MULTILINE)}
    build = [f"{kind.upper()} {found[kind]}" for kind in ("cuda", "hip", "xpu") if kind in found]
    return {"version": found.get("__version__"), "build": " ".join(build) or "CPU only", "folder": str(folder)}


def importable(names: Iterable[str]) -> str | None:
    """The first of these names that is an installed top-level module; None if there is none."""
    for name in names:
        with contextlib.suppress(ValueError, ImportError):
            if "." not in name and importlib.util.find_spec(name):
                return name
    return None


def demangle(symbol: str) -> str:
    if symbol.startswith("_Z") and (tool := shutil.which("c++filt")):
        return subprocess.run([tool, symbol], capture_output=True, text=True).stdout.strip() or symbol
    return symbol


def read_text(path: Path) -> str:
    """The first 100,000 bytes of a file as text, or "" if there is no file. Bytes that are not UTF-8 are escaped."""
    return path.read_bytes()[:100_000].decode(errors="backslashreplace") if path.exists() else ""


def read_events(text: str) -> list[dict[str, Any]]:
    events = []
    for line in text.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            events.append(json.loads(line))
    return events
