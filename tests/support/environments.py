"""Virtual environments for tests that need a really installed distribution, and processes that run in them.

Import, autoload and fork can only be tested in a process of their own. The environments are virtual environments that
use the torch of the environment in which pytest runs. Each has its own copy of this package, which a test may break.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import programs
from programs import Done


def device_under_test() -> str:
    return os.environ.get("TEST_DEVICE", "openreg")


class Environment:
    """A virtual environment without pip, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.site_packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
        self.empty()

    def empty(self) -> None:
        """Removes what is installed."""
        shutil.rmtree(self.site_packages)
        self.site_packages.mkdir()
        # A folder that a .pth file names is searched after the environment's own folder. The .pth files in that folder
        # are ignored, so an editable install of this package stays out.
        outer = Path(sysconfig.get_path("purelib"))
        further = outer / "outer.pth"  # the outer environment may itself be an Environment
        (self.site_packages / "outer.pth").write_text(f"{outer}\n{further.read_text() if further.exists() else ''}")

    @property
    def package(self) -> Path:
        return self.site_packages / "torch_openreg"

    def install(self) -> None:
        """Installs what is installed in the outer environment, editable or not, as a regular distribution."""
        spec = importlib.util.find_spec("torch_openreg")
        assert spec is not None and spec.submodule_search_locations, "torch_openreg is not installed"
        autoload = importlib.util.find_spec("torch_openreg_autoload")
        assert autoload is not None and autoload.origin
        for module in Path(autoload.origin).parent.glob("torch_openreg_*.py"):
            shutil.copy(module, self.site_packages)
        for folder in spec.submodule_search_locations:
            shutil.copytree(
                folder, self.package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "csrc")
            )
        installed = Path(str(importlib.metadata.distribution("torch_openreg").locate_file("")))
        for folder in installed.glob("torch_openreg-*.dist-info"):
            shutil.copytree(folder, self.site_packages / folder.name)
        # What CMake installs beside the package, for types of devices.
        for file in installed.glob("torch_openreg_*.pth"):
            shutil.copy(file, self.site_packages)
            shutil.copytree(
                file.with_suffix(""), self.site_packages / file.stem, ignore=shutil.ignore_patterns("__pycache__")
            )

    def add_distribution(self, name: str, source: str, entry_points: str = "") -> None:
        """Installs a distribution of one module."""
        (self.site_packages / f"{name}.py").write_text(source)
        info = self.site_packages / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)

    def serve(self) -> None:
        """From now on programs start in a server that has imported torch, for tests with several programs."""
        programs.served.add(str(self.python))

    def start(self, code: str, *options: str, **settings: Any) -> Done:
        """As programs.run(), for ``code`` with options of Python, in this environment."""
        return programs.run(self.python, *options, "-c", code, cwd=self.folder, **settings)

    def run(self, code: str, *options: str, **settings: Any) -> str:
        """As start(), and returns the output of ``code``. Fails the test if ``code`` fails or prints to stderr."""
        return self.start(code, *options, status=0, errors="", **settings).stdout


def build_tool(name: str) -> Sequence[str]:
    """``cmake`` or ``ninja`` from where the build took it: the Python package if there is one, else the PATH."""
    return [sys.executable, "-m", name] if importlib.util.find_spec(name) else [name]
