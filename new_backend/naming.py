"""Decides which names a device can have, and what each name of the sources becomes under such a name."""

from __future__ import annotations

import ctypes.util
import importlib.util
import keyword
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[1] / "cmake"))

from rename import IDENTIFIER, Names

# The keywords of C++20 that are allowed as names in Python.
CXX_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t co_await
        co_return co_yield compl concept const const_cast consteval constexpr constinit decltype default delete
        do double dynamic_cast enum explicit export extern false float friend goto inline int long mutable
        namespace new noexcept not_eq nullptr operator or_eq private protected public register reinterpret_cast
        requires short signed sizeof static static_assert static_cast struct switch template this thread_local
        throw true typedef typeid typename union unsigned using virtual void volatile wchar_t xor xor_eq""",
    )
)
# Macros of g++ on Linux, and of the C library, that are written in lower case.
CXX_MACROS = frozenset({"errno", "linux", "unix"})
# Names of CMake's own targets.
CMAKE_TARGETS = frozenset({"all", "clean", "edit_cache", "help", "install", "package", "rebuild_cache", "test"})
# Names of PrivateUse1 backends that vendors publish. torch.device knows such a name only if the package is installed.
PUBLISHED = {"mlu": "torch_mlu", "musa": "torch_musa", "npu": "torch_npu"}


class BadName(ValueError):
    """A device cannot have this name. The message says why."""


def words(name: str) -> tuple[str, str, str, str]:
    """The name in each style: ``my_chip``, ``MyChip`` (classes), ``MY_CHIP`` (macros), ``myChip`` (C functions)."""
    camel = "".join(part.capitalize() for part in name.split("_"))
    return name, camel, name.upper(), camel[0].lower() + camel[1:]


def check(name: str, kind: str = "full") -> None:
    """Raises BadName if no device can have the name, or if something that is installed here has it already.

    Asks the installed PyTorch, if there is one, and imports it for this. ``kind``: a project that is "full" has a device
    library of this name, and a target of CMake. In such a project, and in a "minimal" one, the name is a namespace of
    C++. A project in "python" alone has neither.
    """
    in_cxx = kind != "python"
    _check_spelling(name)
    _check_packages(name)
    if in_cxx:
        _check_cxx(name)
    if kind == "full":
        _check_device_library(name)
    if importlib.util.find_spec("torch") is not None:
        import torch

        _check_torch(name, torch)
        if in_cxx:
            _check_namespaces(name, Path(torch.__file__).parent)
        if kind == "full" and (Path(torch.__file__).parent / "lib" / f"lib{name}.so").exists():
            raise BadName(f"{name!r} is the name of a library of PyTorch: the device library is lib{name}.so.")


def _check_spelling(name: str) -> None:
    if any(character.isdigit() for character in name):
        raise BadName(
            f"PyTorch reads {name!r} in torch.device({name!r}) up to the digit only: the name of a device has letters "
            "and underscores. Use letters, such as npu_two for npu2."
        )
    if "-" in name:
        raise BadName(f"{name!r} cannot be the name of a module or of a C++ namespace: write {name.replace('-', '_')}.")
    if re.fullmatch(r"[A-Za-z_]+", name) and name != name.lower():
        raise BadName(f"the names of PyTorch's devices are written in lower case: write {name.lower()}.")
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name):
        raise BadName(
            f"{name!r} is no name for a device: a name has the letters a to z, and single underscores between them."
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise BadName(f"{name!r} is a keyword of Python: `torch.{name}` could not be written.")
    if "openreg" in name or "occl" in name:
        raise BadName(f"{name!r} contains a name of this project, which a new one must not have.")
    if name in PUBLISHED:
        raise BadName(f"{name!r} is the device of the published package {PUBLISHED[name]}.")


def _check_cxx(name: str) -> None:
    if name in CXX_KEYWORDS:
        raise BadName(f"{name!r} is a keyword of C++: `namespace c10::{name}` could not be written.")
    if name in CXX_MACROS:
        raise BadName(f"{name!r} is a macro in C++ on Linux: `namespace c10::{name}` could not be written.")


def _check_device_library(name: str) -> None:
    if name in CMAKE_TARGETS:
        raise BadName(f"{name!r} is the name of a target that CMake makes in each project.")
    library = ctypes.util.find_library(name)
    if library is not None:
        raise BadName(
            f"{name!r} is the name of a library of this system, {library}: the device library is lib{name}.so."
        )


def _check_packages(name: str) -> None:
    for package in (f"torch_{name}", f"torch_{name}_autoload"):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:  # an origin of None: a folder without __init__.py
            raise BadName(
                f"a package {package} is installed here already: {spec.origin}. Uninstall it, or take another name."
            )


def _check_torch(name: str, torch: ModuleType) -> None:
    try:
        torch.device(name)
    except RuntimeError:
        pass
    else:
        raise BadName(f"{name!r} is a device of PyTorch already: torch.device({name!r}) exists.")
    for owner, text in ((torch, "torch"), (torch.Tensor, "torch.Tensor"), (torch.nn.Module, "torch.nn.Module")):
        if hasattr(owner, name):
            raise BadName(f"{text}.{name} exists already, and a device of this name would be found there.")
    if any(operator.startswith(f"{name}::") for operator in torch._C._dispatch_get_all_op_names()):
        raise BadName(f"PyTorch has operators in the namespace {name!r} already.")


def _check_namespaces(name: str, torch: Path) -> None:
    headers = torch / "include"
    opened = re.compile(rf"\bnamespace\s+(?:\w+::)*{name}\b".encode())
    for header in (header for folder in ("ATen", "c10", "torch") for header in (headers / folder).rglob("*.h")):
        if opened.search(header.read_bytes()):
            raise BadName(
                f"PyTorch has a C++ namespace {name!r} ({header.relative_to(headers)}), in which the new backend's "
                "names would meet PyTorch's."
            )


def full_table(name: str, texts: Iterable[str]) -> Names:
    """The table for the whole project. ``texts``: the files' contents and names, from which the identifiers are taken.

    Raises BadName if the sources use a new identifier for something else already.
    """
    lower, camel, upper, c_prefix = words(name)
    pairs = {
        "_ZN2at7openreg7": f"_ZN2at{len(lower)}{lower}7",  # a mangled name contains the length
        "openreg": lower,
        "OpenReg": camel,
        "OPENREG": upper,
        "occl": lower.replace("_", "") + "ccl",
        "Occl": lower.replace("_", "").capitalize() + "ccl",
        "OCCL": upper.replace("_", "") + "CCL",
    }
    old = re.compile("|".join(pairs))
    prefix = re.compile(r"\bor(?=[A-Z])")  # the prefix of the device library's C functions and types

    def renamed(identifier: str) -> str:
        return prefix.sub(c_prefix, old.sub(lambda match: pairs[match[0]], identifier))

    phrases = {"torch-openreg": f"torch-{lower.replace('_', '-')}", **_articles("openreg", lower)}
    return _table(name, texts, renamed, "(?i:openreg|occl)|^or[A-Z]", phrases)


def word_table(old: str, name: str, texts: Iterable[str]) -> Names:
    """The table for a project whose device has a name of one word that the project uses for nothing else."""
    pairs = dict(zip((old, old.capitalize(), old.upper()), words(name), strict=False))
    pattern = re.compile("|".join(pairs))

    def renamed(identifier: str) -> str:
        return pattern.sub(lambda match: pairs[match[0]], identifier)

    return _table(name, texts, renamed, f"(?i){old}", _articles(old, name))


def _table(
    name: str, texts: Iterable[str], renamed: Callable[[str], str], covers: str, phrases: Mapping[str, str]
) -> Names:
    found = {identifier for text in texts for identifier in re.findall(IDENTIFIER, text)}
    table = {identifier: renamed(identifier) for identifier in found if re.search(covers, identifier)}
    taken = sorted(set(table.values()) & (found - set(table)))
    if taken:
        raise BadName(f"the sources use {', '.join(taken[:3])} for something else. Take another name than {name!r}.")
    return Names(identifiers=table, covers=covers, phrases=phrases)


def _articles(old: str, new: str) -> dict[str, str]:
    """ "an openreg device" becomes "a bolt device" or "an acme device"."""
    quotes = ("", "`", "``", "'", '"', '\\"')
    pairs = [(old, new), *([("OpenReg", words(new)[1])] if old == "openreg" else [(old.capitalize(), words(new)[1])])]

    def article(word: str) -> str:
        return "an" if word[0].lower() in "aeiou" else "a"

    phrases = {}
    for before, after in pairs:
        for quote in quotes:
            for capital in (str, str.capitalize):
                phrases[f"{capital(article(before))} {quote}{before}"] = f"{capital(article(after))} {quote}{after}"
    return phrases
