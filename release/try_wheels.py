"""Tries wheels as a user installs them: in a new environment, without a compiler, CMake or this checkout.

    make try-wheels                                    # all wheels of dist, with each PyTorch that they support
    python release/try_wheels.py dist/*cp311*.whl --torch 2.13 --index https://download.pytorch.org/whl/cpu

The steps for each wheel and each PyTorch are:

1. `pip install` of the wheel.
2. `import torch`, and a tensor on the device "openreg".
3. The same with TORCH_OPENREG_AS=cuda and the device "cuda". In a build of PyTorch with CUDA, this must be refused.
4. `python -m torch_openreg doctor`.
5. `python -m torch_openreg demo`.
6. Tests. Only the folder tests/ is copied.
7. `import torch` after the build for this PyTorch was renamed. The output must say what to install.

Prints a table in Markdown. The exit status is 1 if a step failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wheels import ROOT, SUPPORTED, interpreters, numbers, platform_tag

# Tests that need neither a compiler nor the sources, and that take a minute or two.
TESTS = (
    "operators/test_copy.py",
    *(f"runtime/test_{area}.py" for area in ("device_module", "dlpack", "generator", "memory_limits")),
    *(f"runtime/test_{area}.py" for area in ("serialization", "storage", "streams_events")),
)
PATHS = ("-o", "pythonpath=tests/support tests/tools")  # those of pyproject.toml, which is not there
FIRST = "import torch; print(torch.ones(2, device='openreg'))"
ONES = "tensor([1., 1.], device='openreg:0')\n"
# With TORCH_OPENREG_AS=cuda, the device "cuda" must work in a CPU build of PyTorch, and in a build with CUDA.
CUDA = "import torch; print(torch.ones(2, device='cuda'))"
CUDA_ONES = "tensor([1., 1.], device='cuda:0')\n"
# What the refusal must say if the wheel has no build for the PyTorch that runs.
OTHER_MINOR = ("was built for PyTorch ", 'pip install "torch==')


class Failed(Exception):
    """A step failed. The message has the command and its output."""


@dataclass
class User:
    """A user with a separate folder, one Python environment, and nothing else on the PATH."""

    folder: Path

    def run(self, *command: str | Path, **variables: str) -> str:
        environment = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name}
        environment |= variables
        environment |= {"PATH": str(self.folder / "env" / "bin"), "HOME": str(self.folder), "LANG": "C.UTF-8"}
        result = subprocess.run(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if result.returncode:
            raise Failed(f"{' '.join(map(str, command))}\n{result.stdout}")
        return result.stdout

    def pip(self, *arguments: str | Path) -> str:
        return self.run(self.folder / "env" / "bin" / "python", "-m", "pip", "install", "--quiet", *arguments)

    def python(self, *arguments: str | Path, **variables: str) -> str:
        return self.run(self.folder / "env" / "bin" / "python", *arguments, **variables)


def minors_of(wheel: Path) -> list[str]:
    """The minor versions of PyTorch for which a wheel has builds."""
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.split("/")[1] for name in archive.namelist() if name.startswith("torch_openreg/torch")}
    return sorted((folder.removeprefix("torch") for folder in folders), key=numbers)


def refuse_other_minor(user: User, minor: str) -> str:
    """Renames the build for this PyTorch. Raises Failed if ``import torch`` then does not say what to install."""
    (package,) = user.folder.glob("env/lib/python*/site-packages/torch_openreg")
    (package / f"torch{minor}").rename(package / "torch2.12")
    try:
        said = user.python("-c", FIRST)
    except Failed as failure:
        said = str(failure)
    if not all(words in said for words in OTHER_MINOR):
        raise Failed(
            f"The build for PyTorch {minor} was taken away, and the start did not say what to install:\n{said}"
        )
    return "refused"


def try_one(wheel: Path, python: Path, torch: str, index: Sequence[str], tests: Sequence[str]) -> list[str]:
    """The cells of a row: PyTorch, the time to install, and the results of each step. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="try-wheel-") as place:
        user = User(Path(place))
        user.run(python, "-m", "venv", "env")
        user.pip(f"torch=={torch}", "numpy", *index)  # without NumPy, PyTorch itself warns
        for tool in ("cc", "c++", "gcc", "g++", "clang", "cmake", "ninja", "make"):
            if found := shutil.which(tool, path=str(user.folder / "env" / "bin")):
                raise Failed(f"{found} is there: this shows nothing about a machine without a compiler.")
        started = time.monotonic()
        user.pip(wheel.resolve())  # pip runs in the user's folder
        seconds = time.monotonic() - started
        if (ones := user.python("-c", FIRST)) != ONES:
            raise Failed(f"{FIRST}\n{ones}")
        as_cuda = user.python("-c", CUDA, TORCH_OPENREG_AS="cuda")
        if as_cuda != CUDA_ONES:
            raise Failed(f"TORCH_OPENREG_AS=cuda {CUDA}\n{as_cuda}")
        user.python("-m", "torch_openreg", "doctor")
        user.pip(f"torch_openreg[demo,test] @ {wheel.resolve().as_uri()}", f"torch=={torch}")
        demo = user.python("-m", "torch_openreg", "demo")
        shutil.copytree(ROOT / "tests", user.folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        said = "not run"
        if tests:
            files = [f"tests/{name}" for name in tests]
            said = user.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *PATHS, *files).strip().splitlines()[-1]
        version = user.python("-c", "import torch; print(torch.__version__)").strip()
        losses = "equal, bit for bit" if "bit for bit" in demo else "ran"
        other = refuse_other_minor(user, ".".join(version.split(".")[:2]))  # last, because it breaks what is installed
        return [version, f"{seconds:.0f} s", "works" if as_cuda == CUDA_ONES else "refused", losses, said, other]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheels", nargs="*", type=Path, help="default: all of dist")
    parser.add_argument(
        "--torch", action="append", choices=list(SUPPORTED), help="default: all that a wheel has a build for"
    )
    parser.add_argument("--index", help="another index of PyTorch's wheels, for pip's --extra-index-url")
    parser.add_argument("--tests", default=" ".join(TESTS), help="files of tests; default: %(default)s")
    options = parser.parse_args()
    index = ["--extra-index-url", options.index] if options.index else []
    here, failed = interpreters(), False
    print(
        "| wheel | MB | needs | PyTorch | installed in | type cuda | demo | tests | other minor |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    for wheel in options.wheels or sorted((ROOT / "dist").glob("*.whl")):
        tag = wheel.name.split("-")[2]
        python = here.get(f"{tag[2]}.{tag[3:]}")
        size, needs = f"{wheel.stat().st_size / 1e6:.1f}", " ".join(platform_tag(wheel)[1])
        for minor in options.torch or minors_of(wheel):
            if python is None:
                cells = ["no such Python here", "", "", "", "", ""]
            else:
                try:
                    release = str(SUPPORTED[minor]["release"])
                    cells = try_one(wheel, python, release, index, options.tests.split())
                except Failed as failure:
                    failed = True
                    print(failure, file=sys.stderr)
                    cells = [minor, "failed", "", "", "", ""]
            print("| " + " | ".join([wheel.name, size, needs, *cells]) + " |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
