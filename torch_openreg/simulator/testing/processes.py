"""Runs a test in a separate process if the test chooses properties that must be known before the device starts.

The first such test starts a server: the same pytest with the same arguments. The server collects the tests, so torch
and the test modules are imported once. It then forks a child for each test. The device starts in the child.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from torch_openreg import openreg
from torch_openreg.openreg import dry, faults
from torch_openreg.simulator._variables import FORK_SERVER

Run = Callable[[pytest.Item, int], list[pytest.TestReport]]
# What a child sends: its reports, the arguments of pytest_warning_recorded and the counts of the faults of
# OPENREG_FAULTS; or a text that says why there are no reports; or the exception that ends the whole run.
Answer = tuple[list[dict[str, Any]], list[dict[str, Any]], list[faults.Count]] | str | BaseException


def is_server() -> bool:
    """Whether this process is the server, and not the user's pytest."""
    return FORK_SERVER in os.environ


def _arguments(config: pytest.Config) -> list[str]:
    """The arguments of the command line, with which the server collects the same tests."""
    worker = getattr(config, "workerinput", None)
    arguments = worker["mainargv"][1:] if worker else [str(each) for each in config.invocation_params.args]
    if config.pluginmanager.hasplugin("xdist"):
        arguments.append("-n0")
    if config.pluginmanager.hasplugin("tmpdir"):
        # pytest empties the folder of --basetemp. So the server has its own folder, inside that of the user's pytest.
        base = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        arguments.append(f"--basetemp={base / 'own_process'}")
    if config.pluginmanager.hasplugin("logging"):
        # pytest empties the log file, which the user's pytest has open.
        arguments.append(f"--log-file={os.devnull}")
    return arguments


class ForkServer:
    """Starts the server from the user's pytest, and sends it the tests."""

    def __init__(self, config: pytest.Config, count: Callable[[list[faults.Count] | None], None]) -> None:
        """``count`` is called with the counts of the faults of OPENREG_FAULTS in each child; None if it sent none."""
        self._config = config
        self._count = count
        ours, theirs = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        # A forked child of a process with threads may hang. OpenBLAS, which numpy loads, would start threads.
        #
        # With -s the tests write to this process's stdout and stderr. The server itself always writes to a file.
        shown = [os.dup(1), os.dup(2)] if getattr(config.option, "capture", None) == "no" else []
        passed = [theirs.fileno(), *shown]
        environment |= {FORK_SERVER: ",".join(map(str, passed)), "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *_arguments(config)],
            cwd=config.invocation_params.dir,
            env=environment,
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        theirs.close()
        for each in shown:
            os.close(each)
        self._connection = Connection(ours.detach())

    def run(self, item: pytest.Item, environment: dict[str, str], run: int) -> list[pytest.TestReport]:
        """Runs a test once, and returns its reports. If the process dies, the report says how it ended.

        The test's warnings become warnings of this pytest. Raises the exception that ended the whole run, such as that
        of pytest.exit().
        """
        try:
            self._connection.send((item.nodeid, environment, run))
            answer = self._connection.recv()
        except (EOFError, OSError):
            self._output.seek(0)
            said = self._output.read().decode(errors="replace")[-2000:]
            answer = f"The process that runs tests with a device of their own did not start. It said:\n{said}"
        if isinstance(answer, str):
            self._count(None)
            return [_failure(item, answer)]
        if isinstance(answer, BaseException):
            raise answer
        reports, recorded, counts = answer
        self._count(counts)
        hook = self._config.hook
        for each in recorded:
            message = _read_warning(*each.pop("written"))
            hook.pytest_warning_recorded.call_historic(kwargs={**each, "warning_message": message})
        return [hook.pytest_report_from_serializable(config=self._config, data=data) for data in reports]

    def close(self) -> None:
        self._connection.close()
        self._process.wait()
        self._output.close()


def _failure(item: pytest.Item, text: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")


def serve(session: pytest.Session, run: Run) -> bool:
    """Runs, in the server, the tests that the user's pytest asks for. Ends the process when that pytest has ended."""
    fd, *shown = map(int, os.environ.pop(FORK_SERVER).split(","))
    connection = Connection(fd)
    items = {item.nodeid: item for item in session.items}
    if session.config.pluginmanager.hasplugin("tmpdir"):
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # once for all children
    gc.freeze()  # otherwise a collection in a child would write to every object, and copy all their pages
    for nodeid, environment, number in _requests(connection):
        connection.send(_in_child(lambda: _run(items, nodeid, environment, number, run), shown))  # noqa: B023
    os._exit(0)


def _requests(connection: Connection) -> Iterator[tuple[str, dict[str, str], int]]:
    while True:
        try:
            yield connection.recv()
        except EOFError:
            return


def _run(items: dict[str, pytest.Item], nodeid: str, environment: dict[str, str], number: int, run: Run) -> Answer:
    if nodeid not in items:
        return f"{nodeid} was not collected in the process that runs tests with a device of their own."
    if openreg._is_in_bad_fork():  # the server has started the device
        return (
            "The device was started while the tests were collected, so that no test can choose its model or memory: a "
            "test module or conftest.py uses the device when it is imported. Use it in a fixture."
        )
    os.environ.update(environment)
    item = items[nodeid]
    try:
        if "OPENREG_DRY" in environment:
            # Dry execution needs the rates of the model, whose restrictions must stay in front of what it skips.
            openreg.models._obey_environment(restrict=False)
            dry._obey_environment()
        openreg.models._obey_environment()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    warned = _Warnings()
    item.config.pluginmanager.register(warned)
    try:
        reports = run(item, number)
    except (KeyboardInterrupt, pytest.exit.Exception) as error:
        return error
    hook = item.config.hook
    written = [hook.pytest_report_to_serializable(config=item.config, report=each) for each in reports]
    return written, warned.recorded, faults._environments_counts()


class _Warnings:
    """Records the warnings of a test in a form that can be sent."""

    def __init__(self) -> None:
        self.recorded: list[dict[str, Any]] = []

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        if when == "runtest":  # pytest also tells a new plugin the earlier warnings, which the collection caused
            given = warning_message
            category = given.category
            written = (category.__module__, category.__name__, str(given.message), given.filename, given.lineno)
            self.recorded.append({"written": written, "when": when, "nodeid": nodeid, "location": location})


def _read_warning(module: str, name: str, text: str, filename: str, line: int) -> warnings.WarningMessage:
    category = getattr(sys.modules.get(module), name, None) or type(name, (Warning,), {})
    return warnings.WarningMessage(Warning(text), category, filename, line)


def _in_child(function: Callable[[], Answer], shown: list[int]) -> Answer:
    """Calls the function in a forked child. Returns its result, or a description of how the child ended.

    ``shown``: the file descriptors of the child's stdout and stderr; empty: those of this process.
    """
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        for target, each in enumerate(shown, start=1):
            os.dup2(each, target)
        with os.fdopen(writer, "wb") as file:
            file.write(_pickled(function()))
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(child, 0)
    if answer:
        return pickle.loads(answer)
    code = os.waitstatus_to_exitcode(status)
    return f"The test's process ended with {signal.Signals(-code).name if code < 0 else f'the status {code}'}."


def _pickled(answer: Answer) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception as error:  # the test recorded a property that cannot be pickled
        return pickle.dumps(
            f"The report of the test cannot be sent to pytest's process: {type(error).__name__}: {error}. A test with "
            "a device of its own may record only what can be pickled."
        )
