"""The page of stubs: which operators a backend can register through a stub."""

from __future__ import annotations

import pytest
from stub_operators import document, registered, stubs, users

pytestmark = pytest.mark.slow


def test_every_stub_that_is_filled_may_be_and_is_used() -> None:
    verdicts = {stub.name: stub.verdict for stub in stubs()}
    filled = registered() - {"_fused_sdp_choice_stub"}  # computes nothing: it says which kernel attention takes
    assert len(filled) >= 65
    assert {verdicts[name] for name in filled} == {"its type allows it"}
    used = users()  # users() empties each stub, and finds the operators that then fail
    assert used["add_stub"] == ["add.Tensor", "add.out", "add_.Tensor", "sub.Tensor", "sub.out", "sub_.Tensor"]
    assert [name for name in sorted(filled) if not used[name]] == []


def test_the_page_names_every_stub() -> None:
    page = document()
    assert [stub.name for stub in stubs() if f"`{stub.name}`" not in page] == []
