"""UPSTREAM.md shows every function of PyTorch that this package replaces, and each is where its row says."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path
from pkgutil import resolve_name

import pytest

from torch_openreg import _upstream

ROOT = Path(__file__).parents[2]
ROWS = [row for rows in _upstream.all_rows().values() for row in rows]


def test_the_page_is_what_the_command_prints() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "upstream.py"))["page"]
    assert (ROOT / "UPSTREAM.md").read_text() == page()


def test_each_row_says_why_and_which_hook_is_missing_and_none_stands_twice() -> None:
    assert len(ROWS) > 60
    assert all(row.why and row.hook for row in ROWS)
    for rows in _upstream.all_rows().values():
        assert len({row[:2] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "._cuda" not in row.ours], ids=lambda row: f"{row.owner}.{row.name}"
)
def test_ours_and_pytorchs_are_there(row: _upstream.Replaced) -> None:
    for name in (
        "torch._dynamo",
        "torch._inductor.compile_fx",
        "torch.distributed.tensor",
    ):  # as a program imports them
        importlib.import_module(name)
    assert resolve_name(row.ours) is not None
    if (library := row.owner.split(".")[0]) in ("safetensors", "transformers", "triton"):
        pytest.importorskip(library, reason="the tests in tests/integrations run with the libraries")
    owner = resolve_name(row.owner)
    assert resolve_name(row.name) in owner if isinstance(owner, dict) else hasattr(owner, row.name)


def test_no_other_file_of_the_package_replaces_an_attribute_of_pytorch() -> None:
    assigns = re.compile(r"^\s*(setattr\((torch|owner)|(torch|dist|_logging|_tensor_str)(\.\w+)+ = )", re.M)
    files = [*(ROOT / "torch_openreg").rglob("*.py"), ROOT / "torch_openreg_autoload.py"]
    assert {path.relative_to(ROOT).as_posix() for path in files if assigns.search(path.read_text())} == {
        "torch_openreg/_cuda/_attach.py",  # attributes that PyTorch has only in a build with CUDA
        "torch_openreg/_cuda/_device.py",  # as PyTorch's own start of CUDA
        "torch_openreg/_failure.py",  # a row, and torch.openreg
        "torch_openreg/_loader.py",  # a row, and names that PyTorch does not have
        "torch_openreg/_upstream.py",
        "torch_openreg/simulator/openreg/sanitizer.py",  # rows, which come and go with a session
        "torch_openreg_autoload.py",  # a row
    }
