"""Options and fixtures of all tests, and virtual environments for tests that need a really installed distribution.

Import, autoload and fork can only be tested in a process of their own. The environments are virtual environments that
use the torch of the environment in which pytest runs. Each has its own copy of this package, which a test may break.
"""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import programs
import pytest

from faces import face_of

T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        metavar="TYPE",
        help="the type of the device under test (default: TEST_DEVICE, else openreg). cuda is this package's device "
        "under that name where it is installed, and else PyTorch's own",
    )
    parser.addoption(
        "--execution",
        choices=("inline", "async", "chaos"),
        help="run the tests in this execution mode of the device (default: OPENREG_EXECUTION, else inline)",
    )


def device_under_test() -> str:
    return os.environ.get("TEST_DEVICE", "openreg")


def pytest_configure(config: pytest.Config) -> None:
    # Both options go into the environment, which child processes inherit.
    if mode := config.getoption("--execution"):
        os.environ["OPENREG_EXECUTION"] = mode
    if device := config.getoption("--device"):
        os.environ["TEST_DEVICE"] = device
    # LEFT OUT OF A NEW BACKEND START: the face cuda
    face = face_of(device_under_test())
    if "torch" in sys.modules and os.environ.get("TORCH_OPENREG_AS", "") != face:
        raise pytest.UsageError(
            f"--device {device_under_test()}: torch is imported already, so the device has its type. Leave out the "
            "plugin that imports it, or set TORCH_OPENREG_AS as well."
        )
    if face:
        os.environ["TORCH_OPENREG_AS"] = face
    else:
        os.environ.pop("TORCH_OPENREG_AS", None)
    # LEFT OUT OF A NEW BACKEND END
    config.addinivalue_line(
        "markers",
        "only_on(device, reason): a test of what this type of device alone has; skipped if another one is under test",
    )
    # LEFT OUT OF A NEW BACKEND START: the face cuda
    config.addinivalue_line(
        "markers", "face_cuda: a test of the device as cuda; skipped in a build of PyTorch with CUDA, which refuses it"
    )
    # LEFT OUT OF A NEW BACKEND END


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on gc.collect(), which many tests call, looks only at new objects: PyTorch has a million others."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("only_on"):
        if marker.args[0] != device_under_test():
            pytest.skip(f"only on the device {marker.args[0]}: {marker.kwargs['reason']}")
    # LEFT OUT OF A NEW BACKEND START: the face cuda
    if item.get_closest_marker("face_cuda"):
        import torch

        if torch.version.cuda is not None:
            pytest.skip("in this build of PyTorch the name cuda belongs to real GPUs")
    # LEFT OUT OF A NEW BACKEND END


class Environment:
    """A virtual environment without pip, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site_packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
        # A folder that a .pth file names is searched after the environment's own folder. The .pth files in that folder
        # are ignored, so an editable install of this package stays out.
        outer = Path(sysconfig.get_path("purelib"))
        further = outer / "outer.pth"  # the outer environment may itself be an Environment
        (self.site_packages / "outer.pth").write_text(f"{outer}\n{further.read_text() if further.exists() else ''}")

    @property
    def package(self) -> Path:
        return self.site_packages / "torch_openreg"

    def install(self) -> None:
        """Installs what is installed in the outer environment, editable or not, as a regular distribution."""
        spec = importlib.util.find_spec("torch_openreg")
        assert spec is not None and spec.submodule_search_locations, "torch_openreg is not installed"
        for name in ("torch_openreg_autoload", "torch_openreg_options", "torch_openreg_pytest"):
            module = importlib.util.find_spec(name)
            assert module is not None and module.origin
            shutil.copy(module.origin, self.site_packages)
        for folder in spec.submodule_search_locations:
            shutil.copytree(
                folder, self.package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "csrc")
            )
        metadata = Path(str(importlib.metadata.distribution("torch_openreg").locate_file("")))
        for folder in metadata.glob("torch_openreg-*.dist-info"):
            shutil.copytree(folder, self.site_packages / folder.name)

    def add_distribution(self, name: str, source: str, entry_points: str = "") -> None:
        """Installs a distribution of one module."""
        (self.site_packages / f"{name}.py").write_text(source)
        info = self.site_packages / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)

    def start(self, code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs ``code`` in a fresh process. Arguments: Python's options, and environment variables."""
        return run([self.python, *options, "-c", code], self.folder, environment)

    def run(self, code: str, *options: str, **environment: str) -> str:
        """As start(), and returns the output of ``code``. Fails the test if ``code`` fails or prints to stderr."""
        result = self.start(code, *options, **environment)
        assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
        return result.stdout


def run(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return programs.run(command, cwd=folder, env={**os.environ, **environment})


def run_tool(*command: str | Path, cwd: Path | None = None) -> str:
    """Runs a tool of the build, and returns its output. Fails the test if the tool fails."""
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def build_tool(name: str) -> Sequence[str]:
    """``cmake`` or ``ninja`` from where the build took it: the Python package if there is one, else the PATH."""
    return [sys.executable, "-m", name] if importlib.util.find_spec(name) else [name]


def environment_without_switches() -> dict[str, str]:
    """This process's environment without the variables that the device or this package reads."""
    return {name: value for name, value in os.environ.items() if "OPENREG" not in name}


def at_once(*runs: Callable[[], T]) -> list[T]:
    """Calls functions that wait for processes, two at a time: `import torch` takes most of the time, on one core."""
    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(function) for function in runs]]


@pytest.fixture
def empty_environment(tmp_path: Path) -> Environment:
    """An environment with torch, without torch_openreg."""
    return Environment(tmp_path / "environment")


@pytest.fixture
def environment(empty_environment: Environment) -> Environment:
    """An environment with torch and torch_openreg."""
    empty_environment.install()
    return empty_environment


@pytest.fixture(scope="session")
def shared_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with torch and torch_openreg, for tests that change nothing in it."""
    environment = Environment(tmp_path_factory.mktemp("shared") / "environment")
    environment.install()
    return environment


@pytest.fixture(scope="session")
def owner_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of another PrivateUse1 backend, tests/plugins/torch_owner."""
    import plugins

    return plugins.compile_owner(tmp_path_factory.mktemp("owner"))


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs code in a fresh process of this environment; keyword arguments are environment variables."""

    return lambda code, **environment: run([sys.executable, "-c", code], tmp_path, environment)


# ---- What the tests of libopenreg.so share. Importing openreg_c loads the library: fixtures do it when they run.


@pytest.fixture
def clean_device() -> Iterator[None]:
    """The test starts on device 0 and must free its memory. Then the device is synchronised and set to inline."""
    from openreg_c import INLINE, call, memory_info
    from openreg_work import kept

    call("orSetDevice", 0)
    free, _ = memory_info()
    yield
    for device in (1, 0):
        call("orSetDevice", device)
        call("orDeviceSynchronize")
    call("orSetExecutionMode", INLINE, 0)
    assert memory_info()[0] == free
    kept.clear()


def _set_mode(name: str) -> str:
    from openreg_c import call
    from openreg_work import MODES

    call("orSetExecutionMode", MODES[name], 7)
    return name


@pytest.fixture(params=["inline", "async", "chaos"])
def mode(request: pytest.FixtureRequest, clean_device: None) -> str:
    """The execution mode of the device during the test."""
    return _set_mode(request.param)


@pytest.fixture(params=["async", "chaos"])
def queueing_mode(request: pytest.FixtureRequest, clean_device: None) -> str:
    """The execution mode of the device during the test, one that queues kernels."""
    return _set_mode(request.param)


@pytest.fixture
def make_stream() -> Iterator[Callable[..., int]]:
    """A function that makes a stream of a device, with a priority."""
    from openreg_c import call, get_pointer

    made: list[int] = []

    def make(device: int = 0, priority: int = 0) -> int:
        call("orSetDevice", device)
        made.append(get_pointer("orStreamCreateWithPriority", 0, priority))
        call("orSetDevice", 0)
        return made[-1]

    yield make
    for handle in made:
        call("orStreamDestroy", handle)


@pytest.fixture
def stream() -> Iterator[int]:
    """A stream of the current device."""
    from openreg_c import call, get_pointer

    handle = get_pointer("orStreamCreate")
    yield handle
    call("orStreamDestroy", handle)


@pytest.fixture
def other(make_stream: Callable[..., int]) -> int:
    """A second stream, of device 0."""
    return make_stream()


@pytest.fixture
def make_event() -> Iterator[Callable[..., int]]:
    """A function that makes an event with timing, of a device."""
    from openreg_c import call, get_pointer

    made: list[int] = []

    def make(device: int = 0) -> int:
        call("orSetDevice", device)
        made.append(get_pointer("orEventCreateWithFlags", 1))
        call("orSetDevice", 0)
        return made[-1]

    yield make
    for handle in made:
        call("orEventDestroy", handle)


@pytest.fixture
def event(make_event: Callable[..., int]) -> int:
    """An event with timing, of device 0."""
    return make_event()


@pytest.fixture
def device_memory() -> Iterator[int]:
    """Two pages of memory of the current device, filled with zeros."""
    from openreg_c import PAGE, call, malloc

    pointer = malloc(2 * PAGE)
    call("orMemset", pointer, 0, 2 * PAGE)
    yield pointer
    call("orFree", pointer)


@pytest.fixture
def pinned_memory() -> Iterator[int]:
    """Two pages of pinned host memory."""
    from openreg_c import PAGE, call, get_pointer

    pointer = get_pointer("orMallocHost", 2 * PAGE)
    yield pointer
    call("orFreeHost", pointer)


@pytest.fixture(scope="session")
def inductor_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all processes of one run of the tests keep the code that they compiled."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "inductor"
