"""What changes for a backend in the next PyTorch (release/next_pytorch.py), on a small PyTorch of two versions."""

from __future__ import annotations

import importlib.util
import shutil
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
FUNCTIONS = "torchgen/packaged/ATen/native/native_functions.yaml"
FIRST = {
    "torch/include/c10/core/Thing.h": """
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
    FUNCTIONS: "- func: add.Tensor(Tensor self, Tensor other) -> Tensor\n",
}
SECOND = FIRST | {
    "torch/include/c10/core/Thing.h": """
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
    other = {FUNCTIONS: "- func: add.Tensor(Tensor self, Tensor b) -> Tensor\n"}
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


def test_the_first_error_of_a_source_names_its_line_and_what_the_header_lacks(tool: Any, tmp_path: Path) -> None:
    header = write(tmp_path / "torch", {"include/Thing.h": "namespace c10 { int kept(); }\n"})
    write(
        tmp_path / "own",
        {
            "Good.cpp": "#include <Thing.h>\nint good = c10::kept();\n",
            "Bad.cpp": "#include <Thing.h>\nint bad = c10::gone();\nint worse = c10::gone();\n",
        },
    )
    steps = [
        {
            "directory": str(tmp_path),
            "file": f"own/{name}.cpp",
            "command": f"c++ -I{header}/include -MD -MT {name}.o -MF no/{name}.o.d -o no/{name}.o -c own/{name}.cpp",
        }
        for name in ("Good", "Bad")
    ]
    errors = tool.refused(steps)
    assert errors == {("own/Bad.cpp:2", "'gone' is not a member of 'c10'"): ["own/Bad.cpp"]}
    assert tool.verdict("3", 2, errors, {"own/": "csrc/"}).splitlines() == [
        "With PyTorch 3, 1 of 2 sources do not compile. The table has the first errors.",
        "",
        "| Place | What the compiler says | Sources |",
        "|---|---|---|",
        "| `csrc/Bad.cpp:2` | 'gone' is not a member of 'c10' | 1 |",
    ]
    assert tool.verdict("3", 1, tool.refused(steps[:1]), {}) == "With PyTorch 3 all 1 sources compile."


def test_sources_that_are_compiled_as_one_are_tried_alone_if_one_of_them_fails(tool: Any, tmp_path: Path) -> None:
    """Two definitions of one name fail only together, and then the error is that of the second."""
    write(tmp_path, {"Good.cpp": "static int number;\n", "Bad.cpp": "gone();\n", "Same.cpp": "static long number;\n"})

    def step(*names: str) -> dict[str, str]:
        unity = write(tmp_path, {f"{'_'.join(names)}.cxx": "".join(f'#include "{tmp_path}/{n}.cpp"\n' for n in names)})
        file = f"{unity}/{'_'.join(names)}.cxx"
        return {"directory": str(tmp_path), "file": file, "command": f"c++ -o no.o -c {file}"}

    ((place, _), files), *others = tool.refused([step("Good", "Bad")]).items()
    assert (place, files, others) == (f"{tmp_path}/Bad.cpp:1", [f"{tmp_path}/Bad.cpp"], [])
    assert [each["file"] for each in tool.one_by_one(step("Good", "Bad"))] == [
        f"{tmp_path}/Good.cpp",
        f"{tmp_path}/Bad.cpp",
    ]
    ((place, _), files), *others = tool.refused([step("Good", "Same")]).items()
    assert (place, files, others) == (f"{tmp_path}/Same.cpp:1", [f"{tmp_path}/Good_Same.cxx"], [])
    assert tool.refused([step("Good"), step("Same")]) == {}


def test_a_checkout_becomes_the_wheel_that_would_be_built_from_it(tool: Any, tmp_path: Path) -> None:
    """torchgen makes the headers of the operators. Files that a build makes otherwise are those of the older wheel."""
    torchgen = Path(importlib.util.find_spec("torchgen").origin).parent  # type: ignore[union-attr,arg-type]
    wheel = write(
        tmp_path / "wheel",
        {
            "torch/version.py": "__version__ = '2.99.0'\n",
            "torch/moved.py": "",
            "torch/_C/__init__.pyi": "made = 1\n",
            "torch/include/c10/Kept.h": "// 2.99\n",
            "torch/include/c10/Gone.h": "",
            "torch/include/c10/Config.h": "// made\n",
            "torch/include/other/Project.h": "",
            "torch/include/ATen/ops/old.h": "",
        },
    )
    shutil.copytree(torchgen, wheel / "torchgen")
    checkout = write(
        tmp_path / "checkout",
        {
            "version.txt": "3.0.0a0\n",
            "torch/new.py": "",
            "torch/_C/__init__.pyi.in": "",
            "c10/Kept.h": "// 3.0\n",
            "c10/Config.h.in": "",
            "torch/csrc/New.hpp": "",
        },
    )
    shutil.copytree(torchgen, checkout / "torchgen", ignore=shutil.ignore_patterns("packaged"))
    shutil.copytree(torchgen / "packaged/ATen", checkout / "aten/src/ATen")
    (checkout / "aten/src/ATen/native/native_functions.yaml").write_text(
        "- func: renewed(Tensor self) -> Tensor\n  dispatch:\n    CPU: renewed\n"
    )
    folder = tool.unpack_checkout(checkout, wheel, tmp_path / "made")
    assert tool.Torch(folder).schemas == {"renewed": "renewed(Tensor self) -> Tensor"}
    assert {path.name for path in (folder / "torch").rglob("*.py*")} == {"__init__.pyi", "new.py", "version.py"}
    assert (folder / "torch/version.py").read_text() == "__version__ = '3.0.0a0'\n"
    include = folder / "torch/include"
    assert {path.name for path in (include / "c10").iterdir()} == {"Kept.h", "Config.h"}
    assert (include / "c10/Kept.h").read_text() == "// 3.0\n"
    assert (include / "other/Project.h").exists() and (include / "torch/csrc/New.hpp").exists()
    assert {path.name for path in (include / "ATen/ops").iterdir()} >= {"renewed.h", "renewed_ops.h"}
    assert not (include / "ATen/ops/old.h").exists()


def test_the_page_has_the_announced_changes(tool: Any) -> None:
    page = (ROOT / "docs" / "next-pytorch.md").read_text()
    assert tool.announced() in page
