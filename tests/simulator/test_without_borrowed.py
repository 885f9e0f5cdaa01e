"""The border around csrc/simulator/borrowed, which a real device deletes: the project builds and trains without it.

libtorch_openreg.so is linked a second time from the objects that a vendor keeps, and gets the kernels of
without_borrowed/kernels.cpp. Everything else of the package stays as it is installed.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import programs
import pytest
import torch
from environments import Environment, build_tool
from torch.utils.cpp_extension import include_paths

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "without_borrowed"
BUILD = ROOT / os.environ.get("SKBUILD_BUILD_DIR", f"build/{Path(sys.prefix).name}")
DEFINITIONS = (
    f"-DPython_EXECUTABLE={sys.executable}",
    "-DSKBUILD_PROJECT_VERSION_FULL=0",
    "-DCMAKE_BUILD_TYPE=Release",
)
TARGET = "torch_openreg_without_borrowed"


def objects(target: str) -> list[Path]:
    """The object files of a target of the build folder."""
    return sorted((BUILD / "csrc" / "CMakeFiles" / f"{target}.dir").rglob("*.o"))


def symbols(files: Iterable[Path]) -> set[str]:
    """The functions and variables that files define."""
    lines = programs.run("nm", "--defined-only", "--no-sort", *files, status=0).stdout.splitlines()
    found = (re.match(r"[0-9a-f]+ [BDTbdt] (_Z\w+)$", line) for line in lines)
    return {match[1] for match in found if match}


@pytest.fixture(scope="module")
def library() -> Path:
    """libtorch_openreg.so without csrc/simulator/borrowed. If the project was built before, this only links."""
    if not (BUILD / "CMakeCache.txt").exists():
        programs.run(*build_tool("cmake"), "-G", "Ninja", "-S", ROOT, "-B", BUILD, *DEFINITIONS, status=0)
    programs.run(*build_tool("cmake"), "--build", BUILD, "--target", TARGET, status=0)
    return BUILD / "csrc" / "without_borrowed" / "libtorch_openreg.so"


@pytest.fixture(scope="module")
def backend(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment whose package has that library."""
    environment = Environment(tmp_path_factory.mktemp("environment"))
    environment.install()
    shutil.copy(library, environment.package / "lib" / library.name)
    runpy.run_path(str(ROOT / "cmake" / "library_sizes.py"))["record"](environment.package)
    return environment


@pytest.fixture(scope="module")
def kernels(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a vendor's first kernels. The reduced library must define all functions that it calls."""
    built = tmp_path_factory.mktemp("kernels") / "kernels.so"
    folders = [*include_paths(), str(ROOT / "csrc"), *ROOT.glob("third_party/openreg/**/include")]
    torch_libraries = Path(torch.__file__).parent / "lib"
    programs.run(
        os.environ.get("CXX", "c++"),
        *("-std=c++20", "-O1", "-shared", "-fPIC", "-Wl,--no-undefined", "-o", built, SOURCES / "kernels.cpp"),
        *(f"-I{folder}" for folder in folders),
        *(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",),
        *(library, BUILD / "third_party" / "openreg" / "libopenreg.so"),
        *(f"-L{torch_libraries}", "-ltorch_cpu", "-lc10"),
        status=0,
    )
    return built


# ---- It works without the folder


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_a_network_trains_with_kernels_of_a_vendors_own(backend: Environment, kernels: Path, mode: str) -> None:
    code = f"""
import runpy, sys
sys.argv = ["train.py", {str(kernels)!r}]
runpy.run_path({str(SOURCES / "train.py")!r}, run_name="__main__")
"""
    first, last = re.findall(r"[\d.]+", backend.run(code, OPENREG_EXECUTION=mode))
    assert float(last) < float(first) / 2


def test_an_operator_without_a_kernel_is_missing(backend: Environment) -> None:
    code = """
import torch
x = torch.ones(2, device="openreg")  # the minimal set is there, but no kernel for fill_
"""
    result = backend.start(code)
    assert result.returncode == 1
    assert "NotImplementedError: Could not run 'aten::fill_.Scalar' with arguments from the 'openreg' backend." in (
        result.stderr
    )


def test_a_copy_that_needs_a_kernel_says_so(backend: Environment) -> None:
    code = """
import torch
x = torch.tensor([1.0, 2.0]).to("openreg")
print(x.cpu().tolist(), x.clone().cpu().tolist(), x[1].item())
try:
    x.to(torch.int32)
except NotImplementedError as error:
    print(error)
"""
    assert backend.run(code) == (
        "[1.0, 2.0] [1.0, 2.0] 2.0\n"
        "copy_ from openregFloatType to openregIntType is not a copy of one block of bytes, and the openreg device has "
        "no kernel for it. Register one with set_copy_kernel().\n"
    )


def test_the_list_of_operators_borrows_nothing(backend: Environment) -> None:
    code = "from torch_openreg._cli.ops import main; main({})"
    output = backend.run(code.format(["--borrowed"]))
    assert re.search(r"^0 of \d+ operators with a kernel on the device run the CPU's kernel", output, re.MULTILINE)
    totals = backend.run(code.format(["--totals"]))
    routes = re.findall(r"^ *\d+  (\w+)", totals, re.MULTILINE)
    assert {"native", "missing"} <= set(routes) and not {"fallback", "unboxed", "structured", "layouts"} & set(routes)


COMPILE = """
import torch
x = torch.tensor([1.0, 2.0]).to("openreg")
try:
    print(torch.compile(lambda x: x + 1)(x).cpu().tolist())
except Exception as error:
    print(str(error).splitlines()[0])
"""


@pytest.fixture(scope="module")
def inductor(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of inductor: one folder for its caches, and no precompiled header, which few kernels would use.

    A build of PyTorch with CUDA warns in its log if there is a toolkit, but no GPU. TORCH_LOGS leaves the warning out.
    """
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("inductor")),
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        "TORCH_LOGS": "-torch.utils.cpp_extension",
    }


def test_torch_compile_says_what_is_missing_also_if_another_build_has_compiled_the_graph(
    backend: Environment, shared_environment: Environment, inductor: dict[str, str]
) -> None:
    assert shared_environment.run(COMPILE, **inductor) == "[2.0, 3.0]\n"
    assert backend.run(COMPILE, **inductor) == (
        'RuntimeError: torch.compile generates kernels for device "openreg", and this build cannot launch them, '
        "because it was made without csrc/simulator/borrowed/inductor (TORCH_OPENREG_BORROWED=OFF): use "
        'torch.compile(backend="aot_eager").\n'
    )


def test_torch_compile_works_with_aot_eager_and_on_the_cpu(
    backend: Environment, kernels: Path, inductor: dict[str, str]
) -> None:
    code = f"""
import torch
torch.ops.load_library({str(kernels)!r})
x = torch.tensor([1.0, 2.0]).to("openreg")
print(torch.compile(lambda x: x + x, backend="aot_eager")(x).cpu().tolist())
print(torch.compile(lambda x: x + 1)(torch.ones(2)).tolist())
"""
    assert backend.run(code, **inductor) == "[2.0, 4.0]\n[2.0, 2.0]\n"


# ---- The border


def test_no_symbol_of_the_folder_is_linked(library: Path) -> None:
    kept = symbols([*objects("torch_openreg_kept"), *objects("torch_openreg_distributed")])
    borrowed = symbols(objects("torch_openreg_borrowed")) - kept
    assert len(borrowed) > 100
    assert borrowed & symbols([BUILD / "csrc" / "libtorch_openreg.so"])
    assert not borrowed & symbols([library])


def includes_of_the_folder(files: Iterable[Path]) -> list[str]:
    """The lines of files that include a header of csrc/simulator/borrowed."""
    return [
        f"{file.name}: {line}"
        for file in files
        for line in file.read_text().splitlines()
        if re.match(r"\s*#\s*include\b.*\bborrowed/", line)
    ]


def test_nothing_outside_of_the_folder_includes_it(tmp_path: Path) -> None:
    outside = [
        file
        for folder in ("csrc", "torch_openreg/csrc", "third_party")
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in (".h", ".cpp", ".c") and "borrowed" not in file.relative_to(ROOT).parts
    ]
    assert len(outside) > 100
    assert includes_of_the_folder(outside) == []
    planted = tmp_path / "OpenRegHooks.cpp"
    planted.write_text(
        (ROOT / "csrc/runtime/OpenRegHooks.cpp").read_text() + '#include "simulator/borrowed/CpuView.h"\n'
    )
    assert includes_of_the_folder([*outside, planted]) == ['OpenRegHooks.cpp: #include "simulator/borrowed/CpuView.h"']


def inputs(folder: Path, library: str) -> set[str]:
    """The object files that a library is linked from."""
    lines = programs.run(*build_tool("ninja"), "-C", folder, "-t", "inputs", library, status=0).stdout.splitlines()
    return {line for line in lines if line.endswith(".o")}


def test_the_option_leaves_out_the_folder_and_nothing_else(library: Path, tmp_path: Path) -> None:
    options = ("-G", "Ninja", "-S", ROOT, "-B", tmp_path, *DEFINITIONS, "-DTORCH_OPENREG_BORROWED=OFF")
    programs.run(*build_tool("cmake"), *options, status=0)
    linked = inputs(tmp_path, "csrc/libtorch_openreg.so")
    assert len(linked) > 50 and not [name for name in linked if "borrowed" in name]
    assert linked == inputs(BUILD, str(library.relative_to(BUILD)))
