"""safetensors, unchanged: tensors go from the device to a file and onto the device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, assert_same
from libraries import REASON
from torch import nn

safetensors = pytest.importorskip("safetensors", reason=REASON)
files = pytest.importorskip("safetensors.torch", reason=REASON)

TENSORS = {
    "float32": torch.arange(12.0).view(3, 4),
    "bfloat16": torch.arange(5.0).bfloat16(),
    "float8": torch.arange(4.0).to(torch.float8_e4m3fn),
    "int64": torch.arange(5),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(3.0),
    "empty": torch.empty(0, 3),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.safetensors"
    files.save_file({name: value.to(DEVICE) for name, value in TENSORS.items()}, path)
    return path


@pytest.mark.parametrize(("index", "device"), [(0, DEVICE_0), (1, DEVICE_1)])
def test_a_file_loads_onto_a_device_by_index(file: Path, index: int, device: str) -> None:
    loaded = files.load_file(file, device=index)
    assert {str(value.device) for value in loaded.values()} == {device}
    assert_same({name: loaded[name] for name in TENSORS}, TENSORS)


def test_slices_load_onto_a_device(file: Path) -> None:
    with safetensors.safe_open(file, "pt", device=1) as opened:
        part = opened.get_slice("float32")[1:, :2]
    assert part.device == torch.device(DEVICE_1)
    assert_same(part, TENSORS["float32"][1:, :2].contiguous())


def test_a_file_from_the_device_is_the_cpus(file: Path) -> None:
    loaded = files.load_file(file)
    assert_same({name: loaded[name] for name in TENSORS}, TENSORS, device="cpu")
    files.save_file(TENSORS, file.with_suffix(".cpu"))
    assert file.read_bytes() == file.with_suffix(".cpu").read_bytes()


def test_the_devices_name_is_refused(file: Path) -> None:
    with pytest.raises(safetensors.SafetensorError, match=f"^device {DEVICE} is invalid$"):
        files.load_file(file, device=DEVICE)


def test_a_model_is_saved_and_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    other = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to(DEVICE)
    files.save_model(model.to(DEVICE), tmp_path / "model")
    assert files.load_model(other, tmp_path / "model") == (set(), [])
    assert_same(other.state_dict(), model.cpu().state_dict())
