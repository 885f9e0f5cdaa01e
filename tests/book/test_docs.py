"""The book is true: it builds without a warning, its examples print what it shows, and the names in it exist.

On a page, a ``python`` block is run in the page's namespace, with `>>>` as a doctest. In a ``console`` block each line
after `$ ` is run by the shell in the root of the sources, and the lines after it are compared with the output; `...`
stands for any text. Other blocks are not run.
"""

from __future__ import annotations

import doctest
import functools
import gc
import html
import importlib
import os
import pkgutil
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import programs
import pytest
import torch
from environments import Environment
from programs import Done
from sybil import Example, Sybil
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

import torch_openreg
from torch_openreg._environment import all_variables

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RENDERED = ("cuda-surface.md", "device-model-refusals.md", "stub-operators.md")  # docs/conf.py writes them
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    if page.name not in RENDERED
}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def is_for_another_pytorch(command: str) -> bool:
    """Whether this PyTorch does not do what the page shows. The pages describe a CPU build of PyTorch 2.13."""
    # Bugs of PyTorch 2.13, which later versions show in another way, or not at all.
    return "examples/found/compiled_" in command and torch.__version__ >= "2.14"


PROGRAM = re.compile(r"((?:\w+=\S* )*)python ([^$]+?)( 2>&1| 2> /dev/null)?(?: \| (.+))?", re.DOTALL)


def printed_by(command: str) -> str:
    """What a command prints, with its errors. If a program in Python is all that the shell starts, the server does."""
    found = PROGRAM.fullmatch(command)
    if not found:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return programs.run("bash", "-c", command, cwd=ROOT, PATH=path, merged=True).stdout
    variables = dict(each.split("=", 1) for each in shlex.split(found[1]))
    merged = found[3] != " 2> /dev/null"
    printed = programs.run(sys.executable, *shlex.split(found[2]), cwd=ROOT, merged=merged, **variables).stdout
    if not found[4]:
        return printed
    return programs.run("bash", "-c", f'{found[4]} <<< "$1"', "-", printed.rstrip("\n")).stdout


def run_console(example: Example) -> None:
    """Runs each command of a transcript and compares what it prints."""
    for lines, expected in re.findall(r"^\$ (.+(?:\n> .*)*)\n((?:(?!\$ ).*\n?)*)", str(example.parsed), re.MULTILINE):
        command = lines.replace("\n> ", "\n")
        if is_for_another_pytorch(command):
            continue
        printed = printed_by(command)
        if not doctest.OutputChecker().check_output(expected, printed, OPTIONS):
            raise AssertionError(f"$ {command}\nExpected:\n{expected}\nGot:\n{printed}")


@pytest.mark.parametrize(
    "page",
    # A page with a command waits for a process.
    [pytest.param(page, marks=pytest.mark.slow if "```console" in page.read_text() else ()) for page in PAGES.values()],
    ids=PAGES,
)
def test_what_a_page_shows_runs_and_prints_that(page: Path) -> None:
    parsers = [
        PythonCodeBlockParser(doctest_optionflags=OPTIONS),
        CodeBlockParser("console", run_console),
    ]
    gc.collect()  # objects that an earlier page left would change this page's counts of memory
    for example in Sybil(parsers).parse(page).examples():
        example.evaluate()


@pytest.mark.parametrize(
    ("accelerator", "count", "devices"),
    [("openreg", 2, ["cpu", "openreg:1"]), ("cuda", 1, ["cpu", "cuda:0"]), (None, 0, ["cpu"])],
)
def test_the_devices_to_test_are_those_of_the_machine(
    accelerator: str | None, count: int, devices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = torch.device(accelerator) if accelerator else None
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: found)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: found is not None)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: count)
    examples = doctest.DocTestParser().get_examples((DOCS / "test/device-generic-tests.md").read_text())
    namespace: dict[str, Any] = {"torch": torch}
    for example in examples:
        if "DEVICES" in example.source and "parametrize" not in example.source:
            exec(example.source, namespace)
    assert namespace["DEVICES"] == devices


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    folder = tmp_path_factory.mktemp("book")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-d",
        folder / "doctrees",
        DOCS,
        folder / "html",
    ]
    return folder / "html", programs.run(*command, merged=True)


@pytest.mark.slow
def test_an_unbuilt_checkout_says_that_it_is_not_built(empty_environment: Environment) -> None:
    checkout = empty_environment.folder / "checkout"
    built = shutil.ignore_patterns("_build_info.py", "*.so", "__pycache__", "_pictures", "_reference")
    for name in ("docs", "torch_openreg"):
        shutil.copytree(ROOT / name, checkout / name, ignore=built)
    shutil.copy(ROOT / "torch_openreg_autoload.py", checkout)
    sentence = (
        f"{checkout}/torch_openreg holds the sources of torch_openreg, not a built package. "
        "Leave that folder, or build in it with: pip install --no-build-isolation -e ."
    )
    for arguments, error in (
        (["-m", "sphinx", "-q", "docs", "html"], "sphinx.errors.ConfigError: The device \"openreg\" is not available: "
         f"torch_openreg failed in check_build: ImportError: {sentence}"),
        (["-c", "import torch_openreg; torch_openreg.__version__"], f"ImportError: {sentence}\n"),
    ):  # fmt: skip
        result = programs.run(empty_environment.python, *arguments, cwd=checkout, TMPDIR=str(checkout))
        assert result.returncode and error in result.stderr, result.stderr


@pytest.mark.slow
def test_the_book_builds_without_a_warning(built: tuple[Path, Done]) -> None:
    result = built[1]
    assert (result.returncode, result.stdout) == (0, "")


class Anchors(HTMLParser):
    """The links and images of a page of the built book, and the ids in the page that a link can lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            if name == "id" and value:
                self.ids.add(value)


def test_every_link_and_image_of_the_built_book_leads_somewhere(built: tuple[Path, Any]) -> None:
    folder = built[0]
    pages = {page: Anchors(page) for page in folder.rglob("*.html")}
    assert len(pages) > 25
    for page, anchors in pages.items():
        for link in anchors.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                assert address.scheme in ("https", "data"), link
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            assert target.exists(), f"{page.relative_to(folder)}: {link}"
            if address.fragment and target in pages:
                assert unquote(address.fragment) in pages[target].ids, f"{page.relative_to(folder)}: {link}"


def test_the_reference_has_every_public_name(built: tuple[Path, Any]) -> None:
    reference = built[0] / "reference"
    ids = Anchors(reference / "openreg.html").ids | Anchors(reference / "tools.html").ids
    modules = (
        "amp",
        "default_generators",
        "dry",
        "execution",
        "fallback",
        "faults",
        "memory",
        "models",
        "nvtx",
        "profiler",
        "random",
        "sanitizer",
        "streams",
    )
    names = [f"torch.openreg.{name}" for name in torch.openreg.__all__ if name not in modules]
    names += [f"torch.openreg.fallback.{name}" for name in torch.openreg.fallback.__all__]
    assert len(names) > 80 and [name for name in names if name not in ids] == []


def words_of(page: Path) -> str:
    """The text of a built page, without the markup and with quotation marks as they were written."""
    written = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2019": "'", "\u2026": "..."})
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text())).translate(written)


@pytest.mark.parametrize("program", sorted((ROOT / "examples/tutorials").glob("*.*p*")), ids=lambda path: path.name)
def test_a_tutorial_is_in_the_book_with_every_line(program: Path, built: tuple[Path, Any]) -> None:
    shown = words_of(built[0] / "tutorials.html")
    about, *lines = program.read_text().splitlines()
    assert about.strip('"/ ').split(" Run: ")[0] in shown
    wanted = [line.removeprefix("# %% ").replace("# %%", "#") for line in lines if "LITERALINCLUDE" not in line]
    assert len(wanted) > 20 and [line for line in wanted if line not in shown] == []


def test_the_glossary_defines_the_words_in_sentences(built: tuple[Path, Any]) -> None:
    page = built[0] / "glossary.html"
    terms = (
        "device window, kernel window, CPU view, alias, poison, kernel scope, borrowed kernel, fallback, stub, route, "
        "structured kernel, meta kernel, turn, execution mode, inline, async, chaos, device identity, PrivateUse1"
    )
    defined = Anchors(page).ids
    assert [term for term in terms.split(", ") if f"term-{term.replace(' ', '-')}" not in defined] == []
    definitions = re.findall(r"<dd>(.*?)</dd>", page.read_text(), re.DOTALL)
    assert len(definitions) >= 30
    assert [d for d in definitions if not re.fullmatch(r"<p>[A-Z].*\.</p>\s*", d, re.DOTALL)] == []


def test_the_picture_of_the_libraries_has_a_box_for_each(built: tuple[Path, Any]) -> None:
    (folder,) = torch_openreg.library_paths()
    # The picture has no boxes for the libraries of the type cuda, which are made from the same sources.
    libraries = {path.name for path in Path(folder).glob("lib*.so") if "_cuda" not in path.name}
    assert len(libraries) == 3
    (picture,) = re.findall(r'<figure class="picture">.*?</figure>', (built[0] / "bring-up/index.html").read_text())
    assert libraries | {"_C.so"} <= set(re.findall(r'<text [^>]*class="code"[^>]*>([^<]+)</text>', picture))


def test_no_table_is_too_long_to_be_read(built: tuple[Path, Any]) -> None:
    """A table of more than 150 rows needs a filter, like the page of `ops`. The page of all stubs once had 459 rows."""
    for page in built[0].rglob("*.html"):
        for table in re.findall(r"<table.*?</table>", page.read_text(), re.DOTALL):
            assert table.count("<tr") <= 150, page


# ---- What is included is marked -------------------------------------------------------------------------------------

MARKER = re.compile(r"^ *(?://|#) LITERALINCLUDE (START|END): (.+)$", re.MULTILINE)


@every_page
def test_a_page_includes_sources_by_their_markers(page: Path) -> None:
    """A page may also include a whole file, or a function by its name.

    No page includes a region by the text of a line: whoever changes the line does not know that a page needs it.
    """
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


def test_every_region_that_begins_ends_and_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES.values())
    included = tuple(re.findall(r'^:start-after: ".*LITERALINCLUDE START: (.+?)(?:\\n)?"$', text, re.MULTILINE))
    unused: set[tuple[str, str]] = set()
    folders = ("csrc", "third_party", "torch_openreg", "tests", "examples")
    files = [
        file for folder in folders for pattern in ("*.py", "*.cpp", "*.h") for file in (ROOT / folder).rglob(pattern)
    ]
    assert len(files) > 100
    for file in [ROOT / "pyproject.toml", *files]:
        markers = MARKER.findall(file.read_text())
        begins, ends = ([name for kind, name in markers if kind == which] for which in ("START", "END"))
        assert (len(set(begins)), sorted(begins)) == (len(begins), sorted(ends)), file
        unused |= {(file.name, begin) for begin in begins if not begin.startswith(included)}
    assert unused == set()  # a marker that no page includes is left from an older page


# ---- What is named exists --------------------------------------------------------------------------------------------


@functools.cache
def known_words() -> set[str]:
    """Every word of our sources and of the parts of PyTorch that a backend meets."""
    inside_torch = Path(torch.__file__).parent
    files = [
        *(
            ROOT / name
            for name in ("Makefile", "project.mk", "pyproject.toml", "CMakeLists.txt", "torch_openreg_autoload.py")
        ),
        *(
            file
            for folder in (
                "csrc",
                "third_party",
                "torch_openreg",
                "tests",
                "examples",
                "cmake",
                "benchmarks",
                "release",
                "conformance",
            )
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
    """The texts between backquotes in the sentences and tables of a page."""
    text = re.sub(r"^( *)(```+|:::+).*?^\1\2 *$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def is_known(code: str, page: Path) -> bool:
    if code.startswith("torch."):
        try:
            pkgutil.resolve_name(code.removesuffix("()"))
        except (ImportError, AttributeError):
            return False
        return True
    if "/" in code or (ROOT / code).is_file():
        torch_folder = Path(torch.__file__).parent
        return any(
            (base / code).exists()
            for base in (ROOT, ROOT / "new_backend/texts", page.parent, torch_folder / "include", torch_folder.parent)
        )
    if re.search(r"\.(py|cpp|h|md|so|yaml|toml)$", code):
        return code.endswith(".so") or any(ROOT.rglob(code))
    return all(known_words() & {word, f"test_{word}"} for word in re.findall(r"[A-Za-z_]\w{2,}", code))


# Pages that name things outside of our sources. Other tests check the names of torch.cuda, of the conformance kit, and of
# the pages about PyTorch's documents and further mechanisms. docs/wheels.md explains the names of symbols in libc and
# libstdc++, docs/other-backends.md is about other people's backends, and docs/next-pytorch.md about other versions of
# PyTorch than the installed one.
OF_OTHERS = {
    f"docs/{name}.md"
    for name in (
        "mutants", "next-pytorch", "other-backends", "wheels", "pytorch-documents", "bring-up/further-mechanisms",
    )
}  # fmt: skip


@pytest.mark.parametrize("page", [PAGES[name] for name in PAGES if name not in OF_OTHERS], ids=str)
def test_what_a_page_names_in_code_exists(page: Path) -> None:
    names = [code for code in code_in(page) if "..." not in code and re.fullmatch(r"[\w.:/\-]+(\(\))?", code)]
    assert [name for name in names if not is_known(name, page)] == []


def test_the_page_of_environment_variables_is_the_table_of_them() -> None:
    page = (DOCS / "test/environment.md").read_text().partition("## As options")[0]
    written = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\|", page, re.MULTILINE)
    table = {variable.name: variable.default for variable in all_variables()}
    del table["OPENREG_ALLOC_CONF"]  # the page names it in the row of PYTORCH_ALLOC_CONF
    assert dict(written) == table
    assert len(written) == len(table)


def test_the_page_of_environment_variables_names_each_value_of_a_choice() -> None:
    page = (DOCS / "test/environment.md").read_text().partition("## As options")[0]
    for variable in all_variables():
        if variable.choices:
            (row,) = re.findall(rf"^\| `{variable.name}` \| ([^\n]*)", page, re.MULTILINE)
            default, _, meaning = row.partition("|")
            named = {default.strip(), *re.split("[,`]", meaning)}
            assert set(variable.choices) <= named, variable.name


def test_the_table_of_environment_variables_has_every_variable_that_a_file_reads_and_no_other() -> None:
    reads = (
        r"""(?:get_?env|check_env|environ\.get)\(\s*"(\w+)"|environ\["(\w+)"\]|"(\w+)" (?:not )?in os\.environ"""
        r"""|orDeviceIdentity \w+\{"(\w+)\""""
    )
    folders = ("csrc", "third_party/openreg", "torch_openreg")
    files = [ROOT / "torch_openreg_autoload.py"]
    files += [file for name in folders for file in (ROOT / name).rglob("*") if file.suffix in (".py", ".cpp", ".h")]
    read = {"".join(found) for file in files for found in re.findall(reads, file.read_text())}
    of_others = {
        "CUDA_LAUNCH_BLOCKING", "NO_COLOR", "OMP_NUM_THREADS", "PYTHONPATH", "RANK", "TORCHELASTIC_RESTART_COUNT",
    }  # fmt: skip
    assert read - of_others == {variable.name for variable in all_variables() if variable.reader}
    for variable in all_variables():
        assert not variable.reader or f'"{variable.name}"' in (ROOT / variable.reader).read_text()


CHECKED = {
    ("Selects", ""): "none",
    ("Selects", "kFirst"): "the first",
    ("Selects", "kSecond"): "the second",
    ("Selects", "kAllButFirst"): "all but the first",
    ("Selects", "kAllButSecond"): "all but the second",
    ("Selects", "kAllButThird"): "all but the third",
    ("Selects", "kAllButFirstTwo"): "all but the first two",
    ("Attends", ""): "all; with a mask or with `is_causal`, the queries and the mask",
    ("Sends", ""): "none: the bytes are sent to other processes",
}


def test_the_page_of_the_sanitizer_lists_every_operator_whose_reads_are_not_all_checked() -> None:
    page = (DOCS / "test/find-the-race.md").read_text().partition("### Reads that `init` does not check")[2]
    rows = re.findall(r"^\| (`.*`) \| (.*) \|$", page.partition("\n## ")[0], re.MULTILINE)
    written = [(name, checked) for names, checked in rows for name in names.strip("`").split("`, `")]
    source = (ROOT / "csrc/simulator/sanitizer/InitCheck.cpp").read_text()
    table = re.findall(r'^ +\{"(.+?)", (?:\{(\w+), (\w+)\}|(\w+))\},', source, re.MULTILINE)
    assert len(table) == len(re.findall(r'^ +\{"', source, re.MULTILINE)) > 50
    partial = [(name, reading or plain, operands) for name, reading, operands, plain in table]
    exempt = [each for each in partial if each[1] in ("Selects", "Attends", "Sends")]
    assert sorted(written) == sorted((name, CHECKED[reading, operands]) for name, reading, operands in exempt)


def test_the_architecture_has_a_row_for_each_folder_of_the_integration_and_names_each_header_of_the_device() -> None:
    table = (DOCS / "architecture.md").read_text().partition("## Layers")[2].partition("\n## ")[0]
    rows = {code for line in table.splitlines() if line.startswith("|") for code in line.split("|")[1].split("`")}
    folders = {f"csrc/{folder.name}" for folder in (ROOT / "csrc").iterdir() if folder.is_dir()}
    assert len(folders) > 5 and sorted(folders - rows) == []
    headers = [header.name for header in (ROOT / "third_party/openreg/include").iterdir()]
    assert "openreg.h" in headers and [name for name in headers if f"`{name}`" not in table] == []


@every_page
def test_links_to_public_issues_say_where_they_lead(page: Path) -> None:
    for words, address in re.findall(r"\[([^\]]+)\]\((https://github\.com/[^)]+)\)", page.read_text()):
        if found := re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+)/(?:issues|pull)/(\d+)", address):
            owner, repository, number = found.groups()
            assert words in (f"{repository}#{number}", f"{owner}/{repository}#{number}")


def test_the_readmes_links_lead_to_files() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text())
    assert links and [link for link in links if not (ROOT / link).exists()] == []
