"""cmake/DeviceLibrary.cmake: one program is linked with the simulated device, or with a library that is there already.

The library that stands for the hardware's is the device library of the installed package: a second build of the same
sources. libopenreg_sim.so is compiled here.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import programs
import pytest
from openreg_c import library_path

ROOT = Path(__file__).parents[2]
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(program LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
include({root}/cmake/DeviceLibrary.cmake)
add_executable(program program.cpp)
target_link_libraries(program PRIVATE openreg)
file(GENERATE OUTPUT location CONTENT "${{DEVICE_LIBRARY_LOCATION}}")
"""
# Allocates, copies there and back, and says which library did so.
PROGRAM = """
#include <openreg.h>
#include <dlfcn.h>
#include <cstdio>
int main() {
  int count = 0;
  void* memory = nullptr;
  double there = 4.5, back = 0;
  orGetDeviceCount(&count);
  orMalloc(&memory, sizeof(double));
  orMemcpy(memory, &there, sizeof(double), orMemcpyHostToDevice);
  orMemcpy(&back, memory, sizeof(double), orMemcpyDeviceToHost);
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&orMalloc), &info);
  std::printf("%d %g\\n%s\\n", count, back, info.dli_fname);
}
"""

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")


def configure(folder: Path, library: str | Path) -> programs.Done:
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(PROJECT.format(root=ROOT))
    (folder / "program.cpp").write_text(PROGRAM)
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    options = [f"-DOPENREG_DEVICE_LIBRARY={library}", "-DCMAKE_CXX_FLAGS_RELEASE=-O0", *launcher]
    return programs.run("cmake", "-S", folder, "-B", folder / "build", *options)


def build(folder: Path, library: str | Path) -> tuple[str, Path, str]:
    """What the program prints, the library that it uses, and where an installed package would have the library."""
    result = configure(folder, library)
    assert result.returncode == 0, result.stderr
    programs.run("cmake", "--build", str(folder / "build"), "--parallel", "2", status=0)
    said, used = programs.run(folder / "build" / "program", clean=True).stdout.splitlines()
    return said, Path(used), (folder / "build" / "location").read_text()


@pytest.mark.slow
def test_a_program_is_linked_with_the_simulated_device_or_with_the_hardwares(tmp_path: Path) -> None:
    hardware = library_path()
    assert build(tmp_path / "hardware", hardware) == ("2 4.5", hardware, str(hardware))
    simulated = tmp_path / "sim" / "build" / "third_party" / "openreg" / "libopenreg_sim.so"
    location = "${torch_openreg_ROOT}/lib/libopenreg_sim.so"
    assert build(tmp_path / "sim", "sim") == ("2 4.5", simulated, location)


def test_a_library_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    result = configure(tmp_path / "project", "/nowhere/libopenreg.so")
    assert result.returncode != 0
    message = (
        "OPENREG_DEVICE_LIBRARY is /nowhere/libopenreg.so: it must be empty, sim, or the absolute path of a library "
        "that exists."
    )
    assert message in re.sub(r"\s+", " ", result.stderr)
