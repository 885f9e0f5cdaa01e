"""Dry execution of programs that load weights with safetensors and transformers, where the weights are not."""

from __future__ import annotations

import json
from typing import Any

import programs
import pytest
from libraries import REASON

START = "import json, resource, sys, warnings\nimport torch\nD = torch.accelerator.current_accelerator()\n"


def python(code: str) -> Any:
    """What a program in dry execution has printed as JSON, in its last line."""
    done = programs.python(START + code, status=0, errors=None, OPENREG_DRY="4K", OPENREG_DEVICE_MEMORY="80G")
    return json.loads(done.stdout.splitlines()[-1])


def test_a_file_may_end_after_its_header() -> None:
    pytest.importorskip("safetensors", reason=REASON)
    found = python(
        """
import os, tempfile
from safetensors import safe_open, SafetensorError
from safetensors.torch import load_file, save_file
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "x.safetensors")
save_file({"small": torch.ones(3), "large": torch.ones(300, 200, dtype=torch.bfloat16)}, path)
whole = load_file(path)["small"].tolist()
with open(path, "rb") as file:
    length = int.from_bytes(file.read(8), "little") + 8
os.truncate(path, length)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    read = load_file(path, device=0)
with safe_open(path, "pt") as file:
    part = file.get_slice("large")[:100]
os.truncate(path, length - 1)
try:
    load_file(path)
except SafetensorError as error:
    refused = str(error)
rows = {name: [str(each.dtype), list(each.shape), each.device.type] for name, each in read.items()}
print(json.dumps([whole, rows, list(part.shape), [str(each.message) for each in warned], path, refused]))
"""
    )
    whole, rows, part, (warning,), path, refused = found
    assert whole == [1, 1, 1] and part == [100, 200]
    assert rows == {"small": ["torch.float32", [3], "openreg"], "large": ["torch.bfloat16", [300, 200], "openreg"]}
    assert warning == f"{path} ends before its tensors do. In dry execution, they are zeros."
    assert "header" in refused


def test_a_model_of_transformers_needs_no_weights() -> None:
    pytest.importorskip("transformers", reason=REASON)
    found = python(
        """
import gc, pathlib, tempfile
import transformers
folder = tempfile.TemporaryDirectory()
home = pathlib.Path(folder.name)
config = transformers.LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=256,
    tie_word_embeddings=True,
)
model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
def allocated():
    model = transformers.AutoModelForCausalLM.from_pretrained(home, dtype="auto").to(D)
    bytes = torch.accelerator.memory_allocated()
    names = [f"{name} {list(each.shape)} {each.dtype}" for name, each in model.state_dict().items()]
    training = model.training
    del model
    gc.collect()
    return [bytes, names, training]
found = {}
model.save_pretrained(home)
found["whole"] = allocated()
file = home / "model.safetensors"
with file.open("r+b") as opened:
    opened.truncate(8 + int.from_bytes(opened.read(8), "little"))
found["header"] = allocated()
file.unlink()
found["config"] = allocated()
(home / "model.safetensors.index.json").write_text(json.dumps({
    "metadata": {"total_size": 1}, "weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}
}))
found["index"] = allocated()
(home / "model.safetensors.index.json").unlink()
rows = json.loads((home / "config.json").read_text())
(home / "config.json").write_text(json.dumps(rows | {"architectures": ["Unknown"]}))
try:
    allocated()
except OSError as error:
    found["nothing"] = str(error)
print(json.dumps(found))
"""
    )
    assert "no file named" in found.pop("nothing")
    assert list(found) == ["whole", "header", "config", "index"]
    bytes, names, training = found["whole"]
    assert bytes > 2 * 64 * 256 and len(names) == 21 and not training
    assert all(each == found["whole"] for each in found.values())


def test_a_model_of_7_billion_parameters_needs_little_memory_of_the_host() -> None:
    pytest.importorskip("transformers", reason=REASON)
    device, host = python(
        """
import tempfile
import transformers
folder = tempfile.TemporaryDirectory()
config = transformers.LlamaConfig(dtype=torch.bfloat16, architectures=["LlamaForCausalLM"])  # its defaults are 7B
config.save_pretrained(folder.name)
model = transformers.AutoModelForCausalLM.from_pretrained(folder.name, dtype="auto").to(D)
host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([torch.accelerator.memory_allocated(), host]))
"""
    )
    assert device == pytest.approx(2 * 6.74e9, rel=0.01) and host < 1 << 30


SAVING = """
import json, os, tempfile
model = torch.nn.Linear(2048, 2048, device=D)  # 16 MiB
small = torch.arange(4.0, device=D)
folder = tempfile.TemporaryDirectory()
path = os.path.join(folder.name, "saved")
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    SAVE
file = os.stat(path)
print(json.dumps([file.st_size, file.st_blocks * 512, *read(), [str(each.message) for each in warned], path]))
"""


def saved(save: str, read: str) -> tuple[int, list[float], str]:
    """The size of a saved file that takes little of the disk, the small tensor that is in it, and the metadata."""
    code = SAVING.replace("SAVE", save)
    size, taken, shape, read_again, values, mark, warned, path = python(f"def read():\n{read}\n{code}")
    assert 2048 * 2048 * 4 < size < 2048 * 2048 * 4 + 100_000 and taken < 200_000
    assert (shape, read_again) == ([2048, 2048], 0)
    assert warned == [f"{path} has zeros in place of tensors that dry execution did not compute."]
    return size, values, mark


def test_a_saved_file_has_holes_in_place_of_absent_tensors() -> None:
    _, values, _ = saved(
        'torch.save({"model": model.state_dict(), "small": small}, path)',
        """
    found = torch.load(path)
    weight = found["model"]["weight"].cpu()
    return list(weight.shape), weight.abs().sum().item(), found["small"].tolist(), None
""",
    )
    assert values == [0, 1, 2, 3]


def test_a_file_of_safetensors_has_holes_and_says_so() -> None:
    pytest.importorskip("safetensors.torch", reason=REASON)
    _, values, mark = saved(
        'from safetensors.torch import save_file; save_file(model.state_dict() | {"small": small}, path, {"format": "pt"})',
        """
    from safetensors import safe_open
    with safe_open(path, "pt") as file:
        weight, small = (file.get_tensor(name) for name in ("weight", "small"))
        return list(weight.shape), weight.abs().sum().item(), small.tolist(), file.metadata()
""",
    )
    assert values == [0, 1, 2, 3]
    assert mark == {"format": "pt", "torch_openreg": "saved in dry execution: the weights are zeros"}
