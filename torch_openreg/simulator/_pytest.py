"""The pytest plugin: options such as ``pytest --openreg-as=cuda`` set environment variables before torch is imported.

The plugin does nothing, and imports neither torch nor torch_openreg, if none of its options, fixtures and markers is
used and the environment sets neither a schedule (OPENREG_EXECUTION) nor OPENREG_FAULTS. Most of the code that runs around
each test is in torch_openreg.simulator.testing.

torch_openreg_pytest.py, which pytest imports, becomes this module.
"""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from ._options import OPTIONS, early_package, metavar, reader, seed_of  # of the package torch_openreg_pytest

if TYPE_CHECKING:
    import torch

_EXECUTION = pytest.StashKey[str]()  # the mode or schedule of the tests
_SESSION = pytest.StashKey[Any]()  # the sanitizer's Session, from a test's call to the end of its teardown
_FOUND = pytest.StashKey[list[str]]()  # with --openreg-sanitize: what was found outside the tests
_SEED = pytest.StashKey[str]()  # OPENREG_CHAOS_SEED
# Options that set no variable: the name, the arguments for argparse, the help.
FLAGS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("openreg", {"action": "store_true"}, "start the device, and count the tests that allocate memory on it"),
    (
        "openreg-chaos-runs",
        {"type": reader(range(1, 1001)), "metavar": "N"},
        "with --openreg-execution=chaos, late or random:SEED, run each test N times, with N seeds (default: 1)",
    ),
    (
        "openreg-no-sync",
        {"action": "store_true"},
        "fail a test with the marker openreg(no_sync=True) if it makes the host wait for the device",
    ),
    (
        "openreg-leaks",
        {"action": "store_true"},
        "fail tests after which device memory, pinned memory or the current streams are not back where they were",
    ),
    (
        "openreg-fits",
        {"metavar": "MODEL[,...]"},
        "run each test in dry execution on each of these accelerators, such as cuda-t4, and fail it if it does not fit",
    ),
)


# The option that runs the whole suite many times, in processes of its own.
CHECK = "--openreg-check"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torch_openreg", "simulated devices (torch_openreg)")
    for name, variable, allowed, text in OPTIONS:
        group.addoption(
            f"--openreg-{name}", metavar=metavar(allowed), type=reader(allowed), help=f"{text}; sets {variable}"
        )
    for name, arguments, text in FLAGS:
        group.addoption(f"--{name}", help=text, **arguments)
    group.addoption(
        CHECK, action="store_true", help="run the suite with every instrument, as `python -m torch_openreg check` does"
    )
    group.addoption(
        f"{CHECK}-options", default="", metavar="OPTIONS", help="options of that command: --openreg-check-options=..."
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    if not config.getoption("openreg_check", False) or "OPENREG_CHECK" in os.environ:  # the variable: within such a run
        return None
    command = [sys.executable, "-m", "torch_openreg", "check", *shlex.split(config.getoption("openreg_check_options"))]
    rest = [str(argument) for argument in config.invocation_params.args if not str(argument).startswith(CHECK)]
    return subprocess.call([*command, "-m", "pytest", *rest], cwd=config.invocation_params.dir)


@pytest.hookimpl(tryfirst=True)  # before conftest.py, which may import torch
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    settings = _settings(early_config.known_args_namespace)
    environment = os.environ | settings
    early_config.stash[_EXECUTION] = environment.get("OPENREG_EXECUTION", "")
    early_config.stash[_SEED] = environment.get("OPENREG_CHAOS_SEED", "")
    # A worker of pytest-xdist inherits the variables, so they have their effect even if torch is imported already.
    if settings.items() <= os.environ.items():
        _import_early_package()
        return
    if "torch" in sys.modules:
        options = " ".join(f"--openreg-{name}" for name, variable, *_ in OPTIONS if variable in settings)
        variables = " ".join(f"{variable}={value}" for variable, value in settings.items())
        raise pytest.UsageError(
            f"{options}: torch was imported {_by_whom()}before pytest read its options, which is too late to choose "
            f"the devices. Set them before Python starts: {variables} python -m pytest ..."
        )
    os.environ.update(settings)
    _import_early_package()


def _import_early_package() -> None:
    if package := early_package():
        importlib.import_module(package)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "openreg(model, memory, device_count, execution, faults, no_sync): what the simulated device is in this test. "
        "With model, memory or device_count the test runs in a process of its own. no_sync: the test may not wait for "
        "the device (--openreg-no-sync)",
    )
    config.addinivalue_line(
        "markers",
        "openreg_fits(model, ...): the accelerators on which this test must fit, in place of those of --openreg-fits",
    )
    has_flag = any(getattr(config.option, name.replace("-", "_")) not in (None, False) for name, *_ in FLAGS)
    if has_flag or _is_chaotic(config) or os.environ.get("OPENREG_FAULTS", "").strip():
        _attend(config)


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(item.get_closest_marker(name) for item in session.items for name in ("openreg", "openreg_fits")):
        _attend(session.config)


def _attend(config: pytest.Config) -> None:
    """Installs the part of the plugin that surrounds each test. Raises UsageError if the device cannot be loaded."""
    if config.pluginmanager.hasplugin("torch_openreg_testing"):
        return
    try:
        from torch_openreg.simulator import testing
    except Exception as error:  # a setting is wrong, or torch is missing
        raise pytest.UsageError(f"The options and markers of torch_openreg need its device. {error}") from error

    hooks = testing.PerTestHooks(config, _is_chaotic(config), _seed(config))
    config.pluginmanager.register(hooks, "torch_openreg_testing")


def _has_workers(config: pytest.Config) -> bool:
    """Whether this process distributes tests to the workers of pytest-xdist."""
    return getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput")


def _is_chaotic(config: pytest.Config) -> bool:
    """Whether --openreg-execution or OPENREG_EXECUTION is a schedule. A later change by a conftest.py does not count."""
    return seed_of(config.stash.get(_EXECUTION, ""), "") is not None


def _seed(config: pytest.Config) -> int:
    """The first seed of the tests. The options, the environment or a test's marker may choose a schedule.

    Raises UsageError if the schedule or the seed is not valid.
    """
    from argparse import ArgumentTypeError

    execution, seed = config.stash.get(_EXECUTION, ""), config.stash.get(_SEED, "") or "0"
    for variable, text in (("OPENREG_EXECUTION", execution or "inline"), ("OPENREG_CHAOS_SEED", seed)):
        (allowed,) = (allowed for _, name, allowed, _ in OPTIONS if name == variable)
        try:
            reader(allowed)(text)
        except ArgumentTypeError as error:
            raise pytest.UsageError(f"{variable}={error}") from None
    return int(seed_of(execution, seed) or seed)


def pytest_report_header(config: pytest.Config) -> list[str]:
    settings = _settings(config.known_args_namespace)
    if _is_chaotic(config):
        settings |= {"OPENREG_EXECUTION": config.stash[_EXECUTION]}
        settings |= {"OPENREG_CHAOS_SEED": seed} if (seed := config.stash[_SEED]) else {}
    models = config.getoption("openreg_fits")
    fits = [f"torch_openreg: each test runs in dry execution, and must fit on {models}"] if models else []
    if not settings:
        return fits
    device_type = os.environ.get("TORCH_OPENREG_AS") or "openreg"
    variables = " ".join(f"{variable}={value}" for variable, value in settings.items())
    runs = config.getoption("openreg_chaos_runs")
    takes_seed = settings.get("OPENREG_EXECUTION") == "chaos"
    first_seed = ", seed 0" if takes_seed and "OPENREG_CHAOS_SEED" not in settings else ""
    times = f", each test with {runs} seeds" if runs else ""
    return [f'torch_openreg: the device "{device_type}" is simulated ({variables}){first_seed}{times}', *fits]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives ``openreg_device`` one index for each device that this process or the test's marker has.

    The fixture skips an index that the device does not have when the test runs.
    """
    definitions = metafunc._arg2fixturedefs.get("openreg_device", ())
    if definitions and definitions[-1].func is openreg_device.__wrapped__:  # type: ignore[attr-defined]
        from torch_openreg import openreg
        from torch_openreg.simulator.testing.marker import device_count_of

        indices = range(max(openreg.device_count(), device_count_of(metafunc.definition)))
        metafunc.parametrize("openreg_device", indices, indirect=True, ids=[f"device{index}" for index in indices])


def _device_type() -> str:
    from torch_openreg._identity import device_type

    return device_type


@pytest.fixture
def openreg_device(request: pytest.FixtureRequest) -> torch.device:
    """Each simulated device in turn: the test runs once for each, with its ``torch.device``.

    The test is skipped for an index that is not less than the marker's device_count, or that of the marker's model.
    """
    import torch

    from torch_openreg import openreg
    from torch_openreg.simulator.testing.marker import settings_of

    if request.param >= (count := openreg.device_count()):
        by_model = settings_of(request.node).device_count is None
        owner = f"the model {openreg.models.current()!r}" if by_model else "the test's marker"
        pytest.skip(f"openreg_device: there is no device {request.param}, because {owner} sets device_count={count}")
    return torch.device(_device_type(), request.param)


@pytest.fixture(params=["cpu", "openreg"])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU, and then the simulated device: the test runs on both."""
    import torch

    return torch.device("cpu" if request.param == "cpu" else _device_type())


@pytest.fixture
def two_devices() -> tuple[torch.device, torch.device]:
    """Two simulated devices. The test is skipped if only one is visible."""
    import torch

    from torch_openreg import openreg

    if (count := openreg.device_count()) < 2:
        pytest.skip(f"two_devices: {count} simulated device is visible; set OPENREG_DEVICE_COUNT to 2 or more")
    return torch.device(_device_type(), 0), torch.device(_device_type(), 1)


@pytest.fixture
def openreg_memory() -> Iterator[Callable[..., None]]:
    """``openreg_memory(limit, device=None)`` limits the memory of a device until the end of the test.

    ``limit`` is in bytes, or a text such as ``"64M"``. An allocation beyond the limit raises
    ``torch.OutOfMemoryError``. ``device`` is the current device by default. The limit works as that of
    ``torch.cuda.set_per_process_memory_fraction``, but is an amount of memory and no fraction.
    """
    from torch_openreg.simulator.testing.limits import limited

    with ExitStack() as stack:
        yield lambda limit, device=None: stack.enter_context(limited(limit, device))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """With --openreg-sanitize each test has a sanitizer session of its own.

    The test fails if the session has a report that no exception has told.
    """
    checks = _settings(item.config.known_args_namespace).get("OPENREG_SANITIZER")
    if not checks:
        return (yield)
    from torch_openreg.openreg import sanitizer

    with ExitStack() as stack:
        session = stack.enter_context(sanitizer.enable(checks))
        result = yield
        if "leak" in session.checks:
            session._raise_no_more()
            item.stash[_SESSION] = session
            stack.pop_all()
        return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Looks for leaks after the test's fixtures, its arguments and its instance have gone.

    Other findings of the teardown are shown in the summary.
    """
    session = item.stash.get(_SESSION, None)
    if session is None:
        return (yield)
    del item.stash[_SESSION]
    with session:
        result = yield
        if funcargs := getattr(item, "funcargs", None):
            funcargs.clear()  # pytest itself does this next
        session._finish()
    left = session._unraised()
    others = [f"OPENREG_SANITIZER: {report}" for report in left if report.kind != "leak"]
    item.config.stash[_FOUND] = [*item.config.stash.get(_FOUND, []), *others]
    if leaks := [report for report in left if report.kind == "leak"]:
        from torch_openreg.openreg import sanitizer

        raise sanitizer.Error(leaks[0])
    return result


# --openreg-sanitize sets OPENREG_SANITIZER, which also enables a sanitizer session for the whole process. That session
# sees what happens outside the tests. It does not look for leaks, because a module or a fixture may keep what it has
# made. The sessions of the tests look for leaks.
@pytest.hookimpl(trylast=True)  # after pytest-xdist's implementation, which waits until all workers have sent reports
def pytest_sessionfinish(session: pytest.Session) -> None:
    if "OPENREG_SANITIZER" not in _settings(session.config.known_args_namespace):
        return
    found = session.config.stash.get(_FOUND, [])
    if sanitizer := sys.modules.get("torch_openreg.openreg.sanitizer"):  # not imported in a process with workers
        found += sanitizer._end_all(looks_for_leaks=False)
    output = getattr(session.config, "workeroutput", None)  # what a worker of pytest-xdist sends at its end
    if output is not None:
        output["openreg_sanitizer"] = found
        return
    session.config.stash[_FOUND] = found
    if found and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    found = getattr(node, "workeroutput", {}).get("openreg_sanitizer", [])
    node.config.stash[_FOUND] = [*node.config.stash.get(_FOUND, []), *found]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for text in config.stash.get(_FOUND, []):
        terminalreporter.write_line(text, red=True)


@pytest.fixture
def openreg_faults() -> Iterator[Callable[[str], object]]:
    """A function that injects faults until the end of the test: ``torch_openreg.openreg.faults.inject(program)``."""
    from torch_openreg.openreg import faults

    with ExitStack() as stack:
        yield lambda program: stack.enter_context(faults.inject(program))


def _settings(options: object) -> dict[str, str]:
    """The environment variables, with their values, of the options that are given."""
    values = {variable: getattr(options, f"openreg_{name.replace('-', '_')}", None) for name, variable, *_ in OPTIONS}
    return {variable: value for variable, value in values.items() if value is not None}


def _by_whom() -> str:
    """Returns "by NAME (FILE) " for the module that imported torch; "" if that module cannot be found.

    Python lists modules in the order in which their imports ended. So the importer is the first module after torch that
    has an attribute of torch, or else the program itself, whose import has not ended.
    """
    names = list(sys.modules)
    for name in [*names[names.index("torch") + 1 :], "__main__"]:
        module = sys.modules[name]
        ours = name.partition(".")[0] in ("torch", "torch_openreg")
        if not ours and isinstance(module, ModuleType) and any(map(_is_of_torch, list(vars(module).values()))):
            return f"by {name} ({getattr(module, '__file__', None) or 'without a file'}) "
    return ""


def _is_of_torch(value: object) -> bool:
    home = value.__name__ if isinstance(value, ModuleType) else None
    if isinstance(value, (type, FunctionType)):
        home = value.__module__
    return isinstance(home, str) and home.partition(".")[0] == "torch"
