"""``python -m torch_openreg ops``: each operator has the route that the dispatcher takes, and the totals add up."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
from html_page import Page

from torch_openreg._cli import ops
from torch_openreg._cli.ops import ROUTES, main


@pytest.fixture(scope="module")
def rows() -> list[ops.Operator]:
    return list(ops.operators(["aten"]))


def parsed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def names(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    return [row["name"] for row in parsed(capsys, *arguments)["operators"]]


# ---- Routes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "route"),
    [
        ("aten::empty.memory_format", "native"),
        ("aten::convolution_overrideable", "override"),
        ("aten::add.Tensor", "structured"),
        ("aten::cat", "unboxed"),
        ("aten::mode.values", "registered fallback"),
        ("aten::histc", "registered fallback"),
        ("aten::histogram.bins_tensor", "fallback"),
        ("aten::ones", "composite explicit"),
        ("aten::matmul", "composite implicit"),
        ("openreg::custom_abs", "native"),
        ("openreg::custom_autograd_fn_returns_self", "autograd"),
        ("aten::_coalesce", "other layouts"),
        ("aten::_fused_dropout", "missing"),
    ],
)
def test_an_operator_of_each_route(name: str, route: str) -> None:
    assert ops.route_of(name)[0] == route


@pytest.mark.parametrize(
    ("layout", "name", "route"),
    [
        ("sparse_coo", "aten::_coalesce", "fallback"),
        ("sparse_coo", "aten::histc", "other layouts"),
        ("sparse_coo", "aten::matmul", "composite implicit"),
        ("sparse_csr", "aten::copy_", "override"),
        ("quantized", "aten::dequantize.self", "fallback"),
        ("quantized", "aten::set_.source_Storage_storage_offset", "native"),
        ("nested", "aten::add.Tensor", "registered fallback"),
        ("nested", "aten::native_dropout", "composite explicit"),
    ],
)
def test_an_operator_on_tensors_of_another_layout(layout: str, name: str, route: str) -> None:
    torch.openreg.init()
    assert ops.route_of(name, layout)[0] == route


def test_every_route_is_tested_and_occurs() -> None:
    spots = {route for _, route in test_an_operator_of_each_route.pytestmark[0].args[1]}  # type: ignore[attr-defined]
    assert spots == set(ROUTES)


def test_an_operator_is_missing_exactly_if_it_has_no_kernel_on_the_device(rows: list[ops.Operator]) -> None:
    registered = torch._C._dispatch_has_kernel_for_dispatch_key
    computed = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    for row in rows:
        if row.route in ("missing", "other layouts", "autograd"):
            assert not registered(row.name, "PrivateUse1") and not registered(row.name, "CPU"), row
        else:
            assert computed(row.name, "PrivateUse1"), row
            assert row.route != "fallback" or registered(row.name, "CPU"), row


def test_what_falls_back_is_what_the_fallback_counts() -> None:
    x = torch.rand(4, 4, device="openreg")
    calls = (
        torch.histc,
        torch.acosh,
        torch.logcumsumexp,
        lambda t: t @ t,
        lambda t: t + t,
        torch.cummax,
        torch.matrix_exp,
    )
    for call in calls:
        torch.openreg.fallback.reset_counts()
        with torch.profiler.profile() as profile:
            call(x, 0) if call in (torch.logcumsumexp, torch.cummax) else call(x)
        called = {event.key for event in profile.key_averages() if event.key.startswith("aten::")}
        counted = torch.openreg.fallback.counts()
        for name in counted:
            assert ops.route_of(name)[0] in ("fallback", "registered fallback"), name
            assert name.partition(".")[0] in called


def test_a_kernel_that_a_program_registers_is_seen() -> None:
    with torch.library._scoped_library("ops_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        assert ops.route_of("ops_test::twice")[0] == "missing"
        library.impl("twice", lambda x: 2 * x, "CPU")
        assert ops.route_of("ops_test::twice")[0] == "fallback"
        library.impl("twice", lambda x: 2 * x, "PrivateUse1")
        assert ops.route_of("ops_test::twice")[0] == "native"


def test_the_source_of_a_registration_is_named_as_in_its_repository(rows: list[ops.Operator]) -> None:
    sources = {row.name: row.registered_at for row in rows}
    path, _, line = sources["aten::empty.memory_format"].partition(":")
    assert path == "csrc/aten/OpenRegMinimal.cpp" and int(line) > 0
    assert (Path(__file__).parents[2] / path).exists()
    assert sources["aten::matmul"].startswith("build/aten/src/ATen/RegisterCompositeImplicitAutograd")
    assert sources["aten::_fused_dropout"] == ""


@pytest.mark.parametrize("layout", ops.KEYS)
def test_what_the_borrowed_folder_registers_states_its_route(layout: str) -> None:
    torch.openreg.init()
    kernels = {
        name: source
        for name in torch._C._dispatch_get_all_op_names()
        for source, kind in [ops.entry(torch._C._dispatch_dump_table(name), ops.KEYS[layout][0])]
        if kind == "kernel" and "csrc/simulator/borrowed/" in source
    }
    assert len(kernels) > 1
    assert [name for name, source in kernels.items() if " as " not in source] == []
    # set_ is the device's own function, and the folder only registers it for a layout that the device has with it.
    own = ["aten::set_.source_Storage_storage_offset"] if layout == "quantized" else []
    assert [name for name, source in kernels.items() if ops.stated_route(source)[1] == "native"] == own


def test_the_column_about_queues_is_the_devices_own_answer(rows: list[ops.Operator]) -> None:
    queued = {row.name for row in rows if row.queued}
    assert {"aten::add.Tensor", "aten::mm", "aten::add_.Tensor"} <= queued
    assert not {"aten::nonzero", "aten::equal", "aten::matmul", "aten::_fused_dropout", "aten::view"} & queued


def test_the_borrowed_operators_are_those_that_run_the_cpus_kernels(
    capsys: pytest.CaptureFixture[str], rows: list[ops.Operator]
) -> None:
    borrowed = {"override", "structured", "unboxed", "registered fallback", "fallback"}
    still = [row.name for row in rows if row.route in borrowed]
    own = [row.name for row in rows if row.route == "native"]
    assert len(still) > 1000 and len(own) > 20
    assert names(capsys, "--borrowed") == still
    assert main(["--borrowed", "--totals"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"{len(still)} of {len(still) + len(own)} operators with a kernel on the device run the CPU's kernel, "
        f"{len(own)} have a kernel of their own."
    )
    assert main(["--borrowed", "empty.memory_format"]) == 1
    assert capsys.readouterr() == ("", "torch-openreg ops: none of these operators runs the CPU's kernel\n")


# ---- Totals and filters ----------------------------------------------------------------------------------------------


def test_totals_add_up(rows: list[ops.Operator], capsys: pytest.CaptureFixture[str]) -> None:
    report = parsed(capsys)
    assert sum(report["totals"].values()) == len(report["operators"]) == len(rows) > 3000
    assert report["totals"] == Counter(row["route"] for row in report["operators"])
    assert list(report["totals"]) == [route for route in ROUTES if route in report["totals"]]
    assert parsed(capsys, "--totals") == {"totals": report["totals"], "operators": []}


@pytest.mark.slow
def test_filters(capsys: pytest.CaptureFixture[str]) -> None:
    assert names(capsys, "aten::histc") == ["aten::histc", "aten::histc.out"]
    assert names(capsys, "histc.out", "aten::mm") == [
        "aten::histc.out",
        "aten::mm",
        "aten::mm.dtype",
        "aten::mm.dtype_out",
        "aten::mm.out",
    ]
    assert names(capsys, "hist?") == ["aten::histc", "aten::histc.out"]
    native = names(capsys, "--route", "native")
    assert "aten::empty.memory_format" in native and "aten::mm" not in native
    both = names(capsys, "--route", "native", "--route", "unboxed")
    assert set(native) < set(both) and "aten::mm" in both
    assert names(capsys, "mm*", "--route", "native", "--route", "unboxed") == ["aten::mm", "aten::mm.out"]
    assert "openreg::custom_abs" in names(capsys, "--namespace", "openreg")
    assert names(capsys, "_coalesce", "--layout", "sparse_coo", "--route", "fallback") == ["aten::_coalesce"]
    everything = names(capsys, "--namespace", "all")
    assert {"openreg::custom_abs", "aten::mm"} < set(everything) and everything == sorted(everything)


# ---- Forms -----------------------------------------------------------------------------------------------------------


def test_text_without_a_terminal_has_a_line_for_each_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["histc", "mm", "--route", "registered fallback", "--route", "unboxed"]) == 0
    lines = capsys.readouterr().out.splitlines()
    fields = [line.split() for line in lines]
    assert [(f[0], f[1]) for f in fields[:4]] == [
        ("aten::histc", "registered"),
        ("aten::histc.out", "registered"),
        ("aten::mm", "unboxed"),
        ("aten::mm.out", "unboxed"),
    ]
    assert fields[2][2] == "queued"
    assert [f[:2] for f in fields[5:]] == [["2", "unboxed"], ["2", "registered"], ["4", "operators,"]]


def test_the_page_is_complete_and_well_formed(rows: list[ops.Operator], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--html"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("<!DOCTYPE html>") and "color-scheme: light dark" in text and "://" not in text
    page = Page(text)
    assert page.references == [], "the page must need nothing else"
    cells = [row for row in page.rows if row]
    assert [tuple(row[:2]) for row in cells if len(row) == 4] == [(row.name, row.route) for row in rows]
    assert {row[0]: int(row[1]) for row in cells if len(row) == 3} == ops.totals(rows)


def test_no_name_of_the_page_breaks_and_the_tables_scroll() -> None:
    text = ops.page(
        [ops.Operator("aten::mm", "unboxed", True, "csrc/simulator/borrowed/routes/OpenRegCpuKernels.cpp:1")]
    )
    assert text.count("<table") == text.count('<div class="scrolls">\n<table') == 2
    assert "overflow-wrap: anywhere" not in text and "#operators td { white-space: nowrap; }" in text


def test_a_name_is_escaped() -> None:
    operator = ops.Operator("a::<b>&", "native", False, '<script src="x">')
    page = Page(ops.page([operator]))
    assert ["a::<b>&", "native", "", '<script src="x">'] in page.rows


@pytest.mark.slow
def test_a_terminal_gets_a_table() -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "torch_openreg", "ops", "histc"]
    process = programs.start(*command, stdout=child, COLUMNS="120", TERM="xterm")
    os.close(child)
    output = b""
    try:
        while chunk := os.read(parent, 4096):
            output += chunk
    except OSError:  # Linux reports the end of the output in this way
        pass
    os.close(parent)
    assert process.wait() == 0
    text = output.decode()
    assert "\x1b[" in text and "aten::histc.out" in text and "registered at" in text


def test_several_routes_are_separated_by_commas(capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("," in route for route in ops.ROUTES)
    assert main(["--json", "--route", "structured, missing", "--route", "native"]) == 0
    chosen = json.loads(capsys.readouterr().out)["totals"]
    assert set(chosen) == {"structured", "missing", "native"}


# ---- Wrong use -------------------------------------------------------------------------------------------------------


def test_an_unknown_operator_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["no_such_operator"], ["--namespace", "no_such_namespace"], ["cat", "--route", "missing"]):
        assert main(arguments) == 1
        assert capsys.readouterr() == ("", "torch-openreg ops: no such operator\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--route", "native, express"],
            "argument --route: 'express' is no route; `torch-openreg ops --help` lists the routes",
        ),
        (["--layout", "dense"], "argument --layout: invalid choice: 'dense'"),
        (["--json", "--html"], "argument --html: not allowed with argument --json"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="^2$"):
        main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_reader_that_stops_is_no_error() -> None:
    command = (sys.executable, "-m", "torch_openreg", "ops")
    process = programs.start(*command, new_interpreter=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert isinstance(process, subprocess.Popen) and process.stdout and process.stderr
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr.read() == ""
    process.stderr.close()
