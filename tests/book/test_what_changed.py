"""docs/bring-up/what-changed.md is true of the headers of the installed PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

import torch

HEADERS = Path(torch.__file__).parent / "include"


def test_the_names_that_vanished_are_not_there() -> None:
    assert not (HEADERS / "ATen" / "core" / "Dimname.h").exists()
    text = (HEADERS / "c10" / "core" / "AllocatorConfig.h").read_text()
    assert "constexpr size_t kSmallSize" in text and "size_t kLargeBuffer" not in text
    assert "Dimname" not in "".join(file.read_text() for file in (HEADERS / "ATen" / "ops").glob("s*_ops.h"))


def test_the_stable_abi_has_each_name_since_the_version_of_its_row() -> None:
    stable = HEADERS / "torch" / "csrc" / "stable"
    for file, version, name in (
        ("ops.h", "2_10", "parallel_for"),
        ("ops.h", "2_11", "from_blob"),
        ("library.h", "2_12", "torch_library_def_with_tags"),
        ("library.h", "2_13", "set_python_module"),
        ("accelerator.h", "2_13", "nativeHandle"),
    ):
        guarded = re.findall(
            rf"^#if TORCH_FEATURE_VERSION >= TORCH_VERSION_{version}_0$(.*?)^#(?:endif|if|else)",
            (stable / file).read_text(),
            re.DOTALL | re.MULTILINE,
        )
        assert any(re.search(rf"\b{name}\b", block) for block in guarded), (file, version, name)
