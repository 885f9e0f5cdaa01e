"""The options of ``torch-openreg run`` and of the pytest plugin. Each option sets one environment variable.

This module imports nothing of torch_openreg: that would import torch, and some of the variables must be set before torch
is imported.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Container, Mapping
from pathlib import Path

# The device's own type, and those that torch_openreg._identity finds.
_OTHERS = Path(__file__).parents[1].glob("_*/_identity.py")
_TYPES = (*sorted(path.parent.name[1:] for path in _OTHERS), "openreg")

Allowed = tuple[str, ...] | range | str  # a str: any text is allowed, and the help shows the str in its place

OPTIONS: tuple[tuple[str, str, Allowed, str], ...] = (
    # (name, environment variable, allowed values, help)
    ("as", "TORCH_OPENREG_AS", _TYPES, "the type of the simulated devices (default: openreg)"),
    ("model", "OPENREG_MODEL", "NAME|FILE", "the accelerator that the devices stand for, such as cuda-t4"),
    ("device-count", "OPENREG_DEVICE_COUNT", range(1, 65), "the number of simulated devices (default: 2)"),
    ("memory", "OPENREG_DEVICE_MEMORY", "SIZE", "the memory of each device, such as 512M (default: 16G)"),
    (
        "execution",
        "OPENREG_EXECUTION",
        ("inline", "async", "chaos", "early", "late", "random:SEED"),
        "when queued operators run (default: inline)",
    ),
    ("seed", "OPENREG_CHAOS_SEED", range(2**64), "the seed of the order of work in the mode chaos (default: 0)"),
    ("poison", "OPENREG_POISON", ("0", "1"), "1: fresh and freed memory holds NaN (default: 0)"),
    (
        "fallback",
        "TORCH_OPENREG_FALLBACK",
        "POLICY",
        "silent, warn or error, for operators that fall back",
    ),
    ("faults", "OPENREG_FAULTS", "FAULTS", "what goes wrong on purpose, such as malloc:3=oom"),
    (
        "sanitize",
        "OPENREG_SANITIZER",
        "CHECKS",
        "what the sanitizer looks for: race, init, memory, leak, graph, joined by commas",
    ),
    ("triton", "OPENREG_TRITON", ("refuse", "interpret"), "interpret: Triton's interpreter runs Triton's kernels"),
)


def early_package() -> str | None:
    """The package that must be imported before torch for the type in TORCH_OPENREG_AS, if the type has such a package.

    None if it is imported already. Python does so when it starts, but reads .pth files in site directories only: not
    with -S, and not in a folder of PYTHONPATH or of ``pip install --target``.
    """
    name = f"torch_openreg_{(device_type := os.environ.get('TORCH_OPENREG_AS'))}"
    return name if device_type in _TYPES and name not in sys.modules and importlib.util.find_spec(name) else None


def program_parser(command: str, description: str, script: str, epilog: str) -> argparse.ArgumentParser:
    """The parser of a command that runs a program as ``python`` does. ``script``: what SCRIPT may be."""
    parser = argparse.ArgumentParser(
        prog=f"torch-openreg {command}",
        usage="%(prog)s [OPTIONS] SCRIPT [ARGUMENTS]\n       %(prog)s [OPTIONS] -m MODULE [ARGUMENTS]",
        description=description,
        epilog=epilog,
        allow_abbrev=False,
    )
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is a module, as with `python -m`")
    parser.add_argument("program", metavar="SCRIPT", help=script)
    parser.add_argument("arguments", metavar="ARGUMENTS", nargs=argparse.REMAINDER, help="the program's own arguments")
    return parser


def seed_of(execution: str, chaos_seed: str) -> str | None:
    """The seed of a value of OPENREG_EXECUTION that lets work run in a chosen order. None for the other values.

    ``chaos_seed``: the value of OPENREG_CHAOS_SEED, which holds for ``chaos``.
    """
    name, _, seed = execution.partition(":")
    return {"chaos": chaos_seed, "late": "0", "random": seed}.get(name)


def metavar(allowed: Allowed) -> str:
    """The text with which the help shows the allowed values."""
    if isinstance(allowed, str):
        return allowed
    return "N" if isinstance(allowed, range) else "|".join(allowed)


def reader(allowed: Allowed) -> Callable[[str], str]:
    """The ``type`` of an option for argparse. It returns the text, or raises an error that names the allowed values."""

    def read(text: str) -> str:
        if isinstance(allowed, str):
            return text
        if isinstance(allowed, range):
            if text.isascii() and text.isdigit() and int(text) in allowed:
                return text
            expected = f"a number from {allowed[0]} to {allowed[-1]}"
        else:
            name, colon, seed = text.partition(":")
            if text in allowed and not colon:
                return text
            if f"{name}:SEED" in allowed and seed.isascii() and seed.isdigit() and 0 < int(seed) < 2**64:
                return text
            expected = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        raise argparse.ArgumentTypeError(f"{text!r} is not valid: expected {expected}")

    return read


def add_options(
    parser: argparse.ArgumentParser, names: Container[str] | None = None, helps: Mapping[str, str] | None = None
) -> None:
    """Adds those of OPTIONS that ``names`` has (None: all). ``helps``: help that takes the place of that of OPTIONS."""
    for name, variable, allowed, text in OPTIONS:
        if names is None or name in names:
            parser.add_argument(
                f"--{name}",
                dest=variable,
                metavar=metavar(allowed),
                type=reader(allowed),
                help=f"{(helps or {}).get(name, text)}; sets {variable}",
            )


def command_of(options: argparse.Namespace) -> list[str]:
    """Sets the environment variables of the options, and returns the command that runs the program with them."""
    for _, variable, *_ in OPTIONS:
        if (value := getattr(options, variable, None)) is not None:
            os.environ[variable] = value
    # The interpreter of the program gets Python's own options, as in `python -X dev -m torch_openreg run ...`.
    python = sys.orig_argv[1 : -len(sys.argv)]
    if python[-1:] == ["-m"]:
        python.pop()
    if package := early_package():
        python += ["-c", f"import {package}; {package}.launch()"]
    module = ["-m"] if options.is_module else []
    return [sys.executable, *python, *module, options.program, *options.arguments]
