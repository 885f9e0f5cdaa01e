"""cmake/rename.py, and the table of names under which the registering files are compiled for the device type cuda."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import programs
import pytest

ROOT = Path(__file__).parents[2]
CUDA = ROOT / "torch_openreg" / "_cuda" / "csrc"
NAMES_FILE = CUDA / "names.py"

sys.path.insert(0, str(ROOT / "cmake"))
from rename import Names, UnknownName, rename_files  # noqa: E402

TABLE = runpy.run_path(str(NAMES_FILE))
FOLDERS = (ROOT / "csrc", ROOT / "torch_openreg" / "csrc")
# Files that the library for cuda does not have, and the hooks, which it calls under their own name.
OTHERS = re.findall(r"[\w/]+/(\w+\.cpp)", (CUDA / "CMakeLists.txt").read_text())
SOURCES = [file for folder in FOLDERS for file in sorted(folder.rglob("*.cpp")) if file.name not in OTHERS]

NAMES = Names(
    identifiers={"PrivateUse1": "Acme", "is_privateuseone": "is_acme"},
    phrases={"an openreg device": "an acme device", "at::PrivateUse1Hooks": "PrivateUse1Hooks"},
    covers="(?i)privateuse",
)


def test_identifiers_are_renamed_whole_wherever_they_stand() -> None:
    text = 'f(PrivateUse1, x.is_privateuseone()); // PrivateUse1\n"PrivateUse1", MyPrivateLine'
    assert NAMES.rename(text) == 'f(Acme, x.is_acme()); // Acme\n"Acme", MyPrivateLine'


def test_phrases_are_renamed_before_identifiers_and_their_replacements_are_kept() -> None:
    assert NAMES.rename("an openreg device at::PrivateUse1Hooks PrivateUse1") == (
        "an acme device PrivateUse1Hooks Acme"
    )
    longer = Names(identifiers={}, phrases={"a": "1", "ab": "2"}, covers="(?!)")
    assert longer.rename("ab a") == "2 1"


def test_a_name_that_the_table_lacks_is_refused_with_its_line() -> None:
    with pytest.raises(UnknownName, match=re.escape("a.cpp:2: AutogradPrivateUse1\na.cpp:4: PRIVATEUSE1_KERNEL")):
        NAMES.rename("one\nAutogradPrivateUse1\nan openreg device\nPRIVATEUSE1_KERNEL PrivateUse1", "a.cpp")


def test_a_file_that_would_not_change_is_not_written_again(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "folder").mkdir(parents=True)
    (source / "folder" / "a.h").write_text("PrivateUse1")
    (source / "b.h").write_text("one")
    files = ["folder/a.h", "b.h"]
    rename_files(source, target, files, NAMES)
    assert [(target / file).read_text() for file in files] == ["Acme", "one"]
    written = [(target / file).stat().st_mtime_ns for file in files]
    (source / "b.h").write_text("two")
    rename_files(source, target, files, NAMES)
    assert (target / "folder" / "a.h").stat().st_mtime_ns == written[0]
    assert (target / "b.h").read_text() == "two"


def test_nothing_is_written_if_a_name_is_unknown(tmp_path: Path) -> None:
    for file, text in (("a.h", "fine"), ("b.h", "SparsePrivateUse1")):
        (tmp_path / file).write_text(text)
    with pytest.raises(UnknownName, match=re.escape("b.h:1: SparsePrivateUse1")):
        rename_files(tmp_path, tmp_path / "target", ["a.h", "b.h"], NAMES)
    assert not (tmp_path / "target").exists()


def test_the_registering_files_are_few_and_no_name_of_privateuse1_is_left_in_their_copies() -> None:
    registering = [file for file in SOURCES if TABLE["is_registering"](file.read_text())]
    assert 5 < len(registering) < 12
    for file in registering:
        assert not re.search("(?i)privateuse", TABLE["NAMES"].rename(file.read_text(), file.name)), file


def test_what_is_compiled_once_has_no_name_of_a_device_type() -> None:
    """Neither the shared files nor the headers of any file: a header has one meaning in both libraries."""
    once = [file for file in SOURCES if not TABLE["is_registering"](file.read_text())]
    headers = [file for folder in FOLDERS for file in folder.rglob("*.h") if file.name != "OpenRegHooks.h"]
    assert len(once) > 60 and len(headers) > 60
    for file in once + headers:
        code = re.sub(r'("(?:\\.|[^"\\\n])*")|//.*', lambda match: match[1] or "", file.read_text())
        found = re.findall(r"\w*(?i:privateuse(?!2))\w*|\bis_cuda\b|\bkCUDA\b|DeviceType::CUDA", code)
        assert found == [], file


def test_the_build_stops_at_a_name_that_the_table_lacks(tmp_path: Path) -> None:
    (tmp_path / "new.cpp").write_text("\nauto key = DispatchKey::FuncTorchPrivateUse1;\n")
    command = [sys.executable, NAMES_FILE, "rename", tmp_path, tmp_path / "target", "new.cpp"]
    result = programs.run(*command)
    assert (result.returncode, result.stderr) == (
        1,
        "torch_openreg/_cuda/csrc/names.py has no name on CUDA for:\nnew.cpp:2: FuncTorchPrivateUse1\n",
    )


def test_every_row_of_the_table_is_needed() -> None:
    text = "".join(file.read_text() for file in SOURCES)
    known = set(re.findall(r"[A-Za-z_]\w*", text))
    assert [name for name in TABLE["NAMES"].identifiers if name not in known] == []
