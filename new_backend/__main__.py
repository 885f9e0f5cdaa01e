"""``torch-openreg new`` runs this program: ``python new_backend NAME [--output DIR] [--minimal | --python]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from new_backend import naming, writing  # noqa: E402


def main() -> int:
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
    options = parser.parse_args()
    output = options.output or Path(f"torch_{options.name}")
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


if __name__ == "__main__":
    sys.exit(main())
