"""docs/stub-operators.md: which operators a backend can register through a stub."""

from __future__ import annotations

import difflib
import re

import pytest
import torch
from stub_operators import DOCUMENT, document, registered, stubs, users

pytestmark = pytest.mark.slow


def test_every_stub_that_is_filled_may_be_and_is_used() -> None:
    verdicts = {stub.name: stub.verdict for stub in stubs()}
    filled = registered() - {"_fused_sdp_choice_stub"}  # computes nothing: it says which kernel attention takes
    assert len(filled) >= 65
    assert {verdicts[name] for name in filled} == {"its type allows it"}
    used = users()  # users() empties each stub, and finds the operators that then fail
    assert used["add_stub"] == ["add.Tensor", "add.out", "add_.Tensor", "sub.Tensor", "sub.out", "sub_.Tensor"]
    assert [name for name in sorted(filled) if not used[name]] == []


def test_the_page_is_what_the_command_writes() -> None:
    version = re.search(r"from PyTorch (\S+):", DOCUMENT.read_text())
    assert version is not None
    if not torch.__version__.startswith(version[1] + "."):
        pytest.skip(f"the page is PyTorch {version[1]}'s")
    found, written = document().splitlines(), DOCUMENT.read_text().splitlines()
    assert found == written, "run `make stubs`:\n" + "\n".join(difflib.unified_diff(written, found, lineterm=""))
