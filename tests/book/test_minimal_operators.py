"""docs/minimal-operators.md is true: what works with only the minimal set, and what breaks without each operator."""

from __future__ import annotations

import difflib

import pytest
import torch
from minimal.__main__ import DOCUMENT, PYTORCHS, ROWS, document
from registered import registrations


def test_the_rows_are_those_of_the_source() -> None:
    registered = {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
        for line in torch._C._dispatch_dump(name).splitlines()
        if line.startswith("PrivateUse1: ") and "OpenRegMinimal.cpp" in line
    }
    assert registered == {*ROWS} - {"fallback"}


def test_built_in_operators_are_registered() -> None:
    names = {*PYTORCHS} - {"fallback"}
    assert {registrations(f"aten::{name}")["PrivateUse1"] for name in names} == {"OpenRegMinimal"}


@pytest.mark.slow
def test_the_page_says_what_a_backend_of_these_rows_can_do() -> None:
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the page is PyTorch 2.13's")
    # Of the table an operator and the fallback, because each row takes seconds. `make minimal` tries all rows.
    tried = ROWS[::12]
    others = tuple(f"| `{row}` |" for row in ROWS if row not in tried)
    written = [line for line in DOCUMENT.read_text().splitlines() if not line.startswith(others)]
    found = document(tried).splitlines()
    assert found == written, "run `make minimal`:\n" + "\n".join(difflib.unified_diff(written, found, lineterm=""))
