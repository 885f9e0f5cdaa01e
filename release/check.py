"""Runs everything that is checked before a release: `make release-check`. It takes hours, most of them for the tests.

    python release/check.py --only agree links         # the checks that need no build take a second

Each check writes its output to build/release/NAME.log. The exit status is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import tomllib

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "build" / "release"
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)[^)]*\)")


def disagreements(root: Path = ROOT, tag: str | None = None) -> list[str]:
    """A sentence for each place where files of a checkout contradict each other. ``tag``: the tag of the release."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    version = project["project"]["version"]
    supported = tomllib.loads((root / "release" / "torch.toml").read_text())
    found = []
    changes = (root / "CHANGELOG.md").read_text()
    heading = re.search(rf"^## {re.escape(version)}(.*)$", changes, re.MULTILINE)
    if heading is None:
        found.append(f"CHANGELOG.md has no entry for {version}.")
    elif tag and "not yet released" in heading[1]:
        found.append(f"CHANGELOG.md says that {version} is not yet released: write the day of the release there.")
    if tag and tag != f"v{version}":
        found.append(f"The tag is {tag}, and pyproject.toml says {version}: the tag must be v{version}.")

    for name in ("examples/ci/github-actions.yml", "examples/ci/gitlab-ci.yml"):
        for said in re.findall(r"TORCH_OPENREG_REVISION: (v\S+)", (root / name).read_text()):
            if said != f"v{version}":
                found.append(f"{name} takes {said}, and the tag of {version} is v{version}.")

    minors = list(supported)
    span = f"{minors[0]} to {minors[-1]}"
    for name in ("README.md", "CHANGELOG.md", "docs/test/index.md"):
        for said in re.findall(r"PyTorch (2\.\d+ to 2\.\d+)", (root / name).read_text()):
            if said != span:
                found.append(f"{name} says PyTorch {said}, and release/torch.toml has {span}.")
    for python in sorted({python for entry in supported.values() for python in entry["python"]}):
        if f"Programming Language :: Python :: {python}" not in project["project"]["classifiers"]:
            found.append(f"pyproject.toml has no classifier for Python {python}.")
    releases = {entry["release"] for entry in supported.values()}
    for name in ("Makefile", ".github/workflows/test.yml", "examples/ci/github-actions.yml", "examples/ci/Dockerfile"):
        path = root / name
        said = (
            set(re.findall(r"TORCH(?:_VERSION)?(?: \?= |: |=)(2\.\d+\.\d+)|torch: (2\.\d+\.\d+)", path.read_text()))
            if path.exists()
            else set()
        )
        for release in sorted({a or b for a, b in said} - releases):
            found.append(f"{name} names PyTorch {release}, and release/torch.toml has {', '.join(sorted(releases))}.")
    return found


def broken_links(root: Path = ROOT) -> list[str]:
    """The links of the Markdown files to files that do not exist. Links to other sites are not followed."""
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=root, capture_output=True, text=True, check=True).stdout
    found = []
    for name in names.splitlines():
        text = re.sub(r"```.*?```|`[^`\n]*`", "", (root / name).read_text(), flags=re.DOTALL)
        for target in LINK.findall(text):
            path = (root / name).parent / target
            # The book writes some of its pages itself, and git ignores them.
            made = subprocess.run(["git", "check-ignore", "-q", path], cwd=root).returncode == 0
            if not made and not path.exists() and not path.with_name(path.name + ".md").exists():
                found.append(f"{name} links to {target}, which does not exist.")
    return found


class Check:
    """The checks are the methods without an underscore, in this order. A check that fails raises SystemExit."""

    def __init__(self, tag: str | None) -> None:
        self._tag = tag
        self._log: Path = LOGS / "check.log"

    def _run(self, *command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
        with self._log.open("ab") as log:
            result = subprocess.run(
                command, cwd=cwd, env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT
            )
        if result.returncode:
            raise SystemExit(f"{' '.join(map(str, command))} failed with status {result.returncode}: {self._log}")

    def agree(self) -> None:
        """Version, change log, supported versions and workflows agree."""
        if found := disagreements(tag=self._tag):
            raise SystemExit("\n".join(found))

    def links(self) -> None:
        """No Markdown file links to a missing file."""
        if found := broken_links():
            raise SystemExit("\n".join(found))

    def lint(self) -> None:
        """The sources and the workflows are clean."""
        self._run("make", "lint")

    def docs(self) -> None:
        """The book builds without a warning."""
        self._run("make", "docs")

    def wheels(self) -> None:
        """There is a wheel for each Python of this machine."""
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        self._run("make", "wheels")

    def users(self) -> None:
        """Each wheel works when it is installed as a user installs it, with each PyTorch."""
        self._run("make", "try-wheels")

    def reproduce(self) -> None:
        """A clone in another folder gives the same bytes, for the first Python with the first PyTorch."""
        from wheels import BUILD, SUPPORTED, interpreters

        python, minor = next(iter(interpreters())), next(iter(SUPPORTED))
        built = []
        for name in ("first", "second, elsewhere"):
            clone = LOGS / name.replace(", ", "-")
            shutil.rmtree(clone, ignore_errors=True)
            self._run("git", "clone", "--quiet", ROOT, clone)
            (clone / "build" / "wheels").mkdir(parents=True)
            for torch in BUILD.glob("torch-*"):
                self._run("cp", "-al", torch, clone / "build" / "wheels")
            self._run(sys.executable, "release/wheels.py", "--python", python, "--torch", minor, cwd=clone)
            (wheel,) = (clone / "dist").glob("*.whl")
            built.append(wheel.read_bytes())
        if built[0] != built[1]:
            raise SystemExit("The same commit gave two different wheels.")

    def sdist(self) -> None:
        """The source distribution builds with README.md's command, in an environment that has only torch, and runs."""
        folder = LOGS / "sdist"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._run("make", "sdist")
        (archive,) = (ROOT / "dist").glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        (sources,) = folder.iterdir()
        programs = LOGS / "sdist-environment" / "bin"
        venv.create(programs.parent, with_pip=True, clear=True)
        self._run(programs / "python", "-m", "pip", "install", f"torch=={self._releases()[0]}")
        (command,) = [line for line in (sources / "README.md").read_text().splitlines() if "pyyaml" in line]
        self._run("sh", "-c", command, cwd=sources, PATH=f"{programs}:{os.environ['PATH']}")
        # In another folder, so that Python does not import the unpacked sources.
        self._run(programs / "python", "-c", "import torch; torch.ones(2, device='openreg')", cwd=folder)

    def tests(self) -> None:
        """The whole suite passes with each supported PyTorch."""
        for release in self._releases():
            self._run("make", "test-all", f"TORCH={release}")

    def figures(self) -> None:
        """The programs that measure docs/figures.md ran. A person compares the log with that page."""
        for program in ("demo", "bench", "sweep"):
            self._run("make", program)

    @staticmethod
    def _releases() -> list[str]:
        supported = tomllib.loads((ROOT / "release" / "torch.toml").read_text())
        return [entry["release"] for entry in supported.values()]


def main() -> None:
    names = [name for name in vars(Check) if not name.startswith("_")]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CHECK", help=" ".join(names))
    parser.add_argument("--tag", help="the tag of the release, such as v0.1.0")
    options = parser.parse_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    check, failed = Check(options.tag), False
    for name in options.only:
        check._log = LOGS / f"{name}.log"
        check._log.unlink(missing_ok=True)
        method: Callable[[], None] = getattr(check, name)
        started = monotonic()
        try:
            method()
            log = f"  {check._log}" if check._log.exists() else ""
            print(f"ok      {name:<10} {monotonic() - started:6.0f} s  {method.__doc__}{log}", flush=True)
        except SystemExit as wrong:
            failed = True
            print(f"FAILED  {name:<10} {monotonic() - started:6.0f} s  {wrong}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
