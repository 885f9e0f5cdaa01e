"""``torch-openreg run``: runs a program with the settings of the simulated devices that the options give.

This process becomes ``python program ...`` with the environment variables set, as if the user had set the variables.
If the program cannot be found, Python prints its own error.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from torch_openreg.simulator._options import add_options, command_of, program_parser


def main(argv: Sequence[str]) -> NoReturn:
    """Does not return. The program's exit status becomes the command's."""
    parser = program_parser(
        "run",
        "Runs a Python program with the environment variables that the options set.",
        script="what `python` takes: a file, a folder or an archive",
        epilog="example: torch-openreg run --as cuda --device-count 4 train.py --epochs 2",
    )
    add_options(parser)
    command = command_of(parser.parse_args(argv))
    os.execv(command[0], command)
