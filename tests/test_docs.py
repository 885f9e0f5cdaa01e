"""The book is true: it builds without a warning, what it shows runs and prints that, and what it names exists.

On a page, a ``python`` block is run in the page's namespace, with `>>>` as a doctest. In a ``console`` block each line
after `$ ` is run by the shell in the root of the sources, and what follows is compared; `...` stands for anything.
Other blocks are not run.
"""

from __future__ import annotations

import doctest
import functools
import gc
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from sybil import Example, Sybil
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(ROOT)): page for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def run_console(example: Example) -> None:
    """Runs each command of a transcript and compares what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, expected in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n?)*)", str(example.parsed), re.MULTILINE):
        result = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if not doctest.OutputChecker().check_output(expected, result.stdout, OPTIONS):
            raise AssertionError(f"$ {command}\nExpected:\n{expected}\nGot:\n{result.stdout}")


@every_page
def test_what_a_page_shows_runs_and_prints_that(page: Path) -> None:
    parsers = [
        PythonCodeBlockParser(doctest_optionflags=OPTIONS),
        CodeBlockParser("console", run_console),
    ]
    gc.collect()  # what an earlier page left would move this one's counts of memory
    for example in Sybil(parsers).parse(page).examples():
        example.evaluate()


def test_the_book_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "doctrees", DOCS, tmp_path]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (result.returncode, result.stdout) == (0, "")


# ---- What is included is marked -------------------------------------------------------------------------------------

MARKER = re.compile(r"^ *(?://|#) LITERALINCLUDE (START|END): (.+)$", re.MULTILINE)


@every_page
def test_a_page_includes_sources_by_their_markers(page: Path) -> None:
    """Or as a whole, or by a function's name; never by the text of a line: whoever changes it does not know."""
    for name, options in re.findall(r"^```\{literalinclude\} (\S+)\n((?::.*\n)+)", page.read_text(), re.MULTILINE):
        if not re.search(r"^:(start|end|lines)", options, re.MULTILINE):  # a whole file, or a function
            continue
        (start,) = re.findall(
            r'^:start-after: "(?:(?://|#) )?LITERALINCLUDE START: (.+?)(?:\\n)?"$', options, re.MULTILINE
        )
        (end,) = re.findall(r'^:end-before: "(?://|#) LITERALINCLUDE END: (.+)"$', options, re.MULTILINE)
        assert start == end
        begins = [found for kind, found in MARKER.findall((page.parent / name).read_text()) if kind == "START"]
        with_newline = '\\n"' in options
        assert [found for found in begins if (found == start if with_newline else found.startswith(start))] == [start]


def test_every_region_that_begins_ends() -> None:
    folders = ("csrc", "third_party", "torch_openreg", "tests", "examples")
    files = [
        file for folder in folders for pattern in ("*.py", "*.cpp", "*.h") for file in (ROOT / folder).rglob(pattern)
    ]
    assert len(files) > 100
    for file in [ROOT / "pyproject.toml", *files]:
        markers = MARKER.findall(file.read_text())
        begins, ends = ([name for kind, name in markers if kind == which] for which in ("START", "END"))
        assert (len(set(begins)), sorted(begins)) == (len(begins), sorted(ends)), file


# ---- What is named exists --------------------------------------------------------------------------------------------


@functools.cache
def known_words() -> set[str]:
    """Every word of our sources and of the parts of PyTorch that a backend meets."""
    inside_torch = Path(torch.__file__).parent
    files = [
        *(ROOT / name for name in ("Makefile", "pyproject.toml", "CMakeLists.txt", "torch_openreg_autoload.py")),
        *(
            file
            for folder in ("csrc", "third_party", "torch_openreg", "tests", "examples", "cmake", "benchmarks")
            for file in (ROOT / folder).rglob("*")
            if file.is_file() and file.suffix != ".pyc" and file != Path(__file__)
        ),
        *(
            file
            for folder in ("c10", "ATen/core", "ATen/detail", "ATen/native", "torch/csrc/autograd")
            for file in (inside_torch / "include" / folder).rglob("*.h")
        ),
        *(inside_torch / "include" / "ATen").glob("*.h"),
        *(inside_torch / "include" / "torch").glob("*.h"),
        inside_torch / "include/torch/csrc/jit/serialization/pickler_helper.h",
        inside_torch / "__init__.py",
        inside_torch / "utils/backend_registration.py",
        Path(importlib.import_module("torchgen").__path__[0]) / "packaged/ATen/native/native_functions.yaml",
    ]
    return {word for file in files for word in re.findall(r"\w+", file.read_text(errors="ignore"))}


def code_in(page: Path) -> Iterator[str]:
    """What a page sets in code within its sentences and tables."""
    text = re.sub(r"^( *)(```+|:::+).*?^\1\2 *$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def is_known(code: str, page: Path) -> bool:
    if code.startswith("torch."):
        try:
            pkgutil.resolve_name(code.removesuffix("()"))
        except (ImportError, AttributeError):
            return False
        return True
    if "/" in code:
        return any((base / code).exists() for base in (ROOT, page.parent, Path(torch.__file__).parent / "include"))
    if re.search(r"\.(py|cpp|h|md|so|yaml|toml)$", code):
        return code.endswith(".so") or any(ROOT.rglob(code))
    return all(known_words() & {word, f"test_{word}"} for word in re.findall(r"[A-Za-z_]\w{2,}", code))


# Its names are relative to torch.cuda; test_cuda_surface.py compares them with both modules.
@pytest.mark.parametrize("page", [PAGES[name] for name in PAGES if name != "docs/cuda-surface.md"], ids=str)
def test_what_a_page_names_in_code_exists(page: Path) -> None:
    names = [code for code in code_in(page) if "..." not in code and re.fullmatch(r"[\w.:/\-]+(\(\))?", code)]
    assert [name for name in names if not is_known(name, page)] == []


@every_page
def test_links_to_public_issues_say_where_they_lead(page: Path) -> None:
    for words, address in re.findall(r"\[([^\]]+)\]\((https://github\.com/[^)]+)\)", page.read_text()):
        if found := re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+)/(?:issues|pull)/(\d+)", address):
            owner, repository, number = found.groups()
            assert words in (f"{repository}#{number}", f"{owner}/{repository}#{number}")


def test_the_readmes_links_lead_to_files() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert links and [link for link in links if not (ROOT / link).exists()] == []


MODULES = ("", ".amp", ".execution", ".fallback", ".memory", ".random", ".streams")


@pytest.mark.parametrize("name", MODULES, ids=lambda name: f"torch.openreg{name}")
def test_every_public_name_has_a_docstring(name: str) -> None:
    module = importlib.import_module(f"torch_openreg.openreg{name}")
    assert module.__doc__
    described = {key: getattr(module, key) for key in module.__all__ if not key.startswith("_")}
    without = [key for key, value in described.items() if isinstance(value, type | ModuleType) or callable(value)]
    assert [key for key in without if not described[key].__doc__] == []
