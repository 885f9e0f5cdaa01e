"""The dynamic symbols of a shared library, as the dynamic loader sees them. Reads 64-bit little-endian ELF files."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import NamedTuple

_DYNSYM, _GNU_HASH = 11, 0x6FFFFFF6  # types of sections
GLOBAL = 1  # a binding: neither weak nor unique
FUNCTION, OBJECT = 2, 1  # types of symbols


class Symbol(NamedTuple):
    """One row of the table.

    Args:
        name: as the compiler has made it.
        type: FUNCTION, OBJECT or another one.
        binding: GLOBAL or another one.
        size: in bytes.
    """

    name: str
    type: int
    binding: int
    size: int


class Library:
    """A shared library that is read, and not opened."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        (offset,) = struct.unpack_from("<Q", self._data, 0x28)
        size, count = struct.unpack_from("<HH", self._data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", self._data, offset + size * index) for index in range(count)]
        sections = {header[1]: header for header in headers}
        self._table, self._hash = sections[_DYNSYM][4:6], sections[_GNU_HASH][4]
        self._names = headers[sections[_DYNSYM][6]][4]

    def symbols(self, defined: bool) -> Iterator[Symbol]:
        """The symbols that the library has, or those that it takes from other libraries."""
        start, size = self._table
        for name, info, _, section, _, length in struct.iter_unpack("<IBBHQQ", self._data[start : start + size]):
            if (section != 0) == defined:
                yield Symbol(self._name(name), info & 15, info >> 4, length)

    def _name(self, offset: int) -> str:
        start = self._names + offset
        return self._data[start : self._data.find(b"\0", start)].decode()

    def defines(self, name: str, code: int) -> bool:
        """Whether the library defines the symbol. ``code`` is gnu_hash(name)."""
        buckets, first, words, shift = struct.unpack_from("<IIII", self._data, self._hash)
        filter_ = self._hash + 16
        (word,) = struct.unpack_from("<Q", self._data, filter_ + code // 64 % words * 8)
        if not word >> code % 64 & word >> (code >> shift) % 64 & 1:
            return False
        start = filter_ + 8 * words
        (index,) = struct.unpack_from("<I", self._data, start + code % buckets * 4)
        while index >= first:
            (found,) = struct.unpack_from("<I", self._data, start + (buckets + index - first) * 4)
            if found | 1 == code | 1:
                (offset,) = struct.unpack_from("<I", self._data, self._table[0] + index * 24)
                if self._name(offset) == name:
                    return True
            if found & 1:
                break
            index += 1
        return False


def gnu_hash(name: str) -> int:
    code = 5381
    for byte in name.encode():
        code = code * 33 + byte & 0xFFFFFFFF
    return code
