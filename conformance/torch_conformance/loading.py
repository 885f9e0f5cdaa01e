"""Loads a backend that `import torch` does not load by itself.

`use` makes a package in a temporary folder whose entry point loads the backend. So `import torch` loads it in this
process and in all processes that this one starts, also in those that a check or torch.multiprocessing starts. This
module does not import torch.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

NAME = "torch_conformance_import"
TARGET = re.compile(r"\w+(\.\w+)*(:\w+(\.\w+)*)?")

_SOURCE = """
def load():
    import importlib

    function = importlib.import_module({module!r})
    for name in {function!r}.split("."):
        function = getattr(function, name) if name else lambda: None
    function()
"""


def use(target: str) -> None:
    """Makes `import torch` load ``target``: ``module``, or ``module:function`` if a function must be called, too.

    Must be called before this process imports torch, unless only other processes need the backend.
    """
    folder = Path(tempfile.mkdtemp(prefix="torch_conformance"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    module, _, function = target.partition(":")
    (folder / f"{NAME}.py").write_text(_SOURCE.format(module=module, function=function))
    facts = folder / f"{NAME}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[torch.backends]\n{NAME} = {NAME}:load\n")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def is_used() -> bool:
    """Whether `use` was called in this process, or in the one that started it."""
    return any(point.name == NAME for point in importlib.metadata.entry_points(group="torch.backends"))
