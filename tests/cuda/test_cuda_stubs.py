"""The stubs with which a build of PyTorch with CUDA becomes a CPU build, as far as a CPU build of PyTorch can show it.

test_cuda_build.py runs programs in a build with CUDA.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

import programs
import pytest
from environments import Environment
from programs import Done

if importlib.util.find_spec("torch_openreg_cuda") is None:
    pytest.skip("this build has no device type cuda", allow_module_level=True)

from torch_openreg_cuda import _without_cuda
from torch_openreg_cuda._elf import Library, gnu_hash

SOURCES = Path(__file__).parents[2] / "torch_openreg" / "_cuda" / "csrc" / "stubs"
HELPERS = {
    *("torch_openreg_stub_called", "torch_openreg_stub_virtual_called", "torch_openreg_stub_device"),
}
FINDER = "print([type(each).__name__ for each in sys.meta_path].count('_BeforeTorch'))"


def names() -> list[list[str]]:
    return [line.split() for line in (SOURCES / "names.txt").read_text().splitlines()]


# ---- the libraries ---------------------------------------------------------------------------------------------------


def test_the_stubs_have_the_names_of_the_list_and_no_others() -> None:
    for path in _without_cuda.stubs():
        wanted = {name for library, name, *_ in names() if f"lib{library}.so" == Path(path).name}
        # std:: are functions of the standard library that the compiler has put here, as it does everywhere
        found = {
            each.name for each in Library(path).symbols(defined=True) if not each.name.startswith(("_ZNSt", "_ZSt"))
        }
        assert found - HELPERS == wanted and len(wanted) >= 2


def test_the_list_is_sorted_and_has_no_name_twice() -> None:
    assert names() == sorted(names()) and len({name for _, name, *_ in names()}) == len(names())


def test_the_stubs_need_neither_pytorch_nor_python_nor_anything_of_nvidia() -> None:
    allowed = {
        "libstdc++.so.6",
        "libm.so.6",
        "libgcc_s.so.1",
        "libc.so.6",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
    }
    for path in _without_cuda.stubs():
        dynamic = programs.run("readelf", "-d", path, status=0).stdout
        needed = {line.split("[")[1][:-1] for line in dynamic.splitlines() if "(NEEDED)" in line}
        assert needed - set(_without_cuda.LIBRARIES) <= allowed
        assert f"soname: [{Path(path).name}]" in dynamic  # the name that the dynamic loader looks for


CALLS = """
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include "stubs/Device.h"
using torch_openreg::stubs::Device;
using torch_openreg::stubs::StreamFields;
extern "C" const Device* torch_openreg_stub_device;
namespace c10::cuda {
struct CUDAStream { StreamFields value; void* stream() const; };
int8_t device_count() noexcept;
int8_t current_device();
void set_device(int8_t, bool);
CUDAStream getCurrentCUDAStream(int8_t);
void setCurrentCUDAStream(CUDAStream);
struct CUDAErrorLogCapture { CUDAErrorLogCapture() noexcept; std::string get_error_log_suffix() noexcept; };
void c10_cuda_check_implementation(int, const char*, const char*, uint32_t, bool, CUDAErrorLogCapture*);
} // namespace c10::cuda
namespace at::cuda { int warp_size(); void clearCublasWorkspaces(); }
using namespace c10::cuda;
template <class F> void show(F function) {
  try { std::cout << function() << "\\n"; } catch (const std::runtime_error& error) { std::cout << error.what() << "\\n"; }
}
int8_t current = 1;
StreamFields stream{1, 1, 7};
int main() {
  show([] { return int(device_count()); });
  show([] { return int(current_device()); });
  show([] { return at::cuda::warp_size(); });
  Device device{};
  device.count = []() noexcept -> int8_t { return 2; };
  device.current = [] { return current; };
  device.set = [](int8_t index) { current = index; };
  device.warp_size = [] { return 32; };
  device.current_stream = [](int8_t) { return stream; };
  device.set_current_stream = [](StreamFields given) { stream = given; };
  device.fail = [](int error, const char* call) { throw std::runtime_error(call + std::to_string(error)); };
  device.stream_handle = [](StreamFields given) { return reinterpret_cast<void*>(given.id); };
  torch_openreg_stub_device = &device;
  show([] { return int(device_count()); });
  show([] { set_device(3, false); return int(current_device()); });
  show([] { return at::cuda::warp_size(); });
  show([] { setCurrentCUDAStream(CUDAStream{{1, 1, 9}}); return getCurrentCUDAStream(1).stream(); });
  for (int error : {0, 35}) {
    show([=] {
      CUDAErrorLogCapture log;
      c10_cuda_check_implementation(error, "file", "call", 1, true, &log);
      return "success" + log.get_error_log_suffix();
    });
  }
  show([] { at::cuda::clearCublasWorkspaces(); return 0; });
}
"""
CALLED = (
    "CUDA's own code is not in this process, because TORCH_OPENREG_AS=cuda simulates the devices. A program called "
)


def test_a_stub_calls_the_device_once_it_runs_and_throws_its_name_otherwise(tmp_path: Path) -> None:
    (tmp_path / "calls.cpp").write_text(CALLS)
    folder = Path(_without_cuda.stubs()[0]).parent
    compiler = ("g++", "-std=c++20", "-O0", f"-I{SOURCES.parent}", tmp_path / "calls.cpp", "-o", tmp_path / "calls")
    programs.run(
        *compiler, f"-L{folder}", f"-Wl,-rpath,{folder}", "-ltorch_cuda", "-ltorch_nvshmem", "-lc10_cuda", status=0
    )
    assert programs.run(tmp_path / "calls", status=0).stdout.splitlines() == [
        "0",
        f"{CALLED}current_device before the device was loaded",
        f"{CALLED}at::cuda::warp_size()",
        *("2", "3", "32", "0x9", "success", "call35"),
        f"{CALLED}at::cuda::clearCublasWorkspaces()",
    ]


# ---- the comparison --------------------------------------------------------------------------------------------------


def compile_library(path: Path, defined: Iterable[str], needed: Iterable[str] = ()) -> None:
    """A shared library that has some functions, and takes others from elsewhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    calls = [f"extern void {name}(void); void* use_{name} = {name};\n" for name in needed]
    source.write_text("".join([*calls, *(f"void {name}(void) {{}}\n" for name in defined)]))
    programs.run("cc", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", source, "-o", path, status=0)


def fake_torch(folder: Path, *needed: str) -> Path:
    """A package torch that is laid out as a build with CUDA."""
    lib = folder / "torch" / "lib"
    compile_library(lib / "libtorch_cuda.so", ["new_in_cuda", "newer_in_cuda", "copied_from_cpu"])
    compile_library(lib / "libtorch_cpu.so", ["copied_from_cpu"])
    compile_library(lib / "libtorch_python.so", ["PyInit__C"], [*needed, "copied_from_cpu", "malloc"])
    (folder / "torch" / "version.py").write_text("__version__ = '2.99.0+cu999'\ncuda = '99.9'\n")
    (folder / "torch" / "_C.py").write_text("_has_cuda = _has_cudnn = True\n_cuda_init = _nccl_version = _other = 0\n")
    (folder / "torch" / "__init__.py").write_text("from torch import _C, version\n")
    return lib


def test_names_that_no_stub_has_are_found_and_copies_of_other_libraries_are_not(tmp_path: Path) -> None:
    lib = fake_torch(tmp_path, "newer_in_cuda", "new_in_cuda")
    assert _without_cuda.unknown_names(str(lib), set()) == ["new_in_cuda", "newer_in_cuda"]
    assert _without_cuda.unknown_names(str(lib), {"new_in_cuda", "newer_in_cuda"}) == []


def test_the_hash_table_of_a_library_has_the_symbols_that_it_defines(tmp_path: Path) -> None:
    defined = [f"function_{number}" for number in range(40)]
    compile_library(tmp_path / "library.so", defined, ["taken"])
    library = Library(str(tmp_path / "library.so"))
    assert all(library.defines(name, gnu_hash(name)) for name in defined)
    assert not any(library.defines(name, gnu_hash(name)) for name in ("function_40", "taken", "printf", ""))
    assert {each.name for each in library.symbols(defined=False)} >= {"taken"}


PROGRAM = """
import torch, sys
from pathlib import Path
opened = sorted(line.split("/")[-1].strip() for line in open("/proc/self/maps") if "/torch_openreg_cuda/lib/" in line)
print(torch.version.cuda, torch._C._has_cuda, hasattr(torch._C, "_cuda_init"), torch._C._other, sorted({*opened}))
prepared = sys.modules.get("torch_openreg_cuda._without_cuda")
print(prepared and prepared.failure)
"""


def in_fake_torch(environment: Environment, folder: Path, **variables: str) -> list[str]:
    result = environment.start(PROGRAM, PYTHONPATH=str(folder), new_interpreter=True, **variables)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines()


def test_before_torch_is_imported_the_stubs_are_opened_and_its_names_are_removed(
    shared_environment: Environment, tmp_path: Path
) -> None:
    fake_torch(tmp_path)
    with_cuda = ["99.9 True True 0 []", "None"]
    without_cuda = ["None False False 0 ['libc10_cuda.so', 'libtorch_cuda.so', 'libtorch_nvshmem.so']", ""]
    assert in_fake_torch(shared_environment, tmp_path) == with_cuda
    assert in_fake_torch(shared_environment, tmp_path, TORCH_OPENREG_AS="openreg") == with_cuda
    assert in_fake_torch(shared_environment, tmp_path, TORCH_OPENREG_AS="cuda") == without_cuda


def test_an_unknown_pytorch_is_left_as_it_is(shared_environment: Environment, tmp_path: Path) -> None:
    fake_torch(tmp_path, "new_in_cuda", "newer_in_cuda")
    assert in_fake_torch(shared_environment, tmp_path, TORCH_OPENREG_AS="cuda") == [
        "99.9 True True 0 []",
        "its libtorch_python.so needs new_in_cuda and 1 more, which this torch_openreg does not know",
    ]


def test_damaged_libraries_do_not_end_the_import_of_torch(shared_environment: Environment, tmp_path: Path) -> None:
    (fake_torch(tmp_path) / "libtorch_cpu.so").write_text("x")
    left, failure = in_fake_torch(shared_environment, tmp_path, TORCH_OPENREG_AS="cuda")
    assert left == "99.9 True True 0 []" and failure.startswith("error: unpack_from requires a buffer")


def test_a_machine_with_gpus_is_told_that_they_are_not_used(tmp_path: Path) -> None:
    for name in ("null", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert _without_cuda.about_gpus(str(tmp_path)) == ""
    (tmp_path / "nvidia0").touch()
    assert _without_cuda.about_gpus(str(tmp_path)) == (
        "This machine has 1 NVIDIA GPU, which this process does not use: TORCH_OPENREG_AS=cuda asks for simulated "
        "devices. Unset it to use the GPUs."
    )
    (tmp_path / "nvidia11").touch()
    assert _without_cuda.about_gpus(str(tmp_path)).startswith("This machine has 2 NVIDIA GPUs, which")


# ---- the start -------------------------------------------------------------------------------------------------------


def python(environment: Environment, *arguments: str, **variables: str) -> Done:
    return programs.run(environment.python, *arguments, cwd=environment.folder, **variables)


def test_python_imports_the_finder_and_nothing_else(shared_environment: Environment) -> None:
    """What each start of Python pays for: one package of one file, which imports nothing."""
    code = "import os, sys; before = {*sys.modules}; import torch_openreg_cuda; print({*sys.modules} - before)"
    result = python(shared_environment, "-S", "-c", code, PYTHONPATH=str(shared_environment.site_packages))
    assert (result.stdout, result.stderr) == ("{'torch_openreg_cuda'}\n", "")


@pytest.mark.parametrize("options", [[], ["-I"], ["-E"], ["-s"]], ids=str)
def test_a_new_python_has_one_finder(shared_environment: Environment, options: list[str]) -> None:
    assert python(shared_environment, *options, "-c", f"import sys; {FINDER}").stdout == "1\n"


LAUNCHED = """
import os, sys
print(__name__, sys.argv[1:], os.path.basename(sys.argv[0]), os.path.samefile(sys.path[0] or ".", os.getcwd()))
"""


@pytest.mark.parametrize("program", [["program.py"], ["-m", "program"]], ids=["file", "module"])
@pytest.mark.parametrize("options", [[], ["-S"]], ids=["plain", "-S"])
def test_run_starts_the_program_with_the_finder_where_python_reads_no_pth_file(
    shared_environment: Environment, tmp_path: Path, options: list[str], program: list[str]
) -> None:
    (tmp_path / "program.py").write_text(LAUNCHED + FINDER)
    result = programs.run(
        *(shared_environment.python, *options, "-m", "torch_openreg", "run", "--as", "cuda", *program, "-x", "1"),
        cwd=tmp_path,
        PYTHONPATH=str(shared_environment.site_packages),
    )
    assert (result.stdout, result.stderr) == ("__main__ ['-x', '1'] program.py True\n1\n", "")


def test_the_plugin_for_pytest_puts_the_finder_in_place(shared_environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"import sys\ndef test_it():\n    {FINDER}\n")
    options = ["-q", "-s", "-p", "torch_openreg_pytest", "--openreg-as=cuda"]
    code = f"import sys, pytest; sys.exit(pytest.main({options}))"
    paths = [path for path in sys.path if path.endswith("site-packages")]
    result = programs.run(
        *(shared_environment.python, "-S", "-c", code),
        cwd=tmp_path,
        PYTHONPATH=":".join([str(shared_environment.site_packages), *paths]),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )
    assert result.returncode == 0 and "1\n." in result.stdout, result.stdout + result.stderr
