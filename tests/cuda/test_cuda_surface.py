"""The page of the names of torch.cuda is true: which names of torch.cuda torch.openreg has, replaces or lacks."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import cuda_rows
import cuda_surface
import programs
import pytest
import torch
from cuda_builds import AS_CUDA

SAME = [name for name in cuda_surface.names() if cuda_surface.find(torch.openreg, name) is not None]


def test_every_name_of_torch_cuda_has_an_answer() -> None:
    assert len(cuda_surface.rows()) == len(cuda_surface.names()) > 230


def test_every_answer_has_a_name() -> None:
    """When torch.openreg gains a name, the name must be removed from INSTEAD and ABSENT."""
    asked = {cuda_surface.answer(row.name) for row in cuda_surface.rows() if row.status != "same"}
    assert asked | cuda_surface.LATER == cuda_surface.INSTEAD.keys() | cuda_surface.ABSENT.keys()
    assert not cuda_surface.INSTEAD.keys() & cuda_surface.ABSENT.keys()


@pytest.mark.parametrize("call", sorted(set(cuda_surface.INSTEAD.values())))
def test_what_stands_in_for_a_name_exists(call: str) -> None:
    assert callable(cuda_surface.find(torch, call.removeprefix("torch.")))


@pytest.mark.parametrize("name", SAME)
def test_a_name_that_both_have_takes_torch_cudas_arguments(name: str) -> None:
    theirs, ours = cuda_surface.find(torch.cuda, name), cuda_surface.find(torch.openreg, name)
    assert callable(theirs) == callable(ours)
    if not callable(theirs):
        assert type(ours) is type(theirs)
    elif name.endswith("Tensor"):  # built-in types without a signature: tests/runtime/test_device_module.py calls them
        assert ours.dtype is theirs.dtype
    else:
        assert refused_arguments(inspect.signature(theirs), inspect.signature(ours)) == []


def refused_arguments(theirs: inspect.Signature, ours: inspect.Signature) -> list[str]:
    """Parameters of `theirs` that `ours` does not accept by name or position, and those that only `ours` demands."""
    there, here = list(theirs.parameters.values()), list(ours.parameters.values())
    kinds = {parameter.kind for parameter in here}
    refused = []
    for position, parameter in enumerate(there):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if inspect.Parameter.VAR_KEYWORD not in kinds and parameter.name not in ours.parameters:
            refused.append(parameter.name)
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD and inspect.Parameter.VAR_POSITIONAL not in kinds:
            found = here[position] if position < len(here) else None
            if found is None or (found.name, found.kind) != (parameter.name, parameter.kind):
                refused.append(parameter.name)
    demanded = [p.name for p in here if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return refused + [name for name in demanded if theirs.parameters[name].default is not inspect.Parameter.empty]


def test_the_comparison_of_arguments_sees_what_differs() -> None:
    def theirs(device: object = None, priority: int = 0) -> None: ...

    def renamed(device: object = None, level: int = 0) -> None: ...

    def swapped(priority: int = 0, device: object = None) -> None: ...

    def stricter(device: object, priority: int = 0) -> None: ...

    expected = {theirs: [], renamed: ["priority"], swapped: ["device", "priority"], stricter: ["device"]}
    found = {f: refused_arguments(inspect.signature(theirs), inspect.signature(f)) for f in expected}
    assert found == expected


def test_the_page_names_every_row_and_every_refusal() -> None:
    page = cuda_surface.page()
    refusals = [name for name in cuda_surface.public_names() if cuda_surface.as_cuda(name) == "refuses"]
    assert [name for name in [*(row.name for row in cuda_surface.rows()), *refusals] if f"`{name}`" not in page] == []


# ---- by the name cuda


@pytest.fixture(scope="module")
def as_cuda() -> dict[str, dict[str, str]]:
    """The JSON of one process. "rows": name -> its row. "answers": row -> "" if the row is true, else the result."""
    script = Path(cuda_rows.__file__)
    command = [sys.executable, "-W", "ignore", script]  # PyTorch warns of deprecated names
    result = programs.run(*command, TORCH_OPENREG_AS="cuda", OPENREG_DEVICE_COUNT="2", status=0, errors="")
    return json.loads(result.stdout)


@AS_CUDA
def test_every_name_of_torch_cuda_has_a_row_for_the_type_cuda(as_cuda: dict[str, dict[str, str]]) -> None:
    assert as_cuda["rows"].keys() == set(cuda_surface.public_names())
    assert len(as_cuda["rows"]) > 270


@AS_CUDA
def test_every_row_has_a_name(as_cuda: dict[str, dict[str, str]]) -> None:
    assert set(as_cuda["rows"].values()) == cuda_rows.WORKS.keys() | cuda_rows.REFUSES.keys()
    assert not cuda_rows.WORKS.keys() & cuda_rows.REFUSES.keys()


@AS_CUDA
@pytest.mark.parametrize("name", [*cuda_rows.WORKS, *cuda_rows.REFUSES])
def test_a_name_does_as_cuda_what_its_row_says(name: str, as_cuda: dict[str, dict[str, str]]) -> None:
    assert as_cuda["answers"][name] == ""
