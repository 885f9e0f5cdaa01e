"""The command line: ``python -m torch_openreg COMMAND`` or ``torch-openreg COMMAND``.

Each command is a module of this package with a ``main(argv) -> int``. Only the module of the chosen command is
imported. So a command starts fast, and works even if a package that another command needs is missing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence

from torch_openreg import _loader
from torch_openreg._environment import modules_of_parts

# Command -> one line of help. The module torch_openreg._cli.<command> holds the command, and may be left out.
HELP = {
    "conformance": "measure any PyTorch backend, level by level, with the conformance kit: `conformance --device npu`",
    "demo": "train a network on the device and on the CPU, and compare the two runs bit for bit",
    "doctor": "which backends `import torch` loads in this environment, which fail, why, and what to do",
    "memory": "what a snapshot of device memory shows: the peak, what held the memory, and gaps; as text or as a page",
    "new": "write a backend of another name from these sources: `new NAME --output DIR`",
    "ops": "the route that each operator takes on the device: its own kernel, the fallback, a composition",
    "trace": "what a trace of torch.profiler shows: busy and idle streams, gaps, waits, copies, kernels",
}
# Commands for which main() does not import torch first. The doctor must report even if that import hangs or aborts,
# and a command that sets environment variables must do so before the import.
WITHOUT_TORCH = ("conformance", "doctor", "memory", "new", "trace")

# The packages with commands: this one, and the folders _cli of sub-packages.
_HOMES = [sys.modules[__name__], *modules_of_parts("_cli")]
COMMANDS = {
    name: home
    for home in _HOMES
    for name in home.HELP
    if os.path.exists(os.path.join(os.path.dirname(str(home.__file__)), f"{name}.py"))
}

# Modules that only some commands use, and the packages that they come from. The extra `demo` names all of them.
EXTRAS = {"rich": "rich", "sklearn": "scikit-learn", "numpy": "numpy", "matplotlib": "matplotlib"}
# The modules that a command needs in every case.
NEEDED = {"demo": ("rich", "sklearn", "numpy")}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; ``argv`` defaults to the process's arguments."""
    parser = argparse.ArgumentParser(
        prog="torch-openreg",
        description="Tools of torch_openreg.",
        epilog="commands:\n" + "\n".join(f"  {name:<13}{COMMANDS[name].HELP[name]}" for name in sorted(COMMANDS)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="`COMMAND --help` explains it")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the command's own arguments")
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments:
        parser.print_help()
        return 2
    chosen = parser.parse_args(arguments)
    home = COMMANDS[chosen.command]
    if chosen.command not in home.WITHOUT_TORCH:
        _loader.load()
    try:
        return importlib.import_module(f"{home.__name__}.{chosen.command}").main(chosen.arguments)
    except ModuleNotFoundError as error:
        # The name can be that of a submodule: rich.console.
        module = (error.name or "").split(".")[0]
        if module not in EXTRAS:
            raise
        # The message names all missing packages, so that one installation is enough.
        needed = dict.fromkeys((*NEEDED.get(chosen.command, ()), module))
        missing = [EXTRAS[name] for name in needed if importlib.util.find_spec(name) is None]
        print(
            f"torch-openreg {chosen.command} needs packages that are not installed. Install them with\n"
            f"  pip install {' '.join(missing)}",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as in `torch-openreg ops | head`
        # Python flushes stdout when it exits. Without this line, it would then print the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
