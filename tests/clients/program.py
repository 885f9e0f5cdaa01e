"""A program of a library as two tests: it ends with exit status 0, as one process and as two ranks.

OPENREG_CLIENTS_FILE names the program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(os.environ["OPENREG_CLIENTS_FILE"])


@pytest.mark.parametrize("ranks", [1, 2], ids=f"{FILE.stem}-{{}}".format)
def test_a_program_ends_well(ranks: int, tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    result = subprocess.run(
        [sys.executable, *launcher, str(FILE)], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    errors = [line for line in result.stderr.splitlines() if "Error" in line]
    assert result.returncode == 0, (errors or result.stderr.splitlines() or ["no words"])[-1]
