"""Copies C++ sources with other identifiers, as PyTorch's hipify makes the sources of ROCm from those of CUDA.

The copy of a file has the same relative path. A table gives identifiers their new names, and says which identifiers
must have one. If a file has such an identifier and the table has no name for it, UnknownName lists the identifier with
its file and line, and nothing is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

IDENTIFIER = r"[A-Za-z_]\w*"


class UnknownName(Exception):
    """A name that the table must cover is not in the table. The message lists each such name with its file and line."""


@dataclass(frozen=True)
class Names:
    """The table of names.

    ``identifiers`` gives whole identifiers their new names, in code, comments and string literals. ``phrases`` does so
    for texts of more than one identifier. A phrase is replaced before an identifier that begins at the same position;
    of several phrases, the longest is replaced. An identifier in which the regular expression ``covers`` is found must
    have a new name, or be part of a phrase.
    """

    identifiers: Mapping[str, str]
    covers: str
    phrases: Mapping[str, str] = field(default_factory=dict)

    def rename(self, text: str, file: str = "<text>") -> str:
        """``text`` under the new names. Raises UnknownName, which names ``file``."""
        longest_first = sorted(self.phrases, key=len, reverse=True)
        names = re.compile("|".join([*map(re.escape, longest_first), IDENTIFIER]))
        covered = re.compile(self.covers)
        unknown = []

        def rename_one(match: re.Match[str]) -> str:
            name = match[0]
            if name in self.phrases:
                return self.phrases[name]
            if name not in self.identifiers and covered.search(name):
                unknown.append(f"{file}:{text.count(chr(10), 0, match.start()) + 1}: {name}")
            return self.identifiers.get(name, name)

        renamed = names.sub(rename_one, text)
        if unknown:
            raise UnknownName("\n".join(unknown))
        return renamed


def rename_files(source: Path, target: Path, files: Iterable[str], names: Names) -> None:
    """Writes each of ``files`` (paths in ``source``) to ``target``. An unchanged file keeps its time stamp."""
    renamed, unknown = {}, []
    for file in files:
        try:
            renamed[target / file] = names.rename((source / file).read_text(), file)
        except UnknownName as error:
            unknown.append(str(error))
    if unknown:
        raise UnknownName("\n".join(unknown))
    for path, text in renamed.items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
