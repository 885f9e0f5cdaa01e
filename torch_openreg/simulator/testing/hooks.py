"""Hooks around each test. The pytest plugin (torch_openreg_pytest) registers the hooks if a setting needs them.

A setting is an option, a marker or an environment variable. The hooks apply the settings of the marker and of the
options, run a test several times, and report what a test leaks.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from torch_openreg import openreg
from torch_openreg.simulator._faults import ERRORS
from torch_openreg.simulator.testing import fits, leaks, processes
from torch_openreg.simulator.testing.marker import Settings, settings_of

_RUN = pytest.StashKey[int]()  # the number of the run, from 0, of a test that runs several times
_BEFORE = pytest.StashKey[int]()  # _allocations() before the test
_SETTINGS = pytest.StashKey[Settings]()
# For each run with other devices: the environment variables of the test's process. Empty: the test runs in this process.
_ENVIRONMENTS = pytest.StashKey[list[dict[str, str]]]()
_MISTAKE = pytest.StashKey[str]()  # what is wrong with the test's marker


def _allocations() -> int:
    """The number of blocks that the devices' allocators have handed out so far."""
    stats = (openreg.memory_stats(index) for index in range(openreg.device_count()))
    return sum(each.get("allocation.all.allocated", 0) for each in stats)


def _has_device() -> bool:
    """Whether the tests have a device. Raises the error of a device that cannot start because a setting is wrong."""
    if openreg.device_count():
        return True
    try:
        openreg.init()
    except Exception as error:
        no_device = getattr(error, "error_code", None) == ERRORS["nodevice"]  # e.g. all are hidden
        if no_device or "driver" in str(error):
            return False
        raise
    return True


class PerTestHooks:
    """Runs each test with the settings of its marker and of the options."""

    def __init__(self, config: pytest.Config, chaos: bool, seed: int) -> None:
        """``chaos``: tests whose marker names no mode run in the mode chaos. ``seed``: the first seed of this mode."""
        option = config.option
        self._config = config
        self._counts_device_tests = bool(option.openreg)  # for the summary: how many tests used the device
        self._forbids_waits = bool(option.openreg_no_sync)
        self._leaks = leaks.Leaks() if option.openreg_leaks else None
        self._chaos = chaos
        self._seed = seed
        self._runs = int(option.openreg_chaos_runs or 1)
        self._server: processes.ForkServer | None = None
        self._models = fits.models_of_option(option.openreg_fits)
        self._must_fit = False  # in a child of the fork server: whether its test runs in dry execution
        self._run_of_child: int | None = None  # in a child of the fork server: the number of the test's run
        self._reports: list[pytest.TestReport] = []
        self._subtests: list[pytest.TestReport] | None = None  # while a test runs: the reports of its subtests
        self._ran: set[str] = set()
        self._reached: set[str] = set()
        # The counts of OPENREG_FAULTS in each process of this run; None for a process that died.
        self._fault_counts: list[list[openreg.faults.Count] | None] = []
        openreg.faults._leave_the_warning_to_pytest()
        if option.openreg_chaos_runs and not self._chaos:
            raise pytest.UsageError("--openreg-chaos-runs needs --openreg-execution=chaos, late or random:SEED.")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        for item in session.items:
            try:
                item.stash[_SETTINGS] = settings_of(item)
                item.stash[_ENVIRONMENTS] = fits.environments_of(item, item.stash[_SETTINGS], self._models)
            except pytest.UsageError as error:
                if not hasattr(self._config, "workerinput"):
                    raise
                # pytest-xdist shows no usage error of a worker. So the test fails.
                item.stash[_SETTINGS], item.stash[_MISTAKE] = Settings(), str(error)
                item.stash[_ENVIRONMENTS] = [Settings().environment]
        # In a fork server, serve() replaces pytest's loop: it runs the tests that the user's pytest asks for.
        return processes.serve(session, self._run_in_child) if processes.is_server() else None

    # ---- one test

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if self._run_of_child is not None:
            subtests, reports = self._run_here(item, nextitem, self._run_of_child)
            self._reports = [*subtests, *reports]
            return True
        if not self._has_own_process(item) and self._runs == 1:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        environments = item.stash[_ENVIRONMENTS]
        reports = fits.joined([self._run_until_failure(item, nextitem, each) for each in environments])
        if self._has_own_process(item):
            # An earlier test of this module has set up what the child does not tear down: the fixtures of the module.
            end = partial(item.session._setupstate.teardown_exact, nextitem)
            if (call := pytest.CallInfo.from_call(end, when="teardown")).excinfo:
                reports = [*reports, pytest.TestReport.from_item_and_call(item, call)]
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> bool | None:
        """pytest-timeout calls this hook. If a test has a process of its own, that process has the timer.

        A timer of this process would end the whole run.
        """
        return True if self._run_of_child is None and self._has_own_process(item) else None

    def _has_own_process(self, item: pytest.Item) -> bool:
        return item.stash[_ENVIRONMENTS] != [{}]

    def _run_until_failure(
        self, item: pytest.Item, nextitem: pytest.Item | None, environment: dict[str, str]
    ) -> list[pytest.TestReport]:
        """Runs a test self._runs times, or until it fails. Returns the reports of the last run, for pytest."""
        reports: list[pytest.TestReport] = []
        for run in range(self._runs):
            subtests: list[pytest.TestReport] = []
            if environment:
                self._server = self._server or processes.ForkServer(self._config, self._fault_counts.append)
                reports = self._server.run(item, environment, run)
            else:
                subtests, reports = self._run_here(item, nextitem, run)
            if any(report.failed for report in [*subtests, *reports]):
                break
        return reports

    def _run_in_child(self, item: pytest.Item, run: int) -> list[pytest.TestReport]:
        """As _run_here, but within pytest's hooks around a test. One of these hooks records the warnings."""
        self._run_of_child = run
        self._must_fit = fits.is_asked_for()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        return self._reports

    def _run_here(
        self, item: pytest.Item, nextitem: pytest.Item | None, run: int
    ) -> tuple[list[pytest.TestReport], list[pytest.TestReport]]:
        """Runs a test once in this process. Returns the reports of its subtests, and the reports of the test itself.

        pytest has got the reports of the subtests already.
        """
        item.stash[_RUN] = run
        if run > 0:
            item._initrequest()  # type: ignore[attr-defined]  # so that fixtures are made anew
        subtests: list[pytest.TestReport] = []
        self._subtests = subtests
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        self._subtests = None
        for report in reports:  # pytest's own implementation of this hook makes a test fail if a subtest has failed
            item.ihook.pytest_report_teststatus(report=report, config=self._config)
        return subtests, reports

    @pytest.hookimpl(wrapper=True, trylast=True)  # innermost: pytest's own wrappers must have begun if this one fails
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        if mistake := item.stash.get(_MISTAKE, ""):
            pytest.fail(mistake, pytrace=False)
        chaos = self._chaos and item.stash[_SETTINGS].execution is None
        if not (self._counts_device_tests or self._leaks or chaos) or not _has_device():
            return (yield)
        if self._counts_device_tests:
            openreg.init()
            item.stash[_BEFORE] = _allocations()
        if self._leaks:
            self._leaks.begin()
        if chaos:
            openreg.execution_mode("chaos", self._seed_of(item))  # stays until the next test sets its own seed
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        if self._leaks and fixturedef.scope != "function":
            with self._leaks.kept():
                return (yield)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        settings = item.stash[_SETTINGS]
        with ExitStack() as stack:
            if settings.execution is not None:
                stack.enter_context(openreg.execution_mode(settings.execution, self._seed_of(item)))
            if settings.faults is not None:
                faults = openreg.faults.inject(settings.faults)
                faults._place = (str(item.path), (item.location[1] or 0) + 1, getattr(item, "module", pytest).__name__)
                stack.enter_context(faults)
            if settings.no_sync and self._forbids_waits:
                stack.callback(openreg.set_sync_debug_mode, openreg.get_sync_debug_mode())
                openreg.set_sync_debug_mode("error")
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        result = yield
        if self._leaks and (left := self._leaks.end(item)):
            pytest.fail(left, pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
        report: pytest.TestReport = yield  # type: ignore[misc, assignment]
        if self._leaks and not report.passed:
            self._leaks.excuse(item)  # reports no leak: the traceback of a failed test keeps its tensors alive
        if self._must_fit:
            fits.judge(report)
        if report.failed and (how := self._how_to_repeat(item)):
            report.sections.append(("torch_openreg", how))
        if self._counts_device_tests and call.when == "teardown" and _BEFORE in item.stash:
            report.openreg_reached = _allocations() > item.stash[_BEFORE]  # type: ignore[attr-defined]
        return report  # type: ignore[return-value]

    def _seed_of(self, item: pytest.Item) -> int:
        return (self._seed + item.stash.get(_RUN, 0)) % 2**64

    def _how_to_repeat(self, item: pytest.Item) -> str:
        """The execution mode of the test; for chaos also the seed and the command to repeat it. "" without a mode."""
        execution = item.stash[_SETTINGS].execution or ("chaos" if self._chaos else None)
        if execution is None:
            return ""
        if execution != "chaos":
            return f"mode {execution}"
        run = f", run {item.stash.get(_RUN, 0) + 1} of {self._runs}" if self._runs > 1 else ""
        seed = self._seed_of(item)
        path, colons, names = item.nodeid.partition("::")
        test = os.path.relpath(self._config.rootpath / path, self._config.invocation_params.dir) + colons + names
        command = [test, "--openreg-execution=chaos", f"--openreg-seed={seed}", *self._other_options()]
        return f"mode chaos, seed {seed}{run}\nrepeat: python -m pytest {shlex.join(command)}"

    def _other_options(self) -> list[str]:
        """The arguments of the command line, without what selects files, the mode, the seed and the number of runs."""
        worker = getattr(self._config, "workerinput", None)  # of pytest-xdist
        arguments = iter(worker["mainargv"][1:] if worker else self._config.invocation_params.args)
        options: list[str] = []
        for argument in arguments:
            name, equals, _ = str(argument).partition("=")
            if name in ("--openreg-execution", "--openreg-seed", "--openreg-chaos-runs"):
                if not equals:
                    next(arguments, None)  # its value
            elif argument not in self._config.args:
                options.append(str(argument))
        return options

    # ---- the summary

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._subtests is not None:  # pytest reports a subtest when it ends, and only by this hook
            self._subtests.append(report)
        if getattr(report, "openreg_reached", False):
            self._reached.add(report.nodeid)
        if report.nodeid in self._reached or (report.when == "call" and not report.skipped):
            self._ran.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._counts_device_tests:
            terminalreporter.write_line(
                f"torch_openreg: {len(self._reached)} of {len(self._ran)} tests allocated memory on the device"
            )

        for text in openreg.faults._never_fired(self._all_counts()):
            terminalreporter.write_line(text, yellow=True)

    def _all_counts(self) -> list[list[openreg.faults.Count] | None]:
        return [*self._fault_counts, openreg.faults._environments_counts()]

    def pytest_sessionfinish(self) -> None:
        if self._server:
            self._server.close()
        output = getattr(self._config, "workeroutput", None)  # what a worker of pytest-xdist sends at its end
        if output is not None:
            # pytest-xdist sends tuples, but no Count.
            output["openreg_faults"] = [
                None if counts is None else [tuple(each) for each in counts] for counts in self._all_counts()
            ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """pytest-xdist calls this hook when a worker has ended. A worker that crashed has no output."""
        sent = getattr(node, "workeroutput", {}).get("openreg_faults", [None])
        self._fault_counts += [counts and [openreg.faults.Count(*each) for each in counts] for counts in sent]
