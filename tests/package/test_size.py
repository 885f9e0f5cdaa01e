"""No function and no class has more lines than a reader can keep in mind.

lizard measures the functions; it knows no classes of C++. A class has the lines of its body, from ``class`` to the
closing brace, and the lines of its members that are defined outside its body. A class that another class only declares
(``class SharedCommunicator::Collective``) counts for itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("csrc", "third_party", "torch_openreg/csrc")
LIMIT = 400
FUNCTION_LIMIT = 60
# A long function that has hardly a branch is a table, of operators or bindings: a reader takes one row at a time.
BRANCHES_OF_A_TABLE = 5

# Comments, strings, characters and lines of the preprocessor: a brace in them opens and closes nothing.
NO_CODE = re.compile(
    r"//[^\n]*"
    r"|/\*.*?\*/"
    r'|\bR"(\w*)\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![\da-fA-F])'(?:\\.|[^'\\\n])+'"
    r"|^[ \t]*#(?:\\\n|[^\n])*",
    re.S | re.M,
)
NAMESPACE = re.compile(r"(?:inline )?namespace\b|extern$")
CLASS = re.compile(
    r"(?:template <.*>\s*|typedef )?(?:class|struct|union) (?:alignas\(\w+\) |\[\[\w+\]\] |[A-Z_]+ )*"
    r"(\w+(?:::\w+)*)(?:<.*>)?(?: final)?\s*(?::[^:].*)?",
    re.S,
)
MEMBER = re.compile(r"((?:\w+(?:<[^<>]*>)?::)+)(?:~?\w+|operator\b.*)\s*$", re.S)


def definitions(text: str) -> Iterator[tuple[str, bool, int]]:
    """For each declaration of a namespace: the text before its first brace, whether it has a brace, and its lines."""
    code = NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    start = depth = 0
    head = None
    for match in re.finditer(r"[{};]", code):
        if depth == 0 and head is None:
            start += len(code[start:]) - len(code[start:].lstrip())
            head = code[start : match.start()].strip()
            if match[0] == "}" or (match[0] == "{" and NAMESPACE.match(head)):
                start, head = match.end(), None
                continue
        has_brace = match[0] != ";"
        depth += {"{": 1, "}": -1, ";": 0}[match[0]]
        if depth == 0 and not re.match(r"\s*[,{]", code[match.end() :]):  # they follow in `A::A() : b{1}, c{2} {}`
            yield head or "", has_brace, code.count("\n", start, match.end()) + 1
            start, head = match.end(), None
    assert depth == 0


def class_sizes(texts: Mapping[str, str]) -> Counter[tuple[str, str]]:
    """The lines of each class, by the file or folder that knows the class and by its name. ``texts``: by path."""
    sizes: Counter[tuple[str, str]] = Counter()
    members = []
    for path, text in texts.items():
        folder = PurePosixPath(path).parent.as_posix()
        for head, has_brace, lines in definitions(text):
            if found := CLASS.fullmatch(head):
                if has_brace:
                    sizes[folder if path.endswith(".h") else path, found[1]] += lines
            elif found := MEMBER.search(re.split(r"[(=]", head)[0]):
                members.append((path, folder, re.sub(r"<[^<>]*>", "", found[1]).split("::")[:-1], lines))
    for path, folder, names, lines in members:
        for end in range(len(names), 0, -1):  # a class within a class: its members count where it is defined
            name = "::".join(names[:end])
            if key := next((key for key in ((path, name), (folder, name)) if key in sizes), None):
                sizes[key] += lines
                break
    return sizes


def sources() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".h", ".cpp")
    }


@pytest.mark.slow
def test_no_function_is_too_long() -> None:
    lizard = pytest.importorskip("lizard")
    folders = ("csrc", "third_party", "torch_openreg")
    files = [
        str(path) for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".h", ".py")
    ]
    functions = [(file.filename, f) for file in lizard.analyze_files(files, exts=[]) for f in file.function_list]
    assert len(functions) > 2000
    found = {
        f"{file}: {f.name}": f.length
        for file, f in functions
        if f.cyclomatic_complexity > BRANCHES_OF_A_TABLE and f.length > FUNCTION_LIMIT
    }
    assert found == {}


def test_no_class_is_too_long() -> None:
    sizes = class_sizes(sources())
    assert len(sizes) > 100
    assert {key: lines for key, lines in sizes.items() if lines > LIMIT} == {}


HEADER = """
#define OPENS { // a brace that nothing closes
namespace a::b {
class Short;  // a declaration, which is no body
struct Options { int size = 1; };

template <class T>
class [[nodiscard]] Long final : public Base<T> {
 public:
  Long(int size);
  void stop() { const char* text = "}"; }
  struct Part {
    void fill();
  };

 private:
  class Inner;  // defined in the source
  static int count;
};
} // namespace a::b
"""

SOURCE = """
namespace a::b {
namespace {
struct Options {
  char brace = '{';
};
int Long(int value) { return value; }
} // namespace

int Long::count = 0;

Long::Long(int size)
    : size_{size}, name_{"{"} {
  if (size > 0) {
    start();
  }
}

void Long::Part::fill() {
}

class Long::Inner {
  std::string text = R"(
}
)";
  bool operator()(int) const;
};

bool Long::Inner::operator()(int) const {
  return false;
}
} // namespace a::b
"""


def test_the_lines_of_a_class_are_those_of_its_body_and_of_its_members_elsewhere() -> None:
    assert class_sizes({"folder/a.h": HEADER, "folder/a.cpp": SOURCE}) == {
        ("folder", "Options"): 1,
        ("folder/a.cpp", "Options"): 3,
        ("folder", "Long"): 13 + 1 + 6 + 2,  # the body, `count`, the constructor and Part::fill()
        ("folder/a.cpp", "Long::Inner"): 6 + 3,
    }


def test_a_class_of_another_folder_has_its_own_lines() -> None:
    declaration = "struct Pool {\n  void run();\n};\n"
    texts = {"one/pool.h": declaration, "two/pool.h": declaration, "two/run.cpp": "void Pool::run() {\n  go();\n}\n"}
    assert class_sizes(texts) == {("one", "Pool"): 3, ("two", "Pool"): 6}
