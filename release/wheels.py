"""Builds the wheels of a release: one for each Python, with a build for each supported minor version of PyTorch inside.

    make wheels                                        # a wheel for each Python of this machine
    python release/wheels.py --python 3.12 --torch 2.14

The file torch.toml has the versions. PyTorch is not installed: for each minor version one
wheel is unpacked, because only its headers, some libraries and torchgen are needed. PyTorch's wheel for one Python
serves for all Pythons: the headers are the same, and this package uses only symbols that libtorch_python.so has for
every Python. A CUDA build of PyTorch works as well as a CPU build, because the libraries of this package name nothing
of CUDA.

The steps are the following. Steps 1 to 3 write into build/wheels. A later run uses the results of steps 1 and 2 again:
  1. torch-2.14.1/          PyTorch, unpacked
  2. python-3.11/           an environment with the packages that the build needs
  3. pairs/2.14-3.11/       the wheel of one pair, which `pip wheel` makes from this checkout
  4. --output (dist/)       the pairs of one Python, merged, with the platform tag that auditwheel finds
"""

from __future__ import annotations

import argparse
import base64
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "wheels"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SUPPORTED: Mapping[str, Mapping[str, object]] = tomllib.loads((ROOT / "release" / "torch.toml").read_text())
# scikit-build-core is pinned, because it writes the wheel. The others only help to build it.
TOOLS = ("scikit-build-core==1.1.2", "pyyaml", "cmake", "ninja")
# Pinned, because its answer becomes the platform tag of the wheel.
AUDITWHEEL = "auditwheel==6.8.2"
UNPACKED = re.compile(
    r"torch/(include/.*|lib/lib(c10|torch_cpu|torch_python|c10_cuda|torch_cuda|torch_nvshmem)\.so|__init__\.py|version\.py)"
    r"|torchgen/.*"
)
# Tells whether the stubs of PyTorch's libraries for CUDA have every name that this PyTorch needs.
STUBS = ROOT / "torch_openreg" / "_cuda" / "csrc" / "stubs" / "names.py"
# The files of a pair's wheel that depend on the minor version of PyTorch. All other files are the same in all pairs.
BINARY = re.compile(r"torch_openreg/((_build_info\.py|_C\w*\.so)$|(lib|include|share)/)")


def pairs() -> list[tuple[str, str]]:
    """Every supported pair (minor version of PyTorch, version of Python)."""
    return [(minor, python) for minor, entry in SUPPORTED.items() for python in entry["python"]]  # type: ignore[attr-defined]


def run(command: Sequence[str | Path], **environment: str) -> str:
    """Runs a command in the checkout and returns its output. If the command fails, the output is printed."""
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        sys.exit(f"{result.stdout}\n{' '.join(map(str, command))} failed with status {result.returncode}.")
    return result.stdout


def interpreters() -> dict[str, Path]:
    """The interpreters of this machine for which extensions can be compiled: version -> executable.

    The function looks on the PATH, in the folders of the manylinux containers, and in the folders of pyenv.
    """
    found = {}
    for version in sorted({python for _, python in pairs()}, key=numbers):
        tag = "cp" + version.replace(".", "")
        places = [shutil.which(f"python{version}"), f"/opt/python/{tag}-{tag}/bin/python"]
        for python in filter(
            os.path.exists,
            [p for p in places if p] + glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")),
        ):
            code = "import sys, sysconfig; print(*sys.version_info[:2], sep='.'); print(sysconfig.get_path('include'))"
            answer = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.splitlines()
            if answer[:1] == [version] and Path(answer[1], "Python.h").exists():
                found[version] = Path(python)
                break
    return found


def numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def unpack_torch(release: str, parent: Path = BUILD, wanted: re.Pattern[str] = UNPACKED) -> Path:
    """A folder with the files of PyTorch's wheel that the pattern ``wanted`` matches.

    By default these are the headers, the libraries to link with, and torchgen.
    """
    folder = parent / f"torch-{release}"
    if not (folder / "torch" / "version.py").exists():
        download = parent / "download" / release
        # The index has one wheel for each Python. Each of these wheels can serve.
        run([sys.executable, "-m", "pip", "download", f"torch=={release}", "--no-deps", "--only-binary=:all:",
             "--python-version", "3.12", "--dest", download])  # fmt: skip
        (wheel,) = download.glob("torch-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if wanted.fullmatch(name) and name != "torch/version.py":
                    archive.extract(name, folder)
            archive.extract("torch/version.py", folder)  # the last step: this file says that the folder is complete
        shutil.rmtree(download)
    if (folder / "torch" / "lib" / "libtorch_cuda.so").exists():
        run([sys.executable, STUBS, "check", folder / "torch" / "lib"])
    return folder


def torch_version(folder: Path) -> str:
    """The version of an unpacked PyTorch, such as 2.13.0+cu130."""
    (version,) = re.findall(r"^__version__ = '(.+)'$", (folder / "torch" / "version.py").read_text(), re.MULTILINE)
    return version


def prepare_python(version: str, python: Path) -> Path:
    """Makes an environment of that Python with the packages that the build needs. Returns its interpreter."""
    folder = BUILD / f"python-{version}"
    if not (folder / "ready").exists():
        run([python, "-m", "venv", "--clear", folder])
        run([folder / "bin" / "python", "-m", "pip", "install", *TOOLS])
        (folder / "ready").touch()
    return folder / "bin" / "python"


def source_date() -> str:
    """The time of the files in a wheel: that of the commit, in seconds since 1970."""
    return os.environ.get("SOURCE_DATE_EPOCH") or run(["git", "log", "-1", "--format=%ct"]).strip()


def reproducible_flags(*folders: Path) -> str:
    """Options for the compiler with which the same sources give the same bytes, wherever these folders are.

    Without these options, the messages of failed checks contain the paths of the machine that built the wheel.
    """
    return " ".join(f"-ffile-prefix-map={folder}/=" for folder in folders)


def build_pair(minor: str, torch: Path, version: str, python: Path) -> Path:
    """The wheel of one pair: `pip wheel` builds it from this checkout, in the environment of prepare_python().

    The Pythons of one minor version of PyTorch share a build folder: only the bindings are compiled for each Python.
    """
    folder = BUILD / "pairs" / f"{minor}-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    # Printed here because the wheel does not say with which build of PyTorch, such as 2.13.0+cu130, it was made. The
    # bytes of the wheel do not depend on the build.
    print(f"PyTorch {torch_version(torch)}, Python {version}: {folder}.log", flush=True)
    flags = reproducible_flags(torch, ROOT)
    run(
        [python, "-m", "pip", "wheel", "--verbose", "--log", f"{folder}.log",
         "--no-build-isolation", "--no-deps", "--wheel-dir", folder, "."],
        CFLAGS=flags,
        CXXFLAGS=flags,
        PYTHONPATH=str(torch),
        SKBUILD_BUILD_DIR=str(BUILD.relative_to(ROOT) / f"cmake-{minor}"),
        SOURCE_DATE_EPOCH=source_date(),
    )  # fmt: skip
    (wheel,) = folder.iterdir()
    return wheel


def merge(wheels: Mapping[str, Path], output: Path, date: int, tag: str | None = None) -> Path:
    """Makes one wheel from the wheels of several minor versions of PyTorch: {minor: wheel of that pair}.

    The binaries of each version are in a folder such as ``torch_openreg/torch2.14/``, where torch_openreg._loader finds
    them. Files are sorted and carry ``date`` (seconds since 1970), so that the same pairs give the same bytes. ``tag``
    is the platform tag; None keeps the tag of the pairs.
    """
    files: dict[str, bytes] = {}
    executable = set()
    for minor, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                if info.is_dir() or info.filename.endswith(".dist-info/RECORD"):
                    continue
                name, content = info.filename, archive.read(info)
                if BINARY.match(name):
                    name = name.replace("torch_openreg/", f"torch_openreg/torch{minor}/", 1)
                elif name.endswith(".dist-info/METADATA"):
                    content = require_any_of(content.decode(), list(wheels)).encode()
                if files.setdefault(name, content) != content:
                    sys.exit(
                        f"{name} is not the same in {wheel} as in the wheels before it. If a file of the checkout was "
                        "changed during the build, run it again: it compiles only what was changed."
                    )
                if info.external_attr >> 16 & 0o111:
                    executable.add(name)
    (description,) = [name for name in files if name.endswith(".dist-info/WHEEL")]
    text = files[description].decode()
    own = re.findall(r"^Tag: (.*)$", text, re.MULTILINE)
    if tag:
        text = re.sub(r"^(Tag: \S+-\S+)-\S+$", rf"\1-{tag}", text, flags=re.MULTILINE)
        files[description] = text.encode()
        own = re.findall(r"^Tag: (.*)$", text, re.MULTILINE)
    record = description.replace("WHEEL", "RECORD")
    lines = []
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    files[record] = "".join([*lines, f"{record},,\n"]).encode()

    distribution = record.partition(".dist-info")[0]
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"{distribution}-{own[0]}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files, key=lambda name: (".dist-info/" in name, name)):  # metadata last, as wheels should
            info = zipfile.ZipInfo(name, date_time(date))
            info.external_attr = (0o100755 if name in executable else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name])
    return path


def date_time(seconds: int) -> tuple[int, int, int, int, int, int]:
    """A time as a zip file stores it: in UTC here, and not before 1980."""
    import time

    return time.gmtime(max(seconds, 315532800))[:6]


def require_any_of(metadata: str, minors: Iterable[str]) -> str:
    """The metadata of one pair's wheel, changed so that it requires any of these minor versions of PyTorch."""
    known = sorted(minors, key=numbers)
    major, newest = known[-1].split(".")
    missing = [f"{major}.{n}" for n in range(int(known[0].split(".")[1]), int(newest)) if f"{major}.{n}" not in known]
    wanted = ",".join([f">={known[0]}", *(f"!={minor}.*" for minor in missing), f"<{major}.{int(newest) + 1}"])
    changed, count = re.subn(
        r"^Requires-Dist: torch[<>].*$", f"Requires-Dist: torch{wanted}", metadata, flags=re.MULTILINE
    )
    if count != 1:
        sys.exit(f"The metadata of a pair's wheel must have one line 'Requires-Dist: torch...', but has {count}.")
    return changed


# auditwheel is used as a library. Its command line cannot be told that PyTorch's libraries come from another wheel. It
# also stops at a module that does not link libc itself, such as _C.so.
AUDIT = """
import json, pathlib, sys
from auditwheel.libc import Libc
from auditwheel.wheel_abi import analyze_wheel_abi
wheel, torch = pathlib.Path(sys.argv[1]), frozenset(["libtorch*.so", "libc10.so"])
found = analyze_wheel_abi(Libc.GLIBC, None, wheel, torch, disable_isa_ext_check=False, allow_graft=False)
symbols = {library: sorted(versions) for library, versions in found.versioned_symbols.items()}
print(json.dumps([found.overall_policy.name, symbols]))
"""


def platform_tag(wheel: Path) -> tuple[str, list[str]]:
    """The oldest platform that the wheel's libraries run on, and the newest versions of symbols that they need."""
    folder = BUILD / "auditwheel"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        run([folder / "bin" / "python", "-m", "pip", "install", AUDITWHEEL])
        (folder / "ready").touch()
    tag, symbols = json.loads(run([folder / "bin" / "python", "-c", AUDIT, wheel]).splitlines()[-1])
    newest: dict[str, str] = {}
    for symbol in (symbol for versions in symbols.values() for symbol in versions):
        name, _, version = symbol.rpartition("_")
        if version[0].isdigit() and numbers(version) > numbers(newest.get(name, "0")):
            newest[name] = version
    return tag, [f"{name}_{version}" for name, version in newest.items()]


def main() -> None:
    here = interpreters()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", choices=sorted(here, key=numbers), help="default: all found here")
    parser.add_argument("--torch", action="append", choices=list(SUPPORTED), help="minor versions; default: all")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of the wheels (default: dist)")
    options = parser.parse_args()
    minors = options.torch or list(SUPPORTED)
    for version in options.python or here:
        python = prepare_python(version, here[version])
        wheels = {
            m: build_pair(m, unpack_torch(str(SUPPORTED[m]["release"])), version, python)
            for m in minors
            if (m, version) in pairs()
        }
        if not wheels:
            sys.exit(f"release/torch.toml lists no Python {version} for PyTorch {', '.join(minors)}.")
        draft = merge(wheels, BUILD / "drafts", int(source_date()))
        tag, symbols = platform_tag(draft)
        wheel = merge(wheels, options.output, int(source_date()), tag)
        print(
            f"{wheel}  {wheel.stat().st_size / 1e6:.1f} MB  PyTorch {', '.join(wheels)}  {' '.join(symbols)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
