"""Reads which of PyTorch's interfaces this package uses, from its sources, and what they are in an unpacked PyTorch.

An interface is one of three: a virtual function of a class that a class of this package derives from; an operator that
this package registers; a name of a Python module that this package imports, calls or replaces. Nothing is imported or
compiled, so that a PyTorch without libraries can be read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
CLASS = re.compile(
    r"\b(?:class|struct)\s+(?:[A-Z_0-9]+(?:\([^)]*\))?\s+)?(?P<name>[\w:]+)\s*(?:final\s*)?(?::(?P<bases>[^;{}()]*))?\{"
)
# The headers with the classes that a backend derives from.
HEADERS = (
    "c10/core/**/*.h", "ATen/*.h", "ATen/core/*.h", "ATen/detail/*.h", "kineto/*.h",
    "torch/csrc/distributed/c10d/*.hpp", "torch/csrc/profiler/**/*.h",
)  # fmt: skip


def blocks(text: str) -> Iterator[tuple[str, list[str], str]]:
    """Name, names of the bases, and body of each class of a file."""
    text = COMMENT.sub(lambda found: '""' if found[0].startswith('"') else " ", text)
    for found in CLASS.finditer(text):
        depth, end = 1, found.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        bases = re.sub(r"<.*?>", "", found["bases"] or "")
        names = re.sub(r"\b(public|private|protected|virtual)\b", "", bases).split(",")
        yield found["name"], [name.strip() for name in names if name.strip()], text[found.end() : end - 1]


def members(body: str) -> Iterator[str]:
    """The declarations of a class without the bodies of its functions and of its nested classes."""
    depth, brackets, declaration = 0, 0, ""  # braces within brackets belong to the default of an argument
    for character in body:
        if depth == 0:
            brackets += {"(": 1, ")": -1}.get(character, 0)
        if brackets:
            declaration += character
            continue
        depth -= character == "}"
        if depth == 0:
            if character in ";}{":
                yield re.sub(r"\s+", " ", declaration).strip()
                declaration = ""
            else:
                declaration += character
        depth += character == "{"


def virtual_functions(body: str) -> dict[str, frozenset[str]]:
    """The virtual functions of a class: name -> declarations, without names and defaults of the arguments."""
    found: dict[str, set[str]] = {}
    for declaration in members(re.sub(r"\b(public|private|protected):", "", body)):
        match = re.search(r"\bvirtual (.*?)(\w+) ?\((.*)\)([^()]*)$", declaration)
        if match and not declaration.startswith("virtual ~"):
            result, name, arguments, rest = match.groups()
            types = [argument_type(argument) for argument in split_arguments(arguments)]
            qualifiers = " ".join(re.findall(r"\bconst\b|\bnoexcept\b", rest))
            found.setdefault(name, set()).add(f"{result}{name}({', '.join(types)}) {qualifiers}".strip())
    return {name: frozenset(declarations) for name, declarations in found.items()}


def split_arguments(text: str) -> list[str]:
    """The arguments of a function: the commas within brackets separate nothing."""
    parts, depth = [""], 0
    for character in text:
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def argument_type(argument: str) -> str:
    argument = re.sub(r"\s*=.*", "", argument)
    return (
        re.sub(r"(?<=[\w>&*]) ?(?<![:\w])\b(?!const\b|int\b|bool\b|long\b)[a-z_]\w*$", "", argument).strip() or argument
    )


class Used:
    """What this package uses of PyTorch."""

    def __init__(self, root: Path = ROOT) -> None:
        sources = [path for suffix in ("h", "cpp") for path in (root / "csrc").rglob(f"*.{suffix}")]
        sources += [path for suffix in ("h", "cpp") for path in (root / "torch_openreg").rglob(f"*.{suffix}")]
        texts = {path: path.read_text() for path in sorted(sources)}
        own = [block for text in texts.values() for block in blocks(text)]
        names = {name.split("::")[-1] for name, _, _ in own}
        self.includes = frozenset(
            name for text in texts.values() for name in re.findall(r"#include <((?:c10|ATen|torch|kineto)/.*)>", text)
        )
        self.overrides: dict[str, set[str]] = {}  # class of PyTorch's -> functions that this package overrides
        for _, bases, body in own:
            for base in bases:
                *owner, last = base.split("::")
                if last not in names and not (
                    owner and owner[-1][0].isupper()
                ):  # a nested class has no name of its own
                    functions = re.findall(r"(\w+) ?\([^;{}]*\)[^;{}()]*\boverride\b", body)
                    self.overrides.setdefault(last, set()).update(functions)
        self.operators = frozenset(
            name for text in texts.values() for name in re.findall(r'\bm(?:_)?\.impl\(\s*"(?:aten::)?([\w.]+)"', text)
        )
        self.names = frozenset(name for path in (root / "torch_openreg").rglob("*.py") for name in python_names(path))


def python_names(path: Path) -> set[str]:
    """The dotted names of torch that a module of Python imports, reads, or has in a table as a text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "torch":
            found.update(f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names if name.name.startswith("torch."))
        elif isinstance(node, ast.Attribute) and (name := dotted(node)).startswith("torch."):
            found.add(name)
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("Replaced"):
            owner_and_name = [argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant)]
            found.add(".".join(map(str, owner_and_name)).replace(":", "."))
    return found


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of an expression that is such a name, otherwise an empty text."""
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""


class Torch:
    """A PyTorch that can be read: an unpacked wheel, or the folder where pip installed one."""

    def __init__(self, folder: Path) -> None:
        self.python = folder
        functions = folder / "torchgen/packaged/ATen/native/native_functions.yaml"
        entries = yaml.load(functions.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self.schemas = {entry["func"].partition("(")[0]: entry["func"] for entry in entries}
        self.texts = [
            path.read_text(errors="replace")
            for names in HEADERS
            for path in sorted((folder / "torch" / "include").glob(names))
        ]

    @cache  # noqa: B019 (there is one object for each PyTorch)
    def declared(self, name: str) -> tuple[list[str], str]:
        """Names of the bases, and body, of a class."""
        wanted = re.compile(rf"\b(class|struct)\b[^;{{}}()<>]*\b{name}\b[^;{{}}()]*\{{")
        for text in self.texts:
            if name in text and wanted.search(text):
                for found, bases, body in blocks(text):
                    if found == name and (bases or "virtual" in body):
                        return bases, body
        return [], ""

    def functions(self, name: str) -> dict[str, frozenset[str]]:
        """The virtual functions of a class and of its bases."""
        bases, body = self.declared(name)
        found: dict[str, frozenset[str]] = {}
        for base in bases:
            if base.split("::")[-1] != name:
                found.update(self.functions(base.split("::")[-1]))
        return {**found, **virtual_functions(body)}

    @cache  # noqa: B019 (there is one object for each PyTorch)
    def module(self, name: str) -> dict[str, str] | None:
        """The names of a module: name -> signature of a function, "class", or "value". None: there is no such module."""
        path = self.python / name.replace(".", "/")
        for file in (path / "__init__.py", path.with_suffix(".py"), path / "__init__.pyi", path.with_suffix(".pyi")):
            if file.exists():
                return dict(definitions(ast.parse(file.read_text())))
        return None

    def signature(self, name: str) -> str | None:
        """What a dotted name is: of a class's method too. None: there is no such name, or a star import brings it."""
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            names = self.module(".".join(parts[:length]))
            if names is not None:
                rest = parts[length:]
                return names.get(".".join(rest[:2]), names.get(rest[0])) if rest else "module"
        return None


def definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name and kind of each definition of a module, and of each method: ``Class.method``."""
    for node in tree.body:
        yield from definition(node)


def definition(node: ast.stmt, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            argument.annotation = None
        yield prefix + node.name, f"({ast.unparse(arguments)})"
    elif isinstance(node, ast.ClassDef):
        yield prefix + node.name, "class"
        for member in node.body:
            yield from definition(member, f"{node.name}.") if not prefix else ()
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((prefix + (name.asname or name.name), "import") for name in node.names)
    elif isinstance(node, ast.Assign):
        yield from ((prefix + target.id, "value") for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield prefix + node.target.id, "value"
    elif isinstance(node, (ast.If, ast.Try, ast.With)):
        for member in (*node.body, *getattr(node, "orelse", ())):
            yield from definition(member, prefix)


def changes(versions: Iterable[tuple[str, Mapping[str, object]]]) -> Iterator[tuple[str, str, object, object]]:
    """Version, interface, what it was, and what it is, for each change from one version to the next. None: absent."""
    previous: Mapping[str, object] | None = None
    for version, interfaces in versions:
        if previous is not None:
            for name in sorted({*previous, *interfaces}):
                if previous.get(name) != interfaces.get(name):
                    yield version, name, previous.get(name), interfaces.get(name)
        previous = interfaces
