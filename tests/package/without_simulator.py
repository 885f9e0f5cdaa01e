"""The core without the simulator: what a vendor has after `rm -r` of the folders that only a simulation needs.

The sources are the tracked files, without every folder named ``simulator`` and without the type cuda. Nothing else is
edited. The project builds as it is, trains a network on the kernels of own_kernels/kernels.cpp, and its tests pass with
these kernels and PyTorch's copying fallback.

``make without-simulator`` runs this file, and `make test-all` does not: it needs seven minutes of processor time. What
needs no second build is checked in `make test`: test_layers.py looks for includes and symbols, and
tests/device_library/test_openreg_build.py builds the device library. The build has a folder of its own below build/, so
that a second run compiles only what changed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import programs
import pytest
import torch
from environments import Environment
from torch.utils.cpp_extension import include_paths

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests" / "support" / "own_kernels"
HOME = ROOT / "build" / "without_simulator"
DELETED = re.compile(r"(.*/)?simulator/|torch_openreg/_cuda/|tests/cuda/")
# The tests that need neither kernels of the CPU nor a tool of the simulation, by the part that they test.
REMAINING = {
    "device library": "tests/device_library",
    "guard": "tests/runtime/test_device_module.py",
    "streams and events": "tests/runtime/test_streams_events.py",
    "allocator": "tests/runtime/test_memory.py",
    "pinned memory": "tests/runtime/test_pinned_memory.py",
    "generator": "tests/runtime/test_generator.py",
    "storage": "tests/runtime/test_storage.py",
    "save and load": "tests/runtime/test_serialization.py",
    "autoload": "tests/package/test_autoload_contract.py",
    "profiler": "tests/runtime/test_profiler.py",
    "process group": "tests/distributed/test_distributed.py",
}


@pytest.fixture(scope="module")
def sources() -> Path:
    """The tracked files without the folders. An unchanged file is not written again, so that it is not compiled again."""
    folder = HOME / "sources"
    tracked = programs.run("git", "-C", ROOT, "ls-files", "-z", status=0).stdout.split("\0")
    wanted = {name for name in tracked if name and (ROOT / name).exists() and not DELETED.match(name)}
    assert len(wanted) > 200
    for name in wanted:
        source, target = ROOT / name, folder / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target, follow_symlinks=False)
    for path in folder.rglob("*"):
        if (path.is_file() or path.is_symlink()) and path.relative_to(folder).as_posix() not in wanted:
            path.unlink()
    return folder


# One source file for each library, and no optimisation: so the compiler needs a quarter of the time.
BUILD = {
    "cmake.build-type": "None",
    "cmake.define.CMAKE_CXX_FLAGS": "-O0 -DNDEBUG",
    "cmake.define.CMAKE_UNITY_BUILD": "ON",
    "cmake.define.CMAKE_UNITY_BUILD_BATCH_SIZE": "0",
    "cmake.define.CMAKE_DISABLE_PRECOMPILE_HEADERS": "ON",
}


@pytest.fixture(scope="module")
def backend(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the package that is built from these sources."""
    environment = Environment(tmp_path_factory.mktemp("without_simulator"))
    programs.run(
        *(sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "-q"),
        *(word for name, value in BUILD.items() for word in ("-C", f"{name}={value}")),
        *("--target", environment.site_packages, sources),
        status=0,
        timeout=None,
        SKBUILD_BUILD_DIR=str(HOME / "build"),
        CMAKE_BUILD_PARALLEL_LEVEL="2",
    )
    return environment


@pytest.fixture(scope="module")
def kernels(backend: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a vendor's first kernels, for the installed package."""
    built = tmp_path_factory.mktemp("own") / "kernels.so"
    folders = [*include_paths(), backend.package / "include", backend.package / "include" / "torch_openreg"]
    programs.run(
        os.environ.get("CXX", "c++"),
        *("-std=c++20", "-O1", "-DNDEBUG", "-shared", "-fPIC", "-Wl,--no-undefined", "-o", built, OWN / "kernels.cpp"),
        *(f"-I{folder}" for folder in folders),
        *(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", "-DAT_PER_OPERATOR_HEADERS"),
        *(backend.package / "lib" / f"lib{each}.so" for each in ("torch_openreg", "openreg")),
        *(f"-L{Path(torch.__file__).parent / 'lib'}", "-ltorch_cpu", "-lc10"),
        status=0,
    )
    return built


# ---- What a vendor has on the first day


def test_nothing_of_the_folders_is_installed(backend: Environment) -> None:
    names = {path.relative_to(backend.package).as_posix() for path in backend.package.rglob("*")}
    assert len(names) > 100
    assert [name for name in names if "simulator" in name or "_cuda" in name] == []


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_a_network_trains_with_kernels_of_a_vendors_own(backend: Environment, kernels: Path, mode: str) -> None:
    code = f"""
import runpy, sys
sys.argv = ["train.py", {str(kernels)!r}]
runpy.run_path({str(OWN / "train.py")!r}, run_name="__main__")
"""
    settings = {"OPENREG_EXECUTION": mode, "TORCH_OPENREG_FALLBACK": "error"}  # no operator may take the fallback
    first, last = re.findall(r"[\d.]+", backend.run(code, **settings))
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
    output = backend.run("from torch_openreg._cli.ops import main; main(['--totals'])")
    routes = set(re.findall(r"^ *\d+  (\w+)", output, re.MULTILINE))
    assert {"native", "missing"} <= routes and not {"fallback", "unboxed", "structured", "layouts"} & routes


def test_torch_compile_works_with_aot_eager_and_on_the_cpu(backend: Environment, kernels: Path, tmp_path: Path) -> None:
    """The device has no code generator. Inductor keeps its caches in a folder of this test."""
    code = f"""
import torch
torch.ops.load_library({str(kernels)!r})
x = torch.tensor([1.0, 2.0]).to("openreg")
print(torch.compile(lambda x: x + x, backend="aot_eager")(x).cpu().tolist())
print(torch.compile(lambda x: x + 1)(torch.ones(2)).tolist())
try:
    torch.compile(lambda x: x + x)(x)
except Exception as error:
    print(str(error).splitlines()[1])
"""
    settings = {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # few kernels would use the header
        "TORCH_LOGS": "-torch.utils.cpp_extension",  # a build with CUDA warns there of a toolkit without a GPU
    }
    sentence = 'torch.compile has no code generator for device "openreg": use torch.compile(backend="aot_eager").'
    assert backend.run(code, **settings) == f"[2.0, 4.0]\n[2.0, 2.0]\nRuntimeError: {sentence}\n"


# ---- The tests that remain

# What these tests use is not among the kernels of own_kernels/kernels.cpp.
NEED_MORE = {
    "convolution": "test_operators_leave_nothing_behind",
    "a fast matrix product": "test_utilization_is_the_time_of_kernels_and_memory_usage_also_that_of_copies",
    "nested tensors": "test_dropout_of_a_nested_tensor_draws_from_the_devices_generator",
    "quantized tensors": "test_quantized_tensors_are_copied_pickled_saved_and_loaded",
    "randperm": "test_randperm_of_nothing_accepts_any_generator",
    "a folder to compare with": "test_nothing_outside_of_the_simulator_includes_its_files",
    # The environments of these tests search the environment of the tests too, which has this package.
    "no package": "test_a_checkpoint_where_the_package_is_not_installed",
    "no site": "test_an_isolated_interpreter_and_one_without_site_have_the_device",
}
# The package imports this module of a sub-package when it is loaded. So each process has the kernels.
LOAD = """
import ctypes, pathlib
ctypes.CDLL(str(pathlib.Path(__file__).with_name("kernels.so")))
COMPILER = ()
"""


def test_the_remaining_tests_pass_with_pytorchs_copying_fallback(
    backend: Environment, sources: Path, kernels: Path, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "environment")
    shutil.copytree(backend.site_packages, environment.site_packages, dirs_exist_ok=True)
    own = environment.package / "own"
    own.mkdir()
    (own / "__init__.py").touch()
    (own / "_compiler.py").write_text(LOAD)
    shutil.copy(kernels, own)
    done = programs.run(
        *(environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"),
        *("-k", " and ".join(f"not {name}" for name in NEED_MORE.values())),
        *("-c", sources / "pyproject.toml", *(sources / name for name in REMAINING.values())),
        cwd=tmp_path,  # python -m searches it first: the sources have no libraries
        merged=True,
        timeout=None,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout
    assert passed is not None and int(passed[1]) >= 300, done.stdout
