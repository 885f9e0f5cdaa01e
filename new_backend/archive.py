"""Writes the sources that a new backend is made from into a zip file, which an installed package carries.

python new_backend/archive.py FILE
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from new_backend import parts  # noqa: E402

# Files that the zip file needs but a full new backend does not contain: the programs that make backends, the examples
# from which `new --minimal` and `new --python` make a backend, and the chapters that the conformance kit names.
MAKERS = ("cmake/rename.py", "docs/bring-up", "new_backend", "examples/minimal_backend", "examples/python_backend")


def main(target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted({*parts.files(ROOT), *parts.files(ROOT, MAKERS, ())}):
            path = ROOT / name
            # A fixed date, and only the permissions that git keeps, so that the same sources make the same file.
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            mode = path.lstat().st_mode
            if not path.is_symlink():
                mode = 0o100755 if mode & 0o100 else 0o100644
            member.external_attr = mode << 16
            archive.writestr(member, str(path.readlink()) if path.is_symlink() else path.read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
