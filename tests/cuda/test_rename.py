"""cmake/rename.py and the table of names, which make the face "cuda" from the sources of the device openreg."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACE = ROOT / "faces" / "cuda" / "names.py"

sys.path.insert(0, str(ROOT / "cmake"))
from rename import Names, UnknownName, rename_files  # noqa: E402

LEFT_OUT = re.findall(r"/(\w+\.cpp)", (FACE.parent / "CMakeLists.txt").read_text())

NAMES = Names(
    identifiers={"PrivateUse1": "Acme", "is_privateuseone": "is_acme"},
    phrases={"an openreg device": "an acme device", "at::PrivateUse1Hooks": "PrivateUse1Hooks"},
    covers="(?i)privateuse",
)


def headers_of(file: Path) -> list[Path]:
    """The headers of csrc that a file includes, by their path from csrc or from the file's folder."""
    included = re.findall(r'#include "(.+?)"', file.read_text())
    return [next(path for path in (ROOT / "csrc" / name, file.parent / name) if path.exists()) for name in included]


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


def test_no_name_of_privateuse1_is_left_in_the_face_cuda() -> None:
    names = runpy.run_path(str(FACE))["NAMES"]
    files = [*ROOT.glob("csrc/**/*.cpp"), *ROOT.glob("csrc/**/*.h"), *ROOT.glob("torch_openreg/csrc/*.cpp")]
    files = [file for file in files if file.name not in LEFT_OUT]
    assert len(files) > 70
    for file in files:
        assert not re.search("(?i)privateuse(?!2)", names.rename(file.read_text(), file.name)), file


def test_what_is_compiled_once_for_every_face_has_no_name_that_a_face_changes() -> None:
    names = runpy.run_path(str(FACE))["NAMES"]
    files = []
    for folder in (ROOT / "csrc", ROOT / "torch_openreg" / "csrc"):
        cmake = (folder / "CMakeLists.txt").read_text()
        listed = re.findall(r"set\((?:BORROWED_)?ON_EVERY_FACE(.*?)\)", cmake, re.S)
        files += [folder / file for file in re.findall(r"[\w/]+\.cpp", "".join(listed))]
    assert len(files) > 50
    for file in files:  # and the headers that they include: the loop also reads what it appends
        code = re.sub(r'("(?:\\.|[^"\\\n])*")|//.*', lambda match: match[1] or "", file.read_text())
        assert names.rename(code, file.name) == code
        files += [header for header in headers_of(file) if header not in files]


def test_the_build_stops_at_a_name_that_the_face_cuda_lacks(tmp_path: Path) -> None:
    (tmp_path / "new.cpp").write_text("\nauto key = DispatchKey::FuncTorchPrivateUse1;\n")
    command = [sys.executable, FACE, tmp_path, tmp_path / "target", "new.cpp"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (
        1,
        "faces/cuda/names.py has no name on CUDA for:\nnew.cpp:2: FuncTorchPrivateUse1\n",
    )


def test_every_row_of_the_table_is_needed() -> None:
    names = runpy.run_path(str(FACE))["NAMES"]
    folders = [ROOT / "csrc", ROOT / "torch_openreg" / "csrc"]
    text = "".join(file.read_text() for folder in folders for file in folder.rglob("*.*"))
    known = set(re.findall(r"[A-Za-z_]\w*", text))
    assert [name for name in names.identifiers if name not in known] == []
    assert [phrase for phrase in names.phrases if phrase not in text] == []
