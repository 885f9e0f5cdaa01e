"""``torch-openreg new``: writes this backend, or one of two small example backends, under another name.

The program that writes it is a part of the sources: the folder ``new_backend``. In a checkout, the command uses the
sources of the checkout. An installed package contains the sources as ``sources.zip``, which the build made from the
checkout or from the source distribution.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path


def main(argv: Sequence[str]) -> int:
    """Runs the program ``new_backend`` of the sources in a process of its own. Returns its exit status."""
    with ExitStack() as stack:
        return subprocess.call([sys.executable, str(sources(stack) / "new_backend"), *argv])


def sources(stack: ExitStack) -> Path:
    """The folder of the sources: the checkout, or a temporary folder that ``stack`` removes."""
    package = Path(__file__).parents[1]
    if (package.parent / "new_backend" / "__main__.py").exists():
        return package.parent
    archive = min(package.rglob("sources.zip"))  # a wheel has one for each PyTorch, all with the same contents
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    with zipfile.ZipFile(archive) as sources:
        for member in sources.infolist():
            target = folder / member.filename
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.external_attr >> 28 == 0xA:  # a symbolic link, which zipfile would write as a file
                target.symlink_to(sources.read(member).decode())
            else:
                sources.extract(member, folder)
                target.chmod(member.external_attr >> 16)
    return folder
