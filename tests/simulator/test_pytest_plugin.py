"""The pytest plugin: its options take effect before torch is imported, and without them it does nothing."""

from __future__ import annotations

import re
from pathlib import Path

import programs
import pytest
from cuda_builds import AS_CUDA
from environments import Environment
from inner_pytest import run_pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.usefixtures("as_a_user_has_it")

USES = """
import os
import unittest
import torch

def test_function():
    assert torch.ones(2, device="cuda").is_cuda and torch.cuda.device_count() == 3

class TestCase(unittest.TestCase):
    @unittest.skipUnless(torch.cuda.is_available(), "no GPU")
    def test_method(self):
        self.assertEqual(torch.ones(2).cuda().sum().item(), 2)
"""
HEADER = 'torch_openreg: the device "cuda" is simulated (TORCH_OPENREG_AS=cuda OPENREG_DEVICE_COUNT=3)'
OPTIONS = ("--openreg-as=cuda", "--openreg-device-count=3")


@pytest.mark.slow
@AS_CUDA
def test_the_options_choose_the_devices_of_functions_and_unittests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USES)
    result = run_pytest(pytester, *OPTIONS)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([HEADER])


@pytest.mark.slow
@AS_CUDA
def test_options_take_effect_before_conftest_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import torch\ncount = torch.cuda.device_count()")
    pytester.makepyfile("from conftest import count\ndef test_count(): assert count == 3")
    run_pytest(pytester, *OPTIONS).assert_outcomes(passed=1)


@pytest.mark.slow
@AS_CUDA
@pytest.mark.parametrize("file", ["pytest.ini", "pyproject.toml"])
def test_options_may_stand_in_addopts(pytester: pytest.Pytester, file: str) -> None:
    section = {"pytest.ini": "[pytest]\naddopts = {}", "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "{}"'}
    (pytester.path / file).write_text(section[file].format(" ".join(OPTIONS)) + "\n")
    pytester.makepyfile(USES)
    result = run_pytest(pytester)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([HEADER])


@pytest.mark.slow
@AS_CUDA
def test_the_workers_of_xdist_have_the_devices(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USES)
    result = run_pytest(pytester, "-n", "1", *OPTIONS)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([HEADER])


@pytest.mark.slow
def test_every_setting_has_an_option(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from torch_openreg import openreg
        def test_mode(): assert openreg.get_execution_mode() == "chaos"
    """)
    result = run_pytest(pytester, "--openreg-execution=chaos", "--openreg-seed=5")
    result.assert_outcomes(passed=1)
    line = 'torch_openreg: the device "openreg" is simulated (OPENREG_EXECUTION=chaos OPENREG_CHAOS_SEED=5)'
    result.stdout.fnmatch_lines([line])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--openreg-as=gpu", "argument --openreg-as: 'gpu' is not valid: expected cuda or openreg"),
        (
            "--openreg-device-count=65",
            "argument --openreg-device-count: '65' is not valid: expected a number from 1 to 64",
        ),
        (
            "--openreg-seed=-1",
            "argument --openreg-seed: '-1' is not valid: expected a number from 0 to 18446744073709551615",
        ),
    ],
)
def test_a_bad_value_is_a_usage_error(pytester: pytest.Pytester, option: str, sentence: str) -> None:
    result = pytester.runpytest_subprocess(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*: error: {sentence}"])


# ---- Too late --------------------------------------------------------------------------------------------------------


def too_late(pytester: pytest.Pytester, by_whom: str, *options: str) -> None:
    pytester.makepyfile(test_uses=USES)
    result = run_pytest(pytester, *options, *OPTIONS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR and "test session starts" not in result.stdout.str()
    assert result.errlines[0] == (
        f"ERROR: --openreg-as --openreg-device-count: torch was imported {by_whom}before pytest read its options, "
        "which is too late to choose the devices. Set them before Python starts: TORCH_OPENREG_AS=cuda "
        "OPENREG_DEVICE_COUNT=3 python -m pytest ..."
    )


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["import torch", "from torch import nn", "from torch.utils.data import Dataset"])
def test_a_plugin_that_imported_torch_is_named(pytester: pytest.Pytester, statement: str) -> None:
    early = pytester.makepyfile(early=statement)
    too_late(pytester, f"by early ({early}) ", "-p", "early")


@pytest.mark.slow
def test_who_imported_torch_for_a_plugin_is_named(pytester: pytest.Pytester) -> None:
    helper = pytester.makepyfile(helper="import json\nimport torch\nimport csv")
    pytester.makepyfile(early="import helper")
    too_late(pytester, f"by helper ({helper}) ", "-p", "early")


@pytest.mark.slow
def test_an_import_that_leaves_no_trace_is_an_error_without_a_name(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(early="__import__('torch')")
    too_late(pytester, "", "-p", "early")


@pytest.mark.slow
@AS_CUDA
def test_environment_variables_work_where_a_plugin_imports_torch_first(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(early="import torch", test_uses=USES)
    monkeypatch.setenv("TORCH_OPENREG_AS", "cuda")
    monkeypatch.setenv("OPENREG_DEVICE_COUNT", "3")
    for options in ((), OPTIONS):
        run_pytest(pytester, "-p", "early", *options).assert_outcomes(passed=2)


# ---- Unused ----------------------------------------------------------------------------------------------------------


def test_without_an_option_nothing_is_imported_set_or_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os, sys
        def test_nothing():
            assert "torch_openreg_pytest" in sys.modules
            assert not {"torch", "torch_openreg"} & set(sys.modules)
            assert not [name for name in os.environ if "OPENREG" in name]
    """)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("torch_openreg: *")


@pytest.mark.slow
def test_an_installed_plugin_gives_no_warning(shared_environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): import torch")
    result = programs.run(shared_environment.python, "-W", "error", "-m", "pytest", "-W", "error", cwd=tmp_path)
    assert result.returncode == 0 and "1 passed in" in result.stdout


def test_unused_it_imports_only_the_list_of_options(tmp_path: Path) -> None:
    """So pytest starts as fast as without the plugin: the two modules take less than a millisecond."""
    code = """
import argparse, pytest, sys
before = set(sys.modules)
import torch_openreg_pytest
print(*sorted(set(sys.modules) - before))
"""
    assert programs.python(code, cwd=tmp_path).stdout.split() == [
        "torch_openreg_pytest",
        "torch_openreg_pytest._options",
    ]


@pytest.mark.parametrize("options", [(), OPTIONS], ids=["unused", "used"])
def test_a_torch_that_cannot_be_imported_is_no_concern_of_pytest(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.mkpydir("torch").joinpath("__init__.py").write_text("raise ImportError('broken')")
    pytester.makepyfile("def test_without_torch(): pass")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)


def test_the_plugin_can_be_left_out(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_absent(): assert 'torch_openreg_pytest' not in sys.modules")
    pytester.runpytest_subprocess("-p", "no:torch_openreg").assert_outcomes(passed=1)
    result = pytester.runpytest_subprocess("-p", "no:torch_openreg", "--openreg-as=cuda")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert re.search("unrecognized arguments: --openreg-as=cuda", result.stderr.str())
