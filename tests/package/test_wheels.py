"""The wheels of a release (release/wheels.py): a wheel has several builds, and the loader takes one of them."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import sys
import zipfile
from email import message_from_string
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
import yaml
from environments import Environment

ROOT = Path(__file__).parents[2]
MINOR = ".".join(torch.__version__.split(".")[:2])
pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="release/ reads TOML with Python 3.11 or later")

if sys.version_info >= (3, 11):
    sys.path.append(str(ROOT / "release"))
    import check
    import try_wheels
    import wheels


def as_in_a_wheel(environment: Environment, minor: str) -> Path:
    """Moves the built files into the folder that a wheel has for them, and returns that folder."""
    folder = environment.package / f"torch{minor}"
    folder.mkdir()
    for name in ("_build_info.py", "_C.so", "_C_cuda.so", "lib", "include", "share"):
        shutil.move(environment.package / name, folder / name)
    return folder


# ---- the loader ------------------------------------------------------------------------------------------------------


def test_the_build_for_this_pytorch_is_loaded_and_no_other(environment: Environment) -> None:
    folder = as_in_a_wheel(environment, MINOR)
    (environment.package / "torch2.9").mkdir()
    code = """
import torch, torch_openreg as t
from torch_openreg import _C
print(torch.ones(2, device=torch.accelerator.current_accelerator()).sum().item())
print(_C.__file__, t.cmake_prefix_path, *t.include_paths(), *t.library_paths())
"""
    for identity in ("openreg", "cuda"):
        if identity == "cuda" and torch._C._has_cuda:
            continue
        ones, paths = environment.run(code, TORCH_OPENREG_AS=identity).splitlines()
        module = "_C.so" if identity == "openreg" else "_C_cuda.so"
        assert ones == "2.0"
        assert (
            paths
            == f"{folder}/{module} {folder}/share/cmake {folder}/include {folder}/include/torch_openreg {folder}/lib"
        )


def test_a_pytorch_without_a_build_is_told_which_ones_have_one(environment: Environment) -> None:
    as_in_a_wheel(environment, "2.9")
    (environment.package / "torch2.10").mkdir()
    result = environment.start("import torch; torch.ones(2, device='openreg')")
    assert result.returncode == 1
    version = environment.run("from importlib.metadata import version; print(version('torch_openreg'))").strip()
    assert (
        f"torch_openreg {version} was built for PyTorch 2.9 and 2.10, and PyTorch {torch.__version__} is running: a "
        'binary works with one minor version. Install a PyTorch that it was built for (pip install "torch==2.10.*" '
        "--index-url https://download.pytorch.org/whl/cpu), or the torch_openreg for this version, or rebuild it: "
    ) in result.stderr


def test_a_build_of_a_wheel_that_lost_a_library_says_so(environment: Environment) -> None:
    folder = as_in_a_wheel(environment, MINOR)
    (folder / "lib" / "libopenreg.so").unlink()
    result = environment.start("import torch; torch.ones(2, device='openreg')")
    assert f"{folder}/lib/libopenreg.so is missing, and the build recorded " in result.stderr


def test_a_trial_requires_that_a_pytorch_without_a_build_is_refused(environment: Environment, tmp_path: Path) -> None:
    user = try_wheels.User(tmp_path)
    (tmp_path / "env").symlink_to(environment.folder)
    as_in_a_wheel(environment, MINOR)
    assert user.python("-c", try_wheels.FIRST) == try_wheels.ONES
    assert try_wheels.refuse_other_minor(user, MINOR) == "refused"
    # A start that fails with any other sentence is no refusal.
    (environment.package / "torch2.12").rename(environment.package / f"torch{MINOR}")
    (environment.package / "_loader.py").unlink()
    with pytest.raises(try_wheels.Failed, match="the start did not say what to install:\n(?s:.*)_loader"):
        try_wheels.refuse_other_minor(user, MINOR)


def test_a_trial_takes_no_minor_version_that_is_not_supported() -> None:
    result = programs.run(sys.executable, ROOT / "release" / "try_wheels.py", "--torch", "2.12", cwd=ROOT)
    assert result.returncode == 2 and "argument --torch: invalid choice: '2.12'" in result.stderr


# ---- merging ---------------------------------------------------------------------------------------------------------


def pair(folder: Path, minor: str, python_file: str = "shared = 1\n", date: tuple[int, ...] = (2020, 1, 1)) -> Path:
    """The smallest possible wheel of one pair of PyTorch and Python."""
    major, number = minor.split(".")
    path = folder / f"torch_openreg-0.1.0-cp311-cp311-linux_x86_64-{minor}.whl"
    info = "torch_openreg-0.1.0.dist-info"
    files = {
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n",
        f"{info}/METADATA": (
            "Metadata-Version: 2.4\nName: torch_openreg\nVersion: 0.1.0\n"
            f"Requires-Dist: torch>={minor},<{major}.{int(number) + 1}\n"
        ),
        f"{info}/RECORD": "of the pair alone",
        "torch_openreg/__init__.py": python_file,
        "torch_openreg/_build_info.py": f"torch_version = '{minor}.0'\n",
        "torch_openreg/_C.so": f"binary for {minor}",
        "torch_openreg/lib/libopenreg.so": "binary",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in reversed(files.items()) if int(number) % 2 else files.items():
            archive.writestr(zipfile.ZipInfo(name, (*date, 0, 0, 0)), content)  # type: ignore[arg-type]
    return path


def test_a_merged_wheel_holds_each_build_once_and_the_rest_once(tmp_path: Path) -> None:
    pairs = {minor: pair(tmp_path, minor) for minor in ("2.13", "2.14")}
    merged = wheels.merge(pairs, tmp_path / "dist", 1_700_000_000, "manylinux_2_28_x86_64")
    assert merged.name == "torch_openreg-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(merged) as archive:
        names = archive.namelist()
        files = {name: archive.read(name) for name in names}
    assert names == [
        "torch_openreg/__init__.py",
        *(
            f"torch_openreg/torch{minor}/{name}"
            for minor in ("2.13", "2.14")
            for name in ("_C.so", "_build_info.py", "lib/libopenreg.so")
        ),
        *(f"torch_openreg-0.1.0.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL")),
    ]
    assert files["torch_openreg/torch2.14/_C.so"] == b"binary for 2.14"
    info = "torch_openreg-0.1.0.dist-info"
    assert message_from_string(files[f"{info}/WHEEL"].decode())["Tag"] == "cp311-cp311-manylinux_2_28_x86_64"
    assert message_from_string(files[f"{info}/METADATA"].decode())["Requires-Dist"] == "torch>=2.13,<2.15"
    recorded = [line.split(",") for line in files[f"{info}/RECORD"].decode().splitlines()]
    assert sorted(name for name, _, _ in recorded) == sorted(names)
    for name, digest, size in recorded:
        if name != f"{info}/RECORD":
            hashed = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={hashed}", str(len(files[name])))


def test_a_minor_version_that_is_left_out_is_not_required(tmp_path: Path) -> None:
    metadata = "Name: torch_openreg\nRequires-Dist: torch>=2.13,<2.14\n"
    assert wheels.require_any_of(metadata, ["2.13", "2.15"]).endswith("Requires-Dist: torch>=2.13,!=2.14.*,<2.16\n")
    assert wheels.require_any_of(metadata, ["2.13"]) == metadata


def test_the_same_pairs_give_the_same_bytes(tmp_path: Path) -> None:
    merged = []
    for number, order in enumerate((["2.13", "2.14"], ["2.14", "2.13"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        pairs = {minor: pair(folder, minor, date=(2020 + number, 1, 1)) for minor in order}
        merged.append(wheels.merge(pairs, folder / "dist", 1_700_000_000).read_bytes())
    assert merged[0] == merged[1]


def test_pairs_of_different_sources_are_refused(tmp_path: Path) -> None:
    pairs = {"2.13": pair(tmp_path, "2.13"), "2.14": pair(tmp_path, "2.14", "shared = 2\n")}
    with pytest.raises(SystemExit, match=r"torch_openreg/__init__.py is not the same in .*2\.14\.whl as in the wheels"):
        wheels.merge(pairs, tmp_path / "dist", 1_700_000_000)


# ---- reproducible ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_path_of_the_checkout_gets_into_a_library(tmp_path: Path) -> None:
    """Two checkouts in folders of different names give the same libopenreg.so, compiled as release/wheels.py does."""
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    libraries = []
    for name in ("one", "a checkout elsewhere"):
        folder = tmp_path / name.replace(" ", "_")
        shutil.copytree(ROOT / "third_party" / "openreg", folder / "third_party" / "openreg")
        (folder / "file.cpp").write_text('extern "C" const char* where() { return __FILE__; }\n')
        flags = wheels.reproducible_flags(folder)
        source = folder / "third_party" / "openreg"
        command = ["c++", "-std=c++20", "-O1", "-fPIC", "-shared", *flags.split(), "-I", source / "include"]
        files = (source / "csrc" / "range_allocator.cpp", folder / "file.cpp")
        programs.run(*command, "-o", folder / "library.so", *files, cwd=folder, status=0)
        libraries.append((folder / "library.so").read_bytes())
        assert str(folder).encode() not in libraries[-1]
    assert libraries[0] == libraries[1]


def test_no_library_needs_the_condition_variable_of_gcc_12(environment: Environment) -> None:
    """From GCC 12 on, std::condition_variable::wait() needs GLIBCXX_3.4.30. Nothing else needs so new a libstdc++."""
    libraries = [path for path in environment.package.rglob("*.so") if b"GLIBCXX_3.4.30" in path.read_bytes()]
    assert libraries == []


# ---- what the libraries need -----------------------------------------------------------------------------------------

SYSTEM = r"(lib(c|m|stdc\+\+|gcc_s)|ld-linux-[\w-]+)\.so\.\d+"
# Before glibc 2.34, which the wheels of a release do not need, these were libraries of their own.
OLD_GLIBC = r"lib(pthread|dl|rt)\.so\.\d"
PYTORCH = r"lib(c10|torch_cpu|torch_python)\.so"


def libraries_of(package: Path) -> list[Path]:
    return sorted([*package.glob("*.so"), *package.glob("lib/*.so")])


def tool(*command: str | Path) -> str:
    """The output of a program of binutils."""
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"needs {command[0]}")
    return programs.run(*command, status=0).stdout


def names_in(libraries: list[Path], which: str) -> set[str]:
    """The names that shared libraries define (``--defined-only``) or take from others (``--undefined-only``)."""
    lines = [line for library in libraries for line in tool("nm", "-D", which, library).splitlines()]
    return {line.split()[-1].partition("@")[0] for line in lines}


def test_the_libraries_need_pytorch_and_the_system_and_nothing_of_cuda(shared_environment: Environment) -> None:
    libraries = libraries_of(shared_environment.package)
    assert len(libraries) == 8
    stubs = shared_environment.package.parent.glob("torch_openreg_cuda/lib/*.so")
    own = {library.name for library in (*libraries, *stubs)}
    for library in libraries:
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", tool("readelf", "-d", library)))
        assert needed, library
        foreign = {name for name in needed - own if not re.fullmatch(f"{SYSTEM}|{OLD_GLIBC}|{PYTORCH}", name)}
        assert not foreign, (library, foreign)


def test_the_libraries_are_stripped(shared_environment: Environment) -> None:
    for library in libraries_of(shared_environment.package):
        sections = tool("readelf", "-SW", library)
        assert ".dynsym" in sections and ".symtab" not in sections and ".debug" not in sections, library


@pytest.mark.slow
def test_a_build_against_one_build_of_pytorch_loads_with_another(shared_environment: Environment) -> None:
    """Every name that the libraries take from PyTorch is in its CPU build and in its CUDA build.

    One of the two is installed. The other one is what release/wheels.py has unpacked.
    """
    release = torch.__version__.partition("+")[0]
    unpacked = wheels.BUILD / f"torch-{release}"
    if not (unpacked / "torch" / "version.py").exists():
        pytest.skip(f"needs another build of PyTorch {release}: `make wheels` unpacks one into build/wheels")
    installed = Path(torch.__file__).parents[1]
    assert wheels.torch_version(installed) == torch.__version__
    if wheels.torch_version(unpacked) == torch.__version__:
        pytest.skip(f"{torch.__version__} is installed and unpacked: needs two builds of that release")
    names = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so")
    here, there = (
        names_in([folder / "torch" / "lib" / name for name in names], "--defined-only")
        for folder in (installed, unpacked)
    )
    libraries = libraries_of(shared_environment.package)
    taken = names_in(libraries, "--undefined-only") - names_in(libraries, "--defined-only")
    assert len(taken & here) > 1000
    assert taken & here == taken & there


# ---- what a release agrees about -------------------------------------------------------------------------------------


def test_fourteen_pairs_of_pytorch_and_python_are_supported() -> None:
    assert len(wheels.pairs()) == 14
    assert ("2.15", "3.10") not in wheels.pairs()  # PyTorch 2.15 needs Python 3.11


def test_the_checks_of_a_release_that_take_no_build_pass() -> None:
    assert check.disagreements() == []


def test_a_version_that_disagrees_is_found(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    tracked = programs.run("git", "ls-files", cwd=ROOT)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    for name in tracked.stdout.splitlines():
        if name.endswith((".md", ".toml", ".yml", "Makefile", ".Dockerfile")):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    project = checkout / "pyproject.toml"
    project.write_text(re.sub(r'^version = ".*"$', 'version = "99.0"', project.read_text(), flags=re.MULTILINE))
    version = wheels.PROJECT["project"]["version"]
    assert check.disagreements(checkout) == [
        "CHANGELOG.md has no entry for 99.0.",
        f"examples/ci/github-actions.yml takes v{version}, and the tag of 99.0 is v99.0.",
        f"examples/ci/gitlab-ci.yml takes v{version}, and the tag of 99.0 is v99.0.",
    ]


def workflows() -> dict[str, dict[str, Any]]:
    return {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def test_continuous_integration_tests_every_pair() -> None:
    include = workflows()["test.yml"]["jobs"]["test"]["strategy"]["matrix"]["include"]
    minors = [(".".join(row["torch"].split(".")[:2]), row["python"]) for row in include]
    assert sorted(minors) == sorted(wheels.pairs())
    releases = {row["torch"] for row in include}
    assert releases == {entry["release"] for entry in wheels.SUPPORTED.values()}


def test_publishing_holds_no_secret() -> None:
    """Trusted publishing: the index checks the workflow's identity, which only the job that publishes has."""
    workflow = workflows()["release.yml"]
    publish = workflow["jobs"]["publish"]
    assert workflow["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"] == "pypi"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_only_what_is_tested_is_published() -> None:
    for name, publishes in (("release.yml", "publish"), ("site.yml", "site")):
        jobs = workflows()[name]["jobs"]
        assert "test" in jobs[publishes]["needs"]
        assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert "try" in workflows()["release.yml"]["jobs"]["publish"]["needs"]


def test_nothing_but_the_wheels_and_the_sources_is_published() -> None:
    """The jobs of test.yml belong to the same run, and upload the book."""
    jobs = workflows()["release.yml"]["jobs"]
    uploaded = [
        step["with"]["name"]
        for job in jobs.values()
        for step in job.get("steps", [])
        if "upload-artifact@" in step.get("uses", "")
    ]
    assert uploaded == ["dist-${{ matrix.platform }}", "dist-source"]
    assert jobs["publish"]["steps"][0]["with"]["pattern"] == "dist-*"


def test_wheels_are_built_against_other_builds_of_pytorch_than_they_are_tried_with() -> None:
    """The default index has builds with CUDA. The last step of the job names the index of the CPU builds."""
    cpu_builds = "https://download.pytorch.org/whl/cpu"
    assert cpu_builds not in (ROOT / "release" / "manylinux.Dockerfile").read_text()
    assert cpu_builds in workflows()["release.yml"]["jobs"]["try"]["steps"][-1]["run"]


def test_every_action_is_pinned_to_a_version() -> None:
    for name, workflow in workflows().items():
        for job in workflow["jobs"].values():
            for step in job.get("steps", []):  # a job that calls another workflow has none
                if "uses" in step:
                    assert re.fullmatch(r"[\w-]+/[\w.-]+@(v\d+|release/v1|[0-9a-f]{40})", step["uses"]), (name, step)


def test_the_workflows_run_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text() + (ROOT / "project.mk").read_text()
    files = [*(ROOT / ".github" / "workflows").glob("*.yml"), *(ROOT / "release").glob("*Dockerfile")]
    for path in files:
        for target in re.findall(r"(?:run: |&& |^\s*)make ([a-z-]+)", path.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name}: make {target}"


def test_an_interpreter_without_headers_is_not_built_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "python3.13"
    fake.write_text(f"#!/bin/sh\necho 3.13\necho {tmp_path}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    if os.path.exists("/opt/python/cp313-cp313"):
        pytest.skip("this is a manylinux container, which has a Python 3.13 with headers")
    assert "3.13" not in wheels.interpreters()
    (tmp_path / "Python.h").touch()
    assert wheels.interpreters()["3.13"] == fake
