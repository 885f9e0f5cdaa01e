"""The extra `integrations` brings libraries, and leaves PyTorch alone."""

from __future__ import annotations

import importlib.metadata
import re

import pytest
import torch
from libraries import REASON
from packaging.requirements import Requirement


def needed_by(name: str, extra: str = "") -> list[Requirement]:
    """What a distribution needs here, with its extra if one is named."""
    requirements = [Requirement(text) for text in importlib.metadata.requires(name) or []]
    return [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": extra})]


EXTRA = [r for r in needed_by("torch_openreg", "integrations") if r not in needed_by("torch_openreg")]


def test_the_versions_are_pinned() -> None:
    assert {"accelerate", "safetensors"} <= {r.name for r in EXTRA}
    assert [str(r) for r in EXTRA if not re.fullmatch(r"==[\d.]+", str(r.specifier))] == []


@pytest.mark.parametrize("requirement", EXTRA, ids=lambda r: r.name)
def test_installing_the_extra_keeps_the_torch_that_is_there(requirement: Requirement) -> None:
    """Nothing that the extra installs needs another torch, or a library that works with one version of torch only."""
    pending, seen = [requirement.name], set()
    while pending:
        name = pending.pop()
        if name in seen or name == "torch":
            continue
        seen.add(name)
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"{name}: {REASON}")
        for r in needed_by(name):
            if r.name == "torch":
                assert torch.__version__.split("+")[0] in r.specifier, f"{name} needs {r}"
            pending.append(r.name)
    assert not seen & {"torchvision", "torchaudio", "triton"}
