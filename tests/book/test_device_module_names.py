"""docs/bring-up/device-module.md is true: PyTorch asks the device's module for the names of the table."""

from __future__ import annotations

import json
import re
from pathlib import Path

import programs
import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "bring-up" / "device-module.md"
FORWARDER = "torch/distributed/fsdp/_common_utils.py"  # asks for the names that the rest of FSDP asks it for
pytestmark = pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the page is PyTorch 2.13's")


def rows() -> dict[str, tuple[str, str]]:
    """Name -> the two other cells of its row."""
    found = re.findall(r"^\| `?([\w ]+?)`? \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: (files, broken) for name, files, broken in found if name != "name"}


def test_the_module_and_the_files_of_pytorch_have_the_names_of_the_table() -> None:
    names = {name: re.findall(r"`([\w/.]+)`", files) for name, (files, _) in rows().items() if files != "-"}
    assert len(names) > 20
    for name, files in names.items():
        assert files and hasattr(torch.get_device_module(), name)
        for file in files:
            if file.endswith(".py") and file != FORWARDER:
                assert re.search(rf"\b{name}\b", (Path(torch.__file__).parents[1] / file).read_text()), (name, file)


@pytest.mark.slow
def test_a_hidden_name_breaks_what_its_row_says() -> None:
    # One name and all names, because each child takes a second. `make device-module` hides name after name.
    program = """
    import contextlib, json, sys
    with contextlib.redirect_stdout(sys.stderr):
        from device_module import ALL, without
        answer = [without("")[1], [*without("device")[0]], len(without(ALL)[0])]
    print(json.dumps(answer))
    """
    result = programs.python(program, status=0, PYTHONPATH=programs.importing(__file__))
    asked, broken, count = json.loads(result.stdout)
    table = rows()
    assert [*dict.fromkeys(name for name, _ in asked), "no names at all"] == [*table]
    assert "; ".join(broken) == table["device"][1]
    assert table["no names at all"][1].startswith(f"{count} of ")
