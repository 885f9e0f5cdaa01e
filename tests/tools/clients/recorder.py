"""A pytest plugin that writes one line of JSON for each test that begins and for each that ends.

A run that crashes is started again with the same file of records. A test that has a record is not run a second time,
and the last record names the test in which the process died.
OPENREG_CLIENTS_SHARD="2/4" runs the second quarter of the tests.
Imports only the standard library and pytest.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

RECORDS = os.environ.get("OPENREG_CLIENTS_RECORDS", "")
SHARD = os.environ.get("OPENREG_CLIENTS_SHARD", "1/1")

# The names of PyTorch's device-generic tests: TestViewOpsCPU::test_x_cpu_int8, TestViewOpsOPENREG::test_x_openreg_int8.
DEVICES = "cpu|cuda|openreg|privateuse1"
GENERIC = re.compile(rf"(?:{DEVICES.upper()})::(test_\w+)_(?:{DEVICES})(?=_|$|\[)")


def normal(name: str) -> str:
    """The name of a test without the device that it was made for: the same on all machines."""
    return GENERIC.sub(r"DEVICE::\1_DEVICE", name)


def in_shard(name: str, shard: str) -> bool:
    part, of = map(int, shard.split("/"))
    return zlib.crc32(normal(name).encode()) % of == part - 1


def record(**what: Any) -> None:
    with open(RECORDS, "a") as file:
        file.write(json.dumps(what) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = set()
    if os.path.exists(RECORDS):
        with open(RECORDS) as file:
            known = {json.loads(line).get("id") for line in file}
    mine = [item for item in items if in_shard(item.nodeid, SHARD)]
    remaining = [item for item in mine if item.nodeid not in known]
    record(collected=len(mine))
    chosen = set(remaining)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = remaining


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    record(id=item.nodeid, outcome="crashed")  # until it has another outcome
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        cause = ""
        if report.outcome == "skipped":
            cause = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(getattr(report, "wasxfail", ""))
        elif report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            cause = crash.message if crash else str(report.longrepr)
        record(id=report.nodeid, outcome=report.outcome, cause=cause[:500])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        record(id=report.nodeid, outcome="failed", cause=str(report.longrepr).strip().splitlines()[-1][:500])
