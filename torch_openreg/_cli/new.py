"""``torch-openreg new``: writes this backend, or one of two small example backends, under another name.

In a checkout, the command uses the sources of the checkout. An installed package contains the sources as
``sources.zip``, which the build made from the checkout or from the source distribution. The folder ``new_backend`` is a
part of these sources.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch_openreg


def main(argv: Sequence[str]) -> int:
    """Writes the project and returns 0. Prints an error and returns 1 if the name or the folder cannot be used."""
    parser = argparse.ArgumentParser(
        prog="torch-openreg new",
        description="Writes a PyTorch backend for a device of your own, as a project that builds and passes its tests.",
        epilog="example: torch-openreg new acme --output torch_acme",
    )
    parser.add_argument("name", metavar="NAME", help="the type of the device, as in torch.device(NAME)")
    parser.add_argument("--output", metavar="DIR", type=Path, help="a new or empty folder (default: torch_NAME)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--minimal", action="store_true", help="the smallest backend in C++ that trains a network")
    kind.add_argument("--python", action="store_true", help="a backend in Python alone")
    options = parser.parse_args(argv)
    output = options.output or Path(f"torch_{options.name}")
    with ExitStack() as stack:
        sys.path.insert(0, str(_sources(stack)))
        naming = importlib.import_module("new_backend.naming")
        writing = importlib.import_module("new_backend.writing")
        try:
            if options.minimal or options.python:
                writing.write_example("minimal" if options.minimal else "python", options.name, output)
            else:
                writing.write_full(options.name, output)
        except (naming.BadName, OSError) as error:
            print(f"torch-openreg new: {error}", file=sys.stderr)
            return 1
    full = not (options.minimal or options.python)
    first, build = ("make format && ", "make demo && make test") if full else ("", "pip install --no-build-isolation .")
    print(f"{output} holds the backend of the device {options.name!r}. Its README.md says what to do next:")
    print(f"  cd {output} && git init && {first}git add -A && git commit -m start && {build}")
    return 0


def _sources(stack: ExitStack) -> Path:
    """The folder of the sources: the checkout, or a temporary folder that ``stack`` removes."""
    package = Path(torch_openreg.__file__).parent
    if (package.parent / "new_backend" / "writing.py").exists():
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
