"""``torch-openreg run``: runs a program with the settings of the simulated devices that the options give.

This process becomes ``python program ...`` with the environment variables set, as if the user had set the variables.
If the program cannot be found, Python prints its own error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from torch_openreg.simulator._options import OPTIONS, early_package, metavar, program_parser, reader


def main(argv: Sequence[str]) -> NoReturn:
    """Does not return. The program's exit status becomes the command's."""
    parser = program_parser(
        "run",
        "Runs a Python program with the environment variables that the options set.",
        script="what `python` takes: a file, a folder or an archive",
        epilog="example: torch-openreg run --as cuda --device-count 4 train.py --epochs 2",
    )
    for name, variable, allowed, text in OPTIONS:
        parser.add_argument(
            f"--{name}", dest=variable, metavar=metavar(allowed), type=reader(allowed), help=f"{text}; sets {variable}"
        )
    options = parser.parse_args(argv)
    for _, variable, *_ in OPTIONS:
        if (value := getattr(options, variable)) is not None:
            os.environ[variable] = value
    # The interpreter of the program gets Python's own options, as in `python -X dev -m torch_openreg run ...`.
    python = sys.orig_argv[1 : -len(sys.argv)]
    if python[-1:] == ["-m"]:
        python.pop()
    if package := early_package():
        python += ["-c", f"import {package}; {package}.launch()"]
    module = ["-m"] if options.is_module else []
    os.execv(sys.executable, [sys.executable, *python, *module, options.program, *options.arguments])
