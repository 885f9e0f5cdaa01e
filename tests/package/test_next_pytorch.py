"""What changes for a backend in the next PyTorch (release/next_pytorch.py), on a small PyTorch of two versions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="release/ reads TOML with Python 3.11 or later")

BACKEND = """
#include <ATen/Base.h>
#include <c10/core/Thing.h>
struct Own final : public c10::Thing {
  int count(const std::string& of) const override { return 1; }
  void gone() override;
  ~Own() override;
};
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("aten::add.Tensor", &add); }
"""
PYTHON = """
from torch.utils.made import old
import torch.deep
torch.deep.helper(1)
rows = [Replaced("torch.deep:Class", "method", "own:method", "why", "hook")]
"""
FIRST = {
    "c10/core/Thing.h": """
class C10_API Base { public: virtual void inherited(int flags = 0) {} };
class C10_API Thing : public Base {
 public:
  virtual ~Thing();
  virtual int count(const std::string& name /* of what */) const = 0; // pure
  virtual void gone() { if (true) { call(1, 2); } }
  int own() { return 1; }
};
""",
    "torch/utils/made.py": "old = 1\n",
    "torch/deep/__init__.py": "def helper(a, b=2): ...\nclass Class:\n    def method(self): ...\n",
    "aten/src/ATen/native/native_functions.yaml": "- func: add.Tensor(Tensor self, Tensor other) -> Tensor\n",
}
SECOND = FIRST | {
    "c10/core/Thing.h": """
class C10_API Base { public: virtual void inherited(int) {} };
class C10_API Thing : public Base {
  virtual int count(std::string name) const = 0;
  virtual std::map<int, int> made(std::map<int, int> from = {{0, 0}}) const { return from; }
};
""",
    "torch/utils/made.py": "",
    "torch/deep/__init__.py": "def helper(a, *, b=2): ...\nclass Class:\n    def method(self): ...\n",
}


@pytest.fixture
def tool() -> Any:
    sys.path.append(str(ROOT / "release"))
    import next_pytorch

    return next_pytorch


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_change_of_each_kind_of_interface_is_found_and_nothing_else(tool: Any, tmp_path: Path) -> None:
    used = tool.Used(write(tmp_path / "own", {"csrc/Own.cpp": BACKEND, "torch_openreg/__init__.py": PYTHON}))
    assert used.includes == {"ATen/Base.h", "c10/core/Thing.h"}
    versions = {"1": tool.Torch(write(tmp_path / "1", FIRST)), "2": tool.Torch(write(tmp_path / "2", SECOND))}
    assert [row[:4] for row in tool.rows(versions, used)] == [
        ("`Thing`", "`count`", "2", "takes `(std::string) const`, overridden here"),
        ("`Thing`", "`gone`", "2", "gone, overridden here"),
        ("`Thing`", "`made`", "2", "new"),
        ("Python", "`torch.deep.helper`", "2", "other arguments"),
        ("Python", "`torch.utils.made.old`", "2", "gone"),
    ]


def test_an_operator_with_another_schema_is_found(tool: Any, tmp_path: Path) -> None:
    used = tool.Used(write(tmp_path / "own", {"csrc/Own.cpp": BACKEND, "torch_openreg/__init__.py": ""}))
    other = {"aten/src/ATen/native/native_functions.yaml": "- func: add.Tensor(Tensor self, Tensor b) -> Tensor\n"}
    versions = {"1": tool.Torch(write(tmp_path / "1", FIRST)), "2": tool.Torch(write(tmp_path / "2", FIRST | other))}
    assert [row[:4] for row in tool.rows(versions, used)] == [
        ("operators", "`aten::add.Tensor`", "2", "other arguments")
    ]


def test_the_sources_are_understood(tool: Any) -> None:
    used = tool.Used()
    assert {"supportsSplitting", "allreduce", "split"} <= used.overrides["Backend"]
    assert {"recordStream", "emptyCache"} <= used.overrides["DeviceAllocator"]
    assert {"exchangeDevice", "synchronizeEvent"} <= used.overrides["DeviceGuardImplInterface"]
    assert "empty.memory_format" in used.operators
    assert "torch._logging._init_logs" in used.names


def test_the_page_has_the_announced_changes(tool: Any) -> None:
    page = (ROOT / "docs" / "next-pytorch.md").read_text()
    assert tool.announced() in page
