"""``torch-openreg conformance``: measures any PyTorch backend with the conformance kit.

The kit is a program of the sources, in the folder ``conformance``. An installed package carries the sources: see
`new`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from torch_openreg._cli.new import sources
from torch_openreg._identity import identity


def main(argv: Sequence[str]) -> int:
    """Runs the kit in a process of its own. Returns its exit status.

    A process has one device of the type PrivateUse1. So `import torch` does not load this package if another device is
    measured.
    """
    known = argparse.ArgumentParser(add_help=False)
    known.add_argument("--device")
    device = known.parse_known_args(argv)[0].device
    with ExitStack() as stack:
        path = [str(sources(stack) / "conformance"), os.environ.get("PYTHONPATH")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
        if device != identity.type:
            environment["TORCH_OPENREG_AUTOLOAD"] = "0"
        return subprocess.call([sys.executable, "-m", "torch_conformance", *argv], env=environment)
