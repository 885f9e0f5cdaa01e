"""The device library builds on its own, with csrc/simulator and without it, and works without it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import programs
import pytest
from openreg_process import LIBRARY_SOURCES, cpp_compiler

CORE = LIBRARY_SOURCES / "csrc"
SIMULATOR = CORE / "simulator"

# Prints what each part of the library did: memory and copies, kernels on two streams in order, activities, IPC, modes.
PROGRAM = r"""
#include <openreg.h>
#include <openreg_activity.h>
#include <openreg_launch.h>

#include <cstdio>

#define CHECK(call) \
  if (call != orSuccess) { std::printf("%s\n", orGetLastErrorMessage()); return 1; }

static int told = 0;

int main() {
  orSubscriber_t subscriber;
  CHECK(orActivitySubscribe(&subscriber, [](const orActivity*, void*) { ++told; }, nullptr, orActivityKernel));
  for (const orExecutionMode mode : {orExecutionInline, orExecutionAsync}) {
    CHECK(orSetExecutionMode(mode, 7));
    float host[4] = {1, 2, 3, 4};
    void* memory;
    orStream_t first, second;
    orEvent_t event;
    CHECK(orMalloc(&memory, sizeof(host)));
    CHECK(orStreamCreate(&first));
    CHECK(orStreamCreate(&second));
    CHECK(orEventCreate(&event));
    CHECK(orMemcpyAsync(memory, host, sizeof(host), orMemcpyHostToDevice, first));
    auto* const data = static_cast<float*>(orGetKernelPointer(memory));
    const orKernelInfo info{"double", {}};
    CHECK(orLaunchKernel(first, info, [data] { for (int i = 0; i < 4; ++i) { data[i] *= 2; } }));
    CHECK(orEventRecord(event, first));
    CHECK(orStreamWaitEvent(second, event, 0));
    CHECK(orLaunchKernel(second, info, [data] { for (int i = 0; i < 4; ++i) { data[i] += 1; } }));
    CHECK(orMemcpyAsync(host, memory, sizeof(host), orMemcpyDeviceToHost, second));
    CHECK(orStreamSynchronize(second));
    orIpcMemHandle_t handle;
    CHECK(orIpcGetMemHandle(&handle, memory));
    std::printf("%g %g %g %g\n", host[0], host[1], host[2], host[3]);
    CHECK(orEventDestroy(event));
    CHECK(orFree(memory));
  }
  CHECK(orActivityUnsubscribe(subscriber));
  std::printf("%d\n", told);
  const int error = orSetExecutionMode(orExecutionChaos, 0);
  std::printf("%d %s\n", error, orGetLastErrorMessage());
}
"""


def cmake(*arguments: object) -> None:
    programs.run("cmake", *map(str, arguments), status=0)


def build(sources: Path, folder: Path) -> Path:
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    cmake("-S", sources, "-B", folder, "-DCMAKE_CXX_FLAGS_RELEASE=-O0", *launcher)  # compiles twice as fast
    # The folders have another name in each run, which ccache would take for other sources.
    same_names = {"CCACHE_BASEDIR": str(sources.parent), "CCACHE_NOHASHDIR": "1"}
    programs.run("cmake", "--build", str(folder), "--parallel", "2", status=0, **same_names)
    return folder / "libopenreg.so"


def run(program: Path, **variables: str) -> list[str]:
    return programs.run(program, clean=True, **variables).stdout.splitlines()


def test_nothing_outside_of_the_simulator_includes_its_files() -> None:
    files = [path for path in LIBRARY_SOURCES.rglob("*.[hc]*") if SIMULATOR not in path.parents]
    own = {path.name for path in SIMULATOR.rglob("*.h")}
    assert len(files) > 40 and len(own) > 1
    for path in files:
        included = re.findall(r'#include ["<](.+)[">]', path.read_text())
        assert [name for name in included if "simulator" in name or Path(name).name in own] == [], path


@pytest.mark.slow
def test_the_library_builds_and_works_without_the_simulator(tmp_path: Path) -> None:
    if shutil.which("cmake") is None or shutil.which("nm") is None:
        pytest.skip("needs cmake and nm")
    sources = tmp_path / "openreg"
    shutil.copytree(LIBRARY_SOURCES, sources)
    shutil.rmtree(sources / "csrc" / "simulator")
    library = build(sources, tmp_path / "build")  # -z defs: a symbol that is missing fails the build
    exported = programs.run(shutil.which("nm"), "-D", "--defined-only", library)
    assert "orMalloc" in exported.stdout and not re.search("orFault|orRequest|DeviceModel", exported.stdout)

    (tmp_path / "program.cpp").write_text(PROGRAM)
    program = tmp_path / "program"
    flags = ["-std=c++20", f"-I{sources / 'include'}", f"-Wl,-rpath,{library.parent}"]
    programs.run(cpp_compiler(), *flags, tmp_path / "program.cpp", "-o", program, library, status=0)
    no_chaos = (
        "this build has no mode chaos: the folder third_party/openreg/csrc/simulator, which contains it, was absent"
    )
    *results, told, chaos = run(program)
    assert results == ["3 5 7 9"] * 2
    assert told == "8"  # the begin and the end of four kernels
    assert chaos == f"801 orSetExecutionMode: {no_chaos}. Use the mode async or inline"
    assert run(program, OPENREG_EXECUTION="chaos")[0].endswith(
        f'OPENREG_EXECUTION="chaos": {no_chaos}. Use the mode async or inline'
    )
