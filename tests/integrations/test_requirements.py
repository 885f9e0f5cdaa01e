"""requirements/integrations.txt brings libraries, and leaves PyTorch alone."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from libraries import REASON
from packaging.requirements import Requirement


def wanted(requirements: Iterable[str]) -> list[Requirement]:
    """Those of the requirements that this Python and this system need."""
    return [r for r in map(Requirement, requirements) if r.marker is None or r.marker.evaluate({"extra": ""})]


LINES = (Path(__file__).parents[2] / "requirements" / "integrations.txt").read_text().splitlines()
LIBRARIES = wanted(line for line in LINES if not line.startswith("#"))


def test_the_versions_are_pinned() -> None:
    assert {"accelerate", "safetensors"} <= {r.name for r in LIBRARIES}
    assert [str(r) for r in LIBRARIES if not re.fullmatch(r"==[\d.]+", str(r.specifier))] == []


@pytest.mark.parametrize("requirement", LIBRARIES, ids=lambda r: r.name)
def test_installing_the_libraries_keeps_the_torch_that_is_there(requirement: Requirement) -> None:
    """Nothing that the file installs needs another torch, or a library that works with one version of torch only."""
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
        for r in wanted(importlib.metadata.requires(name) or []):
            if r.name == "torch":
                assert torch.__version__.split("+")[0] in r.specifier, f"{name} needs {r}"
            pending.append(r.name)
    assert not seen & {"torchvision", "torchaudio", "triton"}
