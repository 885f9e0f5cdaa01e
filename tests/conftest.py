"""Options and fixtures of all tests."""

from __future__ import annotations

import gc
import inspect
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import programs
import pytest
from environments import Environment, device_under_test
from programs import Run
from simulator_words import USES


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        metavar="TYPE",
        help="the type of the device under test (default: TEST_DEVICE, else openreg)",
    )
    parser.addoption(
        "--execution",
        choices=("inline", "async", "chaos"),
        help="run the tests in this execution mode of the device (default: OPENREG_EXECUTION, else inline)",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Both options go into the environment, which child processes inherit.
    if mode := config.getoption("--execution"):
        os.environ["OPENREG_EXECUTION"] = mode
    if device := config.getoption("--device"):
        os.environ["TEST_DEVICE"] = device
    if os.environ.get("TORCH_OPENREG_AS") == "cuda":
        os.environ.setdefault("OPENREG_RNG", "cpu")  # as programs.start() does
    # For each new cache, inductor compiles and runs programs to learn which vector instructions work. They all do.
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
    # Where Triton is installed, inductor starts a process that compiles its kernels. Nothing here is compiled by Triton.
    os.environ.setdefault("TORCH_WARM_POOL", "0")
    config.addinivalue_line(
        "markers",
        "slow: one of the tests that take most of the time; `make test` leaves them out, `make test-all` does not",
    )
    config.addinivalue_line(
        "markers",
        "only_on(device, reason): a test of what this type of device alone has; skipped if another one is under test",
    )


def needs_simulator(item: pytest.Item) -> bool:
    """Whether the name of a test, with its parameters, or its body names a part of the simulation."""
    body = inspect.getsource(item.function).partition("def ")[2] if isinstance(item, pytest.Function) else ""
    return bool(USES.search(item.name) or USES.search(body))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with an environment of its own, which takes seconds to make, is slow.

    After `rm -r` of the folders named simulator, the tests of the other folders that need one of them are skipped.
    """
    without_simulator = not Path(__file__).with_name("simulator").is_dir()
    for item in items:
        if "empty_environment" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
        if without_simulator and needs_simulator(item):
            item.add_marker(pytest.mark.skip(reason="the folders named simulator were deleted"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on gc.collect(), which many tests call, looks only at new objects: PyTorch has a million others."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("only_on"):
        if marker.args[0] != device_under_test():
            pytest.skip(f"only on the device {marker.args[0]}: {marker.kwargs['reason']}")


@pytest.fixture(scope="session")
def changing_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The environment of the next two fixtures. Its server imports torch once for all tests."""
    environment = Environment(tmp_path_factory.mktemp("changing") / "environment")
    environment.serve()
    return environment


@pytest.fixture
def empty_environment(changing_environment: Environment) -> Environment:
    """An environment with torch, without torch_openreg, which the test may change."""
    changing_environment.empty()
    return changing_environment


@pytest.fixture
def environment(empty_environment: Environment) -> Environment:
    """An environment with torch and torch_openreg, which the test may change."""
    empty_environment.install()
    return empty_environment


@pytest.fixture(scope="session")
def shared_environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with torch and torch_openreg, for tests that change nothing in it."""
    environment = Environment(tmp_path_factory.mktemp("shared") / "environment")
    environment.install()
    environment.serve()
    return environment


@pytest.fixture(scope="session")
def owner_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of another PrivateUse1 backend, tests/support/plugins/torch_owner."""
    import plugins

    return plugins.compile_owner(tmp_path_factory.mktemp("owner"))


@pytest.fixture
def run_python(tmp_path: Path) -> Run:
    """Runs code in a fresh process of this environment; keyword arguments are environment variables."""

    return partial(programs.python, cwd=tmp_path)


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
