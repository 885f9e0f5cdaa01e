"""What `pip wheel` and `pip install` produce."""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib.metadata import version as metadata_version
from pathlib import Path

import programs
import pytest
from environments import Environment, build_tool

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BUILD = ["--no-build-isolation", "--no-deps", "--disable-pip-version-check"]


def pip(*arguments: str | Path, cwd: Path = ROOT) -> None:
    programs.run(sys.executable, "-m", "pip", *arguments, cwd=cwd, status=0)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip wheel` builds from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", *BUILD, "--wheel-dir", folder, ".")
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment into which pip has installed that wheel."""
    environment = Environment(tmp_path_factory.mktemp("installed") / "environment")
    pip("--python", str(environment.python), "install", "--no-deps", "--no-index", wheel)
    return environment


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def torch_minor() -> tuple[int, int]:
    import torch

    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def test_a_wheel_belongs_to_one_minor_version_of_torch(wheel: Path) -> None:
    major, minor = torch_minor()
    metadata = metadata_of(wheel)
    # A local version such as 0.1.0+torch2.13 could not be uploaded to an index.
    assert f'\nversion = "{metadata["Version"]}"\n' in (ROOT / "pyproject.toml").read_text()
    assert metadata["Requires-Python"] == ">=3.10"
    assert f"torch<{major}.{minor + 1},>={major}.{minor}" in metadata.get_all("Requires-Dist", [])
    assert metadata["License-Expression"] == "BSD-3-Clause"


def test_a_source_distribution_holds_the_sources_and_leaves_the_pytorch_open(tmp_path: Path) -> None:
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"
    programs.python(code, cwd=ROOT, new_interpreter=True, status=0)  # the build looks for the folder of torch
    (path,) = tmp_path.iterdir()
    with tarfile.open(path) as archive:
        top = path.name.removesuffix(".tar.gz")
        held = {name.removeprefix(f"{top}/") for name in archive.getnames()}
        information = archive.extractfile(f"{top}/PKG-INFO")
        assert information is not None
        metadata = message_from_bytes(information.read())
    # The file name carries the version. A build from this source distribution has the same version.
    assert path.name == f"torch_openreg-{metadata['Version']}.tar.gz"
    assert "Requires-Dist" in metadata.get_all("Dynamic", [])
    tracked = programs.run("git", "ls-files", cwd=ROOT)
    if tracked.returncode == 0:
        assert "CMakeLists.txt" in held and set(tracked.stdout.splitlines()) - held == set()


def test_a_wheel_holds_what_is_needed_and_no_sources(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "torch_openreg/__init__.py",
        "torch_openreg/_C.so",
        "torch_openreg/_C.pyi",
        "torch_openreg/_build_info.py",
        "torch_openreg/py.typed",
        "torch_openreg/lib/libtorch_openreg_bindings.so",
        "torch_openreg/lib/libtorch_openreg.so",
        "torch_openreg/lib/libopenreg.so",
        "torch_openreg/include/openreg.h",
        "torch_openreg/include/openreg_launch.h",
        "torch_openreg/include/torch_openreg/runtime/OpenRegFunctions.h",
        "torch_openreg/share/cmake/torch_openreg/torch_openregConfig.cmake",
    } <= names
    assert not [name for name in names if name.endswith((".cpp", ".c", ".in", "CMakeLists.txt"))]
    (packages,) = re.findall(r"^wheel\.packages = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    # What a type of devices puts before `import torch`: a package with libraries, and the .pth file that imports it.
    early = {path.name for path in (ROOT / "torch_openreg").glob("_*/csrc/*/torch_openreg_*")}
    assert {name.split("/")[0].split("-")[0] for name in names} == {*ast.literal_eval(packages), *early}
    for name in early:
        package = name.removesuffix(".pth")
        assert {package, f"{package}.pth"} <= early and f"{package}/__init__.py" in names
        assert any(each.startswith(f"{package}/lib/lib") for each in names)


def test_a_wheel_records_the_sizes_of_its_libraries(installed: Environment) -> None:
    from_wheel = installed.run("from torch_openreg import _build_info; print(_build_info.library_sizes)")
    package = installed.package
    sizes = {str(library.relative_to(package)): library.stat().st_size for library in package.rglob("*.so")}
    assert len(sizes) >= 4 and ast.literal_eval(from_wheel) == sizes


def test_a_build_without_pyyaml_stops_at_the_beginning_and_says_what_to_install(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    (environment.site_packages / "outer.pth").unlink()
    for package in ("torch", "torchgen"):
        (environment.site_packages / package).symlink_to(Path(sysconfig.get_path("purelib")) / package)
    definitions = [f"-DPython_EXECUTABLE={environment.python}", "-DSKBUILD_PROJECT_VERSION_FULL=0"]
    command = [*build_tool("cmake"), "-S", ROOT, "-B", tmp_path / "build", *definitions]
    result = programs.run(*command)
    assert result.returncode == 1
    assert " ".join(result.stderr.split()).startswith("CMake Error at cmake/Torch.cmake:")
    assert (
        f"The build of torch_openreg reads PyTorch's list of operators with PyYAML, and {environment.python} has no "
        "package yaml. Install what the build needs, then build again: "
        'pip install "scikit-build-core>=1.1" pyyaml cmake ninja'
    ) in " ".join(result.stderr.split())
    (line,) = [line for line in (ROOT / "README.md").read_text().splitlines() if "pyyaml" in line]
    assert line.startswith('pip install "scikit-build-core>=1.1" pyyaml cmake ninja ')


def test_an_isolated_build_stops_at_the_beginning_and_says_how_to_build(tmp_path: Path) -> None:
    """pip isolates a build if nobody says otherwise, and the environment of such a build has no torch."""
    environment = Environment(tmp_path / "environment")
    (environment.site_packages / "outer.pth").unlink()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.suffix != ".pth" and not path.name.startswith("torch"):
            (environment.site_packages / path.name).symlink_to(path)
    code = f"from scikit_build_core.build import build_wheel; build_wheel({str(tmp_path)!r})"
    result = programs.run(environment.python, "-c", code, cwd=ROOT)
    assert result.returncode == 1
    assert result.stderr == (
        f"torch_openreg builds against an installed PyTorch, and {environment.python} has no package torch. Install "
        "torch first, then build with: pip install --no-build-isolation .\n"
    )
    (requires,) = [line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("requires =")]
    assert "torch" not in requires  # pip would install it for the build, and the build would be for that torch


def test_every_build_of_a_pytorch_release_gives_the_same_files(tmp_path: Path) -> None:
    """A build against 2.13.0+cpu writes nothing that differs from what a build against 2.13.0+cu130 writes."""
    purelib = Path(sysconfig.get_path("purelib"))
    release = metadata_version("torch").partition("+")[0]
    written = []
    for local in ("+cpu", "+cu130"):
        environment = Environment(tmp_path / f"environment{local}")
        (environment.site_packages / "torch").mkdir()
        for path in (purelib / "torch").iterdir():
            if path.name != "version.py":
                (environment.site_packages / "torch" / path.name).symlink_to(path)
        (environment.site_packages / "torch" / "version.py").write_text(f"__version__ = '{release}{local}'\n")
        build = tmp_path / f"build{local}"
        definitions = [f"-DPython_EXECUTABLE={environment.python}", "-DSKBUILD_PROJECT_VERSION_FULL=0"]
        definitions.append(f"-DSKBUILD_PLATLIB_DIR={build}/installed")  # given by scikit-build-core, as the version is
        result = programs.run(*build_tool("cmake"), "-S", ROOT, "-B", build, *definitions, status=0)
        assert f"PyTorch {release}{local} in " in result.stdout
        written.append([(build / name).read_text() for name in ("_build_info.py", "torch_openregConfig.cmake")])
    assert written[0] == written[1]
    assert f'torch_version = "{release}"\npython_version = "{sysconfig.get_python_version()}"\n' in written[0][0]


def test_an_installed_wheel_runs_where_there_is_no_compiler(installed: Environment) -> None:
    code = "import torch; x = torch.ones(2, device='openreg'); print((x + x).cpu().tolist())"
    assert installed.run(code, PATH="") == "[2.0, 2.0]\n"


def test_the_libraries_carry_no_path_of_the_machine_that_built_them(installed: Environment) -> None:
    for library in [*installed.package.glob("*.so"), *(installed.package / "lib").iterdir()]:
        entries = programs.run("readelf", "--dynamic", library, status=0).stdout.splitlines()
        assert not [line for line in entries if ("RPATH" in line or "RUNPATH" in line) and "[$ORIGIN" not in line]
        names = [line.split("[")[1].rstrip("]") for line in entries if "SONAME" in line]
        assert names in ([library.name], []) and (names or library.name.startswith("_C"))


def test_thread_local_state_fits_what_glibc_keeps_for_libraries_that_are_opened_later(installed: Environment) -> None:
    """All such libraries share 512 bytes (glibc.rtld.optional_static_tls). Beyond them, an access is a call of 5 ns."""
    library = installed.package / "lib"
    bindings = list(library.glob("libtorch*_bindings.so"))
    assert bindings
    for each in bindings:
        sizes = {}
        for file in library / "libopenreg.so", each.with_name(each.name.replace("_bindings", "")), each:
            rows = [
                row.split()
                for row in programs.run("readelf", "--program-headers", "--wide", file, status=0).stdout.splitlines()
            ]
            (sizes[file.name],) = (int(row[5], 16) for row in rows if row[:1] == ["TLS"])
        assert min(sizes.values()) > 0 and sum(sizes.values()) <= 500, sizes  # the other 12 are for alignment


def test_version_and_paths_are_public(installed: Environment, wheel: Path) -> None:
    code = """
import torch_openreg as t
print(t.__version__, t.cmake_prefix_path, *t.include_paths(), *t.library_paths())
"""
    package = installed.package
    version = metadata_of(wheel)["Version"]
    assert (
        installed.run(code)
        == f"{version} {package}/share/cmake {package}/include {package}/include/torch_openreg {package}/lib\n"
    )


CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES C)
find_package(torch_openreg REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE torch_openreg::openreg)
"""

PROGRAM = """
#include <openreg.h>
#include <stdio.h>
int main(void) {
  int count = 0;
  if (orGetDeviceCount(&count) != orSuccess) return 1;
  printf("%d devices\\n", count);
  return 0;
}
"""


def test_another_project_finds_the_device_with_cmake(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    (tmp_path / "user.c").write_text(PROGRAM)
    prefix = f"-DCMAKE_PREFIX_PATH={installed.package}/share/cmake"
    programs.run(*build_tool("cmake"), "-S", ".", "-B", "build", prefix, cwd=tmp_path, status=0)
    programs.run(*build_tool("cmake"), "--build", "build", cwd=tmp_path, status=0)
    assert programs.run(tmp_path / "build" / "user", status=0).stdout == "2 devices\n"
